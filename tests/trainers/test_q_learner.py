"""A trainer that shares nothing with the in-house loop, by what ``Trainer`` declares alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.errors import CheckpointError
from corral.trainers import Seats, watch
from tests.support import q_learner
from tests.support.q_learner import TabularQ
from tests.support.runs import everything, rows

STEPS = 4_096


def trained(folder: Path, env: str = "tictactoe_v0", steps: int = STEPS, **given: Any) -> Any:
    return corral.train(env, trainer=TabularQ, steps=steps, seed=1, num_envs=8, out=folder, **given)


def test_it_is_short_and_uses_what_is_declared() -> None:
    text = Path(q_learner.__file__).read_text(encoding="utf-8")
    code = text.partition("\nROWS")[2].splitlines()  # the imports stand before
    assert len([line for line in code if line.strip() and line.strip()[0] != "#"]) <= 80
    calls = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
    names = {each.func.id for each in calls if isinstance(each.func, ast.Name)}
    assert not names & {"getattr", "hasattr", "setattr"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "given", "least"),
    [
        ("tictactoe_v0", {"opponents": {"player_2": "random"}}, 0.5),
        ("rps_v0", {"opponents": {"player_1": "beat-last"}}, 5.0),
    ],
)
def test_it_learns_against_an_opponent(
    env: str, given: dict[str, Any], least: float, tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", env, 32_768, **given)
    (learner,) = run.config.learners
    judged = corral.evaluate(run.folder, trainer=TabularQ, episodes=200)
    (opponent,) = given["opponents"].values()
    (won,) = [
        row.return_seat
        for row in judged
        if (row.mode, row.seat, row.opponent) == ("greedy", learner, opponent)
    ]
    assert won > least


def test_it_plays_against_its_own_snapshots(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    pool = corral.Pool(past=0.5, every=512, keep=3, also={"random": 0.2}, best=2)
    run = trained(
        tmp_path / "run",
        self_play=pool,
        metrics={"moves": lambda episode: episode.length},
        callbacks=[seen.append],
        checkpoint_every=1_024,
    )
    assert [row["pool_size"] for row in seen][-1] == 3
    assert max(row["moves_mean"] or 0 for row in seen) > 4
    names = {path.stem for path in (run.folder / "pool").iterdir()}
    assert {int(name.partition("@")[2]) % 512 for name in names} == {0}
    assert run.best_by["compared"].startswith("duels")
    players = {
        name for row in rows(run) for name, value in row.items() if name.startswith("return_of_")
    }
    assert players


@pytest.mark.parametrize(
    "given",
    [
        {},
        *(
            pytest.param(given, marks=pytest.mark.slow)
            for given in (
                {"opponents": {"player_1": "random"}},
                {"self_play": "past=0.5,every=512,keep=2,best=0"},
            )
        ),
        {"policies": "separate", "self_play": "past=0.7,every=512,also=random:0.3,best=0"},
    ],
)
def test_it_goes_on_bit_for_bit(given: dict[str, Any], tmp_path: Path) -> None:
    trained(tmp_path / "whole", **given)
    trained(tmp_path / "part", steps=STEPS // 2, horizon=STEPS, **given)
    corral.resume(tmp_path / "part", trainer=TabularQ, steps=STEPS)
    assert everything(tmp_path / "part") == everything(tmp_path / "whole")
    assert rows(tmp_path / "part") == rows(tmp_path / "whole")


def test_it_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path / "run", steps=256)
    watch(run.folder, trainer=TabularQ, text=print, steps=4)
    assert "player_1" in capsys.readouterr().out


def test_a_changed_snapshot_is_refused(tmp_path: Path) -> None:
    rules = corral.load_run(trained(tmp_path / "run", steps=256).folder, trainer=TabularQ)
    rules = rules.config.env_config.rules()

    def made() -> TabularQ:
        seats = Seats(pool=corral.Pool(past=0.5, every=128, best=0))
        names = dict.fromkeys(rules.agents, "shared")
        settings = q_learner.QSettings(num_envs=4)
        return TabularQ(
            rules,
            settings,
            seed=0,
            policies=names,
            policies_to_train=["shared"],
            steps=512,
            seats=seats,
        )

    first = made()
    list(first.learn())
    content = first.save()
    made().load(content)
    arrays = content.arrays["pool_shared"]
    name = next(iter(arrays))
    arrays[name] = np.ascontiguousarray(arrays[name] + 1)
    with pytest.raises(CheckpointError):
        made().load(content)
