"""Evaluation: returns of teams and the confidence intervals of their means."""
