"""The rules of dfaas_v0 as array code. The manual is the docstring of ``corral.envs.dfaas_v0``."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.data import Trace, load_trace
from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of, yes_or_no
from corral.envs.core import ENDLESS, Array, Observation, Outcome, Split, agent_views, changed
from corral.envs.dfaas_v0 import arguments, past
from corral.envs.dfaas_v0.amounts import Choices, Requests, levels_in
from corral.envs.dfaas_v0.features import BY_CAPACITY, SUMMARIES, Deciding, scaled_reports
from corral.envs.dfaas_v0.load import (
    Augment,
    Augmented,
    AugmentedState,
    DfaasState,
    Recorded,
    with_other_days,
)
from corral.envs.dfaas_v0.means import means_by_row, table_of_means
from corral.envs.dfaas_v0.network import Caps, Network, adjacency, no_choice
from corral.envs.dfaas_v0.optimum import has_closed_form, optimum
from corral.envs.dfaas_v0.plans import Plans
from corral.envs.dfaas_v0.render import Frame, ansi, draw
from corral.envs.dfaas_v0.residual import Residual
from corral.envs.dfaas_v0.routes import ROUTES, Route
from corral.envs.dfaas_v0.rows import Section, divide, section, start_row
from corral.envs.masks import masked_space
from corral.memory import require_memory

__all__ = ["ROUTES", "DfaasRules", "DfaasState", "Route"]


@dataclass(slots=True)  # faster to create than a frozen dataclass
class Sent:
    """The requests that nodes forward in a step, with the arguments of ``Network.forward``."""

    network: Network
    forwarded: Array  # int64 [B, N]
    basis: Array
    named: Array | None
    caps: Caps


COUNTS = ("arrivals", "forwarded", "served_local", "served_remote", "lost", "waiting")
INFO = (*COUNTS, "illegal_actions", "waited")


class DfaasRules(Deciding):
    """The rules of dfaas_v0 for B environments. The manual is the docstring of the package.

    Args:
        trace: name of a bundled trace ("edge3", "edge8") or path of a CSV; in Python also a Trace.
        max_cycles: steps of an episode. An episode longer than the rows wraps round to the first
            row.
        rows: (low, high): windows are drawn from rows low .. high - 1 of the trace, and wrap in
            them. None: all rows.
        start: "random", or the row, counted from low, at which every episode starts.
        load_scale: divides arrivals. Default: the largest arrivals of the trace, at least 1.
        capacity_scale: divides capacities. Default: the largest capacity of the trace, at least 1.
        max_level: largest number of units that an action can stand for. If load_scale exceeds it, a
            unit is several requests, and an action can no longer forward the exact overflow.
        amount: meaning of the levels. "unit": multiples of a unit to forward. "quantile": quantiles
            of the load in the rows. A list of requests from 0 to load_scale or more. "keep":
            requests that stay before any is forwarded. "share": shares of the arrivals.
        queue: requests that a node can hold until the next step.
        forward_cost: cost of forwarding one request, in lost requests.
        wait_cost: cost of one request that waits for one step, in lost requests.
        route: how forwarded requests are split over the neighbors. By request: equal (round-robin),
            weighted, least, two-choices, fill. By step: capacity, spare, all-to-shortest,
            all-to-two. "choose": the action names the neighbor. None: the route of residual, or
            equal.
        second_offer: whether the sender offers refused requests once more.
        link_limit: requests that a directed link takes per step. None: no limit.
        neighbours: mapping of each agent to the agents that it can forward to. A missing agent has
            no neighbors. None: every agent can forward to all others. Node names of the trace are
            accepted too.
        reward: "own": each node gets its own reward. "team": each node gets the mean over all
            nodes.
        capacity: replaces the capacity of the trace: requests per step, or "1.25x" for that
            multiple of each node's mean load.
        capacity_rows: (low, high): rows over which "1.25x" takes the mean load. None: all rows;
            training uses its own rows.
        illegal: treatment of an action outside the mask: "penalise" or "raise".
        augment: random changes of the training load: numbers by name, such as
            shift=12,scale=0.2,noise=0.1,mix=0.5; see the manual. None: no change.
        keep_flow: whether the state records the accepted requests of each link, for pictures.
        report_delay: age in steps of the reports of other nodes. 0: their spare in this step, after
            its arrivals.
        reward_fn: function that replaces the reward, see the manual; or its name as
            "module:function" or "file.py:function".
        observation: "every": features of every other node. "summary": features of all neighbors
            together, with shares of the arrivals as actions. "neighborhood": the same, and the
            number of neighbors with quartiles of their spare. The spaces of both fit any trace.
        arrivals: "known": nodes know the arrivals of a step before they choose. "unknown": nodes
            know them only after the step, like a gateway.
        last_counts: number of past steps for which a node observes its own arrivals. None: 0, or
            with unknown arrivals 1, in the place of the arrivals.
        daily_mean: whether a node observes its mean load at this time of day in the rows. A table
            [steps of a day][node] sets the means. Training takes them from its own rows.
        residual: a rule such as "backlog=0.75/least"; actions are then offsets to the number of
            requests that it keeps, and requests go by its route. None: no rule.
        offsets: largest offset of a residual action, in units; only with residual. Default: 6.
        beyond: play of numbers above load_scale or capacity_scale. "clip": observations are
            limited to 1. "rule": also, in a step in which nodes observe such a number, all nodes
            follow the rule of residual. None: such a trace is an error.

    Raises:
        TraceError: the trace cannot be read, or it has no capacity and ``capacity`` is missing.
        ScaleError: the trace exceeds ``load_scale`` or ``capacity_scale``, without ``beyond``.
        ValueError: any other argument is out of range.
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
        amount: str | Sequence[int] = "unit",
        queue: int = 0,
        forward_cost: float = 0.0,
        wait_cost: float = 0.0,
        route: str | None = None,
        second_offer: bool = True,
        link_limit: int | None = None,
        neighbours: Mapping[str, Sequence[str]] | None = None,
        reward: Literal["own", "team"] = "own",
        capacity: int | str | None = None,
        capacity_rows: Section | None = None,
        illegal: Literal["penalise", "raise"] = "penalise",
        augment: Mapping[str, float] | str | None = None,
        keep_flow: bool = False,
        report_delay: int = 1,
        reward_fn: Callable[..., Any] | str | None = None,
        observation: Literal["every", "summary", "neighborhood"] = "every",
        arrivals: Literal["known", "unknown"] = "known",
        last_counts: int | None = None,
        daily_mean: bool | Sequence[Sequence[float]] = False,
        residual: str | None = None,
        offsets: int | None = None,
        beyond: Literal["rule", "clip"] | None = None,
    ) -> None:
        self._recorded = load_trace(trace)
        self.trace = arguments.with_capacity(self._recorded, capacity, capacity_rows)
        self._capacity_given = capacity, capacity_rows, capacity_scale
        self.max_cycles = nonnegative_int("max_cycles", max_cycles, least=1)
        self.max_level = nonnegative_int("max_level", max_level, least=1)
        self.queue = nonnegative_int("queue", queue)
        self.link_limit = None if link_limit is None else nonnegative_int("link_limit", link_limit)
        self.forward_cost = nonnegative_float("forward_cost", forward_cost)
        self.wait_cost = nonnegative_float("wait_cost", wait_cost)
        self.route = arguments.route_of(route, residual)
        self.reward = one_of("reward", reward, ("own", "team"))
        self.illegal = one_of("illegal", illegal, ("penalise", "raise"))
        self.second_offer = yes_or_no("second_offer", second_offer)
        self.keep_flow = bool(keep_flow)
        self.observation = one_of("observation", observation, ("every", *SUMMARIES))
        self.neighbours = neighbours
        self.report_delay = nonnegative_int("report_delay", report_delay)
        self.arrivals = one_of("arrivals", arrivals, ("known", "unknown"))
        self.last_counts = arguments.last_counts(last_counts, self.arrivals, self.report_delay)
        self.reward_fn = arguments.reward_function(reward_fn, self.reward)
        self.augment = Augment.of(augment)
        self.beyond = arguments.beyond(beyond, residual)
        reach = arguments.offsets(offsets, residual)

        self.agents = tuple(f"node_{i}" for i in range(len(self.trace.nodes)))
        nodes = len(self.agents)
        require_memory(  # of one environment: the observations of its nodes, and its state
            {
                f"last_counts={self.last_counts}": 8 * nodes * self.last_counts,
                f"report_delay={self.report_delay}": 16 * nodes * self.report_delay,
                f"max_cycles={self.max_cycles}, queue={self.queue}": (
                    8 * nodes * self.max_cycles * (self.queue > 0)
                ),
            }
        )
        bounded, loads, capacities = beyond is None, self.trace.arrivals, self.trace.capacity
        self.load_scale = arguments.scale("load_scale", load_scale, loads, bounded)
        self.capacity_scale = arguments.scale("capacity_scale", capacity_scale, capacities, bounded)
        links = adjacency(self.agents, self.trace.nodes, neighbours)
        self.network = Network(links, self.route, self.second_offer, self.link_limit)
        self.scales = self.load_scale, self.capacity_scale

        self.rows = (0, len(self.trace)) if rows is None else section(rows, len(self.trace))
        self.start_row = start_row(start, self.rows)
        self._levels_in = functools.partial(
            levels_in, self.trace, amount, self.load_scale, max_level
        )
        requests = self._levels_in(self.rows)
        self.amount = requests.tolist()
        if isinstance(amount, str) and amount in ("unit", "keep", "share"):
            self.amount = amount
        self._means_given = None if isinstance(daily_mean, bool) else daily_mean
        self.daily_mean = table_of_means(daily_mean, self.trace, self.rows)
        planned = self.amount in ("keep", "share")
        summed = self.observation in SUMMARIES
        if self.amount == "keep" and summed:
            raise ValueError(
                f'amount="keep" does not work with observation="{self.observation}"; give '
                'amount="share", or residual with a rule'
            )
        shares = summed and self.arrivals == "unknown"
        self.caps = self.link_limit if planned or shares else None
        self.residual = None
        if residual is not None:
            if self.amount != "unit":
                raise ValueError(f"amount={amount!r:.80} has no effect with residual; omit it")
            largest = self.capacity_scale + self.queue
            self.residual = Residual(residual, reach, largest, self.max_level, summed)
        self._prepare_actions(self.amount if planned else requests, self.max_level)
        self._prepare_section()

    def _prepare_section(self) -> None:
        """Precompute the values that depend only on the row."""
        self._linked: Array = np.asarray(self.network.links.any(axis=1))
        section = self.trace.section(*self.rows)
        # Loads that are made from these rows are limited to the scales too.
        self.within_scales = all(
            numbers is not None and numbers.max() <= scale
            for numbers, scale in zip(
                (section.arrivals, section.capacity), self.scales, strict=True
            )
        )
        clipped = self.beyond is not None
        recorded = Recorded(section, self.scales, self.levels_of, self._linked, clipped)
        self.load = recorded if self.augment is None else Augmented(recorded, self.augment)
        if self.daily_mean is not None:
            self._means = means_by_row(self.daily_mean, section)
        self.unit = self.levels_of.unit  # largest difference between two levels
        self.levels = self.actions.count  # number of actions, A
        every_level = not self.levels_of.by_room and self._linked.all()
        self._guarded = not every_level or self.route == "choose"
        self._masks = self.actions.masks()

    @property
    def identity(self) -> str:
        """A digest of the load and of all arguments; equal for rules of the same game."""
        settings = (
            *(self.trace.digest, self.rows, self.max_cycles, self.start_row, self.load_scale),
            *(self.capacity_scale, self.max_level, self.queue, self.forward_cost, self.wait_cost),
            *(self.route, self.second_offer, self.link_limit, self.reward),
            self.network.links.tolist(),
            # Newer arguments count only if they are not the default: old runs keep their digest.
            *([f"report_delay {self.report_delay}"] * (self.report_delay != 1)),
            *([f"reward_fn {self.reward_fn}"] * (self.reward_fn is not None)),
            *(() if self.augment is None else map(float, astuple(self.augment))),
            *([] if self.amount == "unit" else [self.amount]),
            *([] if self.observation == "every" else [self.observation]),
            *([f"arrivals {self.arrivals}"] * (self.arrivals != "known")),
            *([f"last_counts {self.last_counts}"] * (self.last_counts != 0)),
            *([] if self.daily_mean is None else [self.daily_mean.tolist()]),
            *([] if self.residual is None else [f"residual {self.residual}"]),
            *([f"beyond {self.beyond}"] * (self.beyond is not None)),
        )
        return f"{self.name} {hashlib.sha256(repr(settings).encode()).hexdigest()}"

    # --- Optional methods, see OptionalRules ------------------------------------------------------

    def split(
        self,
        rows: Section | None,
        held_out: float | Section | None,
        validation: float | Section | None = None,
    ) -> Split:
        """Train on the first rows of the trace, validate on later rows, hold out the last rows.

        ``corral.envs.dfaas_v0.rows.divide`` describes the division. Validation and held-out rows
        are played as recorded. The scales come from the whole trace, so that spaces are the same
        for all rows. Quantile levels, and a capacity such as "1.25x", come from the training rows.
        Raises ValueError if actions make no difference in this trace.
        """
        if why := no_choice(self.trace, self.network.links):
            raise ValueError(
                f"{self.trace.name}: {why}; policies make no difference, so do not train"
            )
        window, first = self.max_cycles, self.start_row or 0
        rows = None if rows is None else self.rows
        parts = divide(len(self.trace), window, rows, held_out, validation, first)
        train: dict[str, Any] = {"trace": self._recorded, "rows": parts.train}
        train |= {"load_scale": self.load_scale, "capacity_scale": self.capacity_scale}
        if not isinstance(self.amount, str):
            train["amount"] = self._levels_in(parts.train).tolist()
        if self.daily_mean is not None:
            means = True if self._means_given is None else self._means_given
            table = table_of_means(means, self.trace, parts.train)
            assert table is not None
            train["daily_mean"] = table.tolist()
        train |= arguments.measured_on(self._recorded, parts.train, *self._capacity_given)
        random_start = {} if self.start_row is None else {"start": "random"}
        unaugmented = {} if self.augment is None else {"augment": None}
        changes = (
            {}
            if parts.validation is None
            else {"rows": parts.validation, **random_start, **unaugmented}
        )
        return Split(train, {"rows": parts.held_out, **unaugmented}, changes)

    def in_windows(self, most: int) -> tuple[DfaasRules, int]:
        """Return rules in which each environment begins one of the whole windows of the rows.

        Also returns the number of environments, at most ``most``.
        """
        count = max(1, (self.rows[1] - self.rows[0]) // self.max_cycles)
        chosen = np.linspace(0, count - 1, min(most, count)).round().astype(np.int64)
        start = functools.partial(self.start_at, chosen * self.max_cycles)
        return changed(self, start=start), len(chosen)

    def shares(self, info: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
        """Return requests served, lost and forwarded, and the cost; and all arrivals: each [E]."""
        cost = arguments.cost_of(self, info)
        served = info["served_local"] + info["served_remote"]
        amounts = {"served": served, "lost": info["lost"], "forwarded": info["forwarded"]}
        return {**amounts, "cost": cost}, info["arrivals"]

    def carried(self) -> dict[str, Any]:
        """Return the arguments that determine observations and actions, without the load."""
        names = ["arrivals", "max_level", "observation", "route"]
        if self.observation == "every":
            names += ["amount", "capacity_scale", "load_scale", "neighbours"]
        elif self.amount == "share":
            names += ["amount"]
        values = {name: getattr(self, name) for name in names}
        if self.last_counts != (self.arrivals == "unknown"):
            values["last_counts"] = self.last_counts
        if self.daily_mean is not None:
            values["daily_mean"] = self.daily_mean.tolist()
        if self.residual is not None:
            values |= {"residual": str(self.residual.rule), "offsets": self.residual.reach}
        if self.beyond is not None:
            values["beyond"] = self.beyond
        return values

    def any_number(self) -> str | None:
        return f"observation={self.observation!r}" if self.observation in SUMMARIES else None

    def amounts(self) -> tuple[str | None, Array | None]:
        """Return the unit and the amount of each level; None for actions that also name a neighbor.

        A node never forwards more requests than arrive.
        """
        return (None, None) if isinstance(self.actions, Choices) else self.actions.said()

    def first_action(self) -> int | None:
        """Return the action of the rule of a residual policy."""
        return None if self.residual is None else 0

    def in_requests(self) -> DfaasRules:
        """Return rules with exact numbers of requests as actions, for reference policies.

        See ``Requests``. The actions do not depend on the levels of a learner.
        """
        assert self.trace.capacity is not None  # with_capacity ensures it
        largest = self.trace.arrivals.max(), self.trace.capacity.max()
        loads, capacities = (max(pair) for pair in zip(self.scales, largest, strict=True))
        requests = Requests(loads)
        rules = changed(
            self,
            levels_of=requests,
            actions=requests,
            illegal="penalise",
            residual=None,
            scales=(float(loads), float(capacities)),
        )
        rules._prepare_features()
        rules._prepare_section()
        return rules

    def redrawing(self) -> DfaasRules | None:
        rules: DfaasRules | None = with_other_days(self)
        return rules

    def hides_chance(self) -> bool:
        return self.arrivals == "unknown"

    def places(self, state: DfaasState) -> list[str]:
        """Return the trace rows of the next step."""
        load = "" if self.augment is None else ", augmented"
        return [f"row {self.rows[0] + row:,}{load}" for row in self._row(state).tolist()]

    def for_rendering(self) -> DfaasRules:
        return self if self.keep_flow else changed(self, keep_flow=True)

    # --- Spaces ----------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> spaces.Dict:
        return masked_space(self.features.space(), self._masks.shape[1])

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(self.levels)

    def state_space(self) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (6 * len(self.agents),), np.float32)

    def best_returns(self, rngs: Sequence[np.random.Generator]) -> Array | None:
        """Return the clairvoyant optimum of the team return of episodes: [B].

        None if it has no closed form (``corral.envs.dfaas_v0.optimum``), with a ``reward_fn``, and
        for episodes without a time limit.
        """
        limits: dict[str, Any] = {"queue": self.queue, "link_limit": self.link_limit}
        limits["links"] = self.network.links
        closed = has_closed_form(**limits) and self.reward_fn is None
        if not closed or not self.max_cycles:
            return None
        state = self.start(rngs)
        loads = []
        for t in range(self.max_cycles):
            state.t[:] = t
            loads.append(self.load.at(state, self._row(state))[:2].copy())
        windows = np.stack(loads)  # [T, 2, B, N]
        costs = [
            optimum(*windows[:, :, k].swapaxes(0, 1), forward_cost=self.forward_cost, **limits).cost
            for k in range(len(rngs))
        ]
        return -np.array(costs) / self.load_scale

    # --- An episode ------------------------------------------------------------------------------

    def start(self, rngs: Sequence[np.random.Generator]) -> DfaasState:
        """Begin B episodes.

        Each generator draws the first row, then the numbers of a random route, then those of
        ``augment``.
        """
        if self.start_row is None:
            length = self.rows[1] - self.rows[0]
            first = np.array([rng.integers(length) for rng in rngs], dtype=np.int64)
        else:
            first = np.full(len(rngs), self.start_row, dtype=np.int64)
        return self.start_at(first, rngs)

    def start_at(self, first: Array, rngs: Sequence[np.random.Generator]) -> DfaasState:
        """Begin episodes at the rows ``first`` [B] of the section."""
        b, n, steps = len(first), len(self.agents), self.max_cycles or ENDLESS
        draws = self._draws(rngs, self.route, steps)
        kind = DfaasState if self.augment is None else AugmentedState
        return kind(
            start=np.asarray(first, dtype=np.int64).copy(),
            t=np.zeros(b, dtype=np.int64),
            queue=np.zeros((b, n), dtype=np.int64),
            spare=np.zeros((b, n), dtype=np.int64),
            lost=np.zeros((b, n), dtype=np.int64),
            draws=draws,
            flow=np.zeros((b, n, n) if self.keep_flow else (b, 0, 0), dtype=np.int64),
            **past.no_past(b, n, self.report_delay, self.queue, self.max_cycles or ENDLESS),
            **self.load.begin(np.asarray(first), rngs, steps),
        )

    def _draws(self, rngs: Sequence[np.random.Generator], route: Route, steps: int) -> Array:
        """Return the random numbers for the route of an episode: int32 [B, K, N, 2].

        For "two", the neighbors drawn in each step. For "two-choices", two numbers that determine
        all draws of the episode.
        """
        n = len(self.agents)
        if route == "two":
            high = np.maximum(self.network.degree, 1)[:, None]
            return np.stack([rng.integers(high, size=(steps, n, 2), dtype="i4") for rng in rngs])
        if route == "two-choices":
            return np.stack([rng.integers(2**31, size=(1, n, 2), dtype="i4") for rng in rngs])
        return np.zeros((len(rngs), 0, n, 2), dtype=np.int32)

    def observe(self, state: DfaasState) -> dict[str, Observation]:
        return agent_views(self.agents, *self.seen(state))

    def acting(self, state: DfaasState) -> Array:
        return np.ones(state.queue.shape, dtype=bool)

    def step(self, state: DfaasState, action: Array) -> Outcome[DfaasState]:
        if self.residual is not None:
            plans, illegal = self.residual_plans(state, action)
            return self.carry_out(state, plans, illegal)
        arrivals, capacity, highest = self.load.at(state, self._row(state))
        room = self._room(state, capacity) if self.levels_of.by_room else None
        if room is not None:
            highest = self._highest(room)
        level, illegal, named = self._chosen(state, action, highest)
        forwarded = self.levels_of.forwarded(level, arrivals, room)
        if self._guarded:  # illegal actions forward all arrivals; unguarded levels already do so
            forwarded = np.where(illegal, arrivals, forwarded)
        basis = self._basis(state, capacity)
        if self.caps is not None:
            forwarded = self._within(forwarded)
        sent = Sent(self.network, forwarded, basis, named, self.caps)
        return self._played(state, arrivals, capacity, sent, illegal.astype(np.int64))

    def carry_out(
        self, state: DfaasState, plans: Plans, illegal: Array | None = None
    ) -> Outcome[DfaasState]:
        """Play a step in which nodes follow ``plans``, as ``step`` plays actions.

        ``illegal`` bool [B, N] are illegal actions: their nodes forward all arrivals, within the
        caps. A plan by route "two" or "two-choices" needs random numbers from the start of the
        episode. Begin such episodes with rules of this route.
        """
        arrivals, capacity, _ = self.load.at(state, self._row(state))
        network = self.network.by(plans.route)
        basis = plans.weights
        if basis is None:
            basis = capacity if plans.route in BY_CAPACITY else self._reported(state)[0]
        named = self._drawn(state, plans.route) if plans.offers is None else plans.offers
        forwarded = plans.forwarded(arrivals, network)
        counted = np.zeros_like(arrivals)
        if illegal is not None and illegal.any():
            room = network.room(plans.caps)
            most = arrivals if room is None else np.minimum(arrivals, room)
            forwarded, counted = np.where(illegal, most, forwarded), illegal.astype(np.int64)
        sent = Sent(network, forwarded, basis, named, plans.caps)
        return self._played(state, arrivals, capacity, sent, counted)

    def _played(
        self, state: DfaasState, arrivals: Array, capacity: Array, sent: Sent, illegal: Array
    ) -> Outcome[DfaasState]:
        # 1. Nodes first serve their own work: the queue, and the arrivals that they do not forward.
        forwarded = sent.forwarded
        work = state.queue + arrivals - forwarded
        served_local = np.minimum(work, capacity)
        remaining = work - served_local
        queue = np.minimum(remaining, self.queue)
        spare = capacity - served_local

        # 2. and 3. Neighbors accept forwarded requests up to their spare capacity.
        first = state.t % len(self.agents)
        flow = state.flow if self.keep_flow else None
        refused, spare_after = sent.network.forward(
            first, forwarded, spare, sent.basis, sent.named, flow, sent.caps
        )
        lost = remaining - queue + refused

        waited = past.serve_waiting(state.aged, state.queue, served_local)
        past.keep_reports(state.reports, state.t, state.spare, state.lost)
        state.t += 1
        state.queue, state.spare, state.lost = queue, spare_after, lost
        counts = (arrivals, forwarded, served_local, spare - spare_after, lost, queue)
        info = dict(zip(INFO, (*counts, illegal, waited), strict=True))
        pay = arguments.built_in_reward if self.reward_fn is None else arguments.reward_of
        return Outcome(state, pay(self, info), np.zeros(lost.shape, dtype=bool), info)

    def info(self, state: DfaasState) -> dict[str, Array]:
        return {key: np.zeros_like(state.queue) for key in INFO}

    def global_state(self, state: DfaasState) -> Array:
        b, n = state.queue.shape
        nodes = np.empty((b, n, 5), dtype=np.float32)
        nodes[..., :2] = self.load.observed(state, self._row(state))[0]
        nodes[..., 2] = state.queue / max(self.queue, 1)
        nodes[..., 3:] = scaled_reports(state.spare, state.lost, self.scales)
        if self.beyond is not None:
            np.minimum(nodes, 1, out=nodes)
        turn = np.eye(n, dtype=np.float32)[state.t % n]
        return np.concatenate([nodes.reshape(b, 5 * n), turn], axis=1)  # [B, 6N]

    def render(self, state: DfaasState, info: dict[str, Array], mode: str) -> Any:
        return (ansi if mode == "ansi" else draw)(self.frame(state, info))

    def frame(self, state: DfaasState, info: dict[str, Array]) -> Frame:
        return past.last_frame(self, state, info, COUNTS)

    # --- Parts of a step -------------------------------------------------------------------------

    def _row(self, state: DfaasState, back: int = 0) -> Array:
        """Return the row of the section for the next step, or for ``back`` steps before it: [B].

        Windows wrap in the section.
        """
        return np.asarray((state.start + state.t - back) % (self.rows[1] - self.rows[0]))

    def _expected(self, state: DfaasState, row: Array) -> Array:
        return np.asarray(self._means.take(row, axis=0))
