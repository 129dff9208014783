"""Plain rules played over the windows of a load, many side by side, for their sums alone.

The sums of a rule in a window equal those of ``corral.loads.replay``, to the request. All rules of
one route and all windows are environments of one batch: rule r in window w has place r * W + w.
Observations, rewards and times of waiting are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.data import Trace, load_trace
from corral.envs.core import Array, copy_rows, generator
from corral.envs.dfaas_v0 import DfaasRules, DfaasState
from corral.envs.dfaas_v0.arguments import cost_of
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.planned import RulePlanner, by_plans
from corral.envs.dfaas_v0.routes import Route
from corral.loads.replay import DEFAULT_WINDOW
from corral.loads.scores import WindowSums
from corral.progress import Progress

__all__ = ["Playground", "Sums", "play_rules"]

NUMBERS = 24_000
"""Most environments times nodes of a batch, unless a single rule has more: arrays stay in cache."""

TICK = 32
"""Steps between two reports of progress."""

NOT_OF_RULES = (
    *("amount", "max_level", "observation", "last_counts", "daily_mean", "illegal"),
    *("reward", "reward_fn", "keep_flow", "max_cycles", "route"),
)
"""Arguments of dfaas_v0 about observations, actions and rewards: rules do not depend on them."""


@dataclass(frozen=True)
class Sums:
    """Requests of R rules in W windows, summed over steps and nodes: int64 [R, W] each."""

    lost: Array
    forwarded: Array
    waiting: Array
    queued: Array  # as the window ends

    def rule(self, r: int) -> Sums:
        """Return the sums of one rule: [1, W]."""
        return Sums(*(values[r : r + 1] for values in vars(self).values()))

    def cost(self, rules: DfaasRules) -> Array:
        """Return the cost in requests: float64 [R, W]."""
        return np.asarray(cost_of(rules, vars(self)), dtype=np.float64)


class Playground:
    """The windows of a load, and the game that rules play in them.

    Windows are numbered as in a replay; rows that do not fill one are a shorter last one.
    """

    def __init__(
        self,
        trace: str | Path | Trace,
        *,
        rows: tuple[int, int] | None = None,
        window: int | None = None,
        seed: int = 0,
        arrivals: str = "known",
        **settings: Any,
    ) -> None:
        load = load_trace(trace)
        own = {key: value for key, value in settings.items() if key not in NOT_OF_RULES}
        game: dict[str, Any] = {**own, "arrivals": arrivals, "rows": rows}
        low, high = rows if rows is not None else (0, len(load))
        if window is not None and window < 1:
            raise ValueError(f"window={window}: give 1 step or more")
        self.window = min(window or load.steps_per_day or DEFAULT_WINDOW, high - low)
        self.rules = DfaasRules(load, **game, max_cycles=self.window)
        self.seed = seed
        length = self.rules.rows[1] - self.rules.rows[0]
        self.first = np.arange(0, length, self.window)  # [W] rows, counted from the section's first
        self.steps = np.minimum(self.window, length - self.first)  # [W]
        section = self.rules.trace.section(*self.rules.rows)
        self.arrivals = np.add.reduceat(section.arrivals.sum(axis=1), self.first)  # int64 [W]
        self.whole = length // self.window

    def play(
        self,
        rules: Sequence[PlainRule],
        windows: Sequence[int],
        tick: Callable[[float], None] = lambda part: None,
    ) -> Sums:
        """Play rules by one route in some windows, given by their numbers.

        ``tick`` is called now and then with the number of windows that are over, of all rules.
        """
        most = max(1, NUMBERS // (len(self.rules.agents) * len(windows)))
        found: list[Sums | None] = [None] * len(rules)
        done = 0

        def so_far(part: float) -> None:
            tick(done + part)

        for kind, places in _kinds(rules).items():
            for low in range(0, len(places), most):
                some = places[low : low + most]
                listed = [rules[r] for r in some]
                if kind == "random":
                    sums = self._play_random(listed, windows)
                else:
                    sums = self._play(RulePlanner(listed), windows, so_far)
                for k, r in enumerate(some):
                    found[r] = sums.rule(k)
                done += len(some) * len(windows)
        return _joined([each for each in found if each is not None], axis=0)

    def one_by_one(self, windows: Sequence[int]) -> int:
        """Estimate the requests in the loop of a route that sends them one by one: in each step the
        most that a node forwards in any window."""
        section = self.rules.trace.section(*self.rules.rows)
        assert section.capacity is not None
        over = np.maximum(section.arrivals - section.capacity, 0)  # [T, N]
        if self.rules.link_limit is not None:
            over = np.minimum(over, np.array(self.rules.network.degree) * self.rules.link_limit)
        most = over.max(axis=1)
        lengths = self.steps[[*windows]]
        steps = np.zeros(int(lengths.max()), dtype=np.int64)
        for first, length in zip(self.first[[*windows]], lengths, strict=True):
            steps[:length] = np.maximum(steps[:length], most[first : first + length])
        return int(steps.sum())

    def _play_random(self, rules: Sequence[PlainRule], windows: Sequence[int]) -> Sums:
        """Play rules one by one in all windows, and the shorter last window by itself, as a replay
        does: the draws depend on the number of environments."""
        whole, rest = [*range(self.whole)], [*range(self.whole, len(self.first))]
        found = []
        for rule in rules:
            parts = [
                self._play(RulePlanner([rule]).begun(self.seed + k, len(self.rules.agents)), part)
                for k, part in enumerate([whole, rest])
                if part
            ]
            found.append(_joined(parts, axis=1))
        every = _joined(found, axis=0)
        return Sums(*(values[:, [*windows]] for values in vars(every).values()))

    def _play(
        self,
        planner: RulePlanner,
        windows: Sequence[int],
        tick: Callable[[float], None] = lambda part: None,
    ) -> Sums:
        rules = by_plans(self.rules, planner)
        count, chosen = len(planner.rules), np.asarray(windows)
        state = self._start(rules, chosen, count)
        steps = np.tile(self.steps[chosen], count)  # [B]
        sums = np.zeros((3, *state.queue.shape), dtype=np.int64)  # [3, B, N]
        queued = np.zeros_like(state.queue)
        for t in range(int(steps.max())):
            outcome = rules.carry_out(state, planner.plans(rules, state))
            info, state = outcome.info, outcome.state
            live: Any = slice(None) if t < steps.min() else t < steps
            for total, key in zip(sums, ("lost", "forwarded", "waiting"), strict=True):
                total[live] += info[key][live]
            over = steps == t + 1
            queued[over] = state.queue[over]
            if t % TICK == 0:
                tick(t / int(steps.max()) * len(steps))
        shape = count, len(chosen)
        return Sums(*(each.sum(axis=1).reshape(shape) for each in (*sums, queued)))

    def _start(self, rules: DfaasRules, windows: Array, count: int) -> DfaasState:
        """Begin the windows once for each of ``count`` rules; all rules meet the same draws."""
        rngs = [
            generator(self.seed, "env", w) if w < self.whole else generator(self.seed + 1, "env", 0)
            for w in windows.tolist()
        ]
        state = rules.start_at(self.first[windows], rngs)
        state = dataclasses.replace(state, aged=state.aged[:, :0])
        return copy_rows(state, np.tile(np.arange(len(windows)), count))

    def sums_of(self, sums: Sums, r: int) -> WindowSums:
        """Return the sums of rule ``r``, of a play of all windows."""
        lost, queued = sums.lost[r], sums.queued[r]
        return WindowSums(
            arrivals=self.arrivals,
            served=self.arrivals - lost - queued,
            lost=lost,
            forwarded=sums.forwarded[r],
            waiting=sums.waiting[r],
            cost=sums.cost(self.rules)[r],
            illegal_actions=np.zeros_like(lost),
        )


def _kinds(rules: Sequence[PlainRule]) -> dict[str, list[int]]:
    """Return the places of rules by kind of caps, sorted by amount: such rules are planned
    together. Rules of amount "random" are a kind of their own."""
    kinds: dict[str, list[int]] = {}
    for r in sorted(range(len(rules)), key=lambda r: rules[r].amount):
        rule = rules[r]
        kind = f"{rule.within_links} {rule.margin is None}"
        kinds.setdefault("random" if rule.amount == "random" else kind, []).append(r)
    return kinds


def _joined(parts: Sequence[Sums], axis: int) -> Sums:
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Sums(*(np.concatenate(column, axis=axis) for column in columns))


def play_rules(
    trace: str | Path | Trace,
    rules: Sequence[str | PlainRule],
    *,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    arrivals: str = "known",
    progress: Progress = lambda what, done, total: None,
    **settings: Any,
) -> dict[str, WindowSums]:
    """Return the sums of each rule in each window, by its text. They equal ``sums`` of a replay of
    these rules, to the request.

    Args:
        rules: such as "backlog=0.75/least", or PlainRule; texts are kept as they are written.
        rows, window, seed, settings: as of ``corral.loads.replay``.
        arrivals: "known" or "unknown" to nodes before they decide.
        progress: called with "rules", the number played, and the number of all.
    """
    ground = Playground(trace, rows=rows, window=window, seed=seed, arrivals=arrivals, **settings)
    parsed = {
        str(rule): rule if isinstance(rule, PlainRule) else PlainRule.of(rule) for rule in rules
    }
    found: dict[str, WindowSums] = {}
    every = range(len(ground.first))
    for labels in by_route(parsed).values():
        sums = ground.play([parsed[label] for label in labels], every)
        found |= {label: ground.sums_of(sums, r) for r, label in enumerate(labels)}
        progress("rules", len(found), len(parsed))
    return {label: found[label] for label in parsed}


def by_route(rules: dict[str, PlainRule]) -> dict[Route, list[str]]:
    """Return the labels of rules by their route."""
    found: dict[Route, list[str]] = {}
    for label, rule in rules.items():
        found.setdefault(rule.route, []).append(label)
    return found
