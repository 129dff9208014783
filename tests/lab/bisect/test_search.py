"""Delta debugging and the sequential tests, without any training."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

from corral.errors import StudyError
from corral.lab.bisect.driver import Trainings, bisected
from corral.lab.bisect.result import Bisection
from corral.lab.bisect.search import smallest
from corral.lab.bisect.sequential import ALPHA, Boundary, better, rank_p
from corral.lab.bisect.sides import Difference
from corral.lab.bisect.training import FAILED
from support.messages import refused, shown


@pytest.mark.parametrize("cause", [{0}, {7}, {19}, {3, 16}, {3, 4}, {0, 9, 19}, set(range(20))])
def test_the_smallest_set_is_found(cause: set[int]) -> None:
    tests: list[frozenset[int]] = []

    def fails(chosen: frozenset[int]) -> bool:
        tests.append(chosen)
        return cause <= chosen

    assert smallest(range(20), fails) == cause
    if len(cause) <= 2:
        assert len(tests) <= 4 * len(cause) * math.log2(20)


def test_one_of_two_independent_causes_is_found() -> None:
    assert smallest(range(8), lambda chosen: bool({2, 6} & chosen)) in ({2}, {6})


def test_a_set_that_does_not_fail_is_not_returned() -> None:
    failing = [{0, 1, 2, 3}, {0, 2, 3}, {0, 1, 2}]  # 0 and 2 look necessary, and do not suffice
    assert smallest(range(4), lambda chosen: set(chosen) in failing) is None


def test_rank_sums_are_counted_exactly() -> None:
    assert rank_p([4, 5, 6], [1, 2, 3]) == pytest.approx(1 / 20)
    assert rank_p([1, 2, 3], [4, 5, 6]) == 1
    assert rank_p([1, 1], [1, 1]) == 1
    assert rank_p([2, 1], [1, FAILED]) == pytest.approx(
        2 / 6
    )  # the ranks 4 and 2.5 of 1, 2.5, 2.5, 4


def test_ranks_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats", reason="needs the extra optimum")
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.normal(0.5, 1, 6), rng.normal(0, 1, 5)
        expected = stats.mannwhitneyu(first, second, alternative="greater", method="exact").pvalue
        assert rank_p(first.tolist(), second.tolist()) == pytest.approx(expected)


def test_equal_sides_are_rarely_called_different() -> None:
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(200):
        scores = rng.normal(size=(2, 8))
        called += better(lambda s, v=scores: v[0, s], lambda s, v=scores: v[1, s])[0]
    assert called / 200 <= ALPHA


def test_the_sequential_test_keeps_its_error() -> None:
    """The family-wise error of ten tests, with scores of the side that the boundary expects."""
    rng = np.random.default_rng(2)
    wrong, seeds = 0, []
    for _ in range(300):
        boundary = Boundary(0.0, low_if_good=0.2, low_if_bad=0.8)
        for bad in (True, False) * 5:
            used = itertools.count()

            def score(seed: int, bad: bool = bad, used: itertools.count[int] = used) -> float:
                next(used)
                return -1.0 if rng.random() < (0.8 if bad else 0.2) else 1.0

            if boundary.is_bad(score) is (not bad):
                wrong += 1
                break
            seeds.append(next(used))
    assert wrong / 300 <= ALPHA
    assert 3 <= np.mean(seeds) <= 10


def test_the_boundary_lies_in_the_widest_gap() -> None:
    boundary = Boundary.between([8, 9, 7, 8], [1, 2, FAILED, 3])
    assert (boundary.cut, boundary.low_if_good, boundary.low_if_bad) == (5, 0.1, 0.9)
    assert Boundary.between([1, 2], [FAILED, FAILED]).cut == 1


# --- The whole search, with invented trainings ---------------------------------------------------


class Invented:
    """Trainings with a score of about 10, or about 0 with all differences of a cause."""

    def __init__(self, *causes: str, misfit: str = "", count: int = 21, noise: float = 1.0) -> None:
        self.differences = tuple(Difference("setting", chr(97 + i), "1", "2") for i in range(count))
        self.causes, self.misfit, self.noise = [set(cause) for cause in causes], misfit, noise
        self.trained = 0

    def score(self, bad: Collection[Difference], seed: int) -> float | None:
        names = {difference.name for difference in bad}
        self.trained += 1
        if self.misfit and names == set(self.misfit):
            return None
        low = any(cause <= names for cause in self.causes)
        code = sum(ord(name) for name in names) + 1_000 * seed
        return 10.0 * (not low) + float(np.random.default_rng(code).normal(0, self.noise))


def searched(invented: Invented, folder: Path | None = None, seconds: float = 60.0) -> Bisection:
    trainings = Trainings(invented, seconds, folder, "test", lambda what, done, total: None)
    return bisected(trainings, "good", "bad", 100)


def names(result: Bisection) -> list[str]:
    return ["".join(d.name for d in cause.differences) for cause in result.causes]


@pytest.mark.parametrize("cause", ["a", "k", "u", "cr", "tu"])
def test_causes_are_found_and_tested_on_new_seeds(cause: str) -> None:
    result = searched(Invented(cause))
    assert result.verdict == "found"
    assert names(result) == [cause]
    assert result.rest_learns is True
    assert result.causes[0].p == pytest.approx(1 / 252)
    assert result.causes[0].good > 5 > result.causes[0].bad
    assert result.trainings <= 70 * len(cause)


def test_independent_causes_are_all_found() -> None:
    result = searched(Invented("c", "q"))
    assert sorted(names(result)) == ["c", "q"]
    assert result.rest_learns is True


def test_sides_that_do_not_differ_in_learning() -> None:
    result = searched(Invented())
    assert (result.verdict, result.causes, result.seeds, result.trainings) == (
        *("no difference", ()),
        *(8, 16),
    )


def test_equal_sides_are_not_trained() -> None:
    result = searched(Invented(count=0))
    assert (result.verdict, result.trainings) == ("equal", 0)


def test_a_mixture_that_does_not_fit_is_reported() -> None:
    result = searched(Invented("a", misfit="ab", count=4))
    shown(result.note, "setting a", "setting b")
    assert result.verdict in ("found", "undecided")


def test_trainings_are_kept_and_read_again(tmp_path: Path) -> None:
    invented = Invented("k")
    first = searched(invented, tmp_path)
    trained = invented.trained
    assert searched(invented, tmp_path).to_json() == first.to_json()
    assert invented.trained == trained
    with (tmp_path / "trainings.jsonl").open("a") as file:
        file.write('{"bad": "cut o')
    assert searched(invented, tmp_path).to_json() == first.to_json()
    with refused(StudyError, str(tmp_path), "--out"):
        searched(Invented("k", count=3), tmp_path)


def test_without_time_the_smallest_known_set_is_reported(tmp_path: Path) -> None:
    invented = Invented("k")
    trainings = Trainings(invented, 60, tmp_path, "test", lambda what, done, total: None)
    for seed in range(4):
        for side in ((), invented.differences, invented.differences[:10]):
            trainings.score(side, seed)
    for seed in range(4):
        trainings.score(invented.differences[10:], seed)
    result = searched(invented, tmp_path, seconds=1e-9)
    assert result.verdict == "undecided"
    assert len(result.suspects) in (11, 21)
    assert "--seconds" in result.note
    assert searched(invented, tmp_path).verdict == "found"


def test_the_table_has_a_row_per_difference() -> None:
    result = searched(Invented("b", count=3))
    assert result.to_dataframe()["cause"].tolist() == [0, 1, 0]
    assert set(result.texts()) == {"bisect.json", "bisect.csv"}
