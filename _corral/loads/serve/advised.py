"""Read the verdict of a ``corral advise`` folder, for serving. docs/advise.md lists the keys."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import CorralError, RunError
from corral.loads.advise.words import requests
from corral.trainers.file_fields import read_fields

__all__ = ["ADVICE", "Advised", "advised", "advised_in"]

ADVICE = "advice.json"
TEAM = "team"
"""Folder of the team inside the advice folder; a folder named in the file is never opened."""
FORMAT = 1
MAX_BYTES = 2**26
BALANCER = re.compile(r"[a-z][a-z-]{0,40}(=\d{1,2})?")
"""Name of a balancer, which is printed only."""


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


class Saved(TypedDict):
    requests: float
    unit: Literal["a day", "a window"]


class Named(TypedDict):
    rule: str


class Rule(Named, total=False):
    today: str
    beside_today: Saved | None  # in the replay of all days


class Promise(TypedDict):
    deterministic: Saved


class Rehearsal(TypedDict):
    promise: Promise | None  # None: the plan already runs today


class Balancer(TypedDict):
    name: str


class Nodes(TypedDict):
    nodes: list[str]


class Load(Nodes, total=False):
    name: str


class Required(TypedDict):
    """The fields of every advice.json that are read."""

    format: int
    run: Literal["balancer", "team", "rule"]
    rule: Rule
    team: Place | None
    trace: Load
    settings: Settings


class Kept(Required, total=False):
    """All fields that are read; older files have no plan, balancer and rehearsal."""

    plan: Literal["team", "rule"]
    balancer: Balancer | None
    rehearsal: Rehearsal | None


@dataclass(frozen=True)
class Advised:
    """The verdict of an advice."""

    run: Literal["balancer", "team", "rule"]  # the recommendation
    rule: str  # the best rule
    team: Path | None  # the team's folder, if it exists
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]  # arguments of dfaas_v0
    plan: Literal["team", "rule"] = "rule"  # the best policy that can be served: the one to run, or
    # the second choice after a balancer
    balancer: str | None = None  # recommended balancer, which runs in the proxy
    loss: str = ""  # a sentence, if the plan costs more than the rule of today
    trace: str = ""  # name of the load

    @property
    def policy(self) -> str:
        """Name of the recommended policy."""
        return self.balancer or ("the learned team" if self.run == "team" else self.rule)

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
    exists = kept["team"] is not None and team.is_dir() and not team.is_symlink()
    try:
        if len(set(nodes)) != len(nodes):
            raise ValueError("duplicate node in trace.nodes")
        PlainRule.of(kept["rule"]["rule"])
        verdict = Advised(
            run=kept["run"],
            rule=kept["rule"]["rule"],
            team=team if exists else None,
            nodes=nodes,
            settings=kept["settings"],
            plan=kept.get("plan", "team" if kept["run"] == "team" else "rule"),
            balancer=_balancer(kept) if kept["run"] == "balancer" else None,
            trace=kept["trace"].get("name", ""),
        )
        verdict = replace(verdict, loss=_loss(kept, verdict))
        verdict.about()
    except (CorralError, ValueError, OSError) as error:
        raise RunError(f"{path}: {error}") from error
    return verdict


def advised_in(folders: Iterable[Path]) -> Iterator[tuple[Path, Advised | RunError]]:
    """Yield the folders of advices, at any depth, with their verdicts; links are not followed."""
    places = {Path(place) for folder in folders for place, _, _ in os.walk(folder)}
    for place in sorted(place for place in places if (place / ADVICE).is_file()):
        try:
            yield place, advised(place)
        except RunError as error:
            yield place, error


def _balancer(kept: Mapping[str, Any]) -> str:
    """Return the name of the recommended balancer. Raises ValueError if it is none."""
    name = (kept.get("balancer") or {}).get("name", "")
    if BALANCER.fullmatch(name) is None:
        raise ValueError(f"balancer.name = {name!r:.60}: expected the name of a balancer")
    return str(name)


def _loss(kept: Mapping[str, Any], verdict: Advised) -> str:
    """Return by how much the plan costs more than the rule of today; "" if it does not.

    The rehearsal tells, else the replay of a rule. Raises the errors of ``PlainRule.of``.
    """
    rule, rehearsal = kept["rule"], kept.get("rehearsal")
    saved, where = rule.get("beside_today") if verdict.plan == "rule" else None, "replay"
    if rehearsal is not None:
        promise, where = rehearsal["promise"], "rehearsal"
        saved = None if promise is None else promise["deterministic"]
    if saved is None or saved["requests"] >= 0 or "today" not in rule:
        return ""
    plan = "the team" if verdict.plan == "team" else verdict.rule
    today = PlainRule.of(rule["today"])
    return (
        f"Warning: in the {where} of the advice, {plan} costs {requests(-saved['requests'])} more "
        f"requests {saved['unit']} than {today}, which runs today."
    )
