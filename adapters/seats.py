"""Seats: agents that a given policy plays in many environment copies.

A learner has one or several seats. ``other_seats`` fills the remaining seats with opponents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from corral.adapters.refusals import refuse_absence, refuse_death
from corral.envs.core import Array, Observation, Rules, generator, third_party
from corral.envs.masks import refuse_masked_arrays, sample_legal
from corral.envs.policy import (
    Decision,
    Memoryless,
    Policy,
    PolicyLike,
    RandomPolicy,
    as_policy,
    count_rows,
    put_tree,
    take_tree,
)
from corral.errors import ActionError, UnknownNameError

__all__ = [
    "Opponents",
    "RandomActions",
    "Seat",
    "other_seats",
    "random_actions",
    "random_policy",
    "require_all_act",
    "require_common_end",
    "reseed",
    "seat_of",
]

Result = TypeVar("Result")

Opponents = str | PolicyLike | Mapping[str, str | PolicyLike] | None
"""The policies of the other seats: the name of a reference team (``corral.envs.reference``), one
policy for all, or a mapping from agents to policies or names of reference players. An entry for the
learner's seat is not used. None means uniformly random legal play. A policy is any object that
``corral.envs.policy.as_policy`` accepts."""


class Seat:
    """A policy that plays one agent in B copies, with its hidden state and random generator.

    The policy is called only for rows that act. The hidden state of the other rows does not change.
    """

    def __init__(
        self,
        agent: str,
        policy: Policy,
        *,
        num_envs: int,
        actions: spaces.Space[Any],
        rng: np.random.Generator,
        deterministic: bool,
    ) -> None:
        self.agent = agent
        self.policy = policy
        self.actions = actions
        self.rng = rng
        self.deterministic = deterministic
        self.memory = policy.initial_state(num_envs)

    def act(self, observation: Observation, rows: Array | None = None) -> Array:
        """Return actions [R, ...] for ``rows`` [R] of ``observation`` [B, ...]; None: all rows.

        Raises ActionError for a wrong shape, and for Discrete actions other than integers in
        0 .. n - 1.
        """
        return self.decide(observation, rows).action

    def decide(self, observation: Observation, rows: Array | None = None) -> Decision:
        """Return the same as a Decision, including the policy's ``extra``."""
        obs, memory = observation, self.memory
        if rows is not None:
            obs, memory = take_tree(obs, rows), take_tree(memory, rows)
        decision = self.policy.act(obs, memory, self.rng, deterministic=self.deterministic)
        state = decision.state
        self.memory = state if rows is None else put_tree(self.memory, rows, state)
        action = self._checked(decision.action, count_rows(obs))
        return Decision(action, state, decision.extra)

    def forget(self, rows: Array) -> None:
        """Reset the hidden state in ``rows`` [R] after their episodes have ended."""
        self.memory = put_tree(self.memory, rows, self.policy.initial_state(len(rows)))

    def _checked(self, action: Any, count: int) -> Array:
        refuse_masked_arrays(action)
        actions = np.asarray(action)
        shape = (count, *(self.actions.shape or ()))
        kinds = "iu" if isinstance(self.actions, spaces.Discrete | spaces.MultiDiscrete) else "fiu"
        if actions.dtype.kind not in kinds or actions.shape != shape:
            what = "integers" if kinds == "iu" else "numbers"
            raise ActionError(
                f"{self.agent}: the policy's actions are {actions.dtype} {actions.shape}; "
                f"return {what} of shape {shape}"
            )
        if isinstance(self.actions, spaces.Discrete) and count:
            wrong = actions[(actions < 0) | (actions >= self.actions.n)]
            if len(wrong):
                raise ActionError(
                    f"{self.agent}: the policy's action {wrong[0]} is out of range; "
                    f"return 0..{self.actions.n - 1}"
                )
        return actions


def seat_of(rules: Rules[Any], seat: str | None) -> str:
    """Return the agent with the name ``seat``; None: the first agent. Raises UnknownNameError."""
    if seat is not None and not (isinstance(seat, str) and seat in rules.agents):
        if not isinstance(seat, str):
            raise UnknownNameError(f"no agent named {seat!r}. Known: {', '.join(rules.agents)}")
        raise UnknownNameError.of(f"agent of {rules.name}", seat, rules.agents)
    return rules.agents[0] if seat is None else seat


def other_seats(
    rules: Rules[Any], seat: str, opponents: Opponents, num_envs: int, deterministic: bool
) -> dict[str, Seat]:
    """Return the opponents in all seats except ``seat``, for ``num_envs`` copies.

    Raises ValueError if ``opponents`` has no policy for an agent, UnknownNameError for an unknown
    agent or team.
    """
    team: Mapping[str, str | PolicyLike]
    _refuse_saved(opponents)
    if opponents is None or (opponents == "random" and third_party(rules)):
        team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    elif isinstance(opponents, str):
        from corral.envs.reference import reference_team  # imports pandas, which is slow

        team = _or_saved(opponents, lambda: reference_team(opponents, rules))
    elif isinstance(opponents, Mapping):
        team = opponents
    else:
        team = dict.fromkeys(rules.agents, opponents)
    for agent in team:
        if agent not in rules.agents:
            raise UnknownNameError.of(f"agent of {rules.name}", str(agent), rules.agents)
    others = {}
    for i, agent in enumerate(rules.agents):
        if agent == seat:
            continue
        if agent not in team:
            raise ValueError(f"opponents: no policy for {agent} of {rules.name}; add one")
        others[agent] = Seat(
            agent,
            _policy_of(team[agent], agent, rules),
            num_envs=num_envs,
            actions=rules.action_space(agent),
            rng=generator(None, "policy", i),
            deterministic=deterministic,
        )
    return others


def _refuse_saved(opponents: Any) -> None:
    """Raise ValueError for a run or a path instead of policies, which are not loaded implicitly."""
    if isinstance(opponents, os.PathLike):
        _refuse_path(os.fspath(opponents))
    if hasattr(opponents, "policies") and not hasattr(opponents, "act"):
        raise ValueError(f"opponents: {opponents!r} is a run; pass its policies, run.policies")


def _policy_of(player: str | PolicyLike, agent: str, rules: Rules[Any]) -> Policy:
    """Return the policy for ``agent``: a reference player by name, or a converted policy."""
    _refuse_saved(player)
    if not isinstance(player, str):
        return as_policy(player, agent, rules.agents)
    if player == "random":
        return random_policy(rules.action_space(agent))
    from corral.envs.reference import reference_player  # imports pandas, which is slow

    return _or_saved(player, lambda: reference_player(player, rules, agent))


def _or_saved(name: str, find: Callable[[], Result]) -> Result:
    """Return ``found()``. For an unknown name that is a path, raise ValueError with a remedy."""
    try:
        return find()
    except UnknownNameError:
        if name.endswith(".zip") or os.path.exists(name.partition("@")[0]):
            _refuse_path(name)
        raise


def _refuse_path(name: str) -> None:
    load = f"PPO.load({name!r})" if name.endswith(".zip") else f"corral.load_run({name!r}).policies"
    raise ValueError(f"opponents: {name!r} names a file or a folder; pass its policy, {load}")


def reseed(rules: Rules[Any], others: Mapping[str, Seat], seed: int) -> None:
    """Reseed all opponents: the one with index i uses ``generator(seed, "policy", i)``."""
    for agent, other in others.items():
        other.rng = generator(seed, "policy", rules.agents.index(agent))


def require_common_end(name: str, agents: Sequence[str], ended: Array, over: Array) -> None:
    """Refuse agents that ``ended``, bool [B, N], in copies that are not ``over``, bool [B].

    Raises UnsupportedSpaceError.
    """
    early = (ended & ~over[:, None]).any(axis=0)
    if early.any():
        refuse_death(name, [agents[i] for i in np.flatnonzero(early).tolist()])


def require_all_act(name: str, agents: Sequence[str], acting: Array) -> None:
    """Refuse agents that do not act although no episode has ended; ``acting`` is bool [B, N]."""
    absent = ~acting.all(axis=0)
    if absent.any():
        refuse_absence(name, [agents[i] for i in np.flatnonzero(absent).tolist()])


# --- Random play ---------------------------------------------------------------------------------


def random_policy(space: spaces.Space[Any]) -> Policy:
    """Return a policy that plays uniformly random legal actions of ``space``."""
    return RandomPolicy() if isinstance(space, spaces.Discrete) else RandomActions(space)


class RandomActions(Memoryless):
    """Plays uniformly random actions of a space without masks, even if ``deterministic``."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space

    def rows(self, observation: Observation) -> int:
        """Return B. Without a mask, observations always count as a batch."""
        return count_rows(observation)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return an action for each row of a batch. Requires ``rng``."""
        if rng is None:
            raise ValueError("the random policy requires rng=, a numpy Generator")
        return Decision(random_actions(self.space, None, count_rows(observation), rng))


def random_actions(
    space: Any, mask: Array | None, num_envs: int, rng: np.random.Generator
) -> Array:
    """Return random actions [B, ...] of one agent, legal actions if it has a mask [B, A].

    For a Box without bounds, numbers are in -1 .. 1. With one bound, they are within 1 of it.
    """
    shape = (num_envs, *space.shape)
    if mask is not None:
        return sample_legal(mask, rng)
    if isinstance(space, spaces.MultiDiscrete):
        numbers: Array = rng.integers(space.nvec, size=shape) + space.start
        return numbers.astype(space.dtype)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    lower = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, -1.0))
    upper = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1.0))
    if space.dtype.kind in "iu":
        whole: Array = np.floor(rng.random(shape) * (upper - lower + 1)) + lower
        return whole.astype(space.dtype)
    samples: Array = rng.random(shape) * (upper - lower) + lower
    return np.asarray(np.clip(samples.astype(space.dtype), space.low, space.high))
