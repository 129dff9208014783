"""A policy of Stable-Baselines3 that plays one agent, as ``corral.envs.policy`` wants it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.adapters.spaces import Layout
from corral.envs.core import Observation
from corral.envs.policy import Decision, Memoryless

__all__ = ["SB3Policy"]


class SB3Policy(Memoryless):
    """A policy of Stable-Baselines3 that plays one agent. See ``corral.envs.policy``."""

    def __init__(self, policy: Any, layout: Layout, place: int) -> None:
        self.policy = policy
        self.layout = layout
        self.place = place  # of the agent

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """The most probable legal action, or one drawn with ``rng``; for one or for a batch.

        ``extra`` holds ``probabilities``, float64 [..., A].
        """
        if not deterministic and rng is None:
            raise ValueError("sampling needs rng=, a numpy Generator; or pass deterministic=True")
        single = np.ndim(observation["action_mask"]) == 1
        rows = () if single else (len(observation["action_mask"]),)
        seen = self.layout.flat(observation, rows)
        if self.layout.identities is not None:
            own = self.layout.identities[self.place]
            seen["agent"] = np.broadcast_to(own, (*rows, len(own)))
        if single:
            seen = {key: values[None] for key, values in seen.items()}
        self.policy.set_training_mode(False)
        tensors, _ = self.policy.obs_to_tensor(seen)
        with torch.no_grad():
            logits = self.policy.get_distribution(tensors).distribution.logits
            chances = torch.softmax(logits.double(), dim=-1).cpu().numpy()  # [R, A]
        legal = seen["action_mask"].astype(bool)
        if deterministic:
            action = np.where(legal, chances, -1.0).argmax(axis=-1)
        else:
            assert rng is not None
            # The action at which the running sum passes a uniform number, among the legal ones.
            sums = np.where(legal, chances, 0.0).cumsum(axis=-1)
            drawn = rng.random(len(sums))[:, None] * sums[:, -1:]
            action = (sums > drawn).argmax(axis=-1)
        if single:
            return Decision(action[0], extra={"probabilities": chances[0]})
        return Decision(action, extra={"probabilities": chances})
