"""A run on disk: what defines it, its checkpoints, its log."""
