"""The rules of rps_v0 once more, in plain words and loops: a second reading.

Nothing here is vectorised and nothing is shared with ``corral.envs``. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

BEATS = {("rock", "scissors"), ("scissors", "paper"), ("paper", "rock")}
NAMES = ["rock", "paper", "scissors"]
INFO_KEYS = ("won", "lost", "drawn", "illegal_actions")


class ScalarRps:
    """One episode. After every ``step``: ``rewards`` and ``info``, one entry per player."""

    def __init__(self, rounds: int = 10) -> None:
        self.rounds = rounds
        self.played: list[tuple[str, str]] = []
        self.rewards = [0.0, 0.0]
        self.info = {key: [0, 0] for key in INFO_KEYS}

    @property
    def over(self) -> bool:
        return len(self.played) == self.rounds

    def step(self, actions: Sequence[int]) -> None:
        one, other = NAMES[actions[0]], NAMES[actions[1]]
        self.played.append((one, other))
        self.rewards = [0.0, 0.0]
        self.info = {key: [0, 0] for key in INFO_KEYS}
        if (one, other) in BEATS:
            winner = 0
        elif (other, one) in BEATS:
            winner = 1
        else:
            self.info["drawn"] = [1, 1]
            return
        self.rewards[winner], self.rewards[1 - winner] = 1.0, -1.0
        self.info["won"][winner] = self.info["lost"][1 - winner] = 1

    def one_hot(self, player: int) -> list[float]:
        last = self.played[-1][player] if self.played else "none"
        return [float(last == name) for name in ("none", *NAMES)]

    def mask(self) -> list[int]:
        return [0, 0, 0] if self.over else [1, 1, 1]

    def observation(self, player: int) -> list[float]:
        return self.one_hot(player) + self.one_hot(1 - player)

    def global_state(self) -> list[float]:
        return [*self.one_hot(0), *self.one_hot(1), len(self.played) / self.rounds]
