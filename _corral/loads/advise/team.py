"""The learned team of an advice: its days, its training, and its saving."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.data import Trace
from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.loads.advise.enough import Training, training_of
from corral.loads.advise.verdict import PLENTY, Saving, both, saving
from corral.loads.from_rule.days import game_of
from corral.loads.from_rule.plan import plan_of
from corral.loads.replay import Replay, replay
from corral.progress import Progress, without_setup_messages
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.evaluation.judge import players
from corral.trainers.runs.run import Run, load_run

__all__ = [
    "FEWEST",
    "Division",
    "Team",
    "costs_on",
    "divide",
    "judge",
    "require_the_same",
    "trained",
]

FEWEST = 4
"""The fewest days that can be divided into training, validation and held-out days."""


OF_TEAM = (
    *("amount", "beyond", "capacity_scale", "daily_mean", "last_counts", "load_scale"),
    *("max_level", "observation", "offsets", "residual"),
)
"""Arguments of dfaas_v0 that the team brings and rules do not use."""


@dataclass(frozen=True)
class Division:
    """The rows for training and validation, and the held-out rows."""

    held_out: tuple[int, int]
    validation: tuple[int, int] | None  # None: chosen by ``from_rule``


def divide(length: int, window: int) -> Division | None:
    """Divide a trace of ``length`` rows; return None for fewer than ``FEWEST`` windows.

    The last 30 % of the windows are held out, with a shorter last window. With 12 or more windows
    at least 6 are held out, because fewer give no interval. If fewer than 12 windows remain, the
    last third of them validates: ``from_rule`` would take too many (six of the remaining eight of
    14 windows).
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
    """A learned team on the held-out days."""

    run: Run = field(repr=False)  # its best checkpoint in validation
    rule: str  # the best rule of the other days, with which the team is compared
    saving: Saving
    cost: float  # share of the arrivals
    lost: float
    training: Training
    replay: Replay = field(repr=False)  # of the held-out days
    beside_today: Saving | None = None  # compared with the rule of today

    def to_json(self) -> dict[str, Any]:
        """Return the saving, the run's folder, and the rows of each part, as JSON values."""
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
            "rows": {
                part: None if bounds is None else list(bounds) for part, bounds in rows.items()
            },
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
    """Return the run in ``folder``: trained from ``rule``, resumed, or loaded if it had ended.

    ``settings`` are arguments of dfaas_v0, ``training`` those of ``corral.from_rule``.
    """
    from corral.loads.from_rule.driver import from_rule, resume_from_rule  # torch

    with without_setup_messages():
        if plan_of(folder) is not None:
            return resume_from_rule(folder, progress=progress, show=show)
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
    """Raise ValueError if the team in ``folder`` plays another load or other settings."""
    config = load_run(folder).config.env_config
    defaults = {
        k: parameter.default for k, parameter in inspect.signature(DfaasRules).parameters.items()
    }
    played = {**defaults, **config.env_kwargs}
    differing = [key for key, value in settings.items() if played.get(key) != value]
    if config.trace != load or differing:
        difference = "another load" if config.trace != load else f"another {differing[0]}"
        raise ValueError(f"{folder} holds a team for {difference}: pass another folder")


def judge(run: Run, rules: Sequence[str], today: str, show: Progress) -> Team:
    """Compare the run's best checkpoint on the held-out days with the best rule of the other days
    and with the rule of ``today``; ``rules`` are replayed with it."""
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
    team_sums = result.sums["team"]
    every = max(1.0, float(team_sums.arrivals.sum()))

    def beside(label: str) -> Saving:
        return saving(result, both(result.sums[label]), both(team_sums), team_sums.arrivals)

    return Team(
        best,
        rule,
        beside(rule),
        cost=float(team_sums.cost.sum()) / every,
        lost=float(team_sums.lost.sum()) / every,
        training=training_of(run),
        replay=result,
        beside_today=beside(today),
    )


def costs_on(team: Team, rows: tuple[int, int], show: Progress) -> Array:
    """Return the cost of a team in each window of other rows of its load, float64 [W] requests."""
    config = team.run.config.env_config
    assert config.trace is not None
    result = replay(
        config.trace,
        {"team": players(team.run)[0]},
        rows=rows,
        window=config.env_kwargs["max_cycles"],
        optimum_windows=0,
        progress=show,
        **{key: value for key, value in game_of(config).items() if key not in OF_TEAM},
    )
    return result.sums["team"].cost
