"""Custom policies: the numbers that they get, and their errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0.planned import View
from corral.envs.dfaas_v0.plans import Plan
from corral.errors import ActionError
from corral.loads.rehearsal import custom, planned, rehearse
from corral.loads.rehearsal.custom import Request
from support.messages import refused


def load(step: int = 1, arrivals: int = 4, steps: int = 6) -> Trace:
    return Trace(
        nodes=("a", "b", "c"),
        arrivals=np.full((steps, 3), arrivals),
        capacity=np.full((steps, 3), 5),
        times=np.arange(steps) * step,
        clock="integer" if step == 1 else "utc",
    )


class Always:
    """Returns the same for every request; raises it if it is an exception."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def choose(self, request: Request) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class AlwaysPlan:
    """The same for plans."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def plan(self, view: View) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (KeyError("busy"), ("KeyError", "busy", "step 0")),
        (None, ("None", "step 0")),
        (1, (1,)),
        (np.array([1, 2]), ("array",)),
        (["a"], ("a",)),
        ("d", ("'d'",)),
    ],
)
def test_errors_of_a_policy_name_it_and_the_step(value: Any, values: tuple[object, ...]) -> None:
    with refused(ActionError, "policy mine", *values):
        rehearse(load(), {"mine": Always(value)})


def test_a_node_without_a_link_cannot_be_chosen() -> None:
    with refused(ActionError, "policy mine", "'c'", "a"):
        rehearse(load(), {"mine": Always("c")}, neighbours={"a": ["b"], "b": ["c"], "c": ["a"]})


def test_an_object_without_a_method_is_refused() -> None:
    with refused(ActionError, "mine", "choose", "plan", "SimpleNamespace"):
        rehearse(load(), {"mine": SimpleNamespace()})  # type: ignore[dict-item]


def test_a_request_over_a_link_that_is_used_up_stays() -> None:
    class ToB:
        def choose(self, request: Request) -> str:
            if request.node == "a":
                seen.append(request.neighbours)
                return "b"
            return request.node

    seen: list[list[str]] = []
    result = rehearse(load(), {"mine": ToB()}, link_limit=1)
    counts = result.sums["mine"].counts
    assert counts["forwarded"].tolist() == [6]
    assert seen[:3] == [["b", "c"], ["c"], ["c"]]
    assert counts["lost"] + counts["served"] + result.sums["mine"].held == 72


def test_a_request_shows_the_nodes_as_they_are() -> None:
    class Looking:
        def choose(self, request: Request) -> str:
            now = request.time
            assert request.remaining == pytest.approx(1 - now % 1)
            assert request.work == 1
            assert request.capacity("b") == 5
            assert request.held(request.node) == request.in_flight(request.node)
            assert request.backlog("c") <= request.held("c") <= request.backlog("c") + 1
            places = ["a", "b", "c"]
            at = places.index(request.node)
            assert request.neighbours == [places[(at + 1) % 3], places[(at + 2) % 3]]
            held.append(request.held(request.node))
            return request.node

    held: list[int] = []
    rehearse(load(arrivals=9), {"mine": Looking()}, queue=3)
    assert len(held) == 162
    assert 0 in held
    assert max(held) > 3


def test_a_policy_that_is_slower_than_the_requests_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(0, 10**9, 30))  # each decision takes 30 s
    monkeypatch.setattr(custom, "PATIENCE", 10)
    monkeypatch.setattr(custom.time, "perf_counter", lambda: next(ticks))
    with refused(ActionError, "policy mine", "30", "25"):
        rehearse(load(step=300), {"mine": Always("a")})  # 12 requests in 300 s
    rehearse(load(step=400), {"mine": Always("a")})
    rehearse(load(), {"mine": Always("a")})  # a load without a clock


@pytest.mark.parametrize(
    ("value", "values"),
    [
        (RuntimeError("busy"), ("RuntimeError", "busy")),
        ("local", ("'local'",)),
        (Plan(keep=1, caps={"d": 3}), ("'d'",)),
        (Plan(keep=1, route="spare"), ("spare",)),
    ],
)
@pytest.mark.parametrize("service", ["rate", "step"])
def test_errors_of_plans_name_the_policy(
    value: Any, values: tuple[object, ...], service: str
) -> None:
    with refused(ActionError, "policy mine", *values):
        rehearse(load(), {"mine": AlwaysPlan(value)}, service=service)


def test_plans_that_are_slower_than_the_steps_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(0, 10**9, 400))  # each decision takes 400 s
    clock = SimpleNamespace(perf_counter=lambda: next(ticks))
    monkeypatch.setattr(planned, "PATIENCE", 2)
    monkeypatch.setattr(planned, "clock", clock)
    with refused(ActionError, "policy mine", 400, 300):
        rehearse(load(step=300), {"mine": AlwaysPlan(Plan(keep=2))})
    rehearse(load(step=600), {"mine": AlwaysPlan(Plan(keep=2))})


def test_choices_by_request_have_no_game_of_the_replay() -> None:
    for policy in (Always("a"), "random"):
        with refused(ActionError, "policy mine", "rate"):
            rehearse(load(), {"mine": policy}, service="step")


def test_custom_plans_see_the_time_and_the_counts_of_a_replay() -> None:
    views: list[View] = []

    class Looking:
        def plan(self, view: View) -> Plan:
            views.append(view)
            return Plan(keep=3)

    rehearse(load(step=3600), {"mine": Looking()}, parts=False)
    assert [view.time for view in views[::3]] == [f"1970-01-01 0{hour}:00" for hour in range(6)]
    assert [list(view.last_counts) for view in views[:7:3]] == [[], [4], [4, 4]]
    views.clear()
    rehearse(load(), {"mine": Looking()}, parts=False)
    assert [view.time for view in views[::3]] == [*"012345"]


def test_a_policy_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "class Needs:\n    def __init__(self, x): ...\n    def choose(self, request): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    with refused(ActionError, "mine.py:Needs", "TypeError"):
        rehearse("edge3", ["mine.py:Needs"], days=1)
    with refused(ActionError, "mine.py:NAME"):
        rehearse("edge3", ["mine.py"], days=1)
