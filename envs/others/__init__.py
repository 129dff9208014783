"""Environments as people have them, as PettingZoo environments: RLlib's classes, Gymnasium's.

``multi_agent`` takes classes written for RLlib's MultiAgentEnv, ``single_agent`` those of one
agent, and ``convert`` finds out what it was given. docs/environments.md is the manual.
"""
