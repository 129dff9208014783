"""What a planted fault is, and how a run with it is trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import corral
from corral.errors import IllegalActionError, ModelError, NonFiniteError
from corral.trainers.runs.run import Run

TINY: dict[str, Any] = {"num_envs": 8, "n_steps": 32, "net_arch": (16,), "preset": "none"}
"""Settings of every run; a fault's own go before them."""

UPDATES = 3


@dataclass(frozen=True)
class Fault:
    """A mistake, and what the doctor calls it: ``causes`` are those of which any will do."""

    name: str
    causes: tuple[str, ...]
    make: Callable[[Path], Run]
    """Trains a run with the mistake in a folder that is not there yet, and returns it."""
    sure: bool = True
    """Whether the cause can be known; else it is named as worth a look."""

    @property
    def mistake(self) -> str:
        return (self.make.__doc__ or "").strip().splitlines()[0]


FAULTS: dict[str, Fault] = {}
"""Every fault by its name, in the order of the modules."""


def fault(
    *causes: str, sure: bool = True
) -> Callable[[Callable[[Path], Run]], Callable[[Path], Run]]:
    """Enter a function(folder) -> run, whose docstring says the mistake, in the gallery."""

    def enter(make: Callable[[Path], Run]) -> Callable[[Path], Run]:
        assert make.__name__ not in FAULTS
        assert make.__doc__
        FAULTS[make.__name__] = Fault(make.__name__, causes, make, sure)
        return make

    return enter


def trained(folder: Path, env: Any, updates: int = UPDATES, **given: Any) -> Run:
    """Train a tiny run of a few updates in ``folder``; ``given`` as to ``corral.train``.

    Where the mistake lets no rollout end, the run is returned as it was planned.
    """
    given = {**TINY, **given}
    if given.get("model") is not None:  # a network of one's own has its own layers
        given.pop("net_arch")
    given.setdefault("steps", updates * given["num_envs"] * given["n_steps"])
    try:
        return corral.train(env, out=folder, progress=False, **given)
    except (IllegalActionError, ModelError, NonFiniteError):
        return corral.train(env, progress=False, dry_run=True, **given)
