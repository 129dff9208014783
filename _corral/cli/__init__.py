"""The ``corral`` command: a thin front door. What it does is done by the packages behind it."""

from corral.cli.app import main

__all__ = ["main"]
