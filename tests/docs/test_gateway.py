"""The examples of docs/gateway.md run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains networks")

from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.export.decider import about_rules
from corral.loads.serve.placed import Placing
from support.command import within
from support.loads import small_trace

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
PARTS = {part.partition("\n")[0]: part for part in PAGE.split("\n## ")}


def code_of(title: str) -> list[Any]:
    """The Python of a section, compiled."""
    found = re.findall(r"```python\n(.*?)```", PARTS[title], flags=re.DOTALL)
    return [compile(code, f"docs/gateway.md, {title}", "exec") for code in found]


def test_all_code_of_the_page_is_run_by_a_test() -> None:
    sections = {title for title, part in PARTS.items() if "```python" in part}
    here = {"Decide", "Carry out a plan", "Known arrivals", "Export", "ONNX"}
    assert sections == here | {"The guard", "Shadow mode"}  # test_gateway_server.py


def test_from_a_run_to_a_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "policy", raising=False)
    train, write = re.findall(
        r"^\$ corral (.*)$", PARTS["Your verdict is a team"], flags=re.MULTILINE
    )
    within(*train.replace("4096", "2048").split())
    within(*write.split())
    names: dict[str, Any] = {}
    for title in ("Decide", "Carry out a plan", "Export"):
        for code in code_of(title):
            exec(code, names)
        assert list(names["plans"]) == ["milan", "oslo", "porto"]
        for plan in names["plans"].values():
            assert set(plan) == {"keep", "share", "most", "caps", "route", "order"}
            assert f"`{plan['route']}`" in PARTS["Decide"]
    assert [plan["keep"] for plan in names["fallback"].values()] == [20, 30, 40]
    step = names["Step"](
        names["fallback"]["oslo"], ["porto", "milan"], {}, {"porto": 1, "milan": 0}
    )
    went = [step.next() for _ in range(35)]
    assert went == [None] * 30 + ["porto", "porto", "milan", "porto", "milan"]
    for code in code_of("Known arrivals"):
        exec(code, names)
    assert list(names["forwards"]) == ["milan", "oslo", "porto"]
    assert all(sum(others.values()) <= 60 for others in names["forwards"].values())
    monkeypatch.delitem(sys.modules, "policy")


@pytest.mark.parametrize("route", ["equal", "weighted", "least", "fill", "two-choices"])
def test_a_proxy_carries_plans_out_as_the_environment_does(route: str) -> None:
    """Requests by request, the code of the page sends as many to whom."""
    names: dict[str, Any] = {}
    for code in code_of("Carry out a plan"):
        exec(code, names)
    nodes = [f"site-{i}" for i in range(5)]
    links = {
        f"node_{i}": [f"node_{j}" for j in range(5) if (i + j) % 4 and i != j] for i in range(4)
    }
    placing = Placing(about_rules(DfaasRules(small_trace(5), neighbours=links, arrivals="unknown")))
    rng, sent = np.random.default_rng(6), 0
    for _ in range(300):
        counts, capacity, spare = rng.integers([[40], [9], [12]], size=(3, 5)).tolist()
        given = {
            node: {"last_arrivals": counts[i], "capacity": capacity[i]}
            for i, node in enumerate(nodes)
        }
        ended = {node: {"spare": spare[i], "lost": 0} for i, node in enumerate(nodes)}
        ordered = route == "fill" and rng.random() < 0.5
        plans, steps = {}, {}
        for i, node in enumerate(nodes):
            cyclic = [(i + distance) % 5 for distance in range(1, 5)]
            near = [nodes[j] for j in cyclic if f"node_{j}" in links.get(f"node_{i}", ())]
            plans[node] = plan = random_plan(rng, near, route, ordered)
            here, there = (dict(zip(nodes, values, strict=True)) for values in (capacity, spare))
            steps[node] = names["Step"](plan, near, here, there)
        offers = placing.offers(plans, given, ended)
        for i, node in enumerate(nodes):
            for _ in range(counts[i]):
                steps[node].next()
            found = {to: count for to, count in steps[node].sent.items() if count}
            if route == "two-choices":  # draws are its own
                assert sum(found.values()) == sum(offers[node].values())
                caps = plans[node]["caps"]
                assert caps is None or all(count <= caps[to] for to, count in found.items())
            else:
                assert found == offers[node]
            sent += sum(found.values())
    assert sent > 2_000


def random_plan(rng: Any, near: list[str], route: str, ordered: bool) -> dict[str, Any]:
    plan: dict[str, Any] = dict.fromkeys(("keep", "share", "most", "caps", "order"))
    plan["route"] = route
    kind = int(rng.integers(3))
    if kind == 1:
        plan["keep"] = int(rng.integers(12))
    elif kind == 2:
        plan["share"] = int(rng.integers(11)) / 10
    if rng.random() < 0.4:
        plan["most"] = int(rng.integers(20))
    if rng.random() < 0.6:
        plan["caps"] = {node: int(rng.integers(9)) for node in near if rng.random() < 0.9}
    if ordered:
        plan["order"] = [near[k] for k in rng.permutation(len(near))[: rng.integers(len(near) + 1)]]
    return plan


@pytest.mark.slow
def test_a_graph_decides_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(module, reason="needs the extra onnx")
    monkeypatch.chdir(tmp_path)
    train = re.findall(r"^\$ corral (train .*)$", PAGE, flags=re.MULTILINE)[0]
    within(*train.replace("4096", "2048").split())
    names: dict[str, Any] = {}
    for code in code_of("ONNX"):
        exec(code, names)
    (keep,) = names["keep"].tolist()
    assert -1 <= keep <= 20
    assert names["in_range"].tolist() == [True]
    assert names["intact"] is True
    plan = names["run"].decide(
        {
            "milan": {"last_arrivals": 60, "capacity": 20},
            "oslo": {"last_arrivals": 10, "capacity": 30},
            "porto": {"last_arrivals": 5, "capacity": 40},
        },
        {
            "milan": {"spare": 0, "lost": 8},
            "oslo": {"spare": 11, "lost": 0},
            "porto": {"spare": 24, "lost": 0},
        },
    )["milan"]
    assert plan["keep"] == (None if keep < 0 else keep)
    listed = re.findall(r"^\| ((?:`\w+`(?:, | or )?)+) \|", PARTS["ONNX"], flags=re.MULTILINE)
    known = {name for line in listed for name in re.findall(r"`(\w+)`", line)}
    assert known >= set(names["about"])
