"""Requirements on an evaluation: which columns there are, and what holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corral.errors import UnknownNameError
from corral.loads.scores import Score
from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.required import (
    Required,
    column_names,
    criteria_of,
    require_columns,
    required,
)
from corral.trainers.evaluation.scores import Evaluation, TeamScore, figures_of
from corral.trainers.evaluation.zero_sum import SeatScore
from support.messages import refused, shown

TEAM = TeamScore(
    policy="mine, greedy",
    mode="greedy",
    return_team=8.0,
    low=7.5,
    high=8.5,
    returns={"agent_0": 3.0, "agent_1": 5.0},
    episodes=20,
    mean_length=4.0,
    illegal_actions=0,
    kpis={"hits": 1.5},
)


def seat(name: str, opponent: str, earned: float, won: float) -> SeatScore:
    return SeatScore(
        *("mine, greedy", "greedy", name, opponent, earned, None, None, won, 0.0, 1 - won),
        *(20, 4.0, 0, {}),
    )


def found(text: str, *rows: Any) -> Required:
    (one,) = required(Evaluation("some_v0", rows), "mine, greedy", criteria_of(text))
    return one


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("return_team>=8", 8.0, True),
        ("return_team>8", 8.0, False),
        ("low>=7.5", 7.5, True),
        ("return_team.low>=7.6", 7.5, False),
        ("return_team.high<=8.5", 8.5, True),
        ("returns.agent_1<5.5", 5.0, True),
        ("kpis.hits>2", 1.5, False),
        ("illegal_actions<=0", 0, True),
    ],
)
def test_columns_of_a_team(text: str, value: float, holds: bool) -> None:
    other = TeamScore(**{**vars(TEAM), "policy": "mine, sampled", "return_team": -1.0})
    assert found(text, other, TEAM) == Required(text, value, holds)


def test_every_column_of_numbers_is_known_before_it_is_played() -> None:
    parts = {"returns": ["agent_0", "agent_1"], "kpis": ["hits"]}
    assert set(column_names(TeamScore, parts)) == set(figures_of(TEAM))
    assert set(column_names(SeatScore, parts)) == set(figures_of(seat("a", "b", 1.0, 1.0))) | {
        "kpis.hits"
    }
    assert {"served.low", "return_team.high", "share_of_optimum", "lost_by_node.node_0"} < set(
        column_names(Score, {"lost_by_node": ["node_0"]})
    )
    assert not {"policy", "mode", "seat"} & set(column_names(SeatScore, parts))


def test_unknown_columns() -> None:
    known = column_names(TeamScore, {"returns": ["agent_0"]})
    criteria = [Criterion.parse("retrn_team>=1")]
    with refused(UnknownNameError, "'retrn_team'", "'return_team'"):
        require_columns(criteria, known)
    later = [Criterion.parse("kpis.anything>=1")]
    require_columns(later, known, unknown=["kpis"])
    with pytest.raises(UnknownNameError, match=r"'kpis\.anything'"):
        required(Evaluation("some_v0", [TEAM]), "mine, greedy", later)


def test_in_a_zero_sum_game_it_must_hold_in_every_seat() -> None:
    rows = (seat("a", "random", 0.9, 0.95), seat("b", "perfect", -0.2, 0.4))
    one = found("won>=0.5", *rows)
    assert one == Required("won>=0.5", 0.4, False, "b against perfect")
    assert str(one) == "won>=0.5 does not hold: 0.4, b against perfect"
    assert found("lost<=0.7", *rows) == Required("lost<=0.7", 1 - 0.4, True, "b against perfect")
    none = found("return_seat.low>=-1", *rows)
    assert none.value is None
    shown(str(none), "return_seat.low>=-1", "a against random")


# --- Runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="needs the extra sb3")
    from support.runs import small_run

    return small_run(tmp_path_factory.mktemp("runs") / "run", updates=2).folder


def test_in_python(folder: Path) -> None:
    import corral

    run = corral.load_run(folder)
    options: dict[str, Any] = {"references": ["local/equal"], "optimum_windows": 0}
    result = corral.evaluate(run, require=["served>0", "served.low>=0.99"], **options)
    greedy = next(row for row in result if row.mode == "greedy")
    assert not result.holds
    assert [each["holds"] for each in result.details["required"]] == [True, False]
    assert result.details["required"][0]["value"] == greedy.served
    assert json.loads((folder / "results.json").read_text())["required"] == [
        dict(each) for each in result.details["required"]
    ]
    assert corral.evaluate(run, require="served>0", **options).holds
    assert corral.evaluate(run, **options).holds
    assert "required" not in json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize(
    ("criterion", "named"),
    [
        ("served=1", ("'served=1'", "'return_team>=15'")),
        ("servd>=1", ("'servd'", "'served'")),
        ("mode>=1", ("'mode'",)),
        ("returns.node_7>=1", ("'returns.node_7'", "'returns.node_2'")),
    ],
)
def test_mistakes_are_found_before_anything_is_played(
    folder: Path, criterion: str, named: tuple[object, ...]
) -> None:
    import corral

    def played(*unused: Any) -> None:
        raise AssertionError("something was played")

    with refused(ValueError, *named):
        corral.evaluate(folder, require=[criterion], progress=played)


def test_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    from support.command import within

    plain = ("evaluate", folder, "--policies", "local", "--optimum-windows", "0")
    printed = within(*plain, "--require", "served>0", "--require", "lost<=1")
    shown(printed, "served>0", "lost<=1")
    own = (*plain, "--out", tmp_path / "out")
    printed = within(*own, "--require", "served>0", "--require", "served>=0.99", code=1)
    shown(printed, "served>0", "served>=0.99")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("report.html", "results.json", "results.csv"),
    }
    printed = within(*plain, "--require", "served.low>=0.5", code=1)  # one window
    shown(printed, "served.low>=0.5")
    shown(within(*plain, "--require", "servd>=1", code=2), "'servd'", "'served'")
    shown(within(*plain, "--require", "served~1", code=2), "'served~1'", "'return_team>=15'")


@pytest.mark.parametrize("text", ["lost<=5", "served>=95", "lost.high<=5", "lost_by_node.a<=5"])
def test_a_bound_above_1_on_a_share_is_refused(text: str) -> None:
    known = ["served", "lost", "lost.high", "lost_by_node.a", "cost"]
    require_columns(criteria_of(["lost<=1", "cost<=5"]), known)
    with refused(ValueError, f"'{text}'", 0.05):
        require_columns(criteria_of(text), known)
