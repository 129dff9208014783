"""Fork states of play, and measure the return of several actions in each.

Each state is copied for each tried action and played to the end, or as far as time allows. All
actions of a state meet the same chance. The agent's own rewards are summed over its next 1, 2, 4,
8, ... decisions, undiscounted. The sums show how far the effect of an action reaches, and if it
lasts until the end.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.adapters.seats import Seat
from corral.adapters.spaces import ObservationCodec
from corral.clock import Clock
from corral.envs.batch import Batch
from corral.envs.core import Array, Rules, copy_rows, generator, max_rows_of, state_arrays
from corral.envs.masks import MASK
from corral.envs.policy import PolicyLike, as_policy, take_tree
from corral.lab.doctor.choices.scripts import nearest_legal, spread_actions
from corral.trainers.policy_iteration.forks import Moments, joined, worth

__all__ = ["FIXED", "Sample", "Tried", "flattened", "sample_moments", "try_actions"]

FIXED = "others lowest"
"""Kind of play in which all other agents always play their lowest legal action."""

MOMENTS, FEWEST = 384, 24
"""Maximum and minimum number of forked states of an agent."""

ENOUGH = 128
"""Number of states to keep before the horizon is shortened."""

COPIES = 128
"""Number of environment copies in which states are sampled."""

RUNNING_COPIES, RUNNING_ENOUGH, TIMED = 32, 32, 12
"""Number of copies and of states to keep if states are running environments, and of states in which
a first play is timed."""

LOOKED, GIVEN_UP = 1_500, 300
"""Maximum number of steps, and the step at which sampling without any state stops."""

ACTIONS = 9
"""Maximum number of tried actions; with more actions, one less, evenly spread."""

FORKS = 6
"""Maximum number of copies per state, action and half. One half selects, the other measures."""

HISTORY = 8
"""Number of earlier observations that are kept, to test if memory would help."""

WIDEST = 4_096
"""Maximum number of columns of such a history."""


@dataclass(frozen=True)
class Sample:
    """K states in which an agent has two or more legal actions."""

    moments: Moments
    cluster: Array  # int64 [K] equal for states of the same environment copy
    observed: Array  # float32 [K, F]
    history: Array | None  # float32 [K, HISTORY F] earlier observations; None: too wide
    legal: Array  # bool [K, A]

    def some(self, count: int, seed: int) -> Sample:
        """Return ``count`` randomly drawn states."""
        rng = np.random.default_rng(seed)
        rows = np.sort(rng.permutation(len(self.cluster))[:count])
        moments = replace(
            self.moments,
            state=copy_rows(self.moments.state, rows),
            elapsed=self.moments.elapsed[rows],
            ended=self.moments.ended[rows],
            hidden={agent: take_tree(item, rows) for agent, item in self.moments.hidden.items()},
        )
        history = None if self.history is None else self.history[rows]
        return Sample(moments, self.cluster[rows], self.observed[rows], history, self.legal[rows])


@dataclass(frozen=True)
class Tried:
    """Returns of the tried actions; S horizons, W actions."""

    sample: Sample  # the K states
    actions: Array  # int64 [K, W] the legal action nearest to each of W
    distinct: Array  # bool [K, W] False if an action to the left is the same
    exact: Array  # bool [K, W] True if the action itself is legal; all True if none is
    horizons: Array  # int64 [S] numbers of the agent's decisions, the first included
    worth: Array  # float64 [2, S, K, W] undiscounted sum of the agent's rewards, by half
    moved: Array  # bool [K, N] True if an agent's rewards differed between actions
    complete: bool  # the last horizon reaches the end of the episodes
    forks: int  # copies per state, action and half


def sample_moments(
    rules: Rules[Any],
    i: int,
    team: Mapping[str, PolicyLike],
    seed: int,
    seconds: float = math.inf,
) -> Sample | None:
    """Return states in which agent ``i`` has a choice while ``team`` plays; None: too few.

    ``seconds`` limits the time if the states of ``rules`` are running environments.
    """
    rng = generator(seed, "eval", i)
    agent = rules.agents[i]
    limit, clock = max_rows_of(rules), Clock()
    copies = COPIES if limit is None else min(RUNNING_COPIES, limit)
    enough = MOMENTS if limit is None else min(MOMENTS, 2 * limit)
    batch = Batch(rules, copies, int(rng.integers(2**31)))
    seats = {
        a: Seat(
            a,
            as_policy(team[a], a, rules.agents),
            num_envs=copies,
            actions=rules.action_space(a),
            rng=generator(seed, "policy", k),
            deterministic=False,
        )
        for k, a in enumerate(rules.agents)
    }
    observations = batch.reset()
    codec = ObservationCodec.of(agent, rules.observation_space(agent))
    past: deque[Array] = deque(maxlen=HISTORY)
    parts: list[tuple[Any, ...]] = []
    count = 0
    # Spread the samples over an episode, so that early and late steps are included.
    every = max(1, (rules.max_cycles or 24) // 24)
    for t in range(LOOKED):
        acting = np.asarray(batch.acting)
        seen = flattened(codec, observations[agent])
        if not past and HISTORY * seen.shape[1] <= WIDEST:
            past.extend(np.zeros_like(seen) for _ in range(HISTORY))
        legal = np.asarray(observations[agent][MASK]) != 0
        rows = np.flatnonzero(acting[:, i] & (legal.sum(axis=1) > 1))
        if t % every == 0 and len(rows):
            # Take a few rows per step, more in short games: 256 in about 24 steps.
            rows = np.sort(rng.permutation(rows)[: max(12, copies // (rules.max_cycles or 8))])
            hidden = {a: take_tree(seat.memory, rows) for a, seat in seats.items()}
            earlier = np.concatenate([item[rows] for item in past], axis=1) if past else None
            parts.append((*batch.moments(rows), hidden, rows, seen[rows], earlier, legal[rows]))
            count += len(rows)
        if count >= enough or (t >= GIVEN_UP and not count):
            break
        if limit is not None and count >= FEWEST and clock.seconds() > seconds:
            break
        actions = np.zeros(acting.shape, dtype=np.int64)
        for k, (a, seat) in enumerate(seats.items()):
            if len(rows := np.flatnonzero(acting[:, k])):
                actions[rows, k] = seat.act(observations[a], rows)
        for back, item in enumerate(past):
            own = acting[:, i]
            item[own] = (past[back + 1] if back + 1 < HISTORY else seen)[own]
        step = batch.step(actions)
        observations = step.observations
        over = np.flatnonzero(step.over)
        for seat in seats.values():
            seat.forget(over)
        for item in past:
            item[over] = 0.0
    return None if count < FEWEST else _joined(rules, i, parts)


def _joined(rules: Rules[Any], i: int, parts: list[tuple[Any, ...]]) -> Sample:
    states, elapsed, ended, hidden, rows, seen, earlier, legal = zip(*parts, strict=True)
    arrays = [state_arrays(state) for state in states]
    state = type(states[0])(
        **{name: np.concatenate([a[name] for a in arrays]) for name in arrays[0]}
    )
    memory = {agent: joined([item[agent] for item in hidden]) for agent in rules.agents}
    moments = Moments(rules, i, state, np.concatenate(elapsed), np.concatenate(ended), memory)
    history = None if earlier[0] is None else np.concatenate(earlier)
    cluster, observed = np.concatenate(rows), np.concatenate(seen)
    return Sample(moments, cluster, observed, history, np.concatenate(legal))


def flattened(codec: ObservationCodec, observation: Any) -> Array:
    """Return an observation [R, ...] as columns float32 [R, F], images included."""
    rows = codec.rows(observation) or 0
    vector = np.zeros((rows, codec.width), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in codec.images]
    codec.write(codec.inner(observation), vector, images)
    scaled = [image.reshape(rows, -1) / np.float32(255) for image in images]
    return np.concatenate([vector, *scaled], axis=1)


# --- Actions -------------------------------------------------------------------------------------


def try_actions(
    sample: Sample,
    team: Mapping[str, PolicyLike],
    *,
    seed: int,
    seconds: float,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tried:
    """Try actions in each state and let ``team`` continue, in about ``seconds``."""
    rules, i = sample.moments.rules, sample.moments.agent
    policies = {agent: as_policy(player, agent, rules.agents) for agent, player in team.items()}
    count = sample.legal.shape[1]
    wanted = spread_actions(count, ACTIONS if count <= ACTIONS else ACTIONS - 1)
    actions = nearest_legal(sample.legal, wanted)
    distinct = np.ones(actions.shape, dtype=bool)
    for w in range(1, actions.shape[1]):
        distinct[:, w] = (actions[:, w, None] != actions[:, :w]).all(axis=1)
    exact = actions == wanted
    exact |= ~exact.any(axis=1, keepdims=True)
    horizon = min(rules.max_cycles or LONG, LONG) + 1

    def play(moments: Moments, first: Array, forks: int, far: int, stream: int) -> _Sums:
        sums = _Sums(len(moments) * forks, _horizons(far), i, len(rules.agents))
        rng = np.random.default_rng([seed, i, stream])  # the same for each action
        worth(
            moments, policies, gamma=1.0, forks=forks, rng=rng, first=first, horizon=far,
            watch=sums.add,
        )  # fmt: skip
        return sums

    running = max_rows_of(rules) is not None
    enough = RUNNING_ENOUGH if running else ENOUGH
    while True:  # reduce the number of states first, then the horizon, until the time suffices
        # Running environments are stepped one after the other, so a few states show the time.
        timed = np.arange(len(actions))[:: max(1, len(actions) // TIMED) if running else 1]
        clock = Clock()
        play(sample.moments.at(timed), actions[timed, 0], 1, horizon, 0)
        duration = clock.seconds() * len(actions) / len(timed)
        affordable = seconds / (2 * duration * len(wanted))
        if affordable >= 0.7 or (horizon <= 8 and len(sample.cluster) <= enough):
            break
        if len(sample.cluster) > enough:
            sample = sample.some(max(enough, int(affordable * len(sample.cluster))), seed)
            return try_actions(
                sample, team, seed=seed, seconds=seconds - duration, progress=progress
            )
        horizon = max(8, int(horizon * max(0.1, affordable)))
    forks = int(np.clip(affordable, 1, FORKS))
    horizons = _horizons(horizon)
    shape = (2, len(horizons), len(actions), len(wanted))
    returns, moved, complete = (
        np.zeros(shape),
        np.zeros((len(actions), len(rules.agents)), bool),
        True,
    )
    for half in range(2):
        firsts: Array | None = None
        for w in range(len(wanted)):
            progress(half * len(wanted) + w, 2 * len(wanted))
            sums = play(sample.moments, actions[:, w], forks, horizon, half)
            returns[half, :, :, w] = sums.own.reshape(len(horizons), -1, forks).mean(axis=2)
            complete &= not sums.cut
            firsts = sums.all if firsts is None else firsts
            apart = np.abs(sums.all - firsts) > 1e-6 * (1 + np.abs(firsts))
            moved |= apart.reshape(len(actions), forks, -1).any(axis=1)
    return Tried(sample, actions, distinct, exact, horizons, returns, moved, complete, forks)


LONG = 512
"""Maximum number of decisions that are played after the fork."""


def _horizons(far: int) -> Array:
    return np.unique([*(2**k for k in range(far.bit_length())), far])


class _Sums:
    """Sums of rewards of F forks: the agent's by horizon, and those of all agents."""

    def __init__(self, forks: int, horizons: Array, agent: int, agents: int) -> None:
        self.horizons, self.agent = horizons, agent
        self.own = np.zeros((len(horizons), forks))  # [S, F]
        self.all = np.zeros((forks, agents))
        self.cut = False

    def add(self, rows: Array, taken: Array, reward: Array) -> None:
        self.all[rows] += reward
        own_reward = reward[:, self.agent]
        for s, horizon in enumerate(self.horizons):
            self.own[s, rows] += np.where(taken <= horizon, own_reward, 0.0)
        self.cut |= bool((taken >= self.horizons[-1]).any())
