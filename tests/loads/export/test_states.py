"""A state belongs to the team that made it, and holds no number that no decision left there."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains networks")

import corral
from corral.loads.export.decider import DecisionError, OutOfRangeError
from corral.loads.serve.memory import MemoryTextError
from corral.loads.serve.service import service_of
from support.loads import small_trace
from support.thinned import fast_every

NAMES = ("site-0", "site-1", "site-2")


def trained(folder: Path, seed: int) -> Any:
    """A recurrent team whose reports are late."""
    return corral.train(
        "dfaas_v0",
        trainer="mappo",
        steps=32,
        out=folder,
        env_kwargs={"trace": small_trace(), "max_cycles": 10, "queue": 3, "report_delay": 3},
        num_envs=2,
        n_steps=8,
        net_arch=(6,),
        memory=4,
        seed=seed,
        validation=0,
        preset="none",
        progress=False,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """A run, and the same trained again."""
    folder = tmp_path_factory.mktemp("teams")
    return trained(folder / "one", 1), trained(folder / "other", 2)


def moments(count: int, seed: int = 1) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    drawn = np.random.default_rng(seed).integers(12, size=(count, 2, 3, 2)).tolist()
    return [
        (
            {n: {"arrivals": a, "capacity": c} for n, (a, c) in zip(NAMES, now, strict=True)},
            {n: {"spare": s, "lost": x} for n, (s, x) in zip(NAMES, before, strict=True)},
        )
        for now, before in drawn
    ]


def played(decider: Any, count: int = 5) -> Any:
    """The state after some decisions."""
    state = decider.start()
    for nodes, previous in moments(count):
        decider.decide(nodes, previous, state)
    return state


def module_of(folder: Path) -> Any:
    """The policy.py of a folder."""
    names: dict[str, Any] = {"__name__": "policy_of_test", "__file__": str(folder / "policy.py")}
    sys.modules["policy_of_test"] = type(sys)("policy_of_test")
    exec(compile((folder / "policy.py").read_text(encoding="utf-8"), "policy.py", "exec"), names)
    return SimpleNamespace(**names)


KINDS = ("run.decide", "folder", "rule")


def decider_of(kind: str, run: Any, folder: Path) -> tuple[Any, Any]:
    """What decides, and the module of its errors."""
    errors = SimpleNamespace(DecisionError=DecisionError, OutOfRangeError=OutOfRangeError)
    if kind == "run.decide":
        return run.decider, errors
    if kind == "rule":
        return run.decider.by_rule(
            f"overflow/{'least' if 'other' in str(run.folder) else 'spare'}"
        ), errors
    run.export("numpy", folder)
    module = module_of(folder)
    return module.Decider(folder), module


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_of_a_team_before_it_was_trained_again_begins_anew(
    runs: tuple[Any, Any], kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (decider_of(kind, run, tmp_path / run.name)[0] for run in runs)
    assert one.team != other.team
    state = played(one)
    assert (state.team, state.restarted) == (one.team, False)
    fresh = other.start()
    with caplog.at_level(logging.WARNING, "corral"):
        for step, (nodes, previous) in enumerate(moments(6, seed=2)):
            assert other.decide(nodes, previous, state) == other.decide(nodes, previous, fresh)
            assert (state.team, state.t) == (other.team, step + 1)
            assert (state.restarted, fresh.restarted) == (step == 0, False)
    assert [record.name for record in caplog.records] == ["corral"]
    # Many such states do not fill the log.
    for i in range(300):
        state.team = f"{i:064}"
        other.decide(*moments(1)[0], state)
        assert state.restarted
    assert 1 < len(caplog.records) <= 101


def test_one_team_has_one_digest_wherever_it_decides(runs: tuple[Any, Any], tmp_path: Path) -> None:
    run, other = runs
    exported, _ = decider_of("folder", run, tmp_path / "gateway")
    assert exported.team == run.decider.team == corral.load_run(run.folder).decider.team
    assert (
        len({run.decider.team, other.decider.team, corral.load_run(f"{run.folder}@0").decider.team})
        == 3
    )
    rules = {each.by_rule("overflow/spare").team for each in (exported, run.decider)}
    assert len(rules) == 1
    # So a gateway may change from the run to its export.
    state, kept = played(run.decider), played(run.decider)
    theirs = exported.start()
    theirs.t, theirs.reports, theirs.hidden = state.t, state.reports, [np.concatenate(state.hidden)]
    for nodes, previous in moments(4, seed=3):
        assert exported.decide(nodes, previous, theirs) == run.decide(nodes, previous, kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        ((0, 1, 2, 0), 10**18, "state.reports.site-2.spare"),
        ((0, 0, 1, 1), 10**18, "state.reports.site-1.lost"),
        ((0, 0, 0, 1), -1, "state.reports.site-0.lost"),
    ],
)
def test_reports_in_a_state_are_in_range(
    runs: tuple[Any, Any], kind: str, place: Any, value: int, field: str, tmp_path: Path
) -> None:
    decider, errors = decider_of(kind, runs[0], tmp_path / "gateway")
    state = played(decider)
    state.reports[place] = value
    with pytest.raises(errors.OutOfRangeError) as raised:
        decider.decide(*moments(1)[0], state)
    assert raised.value.field == field
    assert state.t == 5
    largest = decider.limits["capacity" if place[-1] == 0 else "arrivals"]
    state.reports[place] = largest
    decider.decide(*moments(1)[0], state)
    assert state.t == 6


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("value", fast_every(4, [np.nan, np.inf, -np.inf, 1e18, -1.01]))
def test_hidden_states_are_in_range(
    runs: tuple[Any, Any], kind: str, value: float, tmp_path: Path
) -> None:
    decider, errors = decider_of(kind, runs[0], tmp_path / "gateway")
    state = played(decider)
    state.hidden[0][0, 1] = value
    with pytest.raises(errors.DecisionError) as raised:
        decider.decide(*moments(1)[0], state)
    assert (raised.value.field, state.t) == ("state.hidden", 5)


# --- Served --------------------------------------------------------------------------------------


def changed(text: str, change: Callable[[dict[str, Any]], Any]) -> str:
    found = json.loads(base64.b64decode(text))
    change(found)
    return base64.b64encode(json.dumps(found).encode()).decode()


def part_of(values: Any) -> dict[str, Any]:
    return {"data": base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()}


def test_served_a_state_of_another_team_begins_anew(
    runs: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (service_of(run) for run in runs)
    assert one.memory is not None
    assert other.memory is not None
    text = None
    for nodes, previous in moments(4):
        answer = one.decide(nodes, previous, one.memory.read(text, begins=text is None))
        assert (answer.by, answer.state.restarted) == ("team", False)
        text = one.memory.text_of(answer.state)
    with caplog.at_level(logging.WARNING, "corral"):
        nodes, previous = moments(1, seed=4)[0]
        answer = other.decide(nodes, previous, other.memory.read(text, begins=False))
    assert (answer.by, answer.reason, answer.state.restarted) == ("team", None, True)
    assert answer.forward == runs[1].decide(nodes, previous, runs[1].start())
    assert len(caplog.records) == 1
    text = other.memory.text_of(answer.state)
    answer = other.decide(nodes, previous, other.memory.read(text, begins=False))
    assert (answer.by, answer.state.restarted, answer.state.t) == ("team", False, 2)


def test_served_reports_in_a_state_are_checked_as_reports_are(runs: tuple[Any, Any]) -> None:
    service = service_of(runs[0])
    memory: Any = service.memory
    nodes, previous = moments(1)[0]
    for column, key in enumerate(("spare", "lost")):
        for value in (10**18, 13, -3):
            reports = np.zeros((1, 2, 3, 2), dtype=np.int64)
            reports[0, 1, 2, column] = value
            text = changed(
                memory.text_of(None),
                lambda found, to=reports: found["parts"][0].update(part_of(to)),
            )
            answer = service.decide(nodes, previous, memory.read(text, begins=False))
            assert (answer.by, answer.reason) == ("rule", key)
            assert "site-2" in str(answer.detail)
            text = memory.text_of(answer.state)  # to go on with
            answer = service.decide(nodes, previous, memory.read(text, begins=False))
            assert (answer.by, answer.state.t) == ("team", 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("team"),
        lambda found: found.update(team=3),
        lambda found: found.update(team="a" * 65),
        lambda found: found.update(team="a" * 63),
        lambda found: found.update(t=10**18),
        lambda found: found.update(t=True),
        lambda found: found["parts"][0].update(shape=[10**30]),
        lambda found: found["parts"][0].update(shape={"a": 1}),
        lambda found: found["parts"][1].update(part_of(np.full((3, 4), 1e18, np.float32))),
        lambda found: found["parts"][1].update(part_of(np.full((3, 4), np.nan, np.float32))),
        lambda found: found["parts"][1].update(part_of(np.full((3, 4), -1.5, np.float32))),
        lambda found: found.update(parts={"a": 1}),
    ],
)
def test_served_texts_that_no_team_sent_are_refused(runs: tuple[Any, Any], change: Any) -> None:
    memory: Any = service_of(runs[0]).memory
    whole = memory.text_of(memory.decider.start())
    assert memory.read(changed(whole, lambda found: None), begins=False).t == 0
    with pytest.raises(MemoryTextError):
        memory.read(changed(whole, change), begins=False)


def test_after_a_failure_the_memory_begins_anew(runs: tuple[Any, Any]) -> None:
    service = service_of(runs[0])
    memory: Any = service.memory
    text = memory.text_of(None)  # as after an answer with reason "raised"
    nodes, previous = moments(1)[0]
    answer = service.decide(nodes, previous, memory.read(text, begins=False))
    assert (answer.by, answer.state.t) == ("team", 1)
    assert memory.text_of(None) == text


def test_an_answer_says_that_a_state_restarted(runs: tuple[Any, Any]) -> None:
    pytest.importorskip("fastapi", reason="needs the extra serve")
    pytest.importorskip("prometheus_client", reason="needs the extra serve")
    pytest.importorskip("httpx", reason="FastAPI's test client needs it")
    from fastapi.testclient import TestClient

    from corral.loads.serve.app import app_of

    (nodes, previous), *_ = moments(1)
    asked: dict[str, Any] = {"nodes": nodes}
    answers = []
    for run, more in zip((*runs, runs[1]), ({}, {"previous": previous}, {}), strict=True):
        with TestClient(app_of(service_of(run))) as client:
            asked |= more
            answers.append(client.post("/decide", json=asked).json())
            asked["state"] = answers[-1]["state"]
    assert [answer["by"] for answer in answers] == ["team"] * 3
    assert [answer["restarted"] for answer in answers] == [False, True, False]
