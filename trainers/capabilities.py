"""Declarations of a trainer: its capabilities, and the players of seats without its policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.trainers.pool import Pool

__all__ = ["Capabilities", "Seats"]


@dataclass(frozen=True)
class Capabilities:
    """Optional features of a trainer, in addition to learning in simultaneous games.

    A run that needs an undeclared feature is refused before its folder is created. ``__init__`` of
    a trainer gets an argument only if the feature is declared here and the run uses it.
    """

    turns: bool = True  # supports turn-based games
    opponents: bool = False  # untrained opponents: ``seats``, see ``Seats.opponents``
    pool: bool = False  # self-play against snapshots: ``seats``, see ``Seats.pool``
    model: bool = False  # custom networks: ``model``, a function that builds them
    settings_of: bool = False  # settings per policy: ``settings_of``, policy -> setting -> value
    validation: bool = False  # uses the validation rows: ``validation_rules``, rules
    advantages: bool = False  # its loss uses the advantages of ``on_advantages``
    sampled: bool = True  # its policies learn probabilities of actions; False: values of actions
    best_by: str | None = (
        None  # metric of the best checkpoint; None: validation, if any, else returns
    )


@dataclass(frozen=True)
class Seats:
    """The players of agents that the trained policies do not play."""

    opponents: Mapping[str, str] = field(default_factory=dict)
    """agent -> its player in every episode: a player or a mix, as text
    (``corral.trainers.opponents``)."""
    runs: Mapping[str, Any] = field(default_factory=dict)
    """Runs among the opponents and the pool's other players: name -> its pinned checkpoint."""
    pool: Pool | None = None
    """Snapshots of the trained policies, which play in a share of the episodes."""
