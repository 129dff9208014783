"""The trainer "policy_iteration": networks learn which of several actions plays on best.

It is the loop of ``corral.trainers.on_policy`` with another record and another player. Each moment
of a rollout is copied for every agent that decides; the copies begin with other actions of that
agent, and the policies play on from there, greedily, for ``lookahead`` steps. All copies meet the
same future, so that what they earn tells these actions apart with far less noise than returns do.
The logits learn these differences by regression: the likeliest action is the one that is expected
to play on best.

Where agents choose before the chance of a step (``OptionalRules.hides_chance``), that future is
drawn anew for each moment, once for all actions and agents. Otherwise a network could learn by
heart which action was best in a recorded step, and that is no use in another. On the load of
``benchmarks/loads/redraw.py`` teams cost less on later days for it, with each of three seeds; the
setting ``futures`` has both.

That is approximate policy iteration by rollouts (Lagoudakis and Parr, Reinforcement Learning as
Classification, 2003), one agent at a time (Bertsekas, Multiagent Rollout Algorithms, 2021). It
needs an environment whose state can be copied: rules of the suite, or one's own.

With a ``teacher`` its play is what is improved first: the first rollouts are the teacher's, and so
is the play after each of the actions that are compared.

The critic is ippo's. Nothing here asks it: it is for runs that start from this one (``--init``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from corral.adapters.masked_distribution import likeliest
from corral.envs.core import (
    Array,
    Observation,
    Rules,
    amounts_of,
    copy_rows,
    for_copies,
    generator,
    hides_chance,
    plays_as_arrays,
    redraw_of,
)
from corral.envs.policy import take_tree
from corral.errors import CheckpointError, UnsupportedSpaceError
from corral.trainers.capabilities import Capabilities
from corral.trainers.cloning.driver import with_teacher_arguments
from corral.trainers.cloning.teachers import Teacher, find_teacher
from corral.trainers.content import Content
from corral.trainers.evaluation.zero_sum import is_zero_sum
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.policy_iteration.compared import Copies, Tried, candidates, gains
from corral.trainers.policy_iteration.record import (
    GAIN,
    TRIED,
    PolicyIterationSettings,
    policy_iteration,
)
from corral.trainers.runs.run import Run

__all__ = ["PolicyIteration"]

OWN_STEPS = "own_steps"
OWN_REWARD = (
    "{}: the rewards of all agents add up to the same whatever is played, so that no action is "
    "better than another; --own-reward (own_reward=True) counts those of the agent that decides"
)

ONE_DAY = (
    "{}: agents choose before they know what a step brings, and there are no two days of data: "
    "actions are compared on the recorded rows, so that they may be learned by heart"
)

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
        self._store_log_prob(buffer, t)
        if self is trainer.players[-1]:
            trainer.compare(t)  # all have decided

    def _store_log_prob(self, buffer: GroupBuffer, t: int) -> None:
        """Store the log-probabilities of what is played, which was not drawn everywhere."""
        learner, rows = self.learned.learner, np.flatnonzero(buffer.decides(t))
        if not len(rows):
            return
        with torch.inference_mode():
            parts, mask = buffer.tensors(t, rows, learner.device)
            logits, _ = learner.actor.step(parts, parts[0].new_zeros(len(mask), 0))
            played = torch.from_numpy(buffer.action[t].reshape(-1)[rows]).to(learner.device)
            chances = learner.distribution(logits, mask).log_prob(played)
            buffer.log_prob[t].reshape(-1)[rows] = chances.cpu().numpy()


class PolicyIteration(OnPolicyTrainer):
    """Trains policies to choose what played on best."""

    algorithm = policy_iteration
    name = "policy_iteration"
    Settings = PolicyIterationSettings
    # Its loss has differences of its own instead of advantages. The latest checkpoint is the best,
    # unless they are evaluated (``evaluate_every``): greedy play gets better while returns are
    # still those of the teacher, or of no whole episode.
    capabilities = Capabilities(model=True, settings_of=True, best_by=OWN_STEPS)

    def __init__(self, rules: Rules[Any], settings: Any, **kwargs: Any) -> None:
        super().__init__(rules, settings, **kwargs)
        self.reach = settings.reach if amounts_of(rules)[0] else 0
        self.teacher: Teacher | None = None
        self.taught_by: str | None = None  # digest of the teacher that a loaded run had
        self.tried_rng = generator(self.seed, "policy", len(rules.agents) + 1)
        self.gain_scale = 0.0  # mean of |gain|, of the rollouts so far; 0: none yet
        self.players = [ComparingPlayer(self, player) for player in self.players]
        self._seen: dict[str, ObservationBuffer] = {}  # what policies decide on, used again
        redraws = hides_chance(rules) and settings.futures == "redrawn"
        self.copied = for_copies(rules) if redraws else rules  # the rules that copies are played by
        self._redraw = redraw_of(self.copied) if redraws else None
        self._lacks_data = redraws and self._redraw is None

    @staticmethod
    def env_kwargs_for(env: Any, env_kwargs: Any, settings: Mapping[str, Any], api: Any) -> Any:
        """Return the environment's arguments with what the teacher's name says of them, such as the
        route of "overflow/spare"; a line on stderr tells."""
        return with_teacher_arguments(env, str(settings.get("teacher") or ""), env_kwargs, api)

    def begin_timing(self) -> None:
        """Let the rollouts be like most of a run: without the teacher."""
        self.env_steps = math.ceil(self.taught_steps)

    @property
    def taught_steps(self) -> float:
        """Env steps at the beginning that the teacher plays."""
        return float(self.settings.taught * self.steps if self.settings.teacher else 0)

    @property
    def taught(self) -> bool:
        """Whether the teacher plays this rollout."""
        return self.env_steps < self.taught_steps

    @property
    def learns_from(self) -> Run | None:
        """The run that teaches, where one does; known once it is checked."""
        return None if self.teacher is None else self.teacher.run

    def check(self) -> None:
        """Raise what cannot be compared, or keeps the teacher from playing, before anything is
        played."""
        rules, instead = self.rules, "train it with --trainer mappo"
        if not plays_as_arrays(rules):
            raise ValueError(
                f"policy_iteration copies moments of play, and those of {rules.name}, an "
                f"environment of others, cannot be copied: {instead}, or write it as rules "
                "(corral.envs.core)"
            )
        for agent in rules.agents:
            if not isinstance(space := rules.action_space(agent), spaces.Discrete):
                raise UnsupportedSpaceError(
                    f"{agent} plays {space}: policy_iteration compares Discrete actions; {instead}"
                )
        if is_zero_sum(rules) and not self.settings.own_reward:
            raise ValueError(OWN_REWARD.format(rules.name))
        super().check()
        if self._lacks_data:
            self._lacks_data = False  # said once
            print(f"corral: {ONE_DAY.format(rules.name)}", file=sys.stderr)
        if self.taught and self.teacher is None:
            self.teacher = self._found_teacher()

    def _found_teacher(self) -> Teacher:
        teacher = find_teacher(self.settings.teacher, self.rules)
        if teacher.steps is not None:
            raise ValueError(
                f"teacher={self.settings.teacher}: recorded steps play nothing on; clone them "
                "(corral clone), and start from the clone with --init"
            )
        for agent, policy in teacher.policies.items():
            if policy.initial_state(1) is not None:
                raise ValueError(
                    f"teacher={self.settings.teacher}: it plays {agent} with a hidden state, of "
                    "which policy iteration makes no copies; clone it (corral clone), and start "
                    "from the clone with --init"
                )
        if self.taught_by not in (None, teacher.digest):
            raise CheckpointError(
                f"{teacher.name} is not what taught this run before: its checkpoint is another one"
            )
        return teacher

    # --- Comparing -------------------------------------------------------------------------------

    def compare(self, t: int) -> None:
        """Compare all decisions of step ``t`` of the rollout with others."""
        settings, taken = self.settings, self.rollout.actions(t)
        tried: list[Tried] = []
        places: list[Array] = []  # where the gains of each go, float32 [B, C]
        for buffer in self.rollout.groups:
            if not self.learners[buffer.group.policy].trained:
                continue
            if TRIED not in buffer.extras:
                shape = *buffer.log_prob.shape, settings.candidates
                buffer.extras[TRIED] = np.zeros(shape, dtype=np.int64)
                buffer.extras[GAIN] = np.zeros(shape, dtype=np.float32)
            buffer.extras[TRIED][t] = buffer.action[t][..., None]  # of who has no choice
            buffer.extras[GAIN][t] = 0
            for j, agent in enumerate(buffer.group.index.tolist()):
                mask = buffer.mask[t][:, j]
                rows = np.flatnonzero(buffer.acting[t][:, j] & (mask.sum(axis=1) > 1))
                if not len(rows):
                    continue
                chosen = candidates(  # [R, C]
                    taken[rows, agent],
                    mask[rows],
                    settings.candidates,
                    self.tried_rng,
                    self.reach,
                )
                buffer.extras[TRIED][t][rows, j] = chosen
                tried.append(Tried(agent, rows, chosen))
                places.append(buffer.extras[GAIN][t][:, j])
        if not tried:
            return
        found = gains(
            self.copied,
            self._moments(),
            taken,
            tried,
            self.play_on,
            gamma=settings.gamma,
            horizon=settings.lookahead,
            own=settings.own_reward,
        )
        for each, place, gain in zip(tried, places, found, strict=True):
            place[each.rows] = gain

    def _moments(self) -> Callable[[Array], Copies]:
        """Return a function that copies rows of the environments. If agents cannot know the
        recorded future, each row gets another one, the same in all its copies."""
        moments: Callable[[Array], Copies] = self.batch.moments
        if self._redraw is None:
            return moments
        state, elapsed, ended = moments(np.arange(self.batch.num_envs))
        state = self._redraw(state, [self.tried_rng] * len(elapsed), False)
        return lambda rows: (copy_rows(state, rows), elapsed[rows], ended[rows])

    def update(self) -> dict[str, float]:
        """Learn from the rollout, whose differences are scaled to a mean of 1 over rollouts."""
        found = [buffer.extras[GAIN] for buffer in self.rollout.groups if GAIN in buffer.extras]
        mean = float(np.mean([np.abs(each).mean() for each in found])) if found else 0.0
        decay = self.settings.value_decay if self.gain_scale else 0.0
        self.gain_scale = decay * self.gain_scale + (1 - decay) * mean
        for each in found:
            each /= self.gain_scale or 1.0
        own = max(0.0, self.env_steps + self.rollout_steps - self.taught_steps)
        metrics = {"gain_scale": self.gain_scale, OWN_STEPS: own}
        return {**super().update(), **metrics}

    # --- Who decides -----------------------------------------------------------------------------

    def play_on(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what is decided without exploration: int64 [R, N]."""
        return (self.teach if self.taught else self.decide)(observations, acting)

    def teach(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what the teacher decides: int64 [R, N]; 0 where an agent does not act."""
        assert self.teacher is not None  # ``check`` has found it
        actions = np.zeros(acting.shape, dtype=np.int64)
        for i, agent in enumerate(self.rules.agents):
            if not len(rows := np.flatnonzero(acting[:, i])):
                continue
            own = observations[agent] if len(rows) == len(acting) else None
            own = take_tree(observations[agent], rows) if own is None else own
            policy = self.teacher.policies[agent]
            actions[rows, i] = policy.act(own, None, self.tried_rng, deterministic=True).action
        return actions

    def decide(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return what the policies decide greedily: int64 [R, N]; 0 where an agent does not act."""
        actions = np.zeros(acting.shape, dtype=np.int64)
        for name, learner in self.learners.items():
            group = learner.group
            own = acting[:, group.columns].reshape(-1)
            rows = None if own.all() else np.flatnonzero(own)
            if rows is not None and not len(rows):
                continue
            seen, at = self._seen.get(name), slice(len(acting))
            if seen is None or len(seen.acting) < len(acting):
                seen = self._seen[name] = ObservationBuffer(group, len(acting))
            seen.store(at, observations)
            with torch.inference_mode():
                parts, mask = seen.tensors(at, rows, learner.device)
                logits, _ = learner.actor.step(parts, parts[0].new_zeros(len(mask), 0))
                best = np.zeros(len(own), dtype=np.int64)
                best[slice(None) if rows is None else rows] = likeliest(logits, mask)
            actions[:, group.columns] = best.reshape(len(acting), -1)
        return actions

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        """Return what the base does, the generator and scale of comparisons, and who taught."""
        content = super().save()
        digest = self.taught_by if self.teacher is None else self.teacher.digest
        document = {
            "rng": self.tried_rng.bit_generator.state,
            "gain_scale": self.gain_scale,
            "taught_by": digest,
        }
        return Content({**content.documents, "comparisons": document}, content.arrays)

    def load(self, content: Content) -> None:
        super().load(content)
        try:
            saved = content.documents["comparisons"]
            self.gain_scale, self.taught_by = float(saved["gain_scale"]), saved["taught_by"]
            self.tried_rng.bit_generator.state = saved["rng"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint is not of {self.name}: {error!r}") from error
