"""Checks of a single step: agents, spaces, observations, rewards, ends, infos, values handed out.

``StepChecks`` is the watcher of a game (``corral.envs.conformance.play``); it keeps of earlier
steps what a later one is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.masks import check_form
from corral.envs.conformance.play import Game, View
from corral.envs.conformance.report import Findings, Severity, brief, fingerprint
from corral.envs.conformance.session import check_spaces
from corral.envs.conformance.turns import TurnChecks, number_of
from corral.envs.masks import MASK

__all__ = ["StepChecks"]


class StepChecks:
    """The watcher of one episode with ``seed``."""

    def __init__(self, findings: Findings, seed: int | None) -> None:
        self.findings = findings
        self.seed = seed
        self.masked = False  # a mask came
        self._had_state = False  # state() worked
        self._step = 0
        self._possible: set[Any] = set()
        self._gone: set[Any] = set()
        self._info_keys: dict[Any, set[Any]] = {}
        self._handed_out: list[tuple[str, Any, int, Any, str]] = []
        self._turns = TurnChecks(self._add)

    def watch(self, game: Game, view: View) -> None:
        self._step = view.step
        if view.step == 0:
            self._possible = set(getattr(game.env, "possible_agents", ()) or view.agents)
        self._agents(game, view)
        agents = {*view.agents, *(agent for agent in view.observations if agent in self._possible)}
        sound = {
            agent
            for agent in sorted(agents, key=str)
            if check_spaces(game, agent, self.findings, f"at step {view.step}")
        }
        for agent, observation in view.observations.items():
            if agent in sound and not (observation is None and view.is_over(agent)):
                self._observation(game, agent, observation)
        for agent in view.agents:
            if agent in sound and agent in view.observations and not view.is_over(agent):
                self.masked |= check_form(game, view, agent, self._add)
        for table in (view.rewards, {} if view.last is None else {view.selection: view.last[0]}):
            for agent, reward in table.items():
                self._reward(agent, reward)
        self._ends(view)
        for agent, info in view.infos.items():
            if not game.turns or agent == view.selection:
                self._info(agent, info)
        if game.turns:
            self._turns.watch(game, view)
        state = self._state(game.env, view)
        self._changes(game, view, state)

    def _add(
        self, fault: str, agent: Any = None, severity: Severity = "error", **texts: str
    ) -> None:
        self.findings.add(fault, severity, at=(agent, self.seed, self._step), **texts)

    # --- Agents ----------------------------------------------------------------------------------

    def _agents(self, game: Game, view: View) -> None:
        live, before = view.agents, view.before
        if view.step == 0 and not live:
            self._add(
                "api: nobody lives",
                seen="agents is empty after reset()",
                expected="the agents that begin the episode",
                advice="set self.agents in reset()",
            )
        for agent in live:
            if agent not in self._possible:
                self._unknown(agent, "agents")
            if agent in self._gone:
                self._add(
                    "agents: revived",
                    agent,
                    seen="it is in agents again after it had left",
                    expected="an agent that has ended stays away until the next reset",
                    advice="give an agent that joins a name of its own, or do not end it",
                )
        if len(set(live)) < len(live):
            self._add(
                "agents: twice",
                seen=f"agents are {live}",
                expected="every agent once",
                advice="add an agent only where it is not in agents",
            )
        tables: dict[str, Mapping[Any, Any]] = {"infos": view.infos}
        if not game.turns:
            tables["observations"] = view.observations
        if game.turns or view.step > 0:
            tables |= {f"{what}s": table for what, table in view.outcome.items()}
        expected = live if game.turns else [*before, *(a for a in live if a not in before)]
        for name, table in tables.items():
            for agent in table:
                if agent not in self._possible:
                    self._unknown(agent, name)
                elif agent not in expected and not game.turns:
                    self._add(
                        f"agents: {name} of the absent",
                        agent,
                        seen=f"{name} have an entry of it, and it was not live",
                        expected=f"{name} of the agents that lived before the step, or join in it",
                        advice=f"build {name} from self.agents as it was before the step",
                    )
            for agent in expected:
                if agent not in table:
                    self._add(
                        f"agents: {name} missing",
                        agent,
                        "warning" if name == "infos" else "error",
                        seen=f"{name} have no entry of it, and it is live",
                        expected=f"{name} of every live agent, also of one that ends in this step",
                        advice=f"build {name} from self.agents as it was before the step",
                    )
        if not game.turns:
            self._departures(view)
        self._gone |= set(before) - set(live)

    def _unknown(self, agent: Any, name: str) -> None:
        self._add(
            f"agents: {name} of strangers",
            agent,
            seen=f"{name} have it, and possible_agents do not",
            expected="agents of possible_agents only",
            advice="name every agent that may come in possible_agents, or leave it out",
        )

    def _departures(self, view: View) -> None:
        """In a parallel environment who ends leaves in that step, and nobody else does."""
        for agent in view.before:
            over = view.is_over(agent)
            if over and agent in view.agents:
                self._add(
                    "agents: stays",
                    agent,
                    seen="it was terminated or truncated, and is still in agents",
                    expected="who ends in a step is not in agents after it",
                    advice="remove it from self.agents in the step that ends it",
                )
            if not over and agent not in view.agents:
                self._add(
                    "agents: left",
                    agent,
                    seen="it left agents, neither terminated nor truncated",
                    expected="an agent leaves in the step that ends its episode",
                    advice="set its termination, or its truncation, in the step in which it leaves",
                )

    # --- Observations, rewards, ends, infos -----------------------------------------------------

    def _observation(self, game: Game, agent: Any, observation: Any) -> None:
        for misfit in misfits(game.space("observation", agent), observation, top=True):
            self._add(f"observation: {misfit.cause}", agent, misfit.severity, **misfit.texts)

    def _state(self, env: Any, view: View) -> Any:
        """Return the global state, once it is checked; None: there is none, or no space of it."""
        space = getattr(env, "state_space", None)
        if not (isinstance(space, spaces.Space) or view.step == 0 or self._had_state):
            return None
        try:
            state = env.state()
        except Exception as error:  # whatever it raises
            ended = len(view.agents) < len(self._possible) or any(map(view.is_over, view.agents))
            if self._had_state and ended:
                self._add(
                    "api: state after an end",
                    seen=f"state() worked before, and raised {type(error).__name__}: {error}, when "
                    "an agent's episode had ended",
                    expected="the global state, at any time after reset: critics judge the last "
                    "step by it",
                    advice="keep the state of the last step, and return it until the next reset; "
                    "corral's trainers take the state of the step before instead",
                )
            elif isinstance(space, spaces.Space) and not isinstance(error, NotImplementedError):
                self._add(
                    "api: state raises",
                    seen=f"state() raised {type(error).__name__}: {error}",
                    expected="the global state, at any time after reset",
                    advice="leave state_space out where there is no state()",
                )
            return None
        self._had_state = True
        if not isinstance(space, spaces.Space):
            return None
        for misfit in misfits(space, state, "state()"):
            self._add(f"observation: state {misfit.cause}", None, misfit.severity, **misfit.texts)
        return state

    def _reward(self, agent: Any, reward: Any) -> None:
        number = number_of(reward)
        if number is not None and math.isfinite(number):
            return
        self._add(
            f"reward: {'no number' if number is None else 'not finite'}",
            agent,
            seen=f"a reward of {brief(reward)}" + (f", {type(reward).__name__}" * (number is None)),
            expected="a finite number",
            advice="look for a division by 0, a log of 0, or an array where a number belongs",
        )

    def _ends(self, view: View) -> None:
        for agent, terminated in view.terminations.items():
            truncated = view.truncations.get(agent, False)
            for end in (terminated, truncated):
                if not isinstance(end, bool | np.bool_):
                    self._add(
                        "ends: no bool",
                        agent,
                        "warning",
                        seen=f"an end of {brief(end)}, {type(end).__name__}",
                        expected="terminations and truncations of True and False",
                        advice="wrap it in bool()",
                    )
            if terminated is not False and truncated is not False and terminated and truncated:
                self._add(
                    "ends: both",
                    agent,
                    "warning",
                    seen="both terminated and truncated",
                    expected="terminated where the game is over, else truncated where time is up",
                    advice="set truncated only where not terminated: learners bootstrap from it",
                )

    def _info(self, agent: Any, info: Any) -> None:
        if not isinstance(info, Mapping):
            self._add(
                "info: no dict",
                agent,
                seen=f"an info of {brief(info)}",
                expected="a dict",
                advice="give {} where there is nothing to say",
            )
            return
        keys = set(info)
        first = self._info_keys.setdefault(agent, keys)
        if keys != first:
            changes = [("without", first - keys), ("with", keys - first)]
            parts = [f"{word} {', '.join(sorted(map(str, k)))}" for word, k in changes if k]
            self._add(
                "info: keys",
                agent,
                "warning",
                seen=f"an info {' and '.join(parts)}, unlike its first",
                expected="the same keys at reset and at every step",
                advice="give every key from reset on, 0 where there is nothing to count: loggers "
                "and TorchRL rely on it",
            )

    # --- Values handed out ----------------------------------------------------------------------

    def _changes(self, game: Game, view: View, state: Any) -> None:
        """Compare what the call before handed out with what it was then; remember this call's."""
        for what, agent, step, thing, was in self._handed_out:
            if fingerprint(thing) == was:
                continue
            self._add(
                f"aliasing: {what}",
                agent,
                "error" if what == "observation" else "warning",
                seen=f"the {what} handed out at step {step} is another one after step {view.step}",
                expected="what was handed out stays as it was: buffers keep it",
                advice="return a copy, and not the array or dict that the next step writes to",
            )
        values = [("observation", agent, value) for agent, value in view.observations.items()]
        values += [] if state is None else [("state", None, state)]
        if not game.turns:
            values += [("info", agent, info) for agent, info in view.infos.items()]
            values += [(f"dict of {what}s", None, each) for what, each in view.outcome.items()]
        self._handed_out = [
            (what, agent, view.step, value, fingerprint(value)) for what, agent, value in values
        ]


# --- Values and their spaces ---------------------------------------------------------------------


ADVICE = {
    "outside": "widen the space, or clip or scale what is observed",
    "dtype": "make it with the space's dtype, or declare the dtype that it has",
    "NaN": "look for a division by 0, or for an array that was never filled",
}


class Misfit(NamedTuple):
    """One way in which a value is not of its space."""

    cause: str
    severity: Severity
    texts: dict[str, str]


def misfits(space: Any, value: Any, path: str = "", top: bool = False) -> Iterator[Misfit]:
    """Yield how ``value`` is not of ``space``; the mask, at the ``top`` of a Dict, is left out."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            yield _misfit("type", f"a {type(value).__name__}", "a dict", path)
            return
        if set(value) != set(space.spaces):
            keys = [sorted(map(str, keys)) for keys in (value, space.spaces)]
            yield _misfit("keys", f"keys {keys[0]}", f"keys {keys[1]}", path)
        for key, part in space.spaces.items():
            if key in value and not (top and key == MASK):
                yield from misfits(part, value[key], f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            yield _misfit("type", brief(value), f"a tuple of {len(space.spaces)}", path)
            return
        for i, part in enumerate(space.spaces):
            yield from misfits(part, value[i], f"{path}[{i}]")
    elif isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        yield from _array_misfits(space, value, path)
    elif not space.contains(value):
        yield _misfit("outside", brief(value), f"a value of {space}", path)


def _array_misfits(space: Any, value: Any, path: str) -> Iterator[Misfit]:
    if not isinstance(value, np.ndarray | np.generic):
        yield _misfit("type", f"a {type(value).__name__}, {brief(value)}", "an array", path)
    elif value.shape != space.shape:
        yield _misfit("shape", f"shape {value.shape}", f"shape {space.shape}", path)
    elif not np.can_cast(value.dtype, space.dtype):
        yield _misfit("dtype", f"dtype {value.dtype}", f"dtype {space.dtype}", path)
    else:
        if value.dtype != space.dtype:
            texts = {
                "seen": f"dtype {value.dtype}" + (f" in {path}" if path else ""),
                "expected": f"dtype {space.dtype}",
                "advice": f"make it with dtype np.{space.dtype}: buffers have the space's dtype",
            }
            yield Misfit("other dtype", "warning", texts)
        array = np.asarray(value)
        if array.dtype.kind == "f" and np.isnan(array).any():
            yield _misfit("NaN", f"NaN in {brief(array)}", "numbers", path)
        elif isinstance(space, spaces.Box):
            outside = (array < space.low) | (array > space.high)
            if outside.any():
                place = tuple(int(i) for i in np.argwhere(outside)[0])
                low, high = space.low[place], space.high[place]
                at = f" at index {', '.join(map(str, place))}" if place else ""
                yield _misfit("outside", f"{array[place]}{at}", f"{low} to {high}", path)
        elif not space.contains(array.astype(space.dtype)):
            yield _misfit("outside", brief(value), f"a value of {space}", path)


def _misfit(cause: str, seen: str, expected: str, path: str) -> Misfit:
    texts = {
        "seen": f"an observation: {seen}" + (f" in {path}" if path else ""),
        "expected": f"in the space: {expected}",
        "advice": ADVICE.get(cause, "make the space and what is observed agree"),
    }
    return Misfit(cause, "error", texts)
