"""Defaults of a rehearsal from the folder of a ``corral advise``. docs/advise.md lists its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from corral.data import Trace
from corral.errors import RunError
from corral.loads.serve.advised import ADVICE, FORMAT, MAX_BYTES, advised
from corral.trainers.file_fields import read_fields

__all__ = ["AdviceDefaults", "defaults_of", "is_advice"]


class Settings(TypedDict, total=False):
    """Arguments of dfaas_v0 that are played."""

    queue: int
    neighbours: dict[str, list[str]] | None
    report_delay: int
    arrivals: Literal["known", "unknown"]
    link_limit: int | None
    second_offer: bool
    forward_cost: float
    wait_cost: float


class Rule(TypedDict):
    rule: str
    today: str


class Parts(TypedDict):
    held_out: list[int]


class Team(TypedDict):
    rows: Parts


class Fitted(TypedDict):
    rows: list[int]


class Load(TypedDict):
    digest: str
    rows: list[int]


class Kept(TypedDict):
    """The fields of advice.json that are read."""

    format: int
    rule: Rule
    team: Team | None
    fitted: Fitted
    trace: Load
    settings: Settings


@dataclass(frozen=True)
class AdviceDefaults:
    """The policies, settings and rows of an advice."""

    folder: Path
    today: str  # the rule that runs today
    rule: str  # the best rule
    settings: Mapping[str, Any]  # arguments of dfaas_v0
    digest: str  # of the load, with the capacity that was played
    held_out: tuple[int, int] | None  # rows; None: none were held out
    balancer: str | None = None  # that the advice recommends

    def policies(self) -> list[str]:
        """Return the rule of today, if it is not the best rule; the folder, which stands for the
        best rule and the team; and the balancer, if one is recommended."""
        today = "local" if self.today.partition("/")[0] == "local" else self.today
        first = [] if self.today == self.rule else [today]
        last = [] if self.balancer is None else [self.balancer]
        return [*first, str(self.folder), *last]

    def rows_of(self, load: Trace) -> tuple[int, int] | None:
        """Return the held-out rows; None for another load, and if no rows were held out."""
        return self.held_out if load.digest == self.digest else None


def is_advice(folder: str | Path) -> bool:
    """Whether a folder holds an advice."""
    return (Path(folder) / ADVICE).is_file()


def defaults_of(folder: Path) -> AdviceDefaults:
    """Read the defaults. Raises RunError if the file is missing or damaged."""
    verdict, path = advised(folder), folder / ADVICE
    kept = read_fields(
        path, Kept, max_bytes=MAX_BYTES, error=RunError, folder=folder, others=True, format=FORMAT
    )
    end = kept["trace"]["rows"][-1:]
    held_out = [*kept["fitted"]["rows"][-1:], *end]
    if kept["team"] is not None:
        held_out = kept["team"]["rows"]["held_out"]
    if len(held_out) != 2:
        raise RunError(f"{path}: the held-out rows are {held_out}; expected two numbers")
    return AdviceDefaults(
        folder=folder,
        today=kept["rule"]["today"],
        rule=verdict.rule,
        settings=dict(kept["settings"]),
        digest=kept["trace"]["digest"],
        held_out=(held_out[0], held_out[1]) if held_out[0] < held_out[1] else None,
        balancer=verdict.balancer,
    )
