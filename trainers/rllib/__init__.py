"""Train with RLlib."""
