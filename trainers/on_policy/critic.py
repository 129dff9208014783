"""Critics: their inputs, and their values for a rollout."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces

from corral.adapters.models import Branch, Leaf, View, box, view_of
from corral.adapters.networks import Network, Parts
from corral.adapters.spaces import Grid
from corral.envs.core import Array, Observation, Rules
from corral.errors import NonFiniteError
from corral.trainers.on_policy.buffer import AgentGroup, ObservationBuffer, RolloutBuffer
from corral.trainers.on_policy.learner import HiddenState, InputSize, Learner, Sequences, unroll

__all__ = ["CriticInput", "Values", "critic_outputs", "initial_values", "recurrent_outputs"]

CHUNK = 4096
"""Maximum rows per critic call, so that they fit into the processor's cache."""

CriticOutputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Outputs in the critic's scale: of R decisions, of the observations after the last step [C], and
of D final observations."""


# --- Inputs ---------------------------------------------------------------------------------------


class Moments(Protocol):
    """A rollout buffer, or its final observations."""

    @property
    def state(self) -> Array: ...

    @property
    def groups(self) -> Sequence[ObservationBuffer]: ...


class CriticInput:
    """The inputs of critics, by ``kind``.

    | kind | a critic's vector |
    |---|---|
    | "own" | the agent's observation |
    | "state" | the global state, and the agent's observation |
    | "observations" | the observations of all agents, in the order of their policies |
    | "observations+actions" | also the other agents' actions in this step; 0 if one does not act |

    The inputs also contain the agent's ID within its policy, and the images of the observations.
    """

    def __init__(
        self, kind: str, groups: Sequence[AgentGroup], rules: Rules[Any], own_action: bool = False
    ) -> None:
        """``own_action`` keeps the agent's own action in the input."""
        self.kind, self.groups, self.own_action = kind, groups, own_action
        if own_action:
            warnings.warn(
                "own_action=True: a critic with the agent's own action is not a valid baseline and "
                "biases the policy gradient. Omit it unless you study this effect",
                stacklevel=3,
            )
        self.features = 0
        if kind == "state":
            self.state_box = box(rules.state_space())
            self.features = math.prod(self.state_box.shape)

    @property
    def with_actions(self) -> bool:
        return self.kind == "observations+actions"

    def state(self, batch: Any) -> Array | None:
        """Return the global state [B, ...] of a batch; None if critics do not observe it."""
        return np.asarray(batch.global_state()) if self.features else None

    def size(self, group: AgentGroup) -> InputSize:
        """Return the input size for an agent of ``group``."""
        own = group.layout
        if self.kind in ("own", "state"):
            width = self.features + own.width + group.identities
            return width, own.images, own.scales, own.grids(self.features)
        agents = [(other.layout, other.actions) for other in self.groups for _ in other.agents]
        width, grids = 0, list[Grid]()
        for layout, _ in agents:
            grids += layout.grids(first=width)
            width += layout.width
        width += group.identities
        if self.with_actions:
            width += sum(actions.encoded for _, actions in agents)
        images = tuple(image for layout, _ in agents for image in layout.images)
        scales = tuple(scale for layout, _ in agents for scale in layout.scales)
        return width, images, scales, grids

    def view(self, group: AgentGroup) -> View:
        """Return the input's structure for a custom model: see docs/networks.md.

        For "own" it is the observation; else a Dict, with ``agent`` if the policy has several.
        """
        own, column, image = group.layout, self.features, 0
        if self.kind == "own":
            return view_of(own)
        branches: dict[str, View] = {}
        if self.kind == "state":
            branches = {
                "state": Leaf(self.state_box, 0, column),
                "observation": view_of(own, column),
            }
            column += own.width
        else:
            agents = [(agent, group_of) for group_of in self.groups for agent in group_of.agents]
            observations, actions = {}, {}
            for agent, group_of in agents:
                observations[agent] = view_of(group_of.layout, column, image)
                column, image = column + group_of.layout.width, image + len(group_of.layout.images)
            for agent, group_of in agents if self.with_actions else ():
                size = group_of.actions.encoded
                bound = np.float32(np.inf if group_of.actions.continuous else 1)
                low = -bound if group_of.actions.continuous else np.float32(0)
                actions[agent] = Leaf(spaces.Box(low, bound, (size,)), column, column + size)
                column += size
            branches = {"observations": Branch(observations)}
            if actions:
                branches["actions"] = Branch(actions)
        if count := group.identities:
            branches["agent"] = Leaf(spaces.Box(0, 1, (count,)), column, column + count)
        return Branch(branches)

    def parts(self, moments: Moments, i: int) -> list[Array]:
        """Return the inputs of the critic of group ``i``: a vector and images [*L, P, ...]."""
        own = moments.groups[i]
        if self.kind == "own":
            return [own.vector, *own.images]
        if self.kind == "state":
            shape = (*own.vector.shape[:-1], moments.state.shape[-1])
            state = np.broadcast_to(moments.state[..., None, :], shape)
            return [np.concatenate([state, own.vector], axis=-1), *own.images]
        everyone = [
            buffer.vector[..., : buffer.group.layout.width].reshape(*moments.state.shape[:-1], -1)
            for buffer in moments.groups
        ]
        both = np.concatenate(everyone, axis=-1)[..., None, :]  # [*L, 1, sum of F]
        columns = [np.broadcast_to(both, (*own.vector.shape[:-1], both.shape[-1]))]
        if self.with_actions:
            columns.append(self._actions(moments, i))
        columns.append(own.vector[..., own.group.layout.width :])
        parts = [np.concatenate(columns, axis=-1)]
        for buffer in moments.groups:
            for j in range(len(buffer.group.agents)):
                for picture in buffer.images:
                    one = picture[..., j, None, :, :, :]
                    parts.append(np.repeat(one, len(own.group.agents), axis=-4))
        return parts

    def tensors(self, learner: Learner, moments: Moments, i: int) -> Parts:
        """Return ``parts`` on the learner's device."""
        return [learner.tensor(part) for part in self.parts(moments, i)]

    def _actions(self, moments: Moments, i: int) -> Array:
        """Return all agents' actions as input of the critic of group ``i``: [*L, P, columns]."""
        own, encoded, agents = moments.groups[i].group, [], []
        for buffer in moments.groups:
            group, acting = buffer.group, buffer.acting
            stored = buffer.action.reshape(acting.size, *group.actions.shape)
            columns = group.actions.encode(stored).reshape(*acting.shape, -1) * acting[..., None]
            encoded.append(columns.reshape(*acting.shape[:-1], -1))
            agents += [agent for agent in group.agents for _ in range(group.actions.encoded)]
        everyone = np.concatenate(encoded, axis=-1).astype(np.float32)
        parts = np.repeat(everyone[..., None, :], len(own.agents), axis=-2)
        if not self.own_action:
            for j, agent in enumerate(own.agents):
                parts[..., j, np.array(agents) == agent] = 0.0
        return parts


# --- Values ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """A critic's values of a rollout: float32, in the scale of the rewards."""

    value: Array  # [T, C] of the observations before each step, if the agent acted
    bootstrap_value: Array  # [C] of the observations after the last step
    final_obs_value: Array  # [T, C] of the last observations before truncation, else 0
    raw: Array  # [T, C] ``value`` in the critic's scale

    @classmethod
    def of(
        cls, learner: Learner, acted: Array, outputs: CriticOutputs, step: Array, column: Array
    ) -> Values:
        """Convert ``outputs`` to the scale of the rewards: of the decisions ``acted`` bool [T, C],
        and of final observations at ``step`` and ``column`` [D]. Raises NonFiniteError."""
        norm = learner.value_norm
        decided, bootstrap, final = (output.cpu() for output in outputs)
        raw = np.zeros(acted.shape, dtype=np.float32)
        raw[acted] = decided.numpy()
        final_obs_value = np.zeros_like(raw)
        final_obs_value[step, column] = norm.restore(final).numpy()
        value, bootstrap_value = norm.restore(torch.from_numpy(raw)), norm.restore(bootstrap)
        result = cls(value.numpy(), bootstrap_value.numpy(), final_obs_value, raw)
        for source, values in (
            ("rollout", result.value),
            ("final observations", result.final_obs_value),
            ("rollout's end", result.bootstrap_value),
        ):
            if not np.isfinite(values).all():
                raise NonFiniteError(
                    f"policy {learner.group.policy}: a value of the {source} is not finite. "
                    "Training has diverged: try a smaller learning_rate, and check progress.csv"
                )
        return result


def critic_outputs(
    critic: Network, obs: Parts, acted: Array, final_obs: Parts, finals: int
) -> CriticOutputs:
    """Return a critic's outputs for the decisions ``acted`` [T, C] in ``obs`` [T + 1, B, P, ...],
    for the observations after the last step [C], and for the ``finals`` rows of ``final_obs``."""
    flat = [part.flatten(0, 2) for part in obs]
    after_last = np.arange(acted.shape[1]) + acted.size
    return (
        _outputs(critic, flat, np.flatnonzero(acted)),
        _outputs(critic, flat, after_last),
        _outputs(critic, final_obs, np.arange(finals)),
    )


def _outputs(critic: Network, parts: Parts, rows: Array) -> torch.Tensor:
    """Return a critic's outputs [R] for ``rows`` of ``parts``."""
    outputs = [torch.zeros(0)]
    with torch.inference_mode():
        for low in range(0, len(rows), CHUNK):
            at = torch.from_numpy(rows[low : low + CHUNK]).to(parts[0].device)
            outputs.append(critic([part.index_select(0, at) for part in parts])[:, 0].cpu())
    return torch.cat(outputs)


def recurrent_outputs(
    learner: Learner,
    hidden: HiddenState,
    rollout: RolloutBuffer,
    sequences: Sequences,
    obs: Parts,
    final_obs: Parts,
) -> CriticOutputs:
    """Return ``critic_outputs`` for a recurrent critic, and move its hidden state to the end of the
    rollout."""
    critic, group = learner.critic, learner.group
    _, step, column = rollout.cut(group)
    decided, states = torch.zeros(0), learner.tensor(np.zeros((0, critic.memory), np.float32))
    with torch.inference_mode():
        if len(sequences.rows):
            flat = [part[:-1].flatten(0, 2) for part in obs]
            everything = np.arange(len(sequences))
            before = hidden.critic_before
            by_sequence, numbers = unroll(learner, critic, flat, sequences, everything, before)
            states = torch.empty_like(by_sequence)
            states[learner.tensor(numbers)] = by_sequence
            decided = critic.head(states)[:, 0]
        # States after each step; unchanged if a column did not act, 0 at the start of an episode.
        held = np.where((sequences.episode == 0)[..., None], hidden.critic_before, np.float32(0))
        latest = sequences.last_decision()
        held[latest >= 0] = states.cpu().numpy()[latest[latest >= 0]]
        hidden.critic[...] = held[-1]
        hidden.critic.reshape(hidden.shape)[rollout.over[-1]] = (
            0  # only this copy: final observations need ``held``
        )
        last = [part[-1].flatten(0, 1) for part in obs]
        bootstrap = critic.step(last, learner.tensor(hidden.critic))[0][:, 0]
        final = bootstrap.new_zeros(0)
        if len(step):
            final = critic.step(final_obs, learner.tensor(held[step, column]))[0][:, 0]
    return decided, bootstrap, final


def initial_values(
    critic_input: CriticInput,
    learners: Sequence[Learner],
    agents: Sequence[str],
    observations: Mapping[str, Observation],
    state: Array | None,
) -> dict[str, Array]:
    """Return V of ``observations`` [R, ...] at the start of episodes: agent -> float32 [R].

    Critics that observe actions get zeros as actions.
    """
    rows = len(_any_array(observations[agents[0]]))
    buffer = RolloutBuffer(critic_input.groups, 1, rows, agents, critic_input.features)
    buffer.store_obs(0, observations, state, np.zeros((rows, len(agents)), dtype=bool))
    values_of: dict[str, Array] = {}
    for i, learner in enumerate(learners):  # learners have the first groups
        parts = [part[0].flatten(0, 1) for part in critic_input.tensors(learner, buffer, i)]
        with torch.inference_mode():
            hidden = learner.critic.initial(len(parts[0]))
            outputs = learner.critic.step(parts, hidden)[0][:, 0]
            values = learner.value_norm.restore(outputs).cpu().numpy()
        for j, agent in enumerate(learner.group.agents):
            values_of[agent] = values.reshape(rows, -1)[:, j]
    return values_of


def _any_array(tree: Any) -> Any:
    return _any_array(next(iter(tree.values()))) if isinstance(tree, Mapping) else tree
