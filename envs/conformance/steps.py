"""Checks of a single step: agents, spaces, observations, rewards, ends, infos, returned values.

``StepChecks`` is the watcher of a game (``corral.envs.conformance.play``). It remembers the parts
of earlier steps that are compared with later steps.
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
    """Watcher of one episode with ``seed``; ``may_wait``: see ``check_form``."""

    def __init__(self, findings: Findings, seed: int | None, *, may_wait: bool = False) -> None:
        self.findings = findings
        self.seed = seed
        self.may_wait = may_wait
        self.masked = False  # a mask was observed
        self._had_state = False  # state() succeeded
        self._step = 0
        self._possible: set[Any] = set()
        self._gone: set[Any] = set()
        self._info_keys: dict[Any, set[Any]] = {}
        self._returned: list[tuple[str, Any, int, Any, str]] = []
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
                self.masked |= check_form(game, view, agent, self._add, may_wait=self.may_wait)
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
                expected="the agents that start the episode",
                advice="set self.agents in reset()",
            )
        for agent in live:
            if agent not in self._possible:
                self._unknown(agent, "agents")
            if agent in self._gone:
                self._add(
                    "agents: revived",
                    agent,
                    seen="it is in agents again after it was removed",
                    expected="an ended agent does not return before the next reset",
                    advice="use a new name for a joining agent, or do not end the old agent",
                )
        if len(set(live)) < len(live):
            self._add(
                "agents: twice",
                seen=f"agents are {live}",
                expected="each agent once",
                advice="add an agent only if it is not in agents",
            )
        tables: dict[str, Mapping[Any, Any]] = {"infos": view.infos}
        if not game.turns:
            tables["observations"] = view.observations
        if game.turns or view.step > 0:
            tables |= {f"{kind}s": table for kind, table in view.outcome.items()}
        expected = live if game.turns else [*before, *(a for a in live if a not in before)]
        for name, table in tables.items():
            for agent in table:
                if agent not in self._possible:
                    self._unknown(agent, name)
                elif agent not in expected and not game.turns:
                    self._add(
                        f"agents: {name} of the absent",
                        agent,
                        seen=f"{name} has an entry for it, but it was not live",
                        expected=f"{name} only for agents live before the step or joining in it",
                        advice=f"build {name} from self.agents from before the step",
                    )
            for agent in expected:
                if agent not in table:
                    self._add(
                        f"agents: {name} missing",
                        agent,
                        "warning" if name == "infos" else "error",
                        seen=f"{name} has no entry for it, but it is live",
                        expected=f"{name} for all live agents, also for those that end in it",
                        advice=f"build {name} from self.agents from before the step",
                    )
        if not game.turns:
            self._departures(view)
        self._gone |= set(before) - set(live)

    def _unknown(self, agent: Any, name: str) -> None:
        self._add(
            f"agents: {name} of strangers",
            agent,
            seen=f"it is in {name}, but not in possible_agents",
            expected="only agents from possible_agents",
            advice="add every possible agent to possible_agents, or remove this entry",
        )

    def _departures(self, view: View) -> None:
        """Check that exactly the ended agents leave a parallel environment, in the same step."""
        for agent in view.before:
            over = view.is_over(agent)
            if over and agent in view.agents:
                self._add(
                    "agents: stays",
                    agent,
                    seen="it was terminated or truncated, but is still in agents",
                    expected="an agent that ends in a step is not in agents after it",
                    advice="remove it from self.agents in the step that ends it",
                )
            if not over and agent not in view.agents:
                self._add(
                    "agents: left",
                    agent,
                    seen="it was removed from agents, but neither terminated nor truncated",
                    expected="an agent is removed in the step of its termination or truncation",
                    advice="set its termination or truncation in the step that removes it",
                )

    # --- Observations, rewards, ends, infos -----------------------------------------------------

    def _observation(self, game: Game, agent: Any, observation: Any) -> None:
        for mismatch in mismatches(game.space("observation", agent), observation, top=True):
            self._add(f"observation: {mismatch.cause}", agent, mismatch.severity, **mismatch.texts)

    def _state(self, env: Any, view: View) -> Any:
        """Check and return the global state; None if the state or its space is missing."""
        space = getattr(env, "state_space", None)
        if not (isinstance(space, spaces.Space) or view.step == 0 or self._had_state):
            return None
        try:
            state = env.state()
        except Exception as error:  # state may raise any exception
            ended = len(view.agents) < len(self._possible) or any(map(view.is_over, view.agents))
            if self._had_state and ended:
                self._add(
                    "api: state after an end",
                    seen=f"state() succeeded before, but raised {type(error).__name__}: {error} "
                    "after the end of an agent's episode",
                    expected="the global state, at any time after reset: critics evaluate the last "
                    "step with it",
                    advice="keep the state of the last step, and return it until the next reset; "
                    "corral's trainers use the state of the step before instead",
                )
            elif isinstance(space, spaces.Space) and not isinstance(error, NotImplementedError):
                self._add(
                    "api: state raises",
                    seen=f"state() raised {type(error).__name__}: {error}",
                    expected="the global state, at any time after reset",
                    advice="implement state(), or remove state_space",
                )
            return None
        self._had_state = True
        if not isinstance(space, spaces.Space):
            return None
        for one in mismatches(space, state, "state()"):
            self._add(f"observation: state {one.cause}", None, one.severity, **one.texts)
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
            advice="look for a division by 0, a log of 0, or an array in place of a number",
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
                        expected="True or False in terminations and truncations",
                        advice="convert it with bool()",
                    )
            if terminated is not False and truncated is not False and terminated and truncated:
                self._add(
                    "ends: both",
                    agent,
                    "warning",
                    seen="both terminated and truncated",
                    expected="terminated at the end of the game; truncated only at the time limit",
                    advice="set truncated only if not terminated: learners bootstrap at truncation",
                )

    def _info(self, agent: Any, info: Any) -> None:
        if not isinstance(info, Mapping):
            self._add(
                "info: no dict",
                agent,
                seen=f"an info of {brief(info)}",
                expected="a dict",
                advice="return {} if there is no info",
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
                seen=f"an info {' and '.join(parts)}, compared with its first info",
                expected="the same keys at reset and at every step",
                advice="return every key from reset on, with 0 as the empty value: loggers and "
                "TorchRL need constant keys",
            )

    # --- Values handed out ----------------------------------------------------------------------

    def _changes(self, game: Game, view: View, state: Any) -> None:
        """Check that the values of the previous call are unchanged; remember the current values."""
        for kind, agent, step, thing, before in self._returned:
            if fingerprint(thing) == before:
                continue
            self._add(
                f"aliasing: {kind}",
                agent,
                "error" if kind == "observation" else "warning",
                seen=f"the {kind} returned at step {step} has changed after step {view.step}",
                expected="returned values do not change: buffers store references to them",
                advice="return a copy, not the array or dict that the next step modifies",
            )
        values = [("observation", agent, value) for agent, value in view.observations.items()]
        values += [] if state is None else [("state", None, state)]
        if not game.turns:
            values += [("info", agent, info) for agent, info in view.infos.items()]
            values += [(f"dict of {kind}s", None, table) for kind, table in view.outcome.items()]
        self._returned = [
            (kind, agent, view.step, value, fingerprint(value)) for kind, agent, value in values
        ]


# --- Values and their spaces ---------------------------------------------------------------------


ADVICE = {
    "outside": "widen the space, or clip or scale the observation",
    "dtype": "use the dtype of the space, or declare the actual dtype in the space",
    "NaN": "look for a division by 0, or for an uninitialized array",
}


class Mismatch(NamedTuple):
    """One mismatch between a value and its space."""

    cause: str
    severity: Severity
    texts: dict[str, str]


def mismatches(space: Any, value: Any, path: str = "", top: bool = False) -> Iterator[Mismatch]:
    """Yield the mismatches between ``value`` and ``space``, except the mask at the ``top``."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            yield _mismatch("type", f"a {type(value).__name__}", "a dict", path)
            return
        if set(value) != set(space.spaces):
            keys = [sorted(map(str, keys)) for keys in (value, space.spaces)]
            yield _mismatch("keys", f"keys {keys[0]}", f"keys {keys[1]}", path)
        for key, part in space.spaces.items():
            if key in value and not (top and key == MASK):
                yield from mismatches(part, value[key], f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            yield _mismatch("type", brief(value), f"a tuple of {len(space.spaces)}", path)
            return
        for i, part in enumerate(space.spaces):
            yield from mismatches(part, value[i], f"{path}[{i}]")
    elif isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        yield from _array_mismatches(space, value, path)
    elif not space.contains(value):
        yield _mismatch("outside", brief(value), f"a value of {space}", path)


def _array_mismatches(space: Any, value: Any, path: str) -> Iterator[Mismatch]:
    if not isinstance(value, np.ndarray | np.generic):
        yield _mismatch("type", f"a {type(value).__name__}, {brief(value)}", "an array", path)
    elif value.shape != space.shape:
        yield _mismatch("shape", f"shape {value.shape}", f"shape {space.shape}", path)
    elif not np.can_cast(value.dtype, space.dtype):
        yield _mismatch("dtype", f"dtype {value.dtype}", f"dtype {space.dtype}", path)
    else:
        if value.dtype != space.dtype:
            texts = {
                "seen": f"dtype {value.dtype}" + (f" in {path}" if path else ""),
                "expected": f"dtype {space.dtype}",
                "advice": f"use dtype np.{space.dtype}: buffers have the dtype of the space",
            }
            yield Mismatch("other dtype", "warning", texts)
        array = np.asarray(value)
        if array.dtype.kind == "f" and np.isnan(array).any():
            yield _mismatch("NaN", f"NaN in {brief(array)}", "numbers", path)
        elif isinstance(space, spaces.Box):
            outside = (array < space.low) | (array > space.high)
            if outside.any():
                place = tuple(int(i) for i in np.argwhere(outside)[0])
                low, high = space.low[place], space.high[place]
                place_text = f" at index {', '.join(map(str, place))}" if place else ""
                yield _mismatch("outside", f"{array[place]}{place_text}", f"{low} to {high}", path)
        elif not space.contains(array.astype(space.dtype)):
            yield _mismatch("outside", brief(value), f"a value of {space}", path)


def _mismatch(cause: str, seen: str, expected: str, path: str) -> Mismatch:
    texts = {
        "seen": f"observation: {seen}" + (f" in {path}" if path else ""),
        "expected": f"space: {expected}",
        "advice": ADVICE.get(cause, "correct the space or the observation, so that they agree"),
    }
    return Mismatch(cause, "error", texts)
