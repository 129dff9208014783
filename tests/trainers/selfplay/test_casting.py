"""Who plays which seat: drawn per row and episode, learned from by nobody else, resumed exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.envs.registry import make_rules
from corral.trainers.capabilities import Seats
from corral.trainers.on_policy.casting import Casting
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.pool import Pool
from corral.trainers.runs.checkpoint import latest_checkpoint
from corral.trainers.selfplay.cast import LEARNS
from support.thinned import fast_every

SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 16, "net_arch": (16,), "n_epochs": 2}


def trainer(
    pool: Pool | None,
    env: str = "tictactoe_v0",
    kind: Any = IPPO,
    policies: Mapping[str, str] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Any:
    rules = make_rules(env, illegal="raise")
    given = policies or dict.fromkeys(rules.agents, "shared")
    return kind(
        rules,
        kind.Settings(**{**SMALL, **settings}),
        seed=seed,
        policies=given,
        policies_to_train=list(dict.fromkeys(given.values())),
        steps=4_096,
        seats=Seats(pool=pool),
    )


def digests(casting: Casting) -> dict[str, str]:
    return {
        each.name: hashlib.sha256(each.encoded()).hexdigest()
        for frozen in casting.frozen.values()
        for each in frozen.snapshots
    }


def test_bytes_of_snapshots_never_change_while_the_learner_does() -> None:
    one = trainer(Pool(past=0.5, every=128, keep=4))
    seen: dict[str, str] = {}
    for _ in one.learn(2_048):
        now = digests(one.casting)
        assert {name: seen[name] for name in seen.keys() & now.keys()} == {
            name: now[name] for name in seen.keys() & now.keys()
        }
        seen |= now
    assert len(seen) == 17  # one for each update, and the first
    assert len(set(seen.values())) == 17  # the learner moved in between
    kept = [each.env_steps for each in one.casting.frozen["shared"].snapshots if each.drawn]
    assert len(kept) == 4
    assert (kept[0], kept[-1]) == (0, 2_048)


def test_frozen_columns_are_in_no_decision_that_is_learned() -> None:
    one = trainer(Pool(past=0.6, every=256))
    frozen = learned = 0
    casts = []
    original = one.casting.columns

    def columns(buffer: Any, env_rows: Any = slice(None)) -> Any:
        found = original(buffer, env_rows)
        if isinstance(env_rows, slice):
            casts.append(found.copy())
        return found

    one.casting.columns = columns
    one.begin()
    for _ in range(6):
        casts.clear()
        one.collect()
        cast = np.stack(casts)  # [T, B, P]
        buffer = one.rollout.groups[0]
        acting = buffer.acting[:-1].reshape(16, -1)
        others = cast.reshape(16, -1) != LEARNS
        assert not (buffer.acted & others).any()
        np.testing.assert_array_equal(buffer.acted, acting & ~others)
        frozen += int((acting & others).sum())
        learned += int(buffer.acted.sum())
    assert frozen > 50
    assert learned > 200


@pytest.mark.parametrize("kind", [IPPO, MAPPO], ids=["ippo", "mappo"])
def test_rewards_of_frozen_seats_change_nothing_that_is_learned(kind: Any) -> None:
    def weights(scale: float) -> dict[str, Any]:
        one = trainer(Pool(past=1.0, seat="player_1", every=10**6), kind=kind)
        one.begin()
        step = one.batch.step

        def changed(actions: Any) -> Any:
            found = step(actions)
            found.reward[:, 1] *= scale  # of player_2, whom snapshots play in every episode
            return found

        one.batch.step = changed
        for _ in one.learn(512):
            pass
        found: dict[str, Any] = one.weights()
        return found

    plain, changed = weights(1.0), weights(-7.0)
    for name in plain:
        np.testing.assert_array_equal(plain[name], changed[name], err_msg=name)


def test_returns_of_policies_and_the_past_sum_to_those_of_the_agents(tmp_path: Path) -> None:
    run = corral.train(
        "arena_v0",
        trainer="ippo",
        steps=2_048,
        out=tmp_path / "run",
        policies="separate",
        self_play=Pool(past=0.5, every=512, best=0),
        progress=False,
        env_kwargs={"max_cycles": 20},
        **SMALL,
    )
    rows = run.progress.dropna(subset=["return_team"])
    parts = [name for name in rows if name.startswith("return_of_")]
    assert sorted(parts) == ["return_of_agent_1", "return_of_agent_2", "return_of_past"]
    np.testing.assert_allclose(rows[parts].sum(axis=1), rows["return_team"], atol=1e-5)
    assert (rows["return_of_past"].abs() > 0).any()
    assert rows["points_past"].dropna().between(0, 1).all()


def test_seats_and_opponents_are_drawn_as_the_pool_says() -> None:
    one = trainer(Pool(past=0.25, every=1, keep=3, draw="uniform"), num_envs=64)
    played: list[dict[str, str]] = []
    for update in one.learn(64 * 16 * 12):
        played += [episode.players for episode in update.episodes]
    against = [each for each in played if each]
    assert len(played) > 1_000
    assert 0.2 < len(against) / len(played) < 0.3
    assert all(len(each) == 1 for each in against)  # one learns, a snapshot plays the other seat
    first = sum("player_1" in each for each in against) / len(against)
    assert 0.4 < first < 0.6
    names = {name for each in against for name in each.values()}
    assert len(names) > 3
    assert "shared@0" in names


def test_latest_draws_the_newest_alone_and_a_fixed_seat_learns() -> None:
    one = trainer(Pool(past=1.0, every=128, draw="latest", seat="player_2"))
    for update in one.learn(1_024):
        newest = {f"shared@{update.env_steps - 128 * back}" for back in range(4)}
        for episode in update.episodes:  # those that end now began up to two updates ago
            assert set(episode.players) == {"player_1"}
            assert set(episode.players.values()) <= newest


def test_hard_opponents_are_drawn_more_often() -> None:
    one = trainer(Pool(past=1.0, every=10**6))
    one.begin()
    frozen = one.casting.frozen["shared"]
    frozen.add(1)
    frozen.add(2)
    for name, points in (("shared@0", 45.0), ("shared@1", 25.0), ("shared@2", 5.0)):
        one.casting.results["shared", name] = [50.0, points]
    numbers, sums = one.casting._chances("player_1", "player_2")
    chances = np.diff(sums, prepend=0.0)
    assert numbers.tolist() == [0, 1, 2]
    expected = (1 - (np.array([45.0, 25.0, 5.0]) + 0.5) / 51.0) ** 2
    np.testing.assert_allclose(chances, expected / expected.sum())


def test_few_are_drawn_in_a_rollout_where_each_network_is_asked_by_itself() -> None:
    one = trainer(Pool(past=1.0, every=10**6, draw="uniform"), memory=4)
    one.begin()
    for number in range(1, 20):
        one.casting.frozen["shared"].add(number)
    found = np.zeros(20)
    for one.env_steps in range(400):
        numbers, sums = one.casting._chances("player_1", "player_2")
        chances = np.diff(sums, prepend=0.0)
        assert np.count_nonzero(chances > 1e-12) <= 8
        found[numbers] += chances / 400
    np.testing.assert_allclose(found, 1 / 20, atol=0.02)


CASES: dict[str, dict[str, Any]] = {
    "shared": {},
    "memory": {"memory": 4},
    "separate": {"policies": {"player_1": "a", "player_2": "b"}},
    "everything-seen": {"kind": MAPPO, "critic_input": "observations+actions"},
}


@pytest.mark.parametrize("case", fast_every(2, CASES))
def test_a_run_that_is_saved_and_loaded_goes_on_bit_for_bit(case: str) -> None:
    pool = Pool(past=0.5, every=128, keep=3)
    whole, first, then = (trainer(pool, **CASES[case]) for _ in range(3))
    list(whole.learn(1_024))
    list(first.learn(512))
    content = first.save()
    then.load(content)
    list(then.learn(1_024))
    for name, array in whole.weights().items():
        np.testing.assert_array_equal(array, then.weights()[name], err_msg=name)
    assert digests(whole.casting) == digests(then.casting)
    assert whole.casting.results == then.casting.results
    np.testing.assert_array_equal(whole.casting.cast, then.casting.cast)


def test_a_run_resumes_exactly_with_its_pool(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "trainer": "ippo",
        "seed": 3,
        "self_play": "past=0.5,every=256,keep=3,best=4",
        "progress": False,
        "checkpoint_every": 256,
        **SMALL,
    }
    whole = corral.train("tictactoe_v0", steps=1_536, out=tmp_path / "whole", **given)
    part = corral.train("tictactoe_v0", steps=768, horizon=1_536, out=tmp_path / "part", **given)
    corral.resume(part.folder, steps=1_536, progress=False)
    clocks = ["wall_s", "env_steps_per_s", "share_env", "share_inference", "share_learning"]
    a, b = (each.progress.drop(columns=clocks).sort_index(axis=1) for each in (whole, part))
    assert a.equals(b)
    pools = [
        {path.name: path.read_bytes() for path in (run.folder / "pool").iterdir()}
        for run in (whole, part)
    ]
    assert pools[0] == pools[1]
    assert 3 <= len(pools[0]) <= 4  # one that was dropped stays as long as an episode with it
    one, two = (latest_checkpoint(run.folder / "checkpoints") for run in (whole, part))
    for path in one.glob("*.safetensors"):
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    assert (whole.best_by or {})["compared"] == (part.best_by or {})["compared"]
