"""A team that starts from the best rule of a load: see ``driver``."""
