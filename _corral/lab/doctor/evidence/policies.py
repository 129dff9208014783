"""Test the policies at recorded observations: in evaluation, greedily and after a reload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from corral.adapters.masked_distribution import MaskedCategorical
from corral.envs.core import Array, generator
from corral.envs.masks import MASK
from corral.lab.doctor.evidence.record import PolicyEvidence

__all__ = ["ask_policies"]


def ask_policies(
    trainer: Any, name: str, record: PolicyEvidence, rebuild: Callable[[], Any], seed: int
) -> None:
    """Test the policies, and those of a saved and reloaded copy, at recorded observations."""
    again = rebuild()
    again.load(trainer.save())
    rng = generator(seed, "eval")
    sizes = trainer.learners[name].group.actions.sizes
    for agent, observation in record.playing.looked_at.items():
        mask = np.asarray(observation[MASK]) != 0 if MASK in observation else None
        both = []
        for source in (trainer, again):
            policy = source.policies[agent]
            rows = len(next(iter(_leaves(observation))))
            decision = policy.act(observation, policy.initial_state(rows), rng, deterministic=True)
            illegal = _illegal(mask, np.asarray(decision.action), sizes)
            both.append((decision.extra or {}).get("probabilities"))
            if source is again:
                record.reloaded_illegal += illegal
                continue
            record.greedy_illegal += illegal
            sampled = policy.act(observation, policy.initial_state(rows), rng)
            record.playing.sampled_illegal += _illegal(mask, np.asarray(sampled.action), sizes)
            record.playing.steps += rows
            _compare(trainer.learners[name], agent, observation, mask, both[0], record)
        if both[0] is not None and both[1] is not None:
            differs = float(np.abs(both[0] - both[1]).max())
            record.reloaded_differs = max(record.reloaded_differs, differs)


def _leaves(tree: Any) -> Any:
    if isinstance(tree, dict | tuple | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(part)
    else:
        yield tree


def _illegal(mask: Array | None, chosen: Array, sizes: Array) -> int:
    """Return the number of ``chosen`` [R, ...] that a mask [R, A] forbids.

    The mask lists the actions of all choices in a row.
    """
    if mask is None or not len(sizes):
        return 0
    columns = chosen.reshape(len(mask), -1).astype(np.int64)
    if columns.shape[1] != len(sizes):
        return 0
    columns = columns + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return int(np.count_nonzero(~np.take_along_axis(mask, columns, axis=1).all(axis=1)))


def _compare(
    learner: Any,
    agent: str,
    observation: Any,
    mask: Array | None,
    probabilities: Array | None,
    record: PolicyEvidence,
) -> None:
    """Record the difference between a policy's probabilities and those of the trained actor."""
    group, layout = learner.group, learner.group.layout
    if probabilities is None or mask is None or group.actions.shape:
        return
    rows = len(mask)
    vector = np.zeros((rows, layout.width + group.identities), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in layout.images]
    layout.write(layout.inner(observation), vector, images)
    if group.identities:
        vector[:, layout.width + group.agents.index(agent)] = 1.0
    with torch.inference_mode():
        parts = [learner.tensor(item) for item in (vector, *images)]
        outputs, _ = learner.actor.step(parts, learner.actor.initial(rows))
        expected = MaskedCategorical(outputs, learner.tensor(mask)).probs.double().cpu().numpy()
    record.playing.play_differs = max(
        record.playing.play_differs, float(np.abs(expected - probabilities).max())
    )
