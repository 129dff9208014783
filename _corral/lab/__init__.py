"""Many trainings as one study: settings tuned, trainers compared."""
