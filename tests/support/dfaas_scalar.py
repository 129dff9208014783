"""The rules of dfaas_v0 once more, in plain integers, lists and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. Tests compare the two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.data.trace import Trace
from corral.errors import ActionError, IllegalActionError, ScaleError
from support.dfaas_scalar_load import augmented, ceil_of, daily_means, quantiles, units
from support.plan_scalar import Knows, PlainPlan, plan_of_rule
from support.request_routes import IN_PROPORTION, HashedPairs, Sender, in_proportion, split

INFO_KEYS = (
    "arrivals",
    "forwarded",
    "served_local",
    "served_remote",
    "lost",
    "waiting",
    "illegal_actions",
    "waited",
)

ROUTES = ("equal", "capacity", "spare", "shortest", "two", "choose")
"""Routes without a bound on what goes to one neighbour; NEW_ROUTES send request by request."""

NEW_ROUTES = ("weighted", "least", "fill", "two-choices")

ALIASES = {"round-robin": "equal", "all-to-shortest": "shortest", "all-to-two": "two"}


class ScalarDfaas:
    """One copy of dfaas_v0.

    ``start`` is a row counted from the first row of ``rows``. ``draws[t][i]`` is the pair of
    neighbours drawn for sender i at step t under ``route="two"``, each a position in the list of
    i's neighbours in cyclic order i+1, i+2, ... With ``route="two-choices"`` the pairs of sender i
    are hashed from the two numbers ``draws[0][i]``. ``rng`` draws the load of an episode with
    ``augment``, and has drawn what comes before it.

    After ``reset`` and every ``step`` these fields hold, with one entry per node: ``queues``,
    ``last_spare``, ``last_lost`` and ``info[key]``; ``flows[i][j]`` is what j served for i in the
    last step, and ``t`` counts the steps of the episode.
    """

    def __init__(
        self,
        trace: Trace,
        *,
        max_cycles: int = 288,
        rows: tuple[int, int] | None = None,
        start: int = 0,
        load_scale: int | None = None,
        capacity_scale: int | None = None,
        max_level: int = 100,
        amount: str | Sequence[int] = "unit",
        queue: int = 0,
        forward_cost: float = 0.0,
        wait_cost: float = 0.0,
        route: str = "equal",
        second_offer: bool = True,
        link_limit: int | None = None,
        neighbours: Mapping[str, Sequence[str]] | None = None,
        reward: str = "own",
        capacity: int | str | None = None,
        capacity_rows: tuple[int, int] | None = None,
        illegal: str = "penalise",
        report_delay: int = 1,
        augment: Mapping[str, float] | None = None,
        observation: str = "every",
        arrivals: str = "known",
        last_counts: int | None = None,
        daily_mean: bool | Sequence[Sequence[float]] = False,
        residual: str | None = None,
        offsets: int = 6,
        beyond: str | None = None,
        draws: Any = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        if isinstance(capacity, str) and capacity_rows is not None:
            low, high = capacity_rows
            columns = [sum(node[low:high]) / (high - low) for node in trace.arrivals.T.tolist()]
            levels = [round(float(capacity[:-1]) * mean) for mean in columns]  # halves to even
            trace = dataclasses.replace(trace, capacity=[levels] * len(trace))
        elif capacity is not None:
            trace = trace.with_capacity(capacity)
        if trace.capacity is None:
            raise ValueError("this trace has no capacity: pass capacity=")
        # Actions that are offsets to what a rule keeps; its route is that of the environment.
        self.rule, self.reach, self.beyond = None, offsets, beyond
        if residual is not None:
            self.rule, _, route = residual.replace("+", ",").partition("/")
            route = route or "equal"
        route = ALIASES.get(route, route)
        if route not in ROUTES + NEW_ROUTES:
            raise ValueError(f"route {route!r} is not one of {ROUTES + NEW_ROUTES}")
        if arrivals == "unknown" and report_delay == 0:
            raise ValueError("reports of this step tell of its arrivals: report_delay=0")
        if amount == "keep" and observation != "every":
            raise ValueError("a summary does not tell what can be kept")
        self.max_cycles = max_cycles
        self.start = start
        self.skipped = 0  # rows before ``start`` that an augmented load leaves out
        self.queue = queue
        self.forward_cost = forward_cost
        self.wait_cost = wait_cost
        self.route = route
        self.second_offer = second_offer
        self.link_limit = link_limit
        self.reward = reward
        self.illegal = illegal
        self.report_delay = report_delay
        self.draws = draws
        self.summary = observation != "every"
        self.neighborhood = observation == "neighborhood"
        self.unknown = arrivals == "unknown"
        self.last_counts = int(self.unknown) if last_counts is None else last_counts
        # Actions that stand for a plan within the links: to keep so many, or to send a share.
        self.keeps = amount == "keep"
        self.within_links = amount in ("keep", "share") or (self.summary and self.unknown)

        # The scales: the largest numbers of the whole trace, at least 1.
        load: list[list[int]] = trace.arrivals.tolist()
        served: list[list[int]] = trace.capacity.tolist()
        bounded = beyond is None
        self.load_scale = _scale("load_scale", load_scale, load, bounded)
        self.capacity_scale = _scale("capacity_scale", capacity_scale, served, bounded)

        # The section: episodes see these rows only.
        low, high = (0, len(load)) if rows is None else rows
        self.arrivals = load[low:high]
        self.capacity = served[low:high]
        # The mean load at each time of day; the first step of a day begins at midnight.
        self.day = trace.steps_per_day or 1
        self.slots = [time % 86_400 // trace.step for time in trace.times[low:high].tolist()]
        self.daily_mean: Any = daily_mean
        if daily_mean is True:
            self.daily_mean = daily_means(self.arrivals, self.slots, self.day)
        self._make_levels(amount, max_level)
        if augment is not None:
            episode = {"start": start, "steps": max_cycles + 1, "day": trace.steps_per_day or 1}
            self.arrivals, self.capacity = augmented(
                rng, self.arrivals, self.capacity, int(self.load_scale), **episode, **augment
            )
            self.start, self.skipped = 0, start

        # Everybody's others, and those of them that one may send to, in cyclic order i+1, i+2, ...
        self.n = n = len(trace.nodes)
        self.others = [[(i + d) % n for d in range(1, n)] for i in range(n)]
        self.neighbours = self.others
        if neighbours is not None:
            self.neighbours = [
                [j for j in self.others[i] if f"node_{j}" in neighbours.get(f"node_{i}", ())]
                for i in range(n)
            ]
        # An action is a level; with "choose" 0, or a level from 1 and one of so many neighbours.
        self.ways = max(1, *map(len, self.neighbours)) if route == "choose" else 1
        if self.summary and route == "choose":
            self.ways = 3
        self.actions = 1 + (self.levels - 1) * self.ways
        self.visible = [[j in self.neighbours[i] for j in self.others[i]] for i in range(n)]

    def _make_levels(self, amount: str | Sequence[int], max_level: int) -> None:
        # Levels of a summary and of "share" are shares of the arrivals, as many as actions but 0.
        self.shares = max_level if self.summary or amount == "share" else 0
        if self.rule is not None:
            # The rule itself, and so many units fewer or more, up to the largest offset.
            self.unit = self._unit(self.capacity_scale, max_level)
            self.max_level = max_level
            self.requests = []
            self.levels = 2 * self.reach + 1
            return
        if self.keeps:
            # Level k keeps k - 1 units.
            most = self.capacity_scale + self.queue
            self.unit = max(1, math.ceil(most / max_level))
            self.requests = []
            self.levels = math.ceil(most / self.unit) + 2
            return
        # Level k forwards requests[k]: k units, or what the argument says.
        if not isinstance(amount, str):
            self.requests = list(amount)
        elif amount == "quantile" and self.load_scale > max_level:
            rows_as_key = tuple(map(tuple, self.arrivals))
            self.requests = quantiles(rows_as_key, self.load_scale, max_level)
        else:
            self.requests = units(self.load_scale, max_level)
        self.unit = max(b - a for a, b in zip(self.requests, self.requests[1:], strict=False))
        self.levels = 1 + (self.shares or len(self.requests) - 1)

    # -- the episode ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empty queues, and nothing known of a last step."""
        self.t = 0
        self.queues = [0] * self.n
        self.lines: list[list[list[int]]] = [[] for _ in range(self.n)]  # [step, requests] of each
        self.last_spare = [0] * self.n
        self.last_lost = [0] * self.n
        self.flows = [[0] * self.n for _ in range(self.n)]
        self.info = {key: [0] * self.n for key in INFO_KEYS}
        self.past: list[tuple[list[int], list[int]]] = []  # spare and lost of every step
        self.came: list[list[int]] = []  # the arrivals of every step
        self._read_row()
        self._report()

    def step(self, actions: Sequence[int]) -> list[float]:
        """Play one action per node; return one reward per node."""
        illegal = self._check(actions)
        a = self.a
        self.caps = [self._caps(i) for i in range(self.n)]
        # An illegal action forwards all arrivals.
        forwarded = [
            self._within(i, a[i] if illegal[i] else self._requests(i, self.meaning(k)[0]))
            for i, k in enumerate(actions)
        ]
        self.named = [self.meaning(k)[1] for k in actions]
        served_local, spare, lost = self._serve_locally(forwarded)
        waited = [self._advance(i, a[i] - forwarded[i], served_local[i]) for i in range(self.n)]
        self._forward(forwarded, spare, lost)
        self.info = {
            "arrivals": a,
            "forwarded": forwarded,
            "served_local": served_local,
            "served_remote": [sum(column) for column in zip(*self.flows, strict=True)],
            "lost": lost,
            "waiting": list(self.queues),
            "illegal_actions": illegal,
            "waited": waited,
        }
        self.last_spare = spare
        self.last_lost = lost
        self.past.append((spare, lost))
        self.came.append(a)
        self.t += 1
        self._read_row()
        self._report()
        return self._rewards(forwarded, lost)

    def _requests(self, i: int, k: int) -> int:
        """What a legal level k of node i forwards."""
        a = self.a[i]
        if self.rule is not None:
            return self._beyond_kept(i, k)
        if self.keeps:
            # Level 0 keeps all, level k so many units, but no more than there is room for.
            return max(0, a - min((k - 1) * self.unit, self._room(i))) if k else 0
        # Level k forwards k of so many equal shares of the arrivals, or requests[k].
        return ceil_of(k * a, self.shares) if self.shares else min(self.requests[k], a)

    def _within(self, i: int, f: int) -> int:
        # Plans within the links send no more than these carry, and no more than their caps.
        caps = self.caps[i]
        return f if caps is None else min(f, sum(caps))

    def _caps(self, i: int) -> list[int] | None:
        # What node i sends at most to each of its neighbours; None: no limit.
        near = self.neighbours[i]
        if self.rule is not None:
            caps = self._rule(i).caps
            return None if caps is None else [caps[j] for j in near]
        if self.within_links and self.link_limit is not None:
            return [self.link_limit] * len(near)
        return None

    # -- offsets to a rule ------------------------------------------------------------------------

    def _rule(self, i: int) -> PlainPlan:
        """What the rule of the offsets does at node i in the next step."""
        assert self.rule is not None
        knows = Knows(
            t=self.t,
            node=i,
            capacity=self.c[i],
            waiting=self.queues[i],
            queue=self.queue,
            neighbours=self.neighbours[i],
            spare=[self.reported_spare[j] for j in self.neighbours[i]],
            link_limit=self.link_limit,
        )
        return plan_of_rule(self.rule, self.route, knows)

    def kept(self, i: int, action: int) -> int | None:
        """How many arrivals node i keeps before it forwards any; None: all."""
        return self._kept_by_actions[i][action]

    def _unit(self, capacity: float, max_level: int) -> int:
        return max(1, math.ceil((capacity + self.queue) / max_level))

    def _find_kept(self, i: int) -> list[int | None]:
        keep, room = self._rule(i).keep, self._room(i)
        # In a summary there are no scales: a unit is one of the node itself.
        unit = self._unit(self.c[i], self.max_level) if self.summary else self.unit
        start = room if keep is None else keep
        kept = [keep]
        for distance in range(1, self.reach + 1):
            for offset in (-distance, distance):
                kept.append(min(max(0, start + offset * unit), room))
        return kept

    def _beyond_kept(self, i: int, action: int) -> int:
        # What a legal offset forwards.
        kept, most = self.kept(i, action), self._rule(i).most
        goes = 0 if kept is None or not self.neighbours[i] else max(0, self.a[i] - kept)
        return goes if most is None else min(goes, most)

    def _legal_offset(self, i: int, action: int) -> bool:
        if action == 0:
            return True
        if not self.neighbours[i] or self._by_rule:
            return False
        return self.kept(i, action) not in self._kept_by_actions[i][:action]

    def above_scales(self) -> bool:
        """Whether a number that the team is given before the step is larger than its scale."""
        if self.summary:
            return False  # it has no scales
        loads, capacities = [*self.reported_lost], [*self.reported_spare, *self.c]
        for i in range(self.n):
            loads += self._counts(i)
        if not self.unknown:
            loads += self.a
        return max(loads) > self.load_scale or max(capacities) > self.capacity_scale

    def _room(self, i: int) -> int:
        # What node i can serve or hold of new arrivals.
        return self.c[i] + self.queue - self.queues[i]

    def _read_row(self) -> None:
        # The window wraps inside the section.
        row = (self.start + self.t) % len(self.arrivals)
        self.a = self.arrivals[row]
        self.c = self.capacity[row]
        self._highest = [self._find_highest(i) for i in range(self.n)]

    def _report(self) -> None:
        # What everybody tells the others before a step.
        self.reported_spare, self.reported_lost = [0] * self.n, [0] * self.n
        if self.report_delay == 0:
            self.reported_spare = [
                max(0, self.c[i] - self.queues[i] - self.a[i]) for i in range(self.n)
            ]
            self.reported_lost = self.last_lost
        elif self.t >= self.report_delay:
            self.reported_spare, self.reported_lost = self.past[self.t - self.report_delay]
        self._shown = self._scale(self.reported_spare, self.reported_lost)
        if self.rule is not None:
            self._kept_by_actions = [self._find_kept(i) for i in range(self.n)]
            self._by_rule = self.beyond == "rule" and self.above_scales()

    def _check(self, actions: Sequence[int]) -> list[int]:
        illegal = []
        for i, k in enumerate(actions):
            if not 0 <= k < self.actions:
                raise ActionError(f"node_{i}: action {k} is not in 0..{self.actions - 1}")
            illegal.append(int(not self.legal(i, k)))
            if illegal[i] and self.illegal == "raise":
                raise IllegalActionError(f"node_{i}: action {k}; legal: {self.mask(i)}")
        return illegal

    def meaning(self, action: int) -> tuple[int, int]:
        """The level that an action stands for, and the neighbour it names with "choose"."""
        if action == 0:
            return 0, 0
        return 1 + (action - 1) // self.ways, (action - 1) % self.ways

    # -- what happens in a step -------------------------------------------------------------------

    def _serve_locally(self, forwarded: list[int]) -> tuple[list[int], list[int], list[int]]:
        served_local, spare, lost = [], [], []
        for i in range(self.n):
            # Old work and new, less what is sent away, is served as far as capacity goes.
            work = self.queues[i] + self.a[i] - forwarded[i]
            served = min(work, self.c[i])
            left = work - served
            # What is left waits as far as the queue goes; the rest is lost.
            self.queues[i] = min(left, self.queue)
            served_local.append(served)
            spare.append(self.c[i] - served)
            lost.append(left - self.queues[i])
        return served_local, spare, lost

    def _advance(self, i: int, kept: int, served: int) -> int:
        # Requests stand in line in the order in which they came; how long those that leave it to
        # be served stood there. Where the line is too long, the last to come leave it, lost.
        line = self.lines[i]
        line.append([self.t, kept])
        waited = 0
        while served:
            step, waiting = line[0]
            taken = min(served, waiting)
            waited += taken * (self.t - step)
            served -= taken
            line[0][1] -= taken
            if not line[0][1]:
                del line[0]
        if line:
            line[-1][1] -= sum(waiting for _, waiting in line) - self.queues[i]
        return waited

    def _forward(self, forwarded: list[int], spare: list[int], lost: list[int]) -> None:
        """Place what is forwarded: takes from ``spare``, adds to ``lost`` and fills ``flows``."""
        self.flows = [[0] * self.n for _ in range(self.n)]
        for turn in range(self.n):
            # Senders go in the order t, t+1, ...; each finishes before the next one begins.
            i = (self.t + turn) % self.n
            if forwarded[i]:
                lost[i] += self._send(i, forwarded[i], spare)

    def _send(self, i: int, f: int, spare: list[int]) -> int:
        """Offer f requests of sender i to its neighbours; return what nobody took."""
        if not self.neighbours[i]:
            return f
        rest = f
        # First each neighbour is offered its share.
        for j, share in zip(self.neighbours[i], self._shares(i, f), strict=True):
            rest -= self._accept(i, j, share, spare)
        if self.second_offer:
            # What found no room is offered once more: to everybody, in cyclic order.
            for j in self.neighbours[i]:
                if rest == 0:
                    break
                rest -= self._accept(i, j, rest, spare)
        return rest

    def _accept(self, i: int, j: int, offered: int, spare: list[int]) -> int:
        # Node j takes what it has room for; the link carries link_limit in both offers together.
        room = spare[j]
        taken = offered if offered < room else room
        if self.link_limit is not None:
            taken = min(taken, self.link_limit - self.flows[i][j])
        if (caps := self.caps[i]) is not None:
            cap = caps[self.neighbours[i].index(j)]
            taken = min(taken, cap - self.flows[i][j])
        spare[j] -= taken
        self.flows[i][j] += taken
        return taken

    # -- routes: how sender i splits f over its neighbours, in their cyclic order -----------------

    def _shares(self, i: int, f: int) -> list[int]:
        near = self.neighbours[i]
        if self.caps[i] is not None or self.route in NEW_ROUTES:
            return self._within_caps(i, f)
        if self.route == "capacity":
            return _by_weight(f, [self.c[j] for j in near])
        if self.route == "spare":
            return _by_weight(f, [self.reported_spare[j] for j in near])
        if self.route == "shortest":
            return _all_to(self._largest_spare(i), f, len(near))
        if self.route == "two":
            return _all_to(self._better_of_two(i), f, len(near))
        if self.route == "choose":
            return _all_to(self._named(i), f, len(near))
        return _equally(f, len(near))

    def _within_caps(self, i: int, f: int) -> list[int]:
        """The same for plans within the links, and for routes that send request by request."""
        near = self.neighbours[i]
        spare, capacity = [self.reported_spare[j] for j in near], [self.c[j] for j in near]
        caps = [None] * len(near) if self.caps[i] is None else self.caps[i]
        if self.route in IN_PROPORTION:
            return in_proportion(f, capacity if self.route == "capacity" else spare, caps)
        target = {
            "shortest": self._largest_spare,
            "two": self._better_of_two,
            "choose": self._named,
        }
        draw = None
        if self.route == "two-choices":
            high, low = (int(each) for each in self.draws[0][i])
            draw = HashedPairs(high, low, self.t)
        return split(
            Sender(
                self.route,
                spare,
                capacity,
                caps,
                target=target[self.route](i) if self.route in target else None,
                draw=draw,
            ),
            f,
        )

    def _named(self, i: int) -> int:
        # A neighbour that a node does not have is counted on, round and round.
        near = self.neighbours[i]
        if not self.summary:
            return self.named[i] % len(near)
        best = sorted(range(len(near)), key=lambda place: -self.reported_spare[near[place]])
        return best[self.named[i] % min(3, len(near))]

    def _largest_spare(self, i: int) -> int:
        # The largest reported spare; among equals the first in cyclic order.
        known = [self.reported_spare[j] for j in self.neighbours[i]]
        return known.index(max(known))

    def _better_of_two(self, i: int) -> int:
        # Of two drawn neighbours the one with more reported spare; among equals the first drawn.
        first, second = self.draws[self.t][i]
        near = self.neighbours[i]
        better = self.reported_spare[near[second]] > self.reported_spare[near[first]]
        return int(second if better else first)

    # -- what the nodes are paid and shown --------------------------------------------------------

    def _rewards(self, forwarded: list[int], lost: list[int]) -> list[float]:
        own = [
            -(lost[i] + self.forward_cost * forwarded[i] + self.wait_cost * self.queues[i])
            / self.load_scale
            for i in range(self.n)
        ]
        # A team shares the mean.
        return [sum(own) / self.n] * self.n if self.reward == "team" else own

    def highest_legal(self, i: int) -> int:
        """The largest legal level of node i. Where its arrivals are known and levels forward
        requests, the first that forwards all of them."""
        return self._highest[i]

    def _find_highest(self, i: int) -> int:
        if not self.neighbours[i]:
            return 0
        if self.rule is not None:
            return self.levels - 1
        if self.keeps:
            room = self._room(i)
            return max(k for k in range(self.levels) if k <= 1 or (k - 2) * self.unit < room)
        if self.unknown or self.within_links:
            return self.levels - 1
        if self.summary:
            return self.shares if self.a[i] else 0
        enough = [k for k, requests in enumerate(self.requests) if requests >= self.a[i]]
        return enough[0] if enough else self.levels - 1

    def legal(self, i: int, action: int) -> bool:
        """Whether an action of node i is legal."""
        if self.rule is not None:
            return self._legal_offset(i, action)
        level, neighbour = self.meaning(action)
        named = self.route != "choose" or level == 0 or neighbour < len(self.neighbours[i])
        return level <= self.highest_legal(i) and named

    def mask(self, i: int) -> np.ndarray:
        """1 for every legal action of node i: int8 [A]."""
        return np.array([self.legal(i, action) for action in range(self.actions)], np.int8)

    def observation(self, i: int) -> np.ndarray:
        """What node i sees: float32 [3 + 2 * (N - 1)], of a summary [16] or [21]; and more."""
        counts = self._counts(i)
        appended = [*counts[self.unknown :], *self._usual(i)]
        arrivals = self.a[i]
        if self.unknown:
            arrivals = counts[0] if counts else 0
        if self.summary:
            values = [*self._summed(i, arrivals), *self._spread(i), *appended]
            values += self._keep_of_rule(i)
            shares = [min(4.0, x / max(self.c[i], 1)) for x in values]
            if self.neighborhood:  # how many neighbours: no share of the capacity
                n = len(self.neighbours[i])
                shares.insert(16, n / (n + 8))
            return np.array(shares, np.float32)
        values = [arrivals / self.load_scale, *self._own(i)[1:]]
        for j, seen in zip(self.others[i], self.visible[i], strict=True):
            # Of each other node its reported spare and loss; of non-neighbours nothing.
            values += self._shown[j] if seen else (0.0, 0.0)
        values += [min(1.0, x / self.load_scale) for x in appended]
        values += [min(1.0, x / (self.capacity_scale + self.queue)) for x in self._keep_of_rule(i)]
        return np.array(self._cut(values), np.float32)

    def _keep_of_rule(self, i: int) -> list[float]:
        """What the rule of the offsets keeps, if there is one; all is more than any number."""
        if self.rule is None:
            return []
        keep = self._rule(i).keep
        return [math.inf if keep is None else keep]

    def _cut(self, values: list[float]) -> list[float]:
        # Where numbers may exceed their scales, none that is observed exceeds 1.
        return values if self.beyond is None else [min(1.0, x) for x in values]

    def _counts(self, i: int) -> list[int]:
        """How many came to node i in the last steps, newest first; 0 before the first step."""
        steps = [self.t - 1 - ago for ago in range(self.last_counts)]
        return [self.came[step][i] if step >= 0 else 0 for step in steps]

    def _usual(self, i: int) -> list[float]:
        """How many come to node i at this time of day on average, if that is observed."""
        if self.daily_mean is False:
            return []
        slot = self.slots[(self.skipped + self.start + self.t) % len(self.slots)]
        return [float(self.daily_mean[slot][i])]

    def _summed(self, i: int, arrivals: int) -> list[float]:
        """What a summary tells node i, in requests."""
        near = self.neighbours[i]
        spare, lost = [self.reported_spare[j] for j in near], [self.reported_lost[j] for j in near]
        # Those with the most spare, the most first; sorting keeps equals in their cyclic order.
        top = sorted(near, key=lambda j: -self.reported_spare[j])[:3]
        padding = [0] * (3 - len(top))
        return [
            *(arrivals, self.queues[i], self.reported_spare[i], self.reported_lost[i]),
            *(_mean(spare), max(spare, default=0), min(spare, default=0)),
            *(self.reported_spare[j] for j in top),
            *padding,
            *(_mean(lost), max(lost, default=0), min(lost, default=0)),
            *(self.reported_lost[j] for j in top),
            *padding,
        ]

    def _spread(self, i: int) -> list[float]:
        """How the spare of the neighbours of node i is spread, in requests."""
        if not self.neighborhood:
            return []
        spare = [self.reported_spare[j] for j in self.neighbours[i]]
        values: list[float] = []
        for quarters in (1, 2, 3):
            # The first that so many quarters of them do not exceed.
            enough = (
                x for x in sorted(spare) if 4 * sum(y <= x for y in spare) >= quarters * len(spare)
            )
            values.append(next(enough, 0))
        # Nodes without spare send, as does the node itself.
        return [*values, sum(spare) / (1 + spare.count(0))]

    def global_state(self) -> np.ndarray:
        """Everything, node by node, then whose turn it is to send first: float32 [5 * N + N]."""
        values: list[float] = []
        last = self._scale(self.last_spare, self.last_lost)
        for i in range(self.n):
            values += self._own(i)
            values += last[i]
        values += [float(i == self.t % self.n) for i in range(self.n)]
        return np.array(self._cut(values), np.float32)

    def _own(self, i: int) -> list[float]:
        return [
            self.a[i] / self.load_scale,
            self.c[i] / self.capacity_scale,
            self.queues[i] / max(self.queue, 1),
        ]

    def _scale(self, spares: list[int], losses: list[int]) -> list[tuple[float, float]]:
        # Of every node, for all who look.
        return [
            (spare / self.capacity_scale, min(1.0, lost / self.load_scale))
            for spare, lost in zip(spares, losses, strict=True)
        ]


def _mean(values: list[int]) -> float:
    return sum(values) / max(1, len(values))


def _scale(name: str, given: int | None, values: list[list[int]], bounded: bool) -> int:
    largest = max(1, max(max(row) for row in values))
    if given is None:
        return largest
    if bounded and given < largest:
        raise ScaleError(f"{name}={given} is below the trace's largest value: pass {largest}")
    return given


def _equally(f: int, n: int) -> list[int]:
    # f // n each, the first f mod n one more.
    return [f // n + (position < f % n) for position in range(n)]


def _by_weight(f: int, weights: list[int]) -> list[int]:
    total = sum(weights)
    if total == 0:
        return _equally(f, len(weights))
    shares = [f * w // total for w in weights]
    # What rounding left over goes out one by one in cyclic order, whatever the weights.
    for position in range(f - sum(shares)):
        shares[position] += 1
    return shares


def _all_to(position: int, f: int, n: int) -> list[int]:
    shares = [0] * n
    shares[position] = f
    return shares
