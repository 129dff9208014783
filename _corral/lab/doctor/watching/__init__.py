"""What is seen of a run from outside: while it trains, in progress.csv, in rollout buffers."""
