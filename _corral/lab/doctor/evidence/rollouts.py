"""Record the environment's data of a rollout, and the trainer's stored version of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.errors import IllegalActionError
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.evidence.witness import Witness, join_trees

__all__ = ["watch_rollout"]

LOOKED_AT = 256
"""Number of each agent's decisions at which the policies are tested later."""


def watch_rollout(trainer: Any, evidence: Evidence) -> tuple[list[Any], dict[str, float]]:
    """Let the trainer play a rollout; return its episodes and the timings in seconds.

    If the trainer raises, the data up to that step are recorded first.
    """
    witness = evidence.env.witness
    witness.begin()
    try:
        episodes, seconds = trainer.collect()
    except Exception as error:
        # An illegal action is chosen after its step was stored; other errors occur while storing.
        _note(trainer, evidence, len(witness.steps) + isinstance(error, IllegalActionError))
        raise
    _note(trainer, evidence, len(witness.steps))
    return list(episodes), seconds


def _note(trainer: Any, evidence: Evidence, moments: int) -> None:
    """Record the first ``moments`` steps of the rollout, which are stored completely."""
    witness = evidence.env.witness
    evidence.env.not_finite += _not_finite(trainer.rules.agents, witness)
    for i, learner in enumerate(trainer.learners.values()):
        if learner.trained and moments:
            record = evidence.policies[learner.group.policy]
            _note_observations(trainer, i, learner, witness, record, moments)
            _note_play(trainer, i, learner, witness, record)
    for step in witness.steps:
        if (illegal := step.info.get("illegal_actions")) is not None:
            evidence.env.count_illegal(illegal)
    begins = np.zeros((len(witness.steps) + 1, trainer.settings.num_envs), dtype=bool)
    for t, step in enumerate(witness.steps):
        begins[t + 1] = step.over
    if witness.steps:
        evidence.env.begins.append(begins)
        evidence.env.states.append(np.stack(witness.states[: len(begins)]))


def _not_finite(agents: Any, witness: Witness) -> list[str]:
    """Describe each number from the environment that is not finite."""
    faults = []
    for t, observations in enumerate(witness.observations):
        for agent, observation in observations.items():
            for name, values in _numbers(observation, "observation"):
                if values.dtype.kind == "f" and not np.isfinite(values).all():
                    faults.append(f"{name} of {agent} holds {_worst(values)} at step {t}")
    for t, step in enumerate(witness.steps):
        if not np.isfinite(step.reward).all():
            column = int(np.argwhere(~np.isfinite(step.reward))[0][1])
            faults.append(f"reward of {agents[column]} is {_worst(step.reward)} at step {t}")
    return faults


def _worst(values: Array) -> Any:
    return values[~np.isfinite(values)].flat[0]


def _numbers(tree: Any, name: str) -> Any:
    if isinstance(tree, dict):
        for key, part in tree.items():
            yield from _numbers(part, key if key == name else f"{name}[{key!r}]")
    elif isinstance(tree, tuple):
        for k, part in enumerate(tree):
            yield from _numbers(part, f"{name}[{k}]")
    else:
        yield name, np.asarray(tree)


# --- Inputs of decisions -------------------------------------------------------------------------


def _note_observations(
    trainer: Any, i: int, learner: Any, witness: Witness, record: PolicyEvidence, moments: int
) -> None:
    """Record the environment's observations for one policy, and the stored ones."""
    group, buffer = learner.group, trainer.rollout.groups[i]
    layout, size = group.layout, trainer.rollout.reward.shape[1]
    obs = np.zeros((moments, size, len(group.agents), layout.width), np.float32)
    mask = np.ones((moments, size, len(group.agents), group.actions.masks), dtype=bool)
    shapes = [(size, len(group.agents), *image) for image in layout.images]
    wrong, before = np.zeros((len(shapes), 2)), [np.zeros(shape, np.uint8) for shape in shapes]
    repeats = np.zeros((moments, size * len(group.agents)), dtype=bool)
    for t in range(moments):
        images = [np.zeros(shape, np.uint8) for shape in shapes]
        for j, agent in enumerate(group.agents):
            observation = witness.observations[t][agent]
            pictures = [image[:, j] for image in images]
            layout.write(layout.inner(observation), obs[t, :, j], pictures)
            if layout.masked:
                mask[t, :, j] = np.asarray(observation[MASK]) != 0
        repeats[t] = t and (obs[t] == obs[t - 1]).all(axis=-1).reshape(-1)
        for k, image in enumerate(images):
            repeats[t] &= (image == before[k]).reshape(len(repeats[t]), -1).all(axis=1)
            differs = (buffer.images[k][t] != image).reshape(size * len(group.agents), -1).any(1)
            stale = (buffer.images[k][t] == before[k]).reshape(len(differs), -1).all(1)
            wrong[k] += differs.mean() / moments, (differs & stale).mean() / moments
            before[k] = image
    flat = (moments, size * len(group.agents))
    acts = group.own(np.stack(witness.who_acts[:moments]))
    if buffer.learned is not None:  # snapshots played the rest, see ``corral.Pool``
        acts = acts & buffer.learned[:moments].reshape(flat)
    record.acted.append(acts)
    stored = buffer.vector[:moments]
    width = layout.width
    record.obs.append((obs.reshape(*flat, -1), stored[..., :width].reshape(*flat, -1).copy()))
    record.masks.append((mask.reshape(*flat, -1), buffer.mask[:moments].reshape(*flat, -1).copy()))
    record.playing.images_wrong.append(wrong)
    record.playing.repeats.append(repeats)
    if group.identities:
        identity = np.eye(len(group.agents), dtype=np.float32)
        record.playing.identity_wrong += float(
            (stored[..., width:] != identity).any(axis=-1).mean()
        )
    record.playing.looked_at = _looked_at(trainer, group.agents, witness, moments)


def _looked_at(trainer: Any, agents: Any, witness: Witness, moments: int) -> dict[str, Any]:
    """Return a sample of the observations in which each agent decided, [R, ...]."""
    samples = {}
    for agent in agents:
        column = trainer.rules.agents.index(agent)
        remaining, parts = LOOKED_AT, []
        for t in np.random.default_rng(0).permutation(moments):
            rows = np.flatnonzero(witness.who_acts[t][:, column])[:remaining]
            if len(rows):
                parts.append(take_tree(witness.observations[t][agent], rows))
            remaining -= len(rows)
            if not remaining:
                break
        if parts:
            samples[agent] = join_trees(parts)
    return samples


# --- Actions and rewards -------------------------------------------------------------------------


def _note_play(
    trainer: Any, i: int, learner: Any, witness: Witness, record: PolicyEvidence
) -> None:
    """Record rewards, ends and actions of the completed steps."""
    if not witness.steps:
        return
    group, buffer, rollout = learner.group, trainer.rollout.groups[i], trainer.rollout
    steps = len(witness.steps)
    rewards = np.stack([step.reward for step in witness.steps])
    record.all_rewards.append(rewards)
    paid, stored = group.own(rewards), group.own(rollout.reward[:steps])
    if buffer.learned is not None:  # rewards of snapshots do not count
        learned = buffer.learned[:steps].reshape(paid.shape)
        paid, stored = np.where(learned, paid, 0), np.where(learned, stored, 0)
    record.rewards.append((paid, stored.copy()))
    if not group.actions.shape:
        record.actions.append(buffer.action[:steps].reshape(steps, -1).copy())
    record.playing.played.append((_played(trainer, group, witness), _decoded(group, buffer, steps)))
    record.terminated.append(group.own(np.stack([step.terminated for step in witness.steps])))
    record.truncated.append(group.own(np.stack([step.truncated for step in witness.steps])))
    record.final_value.append(_final_values(trainer, learner, witness))
    if steps == trainer.settings.n_steps:
        _chances(learner, buffer, record)


def _played(trainer: Any, group: Any, witness: Witness) -> Array:
    """Return the actions that the environment got: [T, B, P, ...]."""
    agents = [trainer.rules.agents.index(agent) for agent in group.agents]
    actions_by_step = [
        np.stack([np.asarray(actions[agent]) for agent in group.agents], axis=1)
        if isinstance(actions, dict)
        else np.asarray(actions)[:, agents]
        for actions in witness.actions[: len(witness.steps)]
    ]
    return np.stack(actions_by_step)


def _decoded(group: Any, buffer: Any, steps: int) -> Array:
    """Return the stored actions in the environment's format: [T, B, P, ...]."""
    stored = buffer.action[:steps]
    decoded: Array = group.actions.decode(stored.reshape(-1, *group.actions.shape))
    return decoded.reshape(*stored.shape[:3], *decoded.shape[1:]).copy()


def _chances(learner: Any, buffer: Any, record: PolicyEvidence) -> None:
    """Record the policy's log-probabilities at the stored observations.

    The masks are the environment's. They show whether stored decisions belong together. Only
    single discrete choices and networks without memory are supported.
    """
    if learner.settings.memory or learner.group.actions.shape:
        return
    obs, masks = record.obs[-1][0], record.masks[-1][0]
    acted = record.acted[-1]
    rows = np.flatnonzero(acted.reshape(-1))
    shape = buffer.log_prob.shape
    arrays = [buffer.vector[: len(obs)], *(image[: len(obs)] for image in buffer.images)]
    legal = masks.reshape(-1, masks.shape[-1])[rows]
    if not len(rows) or not legal.any(axis=-1).all():
        return
    with torch.inference_mode():
        parts = [learner.tensor(array.reshape(-1, *array.shape[3:])[rows]) for array in arrays]
        outputs = learner.actor(parts)
        logits = learner.distribution(outputs, learner.tensor(legal)).logits.cpu().numpy()
    table = np.full((shape[0] * shape[1] * shape[2], logits.shape[-1]), np.nan, np.float32)
    table[rows] = logits
    record.playing.chances.append((table.reshape(*shape, -1), buffer.log_prob.copy()))


def _final_values(trainer: Any, learner: Any, witness: Witness) -> Array:
    """Return V of the final observations at time limits: [T, C]; NaN elsewhere."""
    group = learner.group
    size = trainer.rollout.reward.shape[1]
    final = np.full((len(witness.steps), size, len(group.agents)), np.nan)
    plain = not trainer.critic_input.with_actions and not trainer.settings.memory
    for t, step in enumerate(witness.steps):
        if step.finished is None or not plain:
            continue
        central = trainer.critic_input.kind == "state"
        state = step.finished.global_state if central else None
        values = trainer.values(step.finished.observations, state)
        for j, agent in enumerate(group.agents):
            column = trainer.rules.agents.index(agent)
            cut = step.truncated[step.finished.rows, column]
            final[t, step.finished.rows[cut], j] = values[agent][cut]
    return final.reshape(len(witness.steps), -1)
