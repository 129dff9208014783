"""What the preset of the main job sets: all of it is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FROM_RULE", "MINUTES", "FromRule"]


@dataclass(frozen=True)
class FromRule:
    """All that the preset sets, in one place; what a user gives goes first."""

    env_kwargs: Mapping[str, Any] = field(default_factory=lambda: {"reward": "team"})
    team: Mapping[str, Any] = field(  # settings of policy_iteration
        default_factory=lambda: {
            "learning_rate": 3e-3,
            "n_epochs": 12,
            "net_arch": (128, 128),
            "lookahead": 8,
        }
    )
    decisions: int = 1_536  # of a rollout of 4 steps: num_envs follows from it, by the nodes
    validating: float = 0.15  # of the time, at most
    validations: tuple[int, int] = (4, 20)  # over the team's learning: fewest, most
    validation: float = 0.3  # share of the windows that are not held out
    usable: float = 0.95  # share of the minutes that is planned

    def num_envs(self, nodes: int) -> int:
        """Return how many environments are played at once, of so many nodes."""
        return max(8, min(128, self.decisions // (4 * nodes)))


FROM_RULE = FromRule()
MINUTES = 5.0
"""How long it takes where neither minutes nor steps are given."""
