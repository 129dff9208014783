"""Results of rehearsals: figures against their definitions, tables, sentences and files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loads.rehearsal.test_logs import log_of, trace_of
from rich.console import Console

import corral
from corral.data import Trace
from corral.files import strict_json
from corral.loads.rehearsal import Rehearsal
from corral.loads.rehearsal.result import wait_at
from corral.loads.rehearsal.screen import number, percent, signed, time_text
from corral.loads.rehearsal.summary import (
    Estimate,
    Promise,
    PromiseSummary,
    Units,
    rounded_parts,
)
from corral.loads.rehearsal.world import BINS, FIRST_BIN, RESOLUTION
from corral.trainers.evaluation.intervals import difference_interval, share_interval
from support.loads import DAY, days, small_trace
from support.messages import refused, shown

GAME: dict[str, Any] = {"queue": 8, "forward_cost": 0.2, "link_limit": 9}
POLICIES = ["local", "backlog=0.75/least", "round-robin"]


def rehearsed(load: Trace, policies: Any = POLICIES, **settings: Any) -> Rehearsal:
    return corral.rehearse(load, policies, compiled=False, **{**GAME, **settings})


@pytest.fixture(scope="module")
def result() -> Rehearsal:
    return rehearsed(days(14), latency=60.0)


def printed(rehearsal: Rehearsal) -> str:
    console = Console(width=200, file=io.StringIO())
    for table in rehearsal.tables():
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- Figures -------------------------------------------------------------------------------------


def test_costs_are_means_a_day_with_paired_differences_by_weekday(result: Rehearsal) -> None:
    load = result.requests
    assert [summary.policy for summary in result.summaries] == sorted(
        POLICIES, key=lambda policy: result.costs[policy].sum()
    )
    for summary in result.summaries:
        counts, cost = result.sums[summary.policy].counts, result.costs[summary.policy]
        assert cost == pytest.approx(counts["lost"] + 0.2 * counts["forwarded"])
        assert summary.cost.mean == pytest.approx(cost.mean())
        ends = (summary.cost.low, summary.cost.high)
        assert ends == pytest.approx(np.array(share_interval(cost, load, season=7)) * load.mean())
        for name in ("lost", "refused", "forwarded"):
            estimate = vars(summary)[name]
            assert estimate.mean == pytest.approx(counts[name].mean())
        assert summary.lost_share == counts["lost"].sum() / result.requests.sum()
        more = cost - result.costs["local"]
        if summary.policy == "local":
            assert summary.difference is None
        else:
            assert summary.difference is not None
            assert summary.difference.mean == pytest.approx(more.mean())
            ends = summary.difference.low, summary.difference.high
            expected = np.array(difference_interval(more, load, season=7)) * load.mean()
            assert ends == pytest.approx(expected)


def test_windows_of_half_a_day_are_counted_a_window() -> None:
    result = rehearsed(days(4), window=DAY // 2)
    (local,) = [summary for summary in result.summaries if summary.policy == "local"]
    assert local.lost.mean == pytest.approx(result.sums["local"].counts["lost"].mean())
    assert result.units.a_day == "a window"
    assert local.cost.low is not None  # 8 windows
    assert result.units.season == 1
    assert result.by_hour("local") is None


def test_fewer_than_six_windows_have_no_intervals() -> None:
    result = rehearsed(days(5))
    for summary in result.summaries:
        assert summary.cost.low is None
        assert summary.difference is None or summary.difference.high is None
    shown(printed(result), 6)
    assert not any("95 %" in line for line in result.lines())


def test_drawn_days_are_not_compared_by_weekday() -> None:
    result = rehearsed(days(16), days=15)
    assert len(result.windows) == 15
    assert result.units.season == 1
    shown(result.about()[1], "15 of 16 days", 24)


def test_a_clock_without_days_has_windows_and_steps() -> None:
    result = rehearsed(small_trace(steps=90), window=15)
    assert (result.units.a_day, result.units.time) == ("a window", "steps")
    local = next(summary for summary in result.summaries if summary.policy == "local")
    assert local.cost.mean == pytest.approx(result.costs["local"].mean())
    assert local.cost.low is not None  # 6 windows
    assert result.by_hour("local") is None
    shown(printed(result), "steps")


def test_a_rest_that_fills_no_window_is_named() -> None:
    result = rehearsed(small_trace(steps=40), window=15)
    shown(result.about()[1], "2 windows", "15 steps", "10 steps")


# --- Waits ---------------------------------------------------------------------------------------


def bins_of(waits: list[float]) -> np.ndarray:
    bins = np.zeros(BINS, dtype=np.int64)
    for wait in waits:
        bins[0 if wait <= FIRST_BIN else 1 + int(math.log(wait / FIRST_BIN) / RESOLUTION)] += 1
    return bins


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_of_waits_are_exact_to_half_a_percent(waits: list[float], share: float) -> None:
    exact = sorted(waits)[max(0, math.ceil(share * len(waits) - 1e-9) - 1)]
    assert wait_at(bins_of(waits), share) == pytest.approx(exact, rel=0.00502)


def test_no_wait_and_no_request() -> None:
    assert wait_at(bins_of([0.0, 0.0, 5.0]), 0.5) == 0.0
    assert math.isnan(wait_at(bins_of([]), 0.5))


def one_node(requests: list[int], capacity: int, step: int = 10) -> Trace:
    return Trace(
        nodes=("a", "b"),
        arrivals=np.array([[count, 0] for count in requests]),
        capacity=np.full((len(requests), 2), capacity),
        times=np.arange(len(requests)) * step,
        clock="utc",
    )


def test_waits_are_in_seconds_and_later_than_the_deadline() -> None:
    load = one_node([6, 0, 0, 0], 2)
    result = rehearsed(load, ["local"], queue=9, deadline=10, window=4)
    waits = result.summaries[0].waits
    sums = result.sums["local"]
    assert sums.counts["started"][0] == 6  # a request each 5 s from the first one on
    assert waits.mean == pytest.approx(10 * sums.mean_wait[0])
    assert waits.late == sums.counts["late"][0] / 6
    assert waits.p50 is not None
    assert waits.p99 is not None
    # The last one comes within a step, and begins 25 s after the first one.
    assert 0 < waits.p50 < 12.5 < 15 < waits.p99 < 25
    assert 0 < waits.late < 1
    shown(result.about()[4], "10 s")


def test_waits_of_whole_steps_are_exact() -> None:
    load = one_node([6, 0, 0, 0], 2)
    result = rehearsed(load, ["local/equal"], queue=9, service="step", window=4)
    waits = result.summaries[0].waits
    assert (waits.p50, waits.p95) == (10.0, 20.0)  # two requests after 0, 1 and 2 steps
    assert result.promises == {}
    assert result.verdict() == []
    shown(result.about()[2], "step")


def test_without_a_served_request_there_are_no_waits() -> None:
    load = one_node([3, 3, 0, 0], 1)
    load = dataclasses.replace(load, capacity=np.array([[0, 1]] * 4))
    result = rehearsed(load, ["local", "local/equal"], queue=0, window=4)
    for summary in result.summaries:
        assert summary.waits.p50 is summary.waits.late is summary.waits.mean is None
    assert "nan" not in printed(result)
    assert "nan" not in result.texts()["report.html"].lower().split("<script>")[0]


def test_hours_divide_the_waits_of_a_day(result: Rehearsal) -> None:
    for policy, sums in result.sums.items():
        hours = result.by_hour(policy)
        assert hours is not None
        assert sums.waits.sum() == sums.counts["started"].sum()
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            for hour, wait in enumerate(hours[name]):
                assert wait == pytest.approx(3600 * wait_at(sums.waits[hour], share))


# --- The promise ---------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3), st.floats(0, 1e6))
def test_rounded_parts_sum_to_the_rounded_cost(parts: list[float], promised: float) -> None:
    cost = promised + sum(parts)
    named = dict(zip(("times", "competition", "latency"), parts, strict=True))
    promise = PromiseSummary(promised, Estimate(sum(parts), None, None), named)
    start, difference, whole = rounded_parts(promise, cost)
    assert start + difference == start + sum(whole) == round(cost)
    assert all(abs(a - b) < 1.5 for a, b in zip(parts, whole, strict=True))


def test_the_sentence_of_the_promise_has_its_figures(result: Rehearsal) -> None:
    plan = next(s for s in result.summaries if s.policy == "backlog=0.75/least")
    assert plan.promise is not None
    total = plan.promise.cost + sum(plan.promise.parts.values())
    assert total == pytest.approx(plan.cost.mean)
    promised, difference, parts = rounded_parts(plan.promise, plan.cost.mean)
    sentence = result.verdict()[-1]
    values = [f"{part:+,}" for part in parts]
    shown(sentence, plan.policy, f"{promised + difference:,}", f"{abs(difference):,}", *values)
    assert parts[2] != 0  # latency
    shown(printed(result), f"{promised:,}", *values)


def test_the_cheapest_policy_is_named_with_its_saving_and_its_knowledge(result: Rehearsal) -> None:
    best = result.summaries[0]
    other = result.summaries[1] if best.policy == "local" else best
    assert other.difference is not None
    sentence = result.verdict()[0]
    shown(sentence, best.policy, number(best.cost.mean), number(abs(other.difference.mean)))
    shown(sentence, best.needs, "95 %")


# --- Screens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [5, 20, 34])
@pytest.mark.parametrize("scale", [1.0, 1e5])
def test_tables_fit_into_80_columns(result: Rehearsal, length: int, scale: float) -> None:
    def renamed(mapping: dict[str, Any]) -> dict[str, Any]:
        return {name.ljust(length, "x")[:length]: value for name, value in mapping.items()}

    large = dataclasses.replace(
        result,
        sums=renamed(result.sums),
        needs=renamed(result.needs),
        promises={
            name: Promise(scale * plan.cost, {k: scale * v for k, v in plan.parts.items()})
            for name, plan in renamed(result.promises).items()
        },
        costs={name: scale * cost for name, cost in renamed(result.costs).items()},
    )
    for table in large.tables():
        assert Console(width=1000).measure(table).maximum <= 80
    cost = number(large.summaries[0].cost.mean)
    shown(printed(large), cost)  # the cost is never left out


def test_numbers_in_words() -> None:
    assert [number(v) for v in (0.0, 4.25, 100.4, 1509.08)] == ["0", "4.2", "100", "1,509"]
    assert [signed(v) for v in (-930.1, 0.0, -0.01, 148.2)] == ["-930", "+0", "+0.0", "+148"]
    assert [time_text(v) for v in (None, 0.0, 0.012, 9.98, 271.3)] == [
        *("", "0", "0.012", "10.0", "271")
    ]
    assert [percent(v) for v in (None, 0.0881)] == ["", "8.81"]


def test_lines_name_settings_and_the_knowledge_of_every_policy(result: Rehearsal) -> None:
    text = "\n".join(result.lines())
    shown(text, result.trace.name, "14 days", "queue=8", "link_limit=9", "60 s", *POLICIES)
    for need in result.needs.values():
        assert need in text
    reported = rehearsed(days(1), report_period=30.0, report_age=90.0, servers=3, places=2)
    shown("\n".join(reported.about()), "30 s", "90 s", "3 servers", 2)
    drawn = rehearsed(days(1), work="exponential", times="poisson", seed=5)
    shown("\n".join(drawn.about()), "exponential", "Poisson", 5)


def test_lines_of_a_log_state_no_drawn_times_and_no_equal_work() -> None:
    log = log_of(sizes=True)
    load = trace_of(log, capacity=None)
    result = corral.rehearse(load, ["local"], requests=log, window=12, capacity="1.5x")
    text = "\n".join(result.about())
    assert not re.search("uniform|work 1", text)
    assert text.count("request log") == 2
    assert (result.has_log, result.has_sizes) == (True, True)
    plain = corral.rehearse(trace_of(log_of()), ["local"], requests=log_of(), window=12)
    assert (plain.has_log, plain.has_sizes) == (True, False)


def test_a_single_policy_is_compared_with_none() -> None:
    result = rehearsed(days(6), ["room"])
    (summary,) = result.summaries
    assert summary.difference is None
    assert summary.cost.low is not None
    assert result.verdict() == []
    assert result.tables()[0].row_count == 1


# --- Files ---------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_policy_and_window(result: Rehearsal) -> None:
    table = result.to_dataframe()
    assert len(table) == 3 * 14
    for policy, rows in table.groupby("policy"):
        sums = result.sums[str(policy)]
        assert rows["lost"].sum() == sums.counts["lost"].sum()
        held = rows["served"] + rows["lost"] + rows["held"] + rows["in_flight"]
        assert (rows["arrivals"] == held).all()
        assert (rows["first_row"] == DAY * rows["window"]).all()
        baseline = result.costs["local"]
        assert rows["difference"].to_numpy() == pytest.approx(rows["cost"].to_numpy() - baseline)
    plans = table[table["policy"] == "backlog=0.75/least"]
    parts = plans[["promise", "times", "competition", "latency"]].sum(axis=1)
    assert parts.to_numpy() == pytest.approx(plans["cost"].to_numpy())
    assert table[table["policy"] == "local"]["promise"].isna().all()


def test_files_have_the_figures(result: Rehearsal, tmp_path: Path) -> None:
    paths = result.write(tmp_path)
    assert set(paths) == {"rehearsal.json", "rehearsal.csv", "report.html"}
    values = strict_json(paths["rehearsal.json"].read_text())
    assert values == json.loads(json.dumps(result.to_json()))
    assert values["baseline"] == "local"
    assert values["trace"]["rows"] == [0, 14 * DAY]
    assert values["setting"]["latency"] == 60.0
    by_policy = {row["policy"]: row for row in values["policies"]}
    for summary in result.summaries:
        row = by_policy[summary.policy]
        assert row["cost"]["mean"] == summary.cost.mean
        assert row["waits"]["p95"] == summary.waits.p95
        assert len(row["by_hour"]["p95"]) == 24
    assert by_policy["local"]["promise"] is None
    with paths["rehearsal.csv"].open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3 * 14


def test_the_page_has_tables_and_three_charts(result: Rehearsal) -> None:
    text = result.texts()["report.html"]
    assert text.count("<figure>") == 3  # p95 and p50 by hour, and the distribution
    for summary in result.summaries:
        shown(text, number(summary.cost.mean), time_text(summary.waits.p95))
    curves = re.findall(r'<path class="c\d" d="M[^"]+" data-policy="([^"]+)"', text)
    assert sorted(curves) == sorted(3 * POLICIES)
    assert "nan" not in "".join(re.findall(r' d="([^"]*)"', text)).lower()


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    result = rehearsed(days(1), {hostile: "local", "other": "room"})
    page = result.texts()["report.html"]
    assert hostile not in page
    assert "&lt;script&gt;alert(1)" in page


def test_units_of_a_deadline() -> None:
    result = rehearsed(days(1), ["local"], deadline=90.0)
    units = Units.of(result.trace, result.setting, result.window, result.windows)
    assert (units.step, units.deadline, units.time) == (3600.0, 90.0, "s")


# --- Processes -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_give_the_same_result() -> None:
    load, policies = days(3), [*POLICIES, "choices"]
    one, two = (rehearsed(load, policies, jobs=jobs, latency=60.0) for jobs in (1, 2))
    assert list(one.sums) == list(two.sums)
    assert one.to_json() == two.to_json()
    assert one.to_dataframe().equals(two.to_dataframe())


def test_processes_need_policies_by_name() -> None:
    class Own:
        def choose(self, request: Any) -> str:
            return str(request.node)

    with refused(TypeError, "Own", "jobs"):
        rehearsed(days(1), [Own(), "local"], jobs=2)
    with refused(ValueError, "jobs", 0):
        rehearsed(days(1), jobs=0)
