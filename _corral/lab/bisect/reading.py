"""Read a side of a bisection: a run, a configuration file, an algorithm record, or a script.

A script is a function ``train`` in a file with a dict ``SETTINGS``:

    # slow.py
    SETTINGS = {"learning_rate": 1e-3, "hidden": 64}

    def train(*, seed, learning_rate, hidden):
        ...
        return mean_return_of_the_last_episodes

``corral bisect good.py:train bad.py:train`` calls it with mixtures of both dicts. The returned
number is the score. Only code that the caller names is executed, never code that a file names.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.adapters.sources import EnvLike
from corral.errors import ArgumentError, ConfigError
from corral.lab.bisect.sides import ABSENT, Difference
from corral.lab.bisect.training import FAILED
from corral.named import is_named, named_object
from corral.text import dotted_name, one_line
from corral.trainers.base import Algorithm, Trainer, trainers
from corral.trainers.config_files.read import read_config
from corral.trainers.driver import train
from corral.trainers.runs.run import Run, has_custom, is_run, load_run
from corral.trainers.runs.run_config import RunConfig

__all__ = ["MixedScripts", "Named", "Script", "SideLike", "side_of"]

SideLike = str | Path | Run | Algorithm | type[Trainer] | Mapping[str, Any] | tuple[Any, Any]
"""A run or its folder, a configuration file or its arguments, a record or its name, a script
file.py:train, or a script as (function, settings)."""

FILES = (".toml", ".json")


@dataclass(frozen=True)
class Script:
    """A function that trains with keyword settings and returns a score."""

    function: Callable[..., Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Named:
    """Code that the caller names again for runs and files: see ``corral.load_run``."""

    env: EnvLike | None = None
    env_kwargs: Mapping[str, Any] | None = None
    api: Any = None
    trainer: Any = None
    model: Any = None


def side_of(side: SideLike, named: Named) -> RunConfig | Script:
    """Return the configuration of a side, or its script. Raises the errors of ``load_run``,
    ``read_config`` and ``train``, and ArgumentError for an unknown kind of side."""
    if isinstance(side, Run):
        return side.config
    if isinstance(side, tuple):
        function, settings = side
        return Script(function, settings)
    if isinstance(side, str | Path) and is_run(side):
        trainer = named.trainer if has_custom(side, "trainer_source") else None
        model = named.model if has_custom(side, "model") else None
        kwargs = named.env_kwargs
        return load_run(
            side, named.env, env_kwargs=kwargs, api=named.api, trainer=trainer, model=model
        ).config
    if isinstance(side, str | Path) and str(side).endswith(FILES):
        code: dict[str, Any] = {
            name: value for name, value in vars(named).items() if value is not None
        }
        custom: dict[str, Any] = {
            name: code.pop(name) for name in ("trainer", "model") if name in code
        }
        side = {**custom, **read_config(side, **code)}
    if isinstance(side, Mapping):
        return train(**{**side, "dry_run": True, "progress": False}).config
    target = named_object(str(side), "side") if isinstance(side, str) and is_named(side) else side
    if isinstance(target, str | Path) and str(target) not in trainers():
        raise ConfigError(
            f"{target} is not a run, a configuration file (.toml, .json), a record (file.py:name), "
            "a script (file.py:train) or a trainer"
        )
    if callable(target) and not isinstance(target, type):
        module = sys.modules[target.__module__]
        if isinstance(side, str):  # the dict of the named file, not of the function's
            module = sys.modules[named_module(side)]
        if not isinstance(settings := vars(module).get("SETTINGS"), Mapping):
            raise ArgumentError(f"{side}: define SETTINGS, a dict of the function's arguments")
        return Script(target, settings)
    if named.env is None:
        raise ArgumentError(f"{one_line(side)}: name its environment, --env (env=)")
    record_or_name: Any = side  # no path: that would be refused above
    return train(
        named.env,
        trainer=record_or_name,
        env_kwargs=named.env_kwargs,
        api=named.api,
        model=named.model,
        dry_run=True,
        progress=False,
    ).config


def named_module(text: str) -> str:
    """Return the name of the module that defines or imports the object named by ``text``."""
    path = text.rpartition(":")[0]
    if not path.endswith(".py"):
        return path
    file = str(Path(path).resolve())
    return next(
        name for name, module in sys.modules.items() if vars(module).get("__file__") == file
    )


class MixedScripts:
    """Mixtures of two scripts: of their settings, and of their functions if they differ."""

    def __init__(self, good: Script, bad: Script) -> None:
        self.sides = good, bad
        names = {**good.settings, **bad.settings}
        values = {name: [side.settings.get(name, ABSENT) for side in self.sides] for name in names}
        code = [dotted_name(side.function) for side in self.sides]
        self.differences = tuple(
            Difference("setting", name, one_line(repr(first)), one_line(repr(second)))
            for name, (first, second) in values.items()
            if repr(first) != repr(second)
        ) + ((Difference("code", "", *code),) if good.function is not bad.function else ())

    def score(self, bad: Collection[Difference], seed: int) -> float | None:
        chosen = {difference.name for difference in bad}
        names = {name for side in self.sides for name in side.settings}
        settings = {
            name: self.sides[name in chosen].settings[name]
            for name in names
            if name in self.sides[name in chosen].settings
        }
        function = self.sides["" in chosen].function
        try:
            score = float(function(seed=seed, **settings))
        except Exception:
            return FAILED
        return FAILED if math.isnan(score) else score
