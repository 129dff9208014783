"""The trainer of on-policy algorithms (MAPPO, IPPO, A2C, ...), defined by algorithm records.

One loop serves all kinds of games: simultaneous or turn-based, with different agents, and with
agents that end early. Discounting counts an agent's own decisions (see ``maths.gae``). An agent
that does not act, or is dead, is not part of losses and metrics. At a time limit and at the end of
the rollout, returns bootstrap with the value of the last observation.

``learn`` alternates ``collect``, which plays a rollout, and ``update``: values, advantages, epochs
of minibatches. The algorithm record defines the loss: see ``records``. Global random generators are
not used. A run that is saved and loaded continues bit-identically.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from corral.adapters.models import Make
from corral.adapters.networks import Parts
from corral.envs.batch import batch_for
from corral.envs.core import Array, Observation, Rules, first_action_of, generator
from corral.envs.episode_stats import EpisodeStats
from corral.envs.policy import Policy
from corral.errors import CheckpointError
from corral.trainers.base import Episode, StepwiseTrainer, Update
from corral.trainers.capabilities import Capabilities, Seats
from corral.trainers.observers import Observer
from corral.trainers.on_policy import critic, maths, records, saving
from corral.trainers.on_policy.algorithms import a2c, adam, ippo, mappo, pg, pg_episode, ppo_kl
from corral.trainers.on_policy.buffer import RolloutBuffer, make_groups
from corral.trainers.on_policy.learner import HiddenState, Learner, Sequences, device_of, try_out
from corral.trainers.on_policy.minibatches import Metrics, Minibatches
from corral.trainers.on_policy.players import LearnedPlayer, OpponentPlayer
from corral.trainers.on_policy.records import (
    Minibatch,
    OnPolicy,
    Outputs,
    TrackedMinibatch,
    Trajectories,
)
from corral.trainers.opponents.playing import Opponents
from corral.trainers.policies import actor_policy, unmasked
from corral.trainers.rng import torch_generator
from corral.trainers.schedules import scheduled

__all__ = [
    "A2C",
    "IPPO",
    "MAPPO",
    "PG",
    "PG_EPISODE",
    "PPO_KL",
    "OnPolicyTrainer",
    "trainer_of",
]

MakeBatch = Callable[[Any, int, int], Any]


class OnPolicyTrainer(StepwiseTrainer):
    """Trains with ``algorithm``; ``trainer_of`` builds the trainer class of an algorithm."""

    algorithm: ClassVar[OnPolicy]
    capabilities = Capabilities(
        opponents=True, pool=True, model=True, settings_of=True, advantages=True
    )
    resumes_exactly = True

    # --- Settings and networks -------------------------------------------------------------------

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
        seats: Seats | None = None,
        settings_of: Mapping[str, Mapping[str, Any]] | None = None,
        make_batch: MakeBatch | None = None,
        model: Make | None = None,
    ) -> None:
        """Build the groups, learners and players.

        ``rules``: built-in, custom, or from ``corral.adapters.zoo_rules``. ``seats`` contains the
        players of agents without a policy, and the snapshot pool. ``settings_of`` overrides
        settings of single policies. ``make_batch(rules, num_envs, seed)`` returns the environment
        copies; default: a Batch, or a ZooBatch for ``zoo_rules``. ``model``: see
        ``corral.adapters.models``. Raises UnsupportedSpaceError if no network fits the spaces, or
        if the agents of one policy differ; ModelError.
        """
        self.rules, self.settings, self.seed, self.steps = rules, settings, seed, steps
        self.env_steps = 0
        self._policy_of, self.model = dict(policies), model
        self._make_batch = make_batch or partial(batch_for, workers=settings.workers)
        seats = seats or Seats()
        self.opponents = Opponents(
            rules, seats.opponents, num_envs=settings.num_envs, seed=seed, pins=seats.runs
        )
        # Each opponent is a separate group after the learners' groups; critics may observe them.
        opponent_groups = {agent: f"opponent {agent}" for agent in seats.opponents}
        self.groups = make_groups(rules, {**policies, **opponent_groups}, settings.agent_id)
        kind: Any = self.algorithm.critic_input or getattr(settings, "critic_input", "state")
        own_action = bool(getattr(settings, "own_action", False))
        self.critic_input = critic.CriticInput(kind, self.groups, rules, own_action)
        self.learners: dict[str, Learner] = {}
        self.hidden: dict[str, HiddenState] = {}
        self.players: list[Any] = []  # LearnedPlayer, OpponentPlayer or CastPlayer
        self.action_rng = torch_generator(seed, "policy", 0)
        self.shuffle_rng = generator(seed, "minibatch", 0)
        for i, group in enumerate(self.groups):
            if group.agents[0] in self.opponents:
                self.players.append(OpponentPlayer(self.opponents, group.agents[0]))
                continue
            policy_settings = replace(settings, **(settings_of or {}).get(group.policy, {}))
            learner = make_learner(self, i, policy_settings, group.policy in policies_to_train)
            hidden = HiddenState(group, settings.num_envs, policy_settings.memory)
            self.learners[group.policy], self.hidden[group.policy] = learner, hidden
            extras = records.extras_of(self.algorithm, group.policy) if learner.trained else None
            self.players.append(LearnedPlayer(learner, hidden, self.action_rng, extras))
        self.episode_stats = EpisodeStats(rules.agents)
        self.batch: Any = None
        self.obs: Any = None  # observations of the next step
        self.snapshot: dict[str, Any] | None = None  # state to restore into the next batch
        self._wraps: list[Callable[[Any], Any]] = []  # wrappers of the batch, see ``wrap_batches``
        self.observers: tuple[Observer, ...] = ()
        if seats.pool is not None:
            from corral.trainers.on_policy.casting import Casting, CastPlayer

            self.casting = Casting(self, seats)
            self.players = [
                CastPlayer(player, self.casting)
                if isinstance(player, LearnedPlayer) and player.learner.trained
                else player
                for player in self.players
            ]

    @property
    def policies(self) -> dict[str, Policy]:
        """agent -> its policy, learned or of an opponent."""
        policies = dict(self.opponents.policies)
        for agent, name in self._policy_of.items():
            learner = self.learners[name]
            policies[agent] = actor_policy(
                learner, learner.group, agent, unmasked=unmasked(self.rules, agent)
            )
        return {agent: policies[agent] for agent in self.rules.agents}

    def check(self) -> None:
        """Raise ValueError for a missing device, ModelError, and the errors of
        ``Opponents.begin``."""
        self.opponents.begin()
        try_out(self.settings.device, self.learners)

    @property
    def rollout_steps(self) -> int:
        """Env steps of a rollout, over all environment copies."""
        return int(self.settings.num_envs * self.settings.n_steps)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates while whole rollouts fit into ``steps``; at least one.

        Default: the planned steps, at which annealing ends.
        """
        self.check()
        per_rollout = self.rollout_steps
        last = max(1, (self.steps if steps is None else steps) // per_rollout) * per_rollout
        self.begin()
        while self.env_steps < last:
            episodes, seconds = self.collect()
            self.show_rollout()
            yield self.learn_from(episodes, seconds)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Register an observer; call the returned function to remove it."""
        self.observers = (*self.observers, observer)

        def end() -> None:
            self.observers = tuple(other for other in self.observers if other is not observer)

        return end

    def play_against(self, players: Mapping[str, str | Policy]) -> None:
        """Replace the opponents' players, agent -> player, before the first step."""
        self.opponents = Opponents(
            self.rules, players, num_envs=self.settings.num_envs, seed=self.seed
        )
        for player in self.players:
            if isinstance(player, OpponentPlayer):
                player.opponents = self.opponents

    def wrap_batches(self, wrap: Callable[[Any], Any]) -> bool:
        self._wraps.append(wrap)
        return True

    def callbacks(self) -> Sequence[Any]:
        if self.casting is None:
            return ()
        from corral.trainers.selfplay.keeper import PoolKeeper

        return [PoolKeeper(self.casting)]

    def show_rollout(self) -> None:
        """Pass the rollout of ``collect`` to the observers."""
        for observer in self.observers:
            observer.on_rollout(self.rollout)

    def learn_from(self, episodes: list[Episode], seconds: dict[str, float]) -> Update:
        """Learn from the rollout of ``collect``, with the values it returned; return the update."""
        clock = time.perf_counter()
        metrics = self.update()
        seconds["learning"] = time.perf_counter() - clock
        self.env_steps += self.rollout_steps
        if self.casting is not None:
            self.casting.take()
            metrics |= self.casting.figures()
        means = self.rollout.reward.mean(axis=(0, 1), dtype=np.float64)  # [T, B, N]: [N]
        rewards = dict(zip(self.rules.agents, means.tolist(), strict=True))
        return Update(self.env_steps, episodes, metrics, seconds, rewards)

    # --- Rollout ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the batch; restore the snapshot if there is one, else start episodes."""
        settings = self.settings
        if self.batch is None:
            batch = self._make_batch(self.rules, settings.num_envs, self.seed)
            for wrap in self._wraps:
                batch = wrap(batch)
            self.batch = batch
            self.resumes_exactly = bool(self.batch.resumes_exactly)
            self.rollout = RolloutBuffer(
                self.groups,
                settings.n_steps,
                settings.num_envs,
                self.rules.agents,
                self.critic_input.features,
            )
        if self.snapshot is not None:
            try:
                self.obs = self.batch.restore(self.snapshot)
            except ValueError as error:
                raise CheckpointError(str(error)) from error
        elif self.obs is None:
            self.obs = self.batch.reset()
        self.snapshot = None
        if self.casting is not None:
            self.casting.begin()

    def go_on_from(self, env_steps: int, snapshot: dict[str, Any] | None) -> None:
        """Continue after ``env_steps`` from the batch's ``snapshot``; None: start new episodes."""
        self.env_steps, self.snapshot, self.obs = env_steps, snapshot, None
        self.resumes_exactly = snapshot is not None

    @contextlib.contextmanager
    def playing_in(self, batch: Any) -> Iterator[None]:
        """Temporarily play in ``batch``, which must forward to the trainer's batch."""
        previous, self.batch = self.batch, batch
        try:
            yield
        finally:
            self.batch = previous

    def collect(self) -> tuple[list[Episode], dict[str, float]]:
        """Play T steps in all copies; return the finished episodes and the seconds spent."""
        rollout, batch = self.rollout, self.batch
        global_state = partial(self.critic_input.state, batch)
        rollout.begin()
        for hidden in self.hidden.values():
            hidden.begin_rollout()
        episodes: list[Episode] = []
        seconds = {"env": 0.0, "inference": 0.0}
        for t in range(self.settings.n_steps):
            clock = time.perf_counter()
            rollout.store_obs(t, self.obs, global_state(), batch.acting)
            for buffer, player in zip(rollout.groups, self.players, strict=True):
                player.act(buffer, t, self.obs)
            actions = rollout.actions(t)
            then = time.perf_counter()
            seconds["inference"] += then - clock
            step = batch.step(actions)
            rollout.store_step(t, step)
            if np.count_nonzero(rollout.truncated[t]):
                for buffers, obs, env_rows in rollout.store_final_obs(t, step, global_state):
                    self._sample_unplayed(buffers, ..., obs, env_rows)
            if step.finished is not None:
                for player in self.players:
                    player.reset(step.finished.rows)
            ended = self.episode_stats.add(step)
            episodes += ended if self.casting is None else self.casting.ended(ended)
            self.obs = step.observations
            seconds["env"] += time.perf_counter() - then
        clock = time.perf_counter()
        end = self.settings.n_steps
        rollout.store_obs(end, self.obs, global_state(), batch.acting)
        self._sample_unplayed(rollout.groups, end, self.obs)
        seconds["inference"] += time.perf_counter() - clock
        return episodes, seconds

    def _sample_unplayed(self, buffers: Sequence[Any], at: Any, obs: Any, *env_rows: Array) -> None:
        """Sample actions for observations that are not played, if critics observe actions."""
        if self.critic_input.with_actions:
            for buffer, player in zip(buffers, self.players, strict=True):
                player.sample_unplayed(buffer, at, obs, *env_rows)

    # --- Update ----------------------------------------------------------------------------------

    def update(self) -> dict[str, float]:
        """Update each trained policy with the rollout; return the metrics."""
        by_policy: dict[str, dict[str, float]] = {}
        for i, (name, learner) in enumerate(
            self.learners.items()
        ):  # learners have the first groups
            if learner.trained:
                by_policy[name] = self.update_policy(i, learner)
                saving.require_finite_weights(name, learner)
                learner.require_gradients()
        names = dict.fromkeys(key for values in by_policy.values() for key in values)
        metrics = {  # 0 if a policy had no valid decisions
            f"{policy}/{key}" if len(self.learners) > 1 else key: values.get(key, 0.0)
            for policy, values in by_policy.items()
            for key in names
        }
        for observer in self.observers:
            observer.on_update(metrics)
        return metrics

    def update_policy(self, i: int, learner: Learner) -> dict[str, float]:
        """Update the policy of group ``i`` with the rollout; return its metrics."""
        algorithm, settings = self.algorithm, learner.settings
        buffer, norm = self.rollout.groups[i], learner.value_norm
        sequences, hidden = None, self.hidden[learner.group.policy]
        if settings.memory:
            sequences = Sequences(buffer.acted, self.rollout.begins(learner.group))

        critic_obs = self.critic_input.tensors(learner, self.rollout, i)
        values = compute_values(self, i, learner, critic_obs, sequences)
        trajectories = Trajectories.of(self.rollout, buffer, values)
        policy, valid = learner.group.policy, trajectories.valid
        advantages = records.advantages_of(algorithm, policy, trajectories, settings)
        for observer in self.observers:
            observer.on_advantages(learner, trajectories, advantages)
        target = torch.from_numpy(advantages.value_target[valid])
        norm.update(target)

        progress = self.env_steps / self.steps
        rate = scheduled(settings, "learning_rate", env_steps=self.env_steps, progress=progress)
        for group in learner.optimizer.param_groups:
            group["lr"] = rate
        minibatches = Minibatches(
            learner,
            buffer,
            critic_obs,
            advantages,
            values.raw,
            valid,
            sequences,
            hidden,
            env_steps=self.env_steps,
            progress=progress,
        )
        metrics = Metrics()
        parts = min(getattr(settings, "n_minibatches", 1), len(minibatches.units))
        for epoch in range(getattr(settings, "n_epochs", 1) if parts else 0):
            metrics.begin_epoch()
            for minibatch, outputs in minibatches.epoch(epoch, self.shuffle_rng, parts):
                numbers = self.update_minibatch(learner, minibatch, outputs)
                metrics.add(numbers, len(minibatch))
            if algorithm.stop_early(metrics.means({}, "last_epoch"), settings):
                break
        reported = metrics.means(algorithm.reports)
        if parts:
            algorithm.after_update(learner, reported, settings)
        return reported | {
            "explained_variance": maths.explained_variance(values.value[valid], target.numpy()),
            "value_scale": norm.scale,
            "learning_rate": rate,
        }

    def update_minibatch(
        self, learner: Learner, minibatch: Minibatch, outputs: Outputs
    ) -> dict[str, float]:
        """Take one optimizer step; return its metrics. Raises AlgorithmError or NonFiniteError
        before the step."""
        algorithm, settings = self.algorithm, learner.settings
        context = f"{algorithm.name}, policy {learner.group.policy}"
        if any(observer.tracks_reads for observer in self.observers):
            minibatch = TrackedMinibatch.of(minibatch)
        losses = algorithm.loss(minibatch, outputs, settings)
        for observer in self.observers:
            observer.on_minibatch(learner, minibatch, outputs, losses)
        learner.optimizer.zero_grad()
        records.backward(losses, learner, context)
        learner.see_gradients()
        for observer in self.observers:
            observer.on_gradients(learner, clipped=False)
        norms = algorithm.gradients(learner, settings)
        for observer in self.observers:
            observer.on_gradients(learner, clipped=True)
        with torch.no_grad():
            statistics = algorithm.metrics(minibatch, outputs, losses, settings)
            numbers = records.finite_numbers(
                records.scalars_of(losses, statistics, norms, context), context
            )
        learner.optimizer.step()
        for observer in self.observers:
            observer.on_step(learner, minibatch, outputs, numbers)
        return numbers

    def values(
        self, observations: Mapping[str, Observation], state: Array | None = None
    ) -> dict[str, Array]:
        """Return V of each agent's observations [R, ...] and ``state`` [R, G]: float32 [R]."""
        agents, learners = self.rules.agents, list(self.learners.values())
        return critic.initial_values(self.critic_input, learners, agents, observations, state)

    # --- Saving ----------------------------------------------------------------------------------

    save, load = saving.save, saving.load
    weights, set_weights = saving.weights_of, saving.set_weights

    def export(self, folder: Path) -> list[Path]:
        """Write each policy's actor to <policy>.safetensors, and its description to .json."""
        return saving.export(self.learners.values(), folder, self.model)

    def close(self) -> None:
        """Stop worker processes, if any."""
        if self.batch is not None:
            self.batch.close()


def trainer_of(algorithm: OnPolicy) -> type[OnPolicyTrainer]:
    """Return the trainer class of an algorithm, in the form that ``corral.trainers`` registers."""
    fields = {
        "algorithm": algorithm,
        "name": algorithm.name,
        "Settings": algorithm.Settings,
        "__module__": __name__,
    }
    return type(algorithm.name.upper(), (OnPolicyTrainer,), fields)


MAPPO, IPPO, PPO_KL = trainer_of(mappo), trainer_of(ippo), trainer_of(ppo_kl)
A2C, PG, PG_EPISODE = trainer_of(a2c), trainer_of(pg), trainer_of(pg_episode)


# --- Functions of the trainer --------------------------------------------------------------------


def make_learner(trainer: OnPolicyTrainer, i: int, settings: Any, trained: bool) -> Learner:
    """Return the learner of group ``i``: its networks and its optimizer."""
    device = device_of(settings.device, trainer.groups)
    rng = torch_generator(trainer.seed, "init", i)
    optimizer: Any = adam  # the shapes of its moments are known before a step, see ``saving``
    if trainer.algorithm.optimizer is not adam:
        optimizer = partial(records.optimizer_of, trainer.algorithm, trainer.groups[i].policy)
    learner = Learner(
        trainer.groups[i],
        settings,
        trainer.critic_input,
        trainer.model,
        optimizer,
        rng,
        device,
        trained,
    )
    if (action := first_action_of(trainer.rules)) is not None:
        learner.prefer(action)
    return learner


def compute_values(
    trainer: OnPolicyTrainer, i: int, learner: Learner, obs: Parts, sequences: Sequences | None
) -> critic.Values:
    """Return the values of all observations ``obs`` [T + 1, B, P, ...] of group ``i``.

    A recurrent critic needs the ``sequences`` of the decisions; its hidden state is updated.
    """
    rollout, group = trainer.rollout, learner.group
    acted, final_obs = rollout.groups[i].acted, []
    at, step, column = rollout.cut(group)
    if len(at):
        parts = trainer.critic_input.tensors(learner, rollout.finals, i)
        final_obs = [part.flatten(0, 1)[at] for part in parts]
    if sequences is None:
        outputs = critic.critic_outputs(learner.critic, obs, acted, final_obs, len(at))
    else:
        hidden = trainer.hidden[group.policy]
        outputs = critic.recurrent_outputs(learner, hidden, rollout, sequences, obs, final_obs)
    return critic.Values.of(learner, acted, outputs, step, column)
