"""Find the smallest set of differences between two trainings that costs the learning."""
