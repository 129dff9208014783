"""Play scripts that need no learning, and compare them with random play on the same episodes.

The difference between a script and random play is computed per episode. A permutation test judges
all scripts together: it compares each statistic with the largest one under random signs of the
differences (Westfall and Young, Resampling-Based Multiple Testing, 1993). So the number of scripts
does not increase the number of false alarms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters.seats import random_policy
from corral.clock import Clock
from corral.envs.core import Array, Observation, Rules, generator, plays_as_arrays
from corral.envs.masks import MASK
from corral.envs.policy import Decision, Memoryless, PolicyLike, count_rows
from corral.envs.reference import reference_players, reference_team, team_names
from corral.trainers.evaluation.episodes import Interval, bootstrap_ratio, play_episodes

__all__ = ["Fixed", "Script", "Scripts", "play_scripts"]

EPISODES, FEWEST = 256, 16
"""Maximum and minimum number of episodes of each script."""

CONSTANTS = 8
"""Maximum number of constant actions, evenly spread."""

LONGEST = 1_000
"""Maximum number of steps of an episode, because some games have no end."""

SIGNS = 4_000
"""Number of random sign vectors in the permutation test."""

CERTAIN = 0.01
"""Joint p-value over all scripts below which a difference counts."""

SMALL = 0.02
"""Differences below this share of the standard deviation of returns are ignored: detecting one
takes 2 (2 / 0.02)^2, about 20,000, episodes of each kind."""

Team = Mapping[str, PolicyLike]


class Fixed(Memoryless):
    """Plays the legal action nearest to ``action``, or the one at ``share`` of the legal actions.

    In spaces other than Discrete it plays the point at ``share`` of the way from low to high.
    """

    def __init__(
        self, space: spaces.Space[Any], *, action: int | None = None, share: float = 0.0
    ) -> None:
        self.space, self.action, self.share = space, action, share

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        if not isinstance(self.space, spaces.Discrete):
            return Decision(np.stack([self._point()] * count_rows(observation)))
        legal = np.asarray(observation[MASK]) != 0
        if self.action is not None:
            return Decision(nearest_legal(legal, np.array([self.action]))[:, 0])
        rank = np.rint(self.share * (legal.sum(axis=1) - 1)).astype(np.int64)  # among legal actions
        return Decision((legal.cumsum(axis=1) == rank[:, None] + 1).argmax(axis=1))

    def _point(self) -> Array:
        space: Any = self.space
        if isinstance(space, spaces.MultiDiscrete):
            steps = np.rint(self.share * (space.nvec - 1))
            return np.asarray(space.start + steps).astype(space.dtype)
        low = np.where(np.isfinite(space.low), space.low, np.minimum(space.high, 1.0) - 2.0)
        high = np.where(np.isfinite(space.high), space.high, low + 2.0)
        return np.asarray(low + self.share * (high - low)).astype(space.dtype)


def nearest_legal(legal: Array, wanted: Array) -> Array:
    """Return the legal action nearest to each of ``wanted`` [W]: int64 [K, W]; legal: bool [K, A].

    Of two equally near actions, return the lower one.
    """
    away = np.abs(np.arange(legal.shape[1])[None] - np.asarray(wanted)[:, None])  # [W, A]
    distance = np.where(legal[:, None], away[None], legal.shape[1] + 1)
    nearest: Array = distance.argmin(axis=2)
    return nearest


def spread_actions(count: int, most: int) -> Array:
    """Return at most ``most`` of the actions 0 .. count - 1, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


@dataclass(frozen=True)
class Script:
    """Comparison of one script with random play on the same episodes."""

    name: str
    agent: str | None  # the only agent with the script, the others play randomly; None: all agents
    mean: float  # mean return of the team (sum over agents), or of ``agent``
    difference: float  # mean difference from random play
    interval: Interval  # of the difference, 95 %
    reference: bool = False


@dataclass(frozen=True)
class Scripts:
    """Result of all scripts."""

    rows: tuple[Script, ...]
    alone: bool  # the sum of returns is constant: agents are scripted one at a time
    moved: bool  # some return of some agent differed
    certain: bool  # some difference is significant over all scripts
    matters: bool  # some significant difference is above SMALL of the spread of returns
    negligible: bool  # all differences are surely below SMALL of the spread
    seen: bool  # some script that reads only observations is better than random play
    largest: float  # largest significant difference over the spread of returns; else the largest
    spread: dict[str, float]  # standard deviation of each agent's return over episodes
    steps: int  # length of the longest episode
    episodes: int
    best: str | None  # best reference team among those significantly better than random play
    left_out: tuple[str, ...]


def play_scripts(
    rules: Rules[Any],
    *,
    seed: int = 0,
    seconds: float = 8.0,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Scripts:
    """Play scripts and reference teams on the same episodes, for at most ``seconds``."""
    clock = Clock()
    random: Team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    episodes = FEWEST
    base, steps = _play(rules, random, episodes, seed)
    alone = len(rules.agents) > 1 and np.ptp(base.sum(axis=1)) < 1e-6 < np.ptp(base, axis=0).max()
    ways = _ways(rules, random, alone)
    took = 0.0
    while 2 * took * (len(ways) + 2) < 0.8 * seconds and episodes < EPISODES:
        episodes *= 2
        before = clock.seconds()
        base, steps = _play(rules, random, episodes, seed)
        took = clock.seconds() - before
    played: list[tuple[str, str | None, bool, Array]] = []
    left_out = []
    for done, (name, agent, team, reference) in enumerate(ways):
        label = name if agent is None else f"{agent}: {name}"
        progress(label, done, len(ways))
        if played and clock.seconds() > seconds:
            left_out.append(label)
            continue
        returns, length = _play(rules, team, episodes, seed)
        steps = max(steps, length)
        played.append((name, agent, reference, returns))
    return _compared(rules, base, played, alone, seed, steps, tuple(left_out))


def _ways(rules: Rules[Any], random: Team, alone: bool) -> list[tuple[str, str | None, Team, bool]]:
    """Return (name, scripted agent, whole team, True for a reference) of all scripts."""
    spaces_of = {agent: rules.action_space(agent) for agent in rules.agents}
    plain = {"lowest legal": {"share": 0.0}, "highest legal": {"share": 1.0}}
    discrete = [int(s.n) for s in spaces_of.values() if isinstance(s, spaces.Discrete)]
    for action in spread_actions(max(discrete), CONSTANTS) if discrete else ():
        plain[f"always {action}"] = {"action": int(action)}
    if len(discrete) < len(spaces_of):
        plain["middle"] = {"share": 0.5}
    ways: list[tuple[str, str | None, Team, bool]] = []
    for agent in rules.agents if alone else (None,):
        for name, kwargs in plain.items():
            team = {a: Fixed(s, **kwargs) for a, s in spaces_of.items()}  # type: ignore[arg-type]
            ways.append((name, agent, _mixed(random, team, agent), False))
        if not plays_as_arrays(rules):
            continue  # a third-party environment has no reference players
        if agent is not None:
            players = reference_players(rules, agent)[0]
            for name, player in players.items():
                ways.append((name, agent, _mixed(random, {agent: player}, agent), True))
        else:
            for name in team_names(rules):
                ways.append((name, agent, reference_team(name, rules), True))
    return [way for way in ways if way[0] != "random"]


def _mixed(random: Team, team: Team, agent: str | None) -> Team:
    return team if agent is None else {**random, agent: team[agent]}


def _play(rules: Rules[Any], team: Team, episodes: int, seed: int) -> tuple[Array, int]:
    """Return the first return of each environment copy, float64 [E, N], and the longest length."""
    sampled = dict.fromkeys(rules.agents, False)
    played, _ = play_episodes(rules, team, sampled, episodes=episodes, num_envs=episodes, seed=seed)
    return played.returns[np.argsort(played.rows, kind="stable")], int(played.lengths.max())


# --- Comparison ----------------------------------------------------------------------------------


def _compared(
    rules: Rules[Any],
    base: Array,
    plays: list[tuple[str, str | None, bool, Array]],
    alone: bool,
    seed: int,
    steps: int,
    left_out: tuple[str, ...],
) -> Scripts:
    agents = list(rules.agents)
    # Columns of each play: returns of the agents, then of the team.
    parts = [np.column_stack([r, r.sum(axis=1)]) for *_, r in plays]
    random = np.column_stack([base, base.sum(axis=1)])
    differences = np.stack([part - random for part in parts])  # [M, E, N + 1]
    differences[np.abs(differences) < 1e-6 * (1 + np.abs(random).max())] = 0.0  # rounding errors
    spread = np.sqrt((np.stack(parts).var(axis=1) + random.var(axis=0)) / 2)  # [M, N + 1]
    chance = chance_of_all(differences.transpose(0, 2, 1), seed)  # [M, N + 1]
    effect = differences.mean(axis=1)
    size = np.abs(effect) / np.maximum(spread, 1e-12)
    certain = chance < CERTAIN
    matters = certain & (size > SMALL)
    error = differences.std(axis=1) / np.sqrt(len(base))
    negligible = bool((np.abs(effect) + 3 * error < SMALL * spread).all())
    rows, seen, best = [], False, None
    for m, (name, agent, reference, _) in enumerate(plays):
        column = -1 if agent is None else agents.index(agent)
        difference = differences[m, :, column]
        interval = bootstrap_ratio(difference, np.ones(len(difference)), seed=seed)
        mean = float(parts[m][:, column].mean())
        rows.append(Script(name, agent, mean, float(difference.mean()), interval, reference))
        if matters[m, column] and difference.mean() > 0:
            seen = True
            if reference and (best is None or difference.mean() > best[1]):
                best = (name, difference.mean())
    means = random.mean(axis=0).tolist()
    firsts = zip(agents, means, strict=False) if alone else [(None, means[-1])]
    rows[:0] = [Script("random", agent, mean, 0.0, Interval(0.0, 0.0)) for agent, mean in firsts]
    counted = size[certain] if certain.any() else size
    return Scripts(
        rows=tuple(rows),
        alone=alone,
        moved=bool(differences.any()),
        certain=bool(certain.any()),
        matters=bool(matters.any()),
        negligible=negligible,
        seen=seen,
        largest=float(counted.max(initial=0.0)),
        spread=dict(zip(agents, base.std(axis=0).tolist(), strict=True)),
        steps=steps,
        episodes=len(base),
        best=None if best is None else best[0],
        left_out=left_out,
    )


def chance_of_all(differences: Array, seed: int) -> Array:
    """Return joint p-values [...] of paired differences [..., E], symmetric around 0 by chance.

    A p-value is the probability that the largest statistic is at least as large as this one.
    """
    shape, episodes = differences.shape[:-1], differences.shape[-1]
    flat = differences.reshape(-1, episodes)
    alive = flat.any(axis=1)
    chance = np.ones(len(flat))
    if alive.any():
        scaled = flat[alive] / np.sqrt((flat[alive] ** 2).mean(axis=1, keepdims=True))
        signs = generator(seed, "eval").integers(0, 2, (SIGNS, episodes)) * 2 - 1
        largest = np.abs(signs @ scaled.T).max(axis=1)
        statistics = np.abs(scaled.sum(axis=1))
        at_least = (largest[None] >= statistics[:, None] - 1e-9).sum(axis=1)
        chance[alive] = (at_least + 1) / (SIGNS + 1)
    return chance.reshape(shape)
