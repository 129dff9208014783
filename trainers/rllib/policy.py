"""A policy that RLlib trained, played without RLlib: plain torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.adapters.networks import MaskedActorCritic, tensors
from corral.envs.core import Array, Observation
from corral.envs.policy import Decision, Memoryless
from corral.trainers.on_policy.networks import legal_mask

__all__ = ["MaskedPolicy"]


class MaskedPolicy(Memoryless):
    """Plays ``agent`` with the actor of ``networks``. See ``corral.envs.policy``.

    ``identity`` (float32 [N]) is shown beside each observation, where the actor was trained so.
    """

    def __init__(self, networks: MaskedActorCritic, agent: str, identity: Array | None) -> None:
        self.networks = networks
        self.agent = agent
        self.identity = identity

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
        legal = legal_mask(self.agent, observation["action_mask"])
        single = legal.ndim == 1
        shown: Any = tensors(observation)
        if single:
            shown = _with_axis(shown)
        rows = len(shown["action_mask"])
        if self.identity is not None:
            shown["agent"] = torch.from_numpy(self.identity).expand(rows, -1)
        with torch.inference_mode():
            logits = self.networks.logits(shown)
            chances = logits.double().softmax(dim=-1).numpy()  # illegal: exactly 0
        if deterministic:
            action = logits.argmax(dim=-1).numpy()
        else:
            assert rng is not None
            # The action at which the running sum passes a uniform number.
            sums = chances.cumsum(axis=-1)
            drawn = rng.random(rows)[:, None] * sums[:, -1:]
            action = (sums > drawn).argmax(axis=-1)
        if single:
            return Decision(action[0], extra={"probabilities": chances[0]})
        return Decision(action, extra={"probabilities": chances})


def _with_axis(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _with_axis(value) for key, value in tree.items()}
    return tree[None]
