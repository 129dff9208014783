"""Settings tuned: many trainings of one environment, the best of them chosen by validation."""
