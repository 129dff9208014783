"""Policies beside the best rule in the same windows: worked out by hand, told, and written down."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.policy import Decision
from corral.loads.paired import paired_headings, paired_lines, verdicts
from corral.loads.replay import Replay, replay
from corral.loads.report import write_report
from corral.loads.text import describe, score_tables
from corral.trainers.evaluation.players import Player
from support.messages import refused, shown

T_5 = 2.5706  # Student's t of 5 degrees of freedom, 97.5 %


def uneven(beyond: Sequence[int], steps: int = 4, seconds: int = 6 * 3600) -> Trace:
    """Two nodes that can serve 5 each; in window w one has ``beyond[w]`` too many in each step, and
    the other as much room: local play loses them, the overflow nothing."""
    arrivals = np.repeat([[5 + k, 5 - k] for k in beyond], steps, axis=0)
    times = np.arange(len(arrivals)) * seconds
    clock: Any = "utc" if seconds > 1 else "integer"
    return Trace(("a", "b"), arrivals, np.full(arrivals.shape, 5), times, clock=clock)


class Sometimes:
    """Forwards nothing, but for so many requests in the windows that start with 5 + that load."""

    def __init__(self, amounts: dict[int, int]) -> None:
        self.amounts = amounts

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        arrivals = observation["action_mask"].sum(axis=-1) - 1
        wanted = np.array([self.amounts.get(int(a) - 5, 0) for a in arrivals])
        return Decision(np.minimum(wanted, arrivals))


def test_the_difference_is_paired_and_worked_out_by_hand() -> None:
    result = replay(uneven([1, 1, 1, 3, 3, 3]), ["overflow/equal", "local/equal"])
    best, local, _ = result.scores
    # Per window of 4 steps: 40 requests, of which local play loses 4 x k.
    assert local.difference == pytest.approx(2 / 10)
    half = T_5 * math.sqrt(6 / 5) / math.sqrt(6) / 10
    ends = (local.difference_low, local.difference_high)
    assert ends == pytest.approx((0.2 - half, 0.2 + half), rel=1e-4)
    assert (best.difference, best.difference_low, best.difference_high) == (0, 0, 0)
    assert (local.lost_per_window, local.cost_per_window) == (8, 8)
    assert local.difference_lag_1 == pytest.approx(0.5)  # three alike, and three alike
    assert result.best_rule is not None
    assert result.best_rule.labels == ("overflow/equal",) * 6


def test_differences_are_told_apart_where_the_policies_own_intervals_overlap() -> None:
    result = replay(
        uneven([1, 4, 1, 4, 1, 4, 1]),
        {"local": "local", "mine": Sometimes({1: 1, 4: 1})},
    )
    local, mine, _ = result.scores
    assert mine.cost_high > local.cost_low  # between windows both vary far more than they differ
    assert mine.difference == pytest.approx(-0.1)
    assert mine.difference_high < 0
    assert set(verdicts(result)) == {"mine"}
    shown(verdicts(result)["mine"], "mine", "10 %", "less", "local", "4 requests", "4 to 4")


def test_every_window_has_its_figures() -> None:
    result = replay(uneven([1, 1, 1, 3, 3, 3]), {"best": "overflow", "mine": Sometimes({3: 2})})
    table = result.to_dataframe()
    mine = table[table["policy"] == "mine"]
    assert mine["lost"].tolist() == [4, 4, 4, 4, 4, 4]
    assert mine["forwarded"].tolist() == [0, 0, 0, 8, 8, 8]
    assert mine["difference"].tolist() == [4, 4, 4, 4, 4, 4]
    assert mine["first_row"].tolist() == [0, 4, 8, 12, 16, 20]
    assert set(table["best_rule"]) == {"best"}


def test_results_hold_every_window_and_the_verdicts(tmp_path: Path) -> None:
    result = replay(uneven([1, 1, 1, 3, 3, 3]), {"best": "overflow", "mine": Sometimes({3: 2})})
    paths = write_report(result, tmp_path)
    kept = json.loads(paths["results.json"].read_text())
    read = pd.DataFrame(kept["by_window"])
    pd.testing.assert_frame_equal(read, result.to_dataframe(), check_dtype=False)
    assert kept["verdicts"] == verdicts(result)
    assert kept["best_rule"]["windows"] == {"best": 6}
    assert kept["best_rule"]["among"] == 1
    page = paths["report.html"].read_text()
    assert f"<p>{verdicts(result)['mine']}</p>" in page
    arrivals = result.trace.arrivals.sum() / result.windows
    for score in result.scores:
        if score.difference:
            assert score.difference_low is not None
            row = page.partition(f"<td>{score.policy}</td>")[2].partition("</tr>")[0]
            assert f"<td>{arrivals * score.difference:+,.0f} " in row
            assert f">{arrivals * score.difference_low:+,.0f} to " in row


@pytest.mark.parametrize(
    ("settings", "headings", "local"),
    [
        (
            {},
            ["lost\na day", "above the\nbest rule,\n% of arrivals", "95 %\ninterval"],
            ["8", "+20.00"],
        ),
        # Two windows a day.
        ({"window": 2}, None, ["8", "+20.00"]),
        # Overflow play costs half of what it forwards: 4 a day of 40.
        (
            {"forward_cost": 0.5},
            [
                "cost\na day",
                "lost\na day",
                "above the\nbest rule,\n% of arrivals",
                "95 %\ninterval",
            ],
            ["8", "8", "+10.00"],
        ),
    ],
)
def test_requests_are_counted_by_the_day(
    settings: dict[str, Any], headings: list[str] | None, local: list[str]
) -> None:
    result = replay(uneven([1, 1, 1, 3, 3, 3]), ["overflow/equal", "local/equal"], **settings)
    assert headings is None or paired_headings(result) == headings
    lines = {line[0]: line[1:] for line in paired_lines(result)}
    assert lines["local/equal"][: len(local)] == local
    assert lines["overflow/equal"][-2:] == ["+0.00", "the same"]
    assert "optimum" not in lines


def test_without_days_requests_are_counted_by_the_window() -> None:
    result = replay(uneven([1, 1, 1, 3, 3, 3], seconds=1), ["overflow", "local"], window=4)
    assert paired_headings(result)[0] == "lost\na window"


def printed(result: Replay) -> str:
    captions = [str(table.caption or "") for table in score_tables(result)]
    return "\n".join([*captions, *describe(result)])


def test_of_few_windows_the_tables_say_why_there_is_no_interval() -> None:
    result = replay(uneven([1, 1, 1, 3, 3]), {"overflow": "overflow", "mine": Sometimes({3: 2})})
    for score in result.scores:
        assert (score.cost_low, score.served_high, score.difference_low) == (None, None, None)
    assert not any("interval" in heading for heading in paired_headings(result))
    said = printed(result)
    assert said.count("no intervals: fewer than 6 windows") == 2  # below both tables
    shown(said, "5 windows", 6)
    assert "narrow" not in said
    said = verdicts(result)["mine"]
    shown(said, "mine", "10 %", "more", "overflow", "4 requests", "5 windows", "chance")
    six = printed(replay(uneven([1, 1, 1, 3, 3, 3]), ["overflow", "local"]))
    assert "fewer" not in six


def test_days_that_are_alike_and_large_days_are_told() -> None:
    alike = printed(replay(uneven([1] * 6 + [3] * 6), ["local"]))
    assert re.search(r"lag-1\b.*\bdays \+0\.\d\d, .* 12 %.*\bnarrow", alike)
    large = printed(replay(uneven([0, 0, 1, 0, 5, 0, 0, 1]), ["local"]))
    shown(large, "71 %", "narrow")
    few = printed(replay(uneven([0, 0, 1, 0, 5]), ["local"]))  # there is none that could be
    assert re.search(r"largest.* 8\d %\.$", few, re.MULTILINE)
    fine = printed(replay(uneven([3, 4, 3, 3, 4, 4, 3, 4]), ["local"]))
    assert re.search(r"lag-1\b.*\bdays -0\.\d\d, .* 14 %\.\n", fine)
    windows = printed(replay(uneven([1] * 6 + [3] * 6), ["local"], window=2))
    assert re.search(r"correlation\b.*\bwindows", windows)


@pytest.mark.parametrize(
    ("amounts", "said"),
    [
        ({1: 1, 2: 1, 3: 1}, r"costs 10 % of the arrivals less than the best rule, local: 4"),
        # 2 and 4 more, and the others less.
        (
            {1: 1, 3: 0, 2: 5},
            r"difference between mine and the best rule, local: \d requests a day",
        ),
        ({}, r"mine costs the same as the best rule, local, in every window\."),
    ],
)
def test_a_team_is_better_or_cannot_be_told_apart(amounts: dict[int, int], said: str) -> None:
    result = replay(uneven([1, 2, 3, 2, 1, 3, 1]), {"local": "local", "mine": Sometimes(amounts)})
    assert re.search(said, verdicts(result)["mine"]), verdicts(result)


def test_both_ends_are_told_where_nothing_can_be_told_apart() -> None:
    # One request less in windows of 1, and one more in those of 2: forwarded where it is refused.
    trace = uneven([1, 2, 1, 2, 1, 2])
    crowded = dataclasses.replace(trace, arrivals=np.where(trace.arrivals == 3, 5, trace.arrivals))
    team = Sometimes({1: 1, 2: 2, 0: 5})
    result = replay(crowded, {"local": "local", "mine": team})
    said = verdicts(result)["mine"]
    score = result.scores[1]
    assert score.difference_low < 0 < score.difference_high, said
    assert re.fullmatch(
        r"No significant difference between mine and the best rule, local: \d+ requests a day "
        r"(less|more) \(95 %: \d+ less to \d+ more\)\.",
        said,
    )


def test_nothing_is_concluded_of_a_team_that_has_seen_the_rows() -> None:
    result = replay(uneven([1, 2] * 3), {"local": "local", "mine": Sometimes({1: 1})})
    seen = dataclasses.replace(result, seen=frozenset({"mine"}))
    assert set(verdicts(seen)) == {"mine"}
    assert not re.search(r"\d", shown(verdicts(seen)["mine"], "mine", "verdict", "rows"))


def test_without_rules_there_is_nobody_to_compare_with() -> None:
    trace = uneven([1, 2] * 3)
    result = replay(trace, {"mine": Player(baseline_team("local", DfaasRules(trace)))})
    assert result.best_rule is None
    assert verdicts(result) == {}
    assert "best_rule" not in result.to_dataframe().columns
    assert result.scores[0].difference is None
    with refused(ValueError, "best_rule='mine'", "pair"):
        replay(trace, {"mine": Sometimes({})}, best_rule=("mine", "other rows"))


def test_days_of_a_week_are_told_apart() -> None:
    week = [3, 3, 3, 3, 3, 1, 1]
    by_day = replay(uneven(week * 2), ["overflow", "local"])
    local = next(score for score in by_day.scores if score.policy == "local")
    assert local.difference_low == pytest.approx(local.difference)  # nothing but the week varies
    shown(printed(by_day), "14 windows", "weekday")
    without = replay(uneven(week * 2, seconds=1), ["overflow", "local"], window=4)
    local = next(score for score in without.scores if score.policy == "local")
    assert local.difference_low < local.difference - 0.05
    assert "weekday" not in printed(without)
