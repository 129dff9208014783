"""Tianshou's DQN on the probes, a network for each agent, in turns.

corral doctor --learner tianshou_learner.py:learn
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.data import Batch, Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, PettingZooEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou_example import dqn

from corral.errors import UnsupportedSpaceError
from corral.lab.doctor.examination import Learned

COPIES, GAMMA, ENOUGH = 16, 0.9, 5_000  # env steps: it need not use all that it is given
logging.getLogger("tianshou").setLevel(logging.ERROR)  # warns of rewards of several agents


def learn(make_env: Callable[..., Any], steps: int, seed: int) -> Learned:
    np.random.seed(seed)  # noqa: NPY002  # what it draws from
    torch.manual_seed(seed)

    def make() -> PettingZooEnv:
        return PettingZooEnv(make_env(api="aec"))

    try:
        env = make()
    except AssertionError as error:  # agents with different observations or actions
        raise UnsupportedSpaceError(str(error)) from error
    agents, envs = list(env.agents), DummyVectorEnv([make] * COPIES)
    team = MultiAgentOffPolicyAlgorithm(algorithms=[dqn(env, GAMMA, 0.2) for _ in agents], env=env)
    envs.seed(seed)
    team.run_training(
        OffPolicyTrainerParams(
            training_collector=Collector(
                team, envs, VectorReplayBuffer(20_000, COPIES), exploration_noise=True
            ),
            max_epochs=1,
            epoch_num_steps=min(steps, ENOUGH) * len(agents),  # it counts turns
            collection_step_num_env_steps=256,
            batch_size=128,
            update_step_num_gradient_steps_per_sample=0.1,
            multi_agent_return_reduction=lambda returns: returns.sum(axis=-1),
            show_progress=False,
            verbose=False,
        )
    )

    def ask(agent: str, observation: dict[str, Any]) -> Any:
        """The greedy action [1], and what each action is worth: [1, A]."""
        mask = observation["action_mask"][None] == 1
        obs = Batch(obs=observation["observation"][None], mask=mask)
        with torch.no_grad():
            out = team.get_algorithm(agent).policy(Batch(obs=obs, info=Batch()))
        return out.act, out.logits

    def policy(agent: str) -> Callable[[dict[str, Any]], int]:
        return lambda observation: int(ask(agent, observation)[0][0])

    def value(agent: str) -> Callable[[dict[str, Any]], float]:
        def best(observation: dict[str, Any]) -> float:
            action, worth = ask(agent, observation)
            return float(worth[0, int(action[0])])

        return best

    return Learned({a: policy(a) for a in agents}, {a: value(a) for a in agents})
