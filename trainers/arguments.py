"""Checks of the arguments of ``corral.train``: agents and policies, length, and saving."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from corral.envs.arguments import nonnegative_int
from corral.envs.core import Rules, any_number
from corral.envs.reference import player_names
from corral.envs.registry import registered_name, rules_class
from corral.errors import UnsupportedSpaceError
from corral.trainers.opponents.mix import mix_text

__all__ = [
    "Policies",
    "arguments_of",
    "check_saving",
    "have_equal_spaces",
    "learning",
    "opponent_policy_names",
    "opponent_texts",
    "policy_of_each",
    "require_init",
    "seed_of",
    "shared_for_any_number",
    "suggesting_a_trainer",
    "whole_steps",
]

Policies = Literal["shared", "separate"] | Mapping[str, str] | Callable[[str], str]
"""Assignment of agents to policies."""

POLICY_NAME = re.compile(r"[a-z0-9_]{1,80}", flags=re.ASCII)
"""Valid policy names; they become file names in a checkpoint."""


# --- Numbers -------------------------------------------------------------------------------------


def whole_steps(name: str, value: Any, least: int = 1) -> int:
    """Return env steps as an int; accepts floats such as 1e6. Raises ValueError below ``least``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return nonnegative_int(name, value, least)


def seed_of(value: Any) -> int:
    """Return a seed as an int. Raises ValueError for None, or if it is not a whole number >= 0."""
    if value is None:
        raise ValueError("seed=None: omit it, or pass a whole number, 0 or more")
    return nonnegative_int("seed", value)


def require_init(init: Any, critic: bool, settings: Mapping[str, Any]) -> None:
    """Raise ValueError if an argument needs ``init`` and it is missing."""
    if init is not None:
        return
    if not critic:
        raise ValueError("init_critic=False needs init=, a run to start from; omit it")
    if settings.get("stay_coef"):
        raise ValueError(
            f"stay_coef={settings['stay_coef']} penalizes leaving the initial policy: pass init=, "
            "a run to start from, or omit it"
        )


def check_saving(
    checkpoint_every: int | None, keep: int | str
) -> tuple[int | None, int | Literal["all"]]:
    """Return checkpoint interval in env steps and checkpoints to keep. Raises ValueError."""
    if checkpoint_every is not None:
        checkpoint_every = whole_steps("checkpoint_every", checkpoint_every)
    if keep == "all":
        return checkpoint_every, "all"
    if isinstance(keep, str):
        raise ValueError(f"keep={keep}: pass a whole number, 1 or more, or all")
    return checkpoint_every, nonnegative_int("keep", keep, least=1)


def few_rows(env_config: Any) -> str:
    """Return a warning if fewer training rows are left than an episode needs; else ""."""
    rows, window = env_config.env_kwargs.get("rows"), env_config.env_kwargs.get("max_cycles")
    if not (env_config.held_out and rows and window) or rows[1] - rows[0] >= window:
        return ""
    return (
        f"only {rows[1] - rows[0]:,} rows are left for training, fewer than one episode of "
        f"max_cycles {window:,}: hold out fewer (--held-out, held_out=), or lower max_cycles"
    )


# --- Agents and policies -------------------------------------------------------------------------


def arguments_of(env: str) -> Collection[str]:
    """Return the argument names of a built-in environment; () for a third-party environment."""
    return inspect.signature(rules_class(env)).parameters if registered_name(env) else ()


def opponent_texts(opponents: Any, agents: Sequence[str]) -> dict[str, str]:
    """Return untrained agents -> text of their opponents (``opponents.mix``), in the order of
    ``agents``. Raises ValueError."""
    if opponents is not None and not isinstance(opponents, Mapping):
        example = {agents[-1]: opponents if isinstance(opponents, str) else "random"}
        raise ValueError(f"opponents={opponents!r}: pass agent -> name, such as {example}")
    players = dict(opponents or {})
    for agent in players:
        if agent not in agents:
            raise ValueError(
                f"opponents contains the unknown agent {agent!r}; the agents are {list(agents)}"
            )
    if len(players) == len(agents):
        raise ValueError(
            f"opponents={players} play all agents; remove one, so that one agent can be trained"
        )
    return {agent: mix_text(players[agent]) for agent in agents if agent in players}


def opponent_policy_names(opponents: Mapping[str, str], rules: Rules[Any]) -> dict[str, str]:
    """Return the policy names of opponents: a reference player keeps its name, a run or a mix gets
    "opponent_" and its agent."""
    return {
        agent: text if text in player_names(rules, agent) else f"opponent_{agent}"
        for agent, text in opponents.items()
    }


def have_equal_spaces(rules: Rules[Any], agents: Sequence[str]) -> bool:
    """Return True if one policy can play all ``agents``: their spaces are equal."""
    spaces = [(rules.observation_space(agent), rules.action_space(agent)) for agent in agents]
    return all(pair == spaces[0] for pair in spaces)


def _of_agent(mapping: Callable[..., str]) -> Callable[[str], str]:
    """Return a mapping function of the agent alone.

    RLlib's take the episode, too. It is None here, because a run has one mapping for all episodes.
    """
    try:
        inspect.signature(mapping).bind("agent", None)
    except (TypeError, ValueError):
        return mapping
    try:
        inspect.signature(mapping).bind("agent")
    except TypeError:
        return lambda agent: mapping(agent, None)
    return mapping


def policy_of_each(policies: Policies, agents: Sequence[str]) -> dict[str, str]:
    """Return agent -> name of its policy. Raises ValueError."""
    if policies == "shared":
        return dict.fromkeys(agents, "shared")
    if policies == "separate":
        policies = {agent: re.sub(r"[^a-z0-9_]", "_", agent.lower()) for agent in agents}
    if callable(policies):
        mapping = _of_agent(policies)
        policies = {agent: mapping(agent) for agent in agents}
    if not isinstance(policies, Mapping):
        raise ValueError(
            f"policies={policies!r}: pass 'shared', 'separate', or agent -> policy as a mapping or "
            "a function"
        )
    if set(policies) != set(agents):
        more = "" if set(policies) < set(agents) else ": agents of opponents need no policy"
        raise ValueError(f"policies names {list(policies)}, the agents are {list(agents)}{more}")
    for name in policies.values():
        if not (isinstance(name, str) and POLICY_NAME.fullmatch(name)):
            raise ValueError(
                f"policy name {name!r}: use 1 to 80 of the characters a-z, 0-9 and _, as in "
                f"policies={{{agents[0]!r}: 'first', ...}}"
            )
    return {agent: policies[agent] for agent in agents}


def shared_for_any_number(
    rules: Rules[Any], kind: Any, policies: Policies | None, settings: Mapping[str, Any]
) -> tuple[Policies | None, dict[str, Any]]:
    """Return policies and settings for a trainer of class ``kind`` in an environment with any
    number of agents: one shared policy without agent IDs. Raises ValueError for other choices."""
    why, chosen = any_number(rules), dict(settings)
    if why is None:
        return policies, chosen
    limitation = f"{why} needs one shared policy for any number of agents"
    if policies not in (None, "shared"):
        raise ValueError(f"policies={policies!r}: {limitation}; omit it")
    if chosen.get("agent_id"):
        raise ValueError(f"agent_id=True: {limitation}, which gets no agent IDs; omit it")
    if any(field.name == "agent_id" for field in dataclasses.fields(kind.Settings)):
        chosen["agent_id"] = False
    return "shared", chosen


def learning(names: Sequence[str] | None, policies: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the trained policies; None: all. Raises ValueError."""
    every = tuple(dict.fromkeys(policies.values()))
    if names is None:
        return every
    if isinstance(names, str):
        raise ValueError(f"policies_to_train={names!r}: pass a list with some of {list(every)}")
    if not names or set(names) - set(every):
        raise ValueError(f"policies_to_train={list(names)}: pass some of {list(every)}")
    return tuple(name for name in every if name in names)


@contextmanager
def suggesting_a_trainer(config: Any) -> Iterator[None]:
    """Add a command that works to an UnsupportedSpaceError about the environment's spaces."""
    try:
        yield
    except UnsupportedSpaceError as error:
        if config.trainer in ("mappo", "ippo"):
            raise
        env = config.env_config.source or config.env_config.env
        instead = f"A trainer that supports it: corral train {env} --trainer mappo"
        raise UnsupportedSpaceError(f"{error.reason or error}. {instead}") from error
