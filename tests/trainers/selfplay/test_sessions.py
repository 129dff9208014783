"""Self-play with a pool step by step, over environments of others, and where it is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.adapters.zoo.batch import zoo_rules
from corral.errors import CheckpointError, RunError
from corral.trainers.capabilities import Seats
from corral.trainers.on_policy.trainer import IPPO
from corral.trainers.pool import Pool
from corral.trainers.selfplay.cast import LEARNS
from support.gift_env import Gift
from support.messages import refused

GIVEN: dict[str, Any] = {
    "trainer": "ippo",
    "steps": 384,
    "num_envs": 8,
    "n_steps": 16,
    "net_arch": (8,),
    "preset": "none",
    "progress": False,
    "self_play": "past=0.5,every=128,keep=2,best=0",
}


def test_step_by_step_comes_to_the_same(tmp_path: Path) -> None:
    with corral.session("tictactoe_v0", out=tmp_path / "loop", **GIVEN) as whole:
        whole.finish()
        expected = whole.weights()
    with corral.session("tictactoe_v0", out=tmp_path / "steps", **GIVEN) as single:
        while not single.over:
            rollout = single.sample()
            assert not (rollout.groups[0].acted & ~rollout.groups[0].learned.reshape(16, -1)).any()
            single.update(rollout)
            frozen = single.learner.casting.frozen["shared"].snapshots[0].digest
            single.set_weights(single.weights())
            assert single.learner.casting.frozen["shared"].snapshots[0].digest == frozen
        for name, values in single.weights().items():
            np.testing.assert_array_equal(values, expected[name], err_msg=name)
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name / "pool").iterdir()}
        for name in ("loop", "steps")
    ]
    assert files[0] == files[1]


def test_over_environments_without_a_state_episodes_are_cast_anew() -> None:
    def made() -> Any:
        rules = zoo_rules(Gift)
        return IPPO(
            rules,
            IPPO.Settings(num_envs=4, n_steps=16, net_arch=(8,), memory=4),
            seed=0,
            policies=dict.fromkeys(rules.agents, "shared"),
            policies_to_train=["shared"],
            steps=640,
            seats=Seats(pool=Pool(past=0.6, every=64, keep=2)),
        )

    first, then = made(), made()
    list(first.learn(320))
    assert not first.resumes_exactly
    content = first.save()
    first.close()
    then.load(content)
    casting = then.casting
    assert (casting.episode == first.casting.episode + 1).all()
    assert not casting.hidden["shared"].any()
    names = [each.name for each in first.casting.frozen["shared"].snapshots if each.drawn]
    assert [e.name for e in casting.frozen["shared"].snapshots if e.drawn] == names
    players = [e.players for update in then.learn(640) for e in update.episodes]
    assert {len(each) for each in players} == {0, 1}
    then.close()


def test_a_run_that_starts_from_another_has_its_policy_for_the_first_snapshot(
    tmp_path: Path,
) -> None:
    first = corral.train("tictactoe_v0", out=tmp_path / "first", **GIVEN)
    with corral.session(
        "tictactoe_v0", out=tmp_path / "second", init=first.folder, **GIVEN
    ) as second:
        next(second)
        (begun,) = (tmp_path / "second" / "pool").glob("shared@0.*")
        (ended,) = (tmp_path / "first" / "pool").glob("shared@384.*")
        assert begun.read_bytes() == ended.read_bytes()


def test_a_run_that_is_stretched_keeps_its_pool(tmp_path: Path) -> None:
    run = corral.train("tictactoe_v0", out=tmp_path / "run", **GIVEN)
    corral.resume(run.folder, steps=640, stretch=True, progress=False)
    names = {path.name for path in (run.folder / "pool").iterdir()}
    assert {"shared@0.safetensors", "shared@640.safetensors"} <= names


@pytest.mark.parametrize("changed", [{"evry": 1}, {"past": 3}, 5])
def test_a_damaged_pool_in_a_configuration_names_the_file(changed: Any, tmp_path: Path) -> None:
    run = corral.train("tictactoe_v0", out=tmp_path / "run", **{**GIVEN, "steps": 128})
    path = run.folder / "config.json"
    values = {**json.loads(path.read_text()), "self_play": changed}
    path.write_text(json.dumps(values))
    with pytest.raises((CheckpointError, RunError)):  # made with another configuration, or of none
        corral.load_run(run.folder)
    shutil.rmtree(run.folder / "checkpoints")
    with refused(RunError, path, "self_play"):
        assert corral.load_run(run.folder).policies


class Other(IPPO):
    """A trainer of one's own that knows of no pool."""

    name = "other"
    capabilities = replace(IPPO.capabilities, pool=False)


REFUSED: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
    "cloning": ({"trainer": "clone", "teacher": "random"}, ("clone", "mappo")),
    "a trainer without": ({"trainer": Other}, ("other", "mappo")),
    "no such seat": ({"self_play": "seat=player_3"}, ("seat=player_3", "player_1", "player_2")),
    "nobody else": (
        {"opponents": {"player_1": "random"}},
        ("player_2", "--opponent"),
    ),
    "nothing": ({"self_play": ""}, ("self_play=''", "corral.Pool", "past=0.2,every=20000")),
    "twice": ({"self_play": "past=0.1,past=0.2"}, ("self_play=past=0.1,past=0.2: past",)),
    "no share": ({"self_play": {"past": 1.2}}, ("past=1.2", 0, 1)),
    "no mapping": ({"self_play": {"also": 3}}, ("also=3",)),
    "no name": ({"self_play": {"seat": 3}}, ("seat=3",)),
    "no number": ({"self_play": "past=nan"}, ("past=nan", 0)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_before_a_folder_is_made(case: str, tmp_path: Path) -> None:
    changes, named = REFUSED[case]
    with refused((ValueError, TypeError), *named):
        corral.train("tictactoe_v0", out=tmp_path / "run", **{**GIVEN, **changes})
    assert not (tmp_path / "run").exists()


def test_past_of_none_and_of_all(tmp_path: Path) -> None:
    for past, cast in ((0, 0), (1, 8)):
        given = {**GIVEN, "self_play": f"past={past},every=1000000,keep=1,best=0"}
        with corral.session("tictactoe_v0", out=tmp_path / f"past{past}", **given) as training:
            training.finish()
            casting = training.learner.casting
        assert int((casting.cast != LEARNS).any(axis=1).sum()) == cast
        known = training.run.progress["points_past"].notna()
        assert bool(known.any()) == bool(past)
