"""Training with BenchMARL."""
