"""Every request that arrived is served, lost, held or in flight, at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from loads.rehearsal.both import Case, Listed, random_case, require_conserved

from corral.loads.rehearsal import world as worlds
from corral.loads.rehearsal.arrivals import DrawnRequests, chunks_of
from corral.loads.rehearsal.balancers import BALANCERS, balancer_of
from corral.loads.rehearsal.engine import Window, WindowResult
from corral.loads.rehearsal.world import World
from support.thinned import fast_every

CHOICES = tuple(BALANCERS)


def require_whole(world: World) -> None:
    """Assert that all counts and lists of a world agree."""
    n, servers = world.nodes, world.servers
    counts = dict(zip(worlds.COUNTS, world.counts, strict=True))
    flying = world.places[worlds.FIRST_COUNT] + world.places[worlds.AGAIN_COUNT]
    held = sum(world.held)
    assert counts["arrivals"] == counts["served"] + counts["lost"] + held + flying
    assert held + world.places[worlds.FIRST_COUNT] == sum(world.flight)
    assert sum(world.waits) == counts["started"]
    used_slots = set()
    for j in range(n):
        serving = [slot for slot in world.serving[j * servers : (j + 1) * servers] if slot >= 0]
        waiting = waiting_slots(world, j)
        assert len(serving) == world.busy[j]
        assert world.held[j] == len(serving) + len(waiting)
        assert not waiting or world.busy[j] == servers
        assert world.waiting_work[j] == pytest.approx(sum(world.work[slot] for slot in waiting))
        of_client = [world.origin[slot] for slot in serving + waiting]
        for i in range(n):
            assert world.flight[i * n + j] == of_client.count(i) + on_their_way(world, i, j)
        used_slots |= {*serving, *waiting}
    assert len(used_slots) == held
    free, unused = world.places[worlds.FREE], 0
    while free < len(world.after):
        assert free not in used_slots
        free, unused = world.after[free], unused + 1
    assert unused == len(world.after) - held


def on_their_way(world: World, i: int, j: int) -> int:
    """Return the number of first offers from i to j that have not arrived."""
    first, size = world.places[worlds.FIRST_DUE], len(world.due)
    rows = [(first + k) % size for k in range(world.places[worlds.FIRST_COUNT])]
    return sum((world.source[row], world.target[row]) == (i, j) for row in rows)


def waiting_slots(world: World, j: int) -> list[int]:
    slots, slot = [], world.head[j]
    while slot >= 0:
        slots.append(slot)
        slot = world.after[slot]
    assert world.tail[j] == (slots[-1] if slots else -1)
    return slots


def watched(choose: Callable[..., int]) -> Callable[..., int]:
    """Return the same way of choosing, with a look at the world before and after."""

    def choose_and_look(world: World, memory: Any, i: int, now: float, r: int) -> int:
        require_whole(world)
        j = choose(world, memory, i, now, r)
        require_whole(world)
        return j

    return choose_and_look


def play(case: Case, name: str, steps_at_once: int, looks: bool) -> tuple[WindowResult, World]:
    """Play a balancer in chunks. Random numbers are the same for any division."""
    balancer = balancer_of(name)
    engine = case.engine(peaks=balancer.peaks)
    choose = watched(balancer.choose) if looks else balancer.choose
    player = engine.player(choose, strict=True)
    window, memory = Window(engine), engine.memory(balancer.memory(engine.nodes))
    listed, rng = Listed(case), np.random.default_rng(3)
    for first in range(0, case.steps, steps_at_once):
        last = min(first + steps_at_once, case.steps)
        chunk = listed.take(first, last)
        uniform = rng.random(len(chunk.node) * memory.draws)
        memory = memory._replace(uniform=uniform.tolist())
        window.play(player, memory, case.capacity[first:last].astype(np.float64), chunk)
        require_conserved(window.result())
    return window.result(), window.world


@pytest.mark.parametrize("name", fast_every(2, CHOICES))
def test_requests_are_conserved_at_every_event_and_in_any_chunks(name: str) -> None:
    for seed in range(8):
        case = random_case(np.random.default_rng((seed, CHOICES.index(name))))
        result, world = play(case, name, 1, looks=True)
        require_whole(world)
        at_once, _ = play(case, name, case.steps, looks=False)
        assert at_once.counts == result.counts
        assert (at_once.held, at_once.in_flight) == (result.held, result.in_flight)
        assert at_once.waits.tolist() == result.waits.tolist()
        assert result.counts["arrivals"] == len(case.requests)
        assert sum(map(sum, case.arrivals.tolist())) == len(case.requests)


def test_drawn_requests_do_not_depend_on_the_division_into_chunks() -> None:
    arrivals = np.random.default_rng(0).integers(5, size=(9, 3))
    arrivals[4] = 0

    def drawn() -> DrawnRequests:
        return DrawnRequests(arrivals, "exponential", seed=2, window=1)

    (whole,) = list(chunks_of(drawn(), arrivals, single=False))
    single = list(chunks_of(drawn(), arrivals, single=True))
    assert [chunk.first for chunk in single] == list(range(9))
    assert whole.until.tolist() == arrivals.sum(axis=1).cumsum().tolist()
    for name in ("node", "time", "work"):
        parts = np.concatenate([getattr(chunk, name) for chunk in single])
        np.testing.assert_array_equal(parts, getattr(whole, name))
    steps = np.floor(whole.time).astype(int)
    counts = np.zeros_like(arrivals)
    np.add.at(counts, (steps, whole.node), 1)
    np.testing.assert_array_equal(counts, arrivals)
    assert (np.diff(whole.time) >= 0).all()


def test_a_window_of_many_requests_is_played_in_several_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.loads.rehearsal.arrivals.CHUNK", 20)
    arrivals = np.array([[30, 0], [5, 4], [0, 0], [9, 9], [1, 1]])
    requests = DrawnRequests(arrivals, "deterministic", seed=0, window=0)
    chunks = [(chunk.first, chunk.last) for chunk in chunks_of(requests, arrivals, single=False)]
    assert chunks == [(0, 1), (1, 3), (3, 5)]
