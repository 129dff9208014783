"""Plans are served of runs that do not know the arrivals of a step, and of rules."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("httpx", reason="FastAPI's test client needs it")

from fastapi.testclient import TestClient

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plans import Plan
from corral.errors import ArgumentError
from corral.loads.export.decider import about_rules
from corral.loads.from_rule.recommend import Recommendation
from corral.loads.replay import replay
from corral.loads.serve.app import app_of
from corral.loads.serve.guard import Guard, Ranges, newest, nonsense_plans
from corral.loads.serve.placed import Placing
from corral.loads.serve.rule import Rule
from corral.loads.serve.service import service_of
from corral.trainers.runs.run import Run, load_run
from support.deciding import carried_out, moment_of, presented
from support.loads import days, small_trace
from support.messages import refused, shown

NAMES = ("site-0", "site-1", "site-2")
NODES: dict[str, Any] = {n: {"last_arrivals": 6, "capacity": 4, "queue": 1} for n in NAMES}
PREVIOUS = {name: {"spare": 2 + i, "lost": 1} for i, name in enumerate(NAMES)}
STAY = dict.fromkeys(("keep", "share", "most", "caps", "order")) | {"route": "least"}


def client_of(run: Any, **options: Any) -> TestClient:
    return TestClient(app_of(service_of(run, **options)))


@pytest.fixture(scope="module")
def client(planning: Run) -> Iterator[TestClient]:
    with client_of(planning) as found:
        yield found


def numbers(client: TestClient) -> dict[str, float]:
    """The samples of /metrics that are not comments."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def fields_of(answer: Any) -> list[str]:
    assert answer.status_code == 422
    return [fault["field"] for fault in answer.json()["detail"]]


def test_a_decision_is_that_of_the_run(client: TestClient, planning: Run, tmp_path: Path) -> None:
    asked: Any
    planning.export("numpy", tmp_path / "gateway")
    with client_of(tmp_path / "gateway") as exported:
        for asked in ({"nodes": NODES}, {"nodes": NODES, "previous": PREVIOUS}):
            answer = client.post("/decide", json=asked)
            assert answer.status_code == 200
            assert answer.json() == {
                "plan": planning.decide(NODES, asked.get("previous")),
                "by": "team",
                "reason": None,
                "detail": None,
                "state": None,
                "restarted": False,
            }
            assert exported.post("/decide", json=asked).json() == answer.json()
    plan = answer.json()["plan"]["site-0"]
    assert plan["caps"] == {"site-1": 4, "site-2": 4}
    assert Plan(**plan).route == "least"
    assert client.get("/healthz").json()["arrivals"] == "unknown"


def test_a_list_of_one_and_none_at_a_start_will_do(client: TestClient) -> None:
    def asked(counts: Any) -> Any:
        nodes = {name: {"last_arrivals": counts, "capacity": 4} for name in NAMES}
        return client.post("/decide", json={"nodes": nodes}).json()

    assert asked([6]) == asked(6)
    assert asked([]) == asked([0]) == asked(0)
    assert asked([])["by"] == "team"


@pytest.mark.parametrize(
    ("node", "fields"),
    [
        ({"arrivals": 6, "capacity": 4}, ["last_arrivals", "arrivals"]),
        ({"last_arrivals": 6, "arrivals": 6, "capacity": 4}, ["arrivals"]),
        ({"last_arrivals": -1, "capacity": 4}, ["last_arrivals"]),
        ({"last_arrivals": "6", "capacity": 4}, ["last_arrivals"]),
        ({"last_arrivals": None, "capacity": 4}, ["last_arrivals"]),
        ({"last_arrivals": [6, 1.5], "capacity": 4}, ["last_arrivals.1"]),
        ({"last_arrivals": [6, 6], "capacity": 4}, ["last_arrivals"]),
        ({"last_arrivals": [0] * 2000, "capacity": 4}, ["last_arrivals"]),
        ({"last_arrivals": 6}, ["capacity"]),
    ],
)
def test_bad_numbers_are_refused_by_their_field(
    client: TestClient, node: Any, fields: list[str]
) -> None:
    answer = client.post("/decide", json={"nodes": {**NODES, "site-1": node}})
    assert fields_of(answer) == [f"nodes.site-1.{field}" for field in fields]


def test_each_form_names_the_field_of_the_other(client: TestClient, team: Run) -> None:
    known = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
    said = client.post("/decide", json={"nodes": known}).json()["detail"]
    messages = {fault["field"]: fault["message"] for fault in said}
    shown(messages["nodes.site-0.arrivals"], "last_arrivals")
    with client_of(team) as other:
        said = other.post("/decide", json={"nodes": NODES}).json()["detail"]
        messages = {fault["field"]: fault["message"] for fault in said}
        shown(messages["nodes.site-0.last_arrivals"], "arrivals")
        answer = other.post("/decide", json={"nodes": known, "time": "2026-03-01"})
        assert fields_of(answer) == ["time"]
        assert other.get("/healthz").json().keys().isdisjoint({"arrivals"})


def test_the_time_is_checked_and_needed_where_it_is_observed(
    client: TestClient, timed: Run
) -> None:
    for time, status in (("2026-03-01T12:00Z", 200), (None, 200), ("noon", 422), (12, 422)):
        answer = client.post("/decide", json={"nodes": NODES, "time": time})
        assert answer.status_code == status
    nodes = {name: {"last_arrivals": [9, 8, 7], "capacity": 14} for name in NAMES}
    with client_of(timed) as other:
        for sent in ({}, {"time": None}, {"time": "noon"}):
            answer = other.post("/decide", json={"nodes": nodes, **sent})
            assert fields_of(answer) == ["time"]
        found = other.post("/decide", json={"nodes": nodes, "time": "1970-01-01T05:00Z"}).json()
        assert found["by"] == "team"
        assert found["plan"] == timed.decide(nodes, time="1970-01-01T05:00Z")
        one = {name: {"last_arrivals": 9, "capacity": 14} for name in NAMES}
        answer = other.post("/decide", json={"nodes": one, "time": "1970-01-01T05:00Z"})
        assert fields_of(answer) == ["nodes.site-0.last_arrivals"]


def test_a_memory_travels_with_requests(timed: Run) -> None:
    kept, state = timed.start(), None
    with client_of(timed) as client:
        for step in range(6):
            counts = [9, 8, 7][:step]
            nodes = {name: {"last_arrivals": counts, "capacity": 14} for name in NAMES}
            asked: dict[str, Any] = {"nodes": nodes, "time": f"1970-01-02T0{step}:00:00"}
            asked |= {"previous": PREVIOUS, "state": state} if step else {}
            found = client.post("/decide", json=asked).json()
            assert found["by"] == "team"
            expected = timed.decide(nodes, asked.get("previous"), kept, asked["time"])
            assert found["plan"] == expected
            state = found["state"]


def test_the_rule_behind_a_team_answers_by_plans(client: TestClient, timed: Run) -> None:
    found = client.post("/decide", json={"nodes": {n: NODES[n] for n in NAMES[:2]}}).json()
    assert (found["by"], found["reason"]) == ("rule", "nodes")
    one, other = NAMES[:2]
    assert found["plan"] == {
        one: {**STAY, "keep": 4, "caps": {other: 4}},
        other: {**STAY, "keep": 4, "caps": {one: 4}},
    }
    many = {**NODES, "site-2": {"last_arrivals": 900, "capacity": 4}}
    found = client.post("/decide", json={"nodes": many}).json()
    assert (found["by"], found["reason"]) == ("rule", "last_arrivals")
    assert found["detail"] == "site-2: last_arrivals 900, not in 0 to 12"
    nodes = {name: {"last_arrivals": [9, 800, 7], "capacity": 14} for name in NAMES}
    with client_of(timed) as other:
        asked = {"nodes": nodes, "time": "1970-01-02T00:00:00"}
        found = other.post("/decide", json=asked).json()
        assert (found["by"], found["reason"]) == ("rule", "last_arrivals")
        assert found["plan"]["site-0"] == {**STAY, "keep": 14, "route": "equal"}


def test_what_a_plan_forwards_is_not_counted(planning: Run) -> None:
    with client_of(planning) as client:
        for counts in (6, [5], []):
            nodes = {name: {"last_arrivals": counts, "capacity": 4} for name in NAMES}
            assert client.post("/decide", json={"nodes": nodes}).status_code == 200
        found = numbers(client)
        assert found["corral_arrivals_total"] == 3 * (6 + 5)
        assert "corral_forwarded_total" not in found
        assert found['corral_decisions_total{by="team"}'] == 3


def test_its_description_tells_of_the_request(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"]["/decide"]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["nodes"]
    assert {"nodes", "previous", "state", "time"} == schema["properties"].keys()


def test_low_counts_are_inside_at_a_start() -> None:
    """No step was before the first, whatever the least load of the training."""
    trace = small_trace()
    rules = DfaasRules(trace.with_capacity(9), arrivals="unknown", rows=(0, 2), max_cycles=2)
    ranges = Ranges.seen(about_rules(rules), 0)
    assert min(low for of in ranges.of.values() for low, _ in [of["arrivals"]]) >= 0
    nodes = {name: {"last_arrivals": 0, "capacity": 9} for name in NAMES}
    assert ranges.outside(nodes, None) is None


# --- Rules, and advice ---------------------------------------------------------------------------


def test_a_rule_is_served_as_plans_to_who_asks_for_them(team: Run, planning: Run) -> None:
    rule = "backlog=0.5/least"
    service = service_of(team, rule=rule, arrivals="unknown")
    assert service.plans
    shown(" ".join(service.lines), "plans")
    alone = Rule(rule, about_rules(DfaasRules(small_trace(), queue=5)), "unknown")
    assert service.decide(NODES, PREVIOUS).plan == alone.decide(NODES, PREVIOUS)[0]
    assert service.decide(NODES).plan["site-0"]["keep"] == 5  # floor(4 + 2.5) - 1
    with client_of(team, rule=rule, arrivals="unknown") as client:
        nodes = {name: {"last_arrivals": [6, 5, 4], "capacity": 4} for name in NAMES}
        assert client.post("/decide", json={"nodes": nodes}).json()["plan"]["site-0"]["keep"] == 6
    known = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
    found = service_of(planning, rule="overflow", arrivals="known").decide(known)
    assert found.forward["site-0"] == {"site-1": 1, "site-2": 1}
    with refused(ArgumentError, "arrivals='unknown'", "known", "--rule"):
        service_of(team, arrivals="unknown")
    assert service_of(team, arrivals="known").deciding == "team"


def test_an_advice_says_whether_arrivals_are_known(tmp_path: Path) -> None:
    found: dict[str, Any] = {
        "format": 1,
        "run": "rule",
        "rule": {"rule": "backlog=0.75,margin=1/least"},
        "team": None,
        "trace": {"nodes": list(NAMES)},
        "settings": {"arrivals": "unknown", "queue": 8, "link_limit": 3},
    }
    (tmp_path / "advice.json").write_text(json.dumps(found))
    with client_of(tmp_path) as client:
        answer = client.post("/decide", json={"nodes": NODES, "previous": PREVIOUS}).json()
        assert answer["plan"]["site-1"] == {
            **STAY,
            "keep": 9,  # floor(4 + 6) - 1
            "caps": {"site-2": 3, "site-0": 2},
        }
        assert client.get("/healthz").json()["arrivals"] == "unknown"


# --- The guard, and the shadow -------------------------------------------------------------------

GOOD = {**STAY, "keep": 3, "caps": {NAMES[1]: 4}}
NEAR = {name: frozenset(NAMES) - {name} for name in NAMES}


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (None, "instead of a plan"),
        ({"keep": 3}, "instead of a plan"),
        ({**GOOD, "more": 1}, "instead of a plan"),
        ({**GOOD, "keep": -1}, "keep=-1"),
        ({**GOOD, "keep": 1.0}, r"keep=1\.0"),
        ({**GOOD, "keep": True}, "keep=True"),
        ({**GOOD, "share": 0.5}, "share=0.5"),
        ({**GOOD, "keep": None, "share": float("nan")}, "share=nan"),
        ({**GOOD, "keep": None, "share": 2}, "share=2"),
        ({**GOOD, "most": -1}, "most=-1"),
        ({**GOOD, "caps": [3]}, "caps"),
        ({**GOOD, "caps": {NAMES[1]: -1}}, "caps"),
        ({**GOOD, "caps": {NAMES[1]: 5}}, "above the link limit of 4"),
        ({**GOOD, "caps": {NAMES[0]: 1}}, "site-0, which is not a neighbor"),
        ({**GOOD, "caps": {"new": 1}}, "new, which is not a neighbor"),
        ({**GOOD, "route": "nobody"}, "nobody"),
        ({**GOOD, "route": "choose"}, "choose"),
        ({**GOOD, "order": [NAMES[1]]}, "fill"),
        ({**GOOD, "route": "fill", "order": [NAMES[0]]}, "site-0, which is not a neighbor"),
        ({**GOOD, "route": "fill", "order": 3}, "3"),
    ],
)
def test_nonsense_is_for_the_rule(plan: Any, said: str) -> None:
    plans = {name: {**STAY, "keep": 3} for name in NAMES}
    rules = DfaasRules(small_trace(), arrivals="unknown", link_limit=4)
    team = lambda nodes, previous, state: ({**plans, NAMES[0]: plan}, "after")  # noqa: E731
    rule = lambda nodes, previous, state: (plans, None)  # noqa: E731
    guard = Guard(team, rule, Ranges.seen(about_rules(rules)))
    nodes = {name: {"last_arrivals": 6, "capacity": 4} for name in NAMES}
    found = guard.decide(nodes)
    assert (found.plan, found.by, found.reason) == (plans, "rule", "nonsense")
    assert said.replace("\\", "") in str(found.detail)
    assert nonsense_plans({**plans, NAMES[0]: GOOD}, nodes, NEAR, 4) is None


def test_a_difference_of_plans_is_of_the_last_requests_as_if_they_came_again() -> None:
    rules = DfaasRules(small_trace(), arrivals="unknown")
    placing = Placing(about_rules(rules))
    nodes = {name: {"last_arrivals": [6, 99], "capacity": 4 + i} for i, name in enumerate(NAMES)}
    least = {name: {**STAY, "keep": 2} for name in NAMES}
    offers = placing.offers(least, nodes, PREVIOUS)  # spare 2, 3, 4
    assert offers["site-0"] == {"site-1": 1, "site-2": 3} or offers["site-0"] == {
        "site-1": 2,
        "site-2": 2,
    }
    assert placing.offers({n: {**STAY, "route": "fill"} for n in NAMES}, nodes, None) == {
        name: {} for name in NAMES
    }
    for route in ("equal", "weighted", "fill", "two-choices", "capacity", "spare"):
        plans = {name: {**STAY, "keep": 2, "route": route} for name in NAMES}
        found = placing.offers(plans, nodes, PREVIOUS)
        assert [sum(parts.values()) for parts in found.values()] == [4, 4, 4]
        if route == "two-choices":
            assert found == offers
    assert newest({"last_arrivals": []}) == 0


def test_a_shadow_logs_plans_and_their_difference(planning: Run, tmp_path: Path) -> None:
    log = tmp_path / "shadow.jsonl"
    service = service_of(planning, rule="share=1/fill", shadow=log)
    with TestClient(app_of(service)) as client:
        asked = {"nodes": NODES, "previous": PREVIOUS, "time": "2026-03-01T12:00:00Z"}
        found = client.post("/decide", json=asked).json()
        metrics = numbers(client)
    assert service.log is not None
    service.log.close()
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (found["by"], line["rule"]) == ("rule", found["plan"])
    assert line["step_time"] == asked["time"]
    assert line["team"] == planning.decide(NODES, PREVIOUS)
    assert metrics["corral_shadow_difference_total"] == line["difference"]
    assert 0 <= line["difference"] <= 18


def test_an_exported_rule_answers_by_plans(planning: Run, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(planning.folder, folder)
    found = Recommendation("rule", "backlog=0.5/fill", None, "so it was", windows=0, compared=0)
    found.write(folder)
    recommended = load_run(folder).recommendation
    recommended.export("numpy", tmp_path / "gateway")
    service = service_of(tmp_path / "gateway")
    assert (service.deciding, service.rule) == ("rule", "backlog=0.5/fill")
    expected = recommended.decide(NODES, PREVIOUS)
    assert service.decide(NODES, PREVIOUS).plan == expected
    assert expected["site-0"] == {**STAY, "keep": 5, "caps": {NAMES[1]: 4, NAMES[2]: 4}} | {
        "route": "fill"
    }


@pytest.mark.parametrize("rule", ["backlog=0.5/least", "patient/equal", "share=0.3+margin=1/fill"])
def test_a_served_rule_costs_what_its_replay_promises(rule: str, tmp_path: Path) -> None:
    """Over HTTP, step by step, with no knowledge of the step's requests."""
    trace = days(3)
    settings: dict[str, Any] = {"queue": 8, "link_limit": 4, "forward_cost": 0.2}
    promised = replay(trace, [rule], arrivals="unknown", optimum_windows=0, **settings).scores[0]
    found = {"format": 1, "run": "rule", "rule": {"rule": rule}, "team": None}
    found |= {"trace": {"nodes": list(NAMES)}, "settings": {**settings, "arrivals": "unknown"}}
    (tmp_path / "advice.json").write_text(json.dumps(found))
    rules = DfaasRules(trace, **settings, arrivals="unknown", max_cycles=24)
    lost = forwarded = 0
    with client_of(tmp_path) as client:
        for first in (0, 24, 48):
            state = rules.start_at(np.array([first]), [np.random.default_rng(0)])
            asked: dict[str, Any] = {}
            for _ in range(24):
                asked["nodes"], _ = moment_of(rules, state, NAMES)
                plans = client.post("/decide", json=asked).json()["plan"]
                outcome = carried_out(rules, state, plans)
                state = outcome.state
                lost += int(outcome.info["lost"].sum())
                forwarded += int(outcome.info["forwarded"].sum())
                asked["previous"] = presented(NAMES, spare=state.spare[0], lost=state.lost[0])
    assert lost / trace.arrivals.sum() == pytest.approx(promised.lost, rel=1e-12)
    assert forwarded / trace.arrivals.sum() == pytest.approx(promised.forwarded, rel=1e-12)
    assert lost > 50
