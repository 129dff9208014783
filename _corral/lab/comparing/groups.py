"""Groups of finished runs: which runs, what they are called, and whether they can be compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike
from corral.envs.core import Array
from corral.errors import RunError
from corral.lab.jobs import is_finished
from corral.text import visible
from corral.trainers.evaluation.judge import differences, require_same_game
from corral.trainers.runs.run import Run, is_run, load_each

__all__ = ["Given", "Group", "Member", "labels_of", "load_groups", "require_comparable"]

SEED = re.compile(r"[-_. ]*seed[-_=]?[0-9]+$")
"""What a folder's name ends with where it names the seed."""

Given = str | Path | Run
"""A run, or its folder; RUN@best is a checkpoint of it."""


@dataclass(frozen=True, eq=False)
class Member:
    """One run of a group, or one of a file of marl-eval's form."""

    name: str  # its folder, or its name in the file
    seed: int | None
    env_steps: int
    score: float
    steps: Array = field(default_factory=lambda: np.zeros(0))  # float64 [T] env steps
    returns: Array = field(default_factory=lambda: np.zeros(0))  # float64 [T] of training
    elapsed: Array | None = None  # float64 [T] seconds


Group = tuple[Member, ...]


def labels_of(groups: Sequence[Sequence[str]], names: Sequence[str | None] = ()) -> list[str]:
    """Return a label for each group of folders: the one it was given, else what the names of its
    folders have in common, without the seed: "a" of a-seed0, a-seed1.

    Raises ValueError where two groups are called the same, or more labels are given than groups.
    """
    _require_once(itertools.chain(*groups))
    if len(names) > len(groups):
        raise ValueError(f"{len(names)} names for {len(groups)} groups: give one for each")
    given = [*names, *[None] * (len(groups) - len(names))]
    both = zip(given, groups, strict=True)
    labels = [visible(name or _common(group)) for name, group in both]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"two groups are called {label}: give each a name")
    return labels


def _common(folders: Sequence[str]) -> str:
    names = [Path(folder).resolve().name for folder in folders]
    alike = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    shared = "".join(letters[0] for letters in alike)
    if len(names) > 1:
        shared = shared.rstrip("0123456789")
    return re.sub(r"[-_. ]*(seed|run)?[-_. ]*$", "", SEED.sub("", shared)) or names[0]


def load_groups(
    groups: Mapping[str, Sequence[Given]],
    env: EnvLike | None = None,
    *,
    unequal_steps: bool = False,
    unfinished: bool = False,
    **own: Any,
) -> tuple[dict[str, list[Run]], list[str]]:
    """Return the runs of each group, and what is to be said of them.

    Raises:
        RunError: a folder without a run, and runs that are not finished, unless ``unfinished``.
        ValueError: no group or an empty one, a run that is given twice, runs of different games,
            arguments, rows or loads, and runs of unequal env steps, unless ``unequal_steps``.
    """
    for label, given in groups.items():
        if not given:
            raise ValueError(f"{label} has no runs: no folder is called so")
        for each in given:
            if not isinstance(each, Run):
                _require_folder(each)
    flat = [each for given in groups.values() for each in given]
    loaded = iter(load_each(flat, env, **own))
    found = {label: [next(loaded) for _ in given] for label, given in groups.items()}
    runs = [run for group in found.values() for run in group]
    notes = [*_told_unfinished(runs, unfinished)]
    require_comparable(runs)
    notes += _told_steps(runs, unequal_steps)
    return found, notes


def _require_folder(given: str | Path) -> None:
    text = str(given)
    folder = Path(text) if is_run(text) else Path(text.rpartition("@")[0] or text)
    if not is_run(folder):
        why = "is no run" if folder.exists() else "does not exist"
        glob = "; the pattern matches nothing" if set("*?[") & set(text) else ""
        raise RunError(f"{text} {why}{glob}: name folders of runs, such as runs/mappo-seed*")


def require_comparable(runs: Sequence[Run]) -> None:
    """Raise ValueError where a run is given twice, or where two are of different games."""
    _require_once(run.folder for run in runs)
    first = runs[0]
    config = first.config.env_config
    for other in runs[1:]:
        require_same_game(first, other)
        theirs = other.config.env_config
        if differ := differences(config.env_kwargs, theirs.env_kwargs, otherwise=""):
            raise ValueError(f"{first.folder} and {other.folder}: {differ}")
        if config.held_out != theirs.held_out:
            raise ValueError(
                f"{first.folder} and {other.folder} hold out other rows: "
                f"{config.held_out} and {theirs.held_out}"
            )


def _require_once(folders: Iterable[str | Path]) -> None:
    seen: set[Path] = set()
    for folder in folders:
        path = Path(folder).resolve()
        if path in seen:
            raise ValueError(f"{folder} is given twice: a run counts once")
        seen.add(path)


def _told_unfinished(runs: Sequence[Run], allowed: bool) -> list[str]:
    left = [run for run in runs if not is_finished(run.folder)]
    if not left:
        return []
    named = ", ".join(str(run.folder) for run in left)
    if not allowed:
        raise RunError(
            f"not finished: {named}. corral train --resume "
            f"{left[0].config.named(left[0].folder)} goes on with it; --unfinished compares what "
            "is there"
        )
    return [f"Not finished: {named}."]


def _told_steps(runs: Sequence[Run], allowed: bool) -> list[str]:
    """Return a sentence where runs were trained for unequal env steps; raise where not allowed.

    Trainers play whole rollouts: steps count as equal where they differ by less than one.
    """
    ends = {run.folder: _last_steps(run) for run in runs}
    least, most = (choose(ends, key=lambda f: ends[f][0]) for choose in (min, max))
    if ends[most][0] - ends[least][0] <= max(rollout for _, rollout in ends.values()):
        return []
    said = f"{least} was trained for {ends[least][0]:,} env steps, {most} for {ends[most][0]:,}"
    if not allowed:
        raise ValueError(f"{said}: more training may be all that differs; --unequal-steps compares")
    return [f"Env steps are unequal: {said}. More training may be all that differs."]


def _last_steps(run: Run) -> tuple[int, int]:
    """Return the env steps of a run, of its checkpoint where one was named, and of a rollout."""
    steps = run.progress["env_steps"]
    rollout = int(steps.diff().max()) if len(steps) > 1 else int(steps.iloc[-1])
    if run.at is not None:
        return int(run.checkpoint().name.split("_")[1]), rollout
    return int(steps.iloc[-1]), rollout
