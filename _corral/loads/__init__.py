"""Replays of load traces through policies, and their reports."""
