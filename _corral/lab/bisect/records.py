"""Algorithm records in a bisection: their fields, and trainers of mixed records. Needs torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from corral.trainers.base import Trainer
from corral.trainers.on_policy import algorithms
from corral.trainers.on_policy.records import OnPolicy
from corral.trainers.on_policy.trainer import OnPolicyTrainer, trainer_of

__all__ = ["FIELDS", "STOCK", "base_of", "mixture_of", "record_of"]

FIELDS = [entry.name for entry in dataclasses.fields(OnPolicy) if entry.name != "name"]

STOCK = tuple(entry for entry in vars(algorithms).values() if isinstance(entry, OnPolicy))
"""The algorithm records of corral."""


def record_of(cls: type[Trainer]) -> OnPolicy | None:
    """Return the record of a trainer; None for a trainer without one."""
    return cls.algorithm if isinstance(cls.algorithm, OnPolicy) else None


def base_of(cls: type[Trainer]) -> type[Trainer]:
    """Return the class of a trainer without its record: OnPolicyTrainer for a plain record."""
    plain = trainer_of(algorithms.mappo)
    if cls.__bases__ == (OnPolicyTrainer,) and vars(cls).keys() <= vars(plain).keys():
        return OnPolicyTrainer
    return cls


def mixture_of(base: type[Trainer], fields: Mapping[str, Any]) -> type[Trainer]:
    """Return a trainer of the class ``base`` with a record of these fields."""
    record = OnPolicy(name="mixture", **fields)
    if base is OnPolicyTrainer:
        return trainer_of(record)
    members = {"algorithm": record, "Settings": record.Settings, "name": "mixture"}
    return type("Mixture", (base,), members)
