"""The learned team of an advice: its days, its training, and its saving."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.loads.advise.enough import Training, training_of
from corral.loads.advise.verdict import PLENTY, Saving, both, saving
from corral.loads.from_rule.days import game_of
from corral.loads.from_rule.plan import clone_folder, plan_of
from corral.loads.replay import Replay, replay
from corral.progress import Progress, quietly
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.judge import players
from corral.trainers.runs.run import Run, load_run

__all__ = ["FEWEST", "Division", "Team", "divide", "judge", "require_the_same", "trained"]

FEWEST = 4
"""Days that are needed to train, validate and judge on different ones."""


OF_TEAM = ("amount", "daily_mean", "last_counts", "max_level", "observation")
"""Arguments of dfaas_v0 that the team brings, and rules do without."""


@dataclass(frozen=True)
class Division:
    """The rows that a team learns from, and those that it is judged on."""

    held_out: tuple[int, int]
    validation: tuple[int, int] | None  # None: as ``from_rule`` has it


def divide(length: int, window: int) -> Division | None:
    """Return how the rows of a trace of that ``length`` are divided; None for too few windows.

    Three of ten windows are held out, the last ones, with the rows after them that fill none; at
    least 6 of 12 or more windows, for fewer have no interval. By default ``from_rule`` would
    validate on six of the eight windows that are left of 14: then a third validates.
    """
    days = length // window
    if days < FEWEST:
        return None
    held = max(1, round(HELD_OUT * days))
    if days >= PLENTY:
        held = max(held, FEWEST_WINDOWS)
    left = days - held
    cut = left * window
    if left >= PLENTY:
        return Division((cut, length), None)
    first = cut - max(1, left // 3) * window
    return Division((cut, length), (first, cut))


@dataclass(frozen=True)
class Team:
    """A learned team on the days that were held out."""

    run: Run = field(repr=False)  # its best checkpoint in validation
    rule: str  # the best rule of the other days, which it is paired with
    saving: Saving
    cost: float  # share of the arrivals
    lost: float
    training: Training
    replay: Replay = field(repr=False)  # of the held-out days
    beside_today: Saving | None = None  # compared with the rule of today

    def to_json(self) -> dict[str, Any]:
        """Return what it saved, where its run is, and which rows were for what."""
        config = self.run.config.env_config
        rows = {"trained": config.env_kwargs["rows"], "held_out": config.held_out["rows"]}
        rows["validation"] = config.validation.get("rows")
        return {
            "folder": str(self.run.folder),
            "checkpoint": self.run.name,
            "rule": self.rule,
            "saving": self.saving.to_json(),
            "beside_today": None if self.beside_today is None else self.beside_today.to_json(),
            "cost": self.cost,
            "lost": self.lost,
            "training": self.training.to_json(),
            "rows": {what: None if each is None else list(each) for what, each in rows.items()},
        }


def trained(
    load: Trace,
    folder: Path,
    division: Division,
    rule: str,
    settings: Mapping[str, Any],
    training: Mapping[str, Any],
    *,
    seed: int,
    progress: bool | None,
    show: Progress,
) -> Run:
    """Return the run in ``folder``: begun from ``rule``, resumed, or as it was if it had ended.

    ``settings`` are arguments of dfaas_v0, ``training`` those of ``corral.from_rule``.
    """
    from corral.loads.from_rule.driver import from_rule, resume_from_rule  # torch

    with quietly():
        if plan_of(folder) is not None:
            return resume_from_rule(folder, progress=progress)
        return from_rule(
            env_kwargs={"trace": load, **settings},
            held_out=division.held_out,
            validation=division.validation,
            out=folder,
            seed=seed,
            progress=progress,
            show=show,
            quiet=True,
            rule=rule,
            **training,
        )


def require_the_same(folder: Path, load: Trace, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if the team begun in ``folder`` plays another game."""
    begun = folder if (folder / "config.json").is_file() else clone_folder(folder)
    config = load_run(begun).config.env_config
    defaults = {k: each.default for k, each in inspect.signature(DfaasRules).parameters.items()}
    played = {**defaults, **config.env_kwargs}
    other = [key for key, value in settings.items() if played.get(key) != value]
    if config.trace != load or other:
        what = "another load" if config.trace != load else f"another {other[0]}"
        raise ValueError(f"{folder} holds a team for {what}: give another folder")


def judge(run: Run, rules: Sequence[str], today: str, show: Progress) -> Team:
    """Return the saving of the run's best checkpoint on the days that were held out, compared with
    the best rule of the others and with the rule of ``today``; ``rules`` are replayed with it."""
    config, plan = run.config.env_config, run.recommendation
    best = load_run(f"{run.folder}@best") if config.validation else run
    assert config.trace is not None
    rows, rule = config.held_out["rows"], plan.rule
    chosen_on = "the days that are not held out"
    result = replay(
        config.trace,
        {**{pair: pair for pair in dict.fromkeys([*rules, rule, today])}, "team": players(best)[0]},
        rows=rows,
        window=config.env_kwargs["max_cycles"],
        best_rule=(rule, chosen_on),
        optimum_windows=0,
        progress=show,
        **{key: value for key, value in game_of(config).items() if key not in OF_TEAM},
    )
    own = result.sums["team"]
    every = max(1.0, float(own.arrivals.sum()))

    def beside(label: str) -> Saving:
        return saving(result, both(result.sums[label]), both(own), own.arrivals)

    return Team(
        best,
        rule,
        beside(rule),
        cost=float(own.cost.sum()) / every,
        lost=float(own.lost.sum()) / every,
        training=training_of(run),
        replay=result,
        beside_today=beside(today),
    )
