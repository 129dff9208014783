"""A short stretch of a run's own training, with a second pair of eyes on it.

The trainer plays and learns as it always does. What the environment really said (observations,
masks, rewards, ends) is copied beside what the trainer stored of it, and what goes into an update
(ratios, entropy, advantages, gradients) and comes out of it (weights, policies) is noted. The rules
of ``corral.trainers.doctor.rules`` read it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array, generator
from corral.envs.masks import MASK
from corral.envs.policy import take_tree
from corral.errors import CorralError
from corral.trainers.on_policy.records import Advantages, Losses, Minibatch, Outputs, Trajectories

__all__ = ["Evidence", "PolicyEvidence", "gather"]

UPDATES = 3
"""Rollouts that are played and learned from."""


@dataclass
class PolicyEvidence:
    """What was seen of one policy. T steps, C columns (environment x agent), A actions."""

    policy: str
    agents: tuple[str, ...]
    columns: list[str] = field(default_factory=list)  # of the vector that its networks get
    # What the environment said, and what the trainer stored of it, rollout by rollout.
    obs: list[tuple[Array, Array]] = field(default_factory=list)  # [T, C, F] both
    masks: list[tuple[Array, Array]] = field(default_factory=list)  # bool [T, C, A] both
    rewards: list[tuple[Array, Array]] = field(default_factory=list)  # [T, C] both
    everybody: list[Array] = field(default_factory=list)  # [T, B, N] rewards of all agents
    actions: list[Array] = field(default_factory=list)  # [T, C]
    acted: list[Array] = field(default_factory=list)  # bool [T, C]
    terminated: list[Array] = field(default_factory=list)  # bool [T, C], as the environment said
    truncated: list[Array] = field(default_factory=list)  # bool [T, C]
    final_value: list[Array] = field(default_factory=list)  # [T, C] V(last obs) where truncated
    # What goes into an update.
    trajectories: list[Trajectories] = field(default_factory=list)
    advantages: list[Advantages] = field(default_factory=list)
    log_ratio: list[Array] = field(default_factory=list)  # [R] before the first step of an update
    entropy: list[tuple[float, float]] = field(default_factory=list)  # told, and of legal actions
    most_entropy: list[float] = field(default_factory=list)  # mean log(legal actions)
    targets: list[tuple[Array, Array, Array]] = field(default_factory=list)  # value, target, old
    terms: list[dict[str, float]] = field(default_factory=list)  # of the loss, first minibatch
    term_gradients: dict[str, float] = field(default_factory=dict)  # norm at the actor, by term
    # What comes out of it.
    gradients: dict[str, float] = field(default_factory=dict)  # parameter -> largest |gradient|
    moved: dict[str, float] = field(default_factory=dict)  # parameter -> largest |change|
    learning_rates: list[float] = field(default_factory=list)
    greedy_illegal: int = 0
    reloaded_illegal: int = 0
    reloaded_differs: float = 0.0  # largest difference of a probability after save and load
    ignored: list[str] = field(default_factory=list)  # columns that vary and change no output
    metrics: list[dict[str, float]] = field(default_factory=list)


@dataclass
class Evidence:
    """What was seen of a run."""

    trainer: Any
    policies: dict[str, PolicyEvidence]
    returns: list[tuple[dict[str, float], dict[str, float]]]  # (environment's, reported) episodes
    error: str = ""  # what the trainer raised
    error_kind: str = ""


def gather(
    trainer: Any, rebuild: Callable[[], Any], *, updates: int = UPDATES, seed: int = 0
) -> Evidence:
    """Let an in-house trainer play and learn ``updates`` rollouts, and note what was seen.

    ``rebuild`` makes another trainer of the same run, as it began: to be loaded into.
    """
    trainer.begin()
    seen = {
        name: PolicyEvidence(name, learner.group.agents)
        for name, learner in trainer.learners.items()
        if learner.trained
    }
    evidence = Evidence(trainer, seen, [])
    before = {name: _weights(trainer.learners[name]) for name in seen}
    try:
        for _ in range(updates):
            _one_update(trainer, evidence)
    except CorralError as error:
        evidence.error, evidence.error_kind = str(error), type(error).__name__
        return evidence
    for name, found in seen.items():
        learner = trainer.learners[name]
        after = _weights(learner)
        found.moved = {k: float(np.abs(after[k] - before[name][k]).max()) for k in after}
        _policies(trainer, name, found, rebuild, seed)
    return evidence


def _weights(learner: Any) -> dict[str, Array]:
    return {
        name: parameter.detach().cpu().numpy().copy()
        for name, parameter in learner.named_parameters()
    }


# --- One update ----------------------------------------------------------------------------------


class _Witness:
    """A batch that keeps copies of all it says."""

    def __init__(self, batch: Any, obs: Any) -> None:
        self.batch = batch
        self.observations = [_copied(obs)]
        self.who_acted = [batch.acting.copy()]
        self.steps: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch, name)

    def step(self, actions: Any) -> Any:
        step = self.batch.step(actions)
        kept = {
            name: np.array(getattr(step, name)) for name in ("reward", "terminated", "truncated")
        }
        self.steps.append(dataclasses.replace(step, **kept))
        self.observations.append(_copied(step.observations))
        self.who_acted.append(np.array(step.acting))
        return step


def _copied(observations: Mapping[str, Any]) -> dict[str, Any]:
    return {
        agent: take_tree(observation, np.arange(len(observation[MASK])))
        if MASK in observation
        else observation
        for agent, observation in observations.items()
    }


def _one_update(trainer: Any, evidence: Evidence) -> None:
    batch = trainer.batch
    witness = _Witness(batch, trainer.obs)
    trainer.batch = witness
    try:
        episodes, _ = trainer.collect()
    finally:
        trainer.batch = batch
    ended = [
        dict(zip(trainer.rules.agents, returns, strict=True))
        for step in witness.steps
        if step.finished is not None
        for returns in step.finished.returns.tolist()
    ]
    evidence.returns += list(zip(ended, [each.returns for each in episodes], strict=False))
    for i, learner in enumerate(trainer.learners.values()):
        if learner.trained:
            _said_and_stored(trainer, i, learner, witness, evidence.policies[learner.group.policy])
    _learned(trainer, evidence)
    trainer.env_steps += trainer.rollout_steps


def _said_and_stored(
    trainer: Any, i: int, learner: Any, witness: _Witness, found: PolicyEvidence
) -> None:
    """Note what the environment said to the agents of one policy, beside what was stored."""
    group, buffer, rollout = learner.group, trainer.rollout.groups[i], trainer.rollout
    layout, steps = group.layout, len(witness.steps)
    size = rollout.reward.shape[1]
    said = np.zeros((steps, size, len(group.agents), layout.width), np.float32)
    mask = np.ones((steps, size, len(group.agents), group.actions.masks), dtype=bool)
    for t in range(steps):
        for j, agent in enumerate(group.agents):
            observation = witness.observations[t][agent]
            images = [np.zeros((size, *image), np.uint8) for image in layout.images]
            layout.write(layout.inner(observation), said[t, :, j], images)
            if layout.masked:
                mask[t, :, j] = np.asarray(observation[MASK]) != 0
    flat = (steps, size * len(group.agents))
    acting = np.stack(witness.who_acted[:steps])
    found.acted.append(group.own(acting))
    found.obs.append(
        (said.reshape(*flat, -1), buffer.vector[:-1, ..., : layout.width].reshape(*flat, -1).copy())
    )
    found.masks.append((mask.reshape(*flat, -1), buffer.mask[:-1].reshape(*flat, -1).copy()))
    rewards = np.stack([step.reward for step in witness.steps])
    found.everybody.append(rewards)
    found.rewards.append((group.own(rewards), group.own(rollout.reward).copy()))
    if not group.actions.shape:
        found.actions.append(buffer.action[:-1].reshape(flat).copy())
    found.terminated.append(group.own(np.stack([step.terminated for step in witness.steps])))
    found.truncated.append(group.own(np.stack([step.truncated for step in witness.steps])))
    found.final_value.append(_final_values(trainer, learner, witness))


def _final_values(trainer: Any, learner: Any, witness: _Witness) -> Array:
    """Return V of what agents observed last where a time limit cut them: [T, C]; else NaN."""
    group = learner.group
    size = trainer.rollout.reward.shape[1]
    found = np.full((len(witness.steps), size, len(group.agents)), np.nan)
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
            found[t, step.finished.rows[cut], j] = values[agent][cut]
    return found.reshape(len(witness.steps), -1)


# --- Learning ------------------------------------------------------------------------------------


def _learned(trainer: Any, evidence: Evidence) -> None:
    """Let the trainer learn from its rollout, and note what goes into it."""
    algorithm = trainer.algorithm
    names = iter([name for name, learner in trainer.learners.items() if learner.trained])
    now: dict[str, PolicyEvidence] = {}

    def advantages(trajectories: Trajectories, settings: Any) -> Advantages:
        now["policy"] = found = evidence.policies[next(names)]
        learned: Advantages = algorithm.advantages(trajectories, settings)
        # Copies: the rollout is written over by the next one.
        copies = {name: np.array(values) for name, values in vars(trajectories).items()}
        found.trajectories.append(Trajectories(**copies))
        found.advantages.append(learned)
        now.pop("seen", None)
        return learned

    def loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
        losses: Losses = algorithm.loss(minibatch, outputs, settings)
        found = now["policy"]
        if len(found.log_ratio) < len(found.advantages):
            learner = trainer.learners[found.policy]
            _first_minibatch(learner, minibatch, outputs, losses, found)
        return losses

    def gradients(learner: Any, settings: Any) -> Any:
        found = evidence.policies[learner.group.policy]
        for name, parameter in learner.named_parameters():
            size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
            found.gradients[name] = max(found.gradients.get(name, 0.0), size)
        return algorithm.gradients(learner, settings)

    trainer.algorithm = algorithm.but(advantages=advantages, loss=loss, gradients=gradients)
    try:
        metrics = trainer.update()
    finally:
        trainer.algorithm = algorithm
    for name, found in evidence.policies.items():
        learner = trainer.learners[name]
        found.learning_rates.append(float(learner.optimizer.param_groups[0]["lr"]))
        prefix = f"{name}/" if len(trainer.learners) > 1 else ""
        own = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
        found.metrics.append(own)


def _first_minibatch(
    learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses, found: PolicyEvidence
) -> None:
    """Note what the first minibatch of an update is made of, before any step."""
    found.log_ratio.append((outputs.log_prob - minibatch.log_prob).detach().cpu().numpy())
    logits = getattr(outputs.distribution, "logits", None)
    legal = minibatch.mask.sum(dim=-1).clamp(min=1)
    found.most_entropy.append(float(legal.double().log().mean()))
    if logits is not None:
        with torch.no_grad():
            chances = torch.where(minibatch.mask, logits, -torch.inf).double().softmax(dim=-1)
            own = -(chances * chances.clamp(min=1e-300).log()).sum(dim=-1).mean()
        found.entropy.append((float(outputs.entropy.detach()), float(own)))
    found.targets.append(
        tuple(
            each.detach().cpu().numpy().copy()
            for each in (outputs.value, minibatch.value_target, minibatch.old_value)
        )  # type: ignore[arg-type]
    )
    found.terms.append({name: float(term.detach()) for name, term in losses.terms.items()})
    weights = [each for each in learner.actor_parameters if each.requires_grad]
    for name, term in losses.terms.items():
        if not term.requires_grad:
            found.term_gradients[name] = 0.0
            continue
        parts = torch.autograd.grad(term, weights, retain_graph=True, allow_unused=True)
        norms = [each.norm() for each in parts if each is not None]
        size = float(torch.stack(norms).norm()) if norms else 0.0
        found.term_gradients[name] = max(found.term_gradients.get(name, 0.0), size)


# --- Policies ------------------------------------------------------------------------------------

LOOKED_AT = 256
"""Observations at which policies are asked what they would do."""


def _policies(
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
