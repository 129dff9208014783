"""Errors for environments that do not fit agents as columns, with the reason and alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from gymnasium import spaces

from corral.errors import UnsupportedSpaceError

__all__ = ["ONE_SEAT", "refuse_absence", "refuse_death", "refuse_masks", "refuse_turns"]

ONE_SEAT = (
    "With one learning agent, every environment is a gymnasium.Env for every library: "
    "corral.adapters.SeatEnv(name or rules, seat=...)"
)


def refuse_turns(name: str) -> NoReturn:
    """Refuse turn-based games: the columns of agents without a choice would be noise."""
    raise UnsupportedSpaceError.of(
        f"{name} is turn-based, but this adapter requires every agent to act in every step",
        f"Use corral's own trainers, such as mappo. {ONE_SEAT}. Or step it with "
        "corral.adapters.make_batch, which reports the acting agents in each step",
    )


def refuse_masks(name: str, space: spaces.Space[Any]) -> None:
    """Refuse a request for masks if actions are not Discrete."""
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedSpaceError(f"{name}: actions of {space} have no mask, all are legal")


def refuse_death(name: str, agents: Sequence[str]) -> NoReturn:
    """Refuse agents that end before other agents: a column must act until the next episode."""
    raise UnsupportedSpaceError.of(
        f"{name}: {', '.join(agents)} ended before other agents, but this adapter requires every "
        "agent to act until the episode ends",
        "Use corral's own trainers, such as mappo. Or use "
        "vectorize(corral.adapters.wrappers.homogenize(env), ...), which keeps "
        f"ended agents in place, or step it with corral.adapters.make_batch. {ONE_SEAT}",
    )


def refuse_absence(name: str, agents: Sequence[str]) -> NoReturn:
    """Refuse agents that join late or have no legal action: a column must act in every step."""
    raise UnsupportedSpaceError.of(
        f"{name}: {', '.join(agents)} cannot act, but this adapter requires every agent to act in "
        "every step",
        f"{ONE_SEAT}. Or step it with corral.adapters.make_batch, which reports the acting agents "
        "in each step",
    )
