"""Environments that are no columns, refused: each says why, and what plays them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from gymnasium import spaces

from corral.errors import UnsupportedSpaceError

__all__ = ["ONE_SEAT", "refuse_absence", "refuse_death", "refuse_masks", "refuse_turns"]

ONE_SEAT = (
    "One seat at a time, every environment is a gymnasium.Env for every library: "
    "corral.adapters.SeatEnv(name or rules, seat=...)"
)


def refuse_turns(name: str) -> NoReturn:
    """Refuse turn-based games: some agents have no choice, and their columns would be noise."""
    raise UnsupportedSpaceError.of(
        f"{name} is turn-based, and here every agent acts in every step",
        f"corral's own trainers play it, for instance mappo. {ONE_SEAT}. Or step it with "
        "corral.adapters.make_batch, whose steps say who acts",
    )


def refuse_masks(name: str, space: spaces.Space[Any]) -> None:
    """Refuse to tell what is legal where actions are not Discrete."""
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedSpaceError(f"{name}: actions of {space} have no mask; all are legal")


def refuse_death(name: str, agents: Sequence[str]) -> NoReturn:
    """Refuse agents that leave before the others: a column cannot rest until the next episode."""
    raise UnsupportedSpaceError.of(
        f"{name}: {', '.join(agents)} ended before the others, and here every agent acts until the "
        "episode ends",
        "corral's own trainers play it, for instance mappo. Or use "
        "vectorize(corral.adapters.wrappers.homogenize(env), ...), which keeps "
        f"ended agents in place, or step it with corral.adapters.make_batch. {ONE_SEAT}",
    )


def refuse_absence(name: str, agents: Sequence[str]) -> NoReturn:
    """Refuse agents that come late, or have nothing legal to do: a column must act."""
    raise UnsupportedSpaceError.of(
        f"{name}: {', '.join(agents)} cannot act yet, and here every agent acts in every step",
        f"{ONE_SEAT}. Or step it with corral.adapters.make_batch, whose steps say who acts",
    )
