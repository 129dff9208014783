"""The cost of each policy compared with the best rule in the same windows: table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.loads.best_rule import correlated
from corral.loads.replay import Replay
from corral.loads.scores import Score, ordered
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = [
    "COSTS",
    "a_day",
    "about_best_rule",
    "has_costs",
    "paired_headings",
    "paired_lines",
    "parts_of_cost",
    "per_day",
    "rule_in_words",
    "verdicts",
    "without_intervals",
]

COSTS = {"forward_cost": "forwarded", "wait_cost": "waiting"}
"""Arguments of dfaas_v0 that give requests a price, and the priced requests."""


def has_costs(replay: Replay) -> bool:
    """Whether forwarding or waiting has a cost, besides lost requests."""
    return any(replay.settings.get(name) for name in COSTS)


def parts_of_cost(settings: Mapping[str, Any]) -> str:
    """Return "cost = lost + 0.2 x forwarded"; "" if only lost requests have a cost."""
    prices = [f"{settings[name]:g} x {what}" for name, what in COSTS.items() if settings.get(name)]
    return f"cost = {' + '.join(['lost', *prices])}" if prices else ""


def without_intervals(replay: Replay) -> str:
    """Return the reason for missing intervals; "" if there are intervals."""
    windows = replay.windows + bool(replay.remainder)
    if windows >= FEWEST_WINDOWS:
        return ""
    return (
        f"No intervals: {windows} window{'s' * (windows != 1)}; at least {FEWEST_WINDOWS} are "
        "needed for reliable ones."
    )


def about_best_rule(replay: Replay) -> list[str]:
    """Return sentences about the best rule, how it was chosen, and doubts about intervals."""
    rule = replay.best_rule
    if rule is None:
        return []
    counts = [f"{name} in {rule.labels.count(name)}" for name in rule.names]
    which = rule.names[0] if len(counts) == 1 else f"chosen for each window ({', '.join(counts)})"
    among = f" of {rule.among}" if rule.among > 1 else ""
    lines = [
        f"Best rule{among}: {which}, of least cost on {rule.chosen_on}. Above the best rule: cost "
        "of a policy minus that of the rule in the same windows, in % of the arrivals."
    ]
    unit = "day" if replay.days else "window"
    if rule.lag_1 is not None and rule.largest_part is not None:
        doubtful = correlated(rule.lag_1) or rule.dominated
        narrow = " Interval too narrow." * (doubtful and not without_intervals(replay))
        lines.append(
            f"Its cost: lag-1 correlation of {unit}s {rule.lag_1:+.2f}, largest {unit}'s share "
            f"{100 * rule.largest_part:.0f} %.{narrow}"
        )
    lagged = [s.policy for s in ordered(replay.scores) if correlated(s.difference_lag_1)]
    if lagged and not without_intervals(replay):
        lines.append(
            f"Interval of the difference too narrow, because neighboring {unit}s correlate: "
            f"{'; '.join(lagged)}."
        )
    return lines


def paired_headings(result: Replay) -> list[str]:
    """Return the column headings of ``paired_lines``, after the policy's."""
    costs, unit = has_costs(result), a_day(result)
    headings = [f"cost\n{unit}"] * costs + [f"lost\n{unit}", "above the\nbest rule,\n% of arrivals"]
    return [*headings, *([] if without_intervals(result) else ["95 %\ninterval"])]


def paired_lines(result: Replay) -> list[list[str]]:
    """Return each policy's cost and loss in requests a day, and its cost above the best rule."""
    lines = []
    for score in ordered(result.scores):
        if score.difference is None:
            continue
        requests = [score.cost_per_window] * has_costs(result) + [score.lost_per_window]
        cells = [f"{per_day(result) * (count or 0.0):,.0f}" for count in requests]
        low, high = score.difference_low, score.difference_high
        between = "" if low is None or high is None else f"{100 * low:+.2f} to {100 * high:+.2f}"
        between = "the same" if low == high == 0 else between
        interval_cells = [] if without_intervals(result) else [between]
        lines.append([score.policy, *cells, f"{100 * score.difference:+.2f}", *interval_cells])
    return lines


def rule_in_words(replay: Replay) -> list[str]:
    """Return a sentence that compares the cheapest rule with local play; nothing if no rule was
    replayed."""
    rules = [s for s in ordered(replay.scores) if s.policy not in replay.teams]
    rules = [s for s in rules if s.lost_per_window is not None]
    if not rules:
        return []
    best = rules[0]
    day = per_day(replay)
    text = f"Of the rules, {best.policy} {'costs' if has_costs(replay) else 'loses'} least here: "
    text += f"it loses {100 * best.lost:.3g} % of the requests, {day * _lost(best):,.0f} "
    local = next((s for s in rules if s.policy.partition("/")[0] == "local"), None)
    if local is None or local is best:
        return [f"{text}{a_day(replay)}."]
    fewer = day * (_lost(local) - _lost(best))
    compared = f"{abs(fewer):,.0f} {'fewer' if fewer >= 0 else 'more'} than {local.policy}"
    return [f"{text}{a_day(replay)}, {compared}."]


def _lost(score: Score) -> float:
    return score.lost_per_window or 0.0


def _signed(replay: Replay, share: float) -> str:
    sign = "-" if share < 0 else "+"
    return f"{sign}{_requests(replay, abs(share))}"


def per_day(replay: Replay) -> float:
    """Return the number of windows in a day; 1 if the trace's clock has no days."""
    return (replay.trace.steps_per_day or replay.window) / replay.window


def a_day(replay: Replay) -> str:
    """Return the unit of request counts: "a day", or "a window" for a trace without days."""
    return "a day" if replay.trace.steps_per_day else "a window"


# --- Verdicts ------------------------------------------------------------------------------------


def verdicts(replay: Replay) -> dict[str, str]:
    """Return {policy: sentence} for each replayed team, the cheapest first; empty without a best
    rule.

    A team is better or worse than the rule if the interval of the paired difference excludes 0. A
    team gets no verdict if its training or validation used some of the rows.
    """
    teams = [score for score in replay.scores if score.policy in replay.teams]
    return {
        score.policy: _verdict(replay, score)
        for score in sorted(teams, key=lambda score: score.cost)
        if score.difference is not None
    }


def _verdict(replay: Replay, score: Score) -> str:
    rule, policy, difference = replay.best_rule, score.policy, score.difference
    assert rule is not None
    assert difference is not None
    if policy in replay.seen:
        return f"{policy}: no verdict, because its training or validation used some of these rows."
    best = "the best rule" + (f", {rule.names[0]}" if len(rule.names) == 1 else " of other windows")
    amount = f"{100 * abs(difference):.2g} % of the arrivals {_sign(difference)}"
    requests = _requests(replay, abs(difference))
    low, high = score.difference_low, score.difference_high
    if low is None or high is None:
        windows = f"{len(rule.labels)} window" + "s" * (len(rule.labels) != 1)
        return (
            f"{policy} cost {amount} than {best}: {requests} requests {a_day(replay)}. With "
            f"{windows} an interval is impossible, so this may be chance."
        )
    if low == high == 0:
        return f"{policy} costs the same as {best}, in every window."
    if low <= 0 <= high:
        ends = (f"{_requests(replay, abs(end))} {_sign(end)}" for end in (low, high))
        text = f"No significant difference between {policy} and {best}: {requests} requests "
        text += f"{a_day(replay)} {_sign(difference)} (95 %: {' to '.join(ends)})"
    else:
        ends = (_requests(replay, end) for end in sorted((abs(low), abs(high))))
        text = f"{policy} costs {amount} than {best}: {requests} requests {a_day(replay)}"
        text += f" (95 %: {' to '.join(ends)})"
    if correlated(score.difference_lag_1) or correlated(rule.lag_1) or rule.dominated:
        text += ", interval too narrow"
    return f"{text}."


def _sign(difference: float) -> str:
    return "less" if difference < 0 else "more"


def _requests(replay: Replay, share: float) -> str:
    """Format a share of the arrivals as requests a day, or per window."""
    low, high = replay.rows
    arrivals = float(replay.trace.arrivals[low:high].sum()) * replay.window / (high - low)
    return f"{share * arrivals * per_day(replay):,.0f}"
