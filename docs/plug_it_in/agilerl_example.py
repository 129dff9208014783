"""AgileRL: PPO over all agents as columns of a VectorEnv; it reads masks from infos alone."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from agilerl.algorithms import PPO
from agilerl.rollouts.on_policy import collect_rollouts

import corral.adapters  # noqa: F401  # registers corral/dfaas-v0 with gymnasium

GAME = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}


class MasksInInfo(gymnasium.vector.VectorWrapper):
    """Columns [C] that observe features and which agent they are; ``info["action_mask"]``."""

    def __init__(self, envs: gymnasium.vector.VectorEnv) -> None:
        super().__init__(envs)
        parts = envs.single_observation_space
        size = parts["observation"].shape[0] + parts["agent"].shape[0]
        self.single_observation_space = gymnasium.spaces.Box(0, 1, (size,), np.float32)

    def reset(self, **kwargs: Any) -> Any:
        obs, info = self.env.reset(**kwargs)
        return features(obs), {**info, "action_mask": obs["action_mask"]}

    def step(self, actions: Any) -> Any:
        obs, *rest, info = self.env.step(actions)
        return features(obs), *rest, {**info, "action_mask": obs["action_mask"]}


def features(obs: dict[str, Any]) -> Any:
    return np.concatenate([obs["observation"], obs["agent"]], axis=-1)


def learn(steps: int, seed: int) -> Callable[[dict[str, Any]], dict[str, int]]:
    np.random.seed(seed)  # noqa: NPY002  # what it draws from
    torch.manual_seed(seed)
    num_envs, rollout = 8, 32
    envs = MasksInInfo(gymnasium.make_vec("corral/dfaas-v0", num_envs=3 * num_envs, **GAME))
    model = PPO(
        envs.single_observation_space,
        envs.single_action_space,
        num_envs=3 * num_envs,
        learn_step=3 * num_envs * rollout,
        batch_size=128,
        lr=2e-3,
        gamma=0.5,
        ent_coef=0.0,
    )
    obs, info = envs.reset(seed=seed)
    done, scores = np.zeros(3 * num_envs), np.zeros(3 * num_envs)
    for _ in range(max(1, round(steps / (num_envs * rollout)))):
        _, obs, done, scores, info = collect_rollouts(
            model, envs, last_obs=obs, last_done=done, last_scores=scores, last_info=info
        )
        model.learn()

    def play(observations: dict[str, Any]) -> dict[str, int]:
        own = np.stack([obs["observation"] for obs in observations.values()])
        masks = np.stack([obs["action_mask"] for obs in observations.values()])
        one_hot = np.eye(len(own), dtype=np.float32)
        model.get_action(features({"observation": own, "agent": one_hot}), action_mask=masks)
        greedy = model.actor.head_net.dist.logits.argmax(dim=1)  # get_action itself only samples
        return {agent: int(action) for agent, action in zip(observations, greedy, strict=True)}

    return play
