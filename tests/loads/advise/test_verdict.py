"""The sentences of a verdict: all of them are in verdicts.txt, for a reader.

python tests/loads/advise/test_verdict.py > tests/loads/advise/verdicts.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from corral.loads.advise.enough import FEWEST_UPDATES, Training
from corral.loads.advise.rehearsed import BALANCERS, Costs, Played, Rehearsed, rehearsed
from corral.loads.advise.sentences import (
    TEAM_RUNS,
    about_costs,
    asks_of_rule,
    asks_of_team,
    balancer_sentences,
    baseline_sentence,
    capacity_sentence,
    rehearsal_sentences,
    run_sentence,
    saves_sentence,
    second_choice,
    team_sentences,
    trend_sentences,
)
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import LOCAL, Decision, Saving, Worth, decide
from corral.loads.advise.words import percent, requests

SAID = Path(__file__).with_name("verdicts.txt")
LOAD = 1_150_000.0  # a day
LONG = Training(400, 60_000, 0.0001, False)
RULE = "backlog=0.75/least"


def saved(
    mean: float, low: float | None, high: float | None, lost: float | None = None, days: int = 9
) -> Saving:
    """A saving of so many requests a day."""
    ends = [None if end is None else end / LOAD for end in (low, high)]
    return Saving(mean / LOAD, *ends, (mean if lost is None else lost) / LOAD, days, LOAD, "a day")


def of_team(found: Saving, training: Training = LONG, costs: bool = False) -> str:
    worth = Worth(0.1, "least")
    decision = decide(found, worth.share, training)
    return team_sentences(found, decision, worth, RULE, training, costs=costs)


NOISE = np.array([1.0, -2, 3, -1, 2, -3, 0, 1, -1])


def costs_of(mean: float) -> Costs:
    return Costs(mean * (1 + 0.01 * NOISE), mean * (1 + 0.01 * NOISE))


def in_rehearsal(
    equal: dict[str, float],
    exponential: dict[str, float],
    *,
    whole: int = 9,
    held_out: bool = True,
    longest: float = 0.1,
    step: float | None = 300.0,
    plan: str = RULE,
) -> Rehearsed:
    """The rehearsal of invented costs a day; the saving of ``room`` ends at reports that are older
    than ``longest``."""
    equal = {**dict.fromkeys(BALANCERS, 90_000.0), LOCAL: 71_500.0, **equal}
    exponential = {**equal, **exponential}
    promised = {LOCAL: 71_300.0, RULE: 41_400.0, "team": 40_000.0}
    invented = Played(
        requests=np.full(len(NOISE), int(LOAD)),
        promised={name: np.full(len(NOISE), cost) for name, cost in promised.items()},
        parts={
            name: {
                "times": costs_of(equal[name]).cost + 2_000.4 - cost,
                "competition": np.full(len(NOISE), -2_000.4),
                "latency": np.zeros(len(NOISE)),
            }
            for name, cost in promised.items()
            if name in equal
        },
        deterministic={name: costs_of(cost) for name, cost in equal.items()},
        exponential={name: costs_of(1.1 * cost) for name, cost in exponential.items()},
        windows=tuple(range(len(NOISE))),
        whole=whole,
        held_out=held_out,
        step=step,
    )

    def again(balancer: str, period: float) -> tuple[Costs, Costs]:
        cost = equal[balancer] if period <= longest else 90_000.0
        return costs_of(cost), costs_of(1.1 * cost)

    return rehearsed(invented, plan=plan, today=LOCAL, worth=0.001, again=again)


def of_balancer(it: Rehearsed, costs: bool = True) -> list[str]:
    assert it.better is not None
    return balancer_sentences(it.better, it, costs=costs)


def said() -> Iterator[str]:
    """Yield headings, and sentences below each."""
    yield "# What to run"
    for rule in (LOCAL, RULE, "overflow/round-robin", "capacity=0.9,margin=1/weighted"):
        yield run_sentence(rule, {"queue": 16, "link_limit": 7})
    yield TEAM_RUNS
    yield "# A balancer of practice"
    room = {RULE: 52_000.0, "room": 43_000.0}
    yield from of_balancer(in_rehearsal(room, {}))
    yield from of_balancer(in_rehearsal(room, {}, longest=1.0, step=None), costs=False)
    yield from of_balancer(in_rehearsal({"room": 43_000.0}, {}, plan=LOCAL))[1:2]
    own_counts = {RULE: 52_000.0, "team": 51_000.0, "choices=2": 43_000.0}
    yield from of_balancer(in_rehearsal(own_counts, {}, whole=30, plan="team"))
    yield second_choice(RULE, {"queue": 16, "link_limit": 7})
    yield second_choice(None, {})
    yield "# What a rehearsal says about the promise"
    yield rehearsal_sentences(in_rehearsal({RULE: 52_000.0}, {}), costs=True)
    yield rehearsal_sentences(in_rehearsal({RULE: 52_000.0}, {RULE: 75_000.0}), costs=True)
    yield rehearsal_sentences(in_rehearsal({RULE: 75_000.0}, {}), costs=False)
    yield rehearsal_sentences(in_rehearsal({}, {}, held_out=False, plan=LOCAL), costs=True)
    yield "# What it saves"
    beside = saved(41_200, 38_000, 44_100, lost=30_010)
    yield saves_sentence(0.036, LOCAL, beside, costs=True)
    yield saves_sentence(0.036, LOCAL, saved(41_200, 38_000, 44_100), costs=False)
    yield saves_sentence(0.036, "overflow/equal", beside, costs=True)
    yield saves_sentence(0.036, LOCAL, beside, costs=True, days=", on the 9 days held out")
    yield saves_sentence(0.036, LOCAL, saved(300, None, None), costs=False)
    yield saves_sentence(0.036, LOCAL, saved(300, 300, 300), costs=False)
    yield saves_sentence(0.036, LOCAL, saved(-300, -500, -100), costs=False)
    yield saves_sentence(0.036, "overflow/equal", saved(0, 0, 0), costs=True)
    yield saves_sentence(0.036, LOCAL, None, costs=True)
    yield baseline_sentence(LOCAL, beside)
    yield baseline_sentence("overflow/equal", beside)
    yield baseline_sentence("share=0.8333/equal", None)
    yield "# What more capacity would save"
    yield capacity_sentence(saved(8_000, 7_000, 9_000), None)
    yield capacity_sentence(saved(8_000, 7_000, 9_000), RULE)
    yield capacity_sentence(saved(0, 0, 0), None)
    yield "# What it asks of the operator"
    for offered in (True, False):
        yield asks_of_rule(RULE, {"second_offer": offered})
    yield asks_of_rule("backlog=0.75/equal", {}, ["keep = max(0, c + 12 - q)", "serve the rest"])
    yield asks_of_rule("overflow/capacity", {})
    yield asks_of_rule(LOCAL, {})
    yield asks_of_team({})
    yield "# A load that grows, or shrinks"
    trend = Trend(0.0066, 16.2, 28, True, 41_200, 48_700, 56_300, 50_100, 62_500)
    above = "the saving above"
    yield trend_sentences(trend, "a day", above)
    yield trend_sentences(Trend(-0.01, -5.0, 30, False, 90, 20, -60, -90, -30), "a window", above)
    yield trend_sentences(trend, "a day", None)
    yield "# A learned team"
    yield of_team(saved(2_900, 1_100, 4_800))
    yield of_team(saved(2_900, 1_100, 4_800, lost=-400), costs=True)
    yield of_team(saved(700, 300, 1_100))
    yield of_team(saved(-900, -1_500, -300))
    yield of_team(saved(2_900, -1_000, 6_800))
    yield of_team(saved(1_170, -20_000, 22_340))
    yield of_team(saved(-1_170, -20_000, 17_660))
    yield of_team(saved(900, None, None, days=4))
    yield of_team(saved(0, 0, 0))
    short = Training(FEWEST_UPDATES - 1, 2_000, None, False)
    yield of_team(saved(-900, -1_500, -300), short)
    yield of_team(saved(0, 0, 0), short)
    falling = Training(400, 60_000, 0.002, True)
    yield of_team(saved(2_900, -1_000, 6_800), falling)
    not_confirmed = (saved(-700, -1_100, -300), saved(400, -100, 900))
    refused = Decision("not worth it", reason="rehearsal")
    for in_both in (not_confirmed, (saved(700, None, None), saved(-20, None, None))):
        yield team_sentences(
            saved(2_900, 1_100, 4_800),
            refused,
            Worth(0.1, "least"),
            RULE,
            LONG,
            costs=True,
            rehearsal=in_both,
        )
    yield "# What a cost is"
    yield about_costs({"forward_cost": 0.1, "wait_cost": 0.02})


def test_all_sentences_are_those_that_were_read() -> None:
    assert "\n".join(said()) + "\n" == SAID.read_text(encoding="utf-8")


def test_what_costs_nothing_has_no_sentence() -> None:
    assert about_costs({"forward_cost": 0.0, "queue": 5}) == ""
    assert capacity_sentence(None, None) == ""


@pytest.mark.parametrize(("rule", "reports"), [(RULE, True), ("backlog=0.75/weighted", False)])
def test_rules_that_go_by_reports_ask_for_them(rule: str, reports: bool) -> None:
    assert ("report" in asks_of_rule(rule, {})) == reports


def test_numbers_have_three_digits() -> None:
    numbers = {41_234: "41,200", 1_235: "1,240", 999.6: "1,000", 87.4: "87", 3.44: "3.4", 0: "0"}
    assert [requests(number) for number in numbers] == [*numbers.values()]
    assert requests(-20_040) == "-20,000"
    assert requests(-0.001) == "0"
    shares = {0.0357: "3.6 %", 0.1234: "12.3 %", 0.0036: "0.36 %", 5e-5: "under 0.01 %", 0: "0 %"}
    assert [percent(share) for share in shares] == [*shares.values()]


if __name__ == "__main__":
    print(*said(), sep="\n")
