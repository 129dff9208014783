"""Listen to a training in the user's own script: ``corral.listen``."""
