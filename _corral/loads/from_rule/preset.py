"""The settings of the preset "from rule"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FROM_RULE", "MINUTES", "FromRule"]


@dataclass(frozen=True)
class FromRule:
    """All settings of the preset; a user's settings have precedence."""

    env_kwargs: Mapping[str, Any] = field(
        default_factory=lambda: {"reward": "team", "arrivals": "unknown"}
    )
    net_arch: tuple[int, ...] = (128, 128)  # of clone and team
    clone: Mapping[str, Any] = field(  # settings of the trainer clone
        default_factory=lambda: {"num_envs": 64, "n_steps": 16, "n_minibatches": 2}
    )
    cloned: int = 131_072  # decisions for cloning, at most within the share ``cloning``
    cloning: float = 0.2  # maximum share of the whole job for cloning
    updates: int = 16  # minimum updates of the clone: num_envs is lower with many nodes
    team: Mapping[str, Any] = field(  # settings of policy_iteration
        default_factory=lambda: {"n_epochs": 12, "lookahead": 8}
    )
    learning_rate: float = 8e-3  # divided by the number of nodes, because all change at once
    decisions: int = 1_536  # in a rollout of 4 steps: sets the team's num_envs
    validating: float = 0.15  # maximum share of the time after cloning for validation
    validations: tuple[int, int] = (4, 20)  # minimum and maximum number during team training
    validation: float = 0.3  # share of the windows that are not held out
    usable: float = 0.95  # share of the minutes that is planned

    def clone_settings(self, nodes: int) -> dict[str, Any]:
        """Return the clone's settings for this number of nodes."""
        maximum = self.cloned // (self.updates * self.clone["n_steps"] * nodes)
        num_envs = max(8, min(self.clone["num_envs"], maximum))
        return {**self.clone, "num_envs": num_envs, "net_arch": self.net_arch}

    def team_settings(self, nodes: int) -> dict[str, Any]:
        """Return the team's settings for this number of nodes."""
        num_envs = max(8, min(128, self.decisions // (4 * nodes)))
        rate = round(min(3e-3, self.learning_rate / nodes), 6)
        settings = {"num_envs": num_envs, "net_arch": self.net_arch, "learning_rate": rate}
        return {**settings, **self.team}


FROM_RULE = FromRule()
MINUTES = 5.0
"""Default time budget, if neither minutes nor steps are given."""
