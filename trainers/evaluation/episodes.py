"""What teams earn, and how sure a figure is: evaluation on fixed seeds, bootstrap intervals.

    scores = evaluate_players(make_rules("dfaas_v0"), {"mine": team}, episodes=100, seed=0)

Works with any rules: simultaneous and turn-based ones, and agents that end early.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from corral.envs.batch import BatchStep, batch_for
from corral.envs.core import Array, Observation, Rules, generator
from corral.envs.policy import Policy
from corral.trainers.evaluation.players import Player, Seat, as_player, random_policy

__all__ = [
    "Episodes",
    "Interval",
    "TeamScore",
    "bootstrap_ratio",
    "evaluate_players",
    "evaluate_team",
    "play_episodes",
]

COPIES = 64
"""Episodes that are played side by side, unless told otherwise."""


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


# --- Evaluation ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TeamScore:
    """What a team earned; means are over episodes."""

    policy: str
    mode: str  # "greedy", "sampled"; "" for the random row that was added
    return_team: float  # mean of the sum of all agents' rewards
    low: float | None  # 95 % bootstrap interval of return_team over episodes
    high: float | None
    returns: dict[str, float]  # mean return of each agent; they sum to return_team
    episodes: int
    mean_length: float  # steps
    illegal_actions: int  # masked actions chosen, over all episodes
    kpis: dict[str, float]  # mean per episode of each info, summed over steps and agents


def evaluate_team(
    rules: Rules[Any],
    player: Player | Policy | Mapping[str, Policy],
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
    label: str = "team",
) -> TeamScore:
    """Play exactly ``episodes`` episodes of ``rules`` and measure them.

    Seeds: episode k of copy r is the k-th that ``generator(seed, "env", r)`` starts, as in
    ``Batch(rules, copies, seed)``. Rules draw all chance of an episode at its start, so that every
    team meets the same episodes, however long it makes them. Policies draw from
    ``generator(seed, "policy", i)``, i the agent's place. Third-party environments draw as they go:
    there, teams meet the same first episode in each copy, and later ones that depend on the play.

    How many episodes each copy plays is fixed beforehand: to count those that end first would
    prefer short ones. The episodes must end, by ``max_cycles`` or by themselves.

    Args:
        rules: what is played; of a Player, ``settings`` are not looked at.
        player: a Player, a team (agent -> Policy), or one Policy for all agents.
        copies: episodes side by side; default: 64, or ``episodes`` if that is less.
        label: the name of the team in the score.

    Raises:
        ValueError: no episodes, no copies, or a team that does not fit the agents.
        ActionError: a policy gives malformed actions (IllegalActionError: masked ones, where the
            rules are made with ``illegal="raise"``; otherwise these are counted).
    """
    chosen = as_player(player, rules.agents)
    everyone = dict.fromkeys(rules.agents, chosen.deterministic)
    played = play_episodes(
        rules, chosen.team, everyone, episodes=episodes, num_envs=num_envs, seed=seed
    )
    team = played.returns.sum(axis=1)
    low, high = bootstrap_ratio(team, np.ones(episodes))
    each = played.returns.mean(axis=0).tolist()
    return TeamScore(
        policy=label,
        mode=chosen.mode,
        return_team=float(team.mean()),
        low=low,
        high=high,
        returns=dict(zip(rules.agents, each, strict=True)),
        episodes=episodes,
        mean_length=float(played.lengths.mean()),
        illegal_actions=int(played.illegal.sum()),
        kpis={key: float(sums.sum(axis=1).mean()) for key, sums in played.kpis.items()},
    )


def evaluate_players(
    rules: Rules[Any],
    players: Mapping[str, Player | Policy | Mapping[str, Policy]],
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int = 0,
) -> list[TeamScore]:
    """``evaluate_team`` for each of ``players``, over the same episodes, in the order given.

    "random", uniformly random legal play, is the last row; it is added where it is not given.
    """
    named = {label: player for label, player in players.items() if label != "random"}
    plan: dict[str, Any] = {"episodes": episodes, "num_envs": num_envs, "seed": seed}
    scores = [evaluate_team(rules, one, label=label, **plan) for label, one in named.items()]
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    last = evaluate_team(rules, players.get("random", chance), label="random", **plan)
    return [*scores, last if "random" in players else dataclasses.replace(last, mode="")]


@dataclass(frozen=True)
class Episodes:
    """What E episodes amounted to, agent by agent."""

    returns: Array  # float64 [E, N]
    lengths: Array  # int64 [E] steps
    kpis: dict[str, Array]  # float64 [E, N] each info, summed over the steps
    illegal: Array  # int64 [N] masked actions chosen, over all episodes


def play_episodes(
    rules: Rules[Any],
    team: Mapping[str, Policy],
    deterministic: Mapping[str, bool],
    *,
    episodes: int,
    num_envs: int | None = None,
    seed: int = 0,
) -> Episodes:
    """Play exactly ``episodes`` episodes, each agent greedily or not; see ``evaluate_team``."""
    for name, value in (("episodes", episodes), ("num_envs", num_envs)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}: give 1 or more")
    batch = batch_for(rules, min(episodes, num_envs or COPIES), seed)
    seats = [
        Seat(
            agent,
            team[agent],
            num_envs=batch.num_envs,
            actions=rules.action_space(agent),
            rng=generator(seed, "policy", i),
            deterministic=deterministic[agent],
        )
        for i, agent in enumerate(rules.agents)
    ]
    record = _Record(batch.num_envs, episodes, len(seats))
    try:
        observations = batch.reset()
        while record.left.any():
            actions = _decide(seats, observations, batch.acting, record)
            step = batch.step(actions)
            record.add(step)
            if step.finished is not None:
                for seat in seats:
                    seat.forget(step.finished.rows)
            observations = step.observations
    finally:
        if hasattr(batch, "close"):  # worker processes
            batch.close()
    return record.episodes()


def _decide(
    seats: list[Seat], observations: Mapping[str, Observation], acting: Array, record: _Record
) -> Any:
    """Everybody's actions, as ``batch.step`` takes them: int64 [B, N], or a dict where some are not
    Discrete. Counts the illegal ones among those that matter.

    Copies that have played their episodes go on with any legal action, and ask no policy.
    """
    busy = record.left > 0
    chosen = {}
    for i, seat in enumerate(seats):
        observation = observations[seat.agent]
        actions = _any_action(seat.actions, observation, len(busy))
        asked = acting[:, i] & busy
        if asked.all():
            actions[...] = seat.act(observation)
        elif asked.any():
            rows = np.flatnonzero(asked)
            actions[rows] = seat.act(observation, rows)
        if isinstance(seat.actions, spaces.Discrete):
            mask = np.asarray(observation["action_mask"])
            legal = mask[np.arange(len(busy)), actions] != 0
            record.illegal[i] += np.count_nonzero(asked & ~legal)
        chosen[seat.agent] = actions
    if all(isinstance(seat.actions, spaces.Discrete) for seat in seats):
        return np.stack(list(chosen.values()), axis=1)
    return chosen


def _any_action(space: spaces.Space[Any], observation: Observation, num_envs: int) -> Array:
    """A legal action for each copy: [B, ...]."""
    if isinstance(space, spaces.Discrete):
        first: Array = np.asarray(observation["action_mask"]).argmax(axis=1)
        return first
    if isinstance(space, spaces.MultiDiscrete):
        return np.tile(space.start, (num_envs, *(1,) * space.start.ndim))
    assert isinstance(space, spaces.Box)
    nearest = np.clip(np.zeros(space.shape, space.dtype), space.low, space.high)
    return np.tile(nearest, (num_envs, *(1,) * nearest.ndim))


class _Record:
    """Episodes as they end: exactly so many from each copy."""

    def __init__(self, num_envs: int, episodes: int, agents: int) -> None:
        # Episodes that each copy has yet to play.
        self.left = episodes // num_envs + (np.arange(num_envs) < episodes % num_envs)
        self.illegal = np.zeros(agents, dtype=np.int64)
        self._sums: dict[str, Array] = {}  # of the running episodes, [B, N] each
        self._returns: list[Array] = []  # [D, N] each
        self._lengths: list[Array] = []  # [D] each
        self._kpis: list[dict[str, Array]] = []  # [D, N] each

    def add(self, step: BatchStep) -> None:
        for key, values in step.info.items():
            sums = self._sums.setdefault(key, np.zeros(values.shape))
            sums += values
        if step.finished is None:
            return
        rows = step.finished.rows
        counts = self.left[rows] > 0
        self._returns.append(step.finished.returns[counts])
        self._lengths.append(step.finished.lengths[counts])
        self._kpis.append({key: sums[rows][counts] for key, sums in self._sums.items()})
        self.left[rows[counts]] -= 1
        for sums in self._sums.values():
            sums[rows] = 0.0

    def episodes(self) -> Episodes:
        keys = self._kpis[0]
        return Episodes(
            returns=np.concatenate(self._returns),
            lengths=np.concatenate(self._lengths),
            kpis={key: np.concatenate([part[key] for part in self._kpis]) for key in keys},
            illegal=self.illegal,
        )
