"""What was seen of a short stretch of a run: ``gathering`` has the way, ``record`` what is kept."""
