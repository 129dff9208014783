"""The post-mortem of a day: its costliest steps, and why they cost so much.

A day is played again by a policy, by the best rule (of so many, on that very day, in hindsight), by
the best rule that has the freshest reports of the others' spare, and compared with the clairvoyant
optimum. The cost of a step is the sum of four differences:

    play          policy - best rule             another rule would have saved it
    late reports  best rule - best rule, fresh   to know the present spare would have
    clairvoyance  best rule, fresh - optimum     to know more: others' choices, the future
    unavoidable   optimum                        no policy saves it

The freshest reports are of the present step (``report_delay=0``). With unknown arrivals they are of
the last one, for the spare of a step tells its arrivals; with ``report_delay=1`` the second part is
left out there.

Each may be below 0, if a policy that knows less did better in that step. The difference of two
costs is exact for the day. For a step it is exact without a queue: its cost then depends on the
choices of this step alone. With a queue a step inherits what earlier steps left; its figures
are those of four different days, side by side, and of the optimum there may be several.
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
"""The parts of a cost, and what heads their columns."""

SCALES = (
    (1, "requests"),
    (1_000, "thousands of requests"),
    (1_000_000, "millions of requests"),
    (1_000_000_000, "billions of requests"),
)
LARGEST = 100_000
"""Tables hold smaller numbers, so that they fit the screen."""


@dataclass(frozen=True)
class Moment:
    """A step of the day: requests, summed over nodes, but for the ``node`` that cost most."""

    row: int  # of the trace
    time: str  # by the trace's clock, in UTC
    node: str  # the trace's name of it
    node_cost: float
    arrivals: int
    capacity: int
    cost: float  # play + late_reports + clairvoyance + unavoidable
    play: float
    late_reports: float
    clairvoyance: float | None  # None, and unavoidable too: the optimum was not computed
    unavoidable: float | None


@dataclass(frozen=True)
class PostMortem:
    """A day of a replay, step by step: costs in requests, float64 [T] each."""

    policy: str
    mode: str  # "greedy", "sampled"; "" of a rule
    day: int  # number of the window in the replay, from 0
    days: int  # windows of the replay
    is_day: bool  # whether windows are days
    rows: tuple[int, int]  # of the trace
    times: tuple[str, ...]  # [T]
    nodes: tuple[str, ...]  # [N]
    arrivals: Array = field(repr=False)  # int64 [T]
    capacity: Array = field(repr=False)  # int64 [T]
    costs: Array = field(repr=False)  # float64 [T, N] the policy's
    rule: str  # the best rule of that day
    rule_cost: Array = field(repr=False)
    informed: str  # the best rule with the freshest reports
    informed_cost: Array = field(repr=False)
    optimum_cost: Array | None = field(repr=False)
    optimum_method: str  # or why there is none
    compared: int  # rules that the best were taken from
    report_delay: int
    fresh: int  # the delay of the freshest reports; 1: arrivals are unknown
    queue: int
    replayed: float  # the policy's cost of that day in the replay
    illegal_actions: int
    most: int = 10

    @property
    def cost(self) -> Array:
        """The policy's cost of each step: float64 [T]."""
        return np.asarray(self.costs.sum(axis=1))

    @property
    def exact_by_step(self) -> bool:
        """Whether steps can be compared one by one: without a queue."""
        return self.queue == 0

    @property
    def parts(self) -> dict[str, Array]:
        """The parts that the cost of each step is the sum of, float64 [T]. Without an optimum the
        last two are missing, and the second if no reports could be fresher."""
        found = {"play": self.cost - self.rule_cost}
        if self.report_delay > self.fresh or not self.fresh:
            found["late_reports"] = self.rule_cost - self.informed_cost
        if self.optimum_cost is not None:
            found["clairvoyance"] = self.informed_cost - self.optimum_cost
            found["unavoidable"] = self.optimum_cost
        return found

    @property
    def worst(self) -> list[Moment]:
        """The costliest steps, the costliest first; of equal ones the earliest. Fewer than ``most``
        where the others cost nothing."""
        table = self.to_dataframe()
        table = table[table["cost"] > 0]
        table = table.sort_values("cost", ascending=False, kind="stable").head(self.most)
        return [Moment(**row) for row in table.to_dict("records")]  # type: ignore[arg-type]

    def to_dataframe(self) -> pd.DataFrame:
        """Return all steps of the day, a ``Moment`` each."""
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
        """Return it in words and figures, of at most 80 characters each."""
        kind = "day" if self.is_day else "window"
        total, arrived = float(self.cost.sum()), int(self.arrivals.sum())
        share = f" ({100 * total / arrived:.2f} %)" if arrived else ""
        which = f"{kind} {self.day} of {self.days}, from 0; rows {self.rows[0]}:{self.rows[1]}"
        found = [
            f"Post-mortem of {self.policy}",
            f"{self.times[0]} to {self.times[-1]} ({which})",
            f"It cost {number(total)} of {arrived:,} requests{share}:",
            *self._about_parts(),
            "",
        ]
        worst = self.worst
        if not worst:
            return wrapped([*found, "No step of it cost anything."])
        largest = max(worst[0].cost, *(moment.arrivals for moment in worst))
        scale, unit = next(each for each in SCALES if largest < LARGEST * each[0])
        found.append(f"The {len(worst)} costliest steps, in {unit}:")
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
            cells = [number(None if each is None else each / scale) for each in figures]
            rows.append([time, one_line(moment.node), *cells])
        return [*wrapped(found), *columns(head, rows, names=2), "", *wrapped(self.notes())]

    def _about_parts(self) -> list[str]:
        late = "reports that come late"
        if self.report_delay:
            late = f"reports {self.report_delay} step{'s' * (self.report_delay != 1)} late"
        others = "this step's arrivals, " * (self.fresh > 0) + "others' choices"
        others += " and the future" * (self.queue > 0)
        with_fresh = "present spare" if self.fresh == 0 else "reports of the last step"
        why = {
            "play": f"play: above the best rule of the {'day' if self.is_day else 'window'}, "
            f"{self.rule}",
            "late_reports": f"{late}: {self.informed} with {with_fresh} saves it",
            "clairvoyance": f"clairvoyance: it takes knowing {others}",
            "unavoidable": "unavoidable: the clairvoyant optimum costs as much",
        }
        sums = {key: number(float(values.sum())) for key, values in self.parts.items()}
        width = max(map(len, sums.values()))
        return [f"  {text:>{width}}  {why[key]}" for key, text in sums.items()]

    def notes(self) -> list[str]:
        """Return what the figures mean, and where they are not exact; sentences of any length."""
        said = [
            f"The rules are the best of {self.compared}, chosen on this very "
            f"{'day' if self.is_day else 'window'}, in hindsight. Below 0: it did better there "
            "than what it is compared with."
        ]
        if self.optimum_cost is None:
            said.append(f"No optimum: {self.optimum_method}.")
        if not self.exact_by_step:
            said.append(
                "Nodes have queues: what a step costs depends on the steps before it, which differ "
                "between the policies. The sums are exact, the parts of a step are not: they "
                "compare the same step of separate plays of the day."
            )
        if not np.isclose(self.replayed, self.cost.sum()):
            said.append(
                f"Its actions were drawn anew: in the replay it cost {number(self.replayed)}."
            )
        if self.illegal_actions:
            said.append(
                f"{self.illegal_actions:,} of its actions were illegal, and forwarded all arrivals."
            )
        return said

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON takes it: sums of the day, and the costliest steps."""
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
    """Play one window of a replay once more, and list its costliest steps, with the reasons.

    Args:
        result: what ``replay`` returned, for instance ``corral.evaluate(...).replay``.
        label: the policy, as the replay names it.
        entry: its entry in the replay, or its run; needed unless ``label`` is an amount/route pair.
        day: the number of the window, from 0, or the date that it begins on, "2026-01-05";
            default: the one that cost ``label`` most.
        rules: amount/route pairs, of which the best are taken, see the module; default: those
            without a number, and those that were replayed.
        steps: how many of the costliest steps are listed.
        progress: called with each rule as it is played.

    A team's own neighbours are those of the rules and the optimum as well. Raises ValueError for a
    policy or a day that was not replayed, and what ``again`` raises.
    """
    require_label(result, label)
    if isinstance(rules, str) or (rules is not None and not rules):
        raise ValueError(f"rules={rules!r}: give one amount/route pair or more, in a list")
    if steps < 1:
        raise ValueError(f"steps={steps}: give 1 or more")
    place = _window(result, label, day)
    first = result.rows[0] + place * result.window
    end = min(first + result.window, result.rows[1])
    # As in the replay, whose shorter last window is played by itself.
    episode = (result.seed, place) if place < result.windows else (result.seed + 1, 0)
    own = again(result, label, entry)
    costs, illegal = _played(own, episode, first - result.rows[0], end - first)

    if rules is None:
        rules = _rules(result, own.rules.queue)
    delay, fresh = own.rules.report_delay, freshest(result.settings)
    # Rules need no rows but those of the day: they act on requests alone.
    shared: dict[str, Any] = {"rows": (first, end), "neighbours": own.rules.neighbours}
    late_costs = costs_of_rules(result, rules, episode, progress, **shared)
    told = [pair for pair in rules if delay > fresh and reads_reports(pair)]
    costs_now = dict(late_costs)
    if told:
        costs_now |= costs_of_rules(result, told, episode, progress, **shared, report_delay=fresh)
    rule = min(rules, key=lambda pair: float(late_costs[pair].sum()))
    informed = min(rules, key=lambda pair: float(costs_now[pair].sum()))
    section = result.trace.section(first, end)
    assert section.capacity is not None  # a replay's trace has one
    best_cost, method = _optimum(own, section.arrivals, section.capacity)
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
        queue=own.rules.queue,
        replayed=float(result.sums[label].cost[place]),
        illegal_actions=illegal,
        most=steps,
    )


def _rules(result: Replay, queue: int) -> list[str]:
    """Return the rules without a number that can be carried out, and those that were replayed.

    Without a queue, to be patient is to forward the overflow.
    """
    known = result.settings.get("arrivals", "known") == "known"
    plain = [pair for pair in TODAY if queue or not pair.startswith("patient")]
    plain = [pair for pair in plain if known or PlainRule.of(pair).route not in BY_COUNT]
    own = [label for label in result.sums if label not in result.teams]
    return list(dict.fromkeys([*plain, *(each for each in own if not each.startswith("random"))]))


def _played(one: Again, episode: tuple[int, int], first: int, steps: int) -> tuple[Array, int]:
    """Return the cost of each step and node, float64 [T, N], and illegal actions of a window."""
    costs = np.zeros((steps, len(one.rules.agents)))
    illegal = np.zeros(1, dtype=np.int64)

    def keep(turn: Turn) -> None:
        costs[turn.t] = cost_of(one.rules, turn.step.info)[0]
        illegal[:] += turn.step.info["illegal_actions"].sum()

    one.play(np.array([first]), steps, keep, episode)
    return costs, int(illegal[0])


def _optimum(one: Again, arrivals: Array, capacity: Array) -> tuple[Array | None, str]:
    """Return the optimum's cost by step, [T], and how it was found, or why it was not."""
    rules = one.rules
    try:
        found = optimum(
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
    return found.cost_by_step, found.method


# --- Which day -----------------------------------------------------------------------------------


def _windows(result: Replay) -> int:
    return result.windows + bool(result.remainder)


def _window(result: Replay, label: str, day: int | str | None) -> int:
    """Return the number of a window. Raises ValueError where there is no such one."""
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
        names = "or the date that it begins on"
    if isinstance(day, bool) or not 0 <= number < count:
        last = f"0 to {count - 1}" if count > 1 else "0"
        if result.trace.clock == "integer":
            names = "for the trace's clock has no dates"
        raise ValueError(
            f"day={day!r} was not replayed: give the number of a window, {last}, {names}"
        )
    return number
