"""The sentences of a verdict. Each states a computed result, and no more.

The first says which policy to run. The second has its saving compared with the policy of today, and
the saving of more capacity. The third has the needs of the policy. A trend and the answer about a
learned team follow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.loads.advise.enough import FEWEST_UPDATES, Training
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import LOCAL, PLENTY, Decision, Saving, Worth, between
from corral.loads.advise.words import percent, requests
from corral.loads.paired import COSTS
from corral.loads.textbook import sentence_of
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = [
    "TEAM_RUNS",
    "about_costs",
    "asks_of_rule",
    "asks_of_team",
    "capacity_sentence",
    "knowledge",
    "refused",
    "run_sentence",
    "saves_sentence",
    "team_sentences",
    "trend_sentences",
]

TEAM_RUNS = (
    "Run the learned team: in every step it tells each node how many requests to keep and which "
    "nodes get the others."
)


def knowledge(settings: Mapping[str, Any]) -> str:
    """Return "known" or "unknown", of the arrivals of a step."""
    return str(settings.get("arrivals", "known"))


# --- What to run ---------------------------------------------------------------------------------


def run_sentence(rule: str, settings: Mapping[str, Any]) -> str:
    """Return the sentence that says to run a plain rule, and how that works."""
    sentence = sentence_of(PlainRule.of(rule), settings)
    return f"Run {rule}: {sentence[0].lower()}{sentence[1:]}"


def saves_sentence(
    lost: float, today: str, saved: Saving | None, *, costs: bool, days: str = ""
) -> str:
    """Return the saving of the policy that is to run.

    Args:
        lost: its own, a share of the arrivals.
        today: the rule that runs today.
        saved: its saving compared with that rule; None: it is that rule.
        costs: whether anything costs something besides lost requests.
        days: which days these are, if not all: ", on the 10 days held out".
    """
    if saved is None:
        return f"That runs today already; it loses {percent(lost)} of requests{days}."
    if saved.same:
        return f"It costs the same as {_today(today)}; it loses {percent(lost)}{days}."
    own, other = percent(lost), percent(lost + saved.lost)
    level = own if own == other else f"{own} instead of {other}"
    also = f", and loses {level} of requests" if costs else f", {level}"
    said = f"It {_change(saved, costs)} than {_today(today)}{_interval(saved)}{also}{days}."
    return f"{said} That may be chance." if saved.open_ended else said


def capacity_sentence(found: Saving | None, rule: str | None) -> str:
    """Return the saving of more capacity; "" if that was not played. ``rule``: the one that this is
    of, if the sentence before speaks of another policy."""
    if found is None:
        return ""
    what = "20 % more capacity would" if rule is None else f"With {rule}, 20 % more capacity would"
    if found.same:
        return f"{what} save nothing."
    verb = "save another" if found.share > 0 else "cost another"
    return f"{what} {verb} {requests(abs(found.requests))} {found.unit}{_interval(found)}."


def _today(rule: str) -> str:
    return "serving locally" if rule == LOCAL else f"today's {rule}"


# --- What it asks --------------------------------------------------------------------------------


LETTERS = {
    "a": "the number of requests of the step",
    "c": "the capacity of the step",
    "q": "the queue as it begins",
}
"""Names in pseudo-code."""


def asks_of_rule(rule: str, settings: Mapping[str, Any], code: Sequence[str] = ()) -> str:
    """Return the needs of a plain rule; its pseudo-code ``code`` follows."""
    found = PlainRule.of(rule)
    if rule == LOCAL:
        return "It asks nothing of the gateways."
    reports = found.margin is not None or found.amount.endswith("margin")
    reports |= found.route not in ("equal", "weighted", "capacity")
    needs = "a counter that starts again in every step"
    if found.route in ("capacity", "spare"):
        needs = "the number of requests of a step before they come"
    also = ", and the spare capacity that the others report" if reports else ""
    names = [
        f"{letter} is {meaning}"
        for letter, meaning in LETTERS.items()
        if any(re.search(rf"\b{letter}\b", line) for line in code)
    ]
    legend = f" In the code {', '.join(names)}." if names else ""
    return f"Each gateway needs {needs}{also}. {refused(settings)}{legend}"


def asks_of_team(settings: Mapping[str, Any]) -> str:
    """Return the needs of a learned team."""
    return (
        "Each proxy needs a network next to it (corral serve), which turns counts and reports into "
        f"a plan for every step. {refused(settings)}"
    )


def refused(settings: Mapping[str, Any]) -> str:
    """Return the fate of requests that a node refuses."""
    if settings.get("second_offer", True):
        return "The sender offers a refused request once more, to all its neighbours."
    return "A refused request is lost."


# --- Trend ---------------------------------------------------------------------------------------


def trend_sentences(found: Trend, unit: str, what: str | None) -> str:
    """Return how a load grows, and the effect on a saving.

    Args:
        unit: "a day" or "a window".
        what: the saving, "the saving above"; None: nothing is saved.
    """
    days = unit.removeprefix("a ")
    verb = "grows" if found.slope > 0 else "shrinks"
    said = f"The load {verb} by {percent(abs(found.slope))} {unit} (t = {found.t:.1f})"
    if what is None:
        return f"{said}: all figures are of the past {found.windows} {days}s."
    ends = f"{requests(found.ahead_low)} to {requests(found.ahead_high)}"
    return (
        f"{said}: {what} is of the past {found.windows} {days}s. By a straight line it is "
        f"{requests(found.last)} requests {unit} on the last {days}, and {requests(found.ahead)} "
        f"(95 %: {ends}) over the next {found.windows}."
    )


# --- Teams ---------------------------------------------------------------------------------------


def team_sentences(
    found: Saving,
    decision: Decision,
    worth: Worth,
    rule: str,
    training: Training | None,
    *,
    costs: bool,
) -> str:
    """Return the saving of a learned team compared with the best plain rule, and the answer."""
    days = found.unit.removeprefix("a ")
    on = f"on {found.windows} held-out {days}{'s' * (found.windows != 1)}"
    if found.same:
        said = f"A learned team does the same as {rule} {on}"
    else:
        said = f"A learned team {_change(found, costs)} than {rule}{_interval(found)} {on}"
    answer = decision.answer + " to tell" * (decision.answer == "too few days")
    return f"{said}: {answer}.{_because(found, decision, worth, training, days)}"


def _because(
    found: Saving, decision: Decision, worth: Worth, training: Training | None, days: str
) -> str:
    """Return the reason of an answer; with a leading blank."""
    if decision.answer == "worth it":
        return ""
    if decision.answer == "not worth it":
        least = f"{percent(worth.share)} of requests, {requests(worth.share * found.arrivals)}"
        return f" It would have to save {least} {found.unit}." if found.share > 0 else ""
    points = percent(abs(found.share)).removesuffix(" %")
    cheaper = "cheaper" if decision.leans == "team" else "dearer"
    chance = ", which may be chance" * found.open_ended
    leans = f" It was {points} points {cheaper} so far{chance}." * (not found.same)
    if decision.answer == "not trained enough":
        return f"{leans}{_longer(decision, training)}"
    if found.low is None:
        return (
            f"{leans} An interval needs {FEWEST_WINDOWS} {days}s held out, {PLENTY} {days}s in all."
        )
    if decision.leans == "rule":
        return leans
    if decision.more is None:
        return f"{leans} More {days}s are unlikely to tell."
    more = f"{decision.more:,} more {days}{'s' * (decision.more != 1)}"
    return f"{leans} About {more} that it has not learned from would tell."


def _longer(decision: Decision, training: Training | None) -> str:
    assert training is not None
    if decision.reason == "updates":
        made = f"{training.updates} update{'s' * (training.updates != 1)}"
        why = f"It was trained with {made}, and {FEWEST_UPDATES} are the least"
    else:
        fell = percent(training.fall or 0.0).removesuffix(" %")
        why = f"Over the last third of its training its cost still fell by {fell} points"
    return f" {why}: train it for longer (--minutes)."


# --- Parts of sentences --------------------------------------------------------------------------


def _change(found: Saving, costs: bool) -> str:
    """Return "costs 41,200 a day less", without costs "loses 41,200 a day fewer"; or "more"."""
    less = ("less" if costs else "fewer") if found.share > 0 else "more"
    verb = "costs" if costs else "loses"
    return f"{verb} {requests(abs(found.requests))} requests {found.unit} {less}"


def _interval(found: Saving) -> str:
    """Return the interval of a saving as " (95 %: 38,000 to 44,100)"; "" if there is none."""
    if found.constant:
        return f" (the same every {found.unit.removeprefix('a ')})"
    return "" if found.low is None else f" (95 %: {between(found)})"


def about_costs(settings: Mapping[str, Any]) -> str:
    """Return the parts of a cost, if anything but lost requests costs something; else ""."""
    prices = [f"{settings[name]:g} x {what}" for name, what in COSTS.items() if settings.get(name)]
    return f"Cost, in lost requests: {' + '.join(['lost', *prices])}." if prices else ""
