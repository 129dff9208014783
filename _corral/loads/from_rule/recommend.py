"""Recommend the team of a run that starts from a rule if it is significantly better, else the rule.

The best of many checkpoints looks better than it is on the windows on which it was chosen. So the
team must pass two tests: the 95 % interval of the best checkpoint's difference to the rule lies
below 0, and so does the 90 % interval of the mean difference of all checkpoints in the later half
of the run, which involves no choice. A team with one lucky checkpoint fails the second test; a team
that is better throughout passes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from corral.envs.core import Array
from corral.envs.dfaas_v0.baselines import baseline_team, split_pair
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.policy import Policy
from corral.errors import ArgumentError, CorralError, RunError
from corral.loads.export.core import NodeDecider
from corral.loads.export.decider import Decider, rules_of
from corral.loads.export.formats import FORMATS
from corral.results import Result, filled
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, difference_interval
from corral.trainers.file_fields import read_fields
from corral.trainers.runs.run import Run, load_run

__all__ = ["RECOMMENDATION", "Recommendation", "recommend", "recommendation_of"]

RECOMMENDATION = "recommendation.json"
MAX_BYTES = 2**20
LATER_LEVEL = 0.9
"""Confidence level for the later half: with the other test, one-sided 5 % is strict enough."""


@dataclass(frozen=True, repr=False)
class Recommendation(Result):
    """The recommended policy, with the differences on validation windows that support it."""

    json_file = RECOMMENDATION

    play: Literal["team", "rule"]
    rule: str  # the best on all days that are not held out
    runner_up: str | None
    why: str
    windows: int  # for validation
    compared: int  # number of checkpoints, with the untrained one
    checkpoint: int | None = None  # env steps of the best checkpoint; 0: the rule itself
    rule_cost: float | None = None  # points: % of the arrivals
    difference: float | None = None  # cost of that checkpoint minus the rule's, in points
    low: float | None = None  # 95 % interval of it
    high: float | None = None
    later: float | None = None  # mean difference of the checkpoints of the later half
    later_low: float | None = None  # 90 % interval of it
    later_high: float | None = None
    requests: float | None = None  # the difference in requests per window
    folder: Path | None = field(default=None, compare=False, repr=False)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """The recommended policies: agent -> policy."""
        run = self._run()
        if self.play == "team":
            return run.policies
        rules: Any = run.config.env_config.rules()
        return baseline_team(split_pair(self.rule)[0], rules)

    @cached_property
    def decider(self) -> NodeDecider:
        """The recommended decider for production: the team, or the rule to the request."""
        run = self._run()
        return run.decider if self.play == "team" else Decider.of_rule(self.rule, rules_of(run))

    def start(self, seed: int = 0) -> Any:
        """Return the state before the first ``decide``, as ``Run.start``."""
        return self.decider.start(seed)

    def decide(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        previous: Mapping[str, Mapping[str, Any]] | None = None,
        state: Any = None,
        time: Any = None,
    ) -> dict[str, dict[str, Any]]:
        """Return node -> other node -> requests, or plans, like ``Run.decide``."""
        return self.decider.decide(nodes, previous, state, time)

    def export(
        self, format: str, folder: str | Path | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write the recommended policy, like ``Run.export``; a rule has no weights, and supports
        only format "numpy". Raises ArgumentError."""
        run = self._run()
        if self.play == "team":
            return run.export(format, folder, overwrite=overwrite)
        if format in FORMATS and format != "numpy":
            raise ArgumentError(
                f"the recommended rule {self.rule} has no weights: pass format='numpy'"
            )
        run.decider = self.decider
        return run.export(format, folder, overwrite=overwrite)

    def _run(self) -> Run:
        """Return the run, at its best checkpoint if the team is recommended. Raises RunError."""
        if self.folder is None:
            raise RunError(
                "this recommendation has no run: load it with corral.load_run(...).recommendation"
            )
        return load_run(f"{self.folder}@best" if self.play == "team" else self.folder)

    def lines(self) -> list[str]:
        """Return the recommendation as text, with the difference that supports it."""
        choice = f"the rule {self.rule}"
        if self.play == "team":
            choice = f"the team of {self.checkpoint:,} env steps (@best), not {self.rule}"
        lines = [f"Recommended: {choice}.", f"Why: {self.why}."]
        if self.difference is not None:
            figures = _figures(self.difference, self.low, self.high)
            lines.append(
                f"Cost, team minus rule: {figures}, {self.requests:+,.1f} requests a window"
            )
            lines.append(f"over {self.windows} validation windows, for the best of {self.compared}")
        if self.later is not None:
            mean = _figures(self.later, self.later_low, self.later_high)
            lines.append(f"Mean of the later half of the run: {mean} (90 %)")
        return lines

    def text(self, width: int = 80) -> str:
        """Return ``lines`` in lines of at most ``width``."""
        return filled(self.lines(), width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row: the content of recommendation.json."""
        return pd.DataFrame([self.to_json()])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, except the folder."""
        return {name: value for name, value in super().to_json().items() if name != "folder"}


def recommendation_of(run: Run) -> Recommendation | None:
    """Return the recommendation of a run; None if it has none (yet). Raises RunError."""
    path = run.folder / RECOMMENDATION
    try:
        fields = read_fields(
            path,
            Recommendation,
            max_bytes=MAX_BYTES,
            error=RunError,
            folder=run.folder,
            without=("folder",),
        )
    except FileNotFoundError:
        return None
    try:
        PlainRule.of(fields["rule"])
    except CorralError as error:
        raise RunError(f"{path}: rule: {error}") from error
    recommendation = Recommendation(**fields, folder=run.folder)
    if recommendation.play == "team" and recommendation.checkpoint is None:
        raise RunError(f"{path}: play is 'team', but checkpoint is missing")
    if recommendation.difference is not None and recommendation.requests is None:
        raise RunError(f"{path}: difference is given, but requests is missing")
    return recommendation


def recommend(
    rule: str,
    runner_up: str | None,
    rule_cost: Array,
    arrivals: Array,
    costs: Mapping[int, Array],
    start: str | None = None,
) -> Recommendation:
    """Return the recommendation: team or rule.

    Args:
        rule_cost, arrivals: requests of the rule in each validation window: [W].
        costs: cost of each checkpoint in requests, by its env steps (0: its start): [W].
        start: the rule from which the team starts; None: ``rule``.
    """
    windows, beginning = len(rule_cost), start or rule
    about: dict[str, Any] = {"rule": rule, "runner_up": runner_up, "windows": windows}
    about["compared"] = len(costs)
    if not windows or not costs or not arrivals.sum():
        return Recommendation("rule", why="no day was left to validate a team on", **about)
    steps = min(costs, key=lambda step: (float(costs[step].sum()), step))
    difference = costs[steps] - rule_cost
    points = 100 / float(arrivals.sum())
    about |= {
        "checkpoint": steps,
        "rule_cost": points * float(rule_cost.sum()),
        "difference": points * float(difference.sum()),
        "requests": float(difference.mean()),
    }
    if windows < FEWEST_WINDOWS:
        why = f"{windows} validation windows are too few; {FEWEST_WINDOWS} are needed"
        return Recommendation("rule", why=why, **about)
    learned = sorted(costs)[1:] if 0 in costs else sorted(costs)
    half = [costs[step] - rule_cost for step in learned[len(learned) // 2 :]]
    later = np.mean(half, axis=0) if half else difference
    best_interval = difference_interval(difference, arrivals)
    later_interval = difference_interval(later, arrivals, level=LATER_LEVEL)
    about |= {"low": _points(best_interval.low), "high": _points(best_interval.high)}
    about["later"] = points * float(later.sum())
    about |= {"later_low": _points(later_interval.low), "later_high": _points(later_interval.high)}
    if steps == 0:
        start = "the rule" if beginning == rule else f"{beginning}, from which the team starts"
        why = f"no trained checkpoint costs less than {start}"
        return Recommendation("rule", why=why, **about)
    if about["difference"] >= 0:
        return Recommendation("rule", why="no team costs less than it in validation", **about)
    if about["high"] < 0 and about["later_high"] < 0:
        why = "it costs less in validation, and both intervals exclude 0"
        return Recommendation("team", why=why, **about)
    why = "a team costs less in validation, but an interval includes 0"
    return Recommendation("rule", why=why, **about)


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _figures(value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]"
    return f"{value:+.2f} points{interval}"
