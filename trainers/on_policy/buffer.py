"""What a team saw, did and was paid in a rollout, kept in arrays that are made once.

t = 0 .. T - 1 are the steps; what is seen after the last one stands at t = T
P agents of one policy; a column c = copy * P + place is one of them in one copy, C = B * P
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from corral.envs.batch import BatchStep
from corral.envs.core import AgentViews, Array, Observation
from corral.errors import NonFiniteError
from corral.trainers.on_policy.networks import Actions, Layout, Parts, legal_mask

__all__ = ["Frames", "Rollout", "Seat", "Sequences", "Track", "frame_parts", "joined"]


@dataclass(frozen=True)
class Seat:
    """Where the agents of one policy sit, and how their spaces are laid out."""

    policy: str
    agents: tuple[str, ...]
    places: Array  # int64 [P] of the agents, along axis N
    layout: Layout
    actions: Actions
    identities: int  # columns of the vector that tell which agent it is: P, or 0

    @cached_property
    def columns(self) -> Any:
        """An index along axis N; a slice where it can be, which copies nothing."""
        first, count = int(self.places[0]), len(self.places)
        if np.array_equal(self.places, np.arange(first, first + count)):
            return slice(first, first + count)
        return self.places


class Frames:
    """Moments [*L], each seen by the agents of one seat: all that networks are shown of it."""

    def __init__(self, seat: Seat, *shape: int) -> None:
        layout, agents = seat.layout, len(seat.agents)
        self.seat = seat
        self.vector = np.zeros((*shape, agents, layout.width + seat.identities), np.float32)
        if seat.identities:
            self.vector[..., layout.width :] = np.eye(agents, dtype=np.float32)
        self.images = [np.zeros((*shape, agents, *image), np.uint8) for image in layout.images]
        self.mask = np.ones((*shape, agents, seat.actions.masks), dtype=bool)

    def see(self, at: Any, observations: Mapping[str, Observation]) -> None:
        """Take in what is seen at moment ``at``, [B, ...] for each agent.

        Raises NonFiniteError for numbers that are not finite, MaskError for what is no mask.
        """
        seat, layout = self.seat, self.seat.layout
        vector, images, mask = self.vector[at], [image[at] for image in self.images], self.mask[at]
        # Other warnings than ours would come of numbers that are no longer finite.
        with np.errstate(all="ignore"):
            block: Any = None
            if isinstance(observations, AgentViews):
                block = observations.blocks["observation"]
            if isinstance(block, np.ndarray) and layout.wrapped:
                own = block[:, seat.columns]  # [B, P, ...]
                rows = own.shape[0] * own.shape[1]
                layout.write(
                    own.reshape(rows, *own.shape[2:]),
                    vector.reshape(rows, -1),
                    [image.reshape(rows, *image.shape[2:]) for image in images],
                )
            else:
                for j, agent in enumerate(seat.agents):
                    inner = layout.inner(observations[agent])
                    layout.write(inner, vector[:, j], [image[:, j] for image in images])
            finite = np.isfinite(vector.sum())
        if not finite and not np.isfinite(vector).all():
            copy, j = np.argwhere(~np.isfinite(vector).all(axis=-1))[0]
            raise NonFiniteError(
                f"copy {copy}, {seat.agents[j]}: the observation holds a number that is not "
                "finite; mend the environment"
            )
        if layout.masked:
            if isinstance(observations, AgentViews):
                own = observations.blocks["action_mask"][:, seat.columns]
                mask[...] = legal_mask(seat.agents[0], own)
            else:
                for j, agent in enumerate(seat.agents):
                    mask[:, j] = legal_mask(agent, observations[agent]["action_mask"])


class Track(Frames):
    """What the agents of one policy saw and did, step by step."""

    def __init__(self, seat: Seat, steps: int, num_envs: int) -> None:
        super().__init__(seat, steps + 1, num_envs)
        shape = (steps, num_envs, len(seat.agents))
        self.action = np.zeros((*shape, *seat.actions.shape), seat.actions.dtype)
        self.log_prob = np.zeros(shape, dtype=np.float32)
        self.next_action = np.zeros_like(self.action[0])  # of t = T, where it is needed


def frame_parts(
    frames: Frames, at: Any, rows: Array | None, device: torch.device
) -> tuple[Parts, Any]:
    """Parts and masks, [R, ...], of the columns of moment ``at``."""
    tensors, count = [], math.prod(frames.vector[at].shape[:-1])
    seen: list[Array] = [frames.vector, *frames.images, frames.mask]
    for values in seen:
        flat = values[at].reshape(count, *values.shape[frames.vector.ndim - 1 :])
        tensors.append(torch.from_numpy(flat if rows is None else flat[rows]).to(device))
    return tensors[:-1], tensors[-1]


class Rollout:
    """T steps of B copies: one Track per seat, and what all share."""

    def __init__(
        self, seats: Sequence[Seat], steps: int, num_envs: int, agents: Sequence[str], features: int
    ) -> None:
        self.agents = tuple(agents)
        self.tracks = [Track(seat, steps, num_envs) for seat in seats]
        shape = (steps, num_envs, len(agents))
        self.reward = np.zeros(shape, dtype=np.float32)
        self.acted = np.zeros(shape, dtype=bool)
        self.acting = np.zeros(shape[1:], dtype=bool)  # at t = T
        self.terminated = np.zeros(shape, dtype=bool)
        self.truncated = np.zeros(shape, dtype=bool)
        self.over = np.zeros(shape[:2], dtype=bool)  # whether step t was an episode's last
        self.state = np.zeros((steps + 1, num_envs, features), dtype=np.float32)
        self.begin()

    def begin(self) -> None:
        """Forget the ends of the rollout before; all else is written over."""
        # Moments that were an episode's last for an agent that was cut: E of them in all.
        self.final_step: list[Array] = []
        self.final_copy: list[Array] = []
        self.final_state: list[Array] = []
        self.finals: list[list[Frames]] = [[] for _ in self.tracks]
        self.final_action: list[list[Array]] = [[] for _ in self.tracks]
        self.final_acts: list[list[Array]] = [[] for _ in self.tracks]

    def see(self, t: int, observations: Mapping[str, Observation], state: Array | None) -> None:
        for track in self.tracks:
            track.see(t, observations)
        if state is not None:
            self._put_state(self.state[t], state)

    def pay(self, t: int, step: BatchStep) -> None:
        """Take in what step ``t`` brought, but for what is seen next."""
        self.reward[t] = step.reward
        with np.errstate(all="ignore"):
            finite = np.isfinite(self.reward[t].sum())
        if not finite and not np.isfinite(step.reward).all():
            copy, i = np.argwhere(~np.isfinite(step.reward))[0]
            raise NonFiniteError(
                f"copy {copy}, {self.agents[i]}: the reward is {step.reward[copy, i]}"
            )
        self.terminated[t] = step.terminated
        self.truncated[t] = step.truncated
        self.over[t] = step.over

    def see_last(
        self, t: int, rows: Array, observations: Mapping[str, Observation], state: Array | None
    ) -> list[Frames]:
        """Take in the last moments of agents that were cut in step ``t`` of ``rows`` [D]."""
        self.final_step.append(np.full(len(rows), t))
        self.final_copy.append(rows)
        wide = np.zeros((len(rows), self.state.shape[-1]), dtype=np.float32)
        if state is not None:
            self._put_state(wide, state)
        self.final_state.append(wide)
        seen = []
        for track, kept in zip(self.tracks, self.finals, strict=True):
            frames = Frames(track.seat, len(rows))
            frames.see(..., observations)
            kept.append(frames)
            seen.append(frames)
        return seen

    def _put_state(self, target: Array, state: Array) -> None:
        with np.errstate(all="ignore"):
            target[...] = state
            finite = np.isfinite(target.sum())
        if not finite and not np.isfinite(target).all():
            copy = np.argwhere(~np.isfinite(target))[0, 0]
            raise NonFiniteError(
                f"copy {copy}: global_state holds a number that is not finite; mend the environment"
            )


def joined(arrays: Sequence[Array]) -> Array:
    """Of whole numbers, one after the other; there may be none."""
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)


class Sequences:
    """The decisions of a rollout, as the sequences that a memory goes through.

    A sequence is what one column decided in one episode; steps in which it does not act leave no
    trace in it. Decisions are numbered in the order of ``acted`` [T, C], flattened.
    """

    def __init__(self, acted: Array, begins: Array) -> None:
        """``begins`` bool [T, C] tells where an episode begins within the rollout."""
        columns = acted.shape[1]
        self.acted = acted
        self.episode = begins.cumsum(axis=0)  # [T, C] 0: the one that was going on
        t, c = np.nonzero(acted)
        self.rows = t * columns + c  # int64 [R] of the decisions in [T * C]
        keys, self.sequence = np.unique(self.episode[t, c] * columns + c, return_inverse=True)
        self.column = keys % columns  # int64 [S]
        self.goes_on = keys < columns  # bool [S] whether it began before the rollout
        order = np.argsort(self.sequence, kind="stable")
        self.lengths = np.bincount(self.sequence, minlength=len(keys))
        self._starts = np.concatenate([[0], self.lengths.cumsum()[:-1]]).astype(np.int64)
        self._order = order  # decisions, sequence by sequence

    def pick(self, chosen: Array) -> tuple[Array, Array, Array]:
        """The decisions [R'] of ``chosen`` sequences [S'], numbered as above; their places, padded,
        as numbers of these [L, S']; and where each of these stands in that, flattened: [R']."""
        lengths = self.lengths[chosen]
        rank = np.arange(int(lengths.max(initial=0)))[:, None]  # [L, 1]
        inside = rank < lengths  # [L, S']
        decisions = self._order[(self._starts[chosen] + rank)[inside]]
        padded = np.zeros(inside.shape, dtype=np.int64)
        padded[inside] = np.arange(len(decisions))
        return decisions, padded, np.flatnonzero(inside)

    def last_decision(self) -> Array:
        """The latest decision of the same episode up to each step: int64 [T, C]; -1: none."""
        t = np.arange(len(self.acted))[:, None]
        latest = np.maximum.accumulate(np.where(self.acted, t, -1))
        first = np.maximum.accumulate(np.where(np.diff(self.episode, axis=0, prepend=0) > 0, t, 0))
        number = np.cumsum(self.acted).reshape(self.acted.shape) - 1
        columns = np.arange(self.acted.shape[1])
        return np.where(latest >= first, number[np.maximum(latest, 0), columns], -1)
