"""Rows of a load are divided: training, validation and those held out never meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from corral.data import Trace
from corral.envs import make_rules
from corral.envs.batch import Batch
from corral.envs.core import shares_of, split_of, windows_of
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.rows import Section, divide
from support.loads import small_trace
from support.messages import refused

SHARES = st.floats(0, 1, exclude_max=True)


def rows_of(section: Section) -> set[int]:
    return set(range(*section))


# --- Shares --------------------------------------------------------------------------------------


@given(
    length=st.integers(1, 600),
    window=st.integers(1, 80),
    held_out=st.none() | st.floats(0.01, 0.99),
    validation=st.none() | SHARES,
    first=st.integers(0, 90),
)
@example(length=4032, window=288, held_out=None, validation=None, first=0)
@example(length=20, window=7, held_out=None, validation=0.99, first=0)
def test_the_three_parts_never_meet(
    length: int, window: int, held_out: float | None, validation: float | None, first: int
) -> None:
    before = divide(length, window, held_out=held_out, validation=0)
    assert before.validation is None
    try:
        parts = divide(length, window, held_out=held_out, validation=validation, first=first)
    except ValueError:  # a share was asked for, and there is no room: never by default
        assert validation
        assert (before.train[1] - first) // window < 2
        return
    assert parts.held_out == before.held_out
    if parts.validation is None:
        assert parts.train == before.train
        assert validation == 0 or (before.train[1] - first) // window < 2
        return
    train, own = rows_of(parts.train), rows_of(parts.validation)
    assert train.isdisjoint(own)
    assert train | own == rows_of(before.train)  # nothing is lost
    assert max(train) < min(own)  # the last ones
    assert len(own) % window == 0
    assert len(own) >= window
    assert len(train) >= first + window
    if parts.held_out != (0, length):
        assert own.isdisjoint(rows_of(parts.held_out))
        assert max(own) < length
    share = 0.2 if validation is None else validation
    asked = share * len(rows_of(before.train))
    if window < len(own) and len(train) >= first + 2 * window:
        assert abs(len(own) - asked) <= window / 2 + 1e-6  # as near as whole windows come


@given(
    low=st.integers(0, 60),
    size=st.integers(1, 60),
    after=st.integers(0, 30),
    window=st.integers(1, 30),
)
def test_rows_that_are_chosen_are_divided_too(low: int, size: int, after: int, window: int) -> None:
    rows = (low, low + size)
    parts = divide(low + size + after, window, rows)
    assert parts.held_out == ((low + size, low + size + after) if after else rows)
    assert rows_of(parts.train) <= rows_of(rows)
    if parts.validation is None:
        assert parts.train == rows
        assert size < 2 * window
    else:
        assert parts.train[1] == parts.validation[0]
        assert parts.validation[1] == rows[1]


@pytest.mark.parametrize(
    ("length", "window", "validation", "train", "kept"),
    [
        (4032, 288, None, (0, 2246), (2246, 2822)),  # two days of 2822 rows: 20.4 %
        (4032, 48, None, (0, 2246), (2246, 2822)),
        (4032, 100, None, (0, 2222), (2222, 2822)),
        (4032, 288, 0.5, (0, 1382), (1382, 2822)),
        (4032, 288, 0.999, (0, 518), (518, 2822)),  # a window is left to train on
        (4032, 1411, None, (0, 1411), (1411, 2822)),
        (4032, 1412, None, (0, 2822), None),
        (4032, 288, 0, (0, 2822), None),
        (40, 12, None, (0, 16), (16, 28)),
    ],
)
def test_whole_windows(
    length: int, window: int, validation: Any, train: Section, kept: Section | None
) -> None:
    assert divide(length, window, validation=validation)[:2] == (train, kept)


# --- Rows ----------------------------------------------------------------------------------------


@given(
    low=st.integers(0, 99),
    high=st.integers(1, 100),
    window=st.integers(1, 20),
    rows=st.none() | st.tuples(st.integers(0, 99), st.integers(1, 100)),
    held_out=st.none() | st.tuples(st.integers(0, 99), st.integers(1, 100)),
)
def test_rows_for_validation(
    low: int, high: int, window: int, rows: Section | None, held_out: Section | None
) -> None:
    assume(low < high and all(each is None or each[0] < each[1] for each in (rows, held_out)))
    try:
        parts = divide(100, window, rows, held_out, (low, high))
    except ValueError:
        return
    assert parts.validation == (low, high)
    assert high - low >= window
    assert rows_of(parts.train)
    assert rows_of(parts.train).isdisjoint(rows_of(parts.validation))
    assert rows is None or rows_of(parts.train) <= rows_of(rows)


@pytest.mark.parametrize(
    ("validation", "train"),
    [((10, 20), (0, 10)), ((0, 10), (10, 70)), ((50, 60), (0, 50)), ([60, 70], (0, 60))],
)
def test_training_keeps_the_longer_part(validation: Any, train: Section) -> None:
    assert divide(100, 10, validation=validation) == (
        (train if validation != (10, 20) else (20, 70)),
        tuple(validation),
        (70, 100),
    )


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"validation": 1}, ("validation=1", 0, 1)),
        ({"validation": float("nan")}, ("validation=nan", 0, 1)),
        ({"validation": -0.1}, ("validation=-0.1", 0, 1)),
        ({"validation": (5, 500)}, ("validation=(5, 500)", "(low, high)", "0..100")),
        ({"validation": (5, 6, 7)}, ("validation=(5, 6, 7)", "(low, high)", "0..100")),
        ({"validation": (5, 14)}, ("validation=(5, 14)", "10 steps", "max_cycles")),
        ({"validation": (65, 75)}, ("validation=(65, 75)", "70:100")),
        ({"validation": (0, 70)}, ("validation=(0, 70)", "0:70")),
        (
            {"validation": 0.2, "rows": (0, 19)},
            ("validation=0.2", "0:19", "10 steps", "max_cycles", "validation=0"),
        ),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        divide(100, 10, **given)


def test_rows_judged_again_may_be_validated_on() -> None:
    """Where nothing is really held out, validation is within what is judged."""
    parts = divide(100, 10, held_out=0, validation=(80, 100))
    assert parts == ((0, 80), (80, 100), (0, 100))


# --- In the rules --------------------------------------------------------------------------------


def numbered(length: int) -> Trace:
    """A load whose arrivals say their row: row t has t + 1."""
    arrivals = np.stack([np.arange(1, length + 1)] * 2, axis=1)
    return Trace(("one", "two"), arrivals, np.full_like(arrivals, length), np.arange(length))


def rows_played(rules: Any, num_envs: int, steps: int) -> list[list[int]]:
    """Rows that B environments meet, [T][B]: counted from the trace's first."""
    batch = Batch(rules, num_envs, seed=3)
    batch.reset()
    idle = np.zeros((num_envs, 2), dtype=np.int64)
    return [(batch.step(idle).info["arrivals"][:, 0] - 1).tolist() for _ in range(steps)]


def test_training_meets_no_row_of_validation_though_its_windows_wrap() -> None:
    load = numbered(60)
    rules = DfaasRules(load, max_cycles=7)
    split = split_of(rules, None, None)
    assert split is not None
    assert split.train["rows"] == (0, 35)
    assert split.validation == {"rows": (35, 42)}
    train = DfaasRules(**{**split.train, "max_cycles": 7})
    met = rows_played(train, 200, 14)
    assert {row for rows in met for row in rows} == set(range(35))
    steps = np.array(met)  # [T, B]
    assert ((steps[:-1] == 34) & (steps[1:] == 0)).any()  # some wrap


def test_validation_plays_each_of_its_windows_once() -> None:
    load = numbered(100)
    rules = DfaasRules(load, rows=(30, 60), max_cycles=9)
    found = windows_of(rules, 50)
    assert found is not None
    windows, count = found
    assert count == 3
    met = np.array(rows_played(windows, count, 9))  # [T, B]
    assert met.T.ravel().tolist() == list(range(30, 57))
    some = windows_of(rules, 2)
    assert some is not None
    assert some[1] == 2
    assert rows_played(some[0], 2, 1) == [[30, 48]]
    assert rules.start_row is None  # the rules given are as they were


def test_where_every_episode_starts_at_one_row_validation_does_not() -> None:
    rules = DfaasRules(small_trace(steps=60), max_cycles=5, start=10)
    split = split_of(rules, None, None)
    assert split is not None
    assert split.train["rows"] == (0, 32)
    assert split.validation == {"rows": (32, 42), "start": "random"}
    late = DfaasRules(small_trace(steps=60), max_cycles=5, start=36)
    split = split_of(late, None, None)
    assert split is not None
    assert split.train["rows"] == (0, 42)
    assert split.validation == {}  # the one window of training takes the last rows


def test_shares_of_all_requests() -> None:
    rules = DfaasRules(small_trace(), forward_cost=0.5, wait_cost=0.25)
    info = {
        "arrivals": np.array([10, 30]),
        "served_local": np.array([5, 10]),
        "served_remote": np.array([1, 4]),
        "lost": np.array([2, 10]),
        "forwarded": np.array([2, 4]),
        "waiting": np.array([4, 8]),
    }
    shares = shares_of(rules, info)
    assert shares == {"served": 0.5, "lost": 0.3, "forwarded": 0.15, "cost": (12 + 3 + 3) / 40}
    assert shares_of(make_rules("arena_v0"), info) == {}
    assert windows_of(make_rules("arena_v0"), 3) is None
