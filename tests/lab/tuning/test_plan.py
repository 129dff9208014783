"""Parameters of a trial follow from the plan, its number, and trials far enough before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused

pytest.importorskip("safetensors", reason="needs the extra mappo")
pytest.importorskip("optuna", reason="needs the extra tune")

import optuna

from corral.errors import StudyError
from corral.lab.tuning.plan import STUDY, Plan, quiet
from corral.lab.tuning.space import Space
from corral.trainers.base import find_trainer

MAPPO = find_trainer("mappo").kind


def plan(grid: Any = None, search: Any = None, points: Any = (), **more: Any) -> Plan:
    given: dict[str, Any] = {"trials": 20, "seeds": (0,), "lag": 1, "threads": 1, **more}
    return Plan(("arena_v0",), Space.of(MAPPO, [], grid or {}, search or {}, points), **given)


def trial(of: Plan, parameters: dict[str, Any], value: float) -> Any:
    return optuna.trial.create_trial(
        params=parameters, distributions=of.distributions(), value=value
    )


def first(of: Plan, count: int) -> list[Any]:
    taken: list[Any] = []
    with quiet():
        for number in range(count):
            taken.append(of.proposed(number, [], [each for each in taken if each]))
    return taken


def test_a_search_draws_the_same_again_and_something_else_each_time() -> None:
    one = plan(search={"learning_rate": "log:1e-4..1e-1", "n_epochs": "1..9"})
    drawn = first(one, 4)
    assert drawn == first(one, 4)
    assert len({str(each) for each in drawn}) == 4
    assert first(replace(one, seeds=(1,)), 4) != drawn
    assert all(isinstance(each["n_epochs"], int) for each in drawn)


def test_a_search_learns_from_the_past() -> None:
    one = plan(search={"gamma": (0.0, 1.0)})
    with quiet():
        near_0 = [trial(one, {"gamma": k / 20}, -float(k)) for k in range(20)]
        near_1 = [trial(one, {"gamma": k / 20}, float(k)) for k in range(20)]
        low = [one.proposed(n, near_0, []) for n in range(20, 28)]
        high = [one.proposed(n, near_1, []) for n in range(20, 28)]
    mean = [sum(each["gamma"] for each in found if each) / 8 for found in (low, high)]
    assert mean[0] < 0.4 < 0.6 < mean[1]


def test_points_and_each_point_of_a_grid_in_its_turn() -> None:
    grid, search = {"activation": "relu,tanh"}, {"gamma": "0.9..1"}
    one = plan(grid, search, [{"activation": "tanh", "gamma": 0.95}])
    drawn = first(one, 5)
    assert drawn[0] == {"activation": "tanh", "gamma": 0.95}
    assert [each["activation"] for each in drawn[1:]] == ["relu", "tanh", "relu", "tanh"]
    assert len({each["gamma"] for each in drawn}) == 5


def test_a_small_space_ends_where_all_of_it_was_tried() -> None:
    drawn = first(plan(search={"net_arch": ["8,", "8,8"], "n_epochs": "1..2"}), 7)
    assert drawn[4:] == [None, None, None]
    assert len({str(each) for each in drawn[:4]}) == 4
    assert {each["net_arch"] for each in drawn[:4]} == {(8,), (8, 8)}
    assert first(plan({"n_epochs": "1,2"}), 3) == [{"n_epochs": 1}, {"n_epochs": 2}, None]


def test_a_trial_has_a_folder_by_its_number() -> None:
    job = plan({"n_epochs": "1,2"}).job(Path("s"), 3, {"n_epochs": 2}, 0)
    assert job.folder == Path("s/trial-0003")
    assert job.arguments == ("arena_v0", "--n-epochs", "2", "--seed", "0")
    more = plan({"n_epochs": "1,2"}, seeds=(4, 5))
    assert more.job(Path("s"), 12, {}, 5).folder == Path("s/trial-0012-seed5")


def test_a_folder_keeps_one_study(tmp_path: Path) -> None:
    one = plan({"n_epochs": "1,2"}, lag=2, threads=3)
    assert one.stored_in(tmp_path) is None
    one.write(tmp_path)
    assert replace(one, lag=1, threads=1, trials=30).stored_in(tmp_path) == {"lag": 2, "threads": 3}
    for other, named in (
        (plan({"n_epochs": "1,4"}), ("n_epochs=1,2", "n_epochs=1,4")),
        (replace(one, seeds=(0, 1)), ("seeds=[0]", "seeds=[0, 1]")),
        (replace(one, arguments=("dfaas_v0",)), ("corral train arena_v0", "corral train dfaas_v0")),
        (replace(one, prune=True), ("prune=false", "prune=true")),
    ):
        with refused(StudyError, *named):
            other.stored_in(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 1}', '{"format": 2}', "\x00"])
def test_a_damaged_study_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / STUDY).write_text(text)
    with refused(StudyError, tmp_path / STUDY):
        plan({"n_epochs": "1,2"}).stored_in(tmp_path)
