"""Environments for RLlib: a MultiAgentEnv, and a module that applies masks."""

from corral.adapters.rllib.env import EPISODES, FAULTS, EpisodeReturns, FinishedEpisode, RLlibEnv

__all__ = ["EPISODES", "FAULTS", "EpisodeReturns", "FinishedEpisode", "RLlibEnv"]
