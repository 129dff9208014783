"""Planted faults: complete training scripts, each with one known fault, and sound runs beside them.

A script calls ``listen`` as a user does, in two lines::

    ear = listen(model)                         # Stable-Baselines3: before model.learn()
    ear = listen(policy=net, optimizer=opt)     # a loop: then ear.batch(...) or ear.rollout(...)

Each file of scripts has ``RUNS: dict[str, Planted]``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol


class Ear(Protocol):
    """Listens to one training."""

    def batch(self, **columns: Any) -> None:
        """Hear one minibatch, each column [R, ...], in any order of rows."""

    def rollout(self, **columns: Any) -> None:
        """Hear one rollout, each column [T, B, ...], in the order of time."""


class Listen(Protocol):
    """The function ``corral.listen``, or a replacement with the same parameters."""

    def __call__(self, model: Any = None, **options: Any) -> Any:
        """Listen to a model, or to ``policy`` and ``optimizer`` of a loop."""


@dataclass(frozen=True)
class Planted:
    """A training script with one fault, or with none."""

    name: str
    """Unique over all files."""
    framework: str
    """plain, sb3, rllib or torchrl."""
    cause: str
    """The true cause in one or two sentences; of a sound run, what is unusual about it."""
    place: str
    """Module, function, parameter, column or setting with the fault."""
    cited: str | None
    """Address of the thread that reports this fault."""
    sound: bool
    train: Callable[[Listen, int], float]
    """Train with this listen and seed; return the mean true return of the last episodes."""
    base: str = ""
    """The sound run of RUNS with the same task and budget."""
    random: Callable[[int], float] | None = None
    """Of a sound run: mean return of uniformly random legal play with this seed."""


class Silent:
    """An ear that hears nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *positional, **columns: None


def silent(model: Any = None, **options: Any) -> Silent:
    """Return an ear that hears nothing."""
    return Silent()


def by_name(planted: Iterable[Planted]) -> dict[str, Planted]:
    """Return planted runs by their names, which must differ."""
    listed = list(planted)
    runs = {one.name: one for one in listed}
    assert len(runs) == len(listed), "two runs have the same name"
    for one in listed:
        assert not one.base or runs[one.base].sound, f"{one.name}: unsound base {one.base}"
    return runs


def lines_of(rows: dict[str, Any]) -> str:
    """Return rows as a JSON object, one line each."""
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items())]
    return "{\n" + ",\n".join(lines) + "\n}\n"
