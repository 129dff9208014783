"""Worlds of a window, and the play of chunks in them, compiled or as plain Python."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.loads.rehearsal import world as worlds
from corral.loads.rehearsal.arrivals import Chunk
from corral.loads.rehearsal.compiled import compiled, compiled_class
from corral.loads.rehearsal.own_first import Leftover
from corral.loads.rehearsal.playing import player
from corral.loads.rehearsal.setting import Setting
from corral.loads.rehearsal.world import World, as_lists

__all__ = ["Engine", "Window", "WindowResult"]


@functools.cache
def compiled_player(choose: Callable[..., int], strict: bool) -> Callable[..., Any]:
    """Return ``playing.player``, compiled once for each way of choosing."""
    return compiled(player(compiled(choose), strict))


@dataclass(frozen=True)
class WindowResult:
    """The sums of one policy in one window; numbers of requests, times in steps."""

    counts: dict[str, int]  # see ``world.COUNTS``
    held: int  # at the end
    in_flight: int  # at the end
    mean_wait: float  # of the requests whose service began
    mean_stay: float  # time in the system of the served requests
    waits: Array  # int64 [parts, BINS]
    lost_by_step: Array  # int64 [T] requests of all nodes
    exceeding: int = 0  # steps in which a team observed a number above its scale


class Engine:
    """Plays windows of the load of ``rules``. ``by_work``: requests have sizes."""

    def __init__(
        self,
        rules: DfaasRules,
        setting: Setting,
        *,
        by_work: bool = False,
        parts: int = 1,
        peaks: bool = False,
        compile_it: bool = False,
    ) -> None:
        self.rules, self.setting, self.compiled = rules, setting, compile_it
        trace = rules.trace
        deadline = setting.deadline
        day = trace.steps_per_day or rules.max_cycles
        n = len(rules.agents)
        self.nodes, self.parts = n, parts
        self._by_work = by_work
        self.deadline = 1.0 if deadline is None else float(setting.in_steps(deadline, trace))
        self._latency = float(setting.in_steps(setting.latency, trace))
        self._fixed: dict[str, Any] = {
            "nodes": n,
            "servers": setting.servers,
            "queue": float(rules.queue),
            "waiting_places": -1.0 if setting.places is None else float(setting.places),
            "by_work": by_work,
            "link_limit": worlds.UNLIMITED if rules.link_limit is None else rules.link_limit,
            "second_offer": rules.second_offer,
            "latency": self._latency,
            "period": float(setting.in_steps(setting.report_period, trace)),
            "age": float(setting.in_steps(setting.report_age, trace)),
            "deadline": self.deadline,
            "peaks": peaks,
            "parts": parts,
            "steps_of_part": max(1, math.ceil(day / parts)),
            "slots": self._max_held() + 1,
            "flying": self._max_flying() + 1,
            "steps": rules.max_cycles,
        }
        links = rules.network.links
        near = np.zeros((n, n), dtype=np.int64)
        for i in range(n):
            places = [j for j in rules.network.others[i].tolist() if links[i, j]]
            near[i, : len(places)] = places
        self._links = {
            "near": near.ravel(),
            "degree": links.sum(axis=1).astype(np.int64),
            "linked": links.ravel().astype(np.int64),
        }

    def _max_held(self) -> int:
        """Return the most requests that all nodes can hold at once in a window."""
        rules, setting = self.rules, self.setting
        section = rules.trace.section(*rules.rows)
        assert section.capacity is not None  # checked by the rules
        servers = setting.servers
        if self._by_work:  # any number of small requests
            return self._max_in(rules.max_cycles)
        if setting.places is not None:
            held = self.nodes * (setting.places + servers)
        else:
            held = int(section.capacity.max(axis=0).sum()) + self.nodes * (rules.queue + 1)
        return min(held, self._max_in(rules.max_cycles))

    def _max_flying(self) -> int:
        """Return the most requests that can be in flight at once: a request flies twice at most."""
        latency = self._latency
        return self._max_in(math.ceil(3 * latency) + 1) if latency else 0

    def _max_in(self, steps: int) -> int:
        """Return the most requests of consecutive steps."""
        low, high = self.rules.rows
        total = self.rules.trace.arrivals[low:high].sum(axis=1).cumsum()
        before = np.concatenate([np.zeros(steps, dtype=np.int64), total])[: len(total)]
        return int((total - before).max(initial=0))

    def player(self, choose: Callable[..., int], strict: bool) -> Callable[..., Any]:
        """Return ``playing.player`` for a way of choosing, compiled if wanted."""
        return compiled_player(choose, strict) if self.compiled else player(choose, strict)

    def compiled_or_plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of this package in the form of this engine."""
        return compiled(function) if self.compiled else function

    def memory(self, memory: Any) -> Any:
        """Return a named tuple of arrays and numbers, with arrays in the form of a world."""
        changes = {
            name: self.values(value)
            for name, value in memory._asdict().items()
            if isinstance(value, np.ndarray)
        }
        return memory._replace(**changes)

    def leftover(self, requests: int) -> Any:
        """Return ``own_first.Leftover`` for a window with at most ``requests`` in a step."""
        if self.compiled:
            return compiled_class(Leftover, 1, 1)(self.nodes, requests)
        rest = Leftover(self.nodes, requests)
        as_lists(rest)
        return rest

    def values(self, array: Array) -> Any:
        """Return an array in the form of a world: itself if compiled, else a list."""
        return array if self.compiled else array.tolist()

    def begin(self) -> Window:
        """Begin a window."""
        return Window(self)

    def new_world(self) -> World:
        """Return an empty world."""
        fixed = self._fixed.values()
        if self.compiled:
            world: World = compiled_class(World, *(type(value)(1) for value in fixed))(*fixed)
            for name, table in self._links.items():
                getattr(world, name)[:] = table
            return world
        world = World(*fixed)
        vars(world).update(self._links)
        as_lists(world)
        return world


class Window:
    """A window in progress."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.world = engine.new_world()

    def play(self, play: Callable[..., Any], memory: Any, capacity: Array, chunk: Chunk) -> None:
        """Play the requests of a chunk. ``capacity`` float64 [last - first, N]."""
        engine = self.engine
        play(
            self.world,
            memory,
            engine.values(np.ascontiguousarray(capacity).ravel()),
            engine.values(chunk.until),
            engine.values(chunk.node),
            engine.values(chunk.time),
            engine.values(chunk.work),
            0,
            chunk.last - chunk.first,
        )

    def result(self) -> WindowResult:
        """Return the sums so far."""
        world = self.world
        counts = dict(zip(worlds.COUNTS, map(int, world.counts), strict=True))
        return WindowResult(
            counts=counts,
            held=int(sum(world.held)),
            in_flight=int(world.places[worlds.FIRST_COUNT] + world.places[worlds.AGAIN_COUNT]),
            mean_wait=float(world.clock[worlds.WAIT]) / max(1, counts["started"]),
            mean_stay=float(world.clock[worlds.STAY]) / max(1, counts["served"]),
            waits=np.asarray(world.waits, dtype=np.int64).reshape(world.parts, worlds.BINS),
            lost_by_step=np.asarray(world.lost_by_step, dtype=np.int64),
        )
