"""A load, and the question about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.data import Trace
from corral.envs.dfaas_v0.network import adjacency, no_choice
from corral.loads.advise.team import FEWEST
from corral.loads.advise.verdict import LOCAL
from corral.loads.advise.what_ifs import how_many
from corral.loads.replay import DEFAULT_WINDOW
from corral.loads.text import counted

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """A load, and the question about it."""

    load: Trace  # with capacity
    arrivals: str
    today: str  # the rule that runs today
    window: int | None  # steps, as given
    seed: int
    worth: float | None  # points, as given
    late: bool  # whether fresh reports were asked for that unknown arrivals do not allow
    settings: Mapping[str, Any]  # further arguments of dfaas_v0

    @property
    def steps(self) -> int:
        """Steps of a window."""
        own = self.window or self.load.steps_per_day or DEFAULT_WINDOW
        return min(own, len(self.load))

    @property
    def windows(self) -> int:
        return len(self.load) // self.steps

    @property
    def unit(self) -> str:
        """The name of a window: "day" or "window"."""
        return "day" if self.steps == self.load.steps_per_day else "window"

    @property
    def nothing(self) -> str | None:
        """Why it makes no difference what nodes do; None if it does."""
        agents = [f"node_{i}" for i in range(len(self.load.nodes))]
        links = adjacency(agents, self.load.nodes, self.settings.get("neighbours"))
        return no_choice(self.load, links)

    @property
    def constant(self) -> bool:
        """Whether load and capacity are the same in every step."""
        assert self.load.capacity is not None
        columns = self.load.arrivals, self.load.capacity
        return all(bool((each == each[:1]).all()) for each in columns)

    def game(self) -> dict[str, Any]:
        """Return the arguments of dfaas_v0 that a team is trained with."""
        return {**self.settings, "arrivals": self.arrivals, "max_cycles": self.steps}

    def plan(self) -> dict[str, Any]:
        """Return the arguments with which rules are played."""
        own = {key: value for key, value in self.settings.items() if key != "route"}
        return {"window": self.steps, "seed": self.seed, "arrivals": self.arrivals, **own}

    def beginning(self, team: str) -> str:
        """Return the plan, as far as it is known beforehand; ``team``: its part of it."""
        said = f"arrivals {self.arrivals}: "
        count = counted(self.windows, self.unit)
        if self.nothing:
            return f"{said}{LOCAL} plays {count}"
        asked = counted(
            how_many(self.load, {**self.settings, "arrivals": self.arrivals}), "what-if"
        )
        said += f"plain rules are fitted to {count}, with {asked}"
        return f"{said}; {team}" if team and self.windows >= FEWEST and not self.constant else said
