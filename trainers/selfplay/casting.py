"""Who plays which seat, in each environment and episode: learners, snapshots and other players.

A trainer in house with a ``Casting`` plays as without one, but for the columns that are cast: there
a frozen player acts, ``GroupBuffer.learned`` is False, and so nothing of it is in a loss, a
metric or a value that is learned. An episode says who played in it (``Episode.players``), so that
the returns of a policy are those of the seats that it played itself.

Who plays is drawn by ``EpisodeDraws``, from numbers that belong to a row and an episode. All of it,
and the snapshots, are part of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from corral.adapters.seats import Seat
from corral.envs.core import Array, Observation, generator
from corral.envs.episode_stats import EndedEpisodes, Episode
from corral.envs.policy import Policy, take_tree
from corral.errors import CheckpointError
from corral.trainers.base import require_arrays
from corral.trainers.on_policy.buffer import GroupBuffer, ObservationBuffer
from corral.trainers.on_policy.players import LearnedPlayer
from corral.trainers.on_policy.saving import shapes_of
from corral.trainers.opponents.draws import EpisodeDraws
from corral.trainers.rng import torch_generator
from corral.trainers.selfplay.frozen import FrozenActors
from corral.trainers.selfplay.pool import Pool, Results, draw_weights, to_drop

__all__ = ["CastPlayer", "Casting", "casting_of"]

LEARNS = -1
"""Who is cast: -1, the policy as it is now; K others are 0 .. K - 1 of the policy's snapshots, and
-2, -3, ... the players of ``Pool.also``."""

STREAM = 10**9
"""Rows of random numbers from here on are a pool's: mixes of fixed opponents have those before."""

FEW = 8
"""Snapshots that are drawn in a rollout where each is asked by itself."""

Also = Mapping[str, Mapping[str, Policy]]
"""name -> agent -> who plays it: the players of ``Pool.also``."""


class Casting:
    """Draws who plays, and lets them play, for one trainer."""

    def __init__(self, trainer: Any, pool: Pool, also: Also) -> None:
        self.trainer, self.pool, self.also = trainer, pool, also
        self.agents: tuple[str, ...] = tuple(trainer.rules.agents)
        self.num_envs: int = trainer.settings.num_envs
        trained = {name: each for name, each in trainer.learners.items() if each.trained}
        self.frozen = {name: FrozenActors(learner) for name, learner in trained.items()}
        policy_of = {a: name for name, each in trained.items() for a in each.group.agents}
        self.policy_of = {agent: policy_of[agent] for agent in self.agents if agent in policy_of}
        self.seats = [pool.seat] if pool.seat is not None else list(self.policy_of)
        self.seat_index = np.array([self.agents.index(agent) for agent in self.seats])
        self.draws = EpisodeDraws(
            trainer.seed, self.num_envs, 2 + len(self.agents), first_row=STREAM
        )
        self.episode = np.zeros(self.num_envs, dtype=np.int64)  # of each row
        self.cast = np.full((self.num_envs, len(self.agents)), LEARNS)  # see ``LEARNS``
        self.learner_at = np.full(self.num_envs, -1)  # the agent that learns, where others are cast
        self.results = Results()  # of learners against players
        self._played: list[tuple[Array, Array, Array]] = []  # games that are not yet among them
        self._drawn_from: dict[tuple[str, str], tuple[Array, Array]] = {}  # see ``_chances``
        self.rng = torch_generator(trainer.seed, "opponent", STREAM - 1)
        shape = self.num_envs, len(self.agents)
        self.hidden = {
            name: np.zeros((*shape, each.actor.memory), np.float32)
            for name, each in trained.items()
            if each.actor.memory
        }
        self.others = {
            (name, agent): Seat(
                agent,
                player,
                num_envs=self.num_envs,
                actions=trainer.rules.action_space(agent),
                rng=generator(trainer.seed, "opponent", STREAM - 2 - i),
                deterministic=False,
            )
            for i, (name, agent, player) in enumerate(
                (name, agent, player)
                for name, team in also.items()
                for agent, player in team.items()
            )
        }
        self._taken = -1  # at which multiple of ``every`` the latest snapshot was
        trainer.players = [
            CastPlayer(each, self) if getattr(each, "learner", None) in trained.values() else each
            for each in trainer.players
        ]

    # --- Snapshots -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take the first snapshots, and cast the first episodes, unless that was done before."""
        if self._taken < 0:
            self.take()
            self._draw(np.arange(self.num_envs))

    def take(self) -> None:
        """Count an update's games for draws to come, and take snapshots, if they are due."""
        self._count()
        self._drawn_from.clear()
        now, due = self.trainer.env_steps, self.trainer.env_steps // self.pool.every
        if due <= self._taken:
            return
        self._taken = due
        for frozen in self.frozen.values():
            frozen.add(now)
            drawn = [i for i, each in enumerate(frozen.snapshots) if each.drawn]
            if len(drawn) > self.pool.keep:
                one = drawn[to_drop([frozen.snapshots[i].env_steps for i in drawn])]
                frozen.snapshots[one].drawn = False
        self._remove_unused()

    def _remove_unused(self) -> None:
        """Take out the snapshots that are drawn no more and play in no episode."""
        for name, frozen in self.frozen.items():
            mine = [i for i, agent in enumerate(self.agents) if self.policy_of.get(agent) == name]
            cast = self.cast[:, mine]
            gone = [
                i
                for i, each in enumerate(frozen.snapshots)
                if not each.drawn and not (cast == i).any()
            ]
            if gone:
                frozen.remove(gone)
                for i in reversed(gone):
                    cast[cast > i] -= 1
                self.cast[:, mine] = cast

    # --- Episodes --------------------------------------------------------------------------------

    def ended(self, episodes: EndedEpisodes) -> list[Episode]:
        """Return the episodes with who played in them, and cast the next ones of their rows."""
        found, rows = list(episodes), episodes.rows
        if not found:
            return found
        cast, learner_at = self.cast[rows], self.learner_at[rows]
        against = np.flatnonzero(learner_at >= 0)
        if len(against):
            self._played.append((learner_at[against], cast[against], episodes.returns[against]))
            for d, row in zip(against.tolist(), rows[against].tolist(), strict=True):
                found[d].players.update(self.players_in(row))
        self._draw(rows)
        return found

    def restart(self) -> None:
        """Cast anew everywhere: episodes begin that nobody knew of."""
        self._drawn_from.clear()
        self._draw(np.arange(self.num_envs))
        self.begin_rows(np.arange(self.num_envs))

    def players_in(self, row: int) -> dict[str, str]:
        """Return who is cast in a row's running episode, by agent; nobody for those that learn."""
        cast = self.cast[row].tolist()
        return {
            agent: self._name(agent, number)
            for agent, number in zip(self.agents, cast, strict=True)
            if number != LEARNS
        }

    def _name(self, agent: str, number: int) -> str:
        if number >= 0:
            return self.frozen[self.policy_of[agent]].snapshots[number].name
        return list(self.also)[-2 - number]

    def _count(self) -> None:
        """Count the games that were played since this was last done."""
        if not self._played:
            return
        learner_at, cast, returns = map(np.concatenate, zip(*self._played, strict=True))
        self._played = []
        ahead = returns[np.arange(len(returns)), learner_at, None] - returns  # [E, N]
        points = np.where(abs(ahead) < 1e-9, 0.5, ahead > 0)
        for seat, at in zip(self.seats, self.seat_index, strict=True):
            for i, agent in enumerate(self.agents):
                numbers = np.where(learner_at == at, cast[:, i], LEARNS)
                for number in np.unique(numbers[numbers != LEARNS]).tolist():
                    won = points[numbers == number, i]
                    self.results.add(self.policy_of[seat], self._name(agent, number), won)

    def _draw(self, rows: Array) -> None:
        """Draw who plays the next episodes of ``rows`` [R]."""
        chance = self.draws(rows, self.episode[rows])  # [R, 2 + N]
        self.episode[rows] += 1
        self.cast[rows] = LEARNS
        self.learner_at[rows] = -1
        against = np.flatnonzero(chance[:, 0] < self.pool.past)
        if not len(against):
            return
        seat = (chance[against, 1] * len(self.seats)).astype(np.int64)
        for number in np.unique(seat):
            learner, at = self.seats[number], self.seat_index[number]
            own = against[seat == number]
            self.learner_at[rows[own]] = at
            for i, agent in enumerate(self.agents):
                if i != at and agent in self.policy_of:
                    pair = self.policy_of[learner], agent
                    if pair not in self._drawn_from:
                        self._drawn_from[pair] = self._chances(learner, agent)
                    numbers, sums = self._drawn_from[pair]
                    drawn = np.searchsorted(sums, chance[own, 2 + i], side="right")
                    self.cast[rows[own], i] = numbers[np.minimum(drawn, len(numbers) - 1)]

    def _chances(self, learner: str, agent: str) -> tuple[Array, Array]:
        """Return who can be cast as ``agent`` while ``learner`` learns, int64 [K], and the sums of
        their probabilities so far, float64 [K]."""
        frozen = self.frozen[self.policy_of[agent]].snapshots
        drawn = [i for i, each in enumerate(frozen) if each.drawn]
        others = [(-2 - i, name) for i, name in enumerate(self.also) if agent in self.also[name]]
        shares = [self.pool.also[name] for _, name in others]
        names = [frozen[i].name for i in drawn]
        points = self.results.points(self.policy_of[learner], names)
        weights = draw_weights(self.pool.draw, points)
        if len(drawn) > FEW and not self.frozen[self.policy_of[agent]].stacks:
            at = self.trainer.env_steps * len(self.agents) + self.agents.index(agent)
            rng = generator(self.trainer.seed, "opponent", 2 * STREAM + at)
            weights = rng.multinomial(FEW, weights) / FEW  # whose mean is what they were
        weights = weights * (1.0 - sum(shares))
        numbers = np.array([*drawn, *(number for number, _ in others)])
        sums = np.cumsum([*weights, *shares])
        return numbers, sums / sums[-1]

    # --- Playing ---------------------------------------------------------------------------------

    def columns(self, buffer: ObservationBuffer, env_rows: Any = slice(None)) -> Array:
        """Return who is cast for the agents of a buffer, in ``env_rows``: int64 [R, P]."""
        found: Array = self.cast[env_rows][:, buffer.group.index]
        return found

    def play(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        """Let those that are cast act at moment ``at`` of a buffer.

        ``env_rows`` int64 [R]: the moment is not played on, and of these rows; no state changes.
        """
        rows = np.arange(self.num_envs) if env_rows is None else env_rows
        cast = self.columns(buffer, rows)
        acting = buffer.acting[at]
        frozen = acting & (cast >= 0)
        if frozen.any():
            self._play_frozen(buffer, at, frozen, cast, rows, moves=env_rows is None)
        if not self.also or not (acting & (cast < LEARNS)).any():
            return
        for (name, agent), seat in self.others.items():
            if agent not in buffer.group.agents:
                continue
            j = buffer.group.agents.index(agent)
            mine = np.flatnonzero(acting[:, j] & (cast[:, j] == -2 - list(self.also).index(name)))
            if len(mine) and env_rows is None:
                buffer.action[at][mine, j] = seat.decide(observations[agent], mine).action
            elif len(mine):
                state = take_tree(seat.memory, rows[mine])
                decision = seat.policy.act(take_tree(observations[agent], mine), state, seat.rng)
                buffer.action[at][mine, j] = decision.action

    def _play_frozen(
        self, buffer: Any, at: Any, frozen: Array, cast: Array, rows: Array, moves: bool
    ) -> None:
        group = buffer.group
        actors = self.frozen[group.policy]
        columns = np.flatnonzero(frozen.reshape(-1))
        parts, mask = buffer.tensors(at, columns, actors.learner.device)
        row, agent = rows[columns // len(group.agents)], group.index[columns % len(group.agents)]
        hidden = self.hidden.get(group.policy)
        before = np.zeros((len(row), 0), np.float32) if hidden is None else hidden[row, agent]
        numbers = cast.reshape(-1)[columns]
        action, after = actors.sample(parts, mask, numbers, before, self.rng)
        if hidden is not None and moves:
            hidden[row, agent] = after
        target = buffer.action[at]
        target.reshape(-1, *target.shape[2:])[columns] = action.cpu().numpy()

    def begin_rows(self, env_rows: Array) -> None:
        """Let all that can be cast begin anew in ``env_rows``, whose episodes are over."""
        for hidden in self.hidden.values():
            hidden[env_rows] = 0
        for seat in self.others.values():
            seat.forget(env_rows)

    def figures(self) -> dict[str, float]:
        """Return what is reported of each update."""
        sizes = [sum(each.drawn for each in f.snapshots) for f in self.frozen.values()]
        return {"pool_size": float(max(sizes))}

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        """Return a JSON value and arrays by file: snapshots, who plays, and their states."""
        listed, files = {}, {}
        for name, frozen in self.frozen.items():
            listed[name], files[f"pool_{name}"] = frozen.save()
        document = {
            "snapshots": listed,
            "taken": self._taken,
            "results": [[*pair, *games] for pair, games in self.results.items()],
            "generators": [seat.rng.bit_generator.state for seat in self.others.values()],
        }
        files["casting"] = {key: each.copy() for key, each in self._arrays().items()}
        files["casting"]["chance"] = self.rng.get_state().numpy().copy()
        return document, files

    def load(
        self, document: Mapping[str, Any], files: Mapping[str, dict[str, Array]], *, exact: bool
    ) -> None:
        """Go on from what ``save`` gave; where not ``exact``, episodes begin anew. Raises
        CheckpointError, KeyError, TypeError, ValueError where it does not fit."""
        arrays = dict(files["casting"])
        chance = self.rng.get_state().numpy()
        expected = shapes_of({**self._arrays(), "chance": chance})
        require_arrays("casting", arrays, expected)
        for name, frozen in self.frozen.items():
            frozen.load(document["snapshots"][name], files[f"pool_{name}"])
        self._taken = int(document["taken"])
        self._played, self._drawn_from = [], {}
        self.results = Results(
            {(str(a), str(b)): [float(n), float(points)] for a, b, n, points in document["results"]}
        )
        self.rng.set_state(torch.from_numpy(arrays.pop("chance").copy()))
        for key, values in self._arrays().items():
            values[...] = arrays[key]
        pairs = zip(self.others.values(), document["generators"], strict=True)
        for seat, state in pairs:
            seat.rng.bit_generator.state = state
        self._require_cast()
        if not exact:
            self.restart()

    def _require_cast(self) -> None:
        """Raise CheckpointError where somebody is cast who is not there."""
        for i, agent in enumerate(self.agents):
            most = -1
            if agent in self.policy_of:
                most += len(self.frozen[self.policy_of[agent]].snapshots)
            if self.cast[:, i].max() > most or self.cast[:, i].min() < LEARNS - len(self.also):
                raise CheckpointError(f"casting: {agent} is played by a snapshot that is not there")

    def _arrays(self) -> dict[str, Array]:
        """Return the arrays that change in place, by name."""
        found = {"episode": self.episode, "cast": self.cast, "learner_at": self.learner_at}
        return found | {f"memory.{name}": each for name, each in self.hidden.items()}


class CastPlayer:
    """A learner's player whose seats are others' in some episodes: see ``LearnedPlayer``."""

    def __init__(self, player: LearnedPlayer, casting: Casting) -> None:
        self.player, self.casting = player, casting

    def __getattr__(self, name: str) -> Any:
        return getattr(self.player, name)

    def act(self, buffer: GroupBuffer, t: int, observations: Mapping[str, Observation]) -> None:
        buffer.store_learned(t, self.casting.columns(buffer) == LEARNS)
        self.player.act(buffer, t, observations)
        self.casting.play(buffer, t, observations)

    def sample_unplayed(
        self,
        buffer: ObservationBuffer,
        at: Any,
        observations: Mapping[str, Observation],
        env_rows: Array | None = None,
    ) -> None:
        self.player.sample_unplayed(buffer, at, observations, env_rows)
        rows = np.arange(self.casting.num_envs) if env_rows is None else env_rows
        self.casting.play(buffer, at, observations, rows)

    def reset(self, env_rows: Array) -> None:
        self.player.reset(env_rows)
        self.casting.begin_rows(env_rows)


def casting_of(config: Any) -> Callable[[Any], Casting]:
    """Return what makes the casting of a run's trainer, as its configuration says."""
    pool = Pool.of(config.self_play)
    return partial(Casting, pool=pool, also={})
