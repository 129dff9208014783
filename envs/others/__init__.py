"""Convert RLlib and Gymnasium environments into PettingZoo environments.

``multi_agent`` converts classes written for RLlib's MultiAgentEnv. ``single_agent`` converts
Gymnasium environments. ``convert`` detects the kind of an environment. See docs/environments.md.
"""
