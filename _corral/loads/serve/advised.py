"""Read the verdict of a ``corral advise`` folder, for serving. docs/advise.md lists the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import CorralError, RunError
from corral.trainers.file_fields import read_fields

__all__ = ["ADVICE", "Advised", "advised"]

ADVICE = "advice.json"
TEAM = "team"
"""Folder of the team inside the advice folder; a folder named in the file is never opened."""
FORMAT = 1
MAX_BYTES = 2**26


class Settings(TypedDict, total=False):
    """Arguments of dfaas_v0 that affect decisions."""

    queue: int
    neighbours: dict[str, list[str]] | None
    report_delay: int
    arrivals: Literal["known", "unknown"]
    link_limit: int | None
    second_offer: bool


class Place(TypedDict):
    folder: str


class Rule(TypedDict):
    rule: str


class Nodes(TypedDict):
    nodes: list[str]


class Kept(TypedDict):
    """The fields of advice.json that are read."""

    format: int
    run: Literal["team", "rule"]
    rule: Rule
    team: Place | None
    trace: Nodes
    settings: Settings


@dataclass(frozen=True)
class Advised:
    """The verdict of an advice."""

    run: Literal["team", "rule"]
    rule: str  # the best rule
    team: Path | None  # the team's folder, if it exists
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]  # arguments of dfaas_v0

    def about(self) -> dict[str, Any]:
        """Return the description of the nodes that a rule needs, like ``about_rules`` for a run."""
        from corral.envs.dfaas_v0.network import adjacency

        agents = [f"node_{i}" for i in range(len(self.nodes))]
        links = adjacency(agents, self.nodes, self.settings.get("neighbours"))
        return {
            "nodes": list(self.nodes),
            "links": links.astype(int).tolist(),
            "route": self.rule.partition("/")[2],
            "queue": self.settings.get("queue", 0),
            "report_delay": self.settings.get("report_delay", 1),
            "arrivals": self.settings.get("arrivals", "known"),
            "link_limit": self.settings.get("link_limit"),
            "observation": "every",
            "load_scale": 1.0,
            "capacity_scale": 1.0,
        }


def advised(folder: Path) -> Advised:
    """Read the verdict. Raises RunError if the file is damaged."""
    path = folder / ADVICE
    try:
        kept = read_fields(
            path,
            Kept,
            max_bytes=MAX_BYTES,
            error=RunError,
            folder=folder,
            others=True,
            format=FORMAT,
        )
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    nodes = tuple(kept["trace"]["nodes"])
    team = folder / TEAM
    is_there = kept["team"] is not None and team.is_dir() and not team.is_symlink()
    try:
        if len(set(nodes)) != len(nodes):
            raise ValueError("duplicate node in trace.nodes")
        PlainRule.of(kept["rule"]["rule"])
        verdict = Advised(
            kept["run"], kept["rule"]["rule"], team if is_there else None, nodes, kept["settings"]
        )
        verdict.about()
    except (CorralError, ValueError, OSError) as error:
        raise RunError(f"{path}: {error}") from error
    return verdict
