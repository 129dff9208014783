"""Checks of an AEC environment's turns: selection, last(), dead steps, cumulative rewards."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.conformance.play import Game, View
from corral.envs.conformance.report import brief, fingerprint

__all__ = ["TurnChecks", "number_of"]


class TurnChecks:
    """The checks of one episode's turns; ``add`` enters a finding."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add = add
        self._owed: dict[Any, float] = {}  # rewards since the agent's last action
        self._dead = False  # the selected agent's episode is over

    def watch(self, game: Game, view: View) -> None:
        agents = view.agents
        if agents and view.last is None:
            self._add(
                "selection: not live",
                view.selection,
                seen=f"agent_selection is {view.selection!r}, and agents are {brief(agents)}",
                expected="one of agents",
                advice="move agent_selection on when an agent leaves",
            )
        self._dead_step(view)
        cumulative = getattr(game.env, "_cumulative_rewards", {})
        for agent in view.agents:
            if view.step == 0 or agent not in self._owed:
                self._owed[agent] = number_of(cumulative.get(agent)) or 0.0
                continue
            if agent in view.acted and not self._dead:
                self._owed[agent] = 0.0
            self._owed[agent] += number_of(view.rewards.get(agent)) or 0.0
        if view.last is None or view.stuck:
            self._dead = False
            return
        agent, (total, *ends, info) = view.selection, view.last
        self._dead = any(map(bool, ends))
        reward = number_of(total)
        owed = self._owed[agent]
        if reward is not None and not math.isclose(reward, owed, rel_tol=1e-5, abs_tol=1e-6):
            if math.isfinite(reward) and math.isfinite(owed):
                self._add(
                    "cumulative-rewards: sum",
                    agent,
                    seen=f"last() pays {reward:g}; since its last action rewards came to {owed:g}",
                    expected="the sum of rewards[agent] after each step since it acted",
                    advice="in step(): set _cumulative_rewards[agent_selection] = 0, fill "
                    "self.rewards anew, call _accumulate_rewards() once",
                )
            self._owed[agent] = reward
        try:
            again = game.env.observe(agent)
        except Exception as error:  # whatever it raises: last() could observe a moment ago
            again = f"{type(error).__name__}: {error}"
        pairs = {
            "observation": (view.observations[agent], again),
            "termination": (ends[0], view.terminations.get(agent)),
            "truncation": (ends[1], view.truncations.get(agent)),
            "info": (info, view.infos.get(agent)),
        }
        for name, (one, two) in pairs.items():
            if fingerprint(one) != fingerprint(two):
                self._add(
                    f"last: {name}",
                    agent,
                    seen=f"the {name} of last() is {brief(one)}; asked again it is {brief(two)}",
                    expected="last() tells what observe(agent), terminations, truncations and "
                    "infos tell, at every call",
                    advice="leave last() as AECEnv has it, and let observe() change nothing",
                )

    def _dead_step(self, view: View) -> None:
        left = [agent for agent in view.before if agent not in view.agents]
        stepped = [agent for agent in view.acted if self._dead]
        for agent in stepped:
            if agent in view.agents:
                self._add(
                    "dead-step: stays",
                    agent,
                    seen="it has ended and took its None, and is still in agents",
                    expected="step(None) of an agent that has ended removes it from agents",
                    advice="begin step() with: if terminations[agent_selection] or "
                    "truncations[agent_selection]: return self._was_dead_step(action)",
                )
        for agent in left:
            if agent not in stepped:
                self._add(
                    "dead-step: left",
                    agent,
                    seen="it left agents without a turn of its own after its end",
                    expected="who has ended is selected once more, so that its last reward and "
                    "observation are seen, and takes None",
                    advice="set terminations or truncations and leave agents to _was_dead_step",
                )


def number_of(value: Any) -> float | None:
    """Return a reward as a float; None: it is no number."""
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return float(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf":
        return float(value)
    return None
