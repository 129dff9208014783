"""Duels: every player against every other player in every seat, with ratings."""
