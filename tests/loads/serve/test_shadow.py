"""The shadow: the rule decides, the log tells what the team would have done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.export.decider import about_rules
from corral.loads.serve.guard import Guard, Ranges
from corral.loads.serve.shadow import Shadow, ShadowLog, difference
from support.loads import small_trace

NAMES = small_trace().nodes
NODES = {name: {"arrivals": 6, "capacity": 4} for name in NAMES}
BY_TEAM = {NAMES[0]: {NAMES[1]: 5}, NAMES[1]: {}, NAMES[2]: {}}
BY_RULE = {NAMES[0]: {NAMES[1]: 1, NAMES[2]: 1}, NAMES[1]: {}, NAMES[2]: {}}


def shadow_of(log: ShadowLog) -> Shadow:
    ranges = Ranges.seen(about_rules(DfaasRules(small_trace())))
    guard = Guard(
        lambda nodes, previous, state: (BY_TEAM, "after"),
        lambda nodes, previous, state: (BY_RULE, None),
        ranges,
    )
    return Shadow(guard, log)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ShadowLog]:
    with closing(ShadowLog(tmp_path / "shadow.jsonl")) as opened:
        yield opened


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("one", "other", "elsewhere"),
    [
        ({"a": {"b": 5}}, {"a": {"b": 5}}, 0),
        ({"a": {"b": 5}}, {"a": {}}, 5),  # kept at home
        ({"a": {}}, {"a": {"b": 5}}, 5),
        ({"a": {"b": 5}}, {"a": {"c": 5}}, 5),  # each counts once
        ({"a": {"b": 5}}, {"a": {"b": 1, "c": 1}}, 4),
        ({"a": {"b": 2}, "b": {}}, {"a": {}, "b": {"a": 3}}, 5),
    ],
)
def test_the_difference_counts_requests_that_go_elsewhere(
    one: Any, other: Any, elsewhere: int
) -> None:
    assert difference(one, other) == elsewhere
    assert difference(other, one) == elsewhere


def test_the_rule_decides_and_the_team_is_logged(log: ShadowLog) -> None:
    shadow = shadow_of(log)
    previous = {name: {"spare": 1, "lost": 0} for name in NAMES}
    found = shadow.decide(NODES, previous, "before")
    assert (found.forward, found.by, found.state) == (BY_RULE, "rule", "after")
    assert (found.reason, found.difference) == (None, 4)
    (line,) = lines(log.path)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "nodes": NODES,
        "previous": previous,
        "rule": BY_RULE,
        "team": BY_TEAM,
        "reason": None,
        "detail": None,
        "difference": 4,
    }


def test_it_tells_where_the_guard_would_have_let_the_rule_decide(log: ShadowLog) -> None:
    shadow = shadow_of(log)
    found = shadow.decide({**NODES, NAMES[0]: {"arrivals": 99, "capacity": 4}})
    assert (found.forward, found.by, found.reason) == (BY_RULE, "rule", "arrivals")
    assert shadow.guard.counts == {"arrivals": 1}
    (line,) = lines(log.path)
    assert (line["team"], line["reason"], line["difference"]) == (None, "arrivals", None)


def test_a_log_is_appended_to_and_starts_anew_where_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "shadow.jsonl"
    for _ in range(2):  # a second process goes on with the file
        with closing(ShadowLog(path, largest=40)) as log:
            log.write({"n": "x" * 10})  # 19 bytes
    assert len(lines(path)) == 2
    with closing(ShadowLog(path, largest=40)) as log:
        log.write({"n": 3})
        assert lines(path) == [{"n": 3}]
        assert len(lines(tmp_path / "shadow.jsonl.1")) == 2
        log.write({"n": "y" * 60})
    assert lines(tmp_path / "shadow.jsonl.1") == [{"n": 3}]
    assert len([*tmp_path.iterdir()]) == 2


def test_a_full_disk_stops_no_decision(log: ShadowLog, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = shadow_of(log)

    class Full:
        closed = False

        def tell(self) -> int:
            return 0

        def write(self, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(log, "_file", Full())
        assert shadow.decide(NODES).forward == BY_RULE
    assert log.failures == 1


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        ShadowLog(tmp_path)
