"""Cart poles: one plays the action of the step before, one plays the action at once."""

from __future__ import annotations

from typing import Any

import gymnasium


class Pole(gymnasium.Wrapper):  # type: ignore[misc]
    """CartPole-v1 without changes."""

    late = False

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))
        self.before = 0

    def reset(self, **kwargs: Any) -> Any:
        self.before = 0
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        before, self.before = self.before, int(action)
        return self.env.step(before if self.late else int(action))


class LatePole(Pole):
    """Each action is played one step late."""

    late = True
