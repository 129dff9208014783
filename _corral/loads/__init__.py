"""Load traces replayed through policies, and what a replay shows."""
