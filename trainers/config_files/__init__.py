"""Configuration files with the arguments of ``corral.train``: read, check and write them."""
