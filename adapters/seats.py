"""Agents that a policy plays in many copies: a ``Seat`` each, and who sits there by default.

A learner has one seat, or some; ``other_seats`` fills the rest with its opponents.
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

Found = TypeVar("Found")

Opponents = str | PolicyLike | Mapping[str, str | PolicyLike] | None
"""Who plays the other seats: a reference team's name (``corral.envs.reference``), one policy for
all, or a mapping from agents to policies or names of reference players, that of the learner's seat
not being asked; None: uniformly random legal play. A policy is whatever
``corral.envs.policy.as_policy`` takes."""


class Seat:
    """A policy that plays one agent in B copies, with its hidden state and its random numbers.

    The policy is asked for the rows that act, and for no others: the hidden state of the rest stays
    as it is.
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
        """Return actions [R, ...] for ``rows`` [R] of ``observation`` [B, ...]; None: for all.

        Raises ActionError where they are of another shape than R actions, and for Discrete actions
        where they are anything but whole numbers of 0 .. n - 1.
        """
        return self.decide(observation, rows).action

    def decide(self, observation: Observation, rows: Array | None = None) -> Decision:
        """Return the same as the policy's decision, with what it says besides."""
        obs, memory = observation, self.memory
        if rows is not None:
            obs, memory = take_tree(obs, rows), take_tree(memory, rows)
        decision = self.policy.act(obs, memory, self.rng, deterministic=self.deterministic)
        state = decision.state
        self.memory = state if rows is None else put_tree(self.memory, rows, state)
        action = self._checked(decision.action, count_rows(obs))
        return Decision(action, state, decision.extra)

    def forget(self, rows: Array) -> None:
        """Start from the initial hidden state in ``rows`` [R], whose episodes are over."""
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
                f"give {what} of shape {shape}"
            )
        if isinstance(self.actions, spaces.Discrete) and count:
            wrong = actions[(actions < 0) | (actions >= self.actions.n)]
            if len(wrong):
                raise ActionError(
                    f"{self.agent}: the policy's action {wrong[0]} is out of range; "
                    f"give 0..{self.actions.n - 1}"
                )
        return actions


def seat_of(rules: Rules[Any], seat: str | None) -> str:
    """Return the agent of that name; None: the first. Raises UnknownNameError."""
    if seat is not None and not (isinstance(seat, str) and seat in rules.agents):
        if not isinstance(seat, str):
            raise UnknownNameError(f"no agent named {seat!r}. Known: {', '.join(rules.agents)}")
        raise UnknownNameError.of(f"agent of {rules.name}", seat, rules.agents)
    return rules.agents[0] if seat is None else seat


def other_seats(
    rules: Rules[Any], seat: str, opponents: Opponents, num_envs: int, deterministic: bool
) -> dict[str, Seat]:
    """Return who plays the seats but ``seat``, in so many copies.

    Raises ValueError where ``opponents`` leave an agent without a policy, UnknownNameError.
    """
    team: Mapping[str, str | PolicyLike]
    _refuse_saved(opponents)
    if opponents is None or (opponents == "random" and third_party(rules)):
        team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    elif isinstance(opponents, str):
        from corral.envs.reference import reference_team  # brings pandas, which takes its time

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
            raise ValueError(f"opponents: no policy for {agent} of {rules.name}; give one")
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
    """Raise ValueError for a run or a path in place of policies; nothing is loaded by itself."""
    if isinstance(opponents, os.PathLike):
        _refuse_path(os.fspath(opponents))
    if hasattr(opponents, "policies") and not hasattr(opponents, "act"):
        raise ValueError(f"opponents: {opponents!r} is a run; give its policies, run.policies")


def _policy_of(player: str | PolicyLike, agent: str, rules: Rules[Any]) -> Policy:
    """Return who plays ``agent``: a reference player by name, or what stands for a policy."""
    _refuse_saved(player)
    if not isinstance(player, str):
        return as_policy(player, agent, rules.agents)
    if player == "random":
        return random_policy(rules.action_space(agent))
    from corral.envs.reference import reference_player  # brings pandas, which takes its time

    return _or_saved(player, lambda: reference_player(player, rules, agent))


def _or_saved(name: str, found: Callable[[], Found]) -> Found:
    """Return what is ``found`` by name; where there is none, a path says so."""
    try:
        return found()
    except UnknownNameError:
        if name.endswith(".zip") or os.path.exists(name.partition("@")[0]):
            _refuse_path(name)
        raise


def _refuse_path(name: str) -> None:
    load = f"PPO.load({name!r})" if name.endswith(".zip") else f"corral.load_run({name!r}).policies"
    raise ValueError(f"opponents: {name!r} names a file or a folder; give what is in it, {load}")


def reseed(rules: Rules[Any], others: Mapping[str, Seat], seed: int) -> None:
    """Let the opponent with index i draw from ``generator(seed, "policy", i)`` from now on."""
    for agent, other in others.items():
        other.rng = generator(seed, "policy", rules.agents.index(agent))


def require_common_end(name: str, agents: Sequence[str], ended: Array, over: Array) -> None:
    """Refuse agents that ``ended``, bool [B, N], in copies that are not ``over``, bool [B]."""
    early = (ended & ~over[:, None]).any(axis=0)
    if early.any():
        refuse_death(name, [agents[i] for i in np.flatnonzero(early).tolist()])


def require_all_act(name: str, agents: Sequence[str], acting: Array) -> None:
    """Refuse agents that do not act though no episode has ended; ``acting`` is bool [B, N]."""
    absent = ~acting.all(axis=0)
    if absent.any():
        refuse_absence(name, [agents[i] for i in np.flatnonzero(absent).tolist()])


# --- Chance --------------------------------------------------------------------------------------


def random_policy(space: spaces.Space[Any]) -> Policy:
    """Return what plays uniformly random legal actions of ``space``."""
    return RandomPolicy() if isinstance(space, spaces.Discrete) else RandomActions(space)


class RandomActions(Memoryless):
    """Plays uniformly random actions of a space that has no mask; always by chance."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space

    def rows(self, observation: Observation) -> int:
        """Return B: without a mask, observations are taken for a batch."""
        return count_rows(observation)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Return an action for each row of a batch; needs ``rng``."""
        if rng is None:
            raise ValueError("the random policy needs rng=, a numpy Generator")
        return Decision(random_actions(self.space, None, count_rows(observation), rng))


def random_actions(
    space: Any, mask: Array | None, num_envs: int, rng: np.random.Generator
) -> Array:
    """Return random actions [B, ...] of one agent, legal ones where it has a mask [B, A].

    Where a Box has no bound, they are drawn within 1 of 0, or of the bound that it has.
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
    drawn: Array = rng.random(shape) * (upper - lower) + lower
    return np.asarray(np.clip(drawn.astype(space.dtype), space.low, space.high))
