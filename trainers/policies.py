"""The one policy of networks, for whatever trained them, as ``corral.envs.policy`` wants it.

A ``NetworkPolicy`` is given a function from observations to a distribution, and imports nothing
that trains. ``actor_policy``, ``sb3_policy`` and ``rllib_policy`` make it for what is trained here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from corral.adapters.masked_distribution import (
    Distribution,
    Gaussian,
    MaskedCategorical,
    MultiCategorical,
)
from corral.adapters.networks import MaskedActorCritic, tensors
from corral.adapters.spaces import ActionCodec, ColumnCodec, ObservationCodec
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, as_legal, draw
from corral.envs.policy import Decision

__all__ = ["NetworkPolicy", "actor_policy", "rllib_policy", "sb3_policy"]

Forward = Callable[[Any, Array | None], tuple[Distribution, Array | None]]
"""From an observation [R, ...] and a hidden state float32 [R, memory] to the distribution of stored
actions [R, ...] and the next hidden state."""


class NetworkPolicy:
    """Plays ``agent`` by ``forward``. See ``corral.envs.policy``.

    The state of a policy with ``memory`` is an array float32 [B, memory].
    """

    def __init__(
        self,
        agent: str,
        observations: ObservationCodec,
        actions: ActionCodec,
        forward: Forward,
        memory: int = 0,
    ) -> None:
        self.agent = agent
        self.observations = observations
        self.actions = actions
        self.forward = forward
        self.memory = memory

    def initial_state(self, num_envs: int) -> Array | None:
        """Return the hidden state before an episode: float32 [B, memory]."""
        return np.zeros((num_envs, self.memory), dtype=np.float32) if self.memory else None

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """The most probable action, or one drawn with ``rng``; for one or for a batch.

        ``extra`` holds ``probabilities``, float64 [..., A], for Discrete actions.
        """
        if not deterministic and rng is None:
            raise ValueError("sampling needs rng=, a numpy Generator; or pass deterministic=True")
        rows = self.observations.rows(observation)
        batched = _with_axis(observation) if rows is None else observation
        hidden = self._hidden(state, rows or 1)
        with torch.inference_mode():
            choice, after = self.forward(batched, hidden)
            stored, extra = _choose(choice, None if deterministic else rng)
        played = self.actions.decode(stored)
        if after is not None and state is not None:
            after = after.reshape(np.shape(state))
        if rows is None:
            return Decision(played[0], after, {key: each[0] for key, each in extra.items()})
        return Decision(played, after, extra)

    def _hidden(self, state: Any, rows: int) -> Array | None:
        if state is None or not self.memory:
            return self.initial_state(rows)
        hidden = np.array(state, dtype=np.float32)
        if hidden.size != rows * self.memory:
            raise ValueError(
                f"{self.agent}: a state of shape {hidden.shape}; give what initial_state({rows}) "
                f"or the last decision gave: {(rows, self.memory)}"
            )
        return hidden.reshape(rows, self.memory)


def _with_axis(tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {key: _with_axis(value) for key, value in tree.items()}
    return np.asarray(tree)[None]


def _choose(
    choice: Distribution, rng: np.random.Generator | None
) -> tuple[Array, dict[str, Array]]:
    """Return stored actions [R, ...], the most probable ones without ``rng``, and the probabilities
    where there is one choice."""
    if isinstance(choice, MaskedCategorical):
        probabilities = _probabilities(choice)
        stored = choice.mode.cpu().numpy() if rng is None else draw(probabilities, rng)
        return stored, {"probabilities": probabilities}
    if rng is None:
        return choice.mode.cpu().numpy(), {}
    if isinstance(choice, Gaussian):
        mean, std = choice.mode.cpu().numpy(), choice.log_std.exp().cpu().numpy()
        return mean + std * rng.standard_normal(mean.shape, dtype=np.float32), {}
    assert isinstance(choice, MultiCategorical)
    return np.stack([draw(_probabilities(each), rng) for each in choice.choices], axis=-1), {}


def _probabilities(choice: MaskedCategorical) -> Array:
    """Return probabilities float64 [R, A]; illegal actions have exactly 0."""
    found: Array = choice.logits.double().softmax(dim=-1).cpu().numpy()
    return found


# --- Of what is trained --------------------------------------------------------------------------


def actor_policy(learner: Any, group: Any, agent: str) -> NetworkPolicy:
    """Return the policy of ``agent``, one of ``group``, with the actor of ``learner``."""
    observations, actions, actor = group.layout, group.actions, learner.actor
    index = group.agents.index(agent)

    def forward(observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        rows = observations.rows(observation) or 0
        vector = np.zeros((rows, observations.width + group.identities), dtype=np.float32)
        if group.identities:
            vector[:, observations.width + index] = 1.0
        images = [np.zeros((rows, *image), dtype=np.uint8) for image in observations.images]
        observations.write(observations.inner(observation), vector, images)
        legal = np.ones((rows, actions.masks), dtype=bool)
        if observations.masked:
            legal = as_legal(agent, observation[MASK])
        parts = [torch.from_numpy(values).to(learner.device) for values in (vector, *images)]
        hidden = actor.initial(rows)
        if state is not None:
            hidden = torch.from_numpy(state).to(learner.device)
        outputs, after = actor.step(parts, hidden)
        choice = learner.distribution(outputs, torch.from_numpy(legal).to(learner.device))
        return choice, after.cpu().numpy() if actor.memory else None

    return NetworkPolicy(agent, observations, actions, forward, actor.memory)


def sb3_policy(policy: Any, columns: ColumnCodec, space: Any, agent: str) -> NetworkPolicy:
    """Return the policy of ``agent`` with a masked ``policy`` of Stable-Baselines3; ``space`` is
    what the agent observes."""
    index = columns.agents.index(agent)

    def forward(observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        rows = observations.rows(observation) or 0
        entries = columns.flat(observation, (rows,), index)
        policy.set_training_mode(False)
        return policy.get_distribution(policy.obs_to_tensor(entries)[0]).distribution, None

    observations = ObservationCodec.of(agent, space)
    actions = ActionCodec(agent, columns.action_space)
    return NetworkPolicy(agent, observations, actions, forward)


def rllib_policy(
    networks: MaskedActorCritic, group: Any, agent: str, identity: Array | None
) -> NetworkPolicy:
    """Return the policy of ``agent``, one of ``group``, with networks that RLlib trained.

    ``identity`` (float32 [N]) stands beside each observation, where the actor was trained so.
    """

    def forward(observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        as_legal(agent, observation[MASK])
        entries = tensors(observation)
        if identity is not None:
            entries["agent"] = torch.from_numpy(identity).expand(len(entries[MASK]), -1)
        return networks.distribution(entries), None

    return NetworkPolicy(agent, group.layout, group.actions, forward)
