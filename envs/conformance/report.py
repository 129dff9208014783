"""Report of a check: findings, their text, and values as text."""

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
"""Place of a fault: agent, seed, step."""

CHECKS: dict[str, str] = {
    "api": "make, reset, step and close return what PettingZoo specifies",
    "crash": "legal actions raise no exception",
    "endless": "episodes end",
    "agents": "returned dicts cover the live agents; ended agents leave and do not return",
    "spaces": "the spaces of an agent are always the same objects",
    "observation": "observations fit their space: type, shape, dtype, bounds, no NaN",
    "mask": "an action mask is int8 of 0 and 1, fits the action space and is never all 0",
    "mask-lies": "allowed actions are legal, masked actions are illegal",
    "reward": "rewards are finite numbers",
    "ends": "terminated and truncated are bool, and not both true",
    "info": "the info of an agent is a dict with the same keys at every step",
    "aliasing": "returned values do not change later",
    "selection": "AEC: agent_selection is one of agents",
    "last": "AEC: last() agrees with observe() and the dicts of the environment",
    "dead-step": "AEC: an ended agent is selected, takes None and is then removed",
    "cumulative-rewards": "AEC: last() returns the rewards since the agent's last action, once",
    "seed": "the same seed gives the same whole episode",
    "other-seeds": "different seeds give different episodes, unless the game is deterministic",
    "reset": "reset works without a seed; with a seed it forgets the previous episode",
    "shared-state": "two interleaved environments play the same as each one separately",
    "copies": "a pickled copy and a deep copy continue exactly like the original",
    "processes": "another process plays the same episodes",
    "hashing": "a process with a different PYTHONHASHSEED plays the same episodes",
}
"""All checks, with the behavior that each one requires."""


@dataclass
class Finding:
    """One fault, with its first place and its number of occurrences."""

    check: str  # of CHECKS
    severity: Severity
    seen: str
    expected: str
    advice: str  # the remedy
    cause: str  # findings with the same check and cause are merged
    agent: str | None = None
    seed: int | None = None  # None: no seed, or no episode
    step: int | None = None  # calls of step until then; 0: the reset
    count: int = 1
    others: tuple[str, ...] = ()  # other agents with the same fault

    @property
    def place(self) -> str:
        """Describe the place, for example "agent_0, seed 0, step 3 (12 times, also agent_1)"."""
        parts = [] if self.agent is None else [self.agent]
        parts += [] if self.seed is None else [f"seed {self.seed}"]
        parts += [] if self.step is None else ["reset" if self.step == 0 else f"step {self.step}"]
        extra = [f"{self.count:,} times"] if self.count > 1 else []
        if self.others:
            more = f" and {len(self.others) - 3} more" if len(self.others) > 3 else ""
            extra.append(f"also {', '.join(self.others[:3])}{more}")
        return ", ".join(parts) + (f" ({', '.join(extra)})" if extra else "")


@dataclass
class Findings:
    """A collection of findings; repeated faults are counted, not listed."""

    entries: dict[tuple[str, str], Finding] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)  # check -> reason
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
        """Add a ``fault``, written "check: cause"; count it if it is already known."""
        check, cause = fault.split(": ", 1)
        if check not in CHECKS:
            raise KeyError(check)
        name = None if at[0] is None else str(at[0])
        entry = self.entries.get((check, cause))
        if entry is None:
            self.entries[check, cause] = Finding(
                check, severity, seen, expected, advice, cause, name, *at[1:]
            )
            return
        entry.count += 1
        if name not in (None, entry.agent, *entry.others):
            entry.others += (str(name),)

    def skip(self, checks: Iterable[str], reason: str) -> None:
        """Record that checks could not be run, with the reason."""
        for check in checks:
            self.not_run.setdefault(check, reason)

    def drop(self, checks: Iterable[str], reason: str) -> None:
        """Remove the findings of checks that are meaningless for a ``reason``."""
        for key in [key for key in self.entries if key[0] in checks]:
            del self.entries[key]
        self.skip(checks, reason)

    def has(self, *checks: str) -> bool:
        """Return True if one of ``checks`` has an error."""
        return any(f.check in checks and f.severity == "error" for f in self.entries.values())


@dataclass(frozen=True, repr=False)
class CheckResult(Result):
    """The findings of ``check_env``: errors first, then warnings, in the order of ``CHECKS``."""

    json_file, csv_file = "check.json", "check.csv"

    environment: str
    form: str  # "parallel" or "AEC"; "not made" if the construction failed
    findings: tuple[Finding, ...]
    not_run: dict[str, str]  # checks that could not be run, with the reason
    notes: tuple[str, ...]
    checks: tuple[str, ...]  # the checks that were run
    seeds: tuple[int, ...]
    episodes: int
    steps: int  # calls of step
    seconds: float
    cut: bool = False  # episodes were compared in part, for lack of time

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity == "warning")

    def __repr__(self) -> str:
        counts = self.summary.removesuffix(" (see above)")
        return f"<CheckResult of {self.environment} ({self.form}): {counts}>"

    def require(self) -> None:
        """Raise ConformanceError, with the whole report, if there are errors."""
        if self.errors:
            raise ConformanceError(f"\n{self.text()}")

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per finding, with the fields of ``Finding`` as columns."""
        import pandas as pd  # imported late: slow, and not needed by environments

        columns = [one.name for one in dataclasses.fields(Finding)]
        return pd.DataFrame([vars(finding) for finding in self.findings], columns=columns)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values, with the numbers of errors and warnings."""
        return {**super().to_json(), "errors": len(self.errors), "warnings": len(self.warnings)}

    def text(self, width: int = 80) -> str:
        """Return the report, with lines of at most ``width`` characters."""
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
            for reason in dict.fromkeys(self.not_run.values()):
                names = [check for check, text in self.not_run.items() if text == reason]
                lines += _filled(f"{', '.join(names)}: {reason}", width, "  ")
        lines += [""] if self.notes else []
        for note in self.notes:
            lines += _filled(f"note: {note}", width)
        return "\n".join([*lines, "", *_filled(self.summary, width)])

    @property
    def summary(self) -> str:
        """Return a summary such as "2 errors, 1 warning; 20 checks run, 2 NOT RUN (see above)"."""
        counts = [
            f"{len(findings)} {word}{'' if len(findings) == 1 else 's'}"
            for word, findings in (("error", self.errors), ("warning", self.warnings))
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
    """Return a text that is equal for equal values in every process, for any order of dict keys."""
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
    return type(value).__qualname__ if " at 0x" in text else text  # omit the memory address


def brief(value: Any, limit: int = 60) -> str:
    """Return a short text for a value, for a report."""
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"{value.dtype} array of shape {value.shape}"
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
