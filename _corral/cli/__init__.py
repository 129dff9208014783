"""The ``corral`` command: a thin front door. The packages behind it do the work."""

from corral.cli.app import main

__all__ = ["main"]
