"""The trainer "clone": networks learn a teacher's decisions by masked cross-entropy.

It is the loop of ``corral.trainers.on_policy`` with another loss and another player. The teacher
plays the rollout and marks the actions that it considers equally good. The loss is the
cross-entropy between the policy and the uniform distribution over these actions. The critic learns
the values of the teacher's play, so another run can start from both networks (``--init``). With
``own_play`` the policy plays some of the actions itself, and the teacher labels them: DAgger (Ross,
Gordon and Bagnell, A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning, 2011).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from corral.adapters.masked_distribution import MaskedCategorical
from corral.envs.core import Array, Observation, Rules, amounts_of, generator
from corral.errors import CheckpointError
from corral.trainers.base import Update
from corral.trainers.capabilities import Capabilities
from corral.trainers.cloning.agreement import agreement, eval_seed
from corral.trainers.cloning.recorded import RecordedRules
from corral.trainers.cloning.teachers import Teacher, TeacherLike, choices_of, find_teacher
from corral.trainers.content import Content
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.algorithms import mappo
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.on_policy.records import Losses, Minibatch, OnPolicy, Outputs
from corral.trainers.on_policy.settings import MAPPOSettings
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.opponents.playing import Opponents
from corral.trainers.runs.run import Run
from corral.trainers.settings import setting

__all__ = ["Clone", "CloneSettings", "clone", "taught_by"]

GIVEN = "given in Python"
"""Value of ``teacher`` in config.json for a teacher that was passed in Python."""

OF_PPO = (
    *("clip_range", "ent_coef", "ent_coef_end", "kl_coef", "kl_target", "target_kl"),
    *("stay_coef", "stay_target"),
)
"""Settings of mappo that have no effect in cloning."""

RESTORE_TEACHER = (
    "A clone must be resumed with its original teacher. Restore the teacher, or start another "
    "clone from this one: corral clone ENV --from TEACHER --init RUN"
)

SMOOTHING = 4.0
"""Default ``smoothing`` for actions that are amounts."""

AGREEMENT = "validation_agreement"
CHOICES = "teacher_choices"
CHECKS, CHECK_EPISODES = 10, 16
"""Number of comparisons with the teacher in a run, and episodes per comparison."""


@dataclass(frozen=True)
class CloneSettings(MAPPOSettings):
    """Settings of cloning: those of mappo for networks and rollouts, and the teacher."""

    teacher: str = setting(
        "",
        "The teacher: a reference team or player such as overflow, a run (RUN, RUN@best), or "
        "recorded steps (FILE.npz).",
    )
    own_play: float = setting(
        0.0,
        "Share of decisions that the policy plays itself during training; the teacher labels them.",
        least=0,
        most=1,
    )

    smoothing: float | None = setting(
        None,
        "Standard deviation, in actions, of the target distribution around a decision; none: 4 if "
        "actions are amounts, such as requests, else 0.",
        least=0,
    )
    learning_rate: float | str = setting(1e-2)
    n_epochs: int = setting(10)

    unused: ClassVar[tuple[str, ...]] = OF_PPO

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in OF_PPO and value != field.default:
                raise ValueError(f"{field.name}={value}: it has no effect in cloning; leave it out")


# --- Algorithm -----------------------------------------------------------------------------------


def clone_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the cross-entropy with the teacher's choices, and the value loss."""
    distribution = outputs.distribution
    assert isinstance(distribution, MaskedCategorical)  # ``find_teacher`` requires it
    targets = _targets(minibatch.extras[CHOICES], minibatch.mask, settings.smoothing)  # [R, A]
    log_probs = distribution.logits.masked_fill(~minibatch.mask, 0)
    value_loss = maths.value_loss(
        outputs.value,
        minibatch.value_target,
        huber_delta=settings.huber_delta,
        old_value=minibatch.old_value,
        clip_range=settings.clip_range_vf,
    )
    cross_entropy = -(targets * log_probs).sum(dim=-1).mean()
    return Losses({"cross_entropy": cross_entropy, "value_loss": value_loss.mean()})


def _targets(choices: torch.Tensor, mask: torch.Tensor, smoothing: float) -> torch.Tensor:
    """Return probabilities float32 [R, A]: uniform over ``choices``, or spread around them.

    With ``smoothing``, they are spread over legal actions as a normal distribution with this
    standard deviation. A choice stays the most likely action.
    """
    weights = choices.float()
    if smoothing:
        levels = torch.arange(choices.shape[-1], dtype=torch.float32, device=choices.device)
        kernel = torch.exp(-((levels[:, None] - levels) ** 2) / (2 * smoothing**2))
        weights = (weights @ kernel) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


def clone_metrics(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return losses, entropy and agreement of a minibatch, before its optimizer step."""
    mode = outputs.distribution.mode[:, None]
    return {
        **losses.terms,
        "entropy": outputs.entropy,
        "agreement": minibatch.extras[CHOICES].gather(1, mode).float().mean(),
    }


clone: OnPolicy = mappo.but(
    name="clone",
    loss=clone_loss,
    metrics=clone_metrics,
    reports={
        "cross_entropy": "update",
        "value_loss": "update",
        "entropy": "first_epoch",
        "agreement": "first_epoch",
    },
    Settings=CloneSettings,
)
"""Masked cross-entropy on a teacher's decisions."""


# --- Players -------------------------------------------------------------------------------------


class TeacherPlayer:
    """Plays the agents of one group like the teacher, and stores its choices for the loss."""

    def __init__(self, teachers: Opponents, learned: LearnedPlayer, own_play: float, rng: Any):
        self.teachers, self.learned, self.own_play, self.rng = teachers, learned, own_play, rng

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Store the actions and choices of step ``t``, and advance the recurrent state."""
        if CHOICES not in buffer.extras:
            buffer.extras[CHOICES] = np.zeros_like(buffer.mask[:-1])
        if self.own_play or self.learned.learner.actor.memory:
            self.learned.act(buffer, t, observations)
        for j, agent in enumerate(buffer.group.agents):
            rows = np.flatnonzero(buffer.acting[t][:, j])
            if not self.own_play:
                buffer.action[t][:, j] = 0
            if not len(rows):
                continue
            decision = self.teachers.decide(agent, observations[agent], rows)
            buffer.extras[CHOICES][t][rows, j] = choices_of(decision, buffer.mask.shape[-1])
            if self.own_play:
                by_teacher = self.rng.random(len(rows)) >= self.own_play
                buffer.action[t][rows[by_teacher], j] = decision.action[by_teacher]
            else:
                buffer.action[t][rows, j] = decision.action

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Sample actions of the teacher that will not be played."""
        for j, agent in enumerate(buffer.group.agents):
            wanted = buffer.acting[at][:, j]
            actions = self.teachers.sample_unplayed(agent, observations[agent], wanted, env_rows)
            buffer.action[at][:, j] = actions

    def reset(self, env_rows: Array) -> None:
        """Start a new episode in ``env_rows``."""
        self.learned.reset(env_rows)
        for agent in self.learned.learner.group.agents:
            self.teachers.reset(agent, env_rows)


class Clone(OnPolicyTrainer):
    """Trains policies to imitate a teacher. For a teacher in Python use ``taught_by``."""

    algorithm = clone
    name = "clone"
    Settings = CloneSettings
    capabilities = Capabilities(
        opponents=True,
        model=True,
        settings_of=True,
        validation=True,
        advantages=True,
        best_by=AGREEMENT,
    )
    teacher_object: ClassVar[tuple[TeacherLike, ...]] = ()  # a tuple, not a method

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        validation_rules: Rules[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """``validation_rules``: rules for comparisons with the teacher; default: the training rules
        with separate seeds."""
        if settings.smoothing is None:
            amounts, _ = amounts_of(rules)
            settings = dataclasses.replace(settings, smoothing=SMOOTHING if amounts else 0.0)
        super().__init__(rules, settings, **kwargs)
        self._validation_rules = self.rules if validation_rules is None else validation_rules
        self.teacher: Teacher | None = None
        self.teachers: Opponents | None = None
        self._held: Teacher | None = None  # teacher for comparisons
        self._saved: Mapping[str, Any] | None = None  # state of the teacher, in a resumed run
        self._arrays: dict[str, Array] = {}
        self._checked = -1
        self._own_rng = generator(self.seed, "policy", len(self.rules.agents) + 1)

    @property
    def learns_from(self) -> Run | None:
        """Return the teaching run, if the teacher is a run; available after ``check``."""
        return None if self.teacher is None else self.teacher.run

    def check(self) -> None:
        """Find the teacher. Raise an error before training starts if the teacher or the settings
        do not fit."""
        super().check()
        if self.teacher is not None:
            return
        if self.settings.smoothing and amounts_of(self.rules)[0] is None:
            raise ValueError(
                f"smoothing={self.settings.smoothing}: the actions of {self.rules.name} are not "
                "amounts, so neighboring actions are unrelated; leave it out"
            )
        named = self.settings.teacher
        if not self.teacher_object and named in ("", GIVEN):
            raise ValueError(
                "the teacher is missing: pass --from, as in corral clone ENV --from overflow "
                "(in Python teacher='overflow')"
                if not named
                else "the teacher was passed in Python. Pass it again: corral.resume(folder, "
                "trainer=corral.trainers.taught_by(teacher))"
            )
        try:
            teacher = find_teacher(
                self.teacher_object[0] if self.teacher_object else named, self.rules
            )
        except CheckpointError as error:
            raise CheckpointError(f"the teacher {named}: {error}. {RESTORE_TEACHER}") from error
        self._held = teacher
        if teacher.steps is not None:
            learned, held = teacher.steps.divided()
            self._held = dataclasses.replace(teacher, steps=held)
            teacher = dataclasses.replace(teacher, steps=learned)
            recorded = RecordedRules(self.rules, learned)
            if self.settings.own_play:
                raise ValueError("own_play: a teacher of recorded steps cannot play; leave it out")
            batch = recorded.make_batch(1)
            if self.critic_input.features:
                batch.global_state()  # raises if it was not recorded
            self._make_batch = lambda rules, num_envs, seed: recorded.make_batch(num_envs, seed)
        self.teacher = teacher
        self._seat_teachers(teacher)

    def _seat_teachers(self, teacher: Teacher) -> None:
        settings = self.settings
        policies = {agent: teacher.policies[agent] for agent in self._policy_of}
        self.teachers = Opponents(
            self.rules,
            policies,
            num_envs=settings.num_envs,
            seed=self.seed,
            deterministic=teacher.deterministic,
        )
        self.players = [
            TeacherPlayer(self.teachers, player, settings.own_play, self._own_rng)
            if isinstance(player, LearnedPlayer)
            else player
            for player in self.players
        ]

    def begin(self) -> None:
        """Restore the saved state of the teacher, if any."""
        if self._saved is not None:
            assert self.teacher is not None  # ``learn`` has checked
            assert self.teachers is not None
            saved, self._saved = self._saved, None
            if saved["digest"] != self.teacher.digest:
                current, before = str(self.teacher.digest)[:12], str(saved["digest"])[:12]
                raise CheckpointError(
                    f"{self.teacher.name} has changed since cloning started: its digest is "
                    f"{current}..., but was {before}.... {RESTORE_TEACHER}"
                )
            self._own_rng.bit_generator.state = saved["own_play"]
            if self.resumes_exactly:
                self.teachers.load(saved["generators"], self._arrays)
        super().begin()

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates. Their metrics contain the agreement on held-out decisions."""
        self.check()
        yield from super().learn(steps)

    def update(self) -> dict[str, float]:
        """Learn from the rollout, and compare with the teacher after each tenth of the run."""
        metrics = super().update()
        done = self.env_steps + self.rollout_steps
        part = CHECKS * done // self.steps
        if part == self._checked:
            return metrics | {AGREEMENT: math.nan}  # not compared in this update
        self._checked = part
        return metrics | {AGREEMENT: self._compare()}

    def _compare(self) -> float:
        assert self._held is not None
        learned = {agent: self.policies[agent] for agent in self._policy_of}
        seed = eval_seed(self.seed, 0)
        plan: dict[str, Any] = {"episodes": CHECK_EPISODES, "seed": seed}
        return agreement(learned, self._held, self._validation_rules, **plan).share

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        """Return the content of the base class and the state of the teacher."""
        content = super().save()
        if self.teachers is None or self.teacher is None:
            return content
        generators, states = self.teachers.save()
        document = {
            "digest": self.teacher.digest,
            "generators": generators,
            "own_play": self._own_rng.bit_generator.state,
            "checked": self._checked,
        }
        arrays = {**content.arrays, "teacher": states} if states else content.arrays
        return Content({**content.documents, "teacher": document}, arrays)

    def load(self, content: Content) -> None:
        """Continue from the result of ``save``; ``begin`` restores the teacher."""
        super().load(content)
        try:
            saved = content.documents["teacher"]
            self._checked = int(saved["checked"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is not one of clone: {error!r}") from error
        self._saved, self._arrays = saved, dict(content.arrays.get("teacher", {}))


def taught_by(teacher: TeacherLike) -> type[Clone]:
    """Return the trainer "clone" with a teacher object, for the argument ``trainer=``."""
    fields = {"teacher_object": (teacher,), "in_place_of": "clone", "__module__": __name__}
    return type("Clone", (Clone,), fields)
