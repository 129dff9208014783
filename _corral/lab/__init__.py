"""Studies of many training runs: tuning, comparisons, duels, exploitation and diagnosis."""
