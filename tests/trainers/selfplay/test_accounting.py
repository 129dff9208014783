"""What frozen seats earn is nobody's who learns: any game, any actions, any network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import corral
from corral.envs.batch import Batch
from corral.envs.registry import make_rules
from corral.trainers.capabilities import Seats
from corral.trainers.on_policy.algorithms import ippo
from corral.trainers.on_policy.records import Advantages, Trajectories
from corral.trainers.on_policy.trainer import A2C, IPPO, MAPPO, trainer_of
from corral.trainers.pool import Pool
from corral.trainers.runs.log import Statistics
from corral.trainers.selfplay.cast import LEARNS
from support.mappo_teams import ManyBatch, ManyRules
from support.turn_rules import MortalRules, PileRules

POOL = Pool(past=0.6, every=64, keep=3, draw="uniform", best=0)
SMALL: dict[str, Any] = {"num_envs": 6, "n_steps": 16, "n_epochs": 1, "net_arch": (8,)}

Make = Callable[..., Batch]


def trainer(kind: Any, rules: Any, make_batch: Any = None, pool: Pool = POOL, **more: Any) -> Any:
    names: Mapping[str, str] = more.pop("policies", dict.fromkeys(rules.agents, "shared"))
    opponents = more.pop("opponents", {})
    taught = more.pop("taught", list(dict.fromkeys(names.values())))
    known = kind.Settings.__dataclass_fields__
    small = {name: value for name, value in SMALL.items() if name in known}
    return kind(
        rules,
        kind.Settings(**{**small, **more}),
        seed=1,
        policies=names,
        policies_to_train=taught,
        steps=960,
        make_batch=make_batch,
        seats=Seats(opponents, pool=pool),
    )


SEPARATE = {"policies": {f"agent_{i}": f"p{i}" for i in range(3)}}
TWO = {"policies": {"agent_0": "a", "agent_1": "b"}}
CASES: dict[str, Callable[[], Any]] = {
    "turns, agents end early": lambda: trainer(MAPPO, PileRules(gift=1.0, last_move=2), **TWO),
    "three at once, some die": lambda: trainer(IPPO, MortalRules(tell="once")),
    "three policies": lambda: trainer(MAPPO, MortalRules((2, 3, 4)), **SEPARATE),
    "with a memory": lambda: trainer(IPPO, MortalRules(max_cycles=3), memory=4),
    "critics see actions": lambda: trainer(
        MAPPO, MortalRules(max_cycles=3), critic_input="observations+actions"
    ),
    "a policy that is not trained": lambda: trainer(
        IPPO, MortalRules((2, 3, 4)), **SEPARATE, taught=["p0", "p2"]
    ),
    "an opponent beside": lambda: trainer(
        MAPPO,
        MortalRules((2, 2, 2)),
        policies={"agent_0": "p", "agent_1": "p"},
        opponents={"agent_2": "random"},
    ),
    "Box and MultiDiscrete": lambda: trainer(
        IPPO, ManyRules(), lambda r, b, s: ManyBatch(r, b, s), **TWO
    ),
    "images": lambda: trainer(
        A2C,
        make_rules("tiles_v0"),
        cnn_arch=(4, 4, 4, 8),
        policies={"tile_0": "tile", "level_0": "level"},
    ),
}


def learned(case: str, scale: float) -> tuple[Any, list[dict[str, float]], int]:
    """Train where rewards of frozen seats are multiplied by ``scale``."""
    one = CASES[case]()
    one.begin()
    step, changed = one.batch.step, 0

    def paid(actions: Any) -> Any:
        nonlocal changed
        frozen = one.casting.cast != LEARNS
        found = step(actions)
        found.reward[frozen] *= scale
        changed += int(frozen.sum())
        return found

    one.batch.step = paid
    metrics = [update.metrics for update in one.learn(5 * 96)]
    return one, metrics, changed


@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=pytest.mark.slow) if n == "images" else n for n in CASES]
)
def test_rewards_of_frozen_seats_are_in_no_weight_and_no_metric(case: str) -> None:
    plain, metrics, _ = learned(case, 1.0)
    other, others, changed = learned(case, -7.0)
    assert changed > 50
    assert metrics == others
    for name, values in plain.weights().items():
        np.testing.assert_array_equal(values, other.weights()[name], err_msg=name)


def test_an_algorithm_of_ones_own_is_shown_no_reward_of_frozen_seats() -> None:
    seen = []

    def advantages(trajectories: Trajectories, settings: Any) -> Advantages:
        seen.append(trajectories.reward.copy())
        return ippo.advantages(trajectories, settings)

    one = trainer(trainer_of(ippo.but(name="own", advantages=advantages)), MortalRules())
    for _ in one.learn(2 * 96):
        learns = one.rollout.groups[0].learned.reshape(16, -1)
        paid = one.rollout.reward.reshape(16, -1)
        assert (paid[~learns] != 0).any()
        assert not seen[-1][~learns].any()
        np.testing.assert_array_equal(seen[-1][learns], paid[learns])


@pytest.mark.parametrize("max_cycles", [None, 3])
def test_a_frozen_player_with_a_memory_begins_each_episode_without_one(
    max_cycles: int | None,
) -> None:
    one = trainer(IPPO, MortalRules(max_cycles=max_cycles), memory=4, pool=POOL)
    one.begin()
    casting, steps = one.casting, np.zeros(6, dtype=int)
    inner, step, seen = casting.play, one.batch.step, []

    def play(buffer: Any, at: Any, observations: Any, env_rows: Any = None) -> None:
        if env_rows is None:
            empty = ~casting.hidden["shared"].any(axis=-1)
            frozen = (casting.cast != LEARNS) & buffer.acting[at]
            seen.append((steps.copy(), empty, frozen))
        inner(buffer, at, observations, env_rows)

    def stepped(actions: Any) -> Any:
        found = step(actions)
        steps[:] += 1
        if found.finished is not None:
            steps[found.finished.rows] = 0
        return found

    casting.play, one.batch.step = play, stepped
    list(one.learn(4 * 96))
    first = sum(int(frozen[now == 0].sum()) for now, _, frozen in seen)
    assert first > 20
    for now, empty, frozen in seen:
        assert empty[now == 0].all()
        assert not empty[(now > 0)[:, None] & frozen].any()


def test_final_moments_of_cut_episodes_are_judged_with_the_memory_of_who_played_them() -> None:
    one = trainer(MAPPO, MortalRules(max_cycles=3), memory=4, critic_input="observations+actions")
    one.begin()
    casting, cut = one.casting, 0
    inner = casting._play_frozen

    def played(buffer: Any, at: Any, frozen: Any, cast: Any, rows: Any, moves: bool) -> None:
        nonlocal cut
        before = casting.hidden["shared"].copy()
        inner(buffer, at, frozen, cast, rows, moves)
        if at is ...:
            cut += int(frozen.sum())
            np.testing.assert_array_equal(cast, casting.cast[rows])
            assert before[rows][frozen].any(axis=-1).all()
        if not moves:
            np.testing.assert_array_equal(before, casting.hidden["shared"])

    casting._play_frozen = played
    list(one.learn(2 * 96))
    assert cut > 20


def test_metrics_of_ones_own_are_told_who_played(tmp_path: Path) -> None:
    told: list[Any] = []

    def learner_wins(episode: Any) -> float | None:
        told.append(episode)
        if not episode.players:
            return None
        (frozen,) = episode.players
        (own,) = set(episode.agents) - {frozen}
        return float(episode.returns[own] > 0)

    class See(corral.Callback):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def on_episode(self, session: Any, episode: Any) -> None:
            self.seen.append(episode)

    see = See()
    corral.train(
        "tictactoe_v0",
        trainer="ippo",
        steps=960,
        out=tmp_path / "run",
        self_play=POOL,
        metrics={"wins": learner_wins},
        callbacks=[see],
        progress=False,
        **SMALL,
    )
    assert len(told) == len(see.seen) > 50
    assert sum(bool(each.players) for each in told) > 20
    assert [(e.players, e.returns) for e in told] == [(e.players, e.returns) for e in see.seen]


def test_the_return_of_learners_does_not_depend_on_how_many_episodes_the_pool_played() -> None:
    def of(past: int) -> float | None:
        from corral.envs.episode_stats import Episode

        found = Statistics({"a": "shared", "b": "shared"}, pool=True)
        for k in range(20):
            players = {"ab"[k % 2]: "shared@0"} if k < past else {}
            found.recent.append(Episode({"a": 10.0, "b": 10.0}, 5, {}, players))
        return found.return_learned

    assert of(0) == of(4) == of(18) == 20.0
