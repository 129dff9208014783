"""Train with BenchMARL."""
