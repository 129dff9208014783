"""The sentences of a verdict, in their order. Each states a computed result and nothing else.

1. The policy to run.
2. Its saving compared with the rule of today, and the saving of more capacity.
3. The requirements of the policy.
4. The trend of the load, if there is one.
5. The answer about a learned team.
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
from corral.loads.textbook.words import short_of
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = [
    "TEAM_RUNS",
    "about_costs",
    "asks_of_rule",
    "asks_of_team",
    "baseline_sentence",
    "capacity_sentence",
    "knowledge",
    "refused",
    "run_sentence",
    "saves_sentence",
    "team_sentences",
    "trend_sentences",
]

TEAM_RUNS = (
    "Run the learned team: in each step it sets how many requests each node keeps and which nodes "
    "get the rest."
)


def knowledge(settings: Mapping[str, Any]) -> str:
    """Return "known" or "unknown": whether nodes know a step's arrivals before the step."""
    return str(settings.get("arrivals", "known"))


# --- What to run ---------------------------------------------------------------------------------


def run_sentence(rule: str, settings: Mapping[str, Any]) -> str:
    """Return the sentence that recommends a plain rule and explains it."""
    sentence = sentence_of(PlainRule.of(rule), settings)
    return f"Run {rule}: {sentence[0].lower()}{sentence[1:]}"


def saves_sentence(
    lost: float, today: str, saving: Saving | None, *, costs: bool, days: str = ""
) -> str:
    """Return the saving of the recommended policy.

    Args:
        lost: requests that the policy loses, as a share of the arrivals.
        today: the rule that runs today.
        saving: saving compared with that rule; None: the policy is that rule.
        costs: whether forwarding or waiting has a cost.
        days: which days, if not all: ", on the 10 days held out".
    """
    if saving is None:
        return f"This rule already runs today; it loses {percent(lost)} of requests{days}."
    if saving.same:
        return f"It costs the same as {_today(today)}; it loses {percent(lost)} of requests{days}."
    loss, loss_today = percent(lost), percent(lost + saving.lost)
    level = loss if loss == loss_today else f"{loss} instead of {loss_today}"
    also = f", and loses {level} of requests" if costs else f", {level}"
    text = f"It {_change(saving, costs)} than {_today(today)}{_interval(saving)}{also}{days}."
    return f"{text} The difference may be chance." if saving.open_ended else text


def baseline_sentence(today: str, saving: Saving | None) -> str:
    """Return the assumption about the rule that runs today, with the meaning of that rule.

    ``saving``: saving compared with that rule; None: the recommended policy is that rule.
    """
    start = "Assumed to run today" if saving is None else "Compared with"
    assumed = "" if saving is None else ", assumed to run today"
    rule = short_of(PlainRule.of(today))
    return f"{start}: {rule} ({today}){assumed}; --today sets another rule."


def capacity_sentence(saving: Saving | None, rule: str | None) -> str:
    """Return the saving of more capacity; "" if more capacity was not played.

    ``rule``: the rule of this saving, if the previous sentence is about another policy.
    """
    if saving is None:
        return ""
    more = "20 % more capacity would"
    subject = more if rule is None else f"With {rule}, {more}"
    if saving.same:
        return f"{subject} save nothing."
    verb = "save another" if saving.share > 0 else "cost another"
    amount = requests(abs(saving.requests))
    return f"{subject} {verb} {amount} requests {saving.unit}{_interval(saving)}."


def _today(rule: str) -> str:
    return "serving locally" if rule == LOCAL else f"today's {rule}"


# --- Requirements --------------------------------------------------------------------------------


LETTERS = {
    "a": "the number of requests of the step",
    "c": "the capacity of the step",
    "q": "the queue at its start",
}
"""Variables of the pseudo-code."""


def asks_of_rule(rule: str, settings: Mapping[str, Any], code: Sequence[str] = ()) -> str:
    """Return the requirements of a plain rule; its pseudo-code ``code`` follows."""
    parsed = PlainRule.of(rule)
    if rule == LOCAL:
        return "It requires nothing of the gateways."
    reports = parsed.margin is not None or parsed.amount.endswith("margin")
    reports |= parsed.route not in ("equal", "weighted", "capacity")
    needs = "a request counter that is reset at every step"
    if parsed.route in ("capacity", "spare"):
        needs = "the number of a step's requests before they arrive"
    also = ", and the spare capacity that the other nodes report" if reports else ""
    names = [
        f"{letter} is {meaning}"
        for letter, meaning in LETTERS.items()
        if any(re.search(rf"\b{letter}\b", line) for line in code)
    ]
    legend = f" In the code, {', '.join(names)}." if names else ""
    return f"Each gateway needs {needs}{also}. {refused(settings)}{legend}"


def asks_of_team(settings: Mapping[str, Any]) -> str:
    """Return the requirements of a learned team."""
    return (
        "Each proxy needs a policy server next to it (corral serve), which turns counts and "
        f"reports into a plan for each step. {refused(settings)}"
    )


def refused(settings: Mapping[str, Any]) -> str:
    """Return what happens to requests that a node refuses."""
    if settings.get("second_offer", True):
        return "The sender offers a refused request once more, to all its neighbors."
    return "A refused request is lost."


# --- Trend ---------------------------------------------------------------------------------------


def trend_sentences(trend: Trend, unit: str, saving_name: str | None) -> str:
    """Return how much a load grows, and the effect on a saving.

    Args:
        unit: "a day" or "a window".
        saving_name: the name of the saving, "the saving above"; None: no saving.
    """
    days = unit.removeprefix("a ")
    verb = "grows" if trend.slope > 0 else "shrinks"
    text = f"The load {verb} by {percent(abs(trend.slope))} {unit} (t = {trend.t:.1f})"
    if saving_name is None:
        return f"{text}: all figures are for the past {trend.windows} {days}s."
    ends = f"{requests(trend.ahead_low)} to {requests(trend.ahead_high)}"
    return (
        f"{text}: {saving_name} is for the past {trend.windows} {days}s. A straight-line fit gives "
        f"{requests(trend.last)} requests {unit} on the last {days}, and {requests(trend.ahead)} "
        f"(95 %: {ends}) over the next {trend.windows} {days}s."
    )


# --- Teams ---------------------------------------------------------------------------------------


def team_sentences(
    saving: Saving,
    decision: Decision,
    worth: Worth,
    rule: str,
    training: Training | None,
    *,
    costs: bool,
) -> str:
    """Return the saving of a learned team compared with the best plain rule, and the answer."""
    days = saving.unit.removeprefix("a ")
    on = f"on {saving.windows} held-out {days}{'s' * (saving.windows != 1)}"
    if saving.same:
        text = f"A learned team costs the same as {rule} {on}"
    else:
        text = f"A learned team {_change(saving, costs)} than {rule}{_interval(saving)} {on}"
    answer = decision.answer + " to tell" * (decision.answer == "too few days")
    return f"{text}: {answer}.{_because(saving, decision, worth, training, days)}"


def _because(
    saving: Saving, decision: Decision, worth: Worth, training: Training | None, days: str
) -> str:
    """Return the reason for an answer, with a leading space."""
    if decision.answer == "worth it":
        return ""
    if decision.answer == "not worth it":
        least = f"{percent(worth.share)} of requests, {requests(worth.share * saving.arrivals)}"
        return f" It would have to save {least} {saving.unit}." if saving.share > 0 else ""
    points = percent(abs(saving.share)).removesuffix(" %")
    cheaper = "cheaper" if decision.leans == "team" else "more expensive"
    chance = ", which may be chance" * saving.open_ended
    leans = f" It was {points} percentage points {cheaper} so far{chance}." * (not saving.same)
    if decision.answer == "not trained enough":
        return f"{leans}{_longer(decision, training)}"
    if saving.low is None:
        need = f"An interval needs {FEWEST_WINDOWS} held-out {days}s, {PLENTY} {days}s in total."
        return f"{leans} {need}"
    if decision.leans == "rule":
        return leans
    if decision.more is None:
        return f"{leans} More {days}s are unlikely to decide it."
    more = f"{decision.more:,} more held-out {days}{'s' * (decision.more != 1)}"
    return f"{leans} About {more} would decide it."


def _longer(decision: Decision, training: Training | None) -> str:
    assert training is not None
    if decision.reason == "updates":
        made = f"{training.updates} update{'s' * (training.updates != 1)}"
        why = f"It was trained with {made}; at least {FEWEST_UPDATES} are needed"
    else:
        fell = percent(training.fall or 0.0).removesuffix(" %")
        why = f"In the last third of training its cost still fell by {fell} percentage points"
    return f" {why}: train it longer (--minutes)."


# --- Parts of sentences --------------------------------------------------------------------------


def _change(saving: Saving, costs: bool) -> str:
    """Return "costs 41,200 fewer requests a day", "loses 3 more requests a window", ..."""
    sign = "fewer" if saving.share > 0 else "more"
    verb = "costs" if costs else "loses"
    return f"{verb} {requests(abs(saving.requests))} {sign} requests {saving.unit}"


def _interval(saving: Saving) -> str:
    """Return the interval of a saving as " (95 %: 38,000 to 44,100)"; "" if there is none."""
    if saving.constant:
        return f" (the same every {saving.unit.removeprefix('a ')})"
    return "" if saving.low is None else f" (95 %: {between(saving)})"


def about_costs(settings: Mapping[str, Any]) -> str:
    """Return the parts of a cost if forwarding or waiting has a cost, else ""."""
    prices = [f"{settings[name]:g} x {what}" for name, what in COSTS.items() if settings.get(name)]
    return f"Cost, in lost requests: {' + '.join(['lost', *prices])}." if prices else ""
