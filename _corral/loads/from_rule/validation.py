"""Validation of a team during training: day by day, compared with the rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from corral.envs.core import Array
from corral.errors import RunError
from corral.files import write_file
from corral.loads.from_rule.days import played
from corral.loads.from_rule.preset import FromRule
from corral.loads.replay import play_windows
from corral.loads.scores import WindowSums
from corral.progress import Progress
from corral.trainers.callbacks.protocol import Callback
from corral.trainers.file_fields import read_fields
from corral.trainers.planning import Minutes

__all__ = ["HISTORY", "History", "Validated", "cost_of"]

HISTORY = "validation.json"
MAX_BYTES = 2**26


@dataclass
class History:
    """Costs in requests of each validation window: of the rule, and of the team by env steps."""

    rule: list[float] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    costs: dict[int, list[float]] = field(default_factory=dict)
    checks: int = 1  # number of validations over the whole run

    @classmethod
    def read(cls, folder: Path) -> History:
        """Return the history of a run. Raises RunError if the file is damaged."""
        path = folder / HISTORY
        try:
            fields = read_fields(path, cls, max_bytes=MAX_BYTES, error=RunError, folder=folder)
        except FileNotFoundError:
            raise RunError(f"{path} is missing") from None
        history = cls(**fields)
        lengths = {
            len(values) for values in (history.rule, history.arrivals, *history.costs.values())
        }
        if len(lengths) > 1:
            raise RunError(f"{path}: rule, arrivals and costs have different numbers of windows")
        if history.checks < 1:
            raise RunError(f"{path}: checks = {history.checks}: must be 1 or more")
        return history

    def write(self, folder: Path) -> None:
        write_file(folder / HISTORY, json.dumps(asdict(self)) + "\n", folder=folder)


class Validated(Callback):
    """Plays the validation windows regularly; the best checkpoint has the least cost there.

    Ends training when the time of the job is over.
    """

    order, keeps_plan = -1, True
    columns = ("cost_beyond_rule",)  # in points

    def __init__(
        self,
        rule: str,
        window: int,
        keep: Callable[[Path], None],
        preset: FromRule,
        limit: Minutes | None,
        show: Progress | None = None,
    ) -> None:
        """``keep`` is called with the run's folder at its start and end, ``show`` with the env
        steps at the start and after each update."""
        self.rule, self.window, self.keep = rule, window, keep
        self.preset, self.limit, self.show = preset, limit, show
        self.history = History()
        self.rules: Any = None  # for validation; None: no validation

    def on_start(self, session: Any) -> None:
        folder, config = session.run.folder, session.config.env_config
        self.keep(folder)
        if session.env_steps and (folder / HISTORY).is_file():  # a resumed run
            self.history = History.read(folder)
        elif config.validation:
            rows = config.validation["rows"]
            sums = played(config, [self.rule], rows, self.window, lambda *progress: None)
            of_rule = sums[self.rule]
            checks = self.preset.validations
            self.history = History(of_rule.cost.tolist(), of_rule.arrivals.tolist(), {}, checks)
        history = self.history
        history.costs = {k: v for k, v in history.costs.items() if k <= session.env_steps}
        self.every = max(1, session.steps // history.checks)
        self.before = session.env_steps
        if history.arrivals:
            self.rules = config.validation_rules()
            if not session.env_steps:
                self._play(session)
                session.save()
        history.write(folder)
        self._report(session)

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        row |= dict.fromkeys(self.columns)
        self._report(session)
        before, self.before = self.before, session.env_steps
        if self.rules is not None and session.env_steps // self.every != before // self.every:
            row[self.columns[0]] = self._play(session)
            self.history.write(session.run.folder)
        if self.limit is not None and not self.limit.left and not session.over:
            session.stop(f"{self.limit.minutes:.3g} minutes are over")

    def _report(self, session: Any) -> None:
        if self.show is not None:
            self.show("training, env steps", session.env_steps, session.steps)

    def _play(self, session: Any) -> float:
        """Play the validation windows; return the cost above that of the rule, in points."""
        cost = cost_of(self.rules, session.policies, self.window)
        self.history.costs[session.env_steps] = cost.tolist()
        return self._compare(session, session.env_steps)

    def _compare(self, session: Any, steps: int) -> float:
        """Offer the present checkpoint as the best one; return its cost above that of the rule, in
        points."""
        history = self.history
        beyond = sum(history.costs[steps]) - sum(history.rule)
        points = 100 * beyond / max(1.0, sum(history.arrivals))
        compared = f"saving compared with {self.rule} in validation, in points"
        session.statistics.validate(0.0 - points, compared, "greedy")  # -points may be -0
        return points

    def on_end(self, session: Any) -> None:
        self.keep(session.run.folder)


def cost_of(rules: Any, policies: Any, window: int) -> Array:
    """Return the cost of a team with greedy play in each window of the rows: [W] requests."""
    played, _ = play_windows(rules, policies, window)
    return WindowSums.of(played, rules).cost
