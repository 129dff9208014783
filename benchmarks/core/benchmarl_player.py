"""A team that BenchMARL has trained, as policies of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.envs import ExplorationType, set_exploration_type

from corral.envs.policy import Decision

__all__ = ["Shared"]


class Shared:
    """BenchMARL's policy, one for all agents of a group, as a Policy of ours; greedy.

    Where each agent has weights of its own, ``index`` is which of the group is meant.
    """

    def __init__(self, policy: Any, group: str, agents: int, index: int = 0) -> None:
        self.policy, self.group, self.agents, self.index = policy, group, agents, index

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(
        self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
    ) -> Decision:
        mask = torch.as_tensor(np.array(observation["action_mask"]), dtype=torch.bool)  # [B, A]
        obs = torch.as_tensor(np.array(observation["observation"]))
        # The network has an axis of agents: all are shown what one observes, which alone counts.
        mask, obs = (x[:, None].expand(-1, self.agents, -1) for x in (mask, obs))
        group = {"observation": {"observation": obs}, "action_mask": mask}
        at = TensorDict({self.group: TensorDict(group, mask.shape[:2])}, mask.shape[:1])
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            return Decision(self.policy(at)[self.group, "action"][:, self.index].numpy())
