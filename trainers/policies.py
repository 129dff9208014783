"""A network of the in-house trainers that plays one agent, as ``corral.envs.policy`` wants it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch

from corral.envs.core import Array, Observation
from corral.envs.policy import Decision
from corral.trainers.on_policy.buffer import AgentGroup
from corral.trainers.on_policy.networks import (
    Categorical,
    Distribution,
    Gaussian,
    Network,
    Parts,
    legal_mask,
)

__all__ = ["NetworkPolicy"]


class Player(Protocol):
    """What a NetworkPolicy needs of what learns."""

    group: AgentGroup
    actor: Network
    device: torch.device

    def distribution(self, outputs: torch.Tensor, mask: torch.Tensor) -> Distribution: ...


class NetworkPolicy:
    """Plays ``agent`` with the actor of ``player``. See ``corral.envs.policy``.

    The state of an actor with memory is an array float32 [B, memory].
    """

    def __init__(self, player: Player, agent: str) -> None:
        self.player = player
        self.agent = agent

    def initial_state(self, num_envs: int) -> Array | None:
        memory = self.player.actor.memory
        return np.zeros((num_envs, memory), dtype=np.float32) if memory else None

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
        single = self._single(observation)
        shown = _with_axis(observation) if single else observation
        parts, mask = self._parts(shown)
        actor, actions = self.player.actor, self.player.group.actions
        rows = len(parts[0])
        with torch.inference_mode():
            before = self._memory(state, rows)
            outputs, after = actor.step(parts, before)
            choice = self.player.distribution(outputs, mask)
            stored, extra = _chosen(choice, rng, deterministic)
        if single:
            stored, extra = stored[:1], {key: values[0] for key, values in extra.items()}
        played = actions.played(stored)
        kept = None
        if actor.memory:
            kept = after.cpu().numpy().reshape(np.shape(state) if state is not None else (rows, -1))
        return Decision(played[0] if single else played, kept, extra)

    def _single(self, observation: Observation) -> bool:
        """Whether it is one observation, and no batch."""
        layout = self.player.group.layout
        if layout.masked:
            return np.ndim(observation["action_mask"]) == 1
        part, inner = layout.parts[0], layout.inner(observation)
        return np.ndim(inner if part.key is None else inner[part.key]) == len(
            part.space.shape or ()
        )

    def _parts(self, observation: Any) -> tuple[Parts, Any]:
        seat, device = self.player.group, self.player.device
        layout = seat.layout
        mask = observation["action_mask"] if layout.masked else None
        inner = layout.inner(observation)
        part = layout.parts[0]
        rows = len(inner if part.key is None else inner[part.key]) if mask is None else len(mask)
        vector = np.zeros((rows, layout.width + seat.identities), dtype=np.float32)
        if seat.identities:
            vector[:, layout.width + seat.agents.index(self.agent)] = 1.0
        images = [np.zeros((rows, *image), dtype=np.uint8) for image in layout.images]
        layout.write(inner, vector, images)
        if mask is None:
            legal = np.ones((rows, seat.actions.masks), dtype=bool)
        else:
            legal = legal_mask(self.agent, mask)
        parts = [torch.from_numpy(values).to(device) for values in (vector, *images)]
        return parts, torch.from_numpy(legal).to(device)

    def _memory(self, state: Any, rows: int) -> torch.Tensor:
        actor = self.player.actor
        if state is None or not actor.memory:
            return actor.initial(rows)
        kept = np.asarray(state, dtype=np.float32)
        if kept.size != rows * actor.memory:
            raise ValueError(
                f"{self.agent}: a state of shape {kept.shape}; give what initial_state({rows}) or "
                f"the last decision gave: {(rows, actor.memory)}"
            )
        return torch.from_numpy(kept.reshape(rows, actor.memory).copy()).to(self.player.device)


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _with_axis(value) for key, value in observation.items()}
    return np.asarray(observation)[None]


def _chosen(
    choice: Distribution, rng: np.random.Generator | None, deterministic: bool
) -> tuple[Array, dict[str, Array]]:
    """Stored actions [R, ...], and the probabilities where there is one choice."""
    extra: dict[str, Array] = {}
    if isinstance(choice, Categorical):
        extra["probabilities"] = choice.logits.double().softmax(dim=-1).cpu().numpy()
    if deterministic or rng is None:
        return choice.mode.cpu().numpy(), extra
    if isinstance(choice, Gaussian):
        mean, std = choice.mode.cpu().numpy(), choice.log_std.exp().cpu().numpy()
        noise = rng.standard_normal(mean.shape, dtype=np.float32)
        return mean + std * noise, extra
    choices = [choice] if isinstance(choice, Categorical) else choice.choices  # type: ignore[attr-defined]
    taken = []
    for each in choices:
        chances = each.logits.double().softmax(dim=-1).cpu().numpy()  # illegal: exactly 0
        # The action at which the running sum passes a uniform number; the last sum is 1 or so.
        sums = chances.cumsum(axis=-1)
        drawn = rng.random(len(sums))[:, None] * sums[:, -1:]
        taken.append((sums > drawn).argmax(axis=-1))
    return (taken[0] if isinstance(choice, Categorical) else np.stack(taken, axis=-1)), extra
