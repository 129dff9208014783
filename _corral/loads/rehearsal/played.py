"""Play one policy over the windows of a load: request by request, and in the parts between."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from corral.envs.core import Array, generator
from corral.envs.dfaas_v0.plans import Plans
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.errors import ActionError
from corral.loads.rehearsal import world as worlds
from corral.loads.rehearsal.arrivals import DECISIONS, Chunk, Requests, chunks_of, stream
from corral.loads.rehearsal.carried_out import by_plan
from corral.loads.rehearsal.custom import chooser
from corral.loads.rehearsal.engine import Engine, WindowResult
from corral.loads.rehearsal.own_first import Leftover, play_by_priority
from corral.loads.rehearsal.planned import Deciding, Situation, offers_of
from corral.loads.rehearsal.policies import Policy
from corral.loads.waiting import served_after

__all__ = ["Course", "Sums", "play_priority", "play_rate", "play_steps"]


@dataclass(frozen=True)
class Course:
    """The windows of a load that are played: W windows of T steps each."""

    rules: DfaasRules  # of the whole load; episodes have T steps
    first: tuple[int, ...]  # first rows
    seed: int
    requests: Callable[[int], Requests]  # requests of the window with this place among ``first``
    number: tuple[int, ...]  # number of each window in a replay of the whole load
    speed: Array | None = None  # float64 [N] capacity of a step, if requests have sizes

    @property
    def steps(self) -> int:
        return self.rules.max_cycles

    def rows(self, w: int) -> slice:
        """Return the rows of a window, counted from the first row of the trace."""
        return slice(self.first[w], self.first[w] + self.steps)

    def capacity(self, w: int) -> Array:
        """Return the capacities of a window as numbers with fractions: float64 [T, N]."""
        if self.speed is not None:
            return np.tile(self.speed, (self.steps, 1))
        assert self.rules.trace.capacity is not None  # checked by the rules
        return self.rules.trace.capacity[self.rows(w)].astype(np.float64)

    def arrivals(self, w: int) -> Array:
        return self.rules.trace.arrivals[self.rows(w)]

    def rng(self, w: int) -> np.random.Generator:
        """Return the generator of a window in a replay: the draws of its routes."""
        return generator(self.seed, "env", self.number[w])


@dataclass(frozen=True)
class Sums:
    """The sums of a policy: [W] each, in requests; times in steps. W windows of T steps."""

    counts: dict[str, Array]  # see ``world.COUNTS``
    held: Array  # at the end of the window
    in_flight: Array
    mean_wait: Array
    mean_stay: Array
    waits: Array  # int64 [parts, BINS] of all windows
    lost_by_step: Array  # int64 [W, T] requests of all nodes
    exceeding: Array  # steps in which a team observed a number above its scale

    @classmethod
    def of(cls, windows: Iterable[WindowResult]) -> Sums:
        """Sum up windows. Their waits are added at once: they are large, and windows many."""
        results: list[WindowResult] = []
        waits, empty = np.zeros((1, worlds.BINS), dtype=np.int64), np.zeros((0, worlds.BINS))
        for window in windows:
            waits = waits + window.waits
            results.append(dataclasses.replace(window, waits=empty))
        names = ("held", "in_flight", "mean_wait", "mean_stay", "exceeding", "lost_by_step")
        lists = {name: np.array([getattr(result, name) for result in results]) for name in names}
        return cls(
            counts={
                name: np.array([result.counts[name] for result in results])
                for name in worlds.COUNTS
            },
            waits=waits,
            **lists,
        )


Tick = Callable[[int, int], None]


def play_rate(policy: Policy, course: Course, engine: Engine, tick: Tick) -> Sums:
    """Play a policy with servers that serve one request after the other."""
    return Sums.of(_windows(_window_of(policy, course, engine), course, tick))


def _windows(
    play_window: Callable[[int], WindowResult], course: Course, tick: Tick
) -> Iterator[WindowResult]:
    """Play all windows, one after the other."""
    for w in range(len(course.first)):
        yield play_window(w)
        tick(w + 1, len(course.first))


def _window_of(policy: Policy, course: Course, engine: Engine) -> Callable[[int], WindowResult]:
    """Return a function that plays a window by its place."""
    if policy.balancer is not None:
        balancer = policy.balancer
        play = engine.player(balancer.choose, strict=True)

        def of_balancer(w: int) -> WindowResult:
            memory = engine.memory(balancer.memory(engine.nodes))
            rng = stream(course.seed, DECISIONS, course.number[w])
            window = engine.begin()
            for chunk in chunks_of(course.requests(w), course.arrivals(w), single=False):
                uniform = rng.random(len(chunk.node) * memory.draws)
                memory = memory._replace(uniform=engine.values(uniform))
                window.play(play, memory, course.capacity(w)[chunk.first : chunk.last], chunk)
            return window.result()

        return of_balancer
    if policy.custom is not None:
        play_custom = engine.player(chooser(policy.custom, course.rules.trace), strict=True)

        def of_custom(w: int) -> WindowResult:
            window = engine.begin()
            for chunk in chunks_of(course.requests(w), course.arrivals(w), single=False):
                part = course.capacity(w)[chunk.first : chunk.last]
                window.play(play_custom, engine.values(chunk.work), part, chunk)
            return window.result()

        return of_custom
    play_plan = engine.player(by_plan, strict=False)
    return partial(_plan_window, policy, course, engine, play_plan, None)


def play_priority(policy: Policy, course: Course, engine: Engine, tick: Tick) -> Sums:
    """Play a plan as ``own_first`` describes."""
    play = engine.compiled_or_plain(play_by_priority)
    largest = int(course.rules.trace.arrivals.sum(axis=1).max(initial=0))

    def play_window(w: int) -> WindowResult:
        return _plan_window(policy, course, engine, play, engine.leftover(largest), w)

    return Sums.of(_windows(play_window, course, tick))


def _plan_window(
    policy: Policy,
    course: Course,
    engine: Engine,
    play: Callable[..., Any],
    rest: Leftover | None,
    w: int,
) -> WindowResult:
    """Play a plan in a window; with ``rest``, own requests first."""
    assert policy.decider is not None
    deciding = Deciding(policy.decider, course.rules, course.rng(w), course.first[w])
    window, situation = engine.begin(), Situation(engine.nodes)
    backlog = engine.compiled_or_plain(worlds.remaining)
    capacity, arrivals = course.capacity(w), course.arrivals(w)
    for chunk in chunks_of(course.requests(w), arrivals, single=True):
        t = chunk.first
        plans = deciding.decide(t, situation)
        memory = engine.memory(deciding.memory(plans, t, arrivals[t]))
        world = window.world
        world.cap[:] = memory.cap
        if rest is None:
            window.play(play, memory, capacity[t : t + 1], chunk)
            idle, forwarded = world.idle, np.zeros(engine.nodes)
        else:
            window.play(partial(_with_rest, play, rest), memory, capacity[t : t + 1], chunk)
            idle = rest.unused
            forwarded = np.maximum(0.0, np.array(rest.done) - np.array(rest.before))
        held = np.array(world.held)
        if world.by_work:
            work = [backlog(world, j, t + 1.0) for j in range(engine.nodes)]
            held = np.floor(np.array(work) + 1e-9).astype(np.int64)
        situation.queue = held + np.ceil(forwarded).astype(np.int64)
        situation.spare = np.floor(np.array(idle) + 1e-9).astype(np.int64)
        situation.lost = np.array(world.lost)
    return dataclasses.replace(window.result(), exceeding=deciding.exceeding)


def _with_rest(
    play: Callable[..., Any], rest: Leftover, world: Any, memory: Any, *args: Any
) -> None:
    play(world, memory, rest, *args)


# --- The game of the replay ----------------------------------------------------------------------


def play_steps(policy: Policy, course: Course, engine: Engine, tick: Tick) -> Sums:
    """Play a plan in the game of the replay: a node serves its capacity at the end of each step.

    Each request is kept or forwarded when it arrives, by the plan. Then the rules of dfaas_v0
    settle the step. Raises ActionError for a policy that decides by the backlogs of the moment.
    """
    if policy.decider is None:
        raise ActionError(
            "a balancer chooses by the state of the moment, which the game of the replay does not "
            "have; pass service='rate', or a rule such as local/equal"
        )
    play_window = partial(_step_window, policy.decider, course, engine)
    return Sums.of(_windows(play_window, course, tick))


def _step_window(decider: Any, course: Course, engine: Engine, w: int) -> WindowResult:
    rules, n = course.rules, engine.nodes
    deciding = Deciding(decider, rules, course.rng(w), course.first[w])
    state = rules.start_at(np.array([course.first[w] - rules.rows[0]]), [course.rng(w)])
    situation, arrivals = Situation(n), course.arrivals(w)
    rows: list[dict[str, Array]] = []
    for chunk in chunks_of(course.requests(w), arrivals, single=True):
        t = chunk.first
        decision = deciding.decide(t, situation)
        if decider.arrivals == "known":
            offers, caps = offers_of(decision, rules.trace.nodes), deciding.offered_caps
        else:
            memory = engine.memory(deciding.memory(decision, t, arrivals[t]))
            offers = _offers(engine, memory, chunk)
            caps = np.array(memory.cap).reshape(1, n, n)
        total = offers.sum(axis=1)
        keep = np.zeros((1, n), dtype=np.int64)
        plans = Plans("given", keep, most=total[None], caps=caps, offers=offers[None])
        outcome = rules.carry_out(state, plans)
        state = outcome.state
        situation.queue, situation.spare = state.queue[0], state.spare[0]
        situation.lost = state.lost[0]
        rows.append({name: values[0] for name, values in outcome.info.items()})
    info = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return dataclasses.replace(_step_result(info, engine), exceeding=deciding.exceeding)


def _offers(engine: Engine, memory: Any, chunk: Chunk) -> Array:
    """Return the requests that each node sends to each other one, by its plan: int64 [N, N]."""
    world = engine.begin().world
    for r, i in enumerate(chunk.node.tolist()):
        by_plan(world, memory, i, 0.0, r)
    return np.array(memory.sent, dtype=np.int64).reshape(engine.nodes, engine.nodes)


def _step_result(info: dict[str, Array], engine: Engine) -> WindowResult:
    """Return the sums of a window; ``info``: int64 [T, N] each. Requests wait whole steps."""
    served = info["served_local"] + info["served_remote"]
    after = served_after(info["served_local"], info["served_remote"], info["waiting"], len(served))
    waits = np.zeros((engine.parts, worlds.BINS), dtype=np.int64)
    steps = np.arange(len(after))
    for wait, number in enumerate(after.tolist()):
        place = 0
        if wait:
            place = 1 + int(math.log(wait / worlds.FIRST_BIN) / worlds.RESOLUTION)
        waits[0, min(place, worlds.BINS - 1)] += number
    counts = {name: int(info[name].sum()) for name in ("arrivals", "lost", "forwarded", "waiting")}
    number = max(1, int(after.sum()))
    return WindowResult(
        counts={
            **dict.fromkeys(worlds.COUNTS, 0),
            **counts,
            "served": int(served.sum()),
            "started": int(after.sum()),
            "late": int(after[steps > engine.deadline].sum()),
        },
        held=int(info["waiting"][-1].sum()),
        in_flight=0,
        mean_wait=float(after @ steps / number),
        mean_stay=float(after @ steps / number),
        waits=waits,
        lost_by_step=info["lost"].sum(axis=1),
    )
