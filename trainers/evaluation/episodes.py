"""The one loop that plays episodes to measure or show them, and how sure a mean over them is.

    for turn in play(rules, team, deterministic, quota=np.ones(8, int), seed=0):
        turn.step.reward, turn.ended.returns

Works with any rules: simultaneous and turn-based ones, and agents that end early. Evaluation,
replays of loads, pictures of policies and ``corral.watch`` all play through ``play``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from corral.adapters.seats import Seat
from corral.envs.batch import BatchStep, batch_for
from corral.envs.core import AgentViews, Array, Observation, Rules, generator, without_state
from corral.envs.episode_stats import EndedEpisodes, EpisodeStats
from corral.envs.masks import MASK, draw
from corral.envs.policy import PolicyBase, PolicyLike, as_policy

__all__ = ["Changed", "Interval", "Turn", "bootstrap_ratio", "play", "play_episodes"]

MANY = 8
"""Agents from which one network that plays them all is asked for all of them at once."""

NUM_ENVS = 64
"""Episodes that are played side by side, unless the caller says otherwise."""


class Interval(NamedTuple):
    """An interval, or (None, None) where there are too few episodes for one."""

    low: float | None
    high: float | None


def bootstrap_ratio(
    numerators: npt.ArrayLike,
    denominators: npt.ArrayLike,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of sum(numerators) / sum(denominators) over episodes.

    Both are [E], one entry per episode; whole episodes are drawn with replacement (Efron and
    Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), so that what happens within one
    may be correlated. A plain mean has ones as denominators. Fewer than two episodes give no
    interval.
    """
    above = np.asarray(numerators, dtype=np.float64)
    below = np.asarray(denominators, dtype=np.float64)
    if above.shape != below.shape or above.ndim != 1:
        raise ValueError(f"numerators {above.shape} and denominators {below.shape}: give [E] twice")
    episodes = len(above)
    if episodes < 2 or below.sum() == 0:
        return Interval(None, None)
    rng = generator(seed, "eval")
    drawn = rng.multinomial(episodes, np.full(episodes, 1 / episodes), size=resamples)  # [R, E]
    sums = drawn @ below
    ratios = (drawn @ above)[sums > 0] / sums[sums > 0]
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


# --- Playing -------------------------------------------------------------------------------------


class Changed:
    """Rules with some attributes replaced: another time limit, another start, another step."""

    def __init__(self, rules: Rules[Any], **changes: Any) -> None:
        vars(self).update(changes, unchanged=rules)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unchanged, name)


@dataclass(frozen=True, eq=False)
class Turn:
    """A step of B environments, and what led to it."""

    t: int  # steps played before
    observations: Mapping[str, Observation]  # that were decided on, [B, ...] by agent
    step: BatchStep
    ended: EndedEpisodes  # of those asked for
    illegal: Array  # int64 [N] masked actions chosen
    actions: Any  # that were played: int64 [B, N], or a dict where some are not Discrete
    asked: Array  # bool [B, N] whose policy chose them; elsewhere they are any legal ones
    state: Array | None = None  # float32 [B, G] that was decided in, where play was asked for it


def play(
    rules: Any,
    team: Mapping[str, PolicyLike],
    deterministic: Mapping[str, bool],
    *,
    quota: Array,
    seed: int = 0,
    workers: int = 0,
    states: bool = False,
) -> Iterator[Turn]:
    """Play ``quota`` [B] episodes in B environments, each agent greedily or not; yield each step.

    Seeds: episode k of environment r is the k-th that ``generator(seed, "env", r)`` starts, as in
    ``Batch(rules, B, seed)``. Rules draw all chance of an episode at its start, so that every team
    meets the same episodes, however long it makes them. Policies draw from
    ``generator(seed, "policy", i)``, i the agent's index. Third-party environments draw as they go:
    there, teams meet the same first episode in each environment, and later ones that depend on the
    play. Environments that have played their quota go on, unasked and uncounted, till all have;
    third-party ones rest, and are not asked for their global state.

    ``workers`` processes step third-party environments, 0: this one; the episodes are the same.
    ``states`` puts the global state into each turn.

    Raises ValueError for workers of other environments, ActionError where a policy's actions are
    malformed, IllegalActionError where they are masked and the rules are made with
    ``illegal="raise"``.
    """
    if not states:
        rules = without_state(rules)
    batch = batch_for(rules, len(quota), seed, workers=workers)
    seats = [
        Seat(
            agent,
            as_policy(team[agent], agent, rules.agents),
            num_envs=batch.num_envs,
            actions=rules.action_space(agent),
            rng=generator(seed, "policy", i),
            deterministic=deterministic[agent],
        )
        for i, agent in enumerate(rules.agents)
    ]
    stats, left, t = EpisodeStats(rules.agents), quota.copy(), 0
    try:
        observations = batch.reset()
        while left.any():
            asked = batch.acting & (left > 0)[:, None]
            actions, illegal = _decide(seats, observations, asked)
            state = batch.global_state().copy() if states else None
            step = batch.step(actions)
            ended = stats.add(step)
            if len(ended):
                for seat in seats:
                    seat.forget(ended.rows)
                ended = ended.take(left[ended.rows] > 0)
                left[ended.rows] -= 1
                batch.rest(ended.rows[left[ended.rows] == 0])
            yield Turn(t, observations, step, ended, illegal, actions, asked, state)
            observations, t = step.observations, t + 1
    finally:
        batch.close()


def _decide(
    seats: list[Seat], observations: Mapping[str, Observation], asked: Array
) -> tuple[Any, Array]:
    """Return everybody's actions, as ``batch.step`` takes them: int64 [B, N], or a dict where some
    are not Discrete; and how many of them were illegal, int64 [N].

    ``asked`` bool [B, N]: elsewhere any legal action is played, and no policy is asked.
    """
    illegal = np.zeros(len(seats), dtype=np.int64)
    if asked.all() and (together := _at_once(seats, observations)) is not None:
        return together, illegal
    chosen = {}
    for i, seat in enumerate(seats):
        observation = observations[seat.agent]
        own = asked[:, i]
        if own.all():
            actions = seat.act(observation)
        else:
            actions = _any_action(seat.actions, observation, len(own))
            rows = np.flatnonzero(own)
            if len(rows):
                actions[rows] = seat.act(observation, rows)
        if isinstance(seat.actions, spaces.Discrete):
            mask = np.asarray(observation[MASK])
            if mask.shape[1] == seat.actions.n:  # else the rules alone tell what is illegal
                illegal[i] = np.count_nonzero(own & (mask[np.arange(len(own)), actions] == 0))
        chosen[seat.agent] = actions
    if all(isinstance(seat.actions, spaces.Discrete) for seat in seats):
        return np.stack(list(chosen.values()), axis=1), illegal
    return chosen, illegal


def _at_once(seats: list[Seat], observations: Mapping[str, Observation]) -> Array | None:
    """Return everybody's actions, int64 [B, N], where many agents play by one network, which then
    is asked once; None where it is not so. Each agent draws from its own generator."""
    policy, actions = seats[0].policy, seats[0].actions
    if len(seats) < MANY or not isinstance(observations, AgentViews):
        return None
    if any(seat.policy is not policy for seat in seats) or not isinstance(actions, spaces.Discrete):
        return None
    # A network without memory decides row by row, whichever agent a row is of.
    if not isinstance(policy, PolicyBase) or policy.memory != 0:
        return None
    shape = observations.blocks[MASK].shape[:2]
    flat = {k: a.reshape(-1, *a.shape[2:]) for k, a in observations.blocks.items()}
    decision = policy.act(flat, deterministic=True)
    chosen: Array = np.asarray(decision.action).reshape(shape)
    if not all(seat.deterministic for seat in seats):
        chances = decision.extra["probabilities"].reshape(*shape, -1)
        for i, seat in enumerate(seats):
            if not seat.deterministic:
                chosen[:, i] = draw(chances[:, i], seat.rng)
    return chosen


def _any_action(space: spaces.Space[Any], observation: Observation, num_envs: int) -> Array:
    """Return a legal action for each environment: [B, ...]."""
    if isinstance(space, spaces.Discrete):
        first: Array = np.asarray(observation[MASK]).argmax(axis=1)
        return first
    if isinstance(space, spaces.MultiDiscrete):
        return np.tile(space.start, (num_envs, *(1,) * space.start.ndim))
    assert isinstance(space, spaces.Box)
    nearest = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    return np.tile(nearest, (num_envs, *(1,) * nearest.ndim))


# --- Whole episodes ------------------------------------------------------------------------------


def play_episodes(
    rules: Rules[Any],
    team: Mapping[str, PolicyLike],
    deterministic: Mapping[str, bool],
    *,
    episodes: int,
    num_envs: int | None = None,
    seed: int = 0,
    workers: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_turn: Callable[[Turn], None] = lambda turn: None,
) -> tuple[EndedEpisodes, Array]:
    """Return exactly ``episodes`` episodes, and the illegal actions in them, int64 [N].

    They are played in ``num_envs`` environments (default: 64, or ``episodes`` if that is less) as
    ``play`` does it. How many episodes each environment plays is fixed beforehand: to count those
    that end first would prefer short ones. They must end, by ``max_cycles`` or by themselves.
    ``workers`` is as of ``play``; ``progress`` is called with how many episodes have ended, of how
    many, ``on_turn`` with each step.
    """
    for name, value in (("episodes", episodes), ("num_envs", num_envs)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: give 1 or more")
    size = min(episodes, num_envs or NUM_ENVS)
    quota = episodes // size + (np.arange(size) < episodes % size)
    parts: list[EndedEpisodes] = []
    illegal = np.zeros(len(rules.agents), dtype=np.int64)
    done = 0
    progress(done, episodes)
    for turn in play(rules, team, deterministic, quota=quota, seed=seed, workers=workers):
        illegal += turn.illegal
        on_turn(turn)
        if len(turn.ended):
            parts.append(turn.ended)
            done += len(turn.ended)
            progress(done, episodes)
    return EndedEpisodes.join(parts), illegal
