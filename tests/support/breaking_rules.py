"""Rules that fail while they are played, as a faulty environment would."""

from __future__ import annotations

from typing import Any

from support.steady_rules import SteadyRules


class BreaksLater(SteadyRules):
    """Raises in its third step."""

    steps = 0

    def step(self, state: Any, action: Any) -> Any:
        self.steps += 1
        if self.steps > 2:
            raise RuntimeError("broken on purpose")
        return super().step(state, action)
