"""Environments for TorchRL, and tasks for BenchMARL."""

from corral.adapters.torchrl.env import RandomLegal, alike_by_name, torchrl_env

__all__ = ["RandomLegal", "alike_by_name", "torchrl_env"]
