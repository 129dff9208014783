"""A run behind HTTP: decisions, guarded, counted."""
