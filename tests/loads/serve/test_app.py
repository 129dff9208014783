"""The server's answers: decisions, refusals that name the field, health, metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("httpx", reason="FastAPI's test client needs it")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from corral.loads.serve.app import app_of
from corral.loads.serve.service import service_of
from corral.trainers.runs.run import Run

NAMES = ("site-0", "site-1", "site-2")
NODES = {name: {"arrivals": 6, "capacity": 4, "queue": 1} for name in NAMES}
PREVIOUS = {name: {"spare": 2, "lost": 1} for name in NAMES}

AS_JSON = {"Content-Type": "application/json"}
BOTH = ["nodes.a.arrivals", "nodes.a.capacity"]


def client_of(run: Run, **options: Any) -> TestClient:
    return TestClient(app_of(service_of(run, **options)))


@pytest.fixture(scope="module")
def client(team: Run) -> Iterator[TestClient]:
    with client_of(team) as found:
        yield found


def numbers(client: TestClient) -> dict[str, float]:
    """The samples of /metrics that are not comments."""
    lines = [line for line in client.get("/metrics").text.splitlines() if line[:1] != "#"]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_decision_is_that_of_the_run(client: TestClient, team: Run) -> None:
    for asked in ({"nodes": NODES}, {"nodes": NODES, "previous": PREVIOUS}):
        answer = client.post("/decide", json=asked)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == {
            "forward": team.decide(NODES, asked.get("previous")),
            "by": "team",
            "reason": None,
            "detail": None,
            "state": None,
            "restarted": False,
        }


def test_other_input_is_answered_by_the_rule_which_says_why(client: TestClient) -> None:
    before = numbers(client)
    some = {name: NODES[name] for name in NAMES[:2]}
    found = client.post("/decide", json={"nodes": some}).json()
    assert (found["by"], found["reason"]) == ("rule", "nodes")
    assert found["detail"] == "missing: site-2"
    assert found["forward"] == {NAMES[0]: {NAMES[1]: 2}, NAMES[1]: {NAMES[0]: 2}}
    many = {**NODES, NAMES[0]: {"arrivals": 900, "capacity": 4}}
    found = client.post("/decide", json={"nodes": many}).json()
    assert found["detail"] == "site-0: arrivals 900, not in 0 to 12"
    after = numbers(client)
    changed = {key for key in after if "fallbacks_total" in key and after[key] != before[key]}
    assert changed == {
        'corral_fallbacks_total{reason="nodes"}',
        'corral_fallbacks_total{reason="arrivals"}',
    }
    assert (
        after['corral_decisions_total{by="rule"}']
        == before['corral_decisions_total{by="rule"}'] + 2
    )


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ("", ["body"]),
        ("{", ["body"]),
        (b"\xff\xfe", ["body"]),
        ("[" * 100_000, ["body"]),
        ("[]", ["body"]),
        ("{}", ["nodes"]),
        ({"nodes": {}}, ["nodes"]),
        ({"nodes": [1]}, ["nodes"]),
        ({"nodes": {"a": 3}}, ["nodes.a"]),
        ({"nodes": {"a": {"arrivals": 3}}}, ["nodes.a.capacity"]),
        ({"nodes": {"a": {"arrivals": -3, "capacity": 1}}}, ["nodes.a.arrivals"]),
        (
            {"nodes": {"a": {"arrivals": 1.5, "capacity": "4"}}},
            ["nodes.a.arrivals", "nodes.a.capacity"],
        ),
        (
            {"nodes": {"a": {"arrivals": True, "capacity": None}}},
            ["nodes.a.arrivals", "nodes.a.capacity"],
        ),
        ('{"nodes": {"a": {"arrivals": 1, "arrivals": 2, "capacity": 1}}}', ["body"]),
        ('{"nodes": {}, "nodes": {"a": {"arrivals": 1, "capacity": 1}}}', ["body"]),
        ({"nodes": {"a": {"arrivals": 10**30, "capacity": 1}}}, ["nodes.a.arrivals"]),
        ({"nodes": {"a": {"arrivals": 1, "capacity": 1, "spare": 0}}}, ["nodes.a.spare"]),
        ({"nodes": NODES, "previous": {"site-0": {"spare": 1}}}, ["previous.site-0.lost"]),
        ({"nodes": NODES, "previous": {"x": {"spare": 1, "lost": 0}}}, ["previous.x"]),
        ({"nodes": NODES, "previuos": PREVIOUS}, ["previuos"]),
        ({"nodes": NODES, "state": 3}, ["state"]),
        ({"nodes": {str(i): NODES["site-0"] for i in range(1001)}}, ["nodes"]),
    ],
)
@pytest.mark.parametrize("padding", [0, 5000])  # large bodies are read in another way
def test_bad_json_is_refused_by_its_field(
    client: TestClient, body: Any, fields: list[str], padding: int
) -> None:
    before = numbers(client)['corral_refused_total{status="422"}']
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    content += (b" " if isinstance(content, bytes) else " ") * padding
    answer = client.post("/decide", content=content, headers=AS_JSON)
    assert answer.status_code == 422
    assert [fault["field"] for fault in answer.json()["detail"]] == fields
    assert all(fault["message"] for fault in answer.json()["detail"])
    assert numbers(client)['corral_refused_total{status="422"}'] == before + 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none_are_refused(client: TestClient, number: str) -> None:
    for padding in ("", " " * 5000):
        body = f'{{"nodes": {{"a": {{"arrivals": {number}, "capacity": 1}}}}}}{padding}'
        assert client.post("/decide", content=body, headers=AS_JSON).status_code == 422


def test_colons_in_texts_are_no_keys(team: Run) -> None:
    with client_of(team, rule="overflow", nodes="any") as client:
        body = json.dumps({"nodes": {"a:1": NODES["site-0"], '\\:"': NODES["site-0"]}})
        answer = client.post("/decide", content=body, headers=AS_JSON)
        assert answer.json()["forward"].keys() == {"a:1", '\\:"'}
        for twice in (
            body[:-2] + ', "a\\u003a1": {"arrivals": 1, "capacity": 1}}}',
            body.replace('"queue": 1', '"queue": 1, "queue": 1'),
        ):
            answer = client.post("/decide", content=twice, headers=AS_JSON)
            assert [fault["field"] for fault in answer.json()["detail"]] == ["body"]


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"nodes": NODES, "previous": {str(i): 1 for i in range(20_000)}}, "previous"),
        ({"nodes": {str(i): {} for i in range(80_000)}}, "body"),
        ({"nodes": {str(i): {} for i in range(3_000)}}, "nodes"),
        ({"nodes": {"a": {str(i): 0 for i in range(90_000)}}}, "body"),
        ({"nodes": {"a": {"arrivals": [-1] * 200_000}}}, "nodes.a.arrivals"),
        ({str(i): 0 for i in range(90_000)}, "body"),
        ({"nodes": {"a": {"arrivals": [[]] * 300_000}}}, "body"),
        ({"nodes": {"a": [{}] * 300_000}}, "body"),
        ({"nodes": {"a": {str(i): 0 for i in range(30_000)}}}, "nodes.a"),
    ],
)
def test_a_body_full_of_faults_is_refused_at_once(
    client: TestClient, part: Any, field: str
) -> None:
    body = json.dumps(part, separators=(",", ":"))
    began = time.process_time()
    answer = client.post("/decide", content=body, headers=AS_JSON)
    assert time.process_time() - began < 2
    assert [fault["field"] for fault in answer.json()["detail"]] == [field]


def test_an_answer_that_is_too_large_is_refused(team: Run) -> None:
    nodes = {f"{i:0200}": {"arrivals": 1_000_000, "capacity": 0} for i in range(500)}
    with client_of(team, rule="overflow", nodes="any") as client:
        answer = client.post("/decide", json={"nodes": nodes})
        assert (answer.status_code, answer.json()["detail"][0]["field"]) == (422, "nodes")


def test_a_large_body_is_refused_unread(client: TestClient) -> None:
    answer = client.post("/decide", content=b" " * (1 << 20) + b"{}", headers=AS_JSON)
    assert answer.status_code == 413
    assert answer.json()["detail"][0]["field"] == "body"
    assert numbers(client)['corral_refused_total{status="413"}'] == 1


def test_other_methods_and_places(client: TestClient) -> None:
    assert client.get("/decide").status_code == 405
    assert client.post("/elsewhere", json={}).status_code == 404


def test_its_health_says_what_it_serves(client: TestClient, team: Run) -> None:
    found = client.get("/healthz").json()
    assert found["status"] == "ok"
    assert (found["run"], found["deciding"], found["rule"]) == (team.name, "team", "overflow/equal")
    assert found["nodes"] == [*NAMES]


def test_metrics_count_decisions_and_requests(team: Run) -> None:
    with client_of(team) as client:
        for _ in range(3):
            answer = client.post("/decide", json={"nodes": NODES, "previous": PREVIOUS})
        forwarded = sum(sum(parts.values()) for parts in answer.json()["forward"].values())
        found = numbers(client)
        assert found['corral_decisions_total{by="team"}'] == 3
        assert found['corral_decisions_total{by="rule"}'] == 0
        assert found["corral_arrivals_total"] == 3 * 18
        assert found["corral_forwarded_total"] == 3 * forwarded
        assert found["corral_decision_seconds_count"] == 3
        assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=")


def test_its_description_tells_of_the_request(client: TestClient) -> None:
    described = client.get("/openapi.json").json()["paths"]["/decide"]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["nodes"]
    assert {"nodes", "previous", "state"} == schema["properties"].keys()


def test_it_answers_alike_as_a_part_of_another_application(client: TestClient, team: Run) -> None:
    outer = FastAPI()
    outer.mount("/requests", app_of(service_of(team)))
    with TestClient(outer) as mounted:
        for asked in ({"nodes": NODES}, {"nodes": {}}):
            answer = mounted.post("/requests/decide", json=asked)
            alone = client.post("/decide", json=asked)
            assert (answer.status_code, answer.json()) == (alone.status_code, alone.json())
            assert answer.headers["content-type"] == "application/json"


def test_a_memory_travels_with_requests(remembering: Run) -> None:
    kept = remembering.start()
    with client_of(remembering) as client:
        asked: dict[str, Any] = {"nodes": NODES}
        nodes = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
        for previous in (None, PREVIOUS, PREVIOUS):
            asked = {**asked, "nodes": nodes, "previous": previous}
            found = client.post("/decide", json=asked).json()
            assert found["by"] == "team"
            assert found["forward"] == remembering.decide(nodes, previous, kept)
            again = client.post("/decide", json=asked).json()
            assert again == found  # nothing of a request stays in the server
            asked["state"] = found["state"]
        for state in (None, "nonsense"):
            answer = client.post("/decide", json={**asked, "state": state})
            assert answer.status_code == 422
            assert answer.json()["detail"][0]["field"] == "state"


def test_a_shadow_answers_by_the_rule_and_logs(team: Run, tmp_path: Path) -> None:
    log = tmp_path / "shadow.jsonl"
    service = service_of(team, rule="overflow/capacity", shadow=log)
    with TestClient(app_of(service)) as client:
        found = client.post("/decide", json={"nodes": NODES}).json()
        assert found["by"] == "rule"
        metrics = numbers(client)
    assert service.log is not None
    service.log.close()
    line = json.loads(log.read_text())
    assert line["rule"] == found["forward"]
    assert line["team"] == team.decide(NODES)
    assert metrics["corral_shadow_difference_total"] == line["difference"]
    assert metrics["corral_shadow_unlogged"] == 0


def test_a_rule_takes_any_number_of_requests(team: Run) -> None:
    with client_of(team, rule="overflow", nodes="any") as client:
        nodes = {**NODES, NAMES[0]: {"arrivals": 5_000_004, "capacity": 4, "queue": 900}}
        found = client.post("/decide", json={"nodes": nodes}).json()
        assert found["forward"][NAMES[0]] == {NAMES[1]: 2_500_000, NAMES[2]: 2_500_000}
        assert (found["by"], found["reason"]) == ("rule", None)
        assert client.get("/healthz").json()["deciding"] == "rule"
        nodes["site1"] = nodes.pop("site-1")  # misspelled
        found = client.post("/decide", json={"nodes": nodes}).json()
        assert (found["by"], found["reason"]) == ("rule", "nodes")
        assert found["detail"] == "unknown: site1; missing: site-1"
        assert numbers(client)['corral_fallbacks_total{reason="nodes"}'] == 1
