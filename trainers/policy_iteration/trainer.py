"""The trainer "policy_iteration": networks learn which of several actions plays on best.

It is the loop of ``corral.trainers.on_policy`` with another record and another player. Each moment
of a rollout is copied for every agent that decides; the copies begin with other actions of that
agent, and the policies play on from there, greedily, for ``horizon`` steps. All copies meet the
same future, so that what they earn tells these actions apart with far less noise than returns do.
The logits learn these differences by regression: the likeliest action is the one that is expected
to play on best.

That is approximate policy iteration by rollouts (Lagoudakis and Parr, Reinforcement Learning as
Classification, 2003), one agent at a time (Bertsekas, Multiagent Rollout Algorithms, 2021). It
needs an environment whose state can be copied: rules of the suite, or one's own.

With a ``teacher`` its play is what is improved first: the first rollouts are the teacher's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from corral.adapters.masked_distribution import MaskedCategorical
from corral.envs.core import Array, Observation, Rules, amounts_of, generator
from corral.errors import CheckpointError
from corral.trainers.base import Content
from corral.trainers.cloning.teachers import Teacher, find_teacher
from corral.trainers.on_policy.algorithms import entropy_bonus, ippo, value_loss
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.on_policy.records import Losses, Minibatch, OnPolicy, Outputs
from corral.trainers.on_policy.settings import IPPOSettings
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.policy_iteration.compared import candidates, earned
from corral.trainers.settings import setting

__all__ = ["PolicyIteration", "PolicyIterationSettings", "policy_iteration"]

OF_PPO = ("clip_range", "kl_coef", "kl_target", "target_kl")
"""Settings of ippo that say nothing here."""

TRIED, GAIN = "tried", "gain"
"""What is kept of a decision: actions int64 [C], and what they earned more than the first."""


@dataclass(frozen=True)
class PolicyIterationSettings(IPPOSettings):
    """Settings of policy iteration: networks and rollouts of ippo, and what is compared.

    An env step is slow: ``candidates`` x ``horizon`` further ones are played for each agent.
    """

    num_envs: int = setting(128)
    n_steps: int = setting(4)
    gamma: float = setting(1.0)
    learning_rate: float | str = setting(2e-3)
    candidates: int = setting(
        8, "Number of actions that are compared for each decision, that taken among them.", least=2
    )
    horizon: int = setting(
        12, "Steps for which each of them is played on.", least=1, unit="env steps"
    )
    reach: int = setting(
        12,
        "Where actions are amounts: half of them lie within so many actions of the one taken.",
        least=0,
        unit="actions",
    )
    explore: float = setting(
        0.1,
        "Share of the decisions in rollouts that are drawn; the others are greedy.",
        least=0,
        most=1,
    )
    gain_delta: float = setting(
        10.0,
        "Error of a difference, in mean differences, from which the loss is linear.",
        above=0,
    )
    own_reward: bool = setting(
        False, "Count the deciding agent's rewards alone; else the sum of all agents' rewards."
    )
    teacher: str = setting(
        "", "Who plays the first rollouts: a reference team or player such as overflow, or a run."
    )
    taught: float = setting(
        0.15, "Share of the env steps that the teacher plays, if there is one.", least=0, below=1
    )

    unused: ClassVar[tuple[str, ...]] = OF_PPO

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in OF_PPO and value != field.default:
                raise ValueError(f"{field.name}={value}: policy iteration has no use for it")
        if self.memory:
            raise ValueError(f"memory={self.memory}: policy iteration copies no hidden state")


# --- The record ----------------------------------------------------------------------------------


def comparison_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the error of the differences between logits, as what the actions earned, and values'.

    Where a difference is large a Huber loss keeps it from ruling the others.
    """
    distribution = outputs.distribution
    assert isinstance(distribution, MaskedCategorical)  # ``check`` has seen to it
    logits = distribution.logits.gather(1, minibatch.extras[TRIED])  # [R, C]
    expected = logits - logits[:, :1]
    error = nn.functional.huber_loss(expected, minibatch.extras[GAIN], delta=settings.gain_delta)
    terms = {"gain_error": error, **entropy_bonus(minibatch, outputs, settings)}
    return Losses({**terms, "value_loss": value_loss(minibatch, outputs, settings)})


def comparison_metrics(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the terms of the loss, entropy, and how often no tried action was better."""
    unbeaten = (minibatch.extras[GAIN] <= 0).all(dim=1)
    return {**losses.terms, "entropy": outputs.entropy, "unbeaten": unbeaten.float().mean()}


policy_iteration: OnPolicy = ippo.but(
    name="policy_iteration",
    loss=comparison_loss,
    metrics=comparison_metrics,
    reports={
        "gain_error": "update",
        "value_loss": "update",
        "entropy": "first_epoch",
        "unbeaten": "first_epoch",
    },
    Settings=PolicyIterationSettings,
)
"""Choose what played on best, of several actions."""


# --- Who plays -----------------------------------------------------------------------------------


class ComparingPlayer:
    """Plays the agents of one group greedily, or as the teacher does, but for some exploration."""

    def __init__(self, trainer: PolicyIteration, learned: LearnedPlayer) -> None:
        self.trainer, self.learned = trainer, learned
        self.sample_unplayed, self.reset = learned.sample_unplayed, learned.reset

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Store the actions of step ``t``; behind the last group, compare those of all groups."""
        trainer, columns = self.trainer, buffer.group.columns
        self.learned.act(buffer, t, observations)
        acting = trainer.batch.acting
        greedy = trainer.play_on(observations, acting)[:, columns]
        drawn = trainer.tried_rng.random(greedy.shape) < trainer.settings.explore
        buffer.action[t] = np.where(drawn, buffer.action[t], greedy)
        if self is trainer.players[-1]:
            trainer.compare(t)


class PolicyIteration(OnPolicyTrainer):
    """Trains policies to choose what played on best."""

    algorithm = policy_iteration
    name = "policy_iteration"
    Settings = PolicyIterationSettings
    plays_opponents: ClassVar[bool] = False
    takes_self_play: ClassVar[bool] = False

    def __init__(self, rules: Rules[Any], settings: Any, **kwargs: Any) -> None:
        super().__init__(rules, settings, **kwargs)
        self.reach = settings.reach if amounts_of(rules)[0] else 0
        self.teacher: Teacher | None = None
        self.tried_rng = generator(self.seed, "policy", len(rules.agents) + 1)
        self.gain_scale = 0.0  # mean of |gain|, of the rollouts so far; 0: none yet
        self.players = [ComparingPlayer(self, player) for player in self.players]

    @property
    def taught(self) -> bool:
        """Whether the teacher plays this rollout."""
        taught: float = self.settings.taught * self.steps
        return self.teacher is not None and self.env_steps < taught

    def check(self) -> None:
        """Raise what keeps the teacher from playing, before anything is played."""
        super().check()
        if not hasattr(self.rules, "step"):
            raise ValueError("policy_iteration copies states: it is for rules of the suite")
        for group in self.groups:
            if group.actions.masks == 0:
                raise ValueError("policy_iteration compares Discrete actions")
        if self.teacher is None and self.settings.teacher:
            self.teacher = find_teacher(self.settings.teacher, self.rules)

    # --- Comparing -------------------------------------------------------------------------------

    def compare(self, t: int) -> None:
        """Compare all decisions of step ``t`` of the rollout with others."""
        actions, count = self.rollout.actions(t), self.settings.candidates
        for buffer in self.rollout.groups:
            if not self.learners[buffer.group.policy].trained:
                continue
            if TRIED not in buffer.extras:
                shape = *buffer.log_prob.shape, count
                buffer.extras[TRIED] = np.zeros(shape, dtype=np.int64)
                buffer.extras[GAIN] = np.zeros(shape, dtype=np.float32)
            for j, agent in enumerate(buffer.group.index.tolist()):
                mask, taken = buffer.mask[t][:, j], actions[:, agent]
                tried = candidates(taken, mask, count, self.tried_rng, self.reach)  # [B, C]
                buffer.extras[TRIED][t][:, j] = tried
                chosen = buffer.acting[t][:, j] & (np.count_nonzero(mask, axis=1) > 1)
                buffer.extras[GAIN][t][:, j] = self._gains(agent, actions, tried, chosen)

    def _gains(self, agent: int, actions: Array, tried: Array, chosen: Array) -> Array:
        """Return what the actions ``tried`` [B, C] of ``agent`` earn more than the first of them,
        float32 [B, C]; 0 where it has no choice."""
        gains = np.zeros(tried.shape, dtype=np.float32)
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return gains
        copies = np.repeat(rows, tried.shape[1])
        begin = actions[copies].astype(np.int64)
        begin[:, agent] = tried[rows].ravel()
        found = earned(
            self.rules,
            self.batch.moments(copies),
            begin,
            self.play_on,
            gamma=self.settings.gamma,
            horizon=self.settings.horizon,
            own=agent if self.settings.own_reward else None,
        ).reshape(len(rows), -1)
        gains[rows] = found - found[:, :1]
        return gains

    def update(self) -> dict[str, float]:
        """Learn from the rollout, whose differences are scaled to a mean of 1 over rollouts."""
        found = [buffer.extras[GAIN] for buffer in self.rollout.groups if GAIN in buffer.extras]
        mean = float(np.mean([np.abs(gains).mean() for gains in found]))
        decay = self.settings.value_decay if self.gain_scale else 0.0
        self.gain_scale = decay * self.gain_scale + (1 - decay) * mean
        for gains in found:
            gains /= self.gain_scale or 1.0
        return {**super().update(), "gain_scale": self.gain_scale}

    # --- Who decides -----------------------------------------------------------------------------

    def play_on(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what is decided without exploration: int64 [R, N]."""
        return (self.teach if self.taught else self.decide)(observations, acting)

    def teach(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what the teacher decides: int64 [R, N]."""
        assert self.teacher is not None
        actions = np.zeros(acting.shape, dtype=np.int64)
        for i, agent in enumerate(self.rules.agents):
            policy = self.teacher.policies[agent]
            actions[:, i] = policy.act(observations[agent], None, None, True).action
        return np.where(acting, actions, 0)

    def decide(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what the policies decide greedily: int64 [R, N]."""
        actions = np.zeros(acting.shape, dtype=np.int64)
        for learner in self.learners.values():
            group = learner.group
            moment = ObservationBuffer(group, len(acting))
            moment.store(slice(None), observations)
            with torch.inference_mode():
                parts, mask = moment.tensors(slice(None), None, learner.device)
                hidden = learner.tensor(np.zeros((len(mask), 0), dtype=np.float32))
                outputs, _ = learner.actor.step(parts, hidden)
                best = learner.distribution(outputs, mask).mode.cpu().numpy()
            actions[:, group.columns] = best.reshape(len(acting), -1)
        return np.where(acting, actions, 0)

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        """Return what the base does, and the generator and scale of comparisons."""
        content = super().save()
        document = {"rng": self.tried_rng.bit_generator.state, "gain_scale": self.gain_scale}
        return Content({**content.documents, "comparisons": document}, content.arrays)

    def load(self, content: Content) -> None:
        super().load(content)
        try:
            saved = content.documents["comparisons"]
            self.gain_scale = float(saved["gain_scale"])
            self.tried_rng.bit_generator.state = saved["rng"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is not of {self.name}: {error!r}") from error
