"""What each policy costs beside the best rule in the same windows: a table, and sentences."""

from __future__ import annotations

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
    "per_day",
    "request_lines",
    "rule_in_words",
    "verdicts",
    "without_intervals",
]

COSTS = {"forward_cost": "forwarded", "wait_cost": "waiting"}
"""Arguments of dfaas_v0 that make requests cost something, and which requests."""


def has_costs(replay: Replay) -> bool:
    """Return whether anything costs something beside lost requests."""
    return any(replay.settings.get(name) for name in COSTS)


def without_intervals(replay: Replay) -> str:
    """Return why there are no intervals; "" where there are."""
    windows = replay.windows + bool(replay.remainder)
    if windows >= FEWEST_WINDOWS:
        return ""
    return (
        f"No intervals: {windows} window{'s' * (windows != 1)}; with fewer than {FEWEST_WINDOWS} "
        "they would not cover what they say."
    )


def about_best_rule(replay: Replay) -> list[str]:
    """Return which rule the others are paired with, how it was chosen, and what is in doubt."""
    rule = replay.best_rule
    if rule is None:
        return []
    counts = [f"{name} in {rule.labels.count(name)}" for name in rule.names]
    which = rule.names[0] if len(counts) == 1 else f"chosen for each window ({', '.join(counts)})"
    among = f" of {rule.among}" if rule.among > 1 else ""
    lines = [
        f"Best rule{among}: {which}, of least cost on {rule.chosen_on}. Above it: what a policy "
        "costs more than it in the same windows, in % of the arrivals."
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
            f"Interval of the difference too narrow, for it is alike in {unit}s next to each "
            f"other: {'; '.join(lagged)}."
        )
    return lines


def paired_headings(result: Replay) -> list[str]:
    """Return the columns of ``paired_lines``, after the policy's."""
    costs, unit = has_costs(result), a_day(result)
    headings = [f"cost\n{unit}"] * costs + [f"lost\n{unit}", "above the\nbest rule, %"]
    return [*headings, *([] if without_intervals(result) else ["95 %\ninterval"])]


def paired_lines(result: Replay) -> list[list[str]]:
    """Return what each policy costs and loses in requests a day, and more than the best rule."""
    lines = []
    for score in ordered(result.scores):
        if score.difference is None:
            continue
        requests = [score.cost_per_window] * has_costs(result) + [score.lost_per_window]
        cells = [f"{per_day(result) * (each or 0.0):,.0f}" for each in requests]
        low, high = score.difference_low, score.difference_high
        between = "" if low is None or high is None else f"{100 * low:+.2f} to {100 * high:+.2f}"
        between = "the same" if low == high == 0 else between
        own = [] if without_intervals(result) else [between]
        lines.append([score.policy, *cells, f"{100 * score.difference:+.2f}", *own])
    return lines


def request_lines(result: Replay) -> tuple[list[str], list[list[str]]]:
    """Return headings and lines of what each policy costs and loses in requests a day, and how many
    more than the best rule in the same windows."""
    costs, unit = has_costs(result), a_day(result)
    paired, between = result.best_rule is not None, not without_intervals(result)
    headings = ["policy", f"lost {unit}", *[f"cost {unit}"] * costs]
    headings += [f"above the best rule, {unit}"] * paired
    lines = []
    for score in ordered(result.scores):
        if score.lost_per_window is None:  # the optimum's row
            continue
        requests = [score.lost_per_window, *[score.cost_per_window or 0.0] * costs]
        line = [score.policy, *(f"{per_day(result) * each:,.0f}" for each in requests)]
        if paired and score.difference is None:
            line.append("")
        elif paired:
            assert score.difference is not None
            more = _signed(result, score.difference)
            low, high = score.difference_low, score.difference_high
            if between and low is not None and high is not None:
                ends = f"{_signed(result, low)} to {_signed(result, high)}"
                more += f"\n{'the same' if low == high == 0 else ends}"
            line.append(more)
        lines.append(line)
    return headings, lines


def rule_in_words(replay: Replay) -> list[str]:
    """Return a sentence on the rule that costs least in these rows, beside local play; none where
    no rule was replayed."""
    rules = [s for s in ordered(replay.scores) if s.policy not in replay.teams]
    rules = [s for s in rules if s.lost_per_window is not None]
    if not rules:
        return []
    best = rules[0]
    day = per_day(replay)
    said = f"Of the rules, {best.policy} {'costs' if has_costs(replay) else 'loses'} least here: "
    said += f"it loses {100 * best.lost:.3g} % of the requests, {day * _lost(best):,.0f} "
    local = next((s for s in rules if s.policy.partition("/")[0] == "local"), None)
    if local is None or local is best:
        return [f"{said}{a_day(replay)}."]
    fewer = day * (_lost(local) - _lost(best))
    beside = f"{abs(fewer):,.0f} {'fewer' if fewer >= 0 else 'more'} than {local.policy}"
    return [f"{said}{a_day(replay)}, {beside}."]


def _lost(score: Score) -> float:
    return score.lost_per_window or 0.0


def _signed(replay: Replay, share: float) -> str:
    sign = "-" if share < 0 else "+"
    return f"{sign}{_requests(replay, abs(share))}"


def per_day(replay: Replay) -> float:
    """Return how many windows a day has; 1 where the trace's clock has no days."""
    return (replay.trace.steps_per_day or replay.window) / replay.window


def a_day(replay: Replay) -> str:
    """Return what requests are counted by: "a day", or "a window" of a trace without days."""
    return "a day" if replay.trace.steps_per_day else "a window"


# --- Verdicts ------------------------------------------------------------------------------------


def verdicts(replay: Replay) -> dict[str, str]:
    """Return a sentence by policy for each team that was replayed, the cheapest first; none where
    there is no best rule.

    A team is better or worse than the rule where the interval of the paired difference excludes 0.
    Of a team that has seen some of the rows nothing is concluded.
    """
    teams = [score for score in replay.scores if score.policy in replay.teams]
    return {
        score.policy: _verdict(replay, score)
        for score in sorted(teams, key=lambda score: score.cost)
        if score.difference is not None
    }


def _verdict(replay: Replay, score: Score) -> str:
    rule, who, difference = replay.best_rule, score.policy, score.difference
    assert rule is not None
    assert difference is not None
    if who in replay.seen:
        return f"{who}: no verdict, for it has learned from some of these rows."
    best = "the best rule" + (f", {rule.names[0]}" if len(rule.names) == 1 else " of other windows")
    much = f"{100 * abs(difference):.2g} points of the arrivals {_sign(difference)}"
    requests = _requests(replay, abs(difference))
    low, high = score.difference_low, score.difference_high
    if low is None or high is None:
        few = f"{len(rule.labels)} window" + "s" * (len(rule.labels) != 1)
        return (
            f"{who} cost {much} than {best}: {requests} requests {a_day(replay)}; of {few} there "
            "is no interval, so this may be chance."
        )
    if low == high == 0:
        return f"{who} costs the same as {best}, in every window."
    if low <= 0 <= high:
        ends = (f"{_requests(replay, abs(end))} {_sign(end)}" for end in (low, high))
        said = f"{who} cannot be told apart from {best}: {requests} requests "
        said += f"{a_day(replay)} {_sign(difference)} (95 %: {' to '.join(ends)})"
    else:
        ends = (_requests(replay, end) for end in sorted((abs(low), abs(high))))
        said = f"{who} costs {much} than {best}: {requests} requests {a_day(replay)}"
        said += f" (95 %: {' to '.join(ends)})"
    if correlated(score.difference_lag_1) or correlated(rule.lag_1) or rule.dominated:
        said += ", interval too narrow"
    return f"{said}."


def _sign(difference: float) -> str:
    return "less" if difference < 0 else "more"


def _requests(replay: Replay, share: float) -> str:
    """Return a share of the arrivals as requests a day, or in a window."""
    low, high = replay.rows
    arrivals = float(replay.trace.arrivals[low:high].sum()) * replay.window / (high - low)
    return f"{share * arrivals * per_day(replay):,.0f}"
