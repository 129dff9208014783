"""What to play of a run that began with a rule: its team where that is better for certain, else the
rule.

The best of many checkpoints looks better than it is on the windows that it was chosen on. So two
things are asked of it: the 95 % interval of its own difference to the rule lies below 0, and so
does the 90 % interval of the mean difference of all checkpoints of the later half of the run, which
nobody chose. A team that was lucky once does not pass the second, one that is better throughout
does.
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
from corral.results import Result
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, difference_interval
from corral.trainers.file_fields import read_fields
from corral.trainers.runs.run import Run, load_run

__all__ = ["RECOMMENDATION", "Recommendation", "recommend", "recommendation_of"]

RECOMMENDATION = "recommendation.json"
MOST_BYTES = 2**20
LATER_LEVEL = 0.9
"""Level of the interval of the later half: with the other one, one-sided 5 % is strict enough."""


@dataclass(frozen=True)
class Recommendation(Result):
    """What to play, and the differences on validation windows that say so."""

    json_file = RECOMMENDATION

    play: Literal["team", "rule"]
    rule: str  # the best on all days that are not held out
    runner_up: str | None
    why: str
    windows: int  # of validation
    compared: int  # checkpoints, and the clone
    checkpoint: int | None = None  # env steps of that of least cost; 0: the clone of the rule
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
        """agent -> its policy, of what is recommended."""
        run = self._run()
        if self.play == "team":
            return run.policies
        rules: Any = run.config.env_config.rules()
        return baseline_team(split_pair(self.rule)[0], rules)

    @cached_property
    def decider(self) -> NodeDecider:
        """What decides in production as is recommended: the team, or the rule to the request."""
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
        """Return who offers how many requests to whom, or plans, as ``Run.decide``."""
        return self.decider.decide(nodes, previous, state, time)

    def export(
        self, format: str, folder: str | Path | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write what is recommended, as ``Run.export``; a rule, which has no weights, to "numpy"
        alone. Raises ArgumentError."""
        run = self._run()
        if self.play == "team":
            return run.export(format, folder, overwrite=overwrite)
        if format in FORMATS and format != "numpy":
            raise ArgumentError(
                f"the rule {self.rule} is recommended, which has no weights: give format='numpy'"
            )
        run.decider = self.decider
        return run.export(format, folder, overwrite=overwrite)

    def _run(self) -> Run:
        """Return the run, the best checkpoint where the team is recommended. Raises RunError."""
        if self.folder is None:
            raise RunError("this recommendation is of no run: corral.load_run(...).recommendation")
        return load_run(f"{self.folder}@best" if self.play == "team" else self.folder)

    def lines(self) -> list[str]:
        """Return it in words: what to play, and the difference that says so."""
        what = f"the rule {self.rule}"
        if self.play == "team":
            what = f"the team of {self.checkpoint:,} env steps (@best), not {self.rule}"
        found = [f"Recommended: {what}.", f"Why: {self.why}."]
        if self.difference is not None:
            own = _figures(self.difference, self.low, self.high)
            found.append(f"Cost, team minus rule: {own}, {self.requests:+,.1f} requests a window")
            found.append(f"over {self.windows} validation windows, the best of {self.compared}")
        if self.later is not None:
            mean = _figures(self.later, self.later_low, self.later_high)
            found.append(f"Mean of the later half of the run: {mean} (90 %)")
        return found

    def to_dataframe(self) -> pd.DataFrame:
        """Return one line: what recommendation.json holds."""
        return pd.DataFrame([self.to_json()])

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values, but where it is kept."""
        return {name: value for name, value in super().to_json().items() if name != "folder"}


def recommendation_of(run: Run) -> Recommendation | None:
    """Return what was recommended of a run; None where nothing was (yet). Raises RunError."""
    path = run.folder / RECOMMENDATION
    try:
        told = read_fields(
            path,
            Recommendation,
            most=MOST_BYTES,
            error=RunError,
            folder=run.folder,
            without=("folder",),
        )
    except FileNotFoundError:
        return None
    try:
        PlainRule.of(told["rule"])
    except CorralError as error:
        raise RunError(f"{path}: rule: {error}") from error
    found = Recommendation(**told, folder=run.folder)
    if found.play == "team" and found.checkpoint is None:
        raise RunError(f"{path}: play is 'team', and checkpoint says none")
    if found.difference is not None and found.requests is None:
        raise RunError(f"{path}: difference is given, and requests is not")
    return found


def recommend(
    rule: str,
    runner_up: str | None,
    rule_cost: Array,
    arrivals: Array,
    costs: Mapping[int, Array],
) -> Recommendation:
    """Return what to play.

    Args:
        rule_cost, arrivals: requests of the rule in each validation window: [W].
        costs: those of each checkpoint, by its env steps (0: the clone): [W].
    """
    windows = len(rule_cost)
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
        why = f"{windows} validation windows are too few to tell, {FEWEST_WINDOWS} are needed"
        return Recommendation("rule", why=why, **about)
    learned = sorted(costs)[1:] if 0 in costs else sorted(costs)
    half = [costs[step] - rule_cost for step in learned[len(learned) // 2 :]]
    later = np.mean(half, axis=0) if half else difference
    own = difference_interval(difference, arrivals)
    mean = difference_interval(later, arrivals, level=LATER_LEVEL)
    about |= {"low": _points(own.low), "high": _points(own.high)}
    about["later"] = points * float(later.sum())
    about |= {"later_low": _points(mean.low), "later_high": _points(mean.high)}
    if steps == 0:
        return Recommendation("rule", why="nothing learned beyond it costs less", **about)
    if about["difference"] >= 0:
        return Recommendation("rule", why="no team costs less than it in validation", **about)
    if about["high"] < 0 and about["later_high"] < 0:
        why = "it costs less in validation, and both intervals exclude 0"
        return Recommendation("team", why=why, **about)
    why = "a team costs less in validation, but an interval does not exclude 0"
    return Recommendation("rule", why=why, **about)


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _figures(value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None or high is None else f" [{low:+.2f}, {high:+.2f}]"
    return f"{value:+.2f} points{interval}"
