"""Compare groups of runs: which trainer is better, with intervals and tests."""
