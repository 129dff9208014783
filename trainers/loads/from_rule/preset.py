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
    team: Mapping[str, Any] = field(  # settings of mappo
        default_factory=lambda: {
            "gamma": 0.8,
            "gae_lambda": 0.8,
            "learning_rate": 1e-3,
            "stay_coef": 0.1,
            "stay_target": 0.1,
        }
    )
    clone: Mapping[str, Any] = field(  # of the trainer clone alone
        default_factory=lambda: {"n_steps": 16, "n_minibatches": 2}
    )
    candidates: tuple[Mapping[str, Any], ...] = ({},)
    """Settings of mappo that are tried, each over those of ``team``: the one whose best checkpoint
    costs least in validation is trained again, for what is left of the time."""
    trials: float = 0.4  # share of what is left for learning that all of them take together
    decisions: int = 12_288  # of a rollout: num_envs follows from it, 8 to 64 by the nodes
    cloned: int = 98_304  # decisions that are cloned from, where that fits into:
    cloning: float = 0.2  # share of the whole, at most
    validating: float = 0.15  # at most, of what follows
    validations: tuple[int, int] = (4, 20)  # over the team's learning: fewest, most
    validation: float = 0.3  # share of the windows that are not held out
    usable: float = 0.95  # share of the minutes that is planned

    def num_envs(self, nodes: int) -> int:
        """Return how many environments are played at once, of so many nodes."""
        return max(8, min(64, self.decisions // (64 * nodes)))


FROM_RULE = FromRule()
MINUTES = 5.0
"""How long it takes where neither minutes nor steps are given."""
