"""What a trainer declares: what it can be given, and who plays the seats besides its policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.trainers.pool import Pool

__all__ = ["Capabilities", "Seats"]


@dataclass(frozen=True)
class Capabilities:
    """What a trainer can do beside learning in a game whose agents act at once.

    A run that asks for something else is refused before it gets a folder. ``__init__`` of a trainer
    gets an argument only where it is declared here and the run has something to give.
    """

    turns: bool = True  # plays games in which agents act one after the other
    opponents: bool = False  # others play some agents: ``seats``, see ``Seats.opponents``
    pool: bool = False  # plays against snapshots of its policies: ``seats``, see ``Seats.pool``
    model: bool = False  # learns networks of a user's own: ``model``, a function that makes them
    settings_of: bool = False  # settings by policy: ``settings_of``, policy -> setting -> value
    validation: bool = False  # looks at rows kept for validation: ``validation_rules``, rules
    advantages: bool = False  # its loss has the advantages that ``on_advantages`` shows
    best_by: str | None = None  # metric of the best checkpoint; None: validation, else returns


@dataclass(frozen=True)
class Seats:
    """Who plays agents besides the policies that learn."""

    opponents: Mapping[str, str] = field(default_factory=dict)
    """agent -> who plays it in every episode: a player or a mix, as text
    (``corral.trainers.opponents``)."""
    runs: Mapping[str, Any] = field(default_factory=dict)
    """The runs among them, and among the pool's other players: name -> its pinned checkpoint."""
    pool: Pool | None = None
    """Snapshots of the policies that learn, which play their agents in some episodes."""
