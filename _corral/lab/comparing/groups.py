"""Groups of finished runs: their labels, their runs, and whether they are comparable."""

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

__all__ = ["Group", "Member", "RunLike", "labels_of", "load_groups", "require_comparable"]

SEED = re.compile(r"[-_. ]*seed[-_=]?[0-9]+$")
"""End of a folder's name that states the seed."""

RunLike = str | Path | Run
"""A run, or its folder; RUN@best is a checkpoint of the run."""


@dataclass(frozen=True, eq=False)
class Member:
    """A run of a group, or a run from a marl-eval file."""

    name: str  # folder of the run, or its name in the file
    seed: int | None
    env_steps: int
    score: float
    steps: Array = field(default_factory=lambda: np.zeros(0))  # float64 [T] env steps
    returns: Array = field(default_factory=lambda: np.zeros(0))  # float64 [T] of training
    elapsed: Array | None = None  # float64 [T] seconds


Group = tuple[Member, ...]


def labels_of(groups: Sequence[Sequence[str]], names: Sequence[str | None] = ()) -> list[str]:
    """Return a label for each group of folders.

    The label is the group's name if one is given, else the common part of its folders' names
    without the seed: "a" for a-seed0, a-seed1. Raises ValueError for duplicate labels, and for more
    names than groups.
    """
    _require_once(itertools.chain(*groups))
    if len(names) > len(groups):
        raise ValueError(
            f"{len(names)} names for {len(groups)} groups: give at most one name per group"
        )
    all_names = [*names, *[None] * (len(groups) - len(names))]
    pairs = zip(all_names, groups, strict=True)
    labels = [visible(name or _common(group)) for name, group in pairs]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"two groups are named {label}: give each group a different name")
    return labels


def _common(folders: Sequence[str]) -> str:
    names = [Path(folder).resolve().name for folder in folders]
    same = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    shared = "".join(letters[0] for letters in same)
    if len(names) > 1:
        shared = shared.rstrip("0123456789")
    return re.sub(r"[-_. ]*(seed|run)?[-_. ]*$", "", SEED.sub("", shared)) or names[0]


def load_groups(
    groups: Mapping[str, Sequence[RunLike]],
    env: EnvLike | None = None,
    *,
    unequal_steps: bool = False,
    unfinished: bool = False,
    **options: Any,
) -> tuple[dict[str, list[Run]], list[str]]:
    """Return label -> runs, and notes about the runs.

    Raises:
        RunError: a folder without a run, or, unless ``unfinished``, a run that is not finished.
        ValueError: an empty group, a duplicate run, runs with different environments, arguments,
            rows or loads, or, unless ``unequal_steps``, runs with unequal env steps.
    """
    for label, members in groups.items():
        if not members:
            raise ValueError(f"{label} is empty: no folder matches it")
        for member in members:
            if not isinstance(member, Run):
                _require_folder(member)
    flat = [member for members in groups.values() for member in members]
    loaded = iter(load_each(flat, env, **options))
    runs_of = {label: [next(loaded) for _ in members] for label, members in groups.items()}
    runs = [run for group in runs_of.values() for run in group]
    notes = [*_notes_on_unfinished(runs, unfinished)]
    require_comparable(runs)
    notes += _notes_on_steps(runs, unequal_steps)
    return runs_of, notes


def _require_folder(run: str | Path) -> None:
    text = str(run)
    folder = Path(text) if is_run(text) else Path(text.rpartition("@")[0] or text)
    if not is_run(folder):
        why = "is not a run" if folder.exists() else "does not exist"
        glob = "; the pattern matches nothing" if set("*?[") & set(text) else ""
        raise RunError(f"{text} {why}{glob}: name folders of runs, such as runs/mappo-seed*")


def require_comparable(runs: Sequence[Run]) -> None:
    """Raise ValueError for duplicate runs and for runs of different environments."""
    _require_once(run.folder for run in runs)
    first = runs[0]
    config = first.config.env_config
    for other in runs[1:]:
        require_same_game(first, other)
        other_config = other.config.env_config
        if difference := differences(config.env_kwargs, other_config.env_kwargs, otherwise=""):
            raise ValueError(f"{first.folder} and {other.folder}: {difference}")
        if config.held_out != other_config.held_out:
            raise ValueError(
                f"{first.folder} and {other.folder} hold out different rows: "
                f"{config.held_out} and {other_config.held_out}"
            )


def _require_once(folders: Iterable[str | Path]) -> None:
    seen: set[Path] = set()
    for folder in folders:
        path = Path(folder).resolve()
        if path in seen:
            raise ValueError(f"{folder} is a duplicate; give each run once")
        seen.add(path)


def _notes_on_unfinished(runs: Sequence[Run], allowed: bool) -> list[str]:
    unfinished = [run for run in runs if not is_finished(run.folder)]
    if not unfinished:
        return []
    names = ", ".join(str(run.folder) for run in unfinished)
    if not allowed:
        raise RunError(
            f"not finished: {names}. Resume with corral train --resume "
            f"{unfinished[0].config.named(unfinished[0].folder)}, or pass --unfinished to compare "
            "the runs anyway"
        )
    return [f"Not finished: {names}."]


def _notes_on_steps(runs: Sequence[Run], allowed: bool) -> list[str]:
    """Return a note if runs have unequal env steps. Raises ValueError if that is not allowed.

    Trainers play whole rollouts, so differences below one rollout are ignored.
    """
    ends = {run.folder: _last_steps(run) for run in runs}
    least, most = (choose(ends, key=lambda f: ends[f][0]) for choose in (min, max))
    if ends[most][0] - ends[least][0] <= max(rollout for _, rollout in ends.values()):
        return []
    counts = f"{least} was trained for {ends[least][0]:,} env steps, {most} for {ends[most][0]:,}"
    if not allowed:
        raise ValueError(
            f"{counts}. The difference may come from more training; pass --unequal-steps to compare"
            " anyway"
        )
    return [f"Env steps are unequal: {counts}. The difference may come from more training."]


def _last_steps(run: Run) -> tuple[int, int]:
    """Return the env steps of a run or of its named checkpoint, and the env steps of a rollout."""
    steps = run.progress["env_steps"]
    rollout = int(steps.diff().max()) if len(steps) > 1 else int(steps.iloc[-1])
    if run.at is not None:
        return int(run.checkpoint().name.split("_")[1]), rollout
    return int(steps.iloc[-1]), rollout
