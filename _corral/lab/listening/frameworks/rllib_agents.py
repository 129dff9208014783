"""Compare the agents of a multi-agent environment of RLlib, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from corral.lab.listening.frameworks.rllib_traps import Module

__all__ = ["Agents"]

STEPS, ENDS = 1024, 8
"""Compared steps of one copy, and the minimum number of ended episodes."""

SEEN = 32
"""Minimum number of steps in which two agents observe, before equal observations count."""

AGENTS = 8
"""Number of agents with compared observations."""


class Agents:
    """Hears ``step`` of a MultiAgentEnv."""

    def __init__(self) -> None:
        self.modules: dict[Any, str] = {}  # agent -> module
        self._steps = self._ends = 0
        self._cut: Counter[Any] = Counter()  # ends of others in which an agent went on
        self._both: Counter[tuple[Any, Any]] = Counter()  # steps in which both agents observe
        self._equal: Counter[tuple[Any, Any]] = Counter()
        self._previous: dict[tuple[Any, Any], Any] = {}
        self._moving: Counter[tuple[Any, Any]] = Counter()  # observations that differ from the last

    def stepped(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note the observations and ends of a step."""
        if self._steps >= STEPS:
            return
        self._steps += 1
        acted = args[0] if args else next(iter(kwargs.values()), {})
        obs, _, terminated, truncated, _ = result
        if terminated.get("__all__") or truncated.get("__all__"):
            over = {agent for agent in acted if terminated.get(agent) or truncated.get(agent)}
            self._ends += bool(over)
            self._cut.update(set(acted) - over if over else ())
        for pair in combinations(list(obs)[:AGENTS], 2):
            first, second = (obs[agent] for agent in pair)
            if isinstance(first, Mapping | tuple) or isinstance(second, Mapping | tuple):
                continue
            self._both[pair] += 1
            self._equal[pair] += np.array_equal(first, second)
            previous = self._previous.get(pair)
            self._moving[pair] += previous is None or not np.array_equal(first, previous)
            self._previous[pair] = np.array(first)

    def check(self, modules: Mapping[str, Module]) -> None:
        """Report agents without an own end, and agents of two policies that observe the same."""
        for agent, count in self._cut.items():
            module = modules.get(self.modules.get(agent, ""))
            if module is not None and module.trained and count == self._ends >= ENDS:
                measured = f"{agent!r} has no end of its own in {count} of {count} episodes"
                module.sprung("agent-cut-off", measured, module.played.env)
        for pair, count in self._both.items():
            of = [self.modules.get(agent, "") for agent in pair]
            module = modules.get(of[1])
            if module is None or not module.trained or of[0] == of[1]:
                continue
            if self._equal[pair] == count >= SEEN and self._moving[pair] > 0.5 * count:
                measured = f"{pair[0]!r} and {pair[1]!r}: equal in {count} of {count} steps"
                module.sprung("observation-of-another", measured, module.played.env)
