"""Tianshou 2: one DQN per agent, in turns; PettingZooEnv hands the mask on as ``obs.mask``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

from corral.envs import dfaas_v0


def make() -> PettingZooEnv:
    return PettingZooEnv(
        dfaas_v0.env(trace="edge3", rows=(0, 2822), max_cycles=48, illegal="raise")
    )


def dqn(env: PettingZooEnv, gamma: float, explore: float = 0.0) -> DQN:
    """Its n-step return spans a round: one step alone bootstraps from the next agent's view."""
    space, n = env.observation_space["observation"], len(env.agents)
    net = Net(state_shape=space.shape, action_shape=env.action_space.n, hidden_sizes=(64, 64))
    # eps_training is never used in a team: only the team's policy is told that it trains. In
    # dfaas_v0 the load is chance enough, and teammates that explore are noise.
    policy = DiscreteQLearningPolicy(
        model=net, action_space=env.action_space, eps_inference=explore
    )
    optim = AdamOptimizerFactory(lr=3e-3)
    return DQN(policy=policy, optim=optim, gamma=gamma ** (1 / n), n_step_return_horizon=n)


def learn(steps: int, seed: int) -> Callable[[dict[str, Any]], dict[str, int]]:
    np.random.seed(seed)  # noqa: NPY002  # what it draws from
    torch.manual_seed(seed)
    env, num_envs = make(), 8
    agents = env.agents
    team = MultiAgentOffPolicyAlgorithm(algorithms=[dqn(env, 0.5) for _ in agents], env=env)
    envs = DummyVectorEnv([make] * num_envs)
    envs.seed(seed)
    collector = Collector(team, envs, VectorReplayBuffer(60_000, num_envs), exploration_noise=True)
    turns = steps * len(agents)
    team.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=turns,
            collection_step_num_env_steps=num_envs * 24,
            batch_size=128,
            update_step_num_gradient_steps_per_sample=0.05,
            multi_agent_return_reduction=lambda returns: returns.sum(axis=-1),
            show_progress=False,
            verbose=False,
        )
    )

    def play(observations: dict[str, Any]) -> dict[str, int]:
        actions = {}
        for agent, own in observations.items():
            obs = Batch(obs=own["observation"][None], mask=own["action_mask"][None] == 1)
            with torch.no_grad():
                out = team.get_algorithm(agent).policy(Batch(obs=obs, info=Batch()))
            actions[agent] = int(out.act[0])
        return actions

    return play
