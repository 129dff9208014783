"""Observe a run from outside: during training, in progress.csv and in rollout buffers."""
