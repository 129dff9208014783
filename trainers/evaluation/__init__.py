"""Evaluation: the returns of teams, and how sure a mean is."""
