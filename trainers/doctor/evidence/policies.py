"""What policies do at what was observed: greedily, after a reload, and what they ignore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from corral.envs.core import generator
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.trainers.doctor.evidence.record import PolicyEvidence

__all__ = ["ask_policies"]

LOOKED_AT = 256
"""Observations at which policies are asked what they would do."""


def ask_policies(
    trainer: Any, name: str, found: PolicyEvidence, rebuild: Callable[[], Any], seed: int
) -> None:
    """Ask the policies, and those of a saved and loaded copy, at what was observed."""
    again = rebuild()
    again.load(trainer.save())
    rng = generator(seed, "eval")
    observations, acting = trainer.obs, np.asarray(trainer.batch.acting)
    for agent in found.agents:
        column = trainer.rules.agents.index(agent)
        rows = np.flatnonzero(acting[:, column])[:LOOKED_AT]
        if not len(rows) or MASK not in observations[agent]:
            continue
        observation = take_tree(observations[agent], rows)
        mask = np.asarray(observation[MASK]) != 0
        both = []
        for source in (trainer, again):
            policy = source.policies[agent]
            hidden = policy.initial_state(len(rows))
            decision = policy.act(observation, hidden, rng, deterministic=True)
            chosen = np.asarray(decision.action)
            both.append(decision.extra.get("probabilities"))
            if mask.ndim == 2 and chosen.ndim == 1:
                illegal = int(np.count_nonzero(~mask[np.arange(len(rows)), chosen]))
                if source is trainer:
                    found.greedy_illegal += illegal
                else:
                    found.reloaded_illegal += illegal
        if both[0] is not None and both[1] is not None:
            differs = float(np.abs(both[0] - both[1]).max())
            found.reloaded_differs = max(found.reloaded_differs, differs)
    found.ignored = _ignored(trainer, name, found)


def _ignored(trainer: Any, name: str, found: PolicyEvidence) -> list[str]:
    """Return what of the observation varies and yet changes no output of the actor."""
    learner = trainer.learners[name]
    group, actor = learner.group, learner.actor
    i = list(trainer.learners).index(name)
    buffer = trainer.rollout.groups[i]
    rows = np.flatnonzero(buffer.acting[0].reshape(-1))[:LOOKED_AT]
    if not len(rows):
        return []
    parts, _ = buffer.tensors(0, rows, learner.device)
    parts = [part.float().requires_grad_() if k == 0 else part for k, part in enumerate(parts)]
    hidden = actor.initial(len(rows))
    outputs, _ = actor.step(parts, hidden)
    # A random direction of the outputs: no sum of them that cancels out.
    direction = torch.from_numpy(generator(0, "eval").standard_normal(outputs.shape[-1])).float()
    (outputs @ direction.to(outputs.device)).sum().backward()
    gradient = parts[0].grad
    if gradient is None:
        return ["all of the vector"]
    said = np.concatenate([each[0] for each in found.obs]).reshape(-1, group.layout.width)
    varies = np.ptp(said, axis=0) > 1e-6
    dead = np.flatnonzero(varies & ~(gradient.abs().amax(dim=0) > 0).cpu().numpy()[: len(varies)])
    return [_column_name(group.layout, int(column)) for column in dead]


def _column_name(layout: Any, column: int) -> str:
    """Return "observation[3]": the entry of the observation, and where in it a column stands."""
    for entry in layout.entries:
        if entry.axes is None and entry.low <= column < entry.high:
            return f"{entry.key or 'observation'}[{column - entry.low}]"
    return f"column {column}"
