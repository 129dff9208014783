"""Configuration files: what ``corral.train`` is called with, read, checked and written."""
