"""The policy class of all networks, with the interface of ``corral.envs.policy``.

A ``NetworkPolicy`` gets a function from observations to a distribution, and does not import
training code. ``actor_policy``, ``mlp_policy``, ``sb3_policy`` and ``rllib_policy`` build it for
the trainers of corral.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from corral.adapters.masked_distribution import (
    Distribution,
    Gaussian,
    MaskedCategorical,
    MultiCategorical,
    make_distribution,
)
from corral.adapters.nested import flat_tree
from corral.adapters.networks import MaskedActorCritic, tensors
from corral.adapters.spaces import ActionCodec, ColumnCodec, ObservationCodec
from corral.envs.core import Array, Observation, third_party
from corral.envs.masks import MASK, OBSERVATION, as_legal, draw, masked
from corral.envs.policy import Decision, PolicyBase, take_tree

__all__ = [
    "NetworkPolicy",
    "Traceable",
    "actor_policy",
    "mlp_policy",
    "rllib_policy",
    "sb3_policy",
    "unmasked",
]

Forward = Callable[[Any, Array | None], tuple[Distribution, Array | None]]
"""Maps an observation [R, ...] and a hidden state float32 [R, memory] to the distribution of stored
actions [R, ...] and the next hidden state. The implementations here are also ``Traceable``."""


class Traceable(Protocol):
    """A policy's network as a function of tensors, for exports."""

    @property
    def identity(self) -> Array | None:
        """Encoding of the agent within its policy: float32 [I]; None: not used."""
        ...

    @property
    def values(self) -> bool:
        """True if outputs are action values and the best legal action is played; False: logits."""
        ...

    def outputs(
        self, vector: torch.Tensor, identity: torch.Tensor | None, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return outputs [R, A] before the mask, and the next hidden state [R, memory].

        ``vector`` [R, F] is an observation without images, ``identity`` [R, I] the agents'
        encodings."""
        ...


class NetworkPolicy(PolicyBase):
    """Plays ``agent`` with ``forward``. See ``corral.envs.policy``.

    With ``memory`` the state is an array float32 [B, memory]. ``network`` is the trained torch
    module, shared by all agents of the policy: the actor of mappo and ippo, a policy of
    Stable-Baselines3, the actor and critic of RLlib. Policies can be copied and pickled.

    ``unmasked`` is the environment's action space if its observations contain no mask. Then all
    methods also accept these observations as they are, for one environment or a batch, and all
    actions are legal. ``act`` and ``predict`` then return actions of that space, such as 1 to 3 in
    ``Discrete(3, start=1)``; with a mask, the first action is always 0. If the environment has
    masks in its infos, pass ``{"observation": ..., "action_mask": ...}``.
    """

    def __init__(
        self,
        agent: str,
        observations: ObservationCodec,
        actions: ActionCodec,
        forward: Forward,
        network: nn.Module,
        memory: int = 0,
        *,
        unmasked: spaces.Space[Any] | None = None,
    ) -> None:
        self.agent = agent
        self.observations = observations
        self.actions = actions
        self.forward = forward
        self.network = network
        self.memory = memory
        self.unmasked = unmasked is not None
        self._first = int(unmasked.start) if isinstance(unmasked, spaces.Discrete) else 0

    def __repr__(self) -> str:
        """Return the agent, the shapes of the observation, the action space, and the size."""
        width, images = self.observations.width, self.observations.images
        shapes = [*([[width]] if width or not images else []), *map(list, images)]
        inputs = " and ".join(map(str, shapes))
        size = sum(parameter.numel() for parameter in self.network.parameters())
        kind = "recurrent policy" if self.memory else "policy"
        spaces_shown = f"observation {inputs}, actions {self.actions.space}"
        return f"<{kind} of {self.agent}: {spaces_shown}, {size:,} parameters>"

    def initial_state(self, num_envs: int) -> Array | None:
        """Return the hidden state at the start of an episode: float32 [B, memory], or None."""
        return np.zeros((num_envs, self.memory), dtype=np.float32) if self.memory else None

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose the most probable action, or sample one with ``rng``, for one observation or a
        batch.

        For Discrete actions ``extra`` contains ``probabilities``, float64 [..., A].
        """
        if not deterministic and rng is None:
            raise ValueError("sampling needs rng=, a numpy Generator; or pass deterministic=True")
        complete = self._complete(observation)
        first = self._first if complete is not observation else 0
        observation, rows = complete, self.rows(complete)
        with torch.inference_mode():
            choice, after = self._forward(observation, state, rows)
            stored, extra = _choose(choice, None if deterministic else rng)
        played = self.actions.decode(stored)
        if first:
            played = played + first
        if after is not None and state is not None:
            after = after.reshape(np.shape(state))
        if rows is None:
            return Decision(played[0], after, {key: value[0] for key, value in extra.items()})
        return Decision(played, after, extra)

    def distribution(self, observation: Observation, state: Any = None) -> Distribution:
        """Return the distribution that ``act`` chooses from, for one observation or a batch.

        For Discrete actions it is a ``corral.adapters.masked_distribution.MaskedCategorical`` with
        ``probs`` [..., A], exactly 0 for illegal actions, ``log_prob(actions)`` and ``entropy()``
        [...]. Gradients flow to ``network``, except for sb3_dqn, which plays epsilon-greedily; use
        ``torch.no_grad()`` to disable them. Discrete actions are counted from 0; Box
        actions are scaled, see ``ActionCodec``.
        """
        observation = self._complete(observation)
        rows = self.rows(observation)
        choice, _ = self._forward(observation, state, rows)
        return choice[0] if rows is None else choice

    def rows(self, observation: Observation) -> int | None:
        """Return B for an observation [B, ...], and None for a single one. Raises TypeError for a
        value that is not an observation of this agent."""
        try:
            return self.observations.rows(self._complete(observation))
        except (LookupError, TypeError):
            kind = f"{list(observation)}" if isinstance(observation, Mapping) else "without entries"
            raise TypeError(
                f"{self.agent}: invalid observation {kind}; pass the observation of this agent, "
                f"such as observations[{self.agent!r}]"
                + ("" if self.unmasked else ", including its action_mask")
            ) from None

    def _complete(self, observation: Any) -> Any:
        """Return an observation of an environment without masks in corral's form."""
        codec = self.observations
        if not self.unmasked or _is_complete(observation, codec):
            return observation
        tree = flat_tree(observation)
        if isinstance(tree, Mapping):
            tree = {key: np.asarray(value) for key, value in tree.items()}
        else:
            tree = np.asarray(tree)
        if not codec.masked:
            return {OBSERVATION: tree}
        first = codec.entries[0]
        value = first.of(tree)
        batch = value.shape[: value.ndim - len(first.space.shape or ())]
        return masked(tree, np.ones((*batch, self.actions.masks), dtype=np.int8))

    def _forward(
        self, observation: Observation, state: Any, rows: int | None
    ) -> tuple[Distribution, Array | None]:
        batch = take_tree(observation, None) if rows is None else observation
        return self.forward(batch, self._hidden(state, rows or 1))

    def _hidden(self, state: Any, rows: int) -> Array | None:
        if state is None or not self.memory:
            return self.initial_state(rows)
        hidden = np.array(state, dtype=np.float32)
        if hidden.size != rows * self.memory:
            raise ValueError(
                f"{self.agent}: invalid state shape {hidden.shape}; pass the state of "
                f"initial_state({rows}) or of the previous decision: {(rows, self.memory)}"
            )
        return hidden.reshape(rows, self.memory)


def unmasked(rules: Any, agent: str) -> spaces.Space[Any] | None:
    """Return the action space of a third-party environment if its observations contain no mask."""
    if not third_party(rules) or rules.masked(index := rules.agents.index(agent)):
        return None
    space: spaces.Space[Any] = rules.own_actions[index]
    return space


def _is_complete(observation: Any, codec: ObservationCodec) -> bool:
    """Return True if an observation has corral's form, with its mask if the codec has one."""
    if not isinstance(observation, Mapping):
        return False
    if codec.masked:
        return MASK in observation
    nested = any(entry.key == OBSERVATION for entry in codec.entries)
    inner = observation.get(OBSERVATION)
    return set(observation) == {OBSERVATION} and (isinstance(inner, Mapping) or not nested)


def _choose(
    choice: Distribution, rng: np.random.Generator | None
) -> tuple[Array, dict[str, Array]]:
    """Return stored actions [R, ...], the most probable ones without ``rng``. Also return the
    probabilities if there is a single Discrete action."""
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
    return np.stack([draw(_probabilities(part), rng) for part in choice.choices], axis=-1), {}


def _probabilities(choice: MaskedCategorical) -> Array:
    """Return probabilities float64 [R, A]; exactly 0 for illegal actions."""
    probabilities: Array = choice.logits.double().softmax(dim=-1).cpu().numpy()
    return probabilities


# --- Policies of the trainers --------------------------------------------------------------------


def actor_policy(
    learner: Any, group: Any, agent: str, *, unmasked: spaces.Space[Any] | None = None
) -> NetworkPolicy:
    """Return the policy of ``agent`` in ``group``, with the actor of ``learner``."""
    actor = learner.actor
    forward = _ActorForward(actor, learner.log_std, learner.device, group, agent)
    return NetworkPolicy(
        agent, group.layout, group.actions, forward, actor, actor.memory, unmasked=unmasked
    )


@dataclass(frozen=True, eq=False)
class _ActorForward:
    actor: Any
    log_std: torch.Tensor | None
    device: torch.device
    group: Any
    agent: str
    values = False

    @property
    def identity(self) -> Array | None:
        return _identity(self.group, self.agent)

    def outputs(
        self, vector: torch.Tensor, identity: torch.Tensor | None, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        outputs, after = self.actor.step([_joined(vector, identity)], state)
        return outputs, after

    def __call__(self, observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        arrays, legal = _inputs(self.group, self.agent, observation)
        parts = [torch.from_numpy(values).to(self.device) for values in arrays]
        hidden = self.actor.initial(len(legal))
        if state is not None:
            hidden = torch.from_numpy(state).to(self.device)
        outputs, after = self.actor.step(parts, hidden)
        mask = torch.from_numpy(legal).to(self.device)
        choice = make_distribution(self.group.actions, outputs, mask, self.log_std)
        return choice, after.detach().cpu().numpy() if self.actor.memory else None


def _inputs(group: Any, agent: str, observation: Any) -> tuple[list[Array], Array]:
    """Return network inputs for ``agent``: a vector [R, F] and images; and legal: bool [R, A]."""
    observations = group.layout
    rows = observations.rows(observation) or 0
    vector = np.zeros((rows, observations.width + group.identities), dtype=np.float32)
    if (identity := _identity(group, agent)) is not None:
        vector[:, observations.width :] = identity
    images = [np.zeros((rows, *image), dtype=np.uint8) for image in observations.images]
    observations.write(observations.inner(observation), vector, images)
    legal = np.ones((rows, group.actions.masks), dtype=bool)
    if observations.masked:
        legal = as_legal(agent, observation[MASK])
    return [vector, *images], legal


def _identity(group: Any, agent: str) -> Array | None:
    """Return the agent's one-hot encoding in its ``group``: float32 [P]; None: not used."""
    if not group.identities:
        return None
    return np.asarray(np.eye(group.identities, dtype=np.float32)[group.agents.index(agent)])


def _joined(vector: torch.Tensor, identity: torch.Tensor | None) -> torch.Tensor:
    return vector if identity is None else torch.cat([vector, identity], dim=-1)


def mlp_policy(
    network: nn.Module,
    group: Any,
    agent: str,
    *,
    greedy: bool,
    unmasked: spaces.Space[Any] | None = None,
) -> NetworkPolicy:
    """Return the policy of ``agent`` in ``group``, with a ``network`` from features [R, F] to
    logits [R, A]. With ``greedy`` the outputs are action values, and the best legal one is played.
    """
    forward = _MLPForward(network, group, agent, greedy)
    return NetworkPolicy(agent, group.layout, group.actions, forward, network, unmasked=unmasked)


@dataclass(frozen=True, eq=False)
class _MLPForward:
    network: nn.Module
    group: Any
    agent: str
    greedy: bool

    @property
    def identity(self) -> Array | None:
        return _identity(self.group, self.agent)

    @property
    def values(self) -> bool:
        return self.greedy

    def outputs(
        self, vector: torch.Tensor, identity: torch.Tensor | None, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.network(_joined(vector, identity)), state

    def __call__(self, observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        (vector,), legal = _inputs(self.group, self.agent, observation)
        choice = MaskedCategorical(self.network(torch.from_numpy(vector)), torch.from_numpy(legal))
        if self.greedy:
            best = torch.zeros_like(choice.mask).scatter(-1, choice.mode.unsqueeze(-1), True)
            choice = MaskedCategorical(torch.zeros_like(choice.logits), best)
        return choice, None


def sb3_policy(
    policy: Any,
    columns: ColumnCodec,
    space: Any,
    agent: str,
    *,
    unmasked: spaces.Space[Any] | None = None,
) -> NetworkPolicy:
    """Return the policy of ``agent`` with a masked ``policy`` of Stable-Baselines3; ``space`` is
    the agent's observation space."""
    observations = ObservationCodec.of(agent, space)
    actions = ActionCodec(agent, columns.action_space)
    forward = _SB3Forward(policy, columns, observations, agent)
    return NetworkPolicy(agent, observations, actions, forward, policy, unmasked=unmasked)


@dataclass(frozen=True, eq=False)
class _SB3Forward:
    policy: Any
    columns: ColumnCodec
    observations: ObservationCodec
    agent: str

    @property
    def identity(self) -> Array | None:
        identities = self.columns.identities
        return None if identities is None else identities[self.columns.agents.index(self.agent)]

    @property
    def values(self) -> bool:
        return bool(self.policy.puts_out_values)

    def outputs(
        self, vector: torch.Tensor, identity: torch.Tensor | None, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.policy.set_training_mode(False)
        entries = {OBSERVATION: vector, **({} if identity is None else {"agent": identity})}
        return self.policy.outputs(entries), state

    def __call__(self, observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        rows = self.observations.rows(observation) or 0
        entries = self.columns.flat(observation, (rows,), self.columns.agents.index(self.agent))
        self.policy.set_training_mode(False)
        return self.policy.get_distribution(
            self.policy.obs_to_tensor(entries)[0]
        ).distribution, None


def rllib_policy(
    networks: MaskedActorCritic,
    group: Any,
    agent: str,
    identity: Array | None,
    *,
    unmasked: spaces.Space[Any] | None = None,
) -> NetworkPolicy:
    """Return the policy of ``agent`` in ``group``, with networks trained by RLlib.

    ``identity`` (float32 [N]) is added to each observation if the actor was trained with it.
    """
    forward = _RLlibForward(networks, agent, identity)
    return NetworkPolicy(agent, group.layout, group.actions, forward, networks, unmasked=unmasked)


@dataclass(frozen=True, eq=False)
class _RLlibForward:
    networks: MaskedActorCritic
    agent: str
    identity: Array | None
    values = False

    def outputs(
        self, vector: torch.Tensor, identity: torch.Tensor | None, state: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        entries = {OBSERVATION: vector, **({} if identity is None else {"agent": identity})}
        return self.networks.actor(entries), state

    def __call__(self, observation: Any, state: Array | None) -> tuple[Distribution, Array | None]:
        as_legal(self.agent, observation[MASK])
        entries = tensors(observation)
        if self.identity is not None:
            identity = torch.from_numpy(self.identity)
            entries["agent"] = identity.expand(len(entries[MASK]), -1)
        return self.networks.distribution(entries), None
