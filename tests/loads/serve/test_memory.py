"""A team's memory as text: the server keeps none."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from corral.loads.serve.memory import MemoryTextError, Remembering
from corral.trainers.runs.run import Run
from support.messages import refused

NAMES = ("site-0", "site-1", "site-2")


def moments(count: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    drawn = np.random.default_rng(1).integers(12, size=(count, 2, 3, 2)).tolist()
    return [
        (
            {n: {"arrivals": a, "capacity": c} for n, (a, c) in zip(NAMES, now, strict=True)},
            {n: {"spare": s, "lost": x} for n, (s, x) in zip(NAMES, before, strict=True)},
        )
        for now, before in drawn
    ]


def test_a_memory_that_travels_is_one_that_is_kept(remembering: Run) -> None:
    kept, memory = remembering.decider, Remembering(remembering.decider)
    state, text = kept.start(), None
    for step, (nodes, previous) in enumerate(moments(8)):
        before = memory.read(text, begins=step == 0)
        forward, after = memory(nodes, previous if step else None, before)
        assert forward == kept.decide(nodes, previous if step else None, state)
        text = memory.text_of(after)
        assert text is not None
    assert memory.read(text, begins=False).t == 8
    fresh = memory(*moments(1)[0][:1], None, None)[1]
    assert fresh is not None
    assert fresh.t == 1  # nothing of what was decided before is left in it


def test_a_team_without_memory_neither_sends_nor_reads_one(team: Run) -> None:
    memory = Remembering(team.decider)
    assert memory.read("whatever", begins=False) is None
    nodes, previous = moments(1)[0]
    forward, after = memory(nodes, previous, None)
    assert forward == team.decide(nodes, previous)
    assert after is None
    assert memory.text_of(after) is None


def test_earlier_steps_without_the_memory_of_them_are_refused(remembering: Run) -> None:
    memory = Remembering(remembering.decider)
    with refused(MemoryTextError, "state", "previous"):
        memory.read(None, begins=False)
    assert memory.read(None, begins=True) is None


def told(memory: Remembering) -> dict[str, Any]:
    text = memory.text_of(memory.decider.start())
    assert text is not None
    found: dict[str, Any] = json.loads(base64.b64decode(text))
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop("t"),
        lambda found: found.update(t=-1),
        lambda found: found.update(t=1.5),
        lambda found: found["parts"].clear(),
        lambda found: found["parts"].append(found["parts"][0]),
        lambda found: found["parts"][0].update(shape=[1, 3, 2, 2]),
        lambda found: found["parts"][0].update(shape=[-1, -1]),
        lambda found: found["parts"][0].update(dtype="<f8"),
        lambda found: found["parts"][0].update(dtype="O"),
        lambda found: found["parts"][0].update(data="AAAA"),
        lambda found: found["parts"][0].update(data="?"),
    ],
)
def test_another_text_is_refused(remembering: Run, change: Any) -> None:
    memory = Remembering(remembering.decider)
    found = told(memory)
    change(found)
    text = base64.b64encode(json.dumps(found).encode()).decode()
    with refused(MemoryTextError, "state"):
        memory.read(text, begins=False)


@pytest.mark.parametrize("text", ["", "?", "AAAA", "é", base64.b64encode(b"[]").decode()])
def test_what_is_no_text_of_ours_is_refused(remembering: Run, text: str) -> None:
    with refused(MemoryTextError, "state"):
        Remembering(remembering.decider).read(text, begins=False)
