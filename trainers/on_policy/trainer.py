"""PPO for teams, with masks: MAPPO, whose critic sees everything, and IPPO, whose does not.

Yu et al., The Surprising Effectiveness of PPO in Cooperative Multi-Agent Games (2022). One loop for
every kind of game: all at once or in turn, agents that differ, agents that end before the others.
An agent's time is its own decisions (see ``corral.trainers.on_policy.maths.gae``): who does not
act, or is dead, is in no loss and no statistic. The value of the last observation stands for what
would follow where a time limit cuts an episode, and where the rollout ends.

Nothing draws from a global generator. A run that is saved and loaded goes on bit for bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from corral.adapters.zoo.batch import batch_for
from corral.envs.batch import BatchStep
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.episode_stats import EpisodeStats
from corral.envs.policy import Policy
from corral.errors import CheckpointError, NonFiniteError
from corral.trainers.base import Episode, Update
from corral.trainers.evaluation.players import take_tree
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.buffer import (
    Frames,
    Rollout,
    Seat,
    Sequences,
    Track,
    frame_parts,
    joined,
)
from corral.trainers.on_policy.critic_input import critic_parts, critic_sees
from corral.trainers.on_policy.learner import Learner, device_of, make_seats
from corral.trainers.on_policy.minibatches import Means, Views
from corral.trainers.on_policy.networks import Network, Parts, describe
from corral.trainers.on_policy.opponents import Opponents
from corral.trainers.on_policy.settings import IPPOSettings, MAPPOSettings
from corral.trainers.on_policy.weights import (
    load_policy,
    policy_arrays,
    require_finite_weights,
)
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.checkpoint import Content, require_arrays
from corral.trainers.runs.checkpoint_format import encode_arrays, encode_document

__all__ = ["IPPO", "MAPPO", "IPPOSettings", "Learner", "MAPPOSettings"]

CHUNK = 4096
"""Rows that a critic is asked for at once: more would not fit into a processor's cache."""
MakeBatch = Callable[[Any, int, int], Any]


# --- The trainers --------------------------------------------------------------------------------


class MAPPO:
    """PPO with a centralised critic. See ``MAPPOSettings``."""

    name: ClassVar[str] = "mappo"
    Settings: ClassVar[type] = MAPPOSettings
    plays_opponents: ClassVar[bool] = True

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
        opponents: Mapping[str, str] | None = None,
        make_batch: MakeBatch | None = None,
    ) -> None:
        """``rules`` of the suite, of one's own, or of ``corral.adapters.zoo_rules``.

        ``opponents`` names the reference players of agents that have no policy, see
        ``corral.trainers.on_policy.opponents``. ``make_batch(rules, copies, seed)`` gives what is
        played in; default: a Batch, or a ZooBatch for those of ``zoo_rules``.

        Raises UnsupportedSpaceError for spaces that have no place in
        ``corral.trainers.on_policy.networks``, and where agents of one policy differ.
        """
        self.rules = rules
        self.settings = settings
        self.seed = seed
        self.steps = steps
        self.env_steps = 0
        self._policy_of = dict(policies)
        self._make_batch = make_batch or partial(batch_for, workers=settings.workers)
        self._opponents = Opponents(rules, opponents or {}, num_envs=settings.num_envs, seed=seed)
        # Seats of opponents come last, one each: critics may be shown what they see and do.
        beside = {agent: f"opponent {agent}" for agent in opponents or ()}
        self._seats = make_seats(rules, {**policies, **beside}, settings.agent_id)
        self._learning = [seat for seat in self._seats if not self._is_opponent(seat)]
        self._device = device_of(settings.device, self._seats)
        self._features = 0
        if self.critic_input == "state":
            self._features = math.prod(rules.state_space().shape)
        if getattr(settings, "own_action", False):
            warnings.warn(
                "own_action=True: a critic that sees the own action is no plain baseline, the "
                "policy gradient is biased. Leave it out unless that is what is studied",
                stacklevel=2,
            )
        self._learners = {
            seat.policy: self._learner(seat, place, seat.policy in policies_to_train)
            for place, seat in enumerate(self._learning)
        }
        self._chance = torch.Generator().manual_seed(_number(seed, "policy", 0))
        self._shuffles = generator(seed, "minibatch", 0)
        self._rollout: Rollout | None = None
        self._accounts = EpisodeStats(rules.agents)
        # Of actor and critic, where they have memory: float32 [C, memory] before the next step.
        self._memory = {
            seat.policy: {
                kind: np.zeros((settings.num_envs * len(seat.agents), settings.memory), np.float32)
                for kind in ("actor", "critic")
            }
            for seat in self._learning
        }
        self._batch: Any = None
        self._seen: Any = None  # observations for the next decision
        self._resumed: dict[str, Any] | None = None  # a snapshot for the batch to come
        self._exact = True

    @property
    def critic_input(self) -> str:
        """What the critic sees: one of CRITIC_INPUTS, or "own"."""
        return str(self.settings.critic_input)

    def _learner(self, seat: Seat, place: int, trained: bool) -> Learner:
        rng = torch.Generator().manual_seed(_number(self.seed, "init", place))
        sees = critic_sees(seat, self._seats, self.critic_input, self._features)
        return Learner(seat, self.settings, sees, rng=rng, device=self._device, trained=trained)

    def _is_opponent(self, seat: Seat) -> bool:
        return seat.agents[0] in self._opponents

    @property
    def policies(self) -> dict[str, Policy]:
        """Those that are learned, and the opponents."""
        known = self._opponents.policies
        return {
            agent: known[agent]
            if agent in known
            else NetworkPolicy(self._learners[self._policy_of[agent]], agent)
            for agent in self.rules.agents
        }

    @property
    def resumes_exactly(self) -> bool:
        return self._exact

    def learn(self) -> Iterator[Update]:
        """Rollouts and updates as long as whole rollouts fit into ``steps``, at least one."""
        per_rollout = self.settings.num_envs * self.settings.n_steps
        last = max(1, self.steps // per_rollout) * per_rollout
        self._begin()
        while self.env_steps < last:
            rollout, episodes, seconds = self._collect()
            clock = time.perf_counter()
            metrics = self._update(rollout)
            seconds["learning"] = time.perf_counter() - clock
            self.env_steps += per_rollout
            yield Update(self.env_steps, episodes, metrics, seconds)

    # --- Rollout ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make what is played in, and go on where it was; begins episodes where there are none."""
        if self._batch is None:
            self._batch = self._make_batch(self.rules, self.settings.num_envs, self.seed)
            self._exact = bool(getattr(self._batch, "resumes_exactly", True))
        if self._resumed is not None:
            try:
                self._seen = self._batch.restore(self._resumed)
            except ValueError as error:
                raise CheckpointError(str(error)) from error
        elif self._seen is None:
            self._seen = self._batch.reset()
        self._resumed = None
        if self._rollout is None:
            given, agents = self.settings, self.rules.agents
            self._rollout = Rollout(
                self._seats, given.n_steps, given.num_envs, agents, self._features
            )

    def _collect(self) -> tuple[Rollout, list[Episode], dict[str, float]]:
        """Play T steps of all copies."""
        rollout, batch = self._rollout, self._batch
        assert rollout is not None
        rollout.begin()
        self._memory_before = {
            name: {kind: values.copy() for kind, values in kept.items()}
            for name, kept in self._memory.items()
        }
        episodes: list[Episode] = []
        seconds = {"env": 0.0, "inference": 0.0}
        for t in range(self.settings.n_steps):
            clock = time.perf_counter()
            rollout.see(t, self._seen, self._global_state())
            rollout.acted[t] = batch.acting
            with torch.inference_mode():
                actions = self._act(rollout, t)
            then = time.perf_counter()
            seconds["inference"] += then - clock
            step = batch.step(actions)
            rollout.pay(t, step)
            if np.count_nonzero(rollout.truncated[t]):
                self._see_last(rollout, t, step)
            if step.finished is not None:
                self._forget(step.finished.rows)
            episodes += self._accounts.add(step)
            self._seen = step.observations
            seconds["env"] += time.perf_counter() - then
        clock = time.perf_counter()
        rollout.see(self.settings.n_steps, self._seen, self._global_state())
        rollout.acting[...] = batch.acting
        if self.critic_input == "observations+actions":
            for i, track in enumerate(rollout.tracks):
                wanted = rollout.acting[:, track.seat.places]
                track.next_action[...] = self._would_play(
                    i, track, self.settings.n_steps, wanted, self._seen
                )
        seconds["inference"] += time.perf_counter() - clock
        return rollout, episodes, seconds

    def _global_state(self) -> Array | None:
        if not self._features:
            return None
        state = np.asarray(self._batch.global_state())
        return state.reshape(len(state), -1)

    def _act(self, rollout: Rollout, t: int) -> Any:
        """Draw the actions of step ``t`` for all who act; what the batch is given."""
        acted = rollout.acted[t]  # [B, N]
        for track in rollout.tracks:
            seat = track.seat
            own = acted[:, seat.columns].reshape(-1)  # [C]
            if self._is_opponent(seat):
                (agent,) = seat.agents
                track.action[t][:, 0] = self._opponents.act(agent, self._seen[agent], own)
                continue
            rows = None if own.all() else np.flatnonzero(own)
            action, log_prob = track.action[t], track.log_prob[t]  # views [B, P, ...]
            if rows is not None:
                action[...] = 0
                log_prob[...] = 0
                if not len(rows):
                    continue
            at = slice(None) if rows is None else rows
            learner, kept = self._learners[seat.policy], self._memory[seat.policy]["actor"]
            parts, mask = frame_parts(track, t, rows, self._device)
            outputs, after = learner.actor.step(parts, self._tensor(kept[at]))
            choice = learner.distribution(outputs, mask)
            drawn = choice.sample(self._chance)
            action.reshape(len(own), *seat.actions.shape)[at] = drawn.cpu().numpy()
            log_prob.reshape(-1)[at] = choice.log_prob(drawn).cpu().numpy()
            if learner.actor.memory:
                kept[at] = after.cpu().numpy()
        return self._played(rollout, t)

    def _played(self, rollout: Rollout, t: int) -> Any:
        """Actions as the batch takes them: int64 [B, N], or a dict where some are not Discrete."""
        if all(not track.seat.actions.shape for track in rollout.tracks):
            actions = np.zeros(rollout.acted.shape[1:], dtype=np.int64)
            for track in rollout.tracks:
                actions[:, track.seat.columns] = track.action[t]
            return actions
        return {
            agent: track.seat.actions.played(track.action[t][:, j])
            for track in rollout.tracks
            for j, agent in enumerate(track.seat.agents)
        }

    def _see_last(self, rollout: Rollout, t: int, step: BatchStep) -> None:
        """Take in the last observations of agents that were cut in step ``t``."""
        cut = rollout.truncated[t].any(axis=1)
        done = np.zeros(0, np.int64) if step.finished is None else step.finished.rows
        kept = cut[done]
        places: list[tuple[Array, Any, Any]] = []
        if step.finished is not None and kept.any():
            seen = take_tree(step.finished.observations, kept)
            places.append((done[kept], seen, step.finished.global_state[kept]))
        # A single agent's limit, while the others go on: it sees its last where it stands.
        going_on = np.setdiff1d(np.flatnonzero(cut), done)
        if len(going_on):
            state = self._global_state()
            own = None if state is None else state[going_on]
            places.append((going_on, take_tree(step.observations, going_on), own))
        for env_rows, seen, state in places:
            wide = None if not self._features else np.asarray(state).reshape(len(env_rows), -1)
            finals = rollout.see_last(t, env_rows, seen, wide)
            for i, frames in enumerate(finals):
                shape = (len(env_rows), len(frames.seat.agents))
                action = np.zeros((*shape, *frames.seat.actions.shape), frames.seat.actions.dtype)
                wanted = np.zeros(shape, dtype=bool)
                if self.critic_input == "observations+actions":
                    # Who would act. A mask tells; without one, whoever was cut.
                    wanted |= rollout.truncated[t][env_rows][:, frames.seat.places]
                    if frames.seat.layout.masked:
                        wanted &= frames.mask.any(axis=-1)
                    action[...] = self._would_play(i, frames, ..., wanted, seen, env_rows)
                rollout.final_action[i].append(action)
                rollout.final_acts[i].append(wanted)

    def _would_play(
        self,
        i: int,
        frames: Frames,
        at: Any,
        wanted: Array,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> Array:
        """Actions drawn for a moment that is not played on, where ``wanted`` bool [D, P]."""
        seat = frames.seat
        if self._is_opponent(seat):
            (agent,) = seat.agents
            seen, acts = observations[agent], wanted[:, 0]
            return self._opponents.would_play(agent, seen, acts, env_rows)[:, None]
        learner, kept = self._learners[seat.policy], self._memory[seat.policy]["actor"]
        action = np.zeros((*wanted.shape, *seat.actions.shape), seat.actions.dtype)
        rows = np.flatnonzero(wanted)
        if len(rows):
            if env_rows is not None:
                places = np.arange(len(seat.agents))
                kept = kept[(env_rows[:, None] * len(seat.agents) + places).reshape(-1)]
            parts, mask = frame_parts(frames, at, rows, self._device)
            with torch.inference_mode():
                outputs, _ = learner.actor.step(parts, self._tensor(kept[rows]))
                drawn = learner.distribution(outputs, mask).sample(self._chance).cpu().numpy()
            action.reshape(wanted.size, *seat.actions.shape)[rows] = drawn
        return action

    def _forget(self, env_rows: Array) -> None:
        """Actors begin anew in ``env_rows``, whose episodes are over."""
        self._opponents.forget(env_rows)
        if self.settings.memory:
            for seat in self._learning:
                kept = self._memory[seat.policy]["actor"]
                kept.reshape(-1, len(seat.agents), kept.shape[-1])[env_rows] = 0

    def _tensor(self, values: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._device)

    # --- Advantages ------------------------------------------------------------------------------

    def _judge(self, rollout: Rollout, i: int, shown: Parts) -> tuple[Array, Array, Array, Array]:
        """What the critic of seat ``i`` says of all that was seen, by the environment's scale.

        V [T, C] where its agents acted; V of what is seen last, [C]; V of the last observations
        where the time limit cut, [T, C], else 0; and the critic's own outputs [T, C].
        """
        track = rollout.tracks[i]
        learner = self._learners[track.seat.policy]
        steps, columns = track.log_prob.shape[0], track.log_prob[0].size
        acted = rollout.acted[:, :, track.seat.columns].reshape(steps, columns)
        final_step, final_copy = joined(rollout.final_step), joined(rollout.final_copy)
        cut = rollout.truncated[:, :, track.seat.columns][final_step, final_copy]  # [E, P]
        event, place = np.nonzero(cut)
        at_step = final_step[event]
        at_column = final_copy[event] * len(track.seat.agents) + place
        last = self._critic_sees(rollout, i, final=True) if len(event) else []
        last = [part.flatten(0, 1)[event * len(track.seat.agents) + place] for part in last]
        raw = np.zeros((steps, columns), dtype=np.float32)
        critic = learner.critic
        if critic.memory:
            sequences = Sequences(acted, _begins(rollout, track))
            kept = self._memory_before[track.seat.policy]["critic"]
            flat = [part[:-1].flatten(0, 2) for part in shown]
            with torch.inference_mode():
                states = self._tensor(np.zeros((0, critic.memory), np.float32))
                if len(sequences.rows):
                    states = self._states(critic, flat, kept, sequences)
                    raw.reshape(-1)[sequences.rows] = critic.head(states)[:, 0].cpu().numpy()
                # After each step; held where a column did not act, 0 where an episode began.
                held = np.where((sequences.episode == 0)[..., None], kept, np.float32(0))
                latest = sequences.last_decision()
                held[latest >= 0] = states.cpu().numpy()[latest[latest >= 0]]
                now = held[-1]
                now[np.repeat(rollout.over[-1], len(track.seat.agents))] = 0
                self._memory[track.seat.policy]["critic"][...] = now
                cut_parts = [part[-1].flatten(0, 1) for part in shown]
                ahead = critic.step(cut_parts, self._tensor(now))[0][:, 0]
                beyond = ahead.new_zeros(0)
                if len(event):
                    at_end = self._tensor(held[at_step, at_column])
                    beyond = critic.step(last, at_end)[0][:, 0]
        else:
            flat = [part.flatten(0, 2) for part in shown]
            rows = np.flatnonzero(acted)
            raw.reshape(-1)[rows] = _values(critic, flat, rows).cpu().numpy()
            ahead = _values(critic, flat, np.arange(columns) + steps * columns)
            beyond = _values(critic, last, np.arange(len(event)))
        norm = learner.value_norm
        value = norm.restore(torch.from_numpy(raw)).numpy()
        final = np.zeros((steps, columns), dtype=np.float32)
        final[at_step, at_column] = norm.restore(beyond.cpu()).numpy()
        ahead_value = norm.restore(ahead.cpu()).numpy()
        for what, values in (
            ("rollout", value),
            ("last observations", final),
            ("cut", ahead_value),
        ):
            if not np.isfinite(values).all():
                raise NonFiniteError(
                    f"policy {track.seat.policy}: a value of the {what} is not finite. Training "
                    "has diverged: try a smaller learning_rate, and look at progress.csv"
                )
        return value, ahead_value, final, raw

    def _states(
        self, network: Network, parts: Parts, kept: Array, sequences: Sequences
    ) -> torch.Tensor:
        """A network's states after all decisions, of ``parts`` [T * C, ...]: [R, memory]."""
        decisions, padded, at = sequences.pick(np.arange(len(sequences.lengths)))
        before = np.where(sequences.goes_on[:, None], kept[sequences.column], np.float32(0))
        rows = self._tensor(sequences.rows[decisions])
        seen = [part[rows] for part in parts]
        states = network.unroll(seen, self._tensor(before), self._tensor(padded), self._tensor(at))
        in_order = torch.empty_like(states)
        in_order[self._tensor(decisions)] = states
        return in_order

    def _advantages(
        self, rollout: Rollout, track: Track, value: Array, ahead: Array, final: Array
    ) -> tuple[Array, Array]:
        """Of the decisions of a seat's agents: float32 [T, C]; and which are known, bool [T, C]."""

        def own(values: Array) -> Array:
            return values[:, :, track.seat.columns].reshape(len(values), -1)

        acted, ended = own(rollout.acted), own(rollout.terminated | rollout.truncated)
        last_acts = rollout.acting[:, track.seat.columns].reshape(-1)
        known = maths.settled(acted=acted, ended=ended, last_acts=last_acts)
        advantage = maths.gae(
            reward=own(rollout.reward),
            value=value,
            acted=acted,
            ended=ended,
            final_value=np.where(own(rollout.terminated), 0.0, final),
            last_value=ahead,
            gamma=self.settings.gamma,
            gae_lambda=self.settings.gae_lambda,
            known=known,
        )
        return advantage, known

    def _critic_sees(self, rollout: Rollout, i: int, final: bool = False) -> Parts:
        """See ``critic_parts``."""
        own_action = bool(getattr(self.settings, "own_action", False))
        parts = critic_parts(rollout, i, self.critic_input, own_action=own_action, final=final)
        return [self._tensor(part) for part in parts]

    # --- Update ----------------------------------------------------------------------------------

    def _update(self, rollout: Rollout) -> dict[str, float]:
        """Epochs of minibatches for each policy that trains; its figures."""
        metrics: dict[str, float] = {}
        # All is judged before anything is learned: the actions and values are of one moment.
        for i, track in enumerate(rollout.tracks):
            learner = self._learners.get(track.seat.policy)
            if learner is None or not learner.trained:
                continue
            prefix = f"{track.seat.policy}/" if len(self._learners) > 1 else ""
            for key, value in self._improve(rollout, i, learner).items():
                metrics[prefix + key] = value
            require_finite_weights(track.seat.policy, learner)
        return metrics

    def _improve(self, rollout: Rollout, i: int, learner: Learner) -> dict[str, float]:
        """Let one policy learn from a rollout."""
        given, track, norm = self.settings, rollout.tracks[i], learner.value_norm
        shown = self._critic_sees(rollout, i)
        value, ahead, final, raw = self._judge(rollout, i, shown)
        advantage, known = self._advantages(rollout, track, value, ahead, final)
        target = torch.from_numpy((advantage + value)[known])
        norm.update(target)

        progress = self.env_steps / self.steps
        end = given.ent_coef if given.ent_coef_end is None else given.ent_coef_end
        ent_coef = maths.linear(given.ent_coef, end, progress)
        rate = given.learning_rate
        rate = maths.linear(rate, 0.0, progress) if given.anneal else rate
        learner.optimizer.param_groups[0]["lr"] = rate

        # All that was decided, row by row of [T * C]; only rows that are known are learned from.
        weight = np.zeros_like(advantage)
        weight[known] = maths.normalized(advantage[known])
        wanted = np.zeros_like(advantage)
        wanted[known] = norm.normalize(target).numpy()
        decisions = {
            "action": track.action.reshape(advantage.size, *track.seat.actions.shape),
            "mask": track.mask[:-1].reshape(advantage.size, track.seat.actions.masks),
            "log_prob": track.log_prob.reshape(-1),
            "advantage": weight.reshape(-1),
            "target": wanted.reshape(-1),
            "before": raw.reshape(-1),
            "known": known.reshape(-1),
        }
        data = {key: self._tensor(values) for key, values in decisions.items()}
        begins, memory = _begins(rollout, track), self._memory_before[track.seat.policy]
        views = Views(rollout, track, learner, shown, known, begins, memory, self._tensor)

        seen = Means()
        units = views.units
        parts = min(given.n_minibatches, len(units))
        for _ in range(given.n_epochs if parts else 0):
            seen.begin_epoch()
            shuffled = self._shuffles.permutation(units)
            for chosen in np.array_split(shuffled, parts):
                self._minibatch(learner, views, data, chosen, ent_coef, seen)
            if given.target_kl is not None and seen.latest("approx_kl") > given.target_kl:
                break
        if given.kl_target is not None and parts:
            divergence = seen.latest("approx_kl")
            learner.kl_coef = maths.adapted_penalty(learner.kl_coef, divergence, given.kl_target)
        return {
            "policy_loss": seen.mean("policy_loss"),
            "value_loss": seen.mean("value_loss"),
            "entropy": seen.first("entropy"),
            "approx_kl": seen.latest("approx_kl"),
            "clip_fraction": seen.mean("clip_fraction"),
            "explained_variance": maths.explained_variance(value[known], target.numpy()),
            "grad_norm_actor": seen.mean("grad_norm_actor"),
            "grad_norm_critic": seen.mean("grad_norm_critic"),
            "value_scale": norm.scale,
            "learning_rate": rate,
        }

    def _minibatch(
        self,
        learner: Learner,
        views: Views,
        data: dict[str, torch.Tensor],
        chosen: Array,
        ent_coef: float,
        seen: Means,
    ) -> None:
        """One step of the optimiser."""
        given = self.settings
        outputs, values, rows = views.outputs(chosen)
        if views.sequences is not None:  # in order, to remember, with what is not learned from
            learned = data["known"][rows]
            outputs, values, rows = outputs[learned], values[learned], rows[learned]
        if not len(rows):
            return
        mini = {key: tensor.index_select(0, rows) for key, tensor in data.items()}
        choice = learner.distribution(outputs, mini["mask"])
        log_ratio = choice.log_prob(mini["action"]) - mini["log_prob"]
        surrogate = maths.clipped_surrogate(log_ratio, mini["advantage"], given.clip_range)
        policy_loss = surrogate.mean()
        divergence = maths.kl_estimate(log_ratio)
        entropy = torch.zeros(())
        if ent_coef or seen.first_epoch:  # else it is only told
            with torch.set_grad_enabled(bool(ent_coef)):
                entropy = choice.entropy().mean()
        actor_loss = policy_loss - ent_coef * entropy
        if learner.kl_coef:
            actor_loss = actor_loss + learner.kl_coef * divergence.mean()
        critic_loss = maths.value_loss(
            values,
            mini["target"],
            huber_delta=given.huber_delta,
            before=mini["before"],
            clip_range=given.clip_range_vf,
        ).mean()

        learner.optimizer.zero_grad()
        (actor_loss + critic_loss).backward()  # type: ignore[no-untyped-call]
        actor = maths.shorten_gradient(learner.actor_parameters, given.max_grad_norm)
        critic = maths.shorten_gradient(learner.critic_parameters, given.max_grad_norm)
        with torch.no_grad():
            clipped = (torch.expm1(log_ratio).abs() > given.clip_range).float().mean()
            told = torch.stack(
                (policy_loss, critic_loss, divergence.mean(), clipped, actor, critic, entropy)
            ).tolist()
        names = Means.NAMES
        for name, number in zip(names, told, strict=True):
            if not math.isfinite(number):
                raise NonFiniteError(
                    f"policy {learner.seat.policy}: {name} is {number}. Training has diverged: try "
                    "a smaller learning_rate, and look at the last rows of progress.csv"
                )
        learner.optimizer.step()
        seen.add(dict(zip(names, told, strict=True)), len(rows))

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        document: dict[str, Any] = {
            "env_steps": self.env_steps,
            "shuffles": self._shuffles.bit_generator.state,
            "kl_coef": {name: each.kl_coef for name, each in self._learners.items()},
        }
        arrays = {"generators": {"chance": self._chance.get_state().numpy().copy()}}
        for name, learner in self._learners.items():
            arrays |= policy_arrays(name, learner)
        if self._batch is not None and self._exact and self._seen is not None:
            snapshot = dict(self._batch.snapshot())
            arrays["environment"] = snapshot.pop("arrays")
            document["environment"] = snapshot
            arrays["accounts"] = {key: sums.copy() for key, sums in self._accounts.sums.items()}
            if self._opponents.policies:
                document["opponents"], arrays["opponents"] = self._opponents.save()
            if self.settings.memory:
                arrays["memory"] = {
                    f"{name}.{kind}": values.copy()
                    for name, kept in self._memory.items()
                    for kind, values in kept.items()
                }
        return Content({"trainer": document}, arrays)

    def load(self, content: Content) -> None:
        try:
            document = content.documents["trainer"]
            arrays = {key: dict(values) for key, values in content.arrays.items()}
            chance = self._chance.get_state().numpy()
            expected = {"chance": (chance.shape, chance.dtype)}
            require_arrays("generators", arrays["generators"], expected)
            memory = {
                f"{name}.{kind}": values
                for name, kept in self._memory.items()
                for kind, values in kept.items()
            }
            exact = "environment" in document
            if exact and self.settings.memory:
                shapes = {key: (a.shape, a.dtype) for key, a in memory.items()}
                require_arrays("memory", arrays["memory"], shapes)
            remembered = arrays.get("opponents", {})
            if exact:
                self._opponents.require(remembered)
            for name, learner in self._learners.items():
                load_policy(name, learner, arrays)
                learner.kl_coef = float(document["kl_coef"][name])
            self.env_steps = int(document["env_steps"])
            self._shuffles.bit_generator.state = document["shuffles"]
            self._chance.set_state(torch.from_numpy(arrays["generators"]["chance"].copy()))
            self._resumed, self._seen = None, None
            self._exact = exact
            if exact:
                self._resumed = {**document["environment"], "arrays": arrays["environment"]}
                sums = arrays["accounts"]
                self._accounts.sums = {key: values.copy() for key, values in sums.items()}
                if self._opponents.policies:
                    self._opponents.load(document["opponents"], remembered)
            else:
                self._opponents.restart()
            for key, values in memory.items():
                saved = arrays["memory"][key] if exact and self.settings.memory else 0.0
                values[...] = saved
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"the checkpoint is not of {self.name}: {error!r}") from error

    def export(self, folder: Path) -> list[Path]:
        """Of each policy its actor's weights, <policy>.safetensors, and what they are, .json."""
        paths = []
        for name, learner in self._learners.items():
            weights = {key: w.cpu().numpy() for key, w in learner.actor.state_dict().items()}
            if learner.log_std is not None:
                weights["log_std"] = learner.log_std.detach().cpu().numpy()
            told = {
                "agents": list(learner.seat.agents),
                "agent_id": bool(learner.seat.identities),
                "net_arch": list(self.settings.net_arch),
                "cnn_arch": list(self.settings.cnn_arch or ()) or None,
                "cnn_patch": self.settings.cnn_patch,
                "activation": self.settings.activation,
                "memory": self.settings.memory,
                **describe(learner.seat.layout, learner.seat.actions),
            }
            for kind, data in (
                ("safetensors", encode_arrays(f"{name}.safetensors", weights)),
                ("json", encode_document(f"{name}.json", told)),
            ):
                paths.append(folder / f"{name}.{kind}")
                paths[-1].write_bytes(data)
        return paths

    def close(self) -> None:
        if self._batch is not None and hasattr(self._batch, "close"):
            self._batch.close()

    # --- Looking on ------------------------------------------------------------------------------

    def values(
        self, observations: Mapping[str, Observation], state: Array | None = None
    ) -> dict[str, Array]:
        """V of what each agent sees, [R, ...], with the global ``state`` [R, G]: float32 [R].

        Critics with memory begin an episode with it; those that see actions are shown none.
        """
        first = self._seats[0]
        rows = len(_any_array(observations[first.agents[0]]))
        looked = Rollout(self._seats, 1, rows, self.rules.agents, self._features)
        looked.see(0, observations, state)
        found: dict[str, Array] = {}
        for i, seat in enumerate(self._learning):  # they stand first among all seats
            learner = self._learners[seat.policy]
            parts = [part[0].flatten(0, 1) for part in self._critic_sees(looked, i)]
            with torch.inference_mode():
                state_before = learner.critic.initial(len(parts[0]))
                outputs = learner.critic.step(parts, state_before)[0][:, 0]
                told = learner.value_norm.restore(outputs).cpu().numpy()
            for j, agent in enumerate(seat.agents):
                found[agent] = told.reshape(rows, -1)[:, j]
        return found


class IPPO(MAPPO):
    """PPO for each agent by itself: the critic sees what the actor sees, all else is the same."""

    name: ClassVar[str] = "ippo"
    Settings: ClassVar[type] = IPPOSettings

    @property
    def critic_input(self) -> str:
        return "own"


# --- Parts ---------------------------------------------------------------------------------------


def _number(seed: int, purpose: str, row: int) -> int:
    """A seed for a generator of torch."""
    return int(generator(seed, purpose, row).integers(2**63))


def _begins(rollout: Rollout, track: Track) -> Array:
    """Where episodes begin within the rollout: bool [T, C]. At its beginning memory is as kept."""
    over = np.repeat(rollout.over, len(track.seat.agents), axis=1)  # [T, C]
    return np.concatenate([np.zeros_like(over[:1]), over[:-1]])


def _values(critic: Network, parts: Parts, rows: Array) -> torch.Tensor:
    """A critic's outputs [R] for some rows of ``parts``."""
    told = [torch.zeros(0)]
    with torch.inference_mode():
        for low in range(0, len(rows), CHUNK):
            at = torch.from_numpy(rows[low : low + CHUNK]).to(parts[0].device)
            told.append(critic([part.index_select(0, at) for part in parts])[:, 0].cpu())
    return torch.cat(told)


def _any_array(tree: Any) -> Any:
    return _any_array(next(iter(tree.values()))) if isinstance(tree, Mapping) else tree
