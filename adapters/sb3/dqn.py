"""Stable-Baselines3's DQN with masks: it plays, and bootstraps from, only legal actions.

    from corral.adapters import MaskedDQN, MaskedQPolicy, make_vec_env
    MaskedDQN(MaskedQPolicy, make_vec_env("dfaas_v0", num_envs=8, seed=0), gamma=0.5).learn(100_000)

In ``MaskedQPolicy``, illegal actions have a value of minus infinity. So the greedy action is legal,
and so is the best next action in the target. ``MaskedDQN`` draws random actions, in the warm-up and
with probability epsilon, only from the legal actions.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork

from corral.adapters.masked_distribution import masked_logits
from corral.adapters.sb3.policies import (
    FeaturesWithoutMask,
    MaskedDistribution,
    Tensors,
    as_mask,
    require_masked_choice,
)
from corral.envs.masks import MASK, greedy
from corral.errors import MaskError

__all__ = ["MaskedDQN", "MaskedQPolicy"]

LEAST = -1e4
"""Logit of an action that is never drawn: its probability rounds to 0 in every float type."""


class MaskedQNetwork(QNetwork):
    """Values of actions, minus infinity for actions that ``action_mask`` forbids."""

    def forward(self, obs: Tensors) -> torch.Tensor:  # type: ignore[override]
        """Return the values [C, A] for observations [C, ...]."""
        # After an episode, a mask may allow no action. DQN multiplies these values by 0, so they
        # must be finite. ``masked_logits`` does not change them.
        return masked_logits(self.outputs(obs), as_mask(obs[MASK]))

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return the values [C, A] of all actions. ``obs`` needs no mask."""
        return super().forward(obs)

    def _predict(self, observation: Tensors, deterministic: bool = True) -> torch.Tensor:  # type: ignore[override]
        _require_choice(bool(as_mask(observation[MASK]).any(dim=1).all()))
        return super()._predict(observation, deterministic)


class MaskedQPolicy(DQNPolicy):
    """The policy for ``MaskedDQN``.

    ``policy_kwargs`` are those of DQN's MultiInputPolicy, and ``epsilon``. The default
    ``features_extractor_class`` is FeaturesWithoutMask. ``epsilon`` is the rate of random actions
    only in ``get_distribution``; MaskedDQN has its own rate. Raises UnsupportedSpaceError for
    observations without a mask and for modified masks, MaskError for a mask without legal actions.
    """

    puts_out_values = True  # instead of logits

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        *args: Any,
        epsilon: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if "use_sde" in kwargs:  # passed by PPO and A2C
            raise TypeError("MaskedQPolicy is for MaskedDQN; use MaskedPolicy with PPO and A2C")
        require_masked_choice(observation_space, action_space)
        kwargs.setdefault("features_extractor_class", FeaturesWithoutMask)
        self.epsilon = epsilon
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def make_q_net(self) -> QNetwork:
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MaskedQNetwork(**arguments).to(self.device)

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return the values [C, A] of all actions, legal or illegal, for exports."""
        network: Any = self.q_net
        values: torch.Tensor = network.outputs(obs)
        return values

    def predict_values(self, obs: Tensors) -> torch.Tensor:
        """Return the values [C, 1] of the best legal actions, which greedy play takes."""
        best: torch.Tensor = self.q_net(obs).max(dim=1, keepdim=True).values
        return best

    def get_distribution(self, obs: Tensors) -> MaskedDistribution:
        """Return the distribution of epsilon-greedy play.

        It is the best legal action, or with probability ``epsilon`` any legal action.
        """
        values, mask = self.q_net(obs), as_mask(obs[MASK])
        _require_choice(bool(mask.any(dim=1).all()))
        share = self.epsilon * mask / mask.sum(dim=1, keepdim=True)  # [C, A]
        share.scatter_add_(
            1, values.argmax(dim=1, keepdim=True), torch.full_like(share[:, :1], 1 - self.epsilon)
        )
        # With epsilon 0, the other actions have probability 0, but a logit must be finite.
        logits = share.log().clamp(min=LEAST)
        return MaskedDistribution(logits.shape[1]).proba_distribution(logits, mask)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "epsilon": self.epsilon}


class MaskedDQN(DQN):
    """DQN for environments of ``make_vec_env`` and ``vectorize``, and for ``SeatEnv``.

    The arguments are those of DQN; ``policy`` is ``MaskedQPolicy``. Each column draws separately
    if it explores, not all columns together. Raises TypeError for a policy without masks.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MultiInputPolicy": MaskedQPolicy}

    def _setup_model(self) -> None:
        if not issubclass(self.policy_class, MaskedQPolicy):
            raise TypeError(f"{self.policy_class.__name__} has no masks; use MaskedQPolicy")
        super()._setup_model()

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Return legal actions int64 [C] (or [] for one observation).

        Actions are epsilon-greedy, or greedy if ``deterministic``.
        """
        best, state = self.policy.predict(observation, state, episode_start, True)
        if deterministic:
            return best, state
        explores = self.action_space.np_random.random(best.shape) < self.exploration_rate
        return np.where(explores, self._sample_legal(observation), best), state

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        if self.num_timesteps < learning_starts:  # DQN would draw from the whole space
            actions = self._sample_legal(self._last_obs)
            return actions, actions
        return super()._sample_action(learning_starts, action_noise, n_envs)

    def _sample_legal(self, observation: Any) -> np.ndarray[Any, Any]:
        mask = np.asarray(observation[MASK])
        _require_choice(bool(mask.any(axis=-1).all()))
        return greedy(self.action_space.np_random.random(mask.shape), mask)


def _require_choice(all_have_choice: bool) -> None:
    if not all_have_choice:
        raise MaskError("an action_mask allows no action; check the masks of the environment")
