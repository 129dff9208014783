"""Frozen copies of a policy's actor: one forward pass computes the outputs of many copies.

Actors of linear layers share a forward pass, each with its own rows: twenty cost little more than
one. Actors with images, memory or custom layers need a forward pass each; only few of these are
drawn per rollout, see ``Casting``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from corral.adapters.networks import Network, Parts
from corral.envs.core import Array
from corral.errors import CheckpointError, ModelError
from corral.files import sha256
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.on_policy.learner import Learner
from corral.trainers.on_policy.saving import arrays_of
from corral.trainers.policies import NetworkPolicy, actor_policy
from corral.trainers.runs.checkpoint_format import encode_arrays

__all__ = ["FrozenActors", "Snapshot"]


@dataclass(eq=False)
class Snapshot:
    """A policy's actor after ``env_steps`` env steps; its weights never change."""

    name: str  # <policy>@<env steps>
    env_steps: int
    actor: Network
    log_std: torch.Tensor | None  # float32 [A] for continuous actions
    digest: str = ""  # SHA-256 of ``encoded``
    drawn: bool = True  # False: removed when its current episodes end

    def __post_init__(self) -> None:
        self.actor.requires_grad_(False)
        self.digest = self.digest or sha256(self.encoded())

    def arrays(self) -> dict[str, Array]:
        """Return the weights by name."""
        log_std = {} if self.log_std is None else arrays_of({"log_std": self.log_std})
        return arrays_of(self.actor.state_dict()) | log_std

    def encoded(self) -> bytes:
        """Return the weights as the bytes of a safetensors file."""
        return encode_arrays(f"{self.name}.safetensors", self.arrays())


class FrozenActors:
    """The snapshots of one policy, oldest first."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.snapshots: list[Snapshot] = []
        self._layers: list[tuple[torch.Tensor, torch.Tensor] | nn.Module] | None = None

    def add(self, env_steps: int) -> Snapshot:
        """Freeze the learner's current actor. Raises ModelError if it cannot be copied."""
        learner = self.learner
        log_std = None if learner.log_std is None else learner.log_std.detach().clone()
        name = f"{learner.group.policy}@{env_steps}"
        try:
            actor = copy.deepcopy(learner.actor)
        except (TypeError, RuntimeError) as error:
            raise ModelError(
                f"{name}: a snapshot needs a copy of the network, but copy.deepcopy fails: {error}"
            ) from error
        self.snapshots.append(Snapshot(name, env_steps, actor, log_std))
        self._layers = None
        return self.snapshots[-1]

    def remove(self, chosen: Sequence[int]) -> None:
        """Remove the snapshots at these indices."""
        self.snapshots = [snapshot for i, snapshot in enumerate(self.snapshots) if i not in chosen]
        self._layers = None

    def policy(self, number: int, agent: str) -> NetworkPolicy:
        """Return the policy of ``agent`` with the snapshot at index ``number``."""
        snapshot = self.snapshots[number]
        learner = SimpleNamespace(
            actor=snapshot.actor, log_std=snapshot.log_std, device=self.learner.device
        )
        return actor_policy(learner, self.learner.group, agent)

    # --- Playing ---------------------------------------------------------------------------------

    @property
    def stacks(self) -> bool:
        """True if several snapshots can be evaluated together."""
        actor = self.learner.actor
        return actor.encoder is None and not (actor.memory or len(actor.cnns) or actor.grids)

    def sample(
        self,
        parts: Parts,
        mask: torch.Tensor,
        numbers: Array,
        hidden: Array,
        rng: torch.Generator,
    ) -> tuple[torch.Tensor, Array]:
        """Sample actions [R, ...] for ``parts`` and ``mask`` [R, ...], and return them with the
        hidden states that follow ``hidden`` [R, H]. Row r uses the snapshot ``numbers[r]``."""
        with torch.inference_mode():
            outputs, after = self._outputs(parts, numbers, hidden)
            log_std = self.learner.log_std
            if log_std is not None:
                log_stds = [
                    snapshot.log_std for snapshot in self.snapshots if snapshot.log_std is not None
                ]
                log_std = torch.stack(log_stds)[self.learner.tensor(numbers)]  # type: ignore[assignment]
            return _distribution(self.learner, outputs, mask, log_std).sample(rng), after

    def _outputs(self, parts: Parts, numbers: Array, hidden: Array) -> tuple[torch.Tensor, Array]:
        """Return the outputs [R, ...] of the snapshots' actors, and the next hidden states."""
        first, several = int(numbers[0]), bool((numbers != numbers[0]).any())
        actor = self.snapshots[first].actor
        if several and self.stacks:
            return self._stacked(parts[0], numbers), hidden
        if not several:
            outputs, after = actor.step(parts, self.learner.tensor(hidden))
            return outputs, after.cpu().numpy()
        pieces, moved = [], np.empty_like(hidden)
        chosen = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
        for rows in chosen:
            at = self.learner.tensor(rows)
            actor = self.snapshots[int(numbers[rows[0]])].actor
            outputs, after = actor.step(
                [part.index_select(0, at) for part in parts], self.learner.tensor(hidden[rows])
            )
            pieces.append(outputs)
            moved[rows] = after.cpu().numpy()
        back = self.learner.tensor(np.argsort(np.concatenate(chosen)))
        return torch.cat(pieces).index_select(0, back), moved

    def _stacked(self, vector: torch.Tensor, numbers: Array) -> torch.Tensor:
        """Return the outputs [R, ...] of several actors with linear layers, evaluated together.

        The rows are grouped by actor and padded to [K, maximum, F], so that each layer is a single
        matrix product.
        """
        row_counts = np.bincount(numbers, minlength=len(self.snapshots))
        present = np.flatnonzero(row_counts)
        which, counts = (np.cumsum(row_counts > 0) - 1)[numbers], row_counts[present]
        order = np.argsort(which, kind="stable")
        at = np.empty_like(order)  # index of each row among the rows of its actor
        at[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = self.learner.tensor(which * int(counts.max()) + at)
        partial = len(present) < len(self.snapshots)
        index = self.learner.tensor(present) if partial else None
        width = vector.new_zeros(len(present) * int(counts.max()), vector.shape[1])
        layer_in = width.index_copy(0, place, vector).view(len(present), -1, vector.shape[1])
        for layer in self._stack():
            if isinstance(layer, nn.Module):
                layer_in = layer(layer_in)
                continue
            weight, bias = layer if index is None else [p.index_select(0, index) for p in layer]
            layer_in = torch.baddbmm(bias, layer_in, weight)
        return layer_in.flatten(0, 1).index_select(0, place)

    def _stack(self) -> list[Any]:
        """Return the layers of all snapshots: weights [K, in, out] and biases [K, 1, out]."""
        if self._layers is None:
            actors = [snapshot.actor for snapshot in self.snapshots]
            self._layers = []
            for same in zip(*([*actor.layers, actor.head] for actor in actors), strict=True):
                if isinstance(same[0], nn.Linear):
                    weight = torch.stack([layer.weight.T for layer in same]).contiguous()
                    bias = torch.stack([layer.bias for layer in same])[:, None]
                    self._layers.append((weight, bias))
                else:
                    self._layers.append(same[0])
        return self._layers

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[list[list[Any]], dict[str, Array]]:
        """Return [env steps, digest, drawn] of each snapshot, and their stacked weights [K, ...].

        Raises CheckpointError if the weights of a snapshot have changed.
        """
        for snapshot in self.snapshots:
            if sha256(snapshot.encoded()) != snapshot.digest:
                raise CheckpointError(
                    f"snapshot {snapshot.name} has changed since it was taken: some code trains "
                    "or modifies a frozen network"
                )
        listed = [
            [snapshot.env_steps, snapshot.digest, snapshot.drawn] for snapshot in self.snapshots
        ]
        return listed, _stack_arrays([snapshot.arrays() for snapshot in self.snapshots])

    def load(self, listed: Sequence[Sequence[Any]], arrays: Mapping[str, Array]) -> None:
        """Restore the result of ``save``. Raises CheckpointError if it does not fit."""
        learner, snapshots = self.learner, []
        policy = learner.group.policy
        weights = arrays_of(learner.actor.state_dict())
        if learner.log_std is not None:
            weights |= arrays_of({"log_std": learner.log_std})
        expected = {
            key: ((len(listed), *shape), kind) for key, (shape, kind) in shapes_of(weights).items()
        }
        require_arrays(f"pool_{policy}", arrays, expected)
        for number, (env_steps, digest, drawn) in enumerate(listed):
            tensors = {
                key: torch.from_numpy(values[number].copy()).to(learner.device)
                for key, values in arrays.items()
            }
            log_std = tensors.pop("log_std", None)
            actor = copy.deepcopy(learner.actor)
            actor.load_state_dict(tensors)
            name = f"{policy}@{int(env_steps)}"
            snapshot = Snapshot(name, int(env_steps), actor, log_std, drawn=bool(drawn))
            if snapshot.digest != digest:
                raise CheckpointError(f"pool_{policy}: {name} does not match its digest")
            snapshots.append(snapshot)
        self.snapshots, self._layers = snapshots, None


def _stack_arrays(snapshots: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    return (
        {key: np.stack([arrays[key] for arrays in snapshots]) for key in snapshots[0]}
        if snapshots
        else {}
    )


def _distribution(learner: Learner, outputs: Any, mask: Any, log_std: Any) -> Any:
    from corral.adapters.masked_distribution import make_distribution

    return make_distribution(learner.group.actions, outputs, mask, log_std)
