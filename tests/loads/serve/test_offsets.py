"""Teams whose actions are offsets to a rule are served, with numbers above their scales."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")
pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("prometheus_client", reason="needs the extra serve")
pytest.importorskip("httpx", reason="FastAPI's test client needs it")

from fastapi.testclient import TestClient

import corral
from corral.loads.serve.app import app_of
from corral.loads.serve.guard import Ranges
from corral.loads.serve.service import service_of
from corral.trainers.runs.run import Run
from support.loads import small_trace
from support.messages import shown

RULE = "backlog=0.5+margin=1/least"
NAMES = ("site-0", "site-1", "site-2")
NODES: dict[str, Any] = {name: {"last_arrivals": 6, "capacity": 7, "queue": 1} for name in NAMES}
PREVIOUS = {name: {"spare": 2 + i, "lost": 1} for i, name in enumerate(NAMES)}
LARGEST = 10**9
"""The largest number that a server takes."""


def trained(folder: Path, **env_kwargs: Any) -> Run:
    """A run on a load of up to 12 requests, whose scales are smaller."""
    settings = {
        **{"trace": small_trace(), "max_cycles": 10, "queue": 5, "link_limit": 4},
        **{"residual": RULE, "beyond": "rule", "load_scale": 8, "capacity_scale": 9},
    }
    return corral.train(
        "dfaas_v0", trainer="mappo", steps=320, out=folder, env_kwargs=settings | env_kwargs,
        num_envs=2, n_steps=16, net_arch=(16,), learning_rate=0.05, validation=0, preset="none",
        progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(tmp_path_factory.mktemp("offsets") / "run", arrivals="unknown")


@pytest.fixture(scope="module")
def clients(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TestClient]]:
    """Servers of the run, and of its export."""
    folder = tmp_path_factory.mktemp("export") / "gateway"
    run.export("numpy", folder)
    with TestClient(app_of(service_of(run))) as one, TestClient(app_of(service_of(folder))) as two:
        yield [one, two]


def asked(clients: list[TestClient], nodes: Any, previous: Any = None) -> dict[str, Any]:
    """The answer of both servers."""
    sent = {"nodes": nodes} if previous is None else {"nodes": nodes, "previous": previous}
    answers = [client.post("/decide", json=sent) for client in clients]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    found: dict[str, Any] = answers[0].json()
    return found


def test_within_the_scales_the_team_decides(clients: list[TestClient], run: Run) -> None:
    others = 0
    for capacity in range(10):
        nodes = {name: {**node, "capacity": capacity} for name, node in NODES.items()}
        found = asked(clients, nodes, PREVIOUS)
        assert (found["by"], found["reason"]) == ("team", None)
        assert found["plan"] == run.decide(nodes, PREVIOUS)
        others += found["plan"] != run.decider.by_rule(RULE).decide(nodes, PREVIOUS)
    assert others > 0


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("last_arrivals", 9),  # above the scale, within the load of the training
        ("last_arrivals", LARGEST),
        ("capacity", 10),
        ("capacity", LARGEST),
        ("spare", 10),
        ("spare", LARGEST),
        ("lost", 9),
        ("lost", LARGEST),
    ],
)
def test_above_its_scale_a_number_is_answered_by_the_same_rule(
    clients: list[TestClient], run: Run, number: str, value: int
) -> None:
    nodes = {name: dict(node) for name, node in NODES.items()}
    previous = {name: dict(node) for name, node in PREVIOUS.items()}
    (nodes if number in NODES["site-0"] else previous)["site-1"][number] = value
    found = asked(clients, nodes, previous)
    assert (found["by"], found["reason"]) == ("rule", number)
    assert found["plan"] == run.decider.by_rule(RULE).decide(nodes, previous)
    assert found["plan"] == run.decide(nodes, previous)


def test_no_number_is_larger_than_any_rule_takes(clients: list[TestClient]) -> None:
    nodes = {**NODES, "site-1": {**NODES["site-1"], "capacity": LARGEST + 1}}
    for client in clients:
        answer = client.post("/decide", json={"nodes": nodes})
        assert answer.status_code == 422
        assert [each["field"] for each in answer.json()["detail"]] == ["nodes.site-1.capacity"]
        schema = client.get("/openapi.json").text
        shown(schema, "last_arrivals", "capacity")


def test_the_rule_behind_the_team_is_its_own(run: Run) -> None:
    shown(" ".join(service_of(run).lines), RULE)
    shown(" ".join(service_of(run, fallback="overflow/fill").lines), "overflow/fill")


def test_the_margin_ends_at_the_scales_or_with_clip_at_the_largest_number(run: Run) -> None:
    about = run.decider.about
    most = Ranges.seen(about, 1e12).of["site-0"]
    scales = about["load_scale"], about["capacity_scale"]
    assert [most[key][1] for key in ("arrivals", "capacity", "lost", "spare")] == [*scales, *scales]
    clipped = Ranges.seen({**about, "beyond": "clip"}, 1e12).of["site-0"]
    assert {clipped[key][1] for key in ("arrivals", "capacity", "spare", "lost")} == {2**31}


def test_known_arrivals_and_a_route_that_draws(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", residual="capacity=0.5/two-choices", report_delay=2)
    nodes = {name: {"arrivals": 100_001, "capacity": 7} for name in NAMES}
    service = service_of(run)
    found = service.decide(nodes)
    assert found.by == "rule"
    assert {name: sum(row.values()) for name, row in found.forward.items()} == dict.fromkeys(
        NAMES, 8  # two links of 4
    )  # fmt: skip
    calm = {name: {"arrivals": 6, "capacity": 7} for name in NAMES}
    assert service.decide(calm).by == "team"
