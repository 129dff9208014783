"""progress.csv and TensorBoard: the columns that are documented, numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra sb3")
pytest.importorskip("tensorboard", reason="needs the extra sb3")


from corral.trainers.base import Episode, Update
from corral.trainers.driver import train
from corral.trainers.runs import log as progress
from corral.trainers.runs.log import Statistics
from support.messages import shown
from support.runs import ROLLOUT, PaidRules, rows, small_run


def episode(one: float, two: float, length: int = 4) -> Episode:
    return Episode({"a": one, "b": two}, length, {"lost": one + two})


def update(env_steps: int, *episodes: Episode, **figures: float) -> Update:
    return Update(env_steps, episodes, figures, {"env": 1.0, "inference": 0.5, "learning": 0.5})


# --- Rows ----------------------------------------------------------------------------------------


def test_a_row_by_hand() -> None:
    statistics = Statistics({"a": "left", "b": "right"})
    empty = statistics.row(update(64, loss=0.5), 64, 2.0)
    assert empty["return_team"] is None
    assert empty["return_a"] is None
    row = statistics.row(update(128, episode(1, 2), episode(3, 6, 8), loss=0.25), 64, 0.5)
    assert row == {
        "env_steps": 128,
        "wall_s": 2.5,
        "updates": 2,
        "episodes": 2,
        "return_team": 6.0,
        "reward_per_step": None,
        "return_a": 2.0,
        "return_b": 4.0,
        "return_of_left": 2.0,
        "return_of_right": 4.0,
        "length": 6.0,
        "kpi_lost": 6.0,
        "env_steps_per_s": 128.0,
        "warnings": 0,
        "share_env": 0.5,
        "share_inference": 0.25,
        "share_learning": 0.25,
        "loss": 0.25,
    }


def test_means_are_of_the_last_hundred_episodes() -> None:
    statistics = Statistics({"a": "x", "b": "x"})
    statistics.row(update(64, *[episode(100, 0)] * 30), 64, 1)
    row = statistics.row(update(128, *[episode(1, 1)] * 90), 64, 1)
    assert row["episodes"] == 120
    assert row["return_team"] == pytest.approx((10 * 100 + 90 * 2) / 100)
    assert statistics.improved()
    assert not statistics.improved()  # no better than what was saved


def test_the_latest_is_the_best_if_all_returns_sum_to_zero() -> None:
    statistics = Statistics({"a": "x", "b": "x"})  # a third-party game: not in the registry
    statistics.row(update(64, episode(1, -1), episode(0, 0)), 64, 1)
    assert statistics.improved()
    assert statistics.best_by is not None
    shown(statistics.best_by["compared"], "latest", 0)
    assert statistics.best_by["value"] is None
    statistics.row(update(128, episode(-1, 1)), 64, 1)
    assert statistics.improved()
    assert statistics.best_by["env_steps"] == 128
    opposed = Statistics({"a": "x", "b": "x"}, ["b"])
    opposed.row(update(64, episode(1, -1)), 64, 1)
    assert opposed.improved()
    assert opposed.best_by is not None
    assert opposed.best_by["value"] == 1


def test_statistics_go_through_json() -> None:
    one, two = Statistics({"a": "x", "b": "y"}), Statistics({"a": "x", "b": "y"})
    one.row(update(64, episode(1 / 3, 2), episode(3, 6)), 64, 0.1)
    one.improved()
    two.load(json.loads(json.dumps(one.save())))
    assert two.improved() is False
    more = update(128, episode(7, 8), loss=1.0)
    assert one.row(more, 64, 0.2) == two.row(more, 64, 0.2)


def test_a_run_of_constant_pay(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", env=PaidRules((1.0, -0.5)), policies="separate", updates=3)
    kept = rows(run)
    for number, row in enumerate(kept, start=1):
        # 4 copies, 16 steps a rollout, 4 steps an episode; "half" is t / 2 for both agents.
        assert row["env_steps"] == str(64 * number)
        assert row["episodes"] == str(16 * number)
        assert row["updates"] == str(number)
        told = {key: float(text) for key, text in row.items()}
        assert (told["return_agent_0"], told["return_agent_1"]) == (4.0, -2.0)
        assert (told["return_of_agent_0"], told["return_of_agent_1"]) == (4.0, -2.0)
        assert (told["return_team"], told["length"], told["kpi_half"]) == (2.0, 4.0, 10.0)
        assert told["reward_per_step"] == 0.5
    seen = run.progress
    assert (seen["wall_s"].diff().dropna() > 0).all()
    shares = seen[["share_env", "share_inference", "share_learning"]]
    assert shares.sum(axis=1).to_numpy() == pytest.approx(1, abs=2e-4)
    speed = 64 / seen["env_steps_per_s"]
    assert speed.sum() == pytest.approx(seen["wall_s"].iloc[-1], rel=0.02)


def test_before_an_episode_ends_the_reward_is_shown() -> None:
    statistics = Statistics({"a": "x", "b": "y"}, {"b"})
    statistics.row(update(64), 64, 1.0)
    assert statistics.headline == "return -"  # of a trainer that does not say
    rewards = {"a": 0.25, "b": -1.0}
    row = statistics.row(dataclasses.replace(update(128), rewards=rewards), 64, 1.0)
    assert (row["return_team"], row["reward_per_step"]) == (None, -0.75)
    assert statistics.headline == "reward per step 0.25"  # of those that learn
    statistics.row(update(192, episode(3, 6)), 64, 1.0)
    assert statistics.headline == "return 3"


def test_in_self_play_the_bar_says_how_long_episodes_last() -> None:
    """Its returns add up to 0, whatever was learned."""
    statistics = Statistics({"a": "shared", "b": "shared"}, self_play=True)
    assert statistics.headline == "self-play"
    ended = [Episode({"a": 1.0, "b": -1.0}, length, {}) for length in (5, 8)]
    statistics.row(Update(64, ended, {}, {}, {"a": 0.1, "b": -0.1}), 64, 1.0)
    assert statistics.headline == "self-play, 6.5 steps an episode"


@pytest.mark.parametrize(
    ("trainer", "vec_env"),
    [("sb3_ppo", "batch"), ("sb3_maskable_ppo", "supersuit"), ("mappo", None)],
)
def test_long_episodes_show_what_is_earned(
    tmp_path: Path, trainer: str, vec_env: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"num_envs": 4, "n_steps": 16, "net_arch": (8,)}
    given = settings if vec_env is None else {**settings, "batch_size": 64, "vec_env": vec_env}
    run = train(
        PaidRules((1.0, -0.5), max_cycles=1000),
        trainer=trainer,
        steps=2 * ROLLOUT,
        out=tmp_path / "run",
        progress=True,
        **given,
    )
    assert [row["return_team"] for row in rows(run)] == ["", ""]
    assert [float(row["reward_per_step"]) for row in rows(run)] == [0.5, 0.5]
    told = capsys.readouterr().err.splitlines()
    lines = [line for line in told if not line.startswith("corral: ")]
    assert len(lines) == 2
    assert all(line.endswith("/s, reward per step 0.5") for line in lines)


def test_columns_are_those_that_are_documented(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run", updates=3)
    assert progress.__doc__ is not None
    documented = re.findall(r"``(\w+(?:<\w+>)?)``", progress.__doc__)
    of_pools = ["return_of_past", "points_past"]
    assert set(of_pools) <= set(progress.Statistics({"a": "p"}, pool=True).columns)
    documented = [name for name in documented if name not in of_pools]
    patterns = [re.sub(r"<\w+>", r"\\w+", name) for name in documented]
    columns = list(run.progress.columns)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in columns), pattern
    others = [name for name in columns if not any(re.fullmatch(p, name) for p in patterns)]
    figures = {"value_loss", "policy_gradient_loss", "entropy_loss", "approx_kl", "learning_rate"}
    assert figures < set(others)
    assert not [name for name in others if name.startswith(("return", "kpi", "share", "wall"))]


# --- The terminal --------------------------------------------------------------------------------


def test_without_a_terminal_a_line_for_every_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = progress.Bar(1000, visible=True)
    for step in range(50, 1050, 50):
        monkeypatch.setattr(time, "monotonic", lambda step=step: step / 10)
        bar.show({"env_steps": step, "env_steps_per_s": 1234.5}, "reward per step 0.25")
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[0] == "100 of 1,000 env steps, 1,234/s, reward per step 0.25, about 90 s left"
    assert lines[-1] == "1,000 of 1,000 env steps, 1,234/s, reward per step 0.25"
    assert max(map(len, lines)) <= 80
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernel of a notebook does
    colored = progress.Bar(1000, visible=True)
    colored.show({"env_steps": 500, "env_steps_per_s": 1.0}, "return 3")
    colored.close()
    assert "\x1b" not in capsys.readouterr().err
    monkeypatch.delenv("FORCE_COLOR")
    silent = progress.Bar(1000, visible=False)
    silent.show({"env_steps": 500, "env_steps_per_s": 1.0}, "return 3")
    silent.close()
    assert capsys.readouterr().err == ""
