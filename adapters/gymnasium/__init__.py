"""Environments for single-agent libraries, through gymnasium: one seat, or many columns."""

from corral.adapters.gymnasium.seat import SeatEnv
from corral.adapters.gymnasium.vector import BatchVectorEnv

__all__ = ["BatchVectorEnv", "SeatEnv"]
