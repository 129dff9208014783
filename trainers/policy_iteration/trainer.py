"""The trainer "policy_iteration": networks learn which of several actions has the best outcome.

It uses the loop of ``corral.trainers.on_policy`` with another record and another player. Each state
of a rollout is copied for every deciding agent. The copies start with different actions of that
agent, and the policies continue greedily for ``lookahead`` steps. All copies have the same future,
so their returns compare these actions with far less noise than returns of episodes. The logits
learn these differences by regression: the most probable action is the one with the best expected
outcome.

If agents choose before the randomness of a step is known (``OptionalRules.hides_chance``), that
future is redrawn for each state, once for all actions and agents. Otherwise a network could
memorize the best action of a recorded step, which does not generalize. On the load of
``benchmarks/loads/redraw.py`` redrawing lowers the teams' cost on later days, with each of three
seeds; the setting ``futures`` selects either behavior.

This is approximate policy iteration by rollouts (Lagoudakis and Parr, Reinforcement Learning as
Classification, 2003), one agent at a time (Bertsekas, Multiagent Rollout Algorithms, 2021). It
needs an environment with a state that can be copied: rules, or a third-party environment for which
``corral.adapters.snapshots`` proves a way.

With a ``teacher``, the teacher's policy is improved first. The teacher plays the first rollouts,
and it also continues the simulations after each compared action.

In a zero-sum game of two players in turn, ``bootstrap`` adds the critic's value of the last
simulated state: with ``lookahead`` 1 it is a search of one ply. The policy then learns the softmax
of the gains, a policy improvement like that of Danihelka et al. (Policy Improvement by Planning
with Gumbel, 2022) without a prior. Play remains one forward pass of the network.

Otherwise the critic, that of ippo, is trained but not used here: it is for runs that start from
this one (``--init``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from corral.adapters.masked_distribution import likeliest
from corral.adapters.networks import Parts
from corral.adapters.snapshots import SnapshotBatch, copyable
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
from corral.trainers.on_policy.learner import Learner
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
    "{}: the rewards of all agents sum to a constant, so that all actions have equal gains; set "
    "--own-reward (own_reward=True) to count only the rewards of the deciding agent"
)

NOT_A_DUEL = (
    "bootstrap=True: {} is not a game of two players in turn, in which the value of one player is "
    "the negative of the other's; leave bootstrap out"
)

ONE_DAY = (
    "{}: agents choose before they know the data of a step, and there are not two days of data to "
    "redraw from: actions are compared on the recorded rows, which the networks may memorize"
)

# --- Players -------------------------------------------------------------------------------------


class ComparingPlayer:
    """Plays the agents of one group greedily, or as the teacher does, with some exploration."""

    def __init__(self, trainer: PolicyIteration, learned: LearnedPlayer) -> None:
        self.trainer, self.learned = trainer, learned
        self.sample_unplayed, self.reset = learned.sample_unplayed, learned.reset

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        """Store the actions of step ``t``; after the last group, compare actions of all groups."""
        trainer, columns = self.trainer, buffer.group.columns
        self.learned.act(buffer, t, observations)
        if trainer.settings.explore < 1 or trainer.taught:
            greedy = trainer.play_on(observations, trainer.batch.acting)[:, columns]
            explored = trainer.tried_rng.random(greedy.shape) < trainer.settings.explore
            buffer.action[t] = np.where(explored, buffer.action[t], greedy)
            self._store_log_prob(buffer, t)
        if self is trainer.players[-1]:
            trainer.compare(t)  # all groups have decided

    def _store_log_prob(self, buffer: GroupBuffer, t: int) -> None:
        """Store the log-probabilities of the actions, most of which were not sampled."""
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
    """Trains policies to choose the action with the best simulated outcome."""

    algorithm = policy_iteration
    name = "policy_iteration"
    Settings = PolicyIterationSettings
    # The loss uses gains instead of advantages. Without ``evaluate_every`` the latest checkpoint is
    # the best: greedy play improves while returns still come from the teacher or are missing.
    capabilities = Capabilities(model=True, settings_of=True, sampled=False, best_by=OWN_STEPS)

    def __init__(self, rules: Rules[Any], settings: Any, **kwargs: Any) -> None:
        super().__init__(rules, settings, **kwargs)
        amounts = amounts_of(rules)[1]
        self.reach = 0 if amounts is None else settings.reach
        # Offsets are not in the order of actions, but other amounts are.
        offsets = amounts is not None and bool((amounts < 0).any())
        self.order = np.argsort(amounts) if amounts is not None and offsets else None
        self.teacher: Teacher | None = None
        self.taught_by: str | None = None  # digest of the teacher of a loaded run
        self.tried_rng = generator(self.seed, "policy", len(rules.agents) + 1)
        self.gain_scale = 0.0  # running mean of |gain|; 0: no rollout yet
        self.players = [ComparingPlayer(self, player) for player in self.players]
        self._buffers: dict[str, ObservationBuffer] = {}  # reusable buffers by policy
        redraws = hides_chance(rules) and settings.futures == "redrawn"
        self.copied = for_copies(rules) if redraws else rules  # rules for the copies
        self._redraw = redraw_of(self.copied) if redraws else None
        self._lacks_data = redraws and self._redraw is None

    @staticmethod
    def env_kwargs_for(env: Any, env_kwargs: Any, settings: Mapping[str, Any], api: Any) -> Any:
        """Return the environment's arguments with those implied by the teacher's name, such as the
        route of "overflow/spare". A line on stderr reports them."""
        return with_teacher_arguments(env, str(settings.get("teacher") or ""), env_kwargs, api)

    def begin_timing(self) -> None:
        """Time rollouts without the teacher, like most rollouts of a run."""
        self.env_steps = math.ceil(self.taught_steps)

    @property
    def taught_steps(self) -> float:
        """Number of env steps at the start that the teacher plays."""
        return float(self.settings.taught * self.steps if self.settings.teacher else 0)

    @property
    def taught(self) -> bool:
        """True if the teacher plays this rollout."""
        return self.env_steps < self.taught_steps

    @property
    def learns_from(self) -> Run | None:
        """The run that is the teacher, or None; available after ``check``."""
        return None if self.teacher is None else self.teacher.run

    def check(self) -> None:
        """Raise an error before the first step for an unsupported environment or teacher."""
        rules, instead = self.rules, "use --trainer mappo"
        for agent in rules.agents:
            if not isinstance(space := rules.action_space(agent), spaces.Discrete):
                raise UnsupportedSpaceError(
                    f"{agent} has the action space {space}, but policy_iteration needs Discrete "
                    f"actions; {instead}"
                )
        bootstrap = self.settings.bootstrap
        if bootstrap and (rules.simultaneous or len(rules.agents) != 2):
            raise ValueError(NOT_A_DUEL.format(rules.name))
        if is_zero_sum(rules) and not (self.settings.own_reward or bootstrap):
            raise ValueError(OWN_REWARD.format(rules.name))
        super().check()
        self._copy_states()
        if self._lacks_data:
            self._lacks_data = False  # warn only once
            print(f"corral: {ONE_DAY.format(rules.name)}", file=sys.stderr)
        if self.taught and self.teacher is None:
            self.teacher = self._resolve_teacher()

    def _copy_states(self) -> None:
        """Play a third-party environment in games that can be copied; stderr reports how.

        Raises SnapshotError if they cannot be copied.
        """
        if plays_as_arrays(self.copied):
            return
        states: Any = copyable(self.rules)
        self.copied = states
        self.wrap_batches(lambda batch: SnapshotBatch(states, batch.num_envs, batch.seed))
        print(f"corral: {states.copied.text()}", file=sys.stderr)

    def begin(self) -> None:
        self._copy_states()
        super().begin()

    def _resolve_teacher(self) -> Teacher:
        teacher = find_teacher(self.settings.teacher, self.rules)
        if teacher.steps is not None:
            raise ValueError(
                f"teacher={self.settings.teacher}: recorded steps cannot continue a simulation; "
                "clone them (corral clone), and start from the clone with --init"
            )
        for agent, policy in teacher.policies.items():
            if policy.initial_state(1) is not None:
                raise ValueError(
                    f"teacher={self.settings.teacher}: its policy of {agent} has a hidden state, "
                    "which policy iteration cannot copy; clone it (corral clone), and start from "
                    "the clone with --init"
                )
        if self.taught_by not in (None, teacher.digest):
            raise CheckpointError(
                f"{teacher.name} is not the previous teacher of this run: its checkpoint differs"
            )
        return teacher

    # --- Comparing -------------------------------------------------------------------------------

    def compare(self, t: int) -> None:
        """Compare all decisions of step ``t`` of the rollout with alternative actions."""
        settings, taken = self.settings, self.rollout.actions(t)
        tried: list[Tried] = []
        places: list[Array] = []  # targets of the gains, float32 [B, C] each
        for buffer in self.rollout.groups:
            if not self.learners[buffer.group.policy].trained:
                continue
            if TRIED not in buffer.extras:
                shape = *buffer.log_prob.shape, settings.candidates
                buffer.extras[TRIED] = np.zeros(shape, dtype=np.int64)
                buffer.extras[GAIN] = np.zeros(shape, dtype=np.float32)
            # default for agents without a choice
            buffer.extras[TRIED][t] = buffer.action[t][..., None]
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
                    self.order,
                )
                buffer.extras[TRIED][t][rows, j] = chosen
                tried.append(Tried(agent, rows, chosen))
                places.append(buffer.extras[GAIN][t][:, j])
        if not tried:
            return
        results = gains(
            self.copied,
            self._moments(),
            taken,
            tried,
            self.play_on,
            gamma=settings.gamma,
            horizon=settings.lookahead,
            own=settings.own_reward or settings.bootstrap,
            value=self.value if settings.bootstrap else None,
        )
        for trial, place, gain in zip(tried, places, results, strict=True):
            place[trial.rows] = gain

    def _moments(self) -> Callable[[Array], Copies]:
        """Return a function that copies rows of the environments. If agents cannot know the
        recorded future, each row gets another future, shared by all its copies."""
        moments: Callable[[Array], Copies] = self.batch.moments
        if self._redraw is None:
            return moments
        state, elapsed, ended = moments(np.arange(self.batch.num_envs))
        state = self._redraw(state, [self.tried_rng] * len(elapsed), False)
        return lambda rows: (copy_rows(state, rows), elapsed[rows], ended[rows])

    def update(self) -> dict[str, float]:
        """Learn from the rollout, with gains scaled to a mean absolute value of 1."""
        all_gains = [buffer.extras[GAIN] for buffer in self.rollout.groups if GAIN in buffer.extras]
        mean = float(np.mean([np.abs(gain).mean() for gain in all_gains])) if all_gains else 0.0
        decay = self.settings.value_decay if self.gain_scale else 0.0
        self.gain_scale = decay * self.gain_scale + (1 - decay) * mean
        for gain in all_gains:
            gain *= self.settings.gain_coef / (self.gain_scale or 1.0)
        own_steps = max(0.0, self.env_steps + self.rollout_steps - self.taught_steps)
        metrics = {"gain_scale": self.gain_scale, OWN_STEPS: own_steps}
        return {**super().update(), **metrics}

    # --- Decisions -------------------------------------------------------------------------------

    def play_on(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return the decisions without exploration: int64 [R, N]."""
        return (self.teach if self.taught else self.decide)(observations, acting)

    def teach(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return the decisions of the teacher: int64 [R, N]; 0 if an agent does not act."""
        assert self.teacher is not None  # set by ``check``
        actions = np.zeros(acting.shape, dtype=np.int64)
        for i, agent in enumerate(self.rules.agents):
            if not len(rows := np.flatnonzero(acting[:, i])):
                continue
            observed = observations[agent] if len(rows) == len(acting) else None
            observed = take_tree(observations[agent], rows) if observed is None else observed
            policy = self.teacher.policies[agent]
            actions[rows, i] = policy.act(observed, None, self.tried_rng, deterministic=True).action
        return actions

    def decide(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return the greedy decisions of the policies: int64 [R, N]; 0 if an agent does not act."""
        actions = np.zeros(acting.shape, dtype=np.int64)
        for learner, rows, parts, mask in self._inputs(observations, acting):
            columns = learner.group.columns
            with torch.inference_mode():
                logits, _ = learner.actor.step(parts, parts[0].new_zeros(len(mask), 0))
                best = np.zeros(acting[:, columns].shape, dtype=np.int64)
                best.reshape(-1)[rows] = likeliest(logits, mask)
            actions[:, columns] = best
        return actions

    def value(self, observations: Mapping[str, Observation], acting: Array) -> Array:
        """Return the values of both players of a zero-sum game in turn: float64 [R, 2], by the
        critic of the player to move; 0 if none moves."""
        values = np.zeros(acting.shape)
        for learner, rows, parts, _ in self._inputs(observations, acting):
            columns = learner.group.columns
            with torch.inference_mode():
                outputs = learner.value_norm.restore(learner.critic(parts)[:, 0])
            movers = np.zeros(acting[:, columns].shape)
            movers.reshape(-1)[rows] = outputs.cpu().numpy()
            values[:, columns] = movers
        return values - values[:, ::-1]

    def _inputs(
        self, observations: Mapping[str, Observation], acting: Array
    ) -> Iterator[tuple[Learner, Any, Parts, torch.Tensor]]:
        """Yield each learner with acting agents, their rows in [R * P], inputs and masks."""
        for name, learner in self.learners.items():
            group = learner.group
            group_acting = acting[:, group.columns].reshape(-1)
            rows = None if group_acting.all() else np.flatnonzero(group_acting)
            if rows is not None and not len(rows):
                continue
            buffer, at = self._buffers.get(name), slice(len(acting))
            if buffer is None or len(buffer.acting) < len(acting):
                buffer = self._buffers[name] = ObservationBuffer(group, len(acting))
            buffer.store(at, observations)
            parts, mask = buffer.tensors(at, rows, learner.device)
            yield learner, slice(None) if rows is None else rows, parts, mask

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        """Return the base class's content, and the state of the comparisons and the teacher."""
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
            raise CheckpointError(f"not a checkpoint of {self.name}: {error!r}") from error
