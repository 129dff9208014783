"""Read the stated savings of an advice from advice.json. docs/advise.md lists its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import canonical_route, shown_route
from corral.errors import RunError, UnknownNameError
from corral.loads.rehearsal.from_advice import defaults_of
from corral.loads.serve.advised import ADVICE, FORMAT, MAX_BYTES, Advised, advised
from corral.trainers.file_fields import read_fields

__all__ = ["Stated", "StatedSaving", "stated_of"]


class KeptSaving(TypedDict):
    share: float
    low: float | None
    high: float | None
    windows: int
    arrivals: float


class Rule(TypedDict):
    beside_today: KeptSaving | None


class Team(TypedDict):
    rule: str
    saving: KeptSaving
    beside_today: KeptSaving | None


class ByWork(TypedDict):
    deterministic: KeptSaving
    exponential: KeptSaving


class Balancer(TypedDict):
    over_plan: ByWork
    over_today: ByWork


class Always(TypedDict):
    """The fields of every advice.json that are read."""

    format: int
    rule: Rule
    team: Team | None
    trace: dict[str, Any]
    window: int
    worth: float


class Kept(Always, total=False):
    """All fields that are read; advices of earlier versions lack these."""

    balancer: Balancer | None
    capacity: list[int] | None
    route: str | None


@dataclass(frozen=True)
class StatedSaving:
    """A saving of a policy compared with another, as an advice states it, in requests a day."""

    mean: float
    low: float | None  # 95 % interval; None: too few days
    high: float | None
    windows: int

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> StatedSaving:
        """Return the saving in a file."""
        arrivals = kept["arrivals"]
        low, high = (None if kept[k] is None else kept[k] * arrivals for k in ("low", "high"))
        return cls(kept["share"] * arrivals, low, high, kept["windows"])


@dataclass(frozen=True)
class Stated:
    """The verdict of an advice, its savings and its days."""

    folder: Path
    verdict: Advised
    today: str  # the rule that ran when the advice was made
    settings: Mapping[str, Any]  # arguments of dfaas_v0
    digest: str  # of its load
    window: int  # steps
    worth: float  # least saving of a team or balancer, a share of the arrivals
    arrivals: float | None  # requests a day; None: the advice states no saving
    clock: Literal["integer", "utc"]
    first: int  # time of its first row, as ``Trace.times``
    last: int
    step: int | None  # between two rows; None: one row
    over_today: StatedSaving | None  # of the rule; None: it runs today
    capacity: list[int] | None  # of each node, if it replaced that of the trace
    route: str | None  # the only route of its rules; None: all were tried
    team_rule: str | None  # the rule with which the team was compared; None: no team is advised
    team: tuple[StatedSaving, StatedSaving | None] | None  # over its rule, and over today
    balancer: Mapping[str, tuple[StatedSaving, StatedSaving]] | None
    """By kind of work: savings over the best plan, and over the rule of today."""

    @property
    def plan(self) -> str:
        """The label of the best plan: "team", or the rule."""
        return "team" if self.verdict.plan == "team" else self.verdict.rule

    @property
    def policy(self) -> str:
        """The label of the recommended policy."""
        return self.verdict.balancer or self.plan


def stated_of(folder: str | Path) -> Stated:
    """Read an advice. Raises RunError if advice.json is missing or damaged, or if the folder of an
    advised team is missing."""
    folder = Path(folder)
    verdict, defaults, path = advised(folder), defaults_of(folder), folder / ADVICE
    kept = read_fields(
        path, Kept, max_bytes=MAX_BYTES, error=RunError, folder=folder, others=True, format=FORMAT
    )
    team = kept["team"] if verdict.plan == "team" else None
    balancer = kept.get("balancer") if verdict.balancer is not None else None
    for name, value in (("team", team), ("balancer", balancer)):
        needed = verdict.plan if name == "team" else verdict.run
        if needed == name and value is None:
            raise RunError(f"{path}: {name} is null, but the advice recommends a {name}")
    if team is not None and verdict.team is None:
        raise RunError(f"{folder / 'team'} is missing: the advice recommends this team")
    try:
        PlainRule.of(defaults.today)
    except UnknownNameError as error:
        raise RunError(f"{path}: rule.today: {error}") from error
    if kept["window"] < 1:
        raise RunError(f"{path}: window = {kept['window']}: expected 1 step or more")
    over_today = kept["rule"]["beside_today"]
    first_saving = over_today or (team and team["saving"])
    clock, first, last, step = _clock(path, kept["trace"])
    beside = None if team is None else team["beside_today"]
    return Stated(
        folder=folder,
        verdict=verdict,
        today=defaults.today,
        settings=defaults.settings,
        digest=defaults.digest,
        window=kept["window"],
        worth=kept["worth"] / 100,
        arrivals=None if first_saving is None else first_saving["arrivals"],
        clock=clock,
        first=first,
        last=last,
        step=step,
        over_today=None if over_today is None else StatedSaving.of(over_today),
        capacity=_capacity(path, kept, len(verdict.nodes)),
        route=_route(path, kept.get("route")),
        team_rule=None if team is None else team["rule"],
        team=None
        if team is None
        else (
            StatedSaving.of(team["saving"]),
            None if beside is None else StatedSaving.of(beside),
        ),
        balancer=None
        if balancer is None
        else {
            work: (
                StatedSaving.of(balancer["over_plan"][work]),
                StatedSaving.of(balancer["over_today"][work]),
            )
            for work in ("deterministic", "exponential")
        },
    )


def _clock(
    path: Path, trace: Mapping[str, Any]
) -> tuple[Literal["integer", "utc"], int, int, int | None]:
    """Return clock, first and last time, and step of the load of an advice, from their texts."""
    clock: Literal["integer", "utc"] = "utc"
    texts, rows = [trace.get("from"), trace.get("to")], trace.get("rows")
    try:
        count = rows[1] - rows[0] - 1  # type: ignore[index]
        if all(str(text).lstrip("-").isdigit() for text in texts):
            clock = "integer"
            first, last = (int(str(text)) for text in texts)
        else:
            first, last = (
                int(np.datetime64(str(text).replace(" ", "T"), "s").astype(np.int64))
                for text in texts
            )
        if count < 0 or last - first < count or (count and (last - first) % count):
            raise ValueError("times and rows do not match")
    except (TypeError, ValueError, IndexError) as error:
        raise RunError(f"{path}: trace.from, trace.to or trace.rows is damaged: {error}") from None
    return clock, first, last, (last - first) // count if count else None


def _route(path: Path, route: str | None) -> str | None:
    """Return the only route of an advice in a file. Raises RunError."""
    try:
        return None if route is None else shown_route(canonical_route(route))
    except UnknownNameError as error:
        raise RunError(f"{path}: route: {error}") from error


def _capacity(path: Path, kept: Mapping[str, Any], nodes: int) -> list[int] | None:
    """Return the capacity of each node in a file. Raises RunError."""
    capacity: list[int] | None = kept.get("capacity")
    if capacity is not None and (len(capacity) != nodes or min(capacity) < 0):
        raise RunError(f"{path}: capacity = {capacity!r:.80}: must be {nodes} numbers, 0 or more")
    return capacity
