"""The trainer "clone": networks learn what a teacher decides, by masked cross-entropy.

It is the loop of ``corral.trainers.on_policy`` with another record and another player. The teacher
plays the rollout, and says which actions it counts as equally good; the loss is the cross-entropy
of the policy with the uniform distribution over them. The critic learns the values of the teacher's
play, so that another run may start from both (``--init``). With ``own_play`` some of the actions
played are the policy's, and the teacher says what it would have done: DAgger (Ross, Gordon and
Bagnell, A Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning,
2011).
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
"""What config.json says of a teacher that no text names."""

OF_PPO = (
    *("clip_range", "ent_coef", "ent_coef_end", "kl_coef", "kl_target", "target_kl"),
    *("stay_coef", "stay_target"),
)
"""Settings of mappo that say nothing here."""

ANEW = (
    "A clone goes on with the teacher that it began with: put that back, or start another clone "
    "from this one: corral clone ENV --from TEACHER --init RUN"
)

SMOOTHING = 4.0
"""Actions that a decision is spread over where actions are amounts and nobody says otherwise."""

AGREEMENT = "validation_agreement"
CHOICES = "teacher_choices"
CHECKS, CHECK_EPISODES = 10, 16
"""Comparisons with the teacher over a run, and episodes of each."""


@dataclass(frozen=True)
class CloneSettings(MAPPOSettings):
    """Settings of cloning: the networks and rollouts of mappo, and the teacher."""

    teacher: str = setting(
        "",
        "What decides: a reference team or player such as overflow, a run (RUN, RUN@best), or "
        "recorded steps (FILE.npz).",
    )
    own_play: float = setting(
        0.0,
        "Share of the decisions that the policy plays itself while it learns; the teacher says "
        "what it would have done.",
        least=0,
        most=1,
    )

    smoothing: float | None = setting(
        None,
        "Deviation, in actions, by which a decision is spread over its neighbours; none: 4 where "
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
                raise ValueError(f"{field.name}={value}: cloning has no use for it; leave it out")


# --- The record ----------------------------------------------------------------------------------


def clone_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the cross-entropy with the teacher's choices, and the value loss."""
    distribution = outputs.distribution
    assert isinstance(distribution, MaskedCategorical)  # ``find_teacher`` has seen to it
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

    Spread over legal actions as a normal distribution of deviation ``smoothing``, so that a choice
    stays likeliest.
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
    """Return losses, entropy and agreement of a minibatch, before its step of the optimizer."""
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


# --- Who plays -----------------------------------------------------------------------------------


class TeacherPlayer:
    """Plays the agents of one group as the teacher decides, and notes its choices for the loss."""

    def __init__(self, teachers: Opponents, learned: LearnedPlayer, own_play: float, rng: Any):
        self.teachers, self.learned, self.own_play, self.rng = teachers, learned, own_play, rng

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Store the actions of step ``t``, and the choices; a hidden state moves on."""
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
                kept = self.rng.random(len(rows)) >= self.own_play
                buffer.action[t][rows[kept], j] = decision.action[kept]
            else:
                buffer.action[t][rows, j] = decision.action

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Sample the teacher's actions for a moment that is not played on."""
        for j, agent in enumerate(buffer.group.agents):
            wanted = buffer.acting[at][:, j]
            actions = self.teachers.sample_unplayed(agent, observations[agent], wanted, env_rows)
            buffer.action[at][:, j] = actions

    def reset(self, env_rows: Array) -> None:
        """Begin anew in ``env_rows``, whose episodes are over."""
        self.learned.reset(env_rows)
        for agent in self.learned.learner.group.agents:
            self.teachers.reset(agent, env_rows)


class Clone(OnPolicyTrainer):
    """Trains policies to decide as a teacher does. ``taught_by`` gives it one made in Python."""

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
    given: ClassVar[tuple[TeacherLike, ...]] = ()  # in a tuple: a function is no method

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        validation_rules: Rules[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """``validation_rules``: what is compared with the teacher in; default: as in training, on
        seeds of its own."""
        if settings.smoothing is None:
            amounts, _ = amounts_of(rules)
            settings = dataclasses.replace(settings, smoothing=SMOOTHING if amounts else 0.0)
        super().__init__(rules, settings, **kwargs)
        self._validation_rules = self.rules if validation_rules is None else validation_rules
        self.teacher: Teacher | None = None
        self.teachers: Opponents | None = None
        self._held: Teacher | None = None  # what is compared with
        self._saved: Mapping[str, Any] | None = None  # where the teacher was, in a resumed run
        self._arrays: dict[str, Array] = {}
        self._checked = -1
        self._own_rng = generator(self.seed, "policy", len(self.rules.agents) + 1)

    @property
    def learns_from(self) -> Run | None:
        """The run that teaches, where one does; known once it is checked."""
        return None if self.teacher is None else self.teacher.run

    def check(self) -> None:
        """Raise what keeps the teacher from teaching, before anything is played."""
        super().check()
        if self.teacher is not None:
            return
        if self.settings.smoothing and amounts_of(self.rules)[0] is None:
            raise ValueError(
                f"smoothing={self.settings.smoothing}: the actions of {self.rules.name} are no "
                "amounts, so that none is near another; leave it out"
            )
        named = self.settings.teacher
        if not self.given and named in ("", GIVEN):
            raise ValueError(
                "the teacher is missing: corral clone ENV --from overflow (teacher='overflow')"
                if not named
                else "the teacher was given in Python; give it again: corral.resume(folder, "
                "trainer=corral.trainers.taught_by(teacher))"
            )
        try:
            teacher = find_teacher(self.given[0] if self.given else named, self.rules)
        except CheckpointError as error:
            raise CheckpointError(f"the teacher {named}: {error}. {ANEW}") from error
        self._held = teacher
        if teacher.steps is not None:
            learned, held = teacher.steps.divided()
            self._held = dataclasses.replace(teacher, steps=held)
            teacher = dataclasses.replace(teacher, steps=learned)
            recorded = RecordedRules(self.rules, learned)
            if self.settings.own_play:
                raise ValueError("own_play: recorded steps cannot be played; leave it out")
            batch = recorded.make_batch(1)
            if self.critic_input.features:
                batch.global_state()  # raises where it was not recorded
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
        """Let the teacher go on from where it was saved, if it was."""
        if self._saved is not None:
            assert self.teacher is not None  # ``learn`` has checked
            assert self.teachers is not None
            saved, self._saved = self._saved, None
            if saved["digest"] != self.teacher.digest:
                here, before = str(self.teacher.digest)[:12], str(saved["digest"])[:12]
                raise CheckpointError(
                    f"{self.teacher.name} is not what was cloned from: its digest is {here}..., "
                    f"and was {before}.... {ANEW}"
                )
            self._own_rng.bit_generator.state = saved["own_play"]
            if self.resumes_exactly:
                self.teachers.load(saved["generators"], self._arrays)
        super().begin()

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates; their metrics hold how often held-out decisions agree."""
        self.check()
        yield from super().learn(steps)

    def update(self) -> dict[str, float]:
        """Learn from the rollout; compare with the teacher every tenth of the run."""
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
        """Return what the base does, and where the teacher is."""
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
        """Go on from what ``save`` gave; the teacher does when it is needed."""
        super().load(content)
        try:
            saved = content.documents["teacher"]
            self._checked = int(saved["checked"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is not of clone: {error!r}") from error
        self._saved, self._arrays = saved, dict(content.arrays.get("teacher", {}))


def taught_by(teacher: TeacherLike) -> type[Clone]:
    """Return the trainer "clone" with a teacher that no text names: as ``trainer=``."""
    fields = {"given": (teacher,), "in_place_of": "clone", "__module__": __name__}
    return type("Clone", (Clone,), fields)
