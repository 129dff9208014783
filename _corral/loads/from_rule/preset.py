"""What the preset of the main job sets: all of it is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FROM_RULE", "MINUTES", "FromRule"]


@dataclass(frozen=True)
class FromRule:
    """All that the preset sets, in one place; what a user gives goes first."""

    env_kwargs: Mapping[str, Any] = field(
        default_factory=lambda: {"reward": "team", "arrivals": "unknown"}
    )
    net_arch: tuple[int, ...] = (128, 128)  # of clone and team
    clone: Mapping[str, Any] = field(  # settings of the trainer clone
        default_factory=lambda: {"num_envs": 64, "n_steps": 16, "n_minibatches": 2}
    )
    cloned: int = 131_072  # decisions that are cloned from, where that fits into:
    cloning: float = 0.2  # share of the whole, at most
    updates: int = 16  # of the clone, at least: num_envs is lower where nodes are many
    team: Mapping[str, Any] = field(  # settings of policy_iteration
        default_factory=lambda: {"n_epochs": 12, "lookahead": 8}
    )
    learning_rate: float = 8e-3  # by the number of nodes: all of them change at once
    decisions: int = 1_536  # of a rollout of 4 steps: the team's num_envs follows from it
    validating: float = 0.15  # of what follows the clone, at most
    validations: tuple[int, int] = (4, 20)  # over the team's learning: fewest, most
    validation: float = 0.3  # share of the windows that are not held out
    usable: float = 0.95  # share of the minutes that is planned

    def clone_settings(self, nodes: int) -> dict[str, Any]:
        """Return settings of the clone, for so many nodes."""
        most = self.cloned // (self.updates * self.clone["n_steps"] * nodes)
        num_envs = max(8, min(self.clone["num_envs"], most))
        return {**self.clone, "num_envs": num_envs, "net_arch": self.net_arch}

    def team_settings(self, nodes: int) -> dict[str, Any]:
        """Return settings of the team, for so many nodes."""
        num_envs = max(8, min(128, self.decisions // (4 * nodes)))
        rate = round(min(3e-3, self.learning_rate / nodes), 6)
        own = {"num_envs": num_envs, "net_arch": self.net_arch, "learning_rate": rate}
        return {**own, **self.team}


FROM_RULE = FromRule()
MINUTES = 5.0
"""How long it takes where neither minutes nor steps are given."""
