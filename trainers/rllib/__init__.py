"""Training with RLlib."""
