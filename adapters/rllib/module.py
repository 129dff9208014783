"""An RLModule for RLlib's PPO that applies the mask in the observation.

    spec = RLModuleSpec(module_class=MaskedRLModule, model_config={"net_arch": (64, 64)})
    config = PPOConfig().rl_module(rl_module_spec=spec)

It supports vectors, images and Dicts of both (``corral.adapters.networks``), with an
``action_mask`` as in the observations of ``RLlibEnv``. If the observation has an entry ``state``
(``RLlibEnv`` with ``state=True``), the critic observes it and the actor does not: a centralized
critic.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from corral.adapters.masked_distribution import masked_logits
from corral.adapters.networks import MaskedActorCritic
from corral.envs.arguments import known_arguments
from corral.envs.masks import MASK
from corral.extras import require

require("ray.rllib", extra="rllib", purpose="make networks for RLlib")

import torch  # noqa: E402
from ray.rllib.core.columns import Columns  # noqa: E402
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.core.rl_module.torch import TorchRLModule  # noqa: E402

__all__ = ["MaskedRLModule"]

OF_RLLIB = {field.name for field in dataclasses.fields(DefaultModelConfig)}
"""RLlib adds some of these fields to the model_config of a user."""


class MaskedRLModule(TorchRLModule, InferenceOnlyAPI, ValueFunctionAPI):  # type: ignore[misc]
    """The actor and critic of ``MaskedActorCritic``. ``model_config`` holds its arguments.

    Exploration, inference and training use the same masked logits. So samples, the most probable
    action, log-probabilities, entropy and KL divergence depend only on legal actions.

    Raises UnsupportedSpaceError, and TypeError for unknown arguments.
    """

    def setup(self) -> None:
        arguments = {k: v for k, v in dict(self.model_config or {}).items() if k not in OF_RLLIB}
        known_arguments(MaskedActorCritic, arguments)
        networks = MaskedActorCritic(self.observation_space, self.action_space, **arguments)
        self.actor, self.critic = networks.actor, networks.critic

    def get_non_inference_attributes(self) -> list[str]:
        return ["critic"]

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        return {Columns.ACTION_DIST_INPUTS: masked_logits(self.actor(obs), obs[MASK], finite=True)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        values: torch.Tensor = self.critic(batch[Columns.OBS])
        return values.squeeze(-1)
