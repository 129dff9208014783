"""What to play of a run that began with a rule: its team where that is better for certain, else the
rule.

The best of many checkpoints looks better than it is on the windows that it was chosen on. So the
interval of its difference to the rule is one that holds for all that were compared at once: with
probability 95 % each of their differences is within its own. Where even its upper end is below 0,
the team is recommended.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.baselines import baseline_team, split_pair
from corral.envs.policy import Policy
from corral.errors import RunError
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS, student_quantile
from corral.trainers.runs.files import replace_text
from corral.trainers.runs.run import Run, load_run

__all__ = ["RECOMMENDATION", "Recommendation", "recommend", "recommendation_of", "simultaneous"]

RECOMMENDATION = "recommendation.json"
LEVEL, DRAWS = 0.95, 4_000


@dataclass(frozen=True)
class Recommendation:
    """What to play, and the differences on validation windows that say so."""

    play: Literal["team", "rule"]
    rule: str  # the best on all days that are not held out
    runner_up: str | None
    why: str
    windows: int  # of validation
    compared: int  # checkpoints, and the clone
    checkpoint: int | None = None  # env steps of that of least cost; 0: the clone of the rule
    rule_cost: float | None = None  # points: % of the arrivals
    difference: float | None = None  # cost of that checkpoint minus the rule's, in points
    low: float | None = None  # 95 % for all that were compared at once
    high: float | None = None
    requests: float | None = None  # the difference in requests per window
    folder: Path | None = field(default=None, compare=False, repr=False)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """agent -> its policy, of what is recommended."""
        if self.folder is None:
            raise RunError("this recommendation is of no run: corral.load_run(...).recommendation")
        run = load_run(f"{self.folder}@best" if self.play == "team" else self.folder)
        if self.play == "team":
            return run.policies
        rules: Any = run.config.env_config.rules()
        return baseline_team(split_pair(self.rule)[0], rules)

    def lines(self) -> list[str]:
        """Return it in words: what to play, and the difference that says so."""
        what = f"the rule {self.rule}"
        if self.play == "team":
            what = f"the team of {self.checkpoint:,} env steps (@best), not {self.rule}"
        found = [f"Recommended: {what}.", f"Why: {self.why}."]
        if self.difference is not None:
            interval = "" if self.low is None else f" [{self.low:+.2f}, {self.high:+.2f}]"
            found.append(
                f"Cost, team minus rule: {self.difference:+.2f} points{interval}, "
                f"{self.requests:+,.1f} requests a window"
            )
            found.append(
                f"over {self.windows} validation windows; the best of {self.compared} moments, "
                "95 % for all of them"
                if self.low is not None
                else f"over {self.windows} validation windows"
            )
        return found

    def write(self, folder: Path) -> None:
        """Write it into the folder of a run."""
        told = {name: value for name, value in asdict(self).items() if name != "folder"}
        replace_text(folder / RECOMMENDATION, json.dumps(told, indent=2, allow_nan=False) + "\n")


def recommendation_of(run: Run) -> Recommendation | None:
    """Return what was recommended of a run; None where nothing was (yet). Raises RunError."""
    path = run.folder / RECOMMENDATION
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return Recommendation(**told, folder=run.folder)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def recommend(
    rule: str,
    runner_up: str | None,
    rule_cost: Array,
    arrivals: Array,
    costs: Mapping[int, Array],
    beside: Mapping[str, Array] | None = None,
) -> Recommendation:
    """Return what to play.

    Args:
        rule_cost, arrivals: requests of the rule in each validation window: [W].
        costs: those of each checkpoint, by its env steps: [W].
        beside: those of others that were compared, and not chosen.
    """
    windows = len(rule_cost)
    about: dict[str, Any] = {"rule": rule, "runner_up": runner_up, "windows": windows}
    family = [*costs.values(), *(beside or {}).values()]
    about["compared"] = len(family)
    if not windows or not family or not arrivals.sum():
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
    halves = simultaneous(np.array(family) - rule_cost, arrivals)
    half = points * float(arrivals.sum()) * float(halves[[*costs].index(steps)])
    low, high = about["difference"] - half, about["difference"] + half
    about |= {"low": low, "high": high}
    if steps == 0:
        return Recommendation("rule", why="nothing learned beyond it costs less", **about)
    if high < 0:
        return Recommendation(
            "team", why="it costs less in validation, and the interval excludes 0", **about
        )
    why = "a team costs less in validation, but the interval does not exclude 0"
    if about["difference"] >= 0:
        why = "no team costs less than it in validation"
    return Recommendation("rule", why=why, **about)


def simultaneous(differences: Array, arrivals: Array, level: float = LEVEL) -> Array:
    """Return half the widths of intervals of the shares sum(differences) / sum(arrivals): [K].

    All K shares are within their intervals at once with probability ``level``. That is Student's
    interval, with the quantile of the largest of K deviations that vary together as these do: it is
    drawn from normal windows of the same covariance. Of K alike it is that of one.

    Args:
        differences: [K, W] of windows, W of 2 or more.
        arrivals: [W].
    """
    windows = differences.shape[1]
    shares = differences.sum(axis=1, keepdims=True) / arrivals.sum()
    parts = (differences - shares * arrivals) / arrivals.mean()  # [K, W] that sum to 0
    errors = np.sqrt((parts**2).sum(axis=1) / (windows - 1) / windows)
    factor = student_quantile((1 + level) / 2, windows - 1)
    varied = errors > 1e-9 * max(1e-9, float(errors.max()))
    if varied.sum() > 1:
        scaled = parts[varied] / errors[varied, None]
        values, vectors = np.linalg.eigh(scaled @ scaled.T)
        root = (vectors * np.sqrt(np.maximum(values, 0))).T  # [K, K] of which root.T @ root it is
        rng, largest = np.random.default_rng(0), []
        for _ in range(DRAWS // 200):  # parts of all draws, which would be large
            drawn = rng.standard_normal((200, windows, len(root))) @ root  # [D, W, K]
            spread = drawn.std(axis=1, ddof=1) / math.sqrt(windows)
            largest.append((np.abs(drawn.mean(axis=1)) / spread).max(axis=1))
        factor = max(factor, float(np.quantile(np.concatenate(largest), level)))
    return np.asarray(factor * errors)
