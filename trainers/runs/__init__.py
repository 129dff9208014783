"""A run on disk: its configuration, its checkpoints and its log."""
