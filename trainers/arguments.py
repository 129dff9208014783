"""Checks of the arguments of ``corral.train``: who plays, how long, and what is kept."""

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
    "alike",
    "arguments_of",
    "check_saving",
    "instead_named",
    "learning",
    "named_after",
    "one_for_all",
    "played_by_others",
    "policy_of_each",
    "require_init",
    "seed_of",
    "whole_steps",
]

Policies = Literal["shared", "separate"] | Mapping[str, str] | Callable[[str], str]
"""Which agent plays by which policy."""

POLICY_NAME = re.compile(r"[a-z0-9_]{1,80}", flags=re.ASCII)
"""Policies give files of a checkpoint their names."""


# --- Numbers -------------------------------------------------------------------------------------


def whole_steps(name: str, value: Any, least: int = 1) -> int:
    """Return a number of env steps as an int; 1e6 is one too. Raises ValueError below ``least``."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return nonnegative_int(name, value, least)


def seed_of(value: Any) -> int:
    """Return a seed as an int. Raises ValueError."""
    if value is None:
        raise ValueError("seed=None: leave it out, or give a number, 0 or more")
    return nonnegative_int("seed", value)


def require_init(init: Any, critic: bool, settings: Mapping[str, Any]) -> None:
    """Raise ValueError where something is asked of a start, and there is none."""
    if init is not None:
        return
    if not critic:
        raise ValueError("init_critic=False is for init=, a run to start from; leave it out")
    if settings.get("stay_coef"):
        raise ValueError(
            f"stay_coef={settings['stay_coef']} holds a policy near the one that it starts from: "
            "give init=, a run to start from, or leave it out"
        )


def check_saving(
    checkpoint_every: int | None, keep: int | str
) -> tuple[int | None, int | Literal["all"]]:
    """Return env steps between checkpoints and how many to keep, as ints. Raises ValueError."""
    if checkpoint_every is not None:
        checkpoint_every = whole_steps("checkpoint_every", checkpoint_every)
    if keep == "all":
        return checkpoint_every, "all"
    if isinstance(keep, str):
        raise ValueError(f"keep={keep}: give a whole number, 1 or more, or all")
    return checkpoint_every, nonnegative_int("keep", keep, least=1)


def few_rows(env_config: Any) -> str:
    """Return what to say where fewer rows than an episode takes are left to train on; else ""."""
    rows, window = env_config.env_kwargs.get("rows"), env_config.env_kwargs.get("max_cycles")
    if not (env_config.held_out and rows and window) or rows[1] - rows[0] >= window:
        return ""
    return (
        f"only {rows[1] - rows[0]:,} rows are left to train on, fewer than an episode of "
        f"max_cycles {window:,}: hold out fewer (--held-out, held_out=), or give a lower max_cycles"
    )


# --- Who plays -----------------------------------------------------------------------------------


def arguments_of(env: str) -> Collection[str]:
    """Return the names of the arguments of an environment of corral, nothing of others."""
    return inspect.signature(rules_class(env)).parameters if registered_name(env) else ()


def played_by_others(opponents: Any, agents: Sequence[str]) -> dict[str, str]:
    """Return which agents never learn, and the text of who plays them (``opponents.mix``), in the
    order of ``agents``. Raises ValueError."""
    if opponents is not None and not isinstance(opponents, Mapping):
        example = {agents[-1]: opponents if isinstance(opponents, str) else "random"}
        raise ValueError(f"opponents={opponents!r}: give agent -> name, such as {example}")
    players = dict(opponents or {})
    for agent in players:
        if agent not in agents:
            raise ValueError(f"opponents name {agent!r}; the agents are {list(agents)}")
    if len(players) == len(agents):
        raise ValueError(f"opponents={players} play all agents; leave one of them out, to learn")
    return {agent: mix_text(players[agent]) for agent in agents if agent in players}


def named_after(opponents: Mapping[str, str], rules: Rules[Any]) -> dict[str, str]:
    """Return what the policies of opponents are called: reference players by their names, runs and
    mixes by the agent that they play."""
    return {
        agent: text if text in player_names(rules, agent) else f"opponent_{agent}"
        for agent, text in opponents.items()
    }


def alike(rules: Rules[Any], agents: Sequence[str]) -> bool:
    """Return whether one policy can play all ``agents``: their spaces are equal."""
    spaces = [(rules.observation_space(agent), rules.action_space(agent)) for agent in agents]
    return all(pair == spaces[0] for pair in spaces)


def policy_of_each(policies: Policies, agents: Sequence[str]) -> dict[str, str]:
    """Return the name of each agent's policy. Raises ValueError."""
    if policies == "shared":
        return dict.fromkeys(agents, "shared")
    if policies == "separate":
        policies = {agent: re.sub(r"[^a-z0-9_]", "_", agent.lower()) for agent in agents}
    if callable(policies):
        policies = {agent: policies(agent) for agent in agents}
    if not isinstance(policies, Mapping):
        raise ValueError(
            f"policies={policies!r}: give 'shared', 'separate', or agent -> policy as a mapping or "
            "a function"
        )
    if set(policies) != set(agents):
        more = "" if set(policies) < set(agents) else ": what opponents play has no policy"
        raise ValueError(f"policies name {list(policies)}, the agents are {list(agents)}{more}")
    for name in policies.values():
        if not (isinstance(name, str) and POLICY_NAME.fullmatch(name)):
            raise ValueError(
                f"policy name {name!r}: give 1 to 80 of a-z, 0-9 and _, as in "
                f"policies={{{agents[0]!r}: 'first', ...}}"
            )
    return {agent: policies[agent] for agent in agents}


def one_for_all(
    rules: Rules[Any], kind: Any, policies: Policies | None, settings: Mapping[str, Any]
) -> tuple[Policies | None, dict[str, Any]]:
    """Return policies and settings of a trainer of class ``kind``: a policy that plays any number
    of agents is shared, and not told which of them it plays. Raises ValueError for others."""
    why, chosen = any_number(rules), dict(settings)
    if why is None:
        return policies, chosen
    what = f"{why} is for one policy that plays any number of agents"
    if policies not in (None, "shared"):
        raise ValueError(f"policies={policies!r}: {what}; leave it out")
    if chosen.get("agent_id"):
        raise ValueError(f"agent_id=True: {what}, and is not told which; leave it out")
    if any(field.name == "agent_id" for field in dataclasses.fields(kind.Settings)):
        chosen["agent_id"] = False
    return "shared", chosen


def learning(names: Sequence[str] | None, policies: Mapping[str, str]) -> tuple[str, ...]:
    """Return the policies that learn; None: all. Raises ValueError."""
    every = tuple(dict.fromkeys(policies.values()))
    if names is None:
        return every
    if isinstance(names, str):
        raise ValueError(f"policies_to_train={names!r}: give a list of some of {list(every)}")
    if not names or set(names) - set(every):
        raise ValueError(f"policies_to_train={list(names)}: give some of {list(every)}")
    return tuple(name for name in every if name in names)


@contextmanager
def instead_named(config: Any) -> Iterator[None]:
    """Let a refusal of the environment's spaces name a command that runs."""
    try:
        yield
    except UnsupportedSpaceError as error:
        if config.trainer in ("mappo", "ippo"):
            raise
        env = config.env_config.source or config.env_config.env
        instead = f"What plays it: corral train {env} --trainer mappo"
        raise UnsupportedSpaceError(f"{error.reason or error}. {instead}") from error
