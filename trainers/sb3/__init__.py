"""Training with Stable-Baselines3."""
