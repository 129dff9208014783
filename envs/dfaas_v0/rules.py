"""The rules of dfaas_v0 as array code; ``corral.envs.dfaas_v0`` is their manual."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.data import Trace, load_trace
from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of, yes_or_no
from corral.envs.core import ENDLESS, Array, Observation, Outcome, Split, agent_views, changed
from corral.envs.dfaas_v0.amounts import Amounts
from corral.envs.dfaas_v0.arguments import measured_on, scale, with_capacity
from corral.envs.dfaas_v0.features import Every
from corral.envs.dfaas_v0.network import ROUTES, Network, Route, adjacency
from corral.envs.dfaas_v0.render import Frame, ansi, draw
from corral.envs.dfaas_v0.rows import Section, divide, section, start_row
from corral.envs.masks import masked_space
from corral.envs.policy import Policy

__all__ = ["ROUTES", "DfaasRules", "DfaasState", "Route"]

COUNTS = ("arrivals", "forwarded", "served_local", "served_remote", "lost", "waiting")
INFO = (*COUNTS, "illegal_actions")


@dataclass
class DfaasState:
    """B environments between two steps; all int64."""

    start: Array  # [B] first row of the window, counted from the section's first
    t: Array  # [B] steps since the episode began
    queue: Array  # [B, N] requests waiting
    spare: Array  # [B, N] as the last step ended, 0 at the start
    lost: Array  # [B, N] in the last step
    draws: Array  # [B, max_cycles, N, 2] neighbours drawn for route "two"; else [B, 0, N, 2]
    flow: Array  # [B, N, N] accepted i -> j in the last step, for pictures; else [B, 0, 0]


class DfaasRules:
    """The rules of dfaas_v0 of B environments; see the manual of the package.

    Args:
        trace: a bundled name ("edge3", "edge8") or the path of a CSV; in Python also a Trace.
        max_cycles: steps of an episode; one longer than the rows wraps round to the first.
        rows: (low, high): windows are drawn, and wrap, inside these rows of the trace only.
        start: "random", or the row (counted from low) at which every episode starts.
        load_scale: arrivals are divided by this; default: the trace's largest, at least 1.
        capacity_scale: capacities are divided by this; default: the trace's largest, at least 1.
        max_level: largest number of units that an action can stand for. Loads above it are
            forwarded in units of several requests, and the overflow no longer to the request.
        queue: requests that a node can hold until the next step.
        forward_cost: cost of forwarding one request, in lost requests.
        wait_cost: cost of one request that waits for one step, in lost requests.
        route: how a sender splits what it forwards.
        second_offer: whether refused requests are offered once more.
        link_limit: requests that a directed link takes per step; None: any number.
        neighbours: agent -> agents it can forward to (nobody where absent); None: all others.
            The names that the trace gives its nodes will do as well.
        reward: each node its "own", or everyone the "team"'s mean.
        capacity: replaces the trace's: requests per step, or "1.25x" of each node's mean load.
        capacity_rows: (low, high), the rows of that mean; None: all. Training sets its own rows.
        illegal: what an action outside the mask does: "penalise" or "raise".
        keep_flow: whether the state keeps who served whose requests, as pictures need it.

    Raises:
        TraceError: the trace cannot be read, or has no capacity and none is given.
        ScaleError: the trace exceeds a given scale.
        ValueError: any other argument is out of its range.
    """

    name = "dfaas_v0"
    render_modes = ("human", "ansi", "rgb_array")
    render_fps = 4
    simultaneous = True

    def __init__(
        self,
        trace: str | Path | Trace = "edge3",
        *,
        max_cycles: int = 288,
        rows: Section | None = None,
        start: int | Literal["random"] = "random",
        load_scale: float | None = None,
        capacity_scale: float | None = None,
        max_level: int = 100,
        queue: int = 0,
        forward_cost: float = 0.0,
        wait_cost: float = 0.0,
        route: Route = "equal",
        second_offer: bool = True,
        link_limit: int | None = None,
        neighbours: Mapping[str, Sequence[str]] | None = None,
        reward: Literal["own", "team"] = "own",
        capacity: int | str | None = None,
        capacity_rows: Section | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
        keep_flow: bool = False,
    ) -> None:
        self._recorded = load_trace(trace)
        self.trace = with_capacity(self._recorded, capacity, capacity_rows)
        self._capacity_given = capacity, capacity_rows, capacity_scale
        self.max_cycles = nonnegative_int("max_cycles", max_cycles, least=1)
        self.max_level = nonnegative_int("max_level", max_level, least=1)
        self.queue = nonnegative_int("queue", queue)
        self.link_limit = None if link_limit is None else nonnegative_int("link_limit", link_limit)
        self.forward_cost = nonnegative_float("forward_cost", forward_cost)
        self.wait_cost = nonnegative_float("wait_cost", wait_cost)
        self.route = one_of("route", route, ROUTES)
        self.reward = one_of("reward", reward, ("own", "team"))
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        self.second_offer = yes_or_no("second_offer", second_offer)
        self.keep_flow = bool(keep_flow)
        self.neighbours = neighbours

        self.agents = tuple(f"node_{i}" for i in range(len(self.trace.nodes)))
        self.load_scale = scale("load_scale", load_scale, self.trace.arrivals)
        self.capacity_scale = scale("capacity_scale", capacity_scale, self.trace.capacity)
        self.levels_of = Amounts(self.load_scale, self.max_level)
        self.unit = self.levels_of.unit
        self.levels = self.levels_of.count  # number of actions, A
        links = adjacency(self.agents, self.trace.nodes, neighbours)
        self.network = Network(links, self.route, self.second_offer, self.link_limit)
        self.features = Every(self.network, self.queue)

        self.rows = (0, len(self.trace)) if rows is None else section(rows, len(self.trace))
        self.start_row = start_row(start, self.rows)
        self._prepare_section()

    def _prepare_section(self) -> None:
        """Compute all that depends on the row alone, for the L rows of the section."""
        section = self.trace.section(*self.rows)
        assert section.capacity is not None  # with_capacity saw to it
        self._arrivals, self._capacity = section.arrivals, section.capacity  # [L, N]
        self._scaled = np.stack(  # [L, N, 2] the first two features
            [self._arrivals / self.load_scale, self._capacity / self.capacity_scale], axis=-1
        ).astype(np.float32)
        linked = self.network.links.any(axis=1)
        self._highest = np.where(
            linked, self.levels_of.highest(self._arrivals), 0
        )  # [L, N] legal action
        # An illegal action forwards all arrivals. With neighbours k * unit > a, so the minimum with
        # a does that by itself; without, one "unit" must exceed any arrivals.
        self._request_per_level = np.where(linked, self.unit, np.iinfo(np.int64).max // self.levels)
        self._masks = np.tri(self.levels, dtype=np.int8)  # row k allows 0..k

    @property
    def identity(self) -> str:
        """A digest of the load and of all arguments: equal for rules that play alike."""
        settings = (
            *(self.trace.digest, self.rows, self.max_cycles, self.start_row, self.load_scale),
            *(self.capacity_scale, self.max_level, self.queue, self.forward_cost, self.wait_cost),
            *(self.route, self.second_offer, self.link_limit, self.reward),
            self.network.links.tolist(),
        )
        return f"{self.name} {hashlib.sha256(repr(settings).encode()).hexdigest()}"

    # --- What they offer besides, see OptionalRules -----------------------------------------------

    def split(
        self,
        rows: Section | None,
        held_out: float | Section | None,
        validation: float | Section | None = None,
    ) -> Split:
        """Train on the first rows of the trace, validate on later ones, hold out the last, as
        ``corral.envs.dfaas_v0.rows.divide`` says.

        Scales are fixed here, from the whole trace, so that no later load changes a space; a
        capacity such as "1.25x" is that multiple of the load that is trained on.
        """
        rows = None if rows is None else self.rows
        window, first = self.max_cycles, self.start_row or 0
        parts = divide(len(self.trace), window, rows, held_out, validation, first)
        fixed = {"load_scale": self.load_scale, "capacity_scale": self.capacity_scale}
        train = {"trace": self._recorded, "rows": parts.train, **fixed}
        train |= measured_on(self._recorded, parts.train, *self._capacity_given)
        own = {} if self.start_row is None else {"start": "random"}
        differs = {} if parts.validation is None else {"rows": parts.validation, **own}
        return Split(train, {"rows": parts.held_out}, differs)

    def in_windows(self, most: int) -> tuple[DfaasRules, int]:
        """Return rules whose environments begin the whole windows of the rows, one each."""
        count = max(1, len(self._arrivals) // self.max_cycles)
        chosen = np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)
        start = functools.partial(self.start_at, chosen * self.max_cycles)
        return changed(self, start=start), len(chosen)

    def shares(self, info: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
        """Return requests served, lost, forwarded, and the cost; and all arrivals: each [E]."""
        cost = info["lost"] + self.forward_cost * info["forwarded"]
        cost = cost + self.wait_cost * info["waiting"]  # what waits for two steps counts twice
        served = info["served_local"] + info["served_remote"]
        amounts = {"served": served, "lost": info["lost"], "forwarded": info["forwarded"]}
        return {**amounts, "cost": cost}, info["arrivals"]

    def carried(self) -> dict[str, Any]:
        """Return what observations and actions depend on, beside the load."""
        names = ("capacity_scale", "load_scale", "max_level", "neighbours", "route")
        return {name: getattr(self, name) for name in names}

    def teams(self) -> dict[str, dict[str, Policy]]:
        """Return its reference teams by name, see ``corral.envs.dfaas_v0.baselines``."""
        from corral.envs.dfaas_v0.baselines import Teams  # which imports this module

        return Teams(self)

    def amounts(self) -> tuple[str, Array]:
        """Return the requests of each level; a node forwards no more than arrive."""
        return "requests", self.levels_of.requests.astype(np.float64)

    def redrawing(self) -> DfaasRules | None:
        """Return rules that draw other days' load, see ``corral.envs.dfaas_v0.days``."""
        from corral.envs.dfaas_v0.days import with_other_days  # which imports this module

        return with_other_days(self)

    def places(self, state: DfaasState) -> list[str]:
        """Return the rows of the trace that come next."""
        return [f"row {self.rows[0] + row:,}" for row in self._row(state).tolist()]

    def for_rendering(self) -> DfaasRules:
        """Return rules that keep who served whose requests."""
        return self if self.keep_flow else changed(self, keep_flow=True)

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(self.features.space(), self.levels)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self.levels)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (6 * len(self.agents),), np.float32)

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> DfaasState:
        """Begin B episodes; each generator draws the first row, then pairs for route "two"."""
        if self.start_row is None:
            first = np.array([rng.integers(len(self._arrivals)) for rng in rngs], dtype=np.int64)
        else:
            first = np.full(len(rngs), self.start_row, dtype=np.int64)
        return self.start_at(first, rngs)

    def start_at(self, first: Array, rngs: Sequence[np.random.Generator]) -> DfaasState:
        """Begin episodes at the rows ``first`` [B] of the section."""
        b, n = len(first), len(self.agents)
        draws = np.zeros((b, 0, n, 2), dtype=np.int32)
        if self.route == "two":
            high, steps = np.maximum(self.network.degree, 1)[:, None], self.max_cycles or ENDLESS
            draws = np.stack([rng.integers(high, size=(steps, n, 2), dtype="i4") for rng in rngs])
        return DfaasState(
            start=np.asarray(first, dtype=np.int64).copy(),
            t=np.zeros(b, dtype=np.int64),
            queue=np.zeros((b, n), dtype=np.int64),
            spare=np.zeros((b, n), dtype=np.int64),
            lost=np.zeros((b, n), dtype=np.int64),
            draws=draws,
            flow=np.zeros((b, n, n) if self.keep_flow else (b, 0, 0), dtype=np.int64),
        )

    def observe(self, state: DfaasState) -> dict[str, Observation]:
        row = self._row(state)
        load = self._scaled.take(row, axis=0)
        features = self.features.of(load, state.queue, self._last_step(state))
        masks = self._masks.take(self._highest.take(row, axis=0), axis=0)  # [B, N, A]
        return agent_views(self.agents, features, masks)

    def acting(self, state: DfaasState) -> Array:
        return np.ones(state.queue.shape, dtype=bool)

    def step(self, state: DfaasState, action: Array) -> Outcome[DfaasState]:
        row = self._row(state)
        arrivals, capacity = self._arrivals.take(row, axis=0), self._capacity.take(row, axis=0)
        forwarded = np.minimum(action * self._request_per_level, arrivals)

        # 1. Nodes serve their own work first: the queue, and arrivals that were not forwarded.
        work = state.queue + arrivals - forwarded
        served_local = np.minimum(work, capacity)
        left = work - served_local
        queue = np.minimum(left, self.queue)
        spare = capacity - served_local

        # 2. and 3. Neighbours take what is forwarded, as far as capacity is spare.
        draws = None
        if self.route == "two":
            draws = state.draws[np.arange(len(row)), state.t % state.draws.shape[1]]  # [B, N, 2]
        first = state.t % len(self.agents)
        basis = capacity if self.route == "capacity" else state.spare
        flow = state.flow if self.keep_flow else None
        refused, spare_after = self.network.forward(first, forwarded, spare, basis, draws, flow)
        lost = left - queue + refused

        state.t += 1
        state.queue, state.spare, state.lost = queue, spare_after, lost
        counts = (arrivals, forwarded, served_local, spare - spare_after, lost, queue)
        illegal = np.greater(action, self._highest.take(row, axis=0)).astype(np.int64)
        info = dict(zip(INFO, (*counts, illegal), strict=True))
        reward = self._reward(lost, forwarded, queue)
        return Outcome(state, reward, np.zeros(lost.shape, dtype=bool), info)

    def info(self, state: DfaasState) -> dict[str, Array]:
        return {key: np.zeros_like(state.queue) for key in INFO}

    def global_state(self, state: DfaasState) -> Array:
        b, n = state.queue.shape
        nodes = np.empty((b, n, 5), dtype=np.float32)
        nodes[..., :2] = self._scaled.take(self._row(state), axis=0)
        nodes[..., 2] = state.queue / max(self.queue, 1)
        nodes[..., 3:] = self._last_step(state)
        turn = np.eye(n, dtype=np.float32)[state.t % n]
        return np.concatenate([nodes.reshape(b, 5 * n), turn], axis=1)  # [B, 6N]

    def render(self, state: DfaasState, info: dict[str, Array], mode: str) -> Any:
        return (ansi if mode == "ansi" else draw)(self.frame(state, info))

    def frame(self, state: DfaasState, info: dict[str, Array]) -> Frame:
        """Return the last step of environment 0; before the first step, the load to come."""
        t = int(state.t[0])
        row = int(state.start[0] + max(t - 1, 0)) % len(self._arrivals)
        numbers = {key: tuple(info[key][0].tolist()) for key in COUNTS}
        if t == 0:
            numbers["arrivals"] = tuple(self._arrivals[row].tolist())
        nodes = zip(self.agents, self.trace.nodes, strict=True)
        return Frame(
            t=t,
            max_cycles=self.max_cycles,
            clock=self.trace.clock_text(self.rows[0] + row),
            names=tuple(agent if agent == node else f"{agent} {node}" for agent, node in nodes),
            capacity=tuple(self._capacity[row].tolist()),
            queue=self.queue,
            flow=tuple(map(tuple, state.flow[0].tolist())) if self.keep_flow else None,
            load_scale=float(self.load_scale),
            capacity_scale=float(self.capacity_scale),
            **numbers,
        )

    # --- Parts of a step -------------------------------------------------------------------------

    def _row(self, state: DfaasState) -> Array:
        """Return the row of the section that comes next, [B]; windows wrap in the section."""
        return np.asarray((state.start + state.t) % len(self._arrivals))

    def _last_step(self, state: DfaasState) -> Array:
        """Return spare and lost of the last step, scaled: float32 [B, N, 2]."""
        scaled = np.empty((*state.spare.shape, 2), dtype=np.float32)
        np.divide(state.spare, self.capacity_scale, out=scaled[..., 0])
        # At most 1 by itself: a node never loses more than arrived.
        np.divide(state.lost, self.load_scale, out=scaled[..., 1])
        return scaled

    def _reward(self, lost: Array, forwarded: Array, waiting: Array) -> Array:
        cost: Array = lost + self.forward_cost * forwarded if self.forward_cost else lost
        if self.wait_cost:
            cost = cost + self.wait_cost * waiting
        if self.reward == "team":
            cost = np.broadcast_to(cost.mean(axis=1, keepdims=True), cost.shape)
        return np.asarray(0.0 - cost / self.load_scale, dtype=np.float32)  # 0.0 -: no minus zero
