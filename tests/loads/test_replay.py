"""Replays: every row is played once, shares add up, and nothing beats the optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.data import Trace, load_trace
from corral.envs.dfaas_v0 import ROUTES, DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, PAIRS, baseline_team
from corral.envs.policy import Decision
from corral.errors import ScaleError, TraceError, UnknownNameError
from corral.loads.replay import Replay, play_windows, replay
from corral.loads.text import describe, optimum_part, ordered, score_tables
from support.messages import refused, shown
from support.thinned import fast_every

HARD: dict[str, Any] = {
    "second_offer": False,
    "forward_cost": 0.2,
    "wait_cost": 0.05,
    "queue": 7,
    "link_limit": 4,
}


def random_trace(steps: int = 100, nodes: int = 3, seed: int = 0, step: int = 1) -> Trace:
    rng = np.random.default_rng(seed)
    return Trace(
        nodes=tuple(f"n{i}" for i in range(nodes)),
        arrivals=rng.integers(0, 21, (steps, nodes)),
        capacity=rng.integers(0, 21, (steps, nodes)),
        times=np.arange(steps) * step,
        clock="integer" if step == 1 else "utc",
    )


def score_of(result: Any, policy: str) -> Any:
    return next(score for score in result.scores if score.policy == policy)


def test_every_row_is_played_exactly_once() -> None:
    trace = random_trace(100)
    rules = DfaasRules(trace, max_cycles=30)
    played, series = play_windows(rules, baseline_team("local", rules), window=30)
    # Three whole windows and one of the ten rows that remain.
    assert played.infos["arrivals"].sum(axis=1).tolist() == [
        trace.arrivals[low : low + 30].sum() for low in (0, 30, 60, 90)
    ]
    served = np.minimum(trace.arrivals, trace.capacity)
    assert played.infos["served_local"].sum() == served.sum()
    np.testing.assert_array_equal(series.rows, np.arange(100))
    np.testing.assert_array_equal(series.counts["arrivals"], trace.arrivals)


def test_series_are_means_over_bins() -> None:
    trace = random_trace(6001, seed=3)
    rules = DfaasRules(trace, max_cycles=50)
    _, series = play_windows(rules, baseline_team("local", rules), window=50)
    assert series.width == 3
    assert len(series.rows) == 2001
    means = trace.arrivals[:6000].reshape(2000, 3, 3).mean(axis=1)
    np.testing.assert_allclose(series.counts["arrivals"][:2000], means)
    np.testing.assert_allclose(series.counts["arrivals"][2000], trace.arrivals[6000])


def test_local_and_overflow_have_their_closed_forms() -> None:
    trace = random_trace(200, seed=1)
    result = replay(trace, ["local/equal", "overflow/equal"], rows=(50, 200), window=40)
    a, c = trace.arrivals[50:], trace.capacity[50:]  # type: ignore[index]
    local = np.minimum(a, c).sum() / a.sum()
    pooled = np.minimum(a.sum(axis=1), c.sum(axis=1)).sum() / a.sum()
    assert score_of(result, "local/equal").served == pytest.approx(local)
    assert score_of(result, "overflow/equal").served == pytest.approx(pooled)
    assert score_of(result, "optimum").served == pytest.approx(pooled)
    assert score_of(result, "overflow/equal").share_of_optimum == pytest.approx(1.0)
    assert score_of(result, "local/equal").share_of_optimum == pytest.approx(local / pooled)
    assert result.optimum_method == "closed form"
    assert (result.windows, result.remainder) == (3, 30)


@pytest.mark.parametrize("seed", fast_every(3, range(3)))
def test_no_policy_beats_the_optimum(seed: int) -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    pairs = [f"{amount}/{route}" for amount in AMOUNTS for route in ROUTES if route != "choose"]
    for settings in (HARD, {"queue": 3}, {"second_offer": False, "reward": "team"}):
        result = replay(random_trace(60, seed=seed), pairs, window=20, **settings)
        shares = [score.share_of_optimum for score in result.scores]
        assert len(shares) == len(pairs) + 1
        assert all(share is not None and share <= 1 + 1e-9 for share in shares)
        assert min(shares) < 0.95  # so that the bound is not met by everybody


def test_shares_and_costs_add_up() -> None:
    result = replay(random_trace(90), PAIRS, window=15, optimum_windows=0, **HARD)
    assert len(result.scores) == len(PAIRS)  # no optimum was asked for
    for score in result.scores:
        assert score.share_of_optimum is None
        assert score.illegal_actions == 0
        # With a queue, what still waits at a window's end is neither served nor lost.
        assert score.served + score.lost <= 1 + 1e-12
        load = result.trace.arrivals.sum()
        waiting = score.mean_waiting * result.trace.arrivals.size / load
        cost = score.lost + 0.2 * score.forwarded + 0.05 * waiting
        assert score.cost == pytest.approx(cost)
        assert score.cost_low <= score.cost <= score.cost_high
        # The mean return per window is minus the cost in units of load_scale.
        returned = -score.return_team * 6 * DfaasRules(result.trace).load_scale
        assert returned == pytest.approx(score.cost * load, rel=1e-5)


def test_windows_are_days_where_the_clock_has_days() -> None:
    daily = replay(random_trace(60, step=3600), ["local"])
    assert (daily.window, daily.windows, daily.remainder) == (24, 2, 12)
    assert replay(random_trace(600), ["local"]).window == 288
    assert replay(random_trace(40), ["local"]).window == 40  # shorter than a window


def test_the_same_seed_repeats_a_replay() -> None:
    trace = random_trace(80)
    first, same, other = (
        replay(trace, ["random/two"], window=20, seed=seed, second_offer=False)
        for seed in (1, 1, 2)
    )
    assert first.scores == same.scores
    assert first.scores[0].lost != other.scores[0].lost


def test_without_scipy_the_optimum_is_missing_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scipy.optimize", None)
    result = replay(random_trace(40), ["local"], window=20, queue=5)
    assert result.optimum_windows == ()
    assert "'.[optimum]'" in result.optimum_method
    assert result.scores[0].share_of_optimum is None


class Half:
    """A policy of a user's own: half of the largest legal amount."""

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        return Decision((observation["action_mask"].sum(axis=-1, dtype=np.int64) - 1) // 2)


def test_a_policy_of_ones_own_plays_beside_the_others() -> None:
    trace = random_trace(60)
    result = replay(trace, {"half": Half(), "reference": "overflow/two"}, window=20, route="spare")
    assert [score.policy for score in result.scores] == ["half", "reference", "optimum"]
    half = score_of(result, "half")
    assert half.forwarded == (trace.arrivals // 2).sum() / trace.arrivals.sum()
    alone = replay(trace, ["overflow/two"], window=20)
    assert score_of(result, "reference").served == score_of(alone, "overflow/two").served
    by_route = {
        route: replay(trace, {"half": Half()}, window=20, route=route, second_offer=False)
        for route in ("equal", "shortest")
    }
    assert by_route["equal"].scores[0].served != by_route["shortest"].scores[0].served


def test_a_single_policy_may_be_a_text() -> None:
    assert replay(random_trace(30), "local").scores[0].policy == "local"
    with refused(ValueError, "policy"):
        replay(random_trace(30), [])


def test_intervals_cover_the_rows_that_the_figures_cover() -> None:
    """A last, shorter window counts for both: here it alone has any load."""
    arrivals = np.zeros((50, 2), dtype=int)
    arrivals[48:] = 10
    trace = Trace(
        nodes=("a", "b"), arrivals=arrivals, capacity=np.full((50, 2), 5), times=np.arange(50)
    )
    score = replay(trace, ["local"], window=8).scores[0]
    assert score.served == 0.5
    assert (score.served_low, score.served_high) == (0.5, 0.5)


def test_progress_reaches_its_end() -> None:
    calls: list[tuple[str, int, int]] = []
    replay(random_trace(50), ["local"], window=20, progress=lambda *call: calls.append(call))
    assert calls[-1] == ("optimum", 3, 3)
    assert ("local", 30, 30) in calls


@pytest.mark.parametrize(
    ("arguments", "error", "values"),
    [
        ({"policies": ["overflaw"]}, UnknownNameError, ("'overflaw'", "'overflow'")),
        ({"policies": ["overflow/nearest"]}, UnknownNameError, ("'nearest'", "'least'")),
        ({"window": 0}, ValueError, ("window=0", "1 step")),
        ({"rows": (50, 300)}, ValueError, ("rows=(50, 300)", "(low, high)", "100")),
        ({"queue": -1}, ValueError, ("queue=-1", "0")),
        ({"load_scale": 3}, ScaleError, ("load_scale=3", "load_scale=20")),
        ({"trace": "edge33"}, UnknownNameError, ("'edge33'", "'edge3'")),
    ],
)
def test_mistakes_are_explained(
    arguments: dict[str, Any], error: type[Exception], values: tuple[str, ...]
) -> None:
    given = {"trace": random_trace(100), "policies": ["local"], **arguments}
    with refused(error, *values):
        replay(given.pop("trace"), given.pop("policies"), **given)


def test_a_trace_without_capacity_asks_for_one() -> None:
    trace = random_trace(20)
    bare = Trace(nodes=trace.nodes, arrivals=trace.arrivals, capacity=None, times=trace.times)
    with refused(TraceError, "trace", "capacity=", "'1.25x'"):
        replay(bare, ["local"])
    assert replay(bare, ["local"], capacity="1.25x").trace.capacity is not None


# --- What is said of the optimum -----------------------------------------------------------------


def said_of_optimum(result: Replay) -> str:
    return next(line for line in describe(result) if line.startswith("Optimum:"))


@pytest.mark.parametrize(
    ("settings", "reaches"),
    [
        ({}, "overflow"),
        ({"wait_cost": 2.0, "reward": "team"}, "overflow"),  # nothing waits without a queue
        ({"forward_cost": 0.5}, None),  # overflow pays for what is refused
        ({"forward_cost": 2.0}, "local"),
        ({"forward_cost": 1.0, "max_level": 3, "second_offer": False}, "local"),
        ({"max_level": 3}, "overflow"),  # which is in single requests all the same
        ({"second_offer": False}, None),
    ],
)
def test_who_reaches_the_closed_form_is_said_where_it_is_so(
    settings: dict[str, Any], reaches: str | None
) -> None:
    result = replay(random_trace(90), PAIRS, window=30, **settings)
    assert result.optimum_method == "closed form"
    said = said_of_optimum(result)
    for amount in ("overflow", "local"):
        shares = [s.share_of_optimum for s in result.scores if s.policy.startswith(f"{amount}/")]
        assert (f"{amount} reaches it" in said) is (amount == reaches)
        # In this load, which is too much at times, nobody else does, and each of these does.
        assert all((share == pytest.approx(1)) is (amount == reaches) for share in shares)


def test_who_would_reach_the_optimum_is_no_row_of_the_table() -> None:
    trace = random_trace(60)
    shown(said_of_optimum(replay(trace, ["local"], window=30)), "overflow", "would")
    beside = replay(trace, ["local", "overflow/two"], window=30)
    assert "would" not in shown(said_of_optimum(beside), "overflow")


def test_the_losses_of_each_node_add_up() -> None:
    result = replay("edge3", ["local", "overflow"], rows=(0, 600))
    load = result.trace.arrivals[:600].sum(axis=0)
    for score in result.scores[:2]:
        for what in ("lost", "forwarded"):
            shares = getattr(score, f"{what}_by_node")
            assert list(shares) == ["node_0", "node_1", "node_2"]
            total = load @ np.array(list(shares.values())) / load.sum()
            assert total == pytest.approx(getattr(score, what))


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({}, ("lost / 100; 100",)),
        ({"forward_cost": 0.5}, ("(lost + 0.5 x forwarded) / 100",)),
        ({"reward": "team", "load_scale": 200}, ("team", "lost / 200 (load_scale)")),
        ({"queue": 5, "wait_cost": 2}, ("Cost: lost + 2 x waiting, in %",)),
        ({"queue": 5}, ("waiting", "window")),
        ({}, ("Of opt.", "(arrivals minus lost)")),
        ({}, ("node_0 milan, node_1 oslo, node_2 porto",)),
        ({}, ("1 window", 6)),
    ],
)
def test_the_screen_explains_its_columns(settings: dict[str, Any], values: tuple[str, ...]) -> None:
    trace = load_trace("edge3").section(0, 100)
    assert trace.arrivals.max() == 100
    result = replay(trace, ["local"], optimum_windows=1, **settings)
    shown(" ".join(describe(result)), *values)


def test_references_forward_to_the_request_whatever_the_load() -> None:
    """No mask has an entry for every request of a load of a million."""
    rng = np.random.default_rng(0)
    arrivals = rng.integers(1_000_001, size=(40, 3))
    arrivals[0, 0] = 1_000_000
    capacity = np.full((40, 3), 400_000)
    trace = Trace(nodes=("a", "b", "c"), arrivals=arrivals, capacity=capacity, times=np.arange(40))
    result = replay(trace, PAIRS, window=20, max_level=100)
    pooled = np.minimum(arrivals.sum(axis=1), 1_200_000).sum() / arrivals.sum()
    assert score_of(result, "overflow/equal").served == pytest.approx(pooled)
    assert score_of(result, "static/equal").forwarded == (arrivals * 2 // 5).sum() / arrivals.sum()
    assert 0.45 < score_of(result, "random/equal").forwarded < 0.55
    assert all(score.illegal_actions == 0 for score in result.scores)


def test_a_pair_that_would_have_to_name_neighbours_is_refused() -> None:
    with pytest.raises(ValueError, match="overflow/all-to-shortest"):
        replay(random_trace(), ["overflow/choose"])


def test_an_optimum_of_some_windows_stands_beside_the_same_windows_alone() -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    trace = random_trace(60)
    result = replay(trace, ["local", "overflow"], window=30, optimum_windows=1, **HARD)
    assert (result.optimum_windows, result.optimum_is_partial) == ((0,), True)
    alone = replay(trace, ["local", "overflow"], rows=(0, 30), window=30, **HARD)
    assert not alone.optimum_is_partial
    for name in ("local", "overflow", "optimum"):
        score, there = score_of(result, name), score_of(alone, name)
        assert score.cost_in_optimum_windows == pytest.approx(there.cost)
        assert there.cost_in_optimum_windows == pytest.approx(there.cost)
        assert score.share_of_optimum == pytest.approx(there.share_of_optimum)
    first, _, second, *_ = (list(table.columns[0].cells) for table in score_tables(result))
    assert first == [s.policy for s in ordered(result.scores) if s.policy != "optimum"]
    assert second[-1] == "optimum"
    shown(said_of_optimum(result), "1 window of 2")
    assert optimum_part(result) == "1 window of 2 (number 1)"  # the heading of their table


def test_a_shorter_last_window_has_an_optimum_too() -> None:
    pytest.importorskip("scipy", reason="the linear program needs scipy: corral[optimum]")
    result = replay(random_trace(50), ["local"], window=20, optimum_windows=3, **HARD)
    assert (result.optimum_windows, result.optimum_is_partial) == ((0, 1, 2), False)
    table, _, returns, *_ = score_tables(result)
    assert list(table.columns[0].cells) == ["local", "optimum"]
    local = score_of(result, "local")
    assert [list(column.cells) for column in returns.columns] == [
        [text]
        for text in ("local", *(f"{x:.4g}" for x in (local.return_team, *local.returns.values())))
    ]
    shown(said_of_optimum(result), "all windows")
