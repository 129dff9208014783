"""Policies for Stable-Baselines3 that only ever play legal actions.

    from stable_baselines3 import PPO
    from corral.adapters import MaskedPolicy, make_vec_env
    PPO(MaskedPolicy, make_vec_env("dfaas_v0", num_envs=64, seed=0)).learn(100_000)

| policy | for | where the mask comes from |
|---|---|---|
| ``MaskedPolicy`` | PPO, A2C | ``action_mask`` of the observation |
| ``MaskablePolicy`` | MaskablePPO of sb3_contrib | ``action_masks``, else the observation |

(DQN: see ``corral.adapters.sb3.dqn``.)

Both take the ``policy_kwargs`` of Stable-Baselines3's MultiInputPolicy, and mask in training as in
play. The mask reaches the logits alone, never the features: see ``FeaturesWithoutMask``.
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
    "VecNormalize scales every entry unless told otherwise, masks too: use "
    "corral.adapters.normalize(vec_env), or give it "
    'norm_obs_keys=["observation"]. Other wrappers must leave action_mask as it is'
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
            f"the space of action_mask is {space}; a mask is Box(0, 1, (actions,), int8), as "
            f"make_vec_env and vectorize give it. {_NO_LONGER_A_MASK}"
        )


def require_masked_choice(obs: spaces.Space[Any], action: spaces.Space[Any]) -> None:
    """Raise UnsupportedSpaceError unless ``obs`` holds a mask for Discrete actions from 0."""
    if not isinstance(action, spaces.Discrete) or action.start != 0:
        raise UnsupportedSpaceError(f"action space {action}: masks need Discrete, counted from 0")
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
            "observations must leave it as it is"
        )


def as_mask(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of numbers [C, A] as bool. Raises UnsupportedSpaceError where one is not 0 or
    1."""
    if mask.dtype is torch.bool:
        return mask
    strange = (mask != 0) & (mask != 1)  # NaN too
    if strange.any():
        raise UnsupportedSpaceError(
            f"action_mask holds {mask[strange][0].item()!r}, and a mask holds 0 and 1 alone. "
            f"{_NO_LONGER_A_MASK}"
        )
    return mask != 0


class MaskedDistribution(CategoricalDistribution, MaskableDistribution):
    """``MaskedCategorical`` as Stable-Baselines3 and sb3_contrib ask for distributions."""

    distribution: MaskedCategorical  # type: ignore[assignment]

    def proba_distribution(
        self, action_logits: torch.Tensor, masks: Masks = None
    ) -> MaskedDistribution:
        """Take ``action_logits`` [C, A], legal where ``masks`` [C, A] are 1; None: everywhere."""
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
                    f"{tuple(logits.shape)}: give one mask per observation"
                )
        self.distribution = MaskedCategorical(logits, mask.reshape(logits.shape))

    def mode(self) -> torch.Tensor:
        return self.distribution.mode


# --- Policies ------------------------------------------------------------------------------------


class _MaskedChoice:
    """The methods that both policies share; ``action_masks`` [C, A] come before those of ``obs``.

    It stands in front of a policy class of Stable-Baselines3 or sb3_contrib.
    """

    puts_out_values = False  # but logits

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
        """What DQN asks for. Raises TypeError: these policies have none."""
        raise TypeError(
            f"{type(self).__name__} has no values of actions: for DQN give MaskedDQN and "
            "MaskedQPolicy of corral.adapters"
        )

    def forward(
        self, obs: Tensors, deterministic: bool = False, action_masks: Masks = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return actions int64 [C], values [C, 1] and log-probabilities [C] for observations
        [C, ...]."""
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
        entropy = choice.distribution.entropy()  # first: the last bits of gradients go by the order
        return policy.value_net(latent_vf), choice.log_prob(actions), entropy

    def get_distribution(self, obs: Tensors, action_masks: Masks = None) -> MaskedDistribution:
        """Return the distribution of actions; ``_predict`` and ``predict`` ask for it."""
        return self._masked(self._latent_of_actor(obs), obs, action_masks)

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return logits [C, A] before the mask, which ``obs`` need not hold: for exports."""
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
    """For PPO and A2C: plays what ``action_mask`` of the observation allows, and trains on that.

    ``policy_kwargs`` are those of MultiInputPolicy; ``features_extractor_class`` is
    FeaturesWithoutMask unless given. Raises UnsupportedSpaceError for observations without a mask
    and for masks that something has changed; MaskError where a mask allows nothing; NonFiniteError
    where the network has become NaN.
    """


class MaskablePolicy(_MaskedChoice, MaskableMultiInputActorCriticPolicy):  # type: ignore[misc]
    """For MaskablePPO: as MaskedPolicy, but ``action_masks`` come first where they are given.

    Without them the mask of the observation holds, so that ``model.predict(observations)`` and
    ``learn(..., use_masking=False)`` are legal too. sb3_contrib's own policies give illegal actions
    a logit of -1e8, and play them where the legal ones lie lower.

    MaskablePPO normalises the advantages of a minibatch of one to NaN, which stops the training
    with NonFiniteError: let ``batch_size`` divide the rollout, columns times ``n_steps``.

    Raises TypeError where PPO or A2C make it: their policy is MaskedPolicy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "use_sde" in kwargs:  # given by PPO and A2C, not by MaskablePPO
            raise TypeError(
                "MaskablePolicy is for sb3-contrib's MaskablePPO: give PPO and A2C MaskedPolicy"
            )
        super().__init__(*args, **kwargs)


# --- Features ------------------------------------------------------------------------------------


class FeaturesWithoutMask(CombinedExtractor):
    """SB3's features of a Dict observation, all but ``action_mask``; small images too.

    A mask says what is legal, and belongs to the logits alone: as an input it would only tell the
    network what the masking enforces anyway. The policies of this module use it by themselves;
    others take it as ``features_extractor_class`` in ``policy_kwargs``.

    Images go through SB3's NatureCNN (``cnn_output_dim`` features each), those of fewer than 36
    pixels a side through SmallCNN (``small_cnn_output_dim`` features each). Raises
    UnsupportedSpaceError where the mask is none any more, by its space or by its values.
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
        rest = spaces.Dict({key: space for key, space in entries.items() if key not in small})
        super().__init__(rest, cnn_output_dim, normalized_image)
        for key, space in small.items():
            self.extractors[key] = SmallCNN(space, small_cnn_output_dim)
            self._features_dim += small_cnn_output_dim

    def forward(self, observations: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Features [C, features_dim] of preprocessed observations [C, ...]."""
        if MASK in observations:
            as_mask(observations[MASK])
        for key in self.extractors:
            if key not in observations:
                hint = (
                    ": it was trained with agent_id=True. Make the vec_env with agent_id=False, "
                    "and train it so, to play in a SeatEnv"
                )
                raise UnsupportedSpaceError(
                    f"the model observes {key!r}, and here there is {list(observations)}"
                    f"{hint if key == 'agent' else ''}"
                )
        return super().forward(observations)  # type: ignore[arg-type]


class SmallCNN(BaseFeaturesExtractor):
    """For images too small for NatureCNN: three 3 x 3 layers, each halving the sides.

    Takes images [C, channels, height, width] of any size, meant for 8 x 8 to 35 x 35 pixels.
    """

    def __init__(self, observation_space: spaces.Space[Any], features_dim: int = 128) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape or ()
        image = channels, height, width
        self.layers = make_cnn(image, plan_halving(image, (32, 64, 64, features_dim)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features [C, features_dim]."""
        features: torch.Tensor = self.layers(images)
        return features


# --- Normalising ---------------------------------------------------------------------------------


def normalize(vec_env: VecEnv, **kwargs: Any) -> VecNormalize:
    """``vec_env`` in Stable-Baselines3's VecNormalize, but only what is a quantity.

    Scaled are the entries of floats. Masks, the agent indicator, images and whole numbers stay as
    they are, bit for bit. ``kwargs`` go to VecNormalize; it scales rewards too, unless given
    ``norm_reward=False``. Raises UnsupportedSpaceError for observations that are not a Dict, and
    for ``norm_obs_keys`` with a mask among them.
    """
    space = vec_env.observation_space
    if not isinstance(space, spaces.Dict):
        raise UnsupportedSpaceError(
            f"{space} is no Dict: there is nothing to leave out; use VecNormalize itself"
        )
    quantities = [
        key
        for key, part in space.spaces.items()
        if isinstance(part, spaces.Box) and part.dtype.kind == "f" and key != "agent"
    ]
    keys = kwargs.setdefault("norm_obs_keys", quantities)
    if keys is None or MASK in keys:
        raise UnsupportedSpaceError(
            f"norm_obs_keys={keys!r} takes in action_mask, which would be a mask no more; leave "
            f"the argument out to scale {quantities}"
        )
    return VecNormalize(vec_env, **kwargs)
