"""Stable-Baselines3's DQN that only ever plays, and bootstraps from, legal actions.

    from corral.adapters import MaskedDQN, MaskedQPolicy, make_vec_env
    MaskedDQN(MaskedQPolicy, make_vec_env("dfaas_v0", num_envs=8, seed=0), gamma=0.5).learn(100_000)

Illegal actions have a value of minus infinity (``MaskedQPolicy``): the greedy action and the best
next action, which the target is made of, are then legal ones. What DQN draws by chance, when it
warms up and with probability epsilon, is drawn among the legal ones by ``MaskedDQN``.
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
"""Logit of an action that is never drawn: its probability is 0 in any float."""


class MaskedQNetwork(QNetwork):
    """Values of actions, minus infinity where ``action_mask`` forbids them."""

    def forward(self, obs: Tensors) -> torch.Tensor:  # type: ignore[override]
        """Values [C, A] for observations [C, ...]."""
        # After an episode nothing may be legal. DQN multiplies such values by 0, so that they
        # must be finite: ``masked_logits`` leaves them as they are.
        return masked_logits(self.outputs(obs), as_mask(obs[MASK]))

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return values [C, A] of all actions; ``obs`` need not hold the mask."""
        return super().forward(obs)

    def _predict(self, observation: Tensors, deterministic: bool = True) -> torch.Tensor:  # type: ignore[override]
        _require_choice(bool(as_mask(observation[MASK]).any(dim=1).all()))
        return super()._predict(observation, deterministic)


class MaskedQPolicy(DQNPolicy):
    """For ``MaskedDQN``; ``policy_kwargs`` are those of DQN's MultiInputPolicy, and ``epsilon``.

    ``features_extractor_class`` is FeaturesWithoutMask unless given. ``epsilon`` is the rate of
    random actions of ``get_distribution`` alone; MaskedDQN has its own. Raises
    UnsupportedSpaceError for observations without a mask and for masks that something has changed;
    MaskError where a mask allows nothing.
    """

    puts_out_values = True  # and no logits

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        *args: Any,
        epsilon: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if "use_sde" in kwargs:  # given by PPO and A2C
            raise TypeError("MaskedQPolicy is for MaskedDQN: give PPO and A2C MaskedPolicy")
        require_masked_choice(observation_space, action_space)
        kwargs.setdefault("features_extractor_class", FeaturesWithoutMask)
        self.epsilon = epsilon
        super().__init__(observation_space, action_space, lr_schedule, *args, **kwargs)

    def make_q_net(self) -> QNetwork:
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return MaskedQNetwork(**arguments).to(self.device)

    def outputs(self, obs: Tensors) -> torch.Tensor:
        """Return values [C, A] of all actions, legal or not: for exports."""
        network: Any = self.q_net
        values: torch.Tensor = network.outputs(obs)
        return values

    def predict_values(self, obs: Tensors) -> torch.Tensor:
        """Return the values [C, 1] of greedy play: of the best legal action."""
        best: torch.Tensor = self.q_net(obs).max(dim=1, keepdim=True).values
        return best

    def get_distribution(self, obs: Tensors) -> MaskedDistribution:
        """Return what epsilon-greedy play draws from: the best legal action, or with probability
        ``epsilon`` any legal one."""
        values, mask = self.q_net(obs), as_mask(obs[MASK])
        _require_choice(bool(mask.any(dim=1).all()))
        share = self.epsilon * mask / mask.sum(dim=1, keepdim=True)  # [C, A]
        share.scatter_add_(
            1, values.argmax(dim=1, keepdim=True), torch.full_like(share[:, :1], 1 - self.epsilon)
        )
        # Where epsilon is 0 the others have no probability at all; a logit must be finite.
        logits = share.log().clamp(min=LEAST)
        return MaskedDistribution(logits.shape[1]).proba_distribution(logits, mask)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "epsilon": self.epsilon}


class MaskedDQN(DQN):
    """DQN over what ``make_vec_env``, ``vectorize`` or a ``SeatEnv`` gives.

    All arguments are DQN's; ``policy`` is ``MaskedQPolicy``. Epsilon is drawn for each column by
    itself, not for all of them at once. Raises TypeError for a policy that does not mask.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MultiInputPolicy": MaskedQPolicy}

    def _setup_model(self) -> None:
        if not issubclass(self.policy_class, MaskedQPolicy):
            raise TypeError(f"{self.policy_class.__name__} does not mask: give MaskedQPolicy")
        super()._setup_model()

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray[Any, Any], Any]:
        """Legal actions int64 [C] (or [] for one observation); epsilon-greedy unless told."""
        best, state = self.policy.predict(observation, state, episode_start, True)
        if deterministic:
            return best, state
        explores = self.action_space.np_random.random(best.shape) < self.exploration_rate
        return np.where(explores, self._sample_legal(observation), best), state

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        if self.num_timesteps < learning_starts:  # DQN would draw from the space
            actions = self._sample_legal(self._last_obs)
            return actions, actions
        return super()._sample_action(learning_starts, action_noise, n_envs)

    def _sample_legal(self, observation: Any) -> np.ndarray[Any, Any]:
        mask = np.asarray(observation[MASK])
        _require_choice(bool(mask.any(axis=-1).all()))
        return greedy(self.action_space.np_random.random(mask.shape), mask)


def _require_choice(every: bool) -> None:
    if not every:
        raise MaskError("an action_mask allows nothing: there is no action to choose")
