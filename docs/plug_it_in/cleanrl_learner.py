"""The CleanRL-style loop on the probes: corral doctor --learner cleanrl_learner.py:learn"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cleanrl_example import train

from corral.adapters import make_batch
from corral.errors import UnsupportedSpaceError
from corral.lab.doctor.examination import Learned


def learn(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    torch.manual_seed(seed)
    batch = make_batch(make_env, num_envs=64, seed=seed)
    agents = list(batch.rules.agents)
    spaces = {str(batch.rules.observation_space(agent)) for agent in agents}
    if not batch.rules.simultaneous or len(spaces) > 1:
        raise UnsupportedSpaceError("the loop stacks the observations of all agents, in each step")
    network = train(batch, steps, gamma=0.9, rate=5e-3)

    def tensors(agent: str, observation: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        who = np.eye(len(agents), dtype=np.float32)[agents.index(agent)]
        features = torch.as_tensor(np.concatenate([observation["observation"], who]))
        return features, torch.as_tensor(observation["action_mask"]) == 1

    def policy(agent: str) -> Callable[[dict[str, Any]], int]:
        @torch.no_grad()
        def play(observation: dict[str, Any]) -> int:
            return int(network.policy(*tensors(agent, observation)).sample())

        return play

    def value(agent: str) -> Callable[[dict[str, Any]], torch.Tensor]:
        return lambda observation: network.value(tensors(agent, observation)[0])

    return Learned({a: policy(a) for a in agents}, {a: value(a) for a in agents})
