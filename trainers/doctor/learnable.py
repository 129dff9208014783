"""Do choices matter, and does the observation show which is best? Asked of an environment alone.

Scripts that need no learning (the lowest legal action, the highest, each constant one, random
play, reference players) play the same episodes; where no two of them differ, there is nothing to
learn. Then moments of random play are forked (``corral.trainers.doctor.forks``): each legal action
is tried, random play goes on, and what the best one is worth is compared with what can be had by
one action for all moments, and by an action that is chosen from the observation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.spaces import ObservationCodec
from corral.envs.core import Array, Observation, Rules, copy_rows, generator, teams_of
from corral.envs.masks import MASK
from corral.envs.policy import Heuristic, PolicyLike, RandomPolicy
from corral.trainers.doctor.forks import Moments, worth
from corral.trainers.evaluation.episodes import Interval, bootstrap_ratio, play, play_episodes

__all__ = ["Forked", "Learnable", "Script", "learnable"]

EPISODES = 64
"""Episodes of each script."""

CONSTANTS = 8
"""Constant actions that are played at most, spread over all."""

MOMENTS, FORKS, ACTIONS = 192, 16, 6
"""Moments that are forked for each agent, copies of each, and actions that are tried."""

STEPS = 200_000
"""Env steps of a script's episodes at most: games without an end must end here."""


class Constant(Heuristic):
    """Plays the legal action nearest to ``action``; a share of the legal ones, where it is one."""

    def __init__(self, action: int | None = None, share: float | None = None) -> None:
        self.action, self.share = action, share

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        mask = np.atleast_2d(np.asarray(observation[MASK]) != 0)
        chosen = np.zeros(len(mask), dtype=np.int64)
        for row, legal in enumerate(mask):
            actions = np.flatnonzero(legal)
            if self.action is not None:
                chosen[row] = actions[np.abs(actions - self.action).argmin()]
            else:
                chosen[row] = actions[round((self.share or 0.0) * (len(actions) - 1))]
        return chosen if np.ndim(observation[MASK]) > 1 else chosen[0]


@dataclass(frozen=True)
class Script:
    """How one way to play compares with random play, over the same episodes."""

    name: str
    returns: float  # of the team, mean
    difference: float  # from random play
    interval: Interval


@dataclass(frozen=True)
class Forked:
    """What forked moments of one agent tell; worth is in units of its discounted return."""

    agent: str
    moments: int
    best: float  # how much more the best action is worth than a random one, beyond noise
    constant: float  # how much more the best single action for all moments is worth
    shown: float  # how much more an action chosen from the observation is worth
    noise: float  # standard error of these
    later: float  # share of the best action's gain that comes after its own step


@dataclass(frozen=True)
class Learnable:
    """What an environment gives to learn."""

    scripts: tuple[Script, ...]
    forked: tuple[Forked, ...]
    faults: tuple[str, ...]  # in words; none: there is something to learn
    notes: tuple[str, ...]


def learnable(rules: Rules[Any], *, gamma: float = 0.99, seed: int = 0) -> Learnable:
    """Return whether choices matter in an environment, and whether the observation shows how."""
    faults, notes = [], []
    scripts = _scripts(rules, seed)
    if all(_is_nothing(script) for script in scripts):
        faults.append(
            "no way to play differs from random play in its return: no choice matters, or all "
            "scripts are equally good"
        )
    if constant := list(_constant_observations(rules, seed)):
        faults.append(
            f"the observation of {', '.join(constant)} never changes: no action can depend on it"
        )
    forked = []
    if hasattr(rules, "make_batch"):
        notes.append("its moments cannot be copied: which action is best was not asked")
    else:
        forked = list(_forks(rules, gamma, seed))
    for each in forked:
        if each.best <= 3 * each.noise:
            faults.append(
                f"{each.agent}: no action is better than another at {each.moments} moments of "
                f"random play (the best gains {each.best:.3g} ± {2 * each.noise:.2g})"
            )
        elif max(each.shown, each.constant) < 0.1 * each.best and each.best > 6 * each.noise:
            faults.append(
                f"{each.agent}: the best action gains {each.best:.3g}, and its observation does "
                f"not tell which it is (chosen from it: {each.shown:.3g}, one for all moments: "
                f"{each.constant:.3g})"
            )
        if each.best > 6 * each.noise and abs(each.later) < 0.05:
            notes.append(
                f"{each.agent}: what an action changes comes in its own step (a bandit): a small "
                "gamma is enough"
            )
    return Learnable(tuple(scripts), tuple(forked), tuple(faults), tuple(notes))


# --- Scripts -------------------------------------------------------------------------------------


def _is_nothing(script: Script) -> bool:
    low, high = script.interval
    if low is None or high is None:
        return abs(script.difference) < 1e-9
    return low <= 0 <= high


def _scripts(rules: Rules[Any], seed: int) -> list[Script]:
    agents = rules.agents
    most = max(int(rules.action_space(agent).n) for agent in agents)
    constants = np.unique(np.linspace(0, most - 1, min(most, CONSTANTS)).round().astype(int))
    ways: dict[str, Mapping[str, PolicyLike]] = {
        "lowest legal": dict.fromkeys(agents, Constant(share=0.0)),
        "highest legal": dict.fromkeys(agents, Constant(share=1.0)),
        **{f"always {k}": dict.fromkeys(agents, Constant(int(k))) for k in constants},
        **teams_of(rules),
    }
    random = _returns(rules, dict.fromkeys(agents, RandomPolicy()), seed)
    found = []
    for name, team in ways.items():
        returns = _returns(rules, team, seed)
        difference = returns.sum(axis=1) - random.sum(axis=1)
        interval = bootstrap_ratio(difference, np.ones(len(difference)), seed=seed)
        if not np.any(difference):
            # Zero-sum games: the sum says nothing, one side's return does.
            own = returns[:, 0] - random[:, 0]
            difference, interval = own, bootstrap_ratio(own, np.ones(len(own)), seed=seed)
        mean = float(returns.sum(axis=1).mean())
        found.append(Script(name, mean, float(difference.mean()), interval))
    return found


def _returns(rules: Rules[Any], team: Mapping[str, PolicyLike], seed: int) -> Array:
    played, _ = play_episodes(
        rules, team, dict.fromkeys(rules.agents, False), episodes=EPISODES, seed=seed
    )
    order = np.lexsort((np.arange(len(played)), played.rows))  # the same episodes side by side
    return played.returns[order]


def _constant_observations(rules: Rules[Any], seed: int) -> Iterator[str]:
    """Yield the agents whose observation is the same in every step of random play."""
    team = dict.fromkeys(rules.agents, RandomPolicy())
    first: dict[str, Any] = {}
    changes: set[str] = set()
    turns = play(rules, team, dict.fromkeys(rules.agents, False), quota=np.ones(8, int), seed=seed)
    for turn in turns:
        for agent, observation in turn.observations.items():
            flat = _flat(rules, agent, observation)
            if agent not in first:
                first[agent] = flat[0].copy()
            if agent not in changes and (flat != first[agent]).any():
                changes.add(agent)
        if len(changes) == len(rules.agents):
            break
    turns.close()
    yield from (agent for agent in rules.agents if agent not in changes)


def _flat(rules: Rules[Any], agent: str, observation: Any) -> Array:
    """Return an observation [R, ...] as columns [R, F], images among them."""
    codec = ObservationCodec.of(agent, rules.observation_space(agent))
    rows = codec.rows(observation) or 0
    vector = np.zeros((rows, codec.width), np.float32)
    images = [np.zeros((rows, *image), np.uint8) for image in codec.images]
    codec.write(codec.inner(observation), vector, images)
    parts = [vector, *(image.reshape(rows, -1).astype(np.float32) / 255 for image in images)]
    return np.concatenate(parts, axis=1)


# --- Forks ---------------------------------------------------------------------------------------


def _forks(rules: Rules[Any], gamma: float, seed: int) -> Iterator[Forked]:
    rng = generator(seed, "eval")
    team = dict.fromkeys(rules.agents, RandomPolicy())
    for i, agent in enumerate(rules.agents):
        moments = _moments(rules, i, rng)
        if moments is None:
            continue
        mask = np.asarray(moments.observation()[MASK]) != 0
        actions = _tried(mask)  # [K, ACTIONS]
        if actions.shape[1] < 2:
            continue
        draws = int(rng.integers(2**63))
        halves = []
        own = []
        for half in range(2):  # one to choose by, one to measure with
            seeds = np.random.default_rng(draws + half)
            state = seeds.bit_generator.state
            q = []
            for k in range(actions.shape[1]):
                seeds.bit_generator.state = state  # common random numbers
                q.append(
                    worth(
                        moments, team, gamma=gamma, forks=FORKS // 2, rng=seeds, first=actions[:, k]
                    ).mean
                )
            halves.append(np.stack(q, axis=1))
            seeds.bit_generator.state = state
            own.append(
                np.stack(
                    [
                        worth(
                            moments,
                            team,
                            gamma=0.0,
                            forks=FORKS // 2,
                            rng=seeds,
                            first=actions[:, k],
                            horizon=1,
                        ).mean
                        for k in range(actions.shape[1])
                    ],
                    axis=1,
                )
            )
        observed = _flat(rules, agent, moments.observation())
        yield _compared(agent, actions, halves, own, observed)


def _moments(rules: Rules[Any], i: int, rng: np.random.Generator) -> Moments | None:
    """Return moments of random play in which agent ``i`` decides among two actions or more."""
    from corral.envs.batch import Batch

    batch = Batch(rules, 64, int(rng.integers(2**31)))
    batch.reset()
    parts: list[tuple[Any, Array, Array]] = []
    count = 0
    length = rules.max_cycles or 64
    every = max(1, length // 8)
    for t in range(min(4 * length, 2_000)):
        if t % every == 0:
            observation = rules.observe(batch.moments(np.arange(64))[0])[rules.agents[i]]
            choices = (np.asarray(observation[MASK]) != 0).sum(axis=1)
            acting = np.asarray(batch.acting)[:, i]
            rows = rng.permutation(np.flatnonzero(acting & (choices > 1)))[:24]
            if len(rows):
                parts.append(batch.moments(rows))
                count += len(rows)
        if count >= MOMENTS:
            break
        batch.step(batch.sample_actions(rng))
    if count < 16:
        return None
    states, elapsed, ended = zip(*parts, strict=True)
    fields = {
        name: np.concatenate([getattr(state, name) for state in states]) for name in vars(states[0])
    }
    state = type(states[0])(**fields)
    hidden: dict[str, Any] = dict.fromkeys(rules.agents)
    return Moments(
        rules,
        i,
        copy_rows(state, slice(None)),
        np.concatenate(elapsed),
        np.concatenate(ended),
        hidden,
    )


def _tried(mask: Array) -> Array:
    """Return actions that are tried at each moment: int64 [K, A'], spread over the legal ones."""
    count = min(ACTIONS, mask.shape[1])
    found = np.zeros((len(mask), count), dtype=np.int64)
    for k, legal in enumerate(mask):
        actions = np.flatnonzero(legal)
        found[k] = actions[np.linspace(0, len(actions) - 1, count).round().astype(int)]
    return found


def _compared(
    agent: str,
    actions: Array,
    halves: Sequence[Array],
    own: Sequence[Array],
    observed: Array,
) -> Forked:
    """Choose by one half of the forks, measure with the other, both ways round."""
    gains: dict[str, list[Array]] = {"best": [], "constant": [], "shown": [], "later": []}
    rows = np.arange(len(actions))
    for choose, measure, now in ((0, 1, own[1]), (1, 0, own[0])):
        by, of = halves[choose], halves[measure]
        base = of.mean(axis=1)
        best = by.argmax(axis=1)
        gains["best"].append(of[rows, best] - base)
        gains["later"].append((of[rows, best] - base) - (now[rows, best] - now.mean(axis=1)))
        gains["constant"].append(of[:, by.mean(axis=0).argmax()] - base)
        gains["shown"].append(of[rows, _nearest(observed, by)] - base)
    mean = {name: float(np.mean(np.concatenate(parts))) for name, parts in gains.items()}
    spread = np.concatenate(gains["best"])
    noise = float(spread.std() / np.sqrt(len(rows)))
    later = mean["later"] / mean["best"] if abs(mean["best"]) > 1e-12 else 0.0
    return Forked(agent, len(rows), mean["best"], mean["constant"], mean["shown"], noise, later)


NEIGHBORS = 12
"""Moments that look alike, whose best action is taken."""


def _nearest(observed: Array, values: Array) -> Array:
    """Return the action that is best at the moments that look most alike, itself left out: [K]."""
    scaled = observed - observed.mean(axis=0)
    scaled /= np.maximum(scaled.std(axis=0), 1e-6)
    squares = (scaled**2).sum(axis=1)
    distance = squares[:, None] + squares[None] - 2 * scaled @ scaled.T
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, axis=1)[:, :NEIGHBORS]
    found: Array = (values - values.mean(axis=1, keepdims=True))[near].mean(axis=1).argmax(axis=1)
    return found
