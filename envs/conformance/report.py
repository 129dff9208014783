"""The report of a check: findings, the text of them, and values as text."""

from __future__ import annotations

import dataclasses
import hashlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from corral.errors import ConformanceError
from corral.results import Result

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "CHECKS",
    "CheckResult",
    "Finding",
    "Findings",
    "Place",
    "Severity",
    "brief",
    "fingerprint",
]

Severity = Literal["error", "warning"]
Place = tuple[Any, int | None, int | None]
"""Where a fault was seen: agent, seed, step."""

CHECKS: dict[str, str] = {
    "api": "make, reset, step and close answer as PettingZoo says",
    "crash": "legal actions raise nothing",
    "endless": "episodes end",
    "agents": "what is shown is for agents that live; who has ended leaves, and stays away",
    "spaces": "an agent's spaces are one object each, and never change",
    "observation": "observations lie in their space: type, shape, dtype, bounds, no NaN",
    "mask": "an action mask is int8 of 0 and 1, of the action space's size, never all 0",
    "mask-lies": "what the mask allows is legal, what it forbids is not",
    "reward": "rewards are finite numbers",
    "ends": "terminated and truncated are bool, and not both true",
    "info": "an agent's info is a dict with the same keys at every step",
    "aliasing": "what was handed out does not change later",
    "selection": "AEC: agent_selection is one of agents",
    "last": "AEC: last() tells what observe() and the tables tell",
    "dead-step": "AEC: who has ended is selected, takes None, and leaves by it",
    "cumulative-rewards": "AEC: last() pays what came since the agent's last action",
    "seed": "the same seed gives the same whole episode",
    "other-seeds": "other seeds give other episodes, unless the game has no chance",
    "reset": "reset works without a seed; with one, what was before is forgotten",
    "shared-state": "two environments that are stepped in turn play as each does alone",
    "copies": "a pickled copy and a deep copy go on as the original does",
    "processes": "another process plays the same episodes",
    "hashing": "so does one with another PYTHONHASHSEED",
}
"""Every check, and what an environment without a finding does."""


@dataclass
class Finding:
    """One fault: where it was seen first, and how often."""

    check: str  # of CHECKS
    severity: Severity
    seen: str
    expected: str
    advice: str  # what to do next
    cause: str  # findings of one check and one cause are one finding
    agent: str | None = None
    seed: int | None = None  # None: an episode without a seed, or no episode
    step: int | None = None  # calls of step before it was seen; 0 is the reset
    count: int = 1
    others: tuple[str, ...] = ()  # further agents of whom the same was seen

    @property
    def place(self) -> str:
        """Such as: agent_0, seed 0, step 3 (12 times, also agent_1)."""
        parts = [] if self.agent is None else [self.agent]
        parts += [] if self.seed is None else [f"seed {self.seed}"]
        parts += [] if self.step is None else ["reset" if self.step == 0 else f"step {self.step}"]
        again = [f"{self.count:,} times"] if self.count > 1 else []
        if self.others:
            more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
            again.append(f"also {', '.join(self.others[:3])}{more}")
        return ", ".join(parts) + (f" ({', '.join(again)})" if again else "")


@dataclass
class Findings:
    """The collection of findings; equal faults are counted, not listed."""

    found: dict[tuple[str, str], Finding] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)  # check -> why
    notes: list[str] = field(default_factory=list)

    def add(
        self,
        fault: str,
        severity: Severity = "error",
        *,
        seen: str,
        expected: str,
        advice: str,
        at: Place = (None, None, None),
    ) -> None:
        """Enter a ``fault``, "check: cause", or count it where it was found before."""
        check, cause = fault.split(": ", 1)
        if check not in CHECKS:
            raise KeyError(check)
        name = None if at[0] is None else str(at[0])
        found = self.found.get((check, cause))
        if found is None:
            self.found[check, cause] = Finding(
                check, severity, seen, expected, advice, cause, name, *at[1:]
            )
            return
        found.count += 1
        if name not in (None, found.agent, *found.others):
            found.others += (str(name),)

    def skip(self, checks: Iterable[str], why: str) -> None:
        """Say that checks could not be run."""
        for check in checks:
            self.not_run.setdefault(check, why)

    def has(self, *checks: str) -> bool:
        """Return True if one of ``checks`` found an error."""
        return any(f.check in checks and f.severity == "error" for f in self.found.values())


@dataclass(frozen=True)
class CheckResult(Result):
    """The findings of ``check_env``, errors first, each severity in the order of ``CHECKS``."""

    json_file, csv_file = "check.json", "check.csv"

    environment: str
    form: str  # "parallel" or "AEC"; "not made" where that failed
    findings: tuple[Finding, ...]
    not_run: dict[str, str]  # checks that could not be run, and why
    notes: tuple[str, ...]
    checks: tuple[str, ...]  # the checks that were run
    seeds: tuple[int, ...]
    episodes: int
    steps: int  # calls of step
    seconds: float

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def require(self) -> None:
        """Raise ConformanceError, with the whole report, where there are errors."""
        if self.errors:
            raise ConformanceError(f"\n{self.text()}")

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each finding, with the fields of ``Finding`` as columns."""
        import pandas as pd  # slow to import; environments do without

        columns = [each.name for each in dataclasses.fields(Finding)]
        return pd.DataFrame([vars(finding) for finding in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values, of errors and warnings how many there are."""
        return {**super().to_json(), "errors": len(self.errors), "warnings": len(self.warnings)}

    def text(self, width: int = 80) -> str:
        """The report, no line longer than ``width``."""
        lines = _filled(
            f"{self.environment} ({self.form}): {self.episodes} episodes, {self.steps:,} steps, "
            f"{self.seconds:.1f} s",
            width,
        )
        for finding in self.findings:
            head = f"{finding.severity.upper()} {finding.check}"
            place = finding.place
            lines += ["", *_filled(f"{head}: {place}" if place else head, width)]
            for label in ("seen", "expected", "advice"):
                lines += _labeled(label, getattr(finding, label), width)
        if self.not_run:
            lines += ["", "NOT RUN"]
            for why in dict.fromkeys(self.not_run.values()):
                names = [check for check, reason in self.not_run.items() if reason == why]
                lines += _filled(f"{', '.join(names)}: {why}", width, "  ")
        lines += [""] if self.notes else []
        for note in self.notes:
            lines += _filled(f"note: {note}", width)
        return "\n".join([*lines, "", *_filled(self.summary, width)])

    @property
    def summary(self) -> str:
        """ "2 errors, 1 warning; 20 checks run, 2 not run"."""
        counts = [
            f"{len(found)} {word}{'' if len(found) == 1 else 's'}"
            for word, found in (("error", self.errors), ("warning", self.warnings))
        ]
        not_run = f", {len(self.not_run)} NOT RUN (see above)" if self.not_run else ""
        return f"{', '.join(counts)}; {len(self.checks)} checks run{not_run}"


def _labeled(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=f"  {label:<9}", subsequent_indent=" " * 11)


def _filled(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent + "  ")


# --- Values as text ------------------------------------------------------------------------------

PLAIN = frozenset({bool, int, float, str, bytes, type(None)})


def fingerprint(value: Any) -> str:
    """Return a text that is equal for equal values in every process; dicts have no order."""
    if type(value) in PLAIN:
        return repr(value)
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return f"object{value.shape}{fingerprint(value.tolist())}"
        if value.size <= 4:
            return f"{value.dtype.str}{value.tolist()}"
        digest = hashlib.blake2b(value.tobytes(), digest_size=8)
        return f"{value.dtype.str}{value.shape}#{digest.hexdigest()}"
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, Mapping):
        keys = sorted(value, key=str)
        return "{" + ", ".join([f"{key}: {fingerprint(value[key])}" for key in keys]) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(fingerprint, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(fingerprint, value)) + "]"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text  # an address says nothing


def brief(value: Any, most: int = 60) -> str:
    """Return a value in a few words, for a report."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype} array of shape {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 3] + "..."
