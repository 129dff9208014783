"""The rules of dfaas_v0 once more, in plain integers, lists and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. Tests compare the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.data.trace import Trace
from corral.errors import ActionError, IllegalActionError, ScaleError

INFO_KEYS = (
    "arrivals",
    "forwarded",
    "served_local",
    "served_remote",
    "lost",
    "waiting",
    "illegal_actions",
)

ROUTES = ("equal", "capacity", "spare", "shortest", "two")


class ScalarDfaas:
    """One copy of dfaas_v0.

    ``start`` is a row counted from the first row of ``rows``. ``draws[t][i]`` is the pair of
    neighbours drawn for sender i at step t under ``route="two"``, each a position in the list of
    i's neighbours in cyclic order i+1, i+2, ...

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
        draws: Any = None,
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
        if route not in ROUTES:
            raise ValueError(f"route {route!r} is not one of {ROUTES}")
        self.max_cycles = max_cycles
        self.start = start
        self.queue = queue
        self.forward_cost = forward_cost
        self.wait_cost = wait_cost
        self.route = route
        self.second_offer = second_offer
        self.link_limit = link_limit
        self.reward = reward
        self.illegal = illegal
        self.draws = draws

        # The scales: the largest numbers of the whole trace, at least 1.
        load: list[list[int]] = trace.arrivals.tolist()
        served: list[list[int]] = trace.capacity.tolist()
        self.load_scale = _scale("load_scale", load_scale, load)
        self.capacity_scale = _scale("capacity_scale", capacity_scale, served)

        # The section: episodes see these rows only.
        low, high = (0, len(load)) if rows is None else rows
        self.arrivals = load[low:high]
        self.capacity = served[low:high]

        # Action k forwards k units; the unit keeps the number of levels near max_level.
        self.unit = max(1, _ceil(self.load_scale, max_level))
        self.actions = _ceil(self.load_scale, self.unit) + 1

        # Everybody's others, and those of them that one may send to, in cyclic order i+1, i+2, ...
        self.n = n = len(trace.nodes)
        self.others = [[(i + d) % n for d in range(1, n)] for i in range(n)]
        self.neighbours = self.others
        if neighbours is not None:
            self.neighbours = [
                [j for j in self.others[i] if f"node_{j}" in neighbours.get(f"node_{i}", ())]
                for i in range(n)
            ]
        self.visible = [[j in self.neighbours[i] for j in self.others[i]] for i in range(n)]

    # -- the episode ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Empty queues, and nothing known of a last step."""
        self.t = 0
        self.queues = [0] * self.n
        self.last_spare = [0] * self.n
        self.last_lost = [0] * self.n
        self.flows = [[0] * self.n for _ in range(self.n)]
        self.info = {key: [0] * self.n for key in INFO_KEYS}
        self._shown = self._scale_last()
        self._read_row()

    def step(self, actions: Sequence[int]) -> list[float]:
        """Play one action per node; return one reward per node."""
        illegal = self._check(actions)
        a = self.a
        forwarded = [
            # An illegal action forwards all arrivals; a legal one k units, but no more than came.
            a[i] if illegal[i] else min(k * self.unit, a[i])
            for i, k in enumerate(actions)
        ]
        served_local, spare, lost = self._serve_locally(forwarded)
        self._forward(forwarded, spare, lost)
        self.info = {
            "arrivals": a,
            "forwarded": forwarded,
            "served_local": served_local,
            "served_remote": [sum(column) for column in zip(*self.flows, strict=True)],
            "lost": lost,
            "waiting": list(self.queues),
            "illegal_actions": illegal,
        }
        self.last_spare = spare
        self.last_lost = lost
        self._shown = self._scale_last()
        self.t += 1
        self._read_row()
        return self._rewards(forwarded, lost)

    def _read_row(self) -> None:
        # The window wraps inside the section.
        row = (self.start + self.t) % len(self.arrivals)
        self.a = self.arrivals[row]
        self.c = self.capacity[row]

    def _check(self, actions: Sequence[int]) -> list[int]:
        illegal = []
        for i, k in enumerate(actions):
            if not 0 <= k < self.actions:
                raise ActionError(f"node_{i}: action {k} is not in 0..{self.actions - 1}")
            illegal.append(int(k > self.highest_legal(i)))
            if illegal[i] and self.illegal == "raise":
                raise IllegalActionError(f"node_{i}: action {k}; legal: 0..{self.highest_legal(i)}")
        return illegal

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
        spare[j] -= taken
        self.flows[i][j] += taken
        return taken

    # -- routes: how sender i splits f over its neighbours, in their cyclic order -----------------

    def _shares(self, i: int, f: int) -> list[int]:
        near = self.neighbours[i]
        if self.route == "capacity":
            return _by_weight(f, [self.c[j] for j in near])
        if self.route == "spare":
            return _by_weight(f, [self.last_spare[j] for j in near])
        if self.route == "shortest":
            return _all_to(self._largest_spare(i), f, len(near))
        if self.route == "two":
            return _all_to(self._better_of_two(i), f, len(near))
        return _equally(f, len(near))

    def _largest_spare(self, i: int) -> int:
        # The largest last spare; among equals the first in cyclic order.
        known = [self.last_spare[j] for j in self.neighbours[i]]
        return known.index(max(known))

    def _better_of_two(self, i: int) -> int:
        # Of two drawn neighbours the one with more last spare; among equals the first drawn.
        first, second = self.draws[self.t][i]
        near = self.neighbours[i]
        better = self.last_spare[near[second]] > self.last_spare[near[first]]
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
        """The largest legal action of node i: as many units as its arrivals fill."""
        return _ceil(self.a[i], self.unit) if self.neighbours[i] else 0

    def mask(self, i: int) -> np.ndarray:
        """1 for every legal action of node i: int8 [A]."""
        mask = np.zeros(self.actions, np.int8)
        mask[: self.highest_legal(i) + 1] = 1
        return mask

    def observation(self, i: int) -> np.ndarray:
        """What node i sees: float32 [3 + 2 * (N - 1)]."""
        values = self._own(i)
        for j, seen in zip(self.others[i], self.visible[i], strict=True):
            # Of each other node its last spare and last loss; of non-neighbours nothing.
            values += self._shown[j] if seen else (0.0, 0.0)
        return np.array(values, np.float32)

    def global_state(self) -> np.ndarray:
        """Everything, node by node, then whose turn it is to send first: float32 [5 * N + N]."""
        values: list[float] = []
        for i in range(self.n):
            values += self._own(i)
            values += self._shown[i]
        values += [float(i == self.t % self.n) for i in range(self.n)]
        return np.array(values, np.float32)

    def _own(self, i: int) -> list[float]:
        return [
            self.a[i] / self.load_scale,
            self.c[i] / self.capacity_scale,
            self.queues[i] / max(self.queue, 1),
        ]

    def _scale_last(self) -> list[tuple[float, float]]:
        # Once per step, for all who look: last spare and last loss of every node.
        return [
            (spare / self.capacity_scale, min(1.0, lost / self.load_scale))
            for spare, lost in zip(self.last_spare, self.last_lost, strict=True)
        ]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _scale(name: str, given: int | None, values: list[list[int]]) -> int:
    largest = max(1, max(max(row) for row in values))
    if given is None:
        return largest
    if given < largest:
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
