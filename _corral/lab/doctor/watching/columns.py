"""Record Stable-Baselines3 training: rollout buffers, gradients and weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.envs.batch import batch_for
from corral.envs.core import Array
from corral.envs.masks import MASK
from corral.errors import CorralError
from corral.lab.doctor.evidence.environment import measured_twins
from corral.lab.doctor.evidence.learning import moved_from, weights_of
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings import agents, play, scales, signals, steps, updates
from corral.lab.doctor.findings.finding import Finding, Rule
from corral.trainers.on_policy.records import Advantages, Trajectories

__all__ = ["column_findings", "gather_columns", "has_columns"]

SAMPLED = 512
"""Number of decisions with a recomputed probability before an update."""


def has_columns(trainer: Any) -> bool:
    """Return True if a trainer has rollout buffers that ``gather_columns`` can read."""
    return all(hasattr(trainer, name) for name in ("_collect", "_begin", "_update", "_learners"))


def gather_columns(
    trainer: Any, *, updates: int = 1, seed: int = 0, twins: bool = False
) -> Evidence:
    """Let a Stable-Baselines3 trainer play and learn ``updates`` rollouts, and record them.

    Data that its buffers do not contain (time limits, hidden states) stay empty. ``twins``: also
    measure the effects of actions in paired replays.
    """
    learners = {name: item for name, item in trainer._learners.items() if item.trained}
    seen = {name: PolicyEvidence(name, _agents(trainer, name)) for name in learners}
    evidence = Evidence(trainer, seen, [])
    before = {name: weights_of(learner.model.policy) for name, learner in learners.items()}
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
        seen[name].moved = moved_from(before[name], learner.model.policy)
        groups = learner.model.policy.optimizer.param_groups
        seen[name].learning_rates.append(float(groups[0]["lr"]))
    if twins:
        evidence.env.twins = measured_twins(trainer.rules, batch_for, seed)
    return evidence


def _agents(trainer: Any, policy: str) -> tuple[str, ...]:
    return tuple(agent for agent in trainer.rules.agents if trainer._policy_of[agent] == policy)


def _watch_gradients(learner: Any, record: PolicyEvidence) -> Any:
    """Record the largest gradient of each parameter before each optimizer step."""

    def note(*_: Any) -> None:
        for name, parameter in learner.model.policy.named_parameters():
            size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
            record.gradients[name] = max(record.gradients.get(name, 0.0), size)

    return learner.model.policy.optimizer.register_step_pre_hook(note)


def _note_buffer(trainer: Any, learner: Any, record: PolicyEvidence) -> None:
    """Record a full rollout buffer [T, P, ...], and the current policy's log-probabilities."""
    buffer = learner.model.rollout_buffer
    shape = buffer.rewards.shape
    valid = np.ones(shape, dtype=bool)
    empty = np.zeros(shape, np.float32)
    reward, value = np.array(buffer.rewards), np.array(buffer.values)
    ended = np.concatenate([buffer.episode_starts[1:], np.zeros((1, shape[1]))]).astype(bool)
    record.trajectories.append(Trajectories(reward, value, valid, ended, empty, empty[0], valid))
    record.advantages.append(Advantages(np.array(buffer.advantages), np.array(buffer.returns)))
    record.targets.append(np.array(buffer.returns))
    record.rewards.append((reward, reward))
    flat = {key: np.array(observation) for key, observation in buffer.observations.items()}
    vectors = [item.reshape(*shape, -1) for key, item in flat.items() if key != MASK]
    floats = [vector for vector in vectors if vector.dtype.kind == "f"]
    if floats:
        obs = np.concatenate(floats, axis=-1)
        record.obs.append((obs, obs))
    actions = buffer.actions.reshape(shape).astype(np.int64)
    record.actions.append(actions)
    record.acted.append(valid)
    record.playing.played.append((actions[:, None], actions[:, None]))  # [T, B, P]
    if MASK in flat:
        mask = flat[MASK].reshape(*shape, -1) != 0
        record.masks.append((mask, mask))
        record.max_entropy.append(float(np.log(np.maximum(mask.sum(axis=-1), 1)).mean()))
    record.log_ratio.append(_log_ratio(trainer, learner, flat, actions, buffer.log_probs))


def _log_ratio(
    trainer: Any, learner: Any, obs: dict[str, Array], actions: Array, log_probs: Array
) -> Array:
    """Return log(new / old) of some decisions [R], before the update."""
    taken = slice(None, max(1, SAMPLED // actions.shape[1]))
    sample = {key: values[taken].reshape(-1, *values.shape[2:]) for key, values in obs.items()}
    policy = learner.model.policy
    chosen = torch.as_tensor(actions[taken].reshape(-1), device=policy.device)
    with torch.no_grad():
        tensors, _ = policy.obs_to_tensor(sample)
        masks = trainer._masks(sample)
        _, now, _ = policy.evaluate_actions(tensors, chosen, **masks)
    difference: Array = now.cpu().numpy().reshape(-1) - log_probs[taken].reshape(-1)
    return difference


# --- Rules ---------------------------------------------------------------------------------------


RULES: tuple[Rule, ...] = (
    play.played_illegally,
    scales.huge_targets,
    updates.zero_advantages,
    updates.first_ratio,
    steps.nothing_moves,
    scales.unscaled_obs,
    scales.tiny_rewards,
    agents.late_obs,
    signals.never_allowed,
    signals.wrapped,
)
"""From the root cause outwards; each rule reads the contents of a rollout buffer."""


def column_findings(evidence: Evidence) -> list[Finding]:
    """Return all findings, most certain first, then nearest to the root."""
    findings = [
        finding
        for rule in RULES
        for policy in evidence.policies.values()
        if (finding := rule(policy, evidence)) is not None
    ]
    return sorted(findings, key=lambda item: -item.certainty)
