"""Check the turns of an AEC environment: selection, last(), dead steps, cumulative rewards.

``check_paid_again`` plays one more episode and marks rewards: after a step it adds a number to each
reward that is not 0. A step that assigns or clears all rewards removes the mark. If the next step
adds a marked reward to the cumulative rewards, it pays a reward of the step before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from corral.envs.conformance.play import Game, View
from corral.envs.conformance.report import brief, fingerprint
from corral.envs.conformance.session import Session

__all__ = ["TurnChecks", "check_paid_again", "number_of"]

MARK = 0.7310585786
"""Number that marks a reward: no sum of usual rewards contains it."""


class TurnChecks:
    """Checks of the turns in one episode; ``add`` adds a finding."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add = add
        self._owed: dict[Any, float] = {}  # rewards since the last action of the agent
        self._dead = False  # the selected agent has ended

    def watch(self, game: Game, view: View) -> None:
        agents = view.agents
        if agents and view.last is None:
            self._add(
                "selection: not live",
                view.selection,
                seen=f"agent_selection {view.selection!r} is not in agents {brief(agents)}",
                expected="agent_selection is one of agents",
                advice="select the next agent when an agent leaves",
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
                    seen=f"last() returned reward {reward:g}; the sum since its last action "
                    f"is {owed:g}",
                    expected="the sum of rewards[agent] over the steps since its last action",
                    advice="in step(): set _cumulative_rewards[agent_selection] = 0, assign all "
                    "of self.rewards, and call _accumulate_rewards() once",
                )
            self._owed[agent] = reward
        try:
            again = game.env.observe(agent)
        except Exception as error:  # any exception is a difference to last(), which succeeded
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
                    seen=f"the {name} of last() is {brief(one)}; read again it is {brief(two)}",
                    expected="last() returns the values of observe(agent), terminations, "
                    "truncations and infos, at every call",
                    advice="do not override last() of AECEnv, and do not change state in observe()",
                )

    def _dead_step(self, view: View) -> None:
        departed = [agent for agent in view.before if agent not in view.agents]
        stepped = [agent for agent in view.acted if self._dead]
        for agent in stepped:
            if agent in view.agents:
                self._add(
                    "dead-step: stays",
                    agent,
                    seen="after its end it took None but is still in agents",
                    expected="step(None) of an ended agent removes it from agents",
                    advice="start step() with: if terminations[agent_selection] or "
                    "truncations[agent_selection]: return self._was_dead_step(action)",
                )
        for agent in departed:
            if agent not in stepped:
                self._add(
                    "dead-step: left",
                    agent,
                    seen="it was removed from agents without a last turn after its end",
                    expected="an ended agent is selected once more, takes None, and receives its "
                    "last reward and observation",
                    advice="set terminations or truncations, and let _was_dead_step remove the "
                    "agent",
                )


class _Marking:
    """Marks the rewards of a game; ``repeat`` holds agent, step and reward of the first one that
    is paid again."""

    def __init__(self) -> None:
        self.repeat: tuple[Any, int, float] | None = None
        self._marked: dict[Any, float] = {}
        self._paid: dict[Any, float] = {}  # cumulative rewards after the step of the marks

    def watch(self, game: Game, view: View) -> None:
        paid = {
            agent: number_of(total) or 0.0
            for agent, total in getattr(game.env, "_cumulative_rewards", {}).items()
        }
        live = [agent for agent in view.agents if not view.is_over(agent)]
        for agent in self._marked.keys() & set(live) & paid.keys() if self.repeat is None else ():
            before = 0.0 if agent in view.acted else self._paid.get(agent, 0.0)
            if math.isclose(paid[agent] - before, self._marked[agent], abs_tol=1e-6):
                self.repeat = agent, view.step, self._marked[agent] - MARK
        self._marked, self._paid = {}, paid
        for agent in live:
            if reward := number_of(view.rewards.get(agent)):
                self._marked[agent] = game.env.rewards[agent] = reward + MARK


def check_paid_again(session: Session) -> None:
    """Check that an AEC environment pays a reward in one step only."""
    if not session.turns or session.findings.has("cumulative-rewards"):
        return
    seed, marking = session.seeds[0], _Marking()
    session.episode(seed, 0, session.game(marking))
    if marking.repeat is None:
        return
    agent, step, reward = marking.repeat
    session.findings.add(
        "cumulative-rewards: paid again",
        at=(agent, seed, step),
        seen=f"the reward {reward:g} of step {step - 1} stays in rewards, and step {step} pays it "
        "again",
        expected="a reward is paid in one step",
        advice="in step(): call _clear_rewards() before you assign rewards, or assign the rewards "
        "of all agents",
    )


def number_of(value: Any) -> float | None:
    """Return a reward as a float; None if it is not a number."""
    if isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return float(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf":
        return float(value)
    return None
