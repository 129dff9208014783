"""A policy of one's own is served; where it fails a rule decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plans import Plan
from corral.errors import ArgumentError, UnknownNameError
from corral.loads.export.decider import about_rules
from corral.loads.serve.rule import Rule
from corral.loads.serve.service import service_of
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.messages import refused

NAMES = ("site-0", "site-1", "site-2")
NODES: dict[str, Any] = {n: {"last_arrivals": [6, 9], "capacity": 4} for n in NAMES}

SOURCE = """
from corral.envs.dfaas_v0 import Plan

class Busy:
    def plan(self, view):
        if view.last_counts[0] > 10:
            raise RuntimeError("too many")
        late = view.time > "2026-03-01 12:00"  # UTC
        keep = view.capacity - late - view.step
        return Plan(keep=keep, route="least", caps=dict.fromkeys(view.spare, 2))

busy = Busy()
nothing = 3
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "own_busy.py").write_text(SOURCE)
    return tmp_path / "own_busy.py"


@pytest.mark.parametrize("name", ["Busy", "busy"])
def test_it_is_served_by_its_name(team: Run, place: Path, name: str) -> None:
    service = service_of(team, rule=f"{place}:{name}", arrivals="unknown", fallback="local")
    assert (service.deciding, service.rule) == ("rule", f"{place}:{name}")
    for _ in range(3):  # nothing of a request stays
        answer = service.decide(NODES)
        assert (answer.by, answer.reason) == ("rule", None)
        assert answer.plan["site-1"] == {
            "keep": 4,
            "share": None,
            "most": None,
            "caps": {"site-2": 2, "site-0": 2},
            "route": "least",
            "order": None,
        }
    for time, keep in (("12:00:00.0Z", 4), ("13:30+02:00", 4), ("12:00:01Z", 3)):
        answer = service.decide(NODES, None, None, f"2026-03-01T{time}")
        assert answer.plan["site-1"]["keep"] == keep


def test_a_rule_decides_where_it_raises(team: Run, place: Path) -> None:
    service = service_of(team, rule=f"{place}:busy", arrivals="unknown", fallback="overflow/least")
    many = {**NODES, "site-2": {"last_arrivals": [11], "capacity": 4}}
    answer = service.decide(many)
    assert (answer.by, answer.reason) == ("rule", "raised")
    assert answer.detail == "site-2: RuntimeError: too many"
    rules = DfaasRules(small_trace(), queue=5, arrivals="unknown")
    assert answer.plan == Rule("overflow/least", about_rules(rules)).decide(many)[0]
    assert service.decide(NODES).reason is None
    some = {name: NODES[name] for name in NAMES[:2]}
    answer = service.decide(some)
    assert answer.reason == "nodes"
    assert answer.plan["site-0"]["caps"] == {"site-1": 2}


def test_what_plans_nothing_is_refused(team: Run, place: Path) -> None:
    with refused(ArgumentError, f"{place}:nothing", "plan(view)", "docs/policies.md"):
        service_of(team, rule=f"{place}:nothing")
    with refused(UnknownNameError, "policy", "nowhere.py"):
        service_of(team, rule="nowhere.py:busy")
    with pytest.raises(UnknownNameError, match="busi"):
        service_of(team, rule=f"{place}:busi")


def test_a_policy_shadows_nothing_and_is_shadowed(planning: Run, place: Path) -> None:
    log = place.with_name("shadow.jsonl")
    service = service_of(planning, rule=f"{place}:busy", shadow=log)
    answer = service.decide(NODES | {n: {**NODES[n], "last_arrivals": [6]} for n in NAMES})
    assert service.log is not None
    service.log.close()
    assert (answer.by, answer.reason) == ("rule", None)
    assert Plan(**answer.plan["site-0"]).keep == 4
    assert answer.difference is not None
