"""The post-mortem of a day: its costliest steps, and the reasons for their cost.

The day is played again by the policy, by the best plain rule of that day (chosen in hindsight), and
by the best rule with the freshest reports of spare capacity. The clairvoyant optimum is computed as
well. The cost of a step is the sum of four differences:

    play          policy - best rule             avoidable with another rule
    late reports  best rule - best rule, fresh   avoidable with fresher reports
    clairvoyance  best rule, fresh - optimum     avoidable with knowledge of the future and of the
                                                 other nodes' choices
    unavoidable   optimum                        no policy avoids it

The freshest reports are those of the present step (``report_delay=0``). With unknown arrivals they
are those of the last step, because the spare capacity of a step reveals its arrivals; with
``report_delay=1`` the second part is then omitted.

A part may be negative, if a policy with less knowledge did better in that step. The sums over the
day are exact. The parts of a step are exact without a queue, because its cost then depends only on
the choices of this step. With a queue a step starts with the requests that earlier steps left; its
figures then compare four separate plays of the day, and the optimum may not be unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from corral.envs.core import Array
from corral.envs.dfaas_v0.arguments import cost_of
from corral.envs.dfaas_v0.optimum import optimum
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import MissingExtraError, OptimumError
from corral.loads.advise.again import Again, again, require_label
from corral.loads.advise.hindsight import costs_of_rules, reads_reports
from corral.loads.advise.what_ifs import freshest
from corral.loads.advise.words import columns, number, wrapped
from corral.loads.replay import Entry, Replay
from corral.loads.textbook import TODAY
from corral.loads.textbook.grid import BY_COUNT
from corral.progress import Progress
from corral.text import one_line
from corral.trainers.evaluation.episodes import Turn
from corral.trainers.runs.run import Run

__all__ = ["Moment", "PostMortem", "post_mortem"]

PARTS = {
    "play": "play",
    "late_reports": "late\nreports",
    "clairvoyance": "clair-\nvoyance",
    "unavoidable": "unavoid-\nable",
}
"""The parts of a cost, with their column headings."""

SCALES = (
    (1, "requests"),
    (1_000, "thousands of requests"),
    (1_000_000, "millions of requests"),
    (1_000_000_000, "billions of requests"),
)
LARGEST = 100_000
"""Numbers in tables are smaller than this, so that they fit the screen."""


@dataclass(frozen=True)
class Moment:
    """A step of the day. Requests are summed over all nodes, except for ``node_cost``."""

    row: int  # of the trace
    time: str  # by the trace's clock, in UTC
    node: str  # the node with the highest cost, by its name in the trace
    node_cost: float
    arrivals: int
    capacity: int
    cost: float  # play + late_reports + clairvoyance + unavoidable
    play: float
    late_reports: float
    clairvoyance: float | None  # None, like unavoidable: the optimum was not computed
    unavoidable: float | None


@dataclass(frozen=True)
class PostMortem:
    """A day of a replay, step by step: costs in requests, float64 [T] each."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for a rule
    day: int  # number of the window in the replay, from 0
    days: int  # windows of the replay
    is_day: bool  # whether windows are days
    rows: tuple[int, int]  # of the trace
    times: tuple[str, ...]  # [T]
    nodes: tuple[str, ...]  # [N]
    arrivals: Array = field(repr=False)  # int64 [T]
    capacity: Array = field(repr=False)  # int64 [T]
    costs: Array = field(repr=False)  # float64 [T, N], of the policy
    rule: str  # the best rule of that day
    rule_cost: Array = field(repr=False)
    informed: str  # the best rule with the freshest reports
    informed_cost: Array = field(repr=False)
    optimum_cost: Array | None = field(repr=False)
    optimum_method: str  # or the reason for a missing optimum
    compared: int  # number of rules from which the best ones were chosen
    report_delay: int
    fresh: int  # the delay of the freshest reports; 1 if arrivals are unknown
    queue: int
    replayed: float  # the policy's cost of that day in the replay
    illegal_actions: int
    most: int = 10  # number of costliest steps to list

    @property
    def cost(self) -> Array:
        """The policy's cost of each step: float64 [T]."""
        return np.asarray(self.costs.sum(axis=1))

    @property
    def exact_by_step(self) -> bool:
        """Whether the parts of single steps are exact: nodes have no queue."""
        return self.queue == 0

    @property
    def parts(self) -> dict[str, Array]:
        """The parts of each step's cost, float64 [T]. The last two are missing without an optimum,
        and "late_reports" if no reports could be fresher."""
        parts = {"play": self.cost - self.rule_cost}
        if self.report_delay > self.fresh or not self.fresh:
            parts["late_reports"] = self.rule_cost - self.informed_cost
        if self.optimum_cost is not None:
            parts["clairvoyance"] = self.informed_cost - self.optimum_cost
            parts["unavoidable"] = self.optimum_cost
        return parts

    @property
    def avoidable(self) -> bool:
        """Whether any part of a step's cost, other than the unavoidable one, is not 0.

        Always True without the optimum.
        """
        parts = [values for key, values in self.parts.items() if key != "unavoidable"]
        return self.optimum_cost is None or any(bool(np.abs(part).max() > 1e-9) for part in parts)

    @property
    def worst(self) -> list[Moment]:
        """The costliest steps, costliest first, of equal ones the earliest first. Fewer than
        ``most`` if the other steps cost nothing."""
        table = self.to_dataframe()
        table = table[table["cost"] > 0]
        table = table.sort_values("cost", ascending=False, kind="stable").head(self.most)
        return [Moment(**row) for row in table.to_dict("records")]  # type: ignore[arg-type]

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row for each step of the day, with the fields of ``Moment``."""
        dearest = self.costs.argmax(axis=1)
        return pd.DataFrame(
            {
                "row": np.arange(*self.rows),
                "time": self.times,
                "node": [self.nodes[i] for i in dearest],
                "node_cost": self.costs.max(axis=1),
                "arrivals": self.arrivals,
                "capacity": self.capacity,
                "cost": self.cost,
                **dict.fromkeys(PARTS),
                **self.parts,
            }
        )

    def lines(self) -> list[str]:
        """Return the post-mortem as text, in lines of at most 80 characters."""
        kind = "day" if self.is_day else "window"
        total, arrived = float(self.cost.sum()), int(self.arrivals.sum())
        share = f" ({100 * total / arrived:.2f} %)" if arrived else ""
        which = f"{kind} {self.day} of {self.days}, from 0; rows {self.rows[0]}:{self.rows[1]}"
        lines = [
            f"Post-mortem of {self.policy}",
            f"{self.times[0]} to {self.times[-1]} ({which})",
            f"It cost {number(total)} of {arrived:,} requests{share}:",
            *self._about_parts(),
            "",
        ]
        worst = self.worst
        if not worst:
            return wrapped([*lines, "No step cost anything."])
        largest = max(worst[0].cost, *(moment.arrivals for moment in worst))
        scale, unit = next(candidate for candidate in SCALES if largest < LARGEST * candidate[0])
        lines.append(f"The {len(worst)} costliest steps, in {unit}:")
        head = ["time", "worst\nnode", "arrivals\nof all", "cost\nof all"]
        head += [PARTS[key] for key in self.parts]
        dates = {text.partition(" ")[0] for text in self.times}
        rows = []
        for moment in worst:
            date, _, clock = moment.time.partition(" ")
            time = clock if len(dates) == 1 else f"{date[5:]} {clock}"  # without the year
            time = time if clock else moment.time  # a clock without dates
            figures = [moment.arrivals, moment.cost]
            figures += [getattr(moment, key) for key in self.parts]
            cells = [number(None if figure is None else figure / scale) for figure in figures]
            rows.append([time, one_line(moment.node), *cells])
        return [*wrapped(lines), *columns(head, rows, names=2), "", *wrapped(self.notes())]

    def _about_parts(self) -> list[str]:
        late = "late reports"
        if self.report_delay:
            late = f"reports {self.report_delay} step{'s' * (self.report_delay != 1)} late"
        unknown_facts = "this step's arrivals, " * (self.fresh > 0) + "other nodes' choices"
        unknown_facts += " and the future" * (self.queue > 0)
        with_fresh = "present spare" if self.fresh == 0 else "reports of the last step"
        reasons = {
            "play": f"play: cost above the best rule of the {'day' if self.is_day else 'window'}, "
            f"{self.rule}",
            "late_reports": f"{late}: saved by {self.informed} with {with_fresh}",
            "clairvoyance": f"clairvoyance: saved by knowing {unknown_facts}",
            "unavoidable": "unavoidable: cost of the clairvoyant optimum",
        }
        sums = {key: number(float(values.sum())) for key, values in self.parts.items()}
        width = max(map(len, sums.values()))
        return [f"  {text:>{width}}  {reasons[key]}" for key, text in sums.items()]

    def notes(self) -> list[str]:
        """Return sentences about the meaning of the figures and their accuracy."""
        notes = [
            f"The best rules were chosen out of {self.compared} on this very "
            f"{'day' if self.is_day else 'window'}, in hindsight. A negative figure: the policy "
            "did better in that step than the one it is compared with."
        ]
        if self.optimum_cost is None:
            notes.append(f"No optimum: {self.optimum_method}.")
        if not self.exact_by_step:
            notes.append(
                "Nodes have queues: the cost of a step depends on earlier steps, which differ "
                "between the policies. The sums are exact. The parts of a single step are not: "
                "they compare the same step of separate plays of the day."
            )
        if not np.isclose(self.replayed, self.cost.sum()):
            notes.append(
                f"Its actions were sampled again: in the replay it cost {number(self.replayed)}."
            )
        if self.illegal_actions:
            notes.append(
                f"{self.illegal_actions:,} of its actions were illegal and forwarded all arrivals."
            )
        return notes

    def to_json(self) -> dict[str, Any]:
        """Return the sums of the day and the costliest steps as JSON values."""
        return {
            "policy": self.policy,
            "mode": self.mode,
            "window": self.day,
            "rows": list(self.rows),
            "first": self.times[0],
            "last": self.times[-1],
            "arrivals": int(self.arrivals.sum()),
            "cost": float(self.cost.sum()),
            "cost_in_replay": self.replayed,
            "parts": {key: float(values.sum()) for key, values in self.parts.items()},
            "best_rule": self.rule,
            "best_rule_with_present_spare": self.informed,
            "freshest_reports": self.fresh,
            "rules_compared": self.compared,
            "optimum": self.optimum_method,
            "exact_by_step": self.exact_by_step,
            "illegal_actions": self.illegal_actions,
            "steps": [asdict(moment) for moment in self.worst],
            "notes": self.notes(),
        }


def post_mortem(
    result: Replay,
    label: str,
    entry: Entry | Run | None = None,
    *,
    day: int | str | None = None,
    rules: Sequence[str] | None = None,
    steps: int = 10,
    progress: Progress = lambda what, done, total: None,
) -> PostMortem:
    """Play one window of a replay again, and list its costliest steps with the reasons.

    Args:
        result: the return value of ``replay``, or ``corral.evaluate(...).replay``.
        label: the policy, as the replay names it.
        entry: its entry in the replay, or its run; required unless ``label`` is an amount/route
            pair.
        day: the number of the window, from 0, or its first date, "2026-01-05"; default: the window
            that cost ``label`` most.
        rules: amount/route pairs from which the best rules are chosen; default: the rules without
            a number, and the replayed rules.
        steps: the number of costliest steps to list.
        progress: called for each rule when it is played.

    Rules and optimum use the neighbors of the policy's team, if they differ from the replay's.
    Raises ValueError for a policy or a day that was not replayed, and the errors of ``again``.
    """
    require_label(result, label)
    if isinstance(rules, str) or (rules is not None and not rules):
        raise ValueError(f"rules={rules!r}: pass a list of at least one amount/route pair")
    if steps < 1:
        raise ValueError(f"steps={steps}: pass 1 or more")
    place = _window(result, label, day)
    first = result.rows[0] + place * result.window
    end = min(first + result.window, result.rows[1])
    # As in the replay, which plays a shorter last window separately.
    episode = (result.seed, place) if place < result.windows else (result.seed + 1, 0)
    policy = again(result, label, entry)
    costs, illegal = _played(policy, episode, first - result.rows[0], end - first)

    if rules is None:
        rules = _rules(result, policy.rules.queue)
    delay, fresh = policy.rules.report_delay, freshest(result.settings)
    # Rules need only the rows of the day: they act on request counts, which need no scale.
    shared: dict[str, Any] = {"rows": (first, end), "neighbours": policy.rules.neighbours}
    late_costs = costs_of_rules(result, rules, episode, progress, **shared)
    report_rules = [pair for pair in rules if delay > fresh and reads_reports(pair)]
    costs_now = dict(late_costs)
    if report_rules:
        costs_now |= costs_of_rules(
            result, report_rules, episode, progress, **shared, report_delay=fresh
        )
    rule = min(rules, key=lambda pair: float(late_costs[pair].sum()))
    informed = min(rules, key=lambda pair: float(costs_now[pair].sum()))
    section = result.trace.section(first, end)
    assert section.capacity is not None  # a replay's trace has one
    best_cost, method = _optimum(policy, section.arrivals, section.capacity)
    note = result.teams.get(label)
    return PostMortem(
        policy=label,
        mode=note.mode if note else "",
        day=place,
        days=_windows(result),
        is_day=result.days,
        rows=(first, end),
        times=tuple(result.trace.clock_text(row) for row in range(first, end)),
        nodes=result.trace.nodes,
        arrivals=section.arrivals.sum(axis=1),
        capacity=section.capacity.sum(axis=1),
        costs=costs,
        rule=rule,
        rule_cost=late_costs[rule],
        informed=informed,
        informed_cost=costs_now[informed],
        optimum_cost=best_cost,
        optimum_method=method,
        compared=len(rules),
        report_delay=delay,
        fresh=fresh,
        queue=policy.rules.queue,
        replayed=float(result.sums[label].cost[place]),
        illegal_actions=illegal,
        most=steps,
    )


def _rules(result: Replay, queue: int) -> list[str]:
    """Return the rules without a number that can be played, and the replayed rules.

    "patient" rules need a queue: without one they are equal to "overflow".
    """
    known = result.settings.get("arrivals", "known") == "known"
    plain = [pair for pair in TODAY if queue or not pair.startswith("patient")]
    plain = [pair for pair in plain if known or PlainRule.of(pair).route not in BY_COUNT]
    replayed = [label for label in result.sums if label not in result.teams]
    return list(
        dict.fromkeys([*plain, *(rule for rule in replayed if not rule.startswith("random"))])
    )


def _played(entry: Again, episode: tuple[int, int], first: int, steps: int) -> tuple[Array, int]:
    """Return the cost of each step and node, float64 [T, N], and the number of illegal actions."""
    costs = np.zeros((steps, len(entry.rules.agents)))
    illegal = np.zeros(1, dtype=np.int64)

    def keep(turn: Turn) -> None:
        costs[turn.t] = cost_of(entry.rules, turn.step.info)[0]
        illegal[:] += turn.step.info["illegal_actions"].sum()

    entry.play(np.array([first]), steps, keep, episode)
    return costs, int(illegal[0])


def _optimum(entry: Again, arrivals: Array, capacity: Array) -> tuple[Array | None, str]:
    """Return (the optimum's cost of each step, [T]; its method), or (None, reason of a failure)."""
    rules = entry.rules
    try:
        best = optimum(
            arrivals,
            capacity,
            queue=rules.queue,
            link_limit=rules.link_limit,
            links=rules.network.links,
            forward_cost=rules.forward_cost,
            wait_cost=rules.wait_cost,
        )
    except (MissingExtraError, OptimumError) as error:
        return None, str(error)
    return best.cost_by_step, best.method


# --- Which day -----------------------------------------------------------------------------------


def _windows(result: Replay) -> int:
    return result.windows + bool(result.remainder)


def _window(result: Replay, label: str, day: int | str | None) -> int:
    """Return the number of a window. Raises ValueError for a window that was not replayed."""
    if day is None:
        return int(result.sums[label].cost.argmax())
    count = _windows(result)
    try:
        number = int(day)
    except ValueError:
        number = -1
        begins = [result.trace.clock_text(row) for row in range(*result.rows, result.window)]
        dates = [text.partition(" ")[0] for text in begins]
        if day in dates:
            return dates.index(str(day))
        names = f"or a date from {dates[0]} to {dates[-1]}"
    else:
        names = "or its first date"
    if isinstance(day, bool) or not 0 <= number < count:
        last = f"0 to {count - 1}" if count > 1 else "0"
        if result.trace.clock == "integer":
            names = "because the trace's clock has no dates"
        raise ValueError(
            f"day={day!r} was not replayed: pass the number of a window, {last}, {names}"
        )
    return number
