"""The sentences of a verdict, in their order. Each states a computed result and nothing else.

1. The policy to run. If it is a balancer: its saving and its requirements, then the best plan.
2. The saving of the best plan compared with the rule of today, and the saving of more capacity.
3. The cost of the best plan in a rehearsal, and whether its saving holds there.
4. The requirements of the best plan.
5. The trend of the load, if there is one.
6. The answer about a learned team.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.loads.advise.enough import FEWEST_UPDATES, Training
from corral.loads.advise.rehearsed import (
    DEPENDS,
    Better,
    Played,
    Promised,
    Rehearsed,
    age_of,
)
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import LOCAL, PLENTY, Decision, Saving, Worth, between
from corral.loads.advise.words import percent, requests
from corral.loads.paired import parts_of_cost
from corral.loads.textbook import sentence_of
from corral.loads.textbook.words import short_of
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS

__all__ = [
    "TEAM_RUNS",
    "about_costs",
    "asks_of_rule",
    "asks_of_team",
    "balancer_sentences",
    "baseline_sentence",
    "capacity_sentence",
    "holds_sentence",
    "interval_of",
    "knowledge",
    "needs_sentence",
    "refused",
    "rehearsal_sentences",
    "run_sentence",
    "saves_sentence",
    "second_choice",
    "team_sentences",
    "trend_sentences",
]

TEAM_DECIDES = (
    "in each step it sets how many requests each node keeps and which nodes get the rest."
)
TEAM_RUNS = f"Run the learned team: {TEAM_DECIDES}"


def knowledge(settings: Mapping[str, Any]) -> str:
    """Return "known" or "unknown": whether nodes know a step's arrivals before the step."""
    return str(settings.get("arrivals", "known"))


# --- What to run ---------------------------------------------------------------------------------


def run_sentence(rule: str, settings: Mapping[str, Any]) -> str:
    """Return the sentence that recommends a plain rule and explains it."""
    sentence = sentence_of(PlainRule.of(rule), settings)
    return f"Run {rule}: {sentence[0].lower()}{sentence[1:]}"


def second_choice(rule: str | None, settings: Mapping[str, Any]) -> str:
    """Return the sentence about the best plan below a better balancer; None: the learned team."""
    if rule is None:
        return f"Second choice, the best rule: the learned team. {TEAM_DECIDES.capitalize()}"
    return f"Second choice, the best rule: {rule}. {sentence_of(PlainRule.of(rule), settings)}"


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
    change = f"save {requests(saving.requests)}"
    if saving.share < 0:
        change = f"cost {requests(-saving.requests)} more"
    return f"{subject} {change} requests {saving.unit}{_interval(saving)}."


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


# --- Rehearsal -----------------------------------------------------------------------------------


def balancer_sentences(better: Better, rehearsed: Rehearsed, *, costs: bool) -> list[str]:
    """Return sentences on a recommended balancer: its meaning, its saving and its needs."""
    played, plan, today = rehearsed.played, rehearsed.plan, rehearsed.today
    plan_name = "the learned team" if plan == "team" else plan
    equal, exponential = better.deterministic, better.exponential
    text = f"Request by request, on {played.days()}, it {_change(equal, costs)} than {plan_name}"
    text += _interval(equal)
    numbers = requests(exponential.requests)
    if plan != today:
        over_today = better.over_today
        text += f", and {_more_or_fewer(over_today[0])} than {_today(today)}"
        text += _interval(over_today[0])
        numbers += f" and {requests(over_today[1].requests)}"
    saves = f"{text}. If requests differ in work (exponentially), {numbers}."
    return [
        f"Run the balancer {better.name}: a node {better.balancer.meaning}.",
        saves,
        needs_sentence(better, played),
    ]


def needs_sentence(better: Better, played: Played) -> str:
    """Return the knowledge that a balancer needs, and how fresh reports must be."""
    needs = better.balancer.needs
    if better.period is None:
        return f"Each proxy must know {needs}."
    fresh = {report.period: report.deterministic for report in better.fresh}
    saving = fresh[better.period]
    text = (
        "These savings need backlogs of the moment. One balancer in front of all servers knows "
        f"them; each of several proxies must know {needs}, at least by a report of each node every "
        f"{age_of(better.period, played.step)}, without delay: then it costs "
        f"{_more_or_fewer(saving)} than the second choice{_interval(saving)}"
    )
    older = [period for period in fresh if period > better.period]
    if not older:
        return f"{text}; a longer time was not rehearsed."
    beyond = age_of(older[0], played.step)
    return f"{text}; with one every {beyond}, {_more_or_fewer(fresh[older[0]])}."


def rehearsal_sentences(rehearsed: Rehearsed, *, costs: bool) -> str:
    """Return the cost of the best plan in replay and rehearsal, and whether its saving holds."""
    played, plan = rehearsed.played, rehearsed.plan
    promise, verb = played.daily(played.promised[plan]), "costs" if costs else "loses"
    cost = played.daily(played.deterministic[plan].cost)
    parts = {part: played.daily(values) for part, values in played.parts[plan].items()}
    before, after, texts = _adding_up(promise, cost, parts)
    text = (
        f"Request by request, on {played.days()}, it {verb} {after} requests {played.a_day}; the "
        f"replay promises {before}. The difference: times within the step {texts['times']}, "
        f"competition for spare capacity {texts['competition']}, latency {texts['latency']}."
    )
    if rehearsed.promise is None:
        return text
    return f"{text} {holds_sentence(rehearsed.promise, rehearsed.today)}"


def holds_sentence(promise: Promised, today: str, subject: str = "Its saving") -> str:
    """Return whether a saving has the same sign in the replay and in both rehearsals."""
    numbers = (
        f"{requests(promise.promised.requests)} requests {promise.promised.unit} promised, "
        f"{requests(promise.deterministic.requests)} rehearsed with equal work, "
        f"{requests(promise.exponential.requests)} with exponential work"
    )
    saving = f"{subject} over {_today(today)}"
    if promise.answer == DEPENDS:
        return f"{saving} depends on what your servers are like: {numbers}."
    return f"{saving} holds in sign: {numbers}."


def _adding_up(
    promise: float, cost: float, parts: Mapping[str, float]
) -> tuple[str, str, dict[str, str]]:
    """Return promise, cost and parts as text, rounded so that they add up."""
    largest = max(abs(promise), abs(cost))
    digits = 0 if largest >= 100 else 1 if largest >= 10 else 2
    scale = 10**digits
    before, after = round(promise * scale), round(cost * scale)
    whole = {part: round(value * scale) for part, value in parts.items()}
    gap = after - before - sum(whole.values())
    while gap:  # the number with the largest rounding error in this direction
        sign = 1 if gap > 0 else -1
        part = max(whole, key=lambda part: sign * (parts[part] * scale - whole[part]))
        whole[part] += sign
        gap -= sign
    signed = {k: f"{n / scale:+,.{digits}f}" if n else "0" for k, n in whole.items()}
    return f"{before / scale:,.{digits}f}", f"{after / scale:,.{digits}f}", signed


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
    rehearsal: tuple[Saving, Saving] | None = None,
) -> str:
    """Return the saving of a learned team compared with the best plain rule, and the answer.

    ``rehearsal``: its saving in rehearsals with deterministic and exponential work.
    """
    days = saving.unit.removeprefix("a ")
    on = f"on {saving.windows} held-out {days}{'s' * (saving.windows != 1)}"
    if rehearsal is not None:
        on += ", in the replay"
        if decision.reason != "rehearsal":  # else the figures of both rehearsals follow
            by_request = "the same" if rehearsal[0].same else _more_or_fewer(rehearsal[0])
            on += f", and {by_request} request by request"
    if saving.same:
        text = f"A learned team costs the same as {rule} {on}"
    else:
        text = f"A learned team {_change(saving, costs)} than {rule}{_interval(saving)} {on}"
    answer = decision.answer + " to tell" * (decision.answer == "too few days")
    if decision.reason == "rehearsal":
        assert rehearsal is not None
        return f"{text}: {answer}. {_not_confirmed(rehearsal)}"
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


def _not_confirmed(rehearsal: tuple[Saving, Saving]) -> str:
    """Return the savings of a team in rehearsals that do not confirm it."""
    amounts = []
    for saving in rehearsal:
        ends = ""
        if saving.low is not None and saving.high is not None:
            low, high = (requests(end * saving.arrivals) for end in (saving.low, saving.high))
            ends = f" (95 %: {low} to {high})"
        amounts.append(f"{requests(saving.requests)}{ends}")
    return (
        f"Request by request it saves {amounts[0]} requests {rehearsal[0].unit} with equal work, "
        f"and {amounts[1]} with exponential work; both must lie above 0."
    )


def _longer(decision: Decision, training: Training | None) -> str:
    assert training is not None
    if decision.reason == "updates":
        made = f"{training.updates} update{'s' * (training.updates != 1)}"
        why = f"It was trained with {made}; at least {FEWEST_UPDATES} are needed"
    elif decision.reason == "minutes":
        made, planned = f"{training.env_steps:,}", f"{training.planned:,}"
        why = f"Time ended its training after {made} of {planned} env steps"
        return f" {why}: give it more time (--minutes), in a new folder."
    else:
        fell = percent(training.fall or 0.0).removesuffix(" %")
        why = f"In the last third of training its cost still fell by {fell} percentage points"
    return f" {why}: train it longer (--steps)."


# --- Parts of sentences --------------------------------------------------------------------------


def _change(saving: Saving, costs: bool) -> str:
    """Return "costs 41,200 fewer requests a day", "loses 3 more requests a window", ..."""
    verb = "costs" if costs else "loses"
    sign = "fewer" if saving.share > 0 else "more"
    return f"{verb} {requests(abs(saving.requests))} {sign} requests {saving.unit}"


def _more_or_fewer(saving: Saving) -> str:
    """Return "930 fewer" or "3 more"."""
    return f"{requests(abs(saving.requests))} {'fewer' if saving.share > 0 else 'more'}"


def interval_of(saving: Saving, text: Callable[[float], str] = requests) -> str:
    """Return the interval of a saving: "38,000 to 44,100", "the same every day", or "".

    ``text`` formats a number of requests."""
    if saving.constant:
        return f"the same every {saving.unit.removeprefix('a ')}"
    return "" if saving.low is None else between(saving, text)


def _interval(saving: Saving) -> str:
    """Return the interval of a saving as " (95 %: 38,000 to 44,100)"; "" if there is none."""
    ends = interval_of(saving)
    return f" ({'' if saving.constant else '95 %: '}{ends})" if ends else ""


def about_costs(settings: Mapping[str, Any]) -> str:
    """Return the parts of a cost if forwarding or waiting has a cost, else ""."""
    parts = parts_of_cost(settings).removeprefix("cost = ")
    return f"Cost, in lost requests: {parts}." if parts else ""
