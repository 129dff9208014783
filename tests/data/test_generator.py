"""Made traces: repeatable, as the options say, and the bundled ones worth balancing."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from corral.data import TraceSpec, load_trace, make_trace
from corral.data.generator import EDGE3, EDGE8
from support.messages import refused

QUIET = {
    "noise": 0.0,
    "bursts": 0.0,
    "flash_crowds": (0, 0),
    "maintenance": 0.0,
    "spread": 0.0,
    "uneven": 0.0,
    "largest": 10**6,
}


def test_a_small_trace_has_a_literal_digest():
    trace = make_trace(nodes=2, days=1, step=3600, seed=5)
    assert trace.arrivals[:6].tolist() == [
        [100, 18],
        [100, 59],
        [51, 38],
        [100, 22],
        [100, 13],
        [100, 5],
    ]
    assert trace.digest == "ff3e628370456ca1aa2a7832c16ba2ee1f69cc7dc9bfa2f8220ffb37d7e0e98c"


@pytest.mark.parametrize(("name", "spec"), [("edge3", EDGE3), ("edge8", EDGE8)])
def test_bundled_traces_come_from_their_spec(name, spec):
    assert make_trace(spec) == load_trace(name)
    assert make_trace(spec, seed=spec.seed + 1) != load_trace(name)


@pytest.mark.parametrize(("name", "nodes"), [("edge3", 3), ("edge8", 8)])
def test_bundled_traces_are_worth_balancing(name, nodes):
    trace = load_trace(name)
    assert trace.arrivals.shape == (4032, nodes)
    assert trace.capacity is not None
    assert (trace.step, trace.steps_per_day) == (300, 288)
    assert max(trace.arrivals.max(), trace.capacity.max()) <= 100
    cut = int(0.7 * len(trace))
    for rows in (slice(None), slice(cut), slice(cut, None)):
        load, capacity = trace.arrivals[rows], trace.capacity[rows]
        local = np.minimum(load, capacity).sum() / load.sum()
        pooled = np.minimum(load.sum(axis=1), capacity.sum(axis=1)).sum() / load.sum()
        assert 0.75 < local < 0.90
        assert 0.95 < pooled < 0.995
    over = trace.arrivals > trace.capacity
    assert (over.any(axis=1) & ~over.all(axis=1)).mean() > 0.5  # some overloaded, others not
    assert over.mean(axis=0).min() > 0.1  # and every node is, at times


def test_the_same_spec_makes_the_same_trace_and_another_seed_another():
    assert make_trace(seed=1, days=2) == make_trace(TraceSpec(seed=1, days=2))
    assert make_trace(seed=1, days=2) != make_trace(seed=2, days=2)


def test_every_option_matters():
    base = TraceSpec(days=7, step=300, largest=60, seed=2)
    other = {
        "nodes": 4,
        "days": 8,
        "step": 3600,
        "start": "2026-01-06",
        "names": ("x", "y", "z"),
        "largest": 50,
        "flash_crowds": (1, 1),
    }
    for field in fields(TraceSpec):
        value = getattr(base, field.name)
        changed = other.get(field.name, value * 0.5 if isinstance(value, float) else value + 1
                            if isinstance(value, int) else None)  # fmt: skip
        assert make_trace(base) != make_trace(base, **{field.name: changed}), field.name


def test_turning_a_feature_off_leaves_the_other_draws_alone():
    base = TraceSpec(days=3, flash_crowds=(0, 0), maintenance=0.0)
    more = make_trace(replace(base, maintenance=5.0))
    assert (more.arrivals == make_trace(base).arrivals).all()
    assert (more.capacity < make_trace(base).capacity).any()


def test_daily_and_weekly_waves():
    trace = make_trace(days=28, nodes=1, mean=1000.0, daily=0.5, weekend=0.6, **QUIET)
    by_day = trace.arrivals.reshape(28, 288).sum(axis=1)
    ratio = by_day[[5, 6, 12, 13]].mean() / by_day[[0, 1, 2, 3, 4]].mean()
    assert ratio == pytest.approx(0.6, abs=0.01)
    assert by_day[:7].mean() / 288 == pytest.approx(1000, rel=0.01)
    profile = trace.arrivals.reshape(28, 288).mean(axis=0) / 1000
    hour = np.arange(288) / 12
    angle = 2 * np.pi * (hour - 14) / 24
    wave = 1 + 0.5 * np.cos(angle) + 0.125 * np.cos(2 * angle)
    assert profile == pytest.approx(wave, abs=0.05)


def test_peaks_are_spread_over_the_nodes():
    trace = make_trace(days=28, nodes=3, mean=1000.0, peak_spread=18.0, **QUIET)
    profile = trace.arrivals.reshape(28, 24, 12, 3).sum(axis=(0, 2))  # [24, 3]
    assert profile.argmax(axis=0).tolist() in ([7, 13, 19], [8, 14, 20], [8, 13, 19], [7, 14, 20])


def test_noise_has_the_memory_and_the_shared_part_asked_for():
    options = QUIET | {"noise": 0.3, "daily": 0.0, "weekend": 1.0, "mean": 10_000.0}
    trace = make_trace(nodes=4, days=40, memory=0.8, shared=0.25, **options)
    log = np.log(trace.arrivals)
    assert log.std() == pytest.approx(0.3, rel=0.05)
    assert trace.arrivals.mean() == pytest.approx(10_000, rel=0.02)
    for node in range(4):
        assert np.corrcoef(log[1:, node], log[:-1, node])[0, 1] == pytest.approx(0.8, abs=0.03)
    between = np.corrcoef(log.T)[np.triu_indices(4, 1)]
    assert between.mean() == pytest.approx(0.25, abs=0.05)


def test_bursts_are_as_many_and_as_large_as_asked_for():
    options = QUIET | {"bursts": 2.0, "daily": 0.0, "weekend": 1.0, "mean": 10_000.0}
    trace = make_trace(nodes=2, days=100, burst_size=4.0, burst_minutes=20.0, **options)
    extra = trace.arrivals / 10_000 - 1
    # 2 bursts a day x 4 steps of 288 x size 4
    assert extra.mean() == pytest.approx(2 * 4 / 288 * 4, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_flash_crowds_fall_into_both_parts(seed):
    options = QUIET | {"flash_crowds": (2, 1), "mean": 100.0, "daily": 0.0, "weekend": 1.0}
    trace = make_trace(nodes=3, days=14, seed=seed, flash_size=5.0, **options)
    cut = int(0.7 * len(trace))
    assert (trace.arrivals[:cut].max(axis=0) > 400).all()
    assert (trace.arrivals[cut:].max(axis=0) > 400).all()
    none = make_trace(nodes=3, days=14, seed=seed, **(options | {"flash_crowds": (0, 0)}))
    assert none.arrivals.max() < 200


def test_capacity_follows_in_steps_and_sinks_in_maintenance():
    options = QUIET | {"mean": 1000.0, "headroom": 1.5}
    still = make_trace(days=7, scaling=0.0, **options)
    assert (still.capacity == 1500).all()
    following = make_trace(days=7, scaling=1.0, scaling_hours=6.0, **options)
    levels = following.capacity.reshape(28, 72, 3)  # six hours are 72 steps
    assert (levels == levels[:, :1]).all()
    assert len(np.unique(levels[:, 0, 0])) >= 4
    down = make_trace(days=70, scaling=0.0, nodes=2, **(options | {"maintenance": 3.0}))
    assert set(np.unique(down.capacity)) == {600, 1500}
    share = (down.capacity == 600).mean()
    assert share == pytest.approx(3 * 2 / (7 * 24), rel=0.35)


def test_total_capacity_is_headroom_times_load():
    trace = make_trace(
        nodes=5, maintenance=0.0, scaling=0.0, largest=10**6, headroom=1.25, mean=1e3
    )
    assert trace.capacity.sum(axis=1).mean() == pytest.approx(1.25 * 5000, rel=0.001)
    assert np.unique(trace.capacity, axis=0).shape == (1, 5)
    assert len(np.unique(trace.capacity[0])) >= 4


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 0},
        {"step": 7},
        {"days": 0},
        {"daily": 0.8},
        {"memory": 1.0},
        {"noise": -0.1},
        {"noise": float("nan")},
        {"mean": float("inf")},
        {"start": "yesterday"},
        {"start": "60"},
        {"names": ("a",)},
        {"scaling": 1.5},
        {"flash_crowds": (1, 2, 3)},
        {"flash_crowds": (-1, 2)},
        {"seed": -1},
        {"nodes": 2.5},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options):
    with refused(ValueError, next(iter(options))):
        TraceSpec(**options)


def test_an_unknown_option_is_refused():
    with pytest.raises(TypeError, match="nodse"):
        make_trace(nodse=3)
