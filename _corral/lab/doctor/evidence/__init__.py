"""Record a short stretch of a run: ``gathering`` runs it, ``record`` holds the result."""
