"""Opponents, which play seats without learning: reference players, runs and weighted mixes."""
