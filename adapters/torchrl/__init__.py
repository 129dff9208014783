"""Environments for TorchRL, and tasks for BenchMARL."""

from corral.adapters.torchrl.env import RandomLegal, group_by_name, torchrl_env

__all__ = ["RandomLegal", "group_by_name", "torchrl_env"]
