"""The report of an ear: whether the training learns, its faults, and the missing data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.text import SURE, finding_lines, wrapped
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import largest_entropy
from corral.results import Result
from corral.trainers.runs.trends import Change, change_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Measured", "Report", "report_of"]

FEW_UPDATES = 10
"""With fewer updates, a return that does not rise says nothing."""

LABELS = {
    "entropy": "entropy / log(legal actions)",
    "advantages": "spread of advantages",
    "explained_variance": "explained variance",
    "approx_kl": "KL divergence of an update",
    "gradient": "norm of the gradients",
    "learning_rate": "learning rate",
    "weights": "largest change of a weight",
}
"""Name of a measurement -> its label on the screen."""


@dataclass(frozen=True)
class Measured:
    """One number of a policy, in its first and in its last recorded update."""

    name: str  # of LABELS
    policy: str
    beginning: float
    latest: float


@dataclass(frozen=True, repr=False)
class Report(Result):
    """The report of ``corral.listen``.

    ``verdict``: "learns", "fault", "no fault" (it does not learn, and no fault was heard) or
    "too early" (too few updates or episodes to tell).
    """

    json_file: ClassVar[str] = "listen.json"

    findings: tuple[Finding, ...]
    returns: Mapping[str, Change | None]
    """Policy -> change of the return of its episodes; without rollouts, of minibatches' rewards."""
    updates: Mapping[str, int]  # policy -> updates
    episodes: Mapping[str, int]  # policy -> ended episodes
    measurements: tuple[Measured, ...]
    missing: Mapping[str, tuple[str, ...]]  # policy -> quantities that were not heard
    errors: tuple[str, ...] = ()  # exceptions of the listener and of rules

    @property
    def learns(self) -> bool:
        """True if the return of some policy's episodes rises beyond noise, and none falls."""
        directions = {change.direction() for change in self.returns.values() if change is not None}
        return "rose" in directions and "fell" not in directions

    @property
    def verdict(self) -> str:
        if self.learns:
            return "learns"
        if any(finding.certainty >= 2 for finding in self.findings):
            return "fault"
        early = max(self.updates.values(), default=0) < FEW_UPDATES
        untold = all(change is None for change in self.returns.values())
        return "too early" if early or untold else "no fault"

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per finding, with the fields of ``Finding`` as columns."""
        import pandas as pd

        columns = [entry.name for entry in fields(Finding)]
        return pd.DataFrame([vars(finding) for finding in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values, plus "verdict"."""
        return {"verdict": self.verdict, **super().to_json()}

    def texts(self) -> dict[str, str]:
        return {**super().texts(), "listen.txt": f"{self}\n"}

    def text(self, width: int = 80) -> str:
        """Return the whole report, verdict first, in lines of at most ``width``."""
        return "\n".join(self.lines(width))

    def _repr_html_(self) -> str:
        from corral.notebook import as_html  # late: only for notebooks

        rows = [
            (item.title, SURE[item.certainty], item.measured, item.place, item.todo)
            for item in self.findings
            if not item.follows
        ]
        columns = ["fault", "certainty", "measured", "place", "to do"] if rows else []
        return as_html(self._headline(), {}, columns, rows)

    def lines(self, width: int = 80) -> Iterator[str]:
        """Yield the lines of the report, verdict first."""
        yield from wrapped(self._headline(), width)
        roots = [finding for finding in self.findings if not finding.follows]
        for number, finding in enumerate(roots, 1):
            yield ""
            yield from (line for line, _ in finding_lines(number, finding, self.findings, width))
        for policy in self.updates:
            yield ""
            yield from self._numbers(policy)
        for error in self.errors:
            yield from wrapped(error, width)
        for policy, names in self.missing.items():
            if names:
                of = f" of policy {policy}" if len(self.updates) > 1 else ""
                yield from wrapped(f"not heard{of}: {', '.join(names)}", width)

    def _headline(self) -> str:
        roots = [item for item in self.findings if not item.follows]
        faults = [item for item in roots if item.certainty >= 2]
        count = f"{len(faults)} faults" if len(faults) > 1 else "one fault"
        rest = len(roots) - len(faults)
        notes = f"{rest} findings are" if rest > 1 else "one finding is"
        note = f" But {notes} worth a look, see below." if rest else ""
        if self.verdict == "learns":
            text = f"It learns: {self._returns()}."
            return f"{text} But {count} heard, most certain first." if faults else text + note
        if self.verdict == "fault":
            trend = self._returns()
            return f"{count.capitalize()} heard, most certain first" + f"; {trend}." * bool(trend)
        if self.verdict == "too early":
            updates = max(self.updates.values(), default=0)
            episodes = sum(self.episodes.values())
            return (
                f"No fault heard; {_counted(updates, 'update')} and "
                f"{_counted(episodes, 'ended episode')} are too few to tell if it learns.{note}"
            )
        return (
            f"It does not learn, and no fault was heard: {self._returns()}.{note} Next, test the "
            "environment (corral check ENV --learnable), and the learner on probes with known "
            "answers (corral doctor --learner file.py:learn)."
        )

    def _returns(self) -> str:
        """Describe the change of the return of each policy."""
        texts = []
        for policy, change in self.returns.items():
            if change is not None:
                of = f" of {policy}" if len(self.returns) > 1 else ""
                direction = change.direction()
                how = {"rose": "rises", "fell": "falls"}.get(direction, "shows no trend")
                episodes = self.episodes[policy]
                total = "return" if episodes else "mean reward of minibatches"
                count = f" of {episodes:,} episodes" if episodes else ""
                texts.append(
                    f"the {total}{of} {how} ({change.first:.4g} in the first third{count}, "
                    f"{change.last:.4g} in the last)"
                )
        return ", ".join(texts)

    def _numbers(self, policy: str) -> Iterator[str]:
        title = f"Policy {policy}" if len(self.updates) > 1 else "Measurements"
        yield f"{title:<36}{'at first':>12}{'at last':>14}"
        for item in self.measurements:
            if item.policy == policy:
                label = LABELS[item.name]
                yield f"  {label:<34}{_number(item.beginning):>12}{_number(item.latest):>14}"
        updates, episodes = self.updates[policy], self.episodes[policy]
        yield f"{_counted(updates, 'update')}, {_counted(episodes, 'ended episode')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def report_of(
    policies: Mapping[str, Heard], findings: tuple[Finding, ...], error: str = ""
) -> Report:
    """Return the report on recorded data; ``error`` ended the listening."""
    return Report(
        findings,
        {name: change_of(heard.returns or _varied(heard)) for name, heard in policies.items()},
        {name: heard.updates for name, heard in policies.items()},
        {name: len(heard.returns) for name, heard in policies.items()},
        tuple(item for heard in policies.values() for item in _measured(heard)),
        {name: tuple(heard.missing) for name, heard in policies.items()},
        tuple(_errors(policies, error)),
    )


def _varied(heard: Heard) -> list[float]:
    """Return the mean rewards of minibatches; none if all are equal, as with 1 for each step."""
    return heard.batch_rewards if np.ptp(heard.batch_rewards or [0.0]) > 1e-9 else []


def _errors(policies: Mapping[str, Heard], error: str) -> Iterator[str]:
    """Yield what went wrong in listening itself."""
    if error:
        yield f"listening ended early: {error}"
    for heard in policies.values():
        for rule, text in heard.failed.items():
            yield f"the rule {rule} failed: {text}"


def _measured(heard: Heard) -> Iterator[Measured]:
    """Yield the measurements of the first and of the last recorded update."""
    batches = heard.minibatches
    first = [batch for batch in batches if batch.update == min(x.update for x in batches)]
    last = [batch for batch in batches if batch.update == max(x.update for x in batches)]
    sides: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for numbers, group in zip(sides, (first, last), strict=True):
        numbers |= _of_minibatches(group)
    for numbers, at in zip(sides, (0, -1), strict=True):
        if heard.rollouts:
            numbers |= _of_rollout(heard.rollouts[at])
        if heard.steps:
            step = heard.steps[at]
            numbers |= {"gradient": step.norm, "learning_rate": step.learning_rate}
            if step.changes:
                numbers["weights"] = max(step.changes.values())
    for name in LABELS:
        if name in sides[0] and name in sides[1]:
            beginning, latest = sides[0][name], sides[1][name]
            if np.isfinite([beginning, latest]).all():
                yield Measured(name, heard.policy, beginning, latest)


def _of_rollout(rollout: Any) -> dict[str, float]:
    numbers = {}
    valid = slice(None) if rollout.valid is None else rollout.valid
    if rollout.advantages is not None:
        numbers["advantages"] = float(np.std(rollout.advantages[valid]))
    if rollout.returns is not None and rollout.values is not None:
        returns = rollout.returns[valid].astype(np.float64)
        spread = float(np.var(returns))
        if spread > 0:
            unexplained = float(np.var(returns - rollout.values[valid]))
            numbers["explained_variance"] = 1.0 - unexplained / spread
    return numbers


def _of_minibatches(group: list[Minibatch]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for batch in group:
        largest = largest_entropy(batch)
        if batch.entropy is not None and largest is not None:
            numbers["entropy"] = float(np.mean(batch.entropy)) / largest
            break
    later = group[-1] if group else None
    if later is not None and later.new_log_probs is not None and later.log_probs is not None:
        log_ratio = (later.new_log_probs - later.log_probs).astype(np.float64)
        numbers["approx_kl"] = float(np.mean(np.expm1(log_ratio) - log_ratio))
    return numbers


def _number(value: float) -> str:
    return f"{value:.2e}" if value and abs(value) < 1e-3 else f"{value:.3g}"
