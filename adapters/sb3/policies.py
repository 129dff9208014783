"""Policies for Stable-Baselines3 that play only legal actions.

    from stable_baselines3 import PPO
    from corral.adapters import MaskedPolicy, make_vec_env
    PPO(MaskedPolicy, make_vec_env("dfaas_v0", num_envs=64, seed=0)).learn(100_000)

| policy | for | source of the mask |
|---|---|---|
| ``MaskedPolicy`` | PPO, A2C | ``action_mask`` of the observation |
| ``MaskablePolicy`` | MaskablePPO of sb3_contrib | ``action_masks``, else the observation |

(DQN: see ``corral.adapters.sb3.dqn``.)

Both take the ``policy_kwargs`` of Stable-Baselines3's MultiInputPolicy, and apply masks in training
and in play. The mask affects only the logits, not the features, see ``FeaturesWithoutMask``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.distributions import MaskableDistribution
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.distributions import CategoricalDistribution
from stable_baselines3.common.policies import BasePolicy, MultiInputActorCriticPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from corral.adapters.masked_distribution import MaskedCategorical
from corral.adapters.networks import SMALLEST_OF_NATURE, make_cnn, plan_halving
from corral.envs.masks import MASK
from corral.errors import MaskError, UnsupportedSpaceError

__all__ = [
    "FeaturesWithoutMask",
    "MaskablePolicy",
    "MaskedDistribution",
    "MaskedPolicy",
    "SmallCNN",
    "normalize",
]

Tensors = dict[str, torch.Tensor]
Masks = np.ndarray[Any, Any] | torch.Tensor | None

_NO_LONGER_A_MASK = (
    "By default, VecNormalize scales every entry, including masks: use "
    "corral.adapters.normalize(vec_env), or pass "
    'norm_obs_keys=["observation"]. Other wrappers must not change action_mask'
)


# --- Masks ---------------------------------------------------------------------------------------


def _require_mask_space(space: spaces.Space[Any]) -> None:
    if not (
        isinstance(space, spaces.Box)
        and space.dtype == np.int8
        and len(space.shape) == 1
        and bool((space.low == 0).all() and (space.high == 1).all())
    ):
        raise UnsupportedSpaceError(
            f"the space of action_mask is {space}, but must be Box(0, 1, (actions,), int8), as in "
            f"make_vec_env and vectorize. {_NO_LONGER_A_MASK}"
        )


def require_masked_choice(obs: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    """Raise UnsupportedSpaceError unless ``obs`` holds a mask for Discrete actions from 0."""
    if not isinstance(action, spaces.Discrete) or action.start != 0:
        raise UnsupportedSpaceError(
            f"action space {action}: masks require Discrete, counted from 0"
        )
    if not isinstance(obs, spaces.Dict) or MASK not in obs.spaces:
        raise UnsupportedSpaceError(
            f"{obs} has no entry action_mask. Make the VecEnv with corral.adapters.make_vec_env "
            "or vectorize, or use Stable-Baselines3's own policies"
        )
    mask = obs.spaces[MASK]
    _require_mask_space(mask)
    if mask.shape != (int(action.n),):
        raise UnsupportedSpaceError(
            f"action_mask has shape {mask.shape} for {int(action.n)} actions; wrappers that stack "
            "observations must not change it"
        )


def as_mask(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of numbers [C, A] as bool.

    Raises UnsupportedSpaceError for a number other than 0 and 1.
    """
    if mask.dtype is torch.bool:
        return mask
    invalid = (mask != 0) & (mask != 1)  # NaN too
    if invalid.any():
        raise UnsupportedSpaceError(
            f"action_mask contains {mask[invalid][0].item()!r}, but must contain only 0 and 1. "
            f"{_NO_LONGER_A_MASK}"
        )
    return mask != 0


class MaskedDistribution(CategoricalDistribution, MaskableDistribution):
    """``MaskedCategorical`` as a distribution of Stable-Baselines3 and sb3_contrib."""

    distribution: MaskedCategorical  # type: ignore[assignment]

    def proba_distribution(
        self, action_logits: torch.Tensor, masks: Masks = None
    ) -> MaskedDistribution:
        """Set ``action_logits`` [C, A]. Actions with ``masks`` [C, A] 1 are legal; None: all."""
        self._logits = action_logits
        self.apply_masking(masks)
        return self

    def apply_masking(self, masks: Masks) -> None:
        logits = self._logits
        if masks is None:
            mask = torch.ones_like(logits, dtype=torch.bool)
        else:
            mask = as_mask(torch.as_tensor(masks, device=logits.device))
            if mask.numel() != logits.numel():
                raise MaskError(
                    f"masks of shape {tuple(mask.shape)} for logits of shape "
                    f"{tuple(logits.shape)}: pass one mask per observation"
                )
        self.distribution = MaskedCategorical(logits, mask.reshape(logits.shape))

    def mode(self) -> torch.Tensor:
        return self.distribution.mode


# --- Policies ------------------------------------------------------------------------------------


class _MaskedChoice:
    """The common methods of both policies. ``action_masks`` [C, A] override the masks in ``obs``.

    In the bases of a class, it precedes a policy class of Stable-Baselines3 or sb3_contrib.
    """

    puts_out_values = False  # logits instead

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *args: Any,
        features_extractor_class: type[BaseFeaturesExtractor] | None = None,
        **kwargs: Any,
    ) -> None:
        require_masked_choice(observation_space, action_space)
        kwargs["features_extractor_class"] = features_extractor_class or FeaturesWithoutMask
        super().__init__(observation_space, action_space, *args, **kwargs)  # type: ignore[call-arg]

    @property
    def q_net(self) -> Any:
        """Raise TypeError: DQN needs this network, but these policies do not have it."""
        raise TypeError(
            f"{type(self).__name__} has no action values; for DQN, use MaskedDQN and "
            "MaskedQPolicy of corral.adapters"
        )

    def forward(
        self, obs: Tensors, deterministic: bool = False, action_masks: Masks = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions int64 [C], values [C, 1] and log-probabilities [C].

        Observations are [C, ...].
        """
        policy: Any = self
        latent_pi, latent_vf = self._latents(obs)
        choice = self._masked(latent_pi, obs, action_masks)
        actions = choice.get_actions(deterministic=deterministic)
        return actions, policy.value_net(latent_vf), choice.log_prob(actions)

    def evaluate_actions(
        self, obs: Tensors, actions: torch.Tensor, action_masks: Masks = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return values [C, 1], log-probabilities [C] of ``actions`` and entropies [C]."""
        policy: Any = self
        latent_pi, latent_vf = self._latents(obs)
        choice = self._masked(latent_pi, obs, action_masks)
        entropy = (
            choice.distribution.entropy()
        )  # first: the order affects the last bits of gradients
        return policy.value_net(latent_vf), choice.log_prob(actions), entropy

    def get_distribution(self, obs: Tensors, action_masks: Masks = None) -> MaskedDistribution:
        """Return the distribution of actions, for ``_predict`` and ``predict``."""
        return self._masked(self._latent_of_actor(obs), obs, action_masks)

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return the logits [C, A] before masking, for exports. ``obs`` needs no mask."""
        policy: Any = self
        logits: torch.Tensor = policy.action_net(self._latent_of_actor(obs))
        return logits

    def _latent_of_actor(self, obs: Tensors) -> torch.Tensor:
        policy: Any = self
        features = BasePolicy.extract_features(policy, obs, policy.pi_features_extractor)
        latent: torch.Tensor = policy.mlp_extractor.forward_actor(features)
        return latent

    def _latents(self, obs: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs of the last layers of actor and critic, each [C, ...]."""
        policy: Any = self
        features = policy.extract_features(obs)
        actor, critic = (features, features) if policy.share_features_extractor else features
        extractor = policy.mlp_extractor
        return extractor.forward_actor(actor), extractor.forward_critic(critic)

    def _masked(self, latent_pi: torch.Tensor, obs: Tensors, masks: Masks) -> MaskedDistribution:
        policy: Any = self
        choice = MaskedDistribution(int(policy.action_space.n))
        return choice.proba_distribution(
            policy.action_net(latent_pi), obs[MASK] if masks is None else masks
        )


class MaskedPolicy(_MaskedChoice, MultiInputActorCriticPolicy):  # type: ignore[misc]
    """The policy for PPO and A2C: applies the ``action_mask`` of the observation in all methods.

    ``policy_kwargs`` are those of MultiInputPolicy. The default ``features_extractor_class`` is
    FeaturesWithoutMask. Raises UnsupportedSpaceError for observations without a mask and for
    modified masks, MaskError for a mask without legal actions, and NonFiniteError if the outputs of
    the network are not finite.
    """


class MaskablePolicy(_MaskedChoice, MaskableMultiInputActorCriticPolicy):  # type: ignore[misc]
    """The policy for MaskablePPO: like MaskedPolicy, but ``action_masks`` override observed masks.

    Without ``action_masks``, the observed mask applies. So ``model.predict(observations)`` and
    ``learn(..., use_masking=False)`` also play only legal actions. In sb3_contrib's policies,
    illegal actions have a logit of -1e8, and are played if the logits of legal actions are lower.

    MaskablePPO normalizes the advantage in a minibatch of size 1 to NaN, which stops training with
    NonFiniteError. Choose a ``batch_size`` that divides the rollout size, columns times
    ``n_steps``.

    Raises TypeError with PPO or A2C, which need MaskedPolicy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "use_sde" in kwargs:  # passed by PPO and A2C, not by MaskablePPO
            raise TypeError(
                "MaskablePolicy is for sb3-contrib's MaskablePPO; use MaskedPolicy with PPO and A2C"
            )
        super().__init__(*args, **kwargs)


# --- Features ------------------------------------------------------------------------------------


class FeaturesWithoutMask(CombinedExtractor):
    """SB3's features of a Dict observation without ``action_mask``, with support for small images.

    A mask belongs only to the logits. As an input it would add no information, because masking
    already enforces it. The policies of this module use this extractor by default. For other
    policies, pass it as ``features_extractor_class`` in ``policy_kwargs``.

    Images go through SB3's NatureCNN (``cnn_output_dim`` features each). Images of fewer than 36
    pixels per side go through SmallCNN (``small_cnn_output_dim`` features each). Raises
    UnsupportedSpaceError if the space or the values of ``action_mask`` are not those of a mask.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        cnn_output_dim: int = 256,
        normalized_image: bool = False,
        small_cnn_output_dim: int = 128,
    ) -> None:
        entries = {key: space for key, space in observation_space.items() if key != MASK}
        if MASK in observation_space.spaces:
            _require_mask_space(observation_space.spaces[MASK])
        small = {
            key: space
            for key, space in entries.items()
            if is_image_space(space, normalized_image=normalized_image)
            and min(space.shape[1:]) < SMALLEST_OF_NATURE  # type: ignore[index]
        }
        large = spaces.Dict({key: space for key, space in entries.items() if key not in small})
        super().__init__(large, cnn_output_dim, normalized_image)
        for key, space in small.items():
            self.extractors[key] = SmallCNN(space, small_cnn_output_dim)
            self._features_dim += small_cnn_output_dim

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the features [C, features_dim] of preprocessed observations [C, ...]."""
        if MASK in observations:
            as_mask(observations[MASK])
        for key in self.extractors:
            if key not in observations:
                hint = (
                    ": it was trained with agent_id=True. To play in a SeatEnv, train with a "
                    "vec_env with agent_id=False"
                )
                raise UnsupportedSpaceError(
                    f"the model observes {key!r}, but the observation has {list(observations)}"
                    f"{hint if key == 'agent' else ''}"
                )
        return super().forward(observations)  # type: ignore[arg-type]


class SmallCNN(BaseFeaturesExtractor):
    """CNN for images too small for NatureCNN: three 3 x 3 layers, each halving the sides.

    It accepts images [C, channels, height, width] of any size, and is intended for 8 x 8 to
    35 x 35 pixels.
    """

    def __init__(self, observation_space: spaces.Space[Any], features_dim: int = 128) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape or ()
        image = channels, height, width
        self.layers = make_cnn(image, plan_halving(image, (32, 64, 64, features_dim)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features [C, features_dim]."""
        features: torch.Tensor = self.layers(images)
        return features


# --- Normalization -------------------------------------------------------------------------------


def normalize(vec_env: VecEnv, **kwargs: Any) -> VecNormalize:
    """Return ``vec_env`` in Stable-Baselines3's VecNormalize, normalizing only float entries.

    Masks, agent identities, images and whole numbers stay unchanged, bit for bit. ``kwargs`` are
    passed to VecNormalize. It also scales rewards, unless you pass ``norm_reward=False``. Raises
    UnsupportedSpaceError for observations that are not a Dict, and for ``norm_obs_keys`` that
    include a mask.
    """
    space = vec_env.observation_space
    if not isinstance(space, spaces.Dict):
        raise UnsupportedSpaceError(
            f"{space} is not a Dict, so it has no mask to exclude; use VecNormalize directly"
        )
    quantities = [
        key
        for key, part in space.spaces.items()
        if isinstance(part, spaces.Box) and part.dtype.kind == "f" and key != "agent"
    ]
    keys = kwargs.setdefault("norm_obs_keys", quantities)
    if keys is None or MASK in keys:
        raise UnsupportedSpaceError(
            f"norm_obs_keys={keys!r} includes action_mask, which must not be scaled; omit the "
            f"argument to scale {quantities}"
        )
    return VecNormalize(vec_env, **kwargs)
