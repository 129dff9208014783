"""Trainers are tested on one thread."""

from support.threads import one_thread

__all__ = ["one_thread"]
