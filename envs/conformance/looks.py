"""What a single call of reset or step may not show: one look at each view of a game.

``Looks`` is the watcher of a game (``corral.envs.conformance.play``). It remembers of earlier steps
what it must: who has left, the keys of infos, what was handed out, rewards not yet told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.conformance.play import MASK, Game, View, mask_of
from corral.envs.conformance.report import Findings, Severity
from corral.envs.conformance.spaces import look_at_spaces, misfits
from corral.envs.conformance.trace import brief, fingerprint
from corral.envs.conformance.turns import TurnLooks, number_of

__all__ = ["Looks"]


class Looks:
    """The watcher of one episode with ``seed``."""

    def __init__(self, findings: Findings, seed: int | None) -> None:
        self.findings = findings
        self.seed = seed
        self.masked = False  # whether a mask was seen
        self._step = 0
        self._known: set[Any] = set()  # possible_agents
        self._gone: set[Any] = set()
        self._info_keys: dict[Any, set[Any]] = {}
        self._handed_out: list[tuple[str, Any, int, Any, str]] = []
        self._turns = TurnLooks(self._add)

    def see(self, game: Game, view: View) -> None:
        self._step = view.step
        if view.step == 0:
            self._known = set(getattr(game.env, "possible_agents", ()) or view.agents)
        self._agents(game, view)
        when = f"at step {view.step}"
        shown = {*view.agents, *(agent for agent in view.observations if agent in self._known)}
        sound = {
            agent
            for agent in sorted(shown, key=str)
            if look_at_spaces(game, agent, self.findings, when)
        }
        for agent, observation in view.observations.items():
            if agent in sound and not (observation is None and self._is_over(view, agent)):
                self._observation(game, agent, observation)
        for agent in view.agents:
            if agent in sound and agent in view.observations and not self._is_over(view, agent):
                self._mask(game, view, agent)
        for table in (view.rewards, {} if view.last is None else {view.selection: view.last[0]}):
            for agent, reward in table.items():
                self._reward(agent, reward)
        self._ends(view)
        for agent, info in view.infos.items():
            if not game.turns or agent == view.selection:
                self._info(agent, info)
        if game.turns:
            self._turns.see(game, view)
        self._changes(game, view)

    def _add(self, check: str, cause: str, severity: Severity = "error", **told: Any) -> None:
        self.findings.add(check, cause, severity, seed=self.seed, step=self._step, **told)

    @staticmethod
    def _is_over(view: View, agent: Any) -> bool:
        return bool(view.terminations.get(agent) or view.truncations.get(agent))

    # --- Agents ----------------------------------------------------------------------------------

    def _agents(self, game: Game, view: View) -> None:
        live, before = view.agents, view.before
        if view.step == 0 and not live:
            self._add(
                "api",
                "nobody lives",
                seen="agents is empty after reset()",
                expected="the agents that begin the episode",
                advice="set self.agents in reset()",
            )
        for agent in live:
            if agent not in self._known:
                self._unknown(agent, "agents")
            if agent in self._gone:
                self._add(
                    "agents",
                    "revived",
                    agent=agent,
                    seen="it is in agents again after it had left",
                    expected="an agent that has ended stays away until the next reset",
                    advice="give an agent that joins a name of its own, or do not end it",
                )
        if len(set(live)) < len(live):
            self._add(
                "agents",
                "twice",
                seen=f"agents are {live}",
                expected="every agent once",
                advice="add an agent only where it is not in agents",
            )
        tables: dict[str, Mapping[Any, Any]] = {"infos": view.infos}
        if not game.turns:
            tables["observations"] = view.observations
        if game.turns or view.step > 0:
            tables["rewards"] = view.rewards
            tables["terminations"] = view.terminations
            tables["truncations"] = view.truncations
        expected = live if game.turns else [*before, *(a for a in live if a not in before)]
        for name, table in tables.items():
            for agent in table:
                if agent not in self._known:
                    self._unknown(agent, name)
                elif agent not in expected and not game.turns:
                    self._add(
                        "agents",
                        f"{name} of the absent",
                        agent=agent,
                        seen=f"{name} have an entry of it, and it was not live",
                        expected=f"{name} of the agents that lived before the step, or join in it",
                        advice=f"build {name} from self.agents as it was before the step",
                    )
            for agent in expected:
                if agent not in table:
                    self._add(
                        "agents",
                        f"{name} missing",
                        "warning" if name == "infos" else "error",
                        agent=agent,
                        seen=f"{name} have no entry of it, and it is live",
                        expected=f"{name} of every live agent, also of one that ends in this step",
                        advice=f"build {name} from self.agents as it was before the step",
                    )
        if not game.turns:
            self._departures(view)
        self._gone |= set(before) - set(live)

    def _unknown(self, agent: Any, name: str) -> None:
        self._add(
            "agents",
            f"{name} of strangers",
            agent=agent,
            seen=f"{name} have it, and possible_agents do not",
            expected="agents of possible_agents only",
            advice="name every agent that may come in possible_agents, or leave it out",
        )

    def _departures(self, view: View) -> None:
        """In a parallel environment who ends leaves in that step, and nobody else does."""
        for agent in view.before:
            over = self._is_over(view, agent)
            if over and agent in view.agents:
                self._add(
                    "agents",
                    "stays",
                    agent=agent,
                    seen="it was terminated or truncated, and is still in agents",
                    expected="who ends in a step is not in agents after it",
                    advice="remove it from self.agents in the step that ends it",
                )
            if not over and agent not in view.agents:
                self._add(
                    "agents",
                    "left",
                    agent=agent,
                    seen="it left agents, neither terminated nor truncated",
                    expected="an agent leaves in the step that ends its episode",
                    advice="set its termination, or its truncation, in the step in which it leaves",
                )

    # --- Observations and masks ------------------------------------------------------------------

    def _observation(self, game: Game, agent: Any, observation: Any) -> None:
        space = game.space("observation", agent)
        for misfit in misfits(space, observation, top=True):
            where = f" in {misfit.path}" if misfit.path else ""
            self._add(
                "observation",
                misfit.cause,
                misfit.severity,
                agent=agent,
                seen=misfit.seen + where,
                expected=misfit.expected,
                advice=misfit.advice,
            )

    def _mask(self, game: Game, view: View, agent: Any) -> None:
        observation, info = view.observations.get(agent), view.infos.get(agent)
        mask, space = mask_of(observation, info), game.space("action", agent)
        if mask is None:
            declared = game.space("observation", agent)
            if isinstance(declared, spaces.Dict) and MASK in declared.spaces:
                self._bad_mask(agent, "missing", f"no {MASK} in the observation", "its mask")
            return
        self.masked = True
        if not isinstance(space, spaces.Discrete):
            return  # said once in a note: there is no one form of masks for other spaces
        want = f"an int8 array of shape ({space.n},), of 0 and 1"
        if not isinstance(mask, np.ndarray):
            self._bad_mask(agent, "type", f"a {type(mask).__name__}: {brief(mask)}", want)
            return
        if mask.shape != (int(space.n),):
            self._bad_mask(agent, "shape", f"a mask of shape {mask.shape}", want)
            return
        if mask.dtype != np.int8:
            self._bad_mask(agent, "dtype", f"a mask of {mask.dtype}", want)
        if not np.isin(mask, (0, 1)).all():
            self._bad_mask(agent, "values", f"a mask with {brief(np.unique(mask))}", want)
        if not mask.any() and not self._waits(game, view):
            self._bad_mask(
                agent, "all zero", "an all-zero mask, and it has to act", "one legal action or more"
            )
        both = isinstance(observation, Mapping) and MASK in observation
        if both and isinstance(info, Mapping) and info.get(MASK) is not None:
            other = np.asarray(info[MASK])
            if other.shape != mask.shape or (other != mask).any():
                self._bad_mask(
                    agent, "two masks", "one mask in the observation, another in info", "one mask"
                )

    def _bad_mask(self, agent: Any, cause: str, seen: str, expected: str) -> None:
        advice = {
            "all zero": "end the episode where nothing can be done, or add an action that passes",
            "two masks": "keep the mask in one place",
        }.get(cause, "action_space.sample(mask) and learners rely on it; build it with np.int8")
        self._add("mask", cause, agent=agent, seen=seen, expected=expected, advice=advice)

    @staticmethod
    def _waits(game: Game, view: View) -> bool:
        """Whether a mask may be all zero: turns played as a ParallelEnv, and another can act."""
        metadata = getattr(game.env, "metadata", None) or {}
        in_turns = not metadata.get("is_parallelizable", True)
        masks = (mask_of(view.observations.get(a), view.infos.get(a)) for a in view.agents)
        return not game.turns and in_turns and any(np.any(mask) for mask in masks)

    # --- Rewards, ends, infos --------------------------------------------------------------------

    def _reward(self, agent: Any, reward: Any) -> None:
        number = number_of(reward)
        if number is not None and math.isfinite(number):
            return
        self._add(
            "reward",
            "no number" if number is None else "not finite",
            agent=agent,
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
                        "ends",
                        "no bool",
                        "warning",
                        agent=agent,
                        seen=f"an end of {brief(end)}, {type(end).__name__}",
                        expected="terminations and truncations of True and False",
                        advice="wrap it in bool()",
                    )
            if terminated is not False and truncated is not False and terminated and truncated:
                self._add(
                    "ends",
                    "both",
                    "warning",
                    agent=agent,
                    seen="both terminated and truncated",
                    expected="terminated where the game is over, else truncated where time is up",
                    advice="set truncated only where not terminated: learners bootstrap from it",
                )

    def _info(self, agent: Any, info: Any) -> None:
        if not isinstance(info, Mapping):
            self._add(
                "info",
                "no dict",
                agent=agent,
                seen=f"an info of {brief(info)}",
                expected="a dict",
                advice="give {} where there is nothing to say",
            )
            return
        keys = set(info)
        known = self._info_keys.setdefault(agent, keys)
        if keys != known:
            changes = [("without", known - keys), ("with", keys - known)]
            told = [f"{word} {', '.join(sorted(map(str, k)))}" for word, k in changes if k]
            self._add(
                "info",
                "keys",
                "warning",
                agent=agent,
                seen=f"an info {' and '.join(told)}, unlike its first",
                expected="the same keys at reset and at every step",
                advice="give every key from reset on, 0 where there is nothing to count: loggers "
                "and TorchRL rely on it",
            )

    # --- What was handed out ---------------------------------------------------------------------

    def _changes(self, game: Game, view: View) -> None:
        """Compare what the call before handed out with what it was then; remember this call's."""
        for what, agent, step, thing, was in self._handed_out:
            if fingerprint(thing) == was:
                continue
            self._add(
                "aliasing",
                what,
                "error" if what == "observation" else "warning",
                agent=agent,
                seen=f"the {what} handed out at step {step} is another one after step {view.step}",
                expected="what was handed out stays as it was: buffers keep it",
                advice="return a copy, and not the array or dict that the next step writes to",
            )
        given = [("observation", agent, seen) for agent, seen in view.observations.items()]
        if not game.turns:
            given += [("info", agent, info) for agent, info in view.infos.items()]
            tables = (view.rewards, view.terminations, view.truncations)
            names = ("dict of rewards", "dict of terminations", "dict of truncations")
            given += [(name, None, table) for name, table in zip(names, tables, strict=True)]
        self._handed_out = [
            (what, agent, view.step, thing, fingerprint(thing)) for what, agent, thing in given
        ]
