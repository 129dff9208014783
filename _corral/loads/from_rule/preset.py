"""The settings of the preset "from rule"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FROM_RULE", "MINUTES", "FromRule"]

ROLLOUT = 4
"""Env steps of a rollout in each environment: the default of policy_iteration."""


@dataclass(frozen=True)
class FromRule:
    """All settings of the preset; a user's settings have precedence."""

    env_kwargs: Mapping[str, Any] = field(
        default_factory=lambda: {"reward": "team", "arrivals": "unknown"}
    )
    team: Mapping[str, Any] = field(  # settings of policy_iteration
        default_factory=lambda: {
            "net_arch": (128, 128),
            "n_epochs": 8,
            "lookahead": 8,
            "reach": 2,
            # Offsets cannot memorize much, and recorded futures keep the course of bursts:
            # benchmarks/loads/team_settings.py.
            "futures": "recorded",
        }
    )
    learning_rate: float = 8e-3  # divided by the number of nodes, because all change at once
    decisions: int = 1_536  # in a rollout: sets the team's num_envs
    updates: int = 64  # sets the env steps, if the user does not
    scale: float = 1.5  # load_scale and capacity_scale, in multiples of the training maximum
    validations: int = 10  # during training
    validation: float = 0.3  # share of the windows that are not held out

    def team_settings(self, nodes: int) -> dict[str, Any]:
        """Return the team's settings for this number of nodes."""
        rate = round(min(3e-3, self.learning_rate / nodes), 6)
        return {"num_envs": self.num_envs(nodes), "learning_rate": rate, **self.team}

    def num_envs(self, nodes: int) -> int:
        """Return the number of environments for this number of nodes."""
        return max(8, min(128, self.decisions // (ROLLOUT * nodes)))

    def steps(self, nodes: int) -> int:
        """Return the default number of env steps for this number of nodes."""
        return self.updates * ROLLOUT * self.num_envs(nodes)


FROM_RULE = FromRule()
MINUTES = 5.0
"""Default of the longest time of a job."""
