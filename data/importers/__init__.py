"""Load traces from the files that other programs write."""
