"""The environments for RLlib: a MultiAgentEnv, and a module that reads the mask."""

from corral.adapters.rllib.env import EPISODES, FAULTS, EpisodeReturns, FinishedEpisode, RLlibEnv

__all__ = ["EPISODES", "FAULTS", "EpisodeReturns", "FinishedEpisode", "RLlibEnv"]
