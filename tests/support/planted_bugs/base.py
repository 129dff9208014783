"""How a bug is planted: what makes a broken trainer of a sound one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias

from corral.trainers.on_policy.trainer import OnPolicyTrainer

__all__ = ["PLANTED", "Kind", "Plant", "but", "plant", "with_methods", "with_settings"]

Kind: TypeAlias = type[OnPolicyTrainer]
Plant: TypeAlias = Callable[[Kind], Kind]
"""Makes a broken trainer of a sound one."""

PLANTED: dict[str, Plant] = {}
"""All planted bugs, by what they are called."""


def plant(bug: Plant) -> Plant:
    """Enter a bug among those that learners are compared with."""
    PLANTED[bug.__name__.replace("_", " ")] = bug
    return bug


def but(kind: Kind, **changes: Any) -> Kind:
    """Return a trainer by the same algorithm with some functions replaced."""
    return type(kind.__name__, (kind,), {"algorithm": kind.algorithm.but(**changes)})


def with_methods(kind: Kind, **methods: Any) -> Kind:
    """Return a trainer with other methods."""
    return type(kind.__name__, (kind,), methods)


def with_settings(kind: Kind, **changes: Any) -> Kind:
    """Return a trainer for which some settings are others, whatever is given."""

    def init(self: Any, rules: Any, settings: Any, **kwargs: Any) -> None:
        kind.__init__(self, rules, dataclasses.replace(settings, **changes), **kwargs)

    return with_methods(kind, __init__=init)
