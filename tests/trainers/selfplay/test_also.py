"""Reference players and runs among a pool's snapshots."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.errors import ArgumentError, CheckpointError, RunError, UnknownNameError
from corral.trainers.pool import Pool
from support.messages import refused

SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 16, "net_arch": (16,), "n_epochs": 1}


def trained(folder: Path, env: str = "rps_v0", steps: int = 512, **given: Any) -> Any:
    given = {"trainer": "ippo", "progress": False, "out": folder, **SMALL, **given}
    return corral.train(env, steps=steps, **given)


class Names(corral.Callback):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_episode(self, session: Any, episode: Any) -> None:
        self.seen += episode.players.values()


@pytest.mark.slow
def test_shares_are_those_that_were_given(tmp_path: Path) -> None:
    other = trained(tmp_path / "other")
    names = Names()
    run = trained(
        tmp_path / "run",
        steps=16_384,
        self_play={"past": 1.0, "also": {"beat-last": 0.5, str(other.folder): 0.25}, "best": 0},
        callbacks=[names],
    )
    pinned = f"{other.folder}@512"
    assert set(names.seen) >= {"beat-last", pinned, "shared@0"}
    assert len(names.seen) > 1_000
    assert abs(names.seen.count("beat-last") / len(names.seen) - 0.5) < 0.05
    assert abs(names.seen.count(pinned) / len(names.seen) - 0.25) < 0.05
    assert list(run.config.self_play["also"]) == ["beat-last", pinned]
    assert run.config.opponent_runs[pinned]["checkpoint"] == "step_000000000512"


def test_a_run_with_others_resumes_exactly(tmp_path: Path) -> None:
    other = trained(tmp_path / "other", memory=4)
    pool = {"past": 0.8, "every": 256, "also": {"copy-last": 0.3, f"{other.folder}@best": 0.3}}
    whole = trained(tmp_path / "whole", steps=1_024, self_play=pool)
    part = trained(tmp_path / "part", steps=512, horizon=1_024, self_play=pool)
    corral.resume(part.folder, steps=1_024, progress=False)
    first, second = (run.folder / "checkpoints/step_000000001024" for run in (whole, part))
    for path in sorted(first.glob("*.safetensors")):
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_a_run_that_is_gone_is_named_by_who_goes_on_and_not_by_who_plays(tmp_path: Path) -> None:
    other = trained(tmp_path / "other")
    run = trained(tmp_path / "run", self_play={"past": 1.0, "also": {str(other.folder): 0.5}})
    shutil.rmtree(other.folder)
    policy = corral.load_run(run.folder).policies["player_0"]
    observation = {"observation": np.zeros(8, np.float32), "action_mask": np.ones(3, np.int8)}
    space = corral.make("rps_v0").observation_space("player_0")["observation"]
    observation["observation"] = np.zeros(space.shape, space.dtype)
    assert policy.act(observation, deterministic=True).action in (0, 1, 2)
    with pytest.raises((CheckpointError, RunError), match="other"):
        corral.resume(run.folder, steps=1_024, progress=False)


def test_names_that_nobody_has(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="beat-last"):
        trained(tmp_path / "a", self_play="past=0.5,also=beat-lst:0.5")
    with refused(RunError, "player_0", f"{tmp_path}/none"):
        trained(tmp_path / "b", self_play=f"past=0.5,also={tmp_path}/none:0.5")
    game = trained(tmp_path / "game", "tictactoe_v0")
    with pytest.raises(RunError, match="tictactoe_v0"):
        trained(tmp_path / "c", self_play={"also": {str(game.folder): 0.5}})
    assert not (tmp_path / "c").exists()


def test_a_player_of_one_seat_alone_plays_that_seat(tmp_path: Path) -> None:
    names = Names()
    given = {"policies": "separate", "env_kwargs": {"max_cycles": 10}, "callbacks": [names]}
    trained(tmp_path / "a", "arena_v0", 2_048, self_play="past=1,also=nearest:0.5", **given)
    assert names.seen.count("nearest") > 10


def test_a_player_that_is_named_twice_is_refused() -> None:
    also = "also=beat-last:0.3+beat-last:0.2"
    with refused(ArgumentError, f"self_play=past=0.5,{also}: {also}"):
        Pool.of(f"past=0.5,{also}")
