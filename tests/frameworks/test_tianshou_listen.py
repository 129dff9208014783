"""Listening to Tianshou: what is heard is what the update uses, and known traps are named."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("tianshou", reason="needs the extra tianshou")

import torch
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks.tianshou import listen_tianshou
from corral.lab.listening.rules import findings_of
from support.listening import block
from support.messages import shown

pytestmark = pytest.mark.filterwarnings("default")


class MaskedEnv(gymnasium.Env):
    """The mask allows 2 of 3 actions; episodes of 8 steps."""

    def __init__(self) -> None:
        self.action_space = gymnasium.spaces.Discrete(3)
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def _look(self) -> dict[str, Any]:
        obs = np.full(2, self.t / 8, np.float32)
        return {"obs": obs, "mask": np.array([True, self.t % 2 == 0, self.t % 2 == 1])}

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.t = 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._look(), float(action == 0), self.t >= 8, False, {}


def cart_pole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1", max_episode_steps=25)


def ppo(env: gymnasium.Env, **settings: Any) -> PPO:
    torch.manual_seed(0)
    net = {"state_shape": env.observation_space.shape, "hidden_sizes": (32,)}
    actor = DiscreteActor(preprocess_net=Net(**net), action_shape=env.action_space.n)
    actor.softmax_output = False
    policy = DiscreteActorPolicy(actor=actor, action_space=env.action_space)
    return PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=Net(**net)),
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.95,
        gae_lambda=0.9,
        **settings,
    )


def train(algorithm: Any, make: Any, updates: int, *, samples: bool = True) -> None:
    """Play 100 steps in 2 environments and update, ``updates`` times."""
    envs = DummyVectorEnv([make] * 2)
    envs.seed(0)
    np.random.seed(0)  # noqa: NPY002  # Tianshou shuffles minibatches with it
    buffer = VectorReplayBuffer(400, 2)
    collector = Collector(algorithm.policy, envs, buffer)
    collector.reset()
    for _ in range(updates):
        with policy_within_training_step(algorithm.policy) if samples else nullcontext():
            collector.collect(n_step=100)
        with policy_within_training_step(algorithm.policy):
            if isinstance(algorithm, PPO):
                algorithm.update(buffer=buffer, batch_size=64, repeat=2)
                collector.reset_buffer(keep_statistics=True)
            else:
                for _ in range(8):
                    algorithm.update(buffer=buffer, sample_size=32)


def heard(algorithm: Any, make: Any, updates: int = 3, *, samples: bool = True) -> Any:
    ear = Ear("tianshou")
    listen_tianshou(algorithm, ear)
    train(algorithm, make, updates, samples=samples)
    ear.stop()
    assert not ear.error
    return ear.policies["policy"]


@pytest.mark.parametrize("scaling", [False, True])
def test_rollouts_and_minibatches_are_what_the_update_uses(scaling: bool) -> None:
    policy = heard(
        ppo(cart_pole(), return_scaling=scaling, advantage_normalization=True), cart_pole
    )
    assert not policy.traps
    assert set(policy.missing) <= {"mask"}
    assert (policy.gamma, policy.gae_lambda, policy.updates) == (0.95, 0.9, 3)
    assert policy.lengths
    assert policy.returns == [float(length) for length in policy.lengths]
    for rollout in policy.rollouts:
        rewards, values, final, terminated, truncated = (
            getattr(rollout, name)[:, 0]
            for name in ("rewards", "values", "final_values", "terminated", "truncated")
        )
        advantage, expected = 0.0, np.zeros(len(rewards))
        for t in reversed(range(len(rewards))):
            done = terminated[t] or truncated[t]
            after = (0.0 if terminated[t] else final[t]) if done else values[t + 1]
            delta = rewards[t] + 0.95 * after - values[t]
            advantage = delta + (0.0 if done else 0.95 * 0.9 * advantage)
            expected[t] = advantage
        assert np.allclose(expected, rollout.advantages[:, 0], atol=1e-4)
        assert np.allclose(expected + values, rollout.returns[:, 0], atol=1e-4)
    first = policy.minibatches[0]
    assert first.first
    assert np.allclose(first.new_log_probs, first.log_probs, atol=1e-5)
    expected = -first.advantages / len(first.advantages)
    assert np.allclose(first.gradients.log_probs, expected, atol=1e-6)
    assert first.gradients.values.shape == first.values.shape == first.returns.shape


def test_the_weights_are_the_same_with_and_without_listening() -> None:
    states = []
    for listening in (False, True):
        algorithm, before = ppo(cart_pole()), dict(vars(PPO))
        if listening:
            heard(algorithm, cart_pole)
        else:
            train(algorithm, cart_pole, 3)
        states.append(algorithm.policy.state_dict() | algorithm.critic.state_dict())
        assert dict(vars(PPO)) == before
    assert all(torch.equal(values, states[1][name]) for name, values in states[0].items())


def test_listening_takes_at_most_a_twentieth_of_the_time() -> None:
    algorithm, ear = ppo(cart_pole()), Ear("tianshou")
    listen_tianshou(algorithm, ear)
    began = time.process_time()
    train(algorithm, cart_pole, 20)
    assert ear.cpu <= 0.05 * (time.process_time() - began)
    ear.stop()


def test_a_mask_that_ppo_does_not_apply_is_named() -> None:
    class Actor(DiscreteActor):
        def forward(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
            return super().forward(obs.obs, *args, **kwargs)

    class Critic(DiscreteCritic):
        def forward(self, obs: Any, **kwargs: Any) -> Any:
            return super().forward(obs.obs, **kwargs)

    algorithm = ppo(MaskedEnv())
    algorithm.policy.actor.__class__, algorithm.critic.__class__ = Actor, Critic
    policy = heard(algorithm, MaskedEnv, 1)
    assert [trap.cause for trap in policy.traps] == ["mask-ignored-in-play"]
    assert "Actor.forward" in policy.traps[0].place
    assert policy.rollouts[0].mask.sum(axis=-1).tolist() == [[2]] * 100


def test_play_without_exploration_is_named() -> None:
    algorithm = ppo(cart_pole())
    algorithm.policy.deterministic_eval = True
    found = {
        item.cause: item for item in findings_of([heard(algorithm, cart_pole, 1, samples=False)])
    }
    assert found["play-greedy"].certainty == 3
    assert "deterministic_eval" in found["play-greedy"].todo


def test_transitions_of_an_off_policy_algorithm_are_heard() -> None:
    env = cart_pole()
    torch.manual_seed(0)
    net = Net(state_shape=env.observation_space.shape, action_shape=2, hidden_sizes=(32,))
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.5)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=10)
    told = heard(algorithm, cart_pole, 12)
    assert told.returns
    assert told.returns == [float(length) for length in told.lengths]
    assert told.steps
    assert told.rollouts[0].rewards.shape[0] >= 512
    assert told.rollouts[0].terminated.sum() > 5


def test_the_block_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(
        compile(block("listen_tianshou.py"), "listen_tianshou.py", "exec"),
        {"__name__": "listen_tianshou"},
    )
    shown(capsys.readouterr().out, "Measurements")
