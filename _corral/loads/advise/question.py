"""A load, and the settings for an advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from corral.data import Trace
from corral.envs.dfaas_v0.network import adjacency, no_choice
from corral.envs.dfaas_v0.routes import canonical_route
from corral.loads.advise.team import FEWEST
from corral.loads.advise.verdict import LOCAL, PLENTY
from corral.loads.advise.what_ifs import how_many
from corral.loads.replay import DEFAULT_WINDOW
from corral.loads.text import counted
from corral.loads.textbook.playing import Playground

__all__ = ["Question"]


@dataclass(frozen=True)
class Question:
    """A load, and the settings for an advice."""

    load: Trace  # with capacity
    arrivals: str
    today: str  # the rule that runs today
    window: int | None  # steps; None: default
    seed: int
    worth: float | None  # points; None: default
    late: bool  # whether the caller wanted reports of the same step, but arrivals are unknown
    settings: Mapping[str, Any]  # further arguments of dfaas_v0
    capacity: tuple[int, ...] | None = None  # of each node, if it replaced that of the trace
    arguments: Mapping[str, Any] = field(default_factory=dict)  # that differ from defaults

    @property
    def steps(self) -> int:
        """Steps of a window."""
        steps = self.window or self.load.steps_per_day or DEFAULT_WINDOW
        return min(steps, len(self.load))

    @property
    def windows(self) -> int:
        return len(self.load) // self.steps

    @property
    def unit(self) -> str:
        """The name of a window: "day" or "window"."""
        return "day" if self.steps == self.load.steps_per_day else "window"

    @property
    def nothing(self) -> str | None:
        """The reason why all policies do the same on this load; None if policies can differ."""
        agents = [f"node_{i}" for i in range(len(self.load.nodes))]
        links = adjacency(agents, self.load.nodes, self.settings.get("neighbours"))
        return no_choice(self.load, links)

    @property
    def constant(self) -> bool:
        """Whether load and capacity are the same in every step."""
        assert self.load.capacity is not None
        columns = self.load.arrivals, self.load.capacity
        return all(bool((column == column[:1]).all()) for column in columns)

    def game(self) -> dict[str, Any]:
        """Return the arguments of dfaas_v0 for training a team."""
        return {**self.settings, "arrivals": self.arrivals, "max_cycles": self.steps}

    def plan(self) -> dict[str, Any]:
        """Return the arguments for playing rules."""
        settings = {key: value for key, value in self.settings.items() if key != "route"}
        return {"window": self.steps, "seed": self.seed, "arrivals": self.arrivals, **settings}

    def require_valid(self) -> None:
        """Raise the errors of the settings, before anything is played."""
        if self.window is not None and self.window < 1:
            raise ValueError(f"window={self.window}: give 1 step or more")
        if "route" in self.settings:
            canonical_route(self.settings["route"])
        Playground(self.load, **self.plan())

    def beginning(self, team: str) -> str:
        """Return the plan of the advice as a sentence; ``team``: the part about a team."""
        text = f"arrivals {self.arrivals}: "
        count = counted(self.windows, self.unit)
        if self.nothing:
            return f"{text}{LOCAL} plays {count}"
        what_if_count = counted(
            how_many(self.load, {**self.settings, "arrivals": self.arrivals}), "what-if"
        )
        text += f"plain rules are fitted to {count}, with {what_if_count}"
        if not team or self.windows < FEWEST or self.constant:
            return text
        few = f" ({count} are too few to judge a team: {PLENTY} or more are needed)"
        return f"{text}; {team}{few * (self.windows < PLENTY)}"
