"""The sentences of a verdict: all of them are in verdicts.txt, for a reader.

python tests/loads/advise/test_verdict.py > tests/loads/advise/verdicts.txt
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.loads.advise.enough import FEWEST_UPDATES, Training
from corral.loads.advise.sentences import (
    TEAM_RUNS,
    about_costs,
    asks_of_rule,
    asks_of_team,
    baseline_sentence,
    capacity_sentence,
    run_sentence,
    saves_sentence,
    team_sentences,
    trend_sentences,
)
from corral.loads.advise.trend import Trend
from corral.loads.advise.verdict import LOCAL, Saving, Worth, decide
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


def said() -> Iterator[str]:
    """Yield headings, and sentences below each."""
    yield "# What to run"
    for rule in (LOCAL, RULE, "overflow/round-robin", "capacity=0.9,margin=1/weighted"):
        yield run_sentence(rule, {"queue": 16, "link_limit": 7})
    yield TEAM_RUNS
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
