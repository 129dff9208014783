"""An RLModule as posted in RLlib's forum, the same one mended, and a script that trains them.

Thread 22848 of discuss.ray.io: an image, a vector and an action mask, in a class that is no
ValueFunctionAPI; ``_forward`` returns advantages, because the loss fails without them.

    python rllib_posted.py Posted|Mended ITERATIONS OUT
"""

from __future__ import annotations

import json
import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn


class PictureEnv(gymnasium.Env):
    """Choose the action that the picture and the vector show; 8 choices in an episode."""

    def __init__(self, config: Any = None) -> None:
        box = gymnasium.spaces.Box
        self.observation_space = gymnasium.spaces.Dict(
            image=box(0, 1, (3, 8, 8), np.float32),
            vector=box(-1, 1, (4,), np.float32),
            action_mask=box(0, 1, (4,), np.int8),
        )
        self.action_space = gymnasium.spaces.Discrete(4)
        self.random = np.random.default_rng(0)

    def look(self) -> dict[str, Any]:
        self.goal = int(self.random.integers(4))
        mask, vector = np.ones(4, np.int8), np.zeros(4, np.float32)
        mask[(self.goal + 1) % 4], vector[self.goal] = 0, 1
        image = np.full((3, 8, 8), self.goal / 4, np.float32)
        return {"image": image, "vector": vector, "action_mask": mask}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.t = float(action == self.goal), self.t + 1
        return self.look(), reward, self.t >= 8, False, {}


class Posted(TorchRLModule):
    def setup(self) -> None:
        self.cnn = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 16))
        self.vector_encoder = nn.Linear(4, 16)
        self.policy_head, self.value_head = nn.Linear(32, 4), nn.Linear(32, 1)

    def features(self, obs: dict[str, Any]) -> torch.Tensor:
        vector = torch.relu(self.vector_encoder(obs["vector"]))
        return torch.cat([self.cnn(obs["image"]), vector], dim=-1)

    def logits(self, batch: dict[str, Any]) -> torch.Tensor:
        obs = batch[Columns.OBS]
        return self.policy_head(self.features(obs)).masked_fill(obs["action_mask"] == 0, -1e9)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        logits = self.logits(batch)
        return {
            Columns.ACTION_DIST_INPUTS: logits,
            Columns.VF_PREDS: self.compute_values(batch),
            Columns.ADVANTAGES: torch.zeros(len(logits)),
            Columns.VALUE_TARGETS: torch.zeros(len(logits)),
        }

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        values: torch.Tensor = self.value_head(self.features(batch[Columns.OBS]))
        return values.squeeze(-1)


class Mended(Posted, ValueFunctionAPI):
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.logits(batch)}


def config(kind: type) -> PPOConfig:
    return (
        PPOConfig()
        .environment(PictureEnv)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=2)
        .rl_module(rl_module_spec=RLModuleSpec(kind))
        .training(train_batch_size_per_learner=256, minibatch_size=128, num_epochs=4)
        .training(lr=3e-3, gamma=0.9)
        .learners(num_learners=0)
        .debugging(seed=0, log_level="ERROR")
    )


if __name__ == "__main__":
    import corral

    algo = config(globals()[sys.argv[1]]).build_algo()
    ear = corral.listen(algo)
    for _ in range(int(sys.argv[2])):
        algo.train()
    algo.save_to_path(f"{sys.argv[3]}/checkpoint")
    with open(f"{sys.argv[3]}/report.json", "w", encoding="utf-8") as file:
        json.dump(ear.report().to_json(), file)
    algo.stop()
