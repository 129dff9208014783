"""Tianshou 2 on environments that raise at an illegal action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tianshou", reason="needs the extra tianshou")

import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.utils.net.common import Net

from corral.envs import probes, tictactoe_v0, tiles_v0
from corral.lab.doctor.examination import examination
from support.frameworks import EXAMPLES, example, judge

pytestmark = pytest.mark.filterwarnings("default")


def dqn(env: Any, **kwargs: Any) -> DQN:
    shape = env.observation_space["observation"].shape
    net = Net(state_shape=shape, action_shape=env.action_space.n, hidden_sizes=(32,))
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.5)
    return DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), **kwargs)


def test_parallel_it_beats_random_play_on_days_it_has_not_seen() -> None:
    verdict = judge(example("tianshou").learn, steps=4_000, seed=0)
    assert verdict.beats_random, verdict


def test_turn_based_masks_hold_while_it_learns() -> None:
    """And what follows a move in the buffer is the opponent's view, of which it bootstraps."""

    def make() -> PettingZooEnv:
        return PettingZooEnv(tictactoe_v0.env(illegal="raise"))

    torch.manual_seed(0)
    env = make()
    team = MultiAgentOffPolicyAlgorithm(algorithms=[dqn(env, n_step_return_horizon=2)] * 2, env=env)
    buffer = VectorReplayBuffer(2_000, 4)
    collector = Collector(team, DummyVectorEnv([make] * 4), buffer, exploration_noise=True)
    collector.reset()
    for _ in range(4):
        with policy_within_training_step(team.policy):
            with torch.no_grad():
                stats = collector.collect(n_step=100)
            team.update(buffer, 64)
        assert stats.n_collected_steps == 100
    seen = buffer[:].obs
    moves, _ = buffer.sample(0)
    legal = np.asarray(moves.obs.mask)[np.arange(len(moves)), moves.act]
    assert legal.all()
    assert not np.asarray(seen.mask).all(), "no mask ever forbade anything"
    going_on = ~moves.done
    assert going_on.sum() > 200
    assert (moves.obs.agent_id != moves.obs_next.agent_id)[going_on].all()


def test_agents_that_differ_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"[Oo]bservation"):
        PettingZooEnv(tiles_v0.env(illegal="raise"))


def test_the_first_death_ends_the_episode_for_all() -> None:
    """agent_1 would have played four steps; Tianshou's collector takes the first end for all's."""
    env = PettingZooEnv(probes.env("probe_p10_v0", illegal="raise"))
    seen, _ = env.reset()
    played = {"agent_0": 0, "agent_1": 0}
    over = False
    while not over:
        played[seen["agent_id"]] += 1
        seen, _, terminated, truncated, _ = env.step(int(np.argmax(seen["mask"])))
        over = terminated or truncated
    assert played == {"agent_0": 2, "agent_1": 2}
    assert set(env.env.agents) == {"agent_0", "agent_1"}
    assert not env.env.terminations["agent_1"]


def test_its_greedy_policy_needs_the_mask_beside_the_features() -> None:
    """With ``obs`` and ``mask`` in the Batch the choice is legal; features alone lose the mask."""
    env = PettingZooEnv(tictactoe_v0.env(illegal="raise"))
    torch.manual_seed(0)
    policy = dqn(env).policy
    views = np.zeros((1, *env.observation_space["observation"].shape), np.float32)
    free = int(policy(Batch(obs=views, info=Batch())).act[0])
    mask = np.ones((1, 9), dtype=bool)
    mask[0, free] = False
    bound = int(policy(Batch(obs=Batch(obs=views, mask=mask), info=Batch())).act[0])
    assert bound != free


def test_agents_of_a_team_are_not_told_that_they_train() -> None:
    """So ``eps_training`` explores nothing, and ``eps_inference`` does it."""
    torch.manual_seed(0)
    env = PettingZooEnv(probes.env("probe_p04_v0"))
    team = MultiAgentOffPolicyAlgorithm(algorithms=[dqn(env) for _ in env.agents], env=env)
    seen, _ = env.reset(seed=0)
    own = {"obs": seen["obs"], "mask": np.asarray(seen["mask"]), "agent_id": seen["agent_id"]}
    batch = Batch(obs=Batch([own] * 200), info=Batch())
    with policy_within_training_step(team.policy):
        assert team.policy.is_within_training_step
        policies = team.policy.policies
        assert not any(policy.is_within_training_step for policy in policies.values())
        assert (team.policy.add_exploration_noise(np.zeros(200, int), batch) == 0).all()
        for policy in policies.values():
            policy.eps_inference = 0.5
        assert team.policy.add_exploration_noise(np.zeros(200, int), batch).any()


@pytest.mark.timeout(600)
def test_its_learner_learns_what_is_paid_and_refuses_agents_that_differ() -> None:
    found = examination(f"{EXAMPLES}/tianshou_learner.py:learn", ["P4", "P11"])
    assert found.failed == frozenset()
    assert [result.refused for result in found.results] == [False, True]
