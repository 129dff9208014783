"""Duels: every player against every other, in every seat, and ratings of what came out."""
