"""Play plain rules over the windows of a load, many at once, to get their sums only.

The sums of a rule in a window equal those of ``corral.loads.replay`` exactly. All rules of one
route and all windows are environment copies of one batch: rule r in window w has index r * W + w.
Observations, rewards and waiting times are not computed.
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
"""Maximum of environments times nodes per batch, unless a single rule has more; fits the cache."""

TICK = 32
"""Number of steps between two progress reports."""

NOT_OF_RULES = (
    *("amount", "max_level", "observation", "last_counts", "daily_mean", "illegal"),
    *("residual", "offsets", "beyond"),
    *("reward", "reward_fn", "keep_flow", "max_cycles", "route"),
)
"""Arguments of dfaas_v0 for observations, actions and rewards, which do not affect rules."""


@dataclass(frozen=True)
class Sums:
    """Requests of R rules in W windows, summed over steps and nodes; all int64 [R, W]."""

    lost: Array
    forwarded: Array
    waiting: Array
    queued: Array  # at the end of the window

    def rule(self, r: int) -> Sums:
        """Return the sums of one rule, [1, W]."""
        return Sums(*(values[r : r + 1] for values in vars(self).values()))

    def cost(self, rules: DfaasRules) -> Array:
        """Return the cost in requests: float64 [R, W]."""
        return np.asarray(cost_of(rules, vars(self)), dtype=np.float64)


class Playground:
    """The windows of a load, and the environment in which rules are played.

    Windows are numbered as in a replay. Remaining rows form a shorter last window.
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
        relevant = {key: value for key, value in settings.items() if key not in NOT_OF_RULES}
        env_kwargs: dict[str, Any] = {**relevant, "arrivals": arrivals, "rows": rows}
        low, high = rows if rows is not None else (0, len(load))
        if window is not None and window < 1:
            raise ValueError(f"window={window}: give 1 step or more")
        self.window = min(window or load.steps_per_day or DEFAULT_WINDOW, high - low)
        self.rules = DfaasRules(load, **env_kwargs, max_cycles=self.window)
        self.seed = seed
        length = self.rules.rows[1] - self.rules.rows[0]
        self.first = np.arange(0, length, self.window)  # [W] first rows, relative to the section
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
        """Play rules of one route in windows, given by their numbers.

        ``tick`` is called at intervals with the number of finished windows, summed over rules.
        """
        maximum = max(1, NUMBERS // (len(self.rules.agents) * len(windows)))
        results: list[Sums | None] = [None] * len(rules)
        done = 0

        def so_far(part: float) -> None:
            tick(done + part)

        for kind, places in _kinds(rules).items():
            for low in range(0, len(places), maximum):
                batch = places[low : low + maximum]
                batch_rules = [rules[r] for r in batch]
                if kind == "random":
                    sums = self._play_random(batch_rules, windows)
                else:
                    sums = self._play(RulePlanner(batch_rules), windows, so_far)
                for k, r in enumerate(batch):
                    results[r] = sums.rule(k)
                done += len(batch) * len(windows)
        return _joined([result for result in results if result is not None], axis=0)

    def one_by_one(self, windows: Sequence[int]) -> int:
        """Estimate the number of loop iterations of a route that sends requests one by one.

        It sums, over the steps, the most requests that a node forwards in any window.
        """
        section = self.rules.trace.section(*self.rules.rows)
        assert section.capacity is not None
        excess = np.maximum(section.arrivals - section.capacity, 0)  # [T, N]
        if self.rules.link_limit is not None:
            excess = np.minimum(excess, np.array(self.rules.network.degree) * self.rules.link_limit)
        largest = excess.max(axis=1)
        lengths = self.steps[[*windows]]
        steps = np.zeros(int(lengths.max()), dtype=np.int64)
        for first, length in zip(self.first[[*windows]], lengths, strict=True):
            steps[:length] = np.maximum(steps[:length], largest[first : first + length])
        return int(steps.sum())

    def _play_random(self, rules: Sequence[PlainRule], windows: Sequence[int]) -> Sums:
        """Play each rule alone: in all full windows together, then in the shorter last window, even
        if ``windows`` asks for fewer.

        A replay does the same; the random numbers depend on the number of environments.
        """
        whole, remainder = [*range(self.whole)], [*range(self.whole, len(self.first))]
        sums_of_rules = []
        for rule in rules:
            parts = [
                self._play(RulePlanner([rule]).begun(self.seed + k, len(self.rules.agents)), part)
                for k, part in enumerate([whole, remainder])
                if part
            ]
            sums_of_rules.append(_joined(parts, axis=1))
        all_sums = _joined(sums_of_rules, axis=0)
        return Sums(*(values[:, [*windows]] for values in vars(all_sums).values()))

    def _play(
        self,
        planner: RulePlanner,
        windows: Sequence[int],
        tick: Callable[[float], None] = lambda part: None,
    ) -> Sums:
        rules = by_plans(self.rules, planner)
        count, indices = len(planner.rules), np.asarray(windows)
        state = self._start(rules, indices, count)
        steps = np.tile(self.steps[indices], count)  # [B]
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
        shape = count, len(indices)
        return Sums(*(total.sum(axis=1).reshape(shape) for total in (*sums, queued)))

    def _start(self, rules: DfaasRules, windows: Array, count: int) -> DfaasState:
        """Start the windows once for each of ``count`` rules, with the same random numbers."""
        rngs = [
            generator(self.seed, "env", w) if w < self.whole else generator(self.seed + 1, "env", 0)
            for w in windows.tolist()
        ]
        state = rules.start_at(self.first[windows], rngs)
        state = dataclasses.replace(state, aged=state.aged[:, :0])
        return copy_rows(state, np.tile(np.arange(len(windows)), count))

    def sums_of(self, sums: Sums, r: int) -> WindowSums:
        """Return the sums of rule ``r`` from a play of all windows."""
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
    """Return the indices of rules by kind of caps, sorted by amount.

    Rules of one kind are planned together. Rules with amount "random" are a separate kind.
    """
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
    """Return the sums of each rule in each window, by the rule's text.

    They equal ``sums`` of a replay of these rules exactly.

    Args:
        rules: texts such as "backlog=0.75/least", or PlainRule; the result keeps the texts.
        rows, window, seed, settings: as in ``corral.loads.replay``.
        arrivals: whether nodes know the requests of a step before they decide: "known" or
            "unknown".
        progress: called with "rules", the number of rules played, and their total.
    """
    ground = Playground(trace, rows=rows, window=window, seed=seed, arrivals=arrivals, **settings)
    parsed = {
        str(rule): rule if isinstance(rule, PlainRule) else PlainRule.of(rule) for rule in rules
    }
    sums_of_rules: dict[str, WindowSums] = {}
    windows = range(len(ground.first))
    for labels in by_route(parsed).values():
        sums = ground.play([parsed[label] for label in labels], windows)
        sums_of_rules |= {label: ground.sums_of(sums, r) for r, label in enumerate(labels)}
        progress("rules", len(sums_of_rules), len(parsed))
    return {label: sums_of_rules[label] for label in parsed}


def by_route(rules: dict[str, PlainRule]) -> dict[Route, list[str]]:
    """Return route -> labels of its rules."""
    labels_of: dict[Route, list[str]] = {}
    for label, rule in rules.items():
        labels_of.setdefault(rule.route, []).append(label)
    return labels_of
