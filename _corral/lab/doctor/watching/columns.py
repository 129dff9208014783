"""Record Stable-Baselines3 training: rollout buffers, gradients and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.envs.masks import MASK
from corral.errors import CorralError
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings import networks, scales, updates
from corral.lab.doctor.findings.finding import Finding, Rule
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["column_findings", "gather_columns", "has_columns"]

ASKED = 512
"""Number of decisions with a recomputed probability before an update."""


def has_columns(trainer: Any) -> bool:
    """Return True if a trainer has rollout buffers that ``gather_columns`` can read."""
    return all(hasattr(trainer, name) for name in ("_collect", "_begin", "_update", "_learners"))


def gather_columns(trainer: Any, *, updates: int = 1) -> Evidence:
    """Let a Stable-Baselines3 trainer play and learn ``updates`` rollouts, and record them.

    Data that its buffers do not contain (time limits, hidden states) stay empty.
    """
    learners = {name: each for name, each in trainer._learners.items() if each.trained}
    agents = {name: _agents(trainer, name) for name in learners}
    seen = {name: PolicyEvidence(name, agents[name]) for name in learners}
    evidence = Evidence(trainer, seen, [])
    before = {name: _weights(learner) for name, learner in learners.items()}
    hooks = [_watch_gradients(learner, seen[name]) for name, learner in learners.items()]
    try:
        obs = trainer._begin()
        for _ in range(updates):
            with trainer._generators:
                obs, _ = trainer._collect(obs)
                trainer.env_steps += trainer.rollout_steps
                for name, learner in learners.items():
                    _note_buffer(trainer, learner, seen[name])
                trainer._update()
    except CorralError as error:
        evidence.error, evidence.error_kind = str(error), type(error).__name__
        return evidence
    finally:
        for hook in hooks:
            hook.remove()
    for name, learner in learners.items():
        after = _weights(learner)
        seen[name].moved = {k: float((after[k] - before[name][k]).abs().max()) for k in after}
        groups = learner.model.policy.optimizer.param_groups
        seen[name].learning_rates.append(float(groups[0]["lr"]))
    return evidence


def _agents(trainer: Any, policy: str) -> tuple[str, ...]:
    return tuple(agent for agent in trainer.rules.agents if trainer._policy_of[agent] == policy)


def _weights(learner: Any) -> dict[str, torch.Tensor]:
    return {k: p.detach().clone() for k, p in learner.model.policy.named_parameters()}


def _watch_gradients(learner: Any, found: PolicyEvidence) -> Any:
    """Record the largest gradient of each parameter before each optimizer step."""

    def note(*_: Any) -> None:
        for name, parameter in learner.model.policy.named_parameters():
            size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
            found.gradients[name] = max(found.gradients.get(name, 0.0), size)

    return learner.model.policy.optimizer.register_step_pre_hook(note)


def _note_buffer(trainer: Any, learner: Any, found: PolicyEvidence) -> None:
    """Record a full rollout buffer [T, P, ...], and the current policy's log-probabilities."""
    buffer = learner.model.rollout_buffer
    shape = buffer.rewards.shape
    valid = np.ones(shape, dtype=bool)
    empty = np.zeros(shape, np.float32)
    reward, value = np.array(buffer.rewards), np.array(buffer.values)
    ended = np.concatenate([buffer.episode_starts[1:], np.zeros((1, shape[1]))]).astype(bool)
    found.trajectories.append(Trajectories(reward, value, valid, ended, empty, empty[0], valid))
    found.advantages.append(Advantages(np.array(buffer.advantages), np.array(buffer.returns)))
    found.rewards.append((reward, reward))
    flat = {key: np.array(each) for key, each in buffer.observations.items()}
    vectors = [each.reshape(*shape, -1) for key, each in flat.items() if key != MASK]
    floats = [each for each in vectors if each.dtype.kind == "f"]
    if floats:
        obs = np.concatenate(floats, axis=-1)
        found.obs.append((obs, obs))
    actions = buffer.actions.reshape(shape).astype(np.int64)
    found.actions.append(actions)
    found.acted.append(valid)
    if MASK in flat:
        mask = flat[MASK].reshape(*shape, -1) != 0
        found.masks.append((mask, mask))
        found.max_entropy.append(float(np.log(np.maximum(mask.sum(axis=-1), 1)).mean()))
    found.log_ratio.append(_log_ratio(trainer, learner, flat, actions, buffer.log_probs))


def _log_ratio(
    trainer: Any, learner: Any, obs: dict[str, Array], actions: Array, log_probs: Array
) -> Array:
    """Return log(new / old) of some decisions [R], before the update."""
    taken = slice(None, max(1, ASKED // actions.shape[1]))
    own = {key: values[taken].reshape(-1, *values.shape[2:]) for key, values in obs.items()}
    policy = learner.model.policy
    chosen = torch.as_tensor(actions[taken].reshape(-1), device=policy.device)
    with torch.no_grad():
        tensors, _ = policy.obs_to_tensor(own)
        masks = trainer._masks(own)
        _, now, _ = policy.evaluate_actions(tensors, chosen, **masks)
    difference: Array = now.cpu().numpy().reshape(-1) - log_probs[taken].reshape(-1)
    return difference


# --- Rules ---------------------------------------------------------------------------------------


def illegal_in_buffer(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that the mask of their own observation forbids."""
    wrong = sum(
        int(np.count_nonzero(~np.take_along_axis(mask, action[..., None], axis=-1)))
        for (_, mask), action in zip(found.masks, found.actions, strict=False)
    )
    if not wrong:
        return None
    return Finding(
        "mask-ignored-in-play",
        "The policy plays actions that the mask forbids.",
        f"{wrong} of {sum(each.size for each in found.actions):,} actions in the rollout buffer",
        "no illegal action",
        "use a policy that applies the mask (MaskablePPO, or one that reads it from the "
        "observation), and pass it the mask of the current step",
        3,
        found.policy,
    )


RULES: tuple[Rule, ...] = (
    illegal_in_buffer,
    updates.zero_advantages,
    updates.first_ratio,
    networks.not_moved,
    networks.no_gradient,
    scales.unscaled_obs,
    scales.tiny_rewards,
)
"""From the root cause outwards; each rule reads the contents of a rollout buffer."""


def column_findings(evidence: Evidence) -> list[Finding]:
    """Return all findings, most certain first, then nearest to the root."""
    found = [
        one
        for rule in RULES
        for policy in evidence.policies.values()
        if (one := rule(policy, evidence)) is not None
    ]
    return sorted(found, key=lambda each: -each.certainty)
