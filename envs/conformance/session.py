"""One check of one environment: what to play, what was played, what was found."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gymnasium import spaces

from corral.envs.conformance.play import (
    EXCEPTION,
    BadAnswer,
    Game,
    Make,
    NoEnvironment,
    Trace,
    Watcher,
    game_of,
    play_on,
)
from corral.envs.conformance.report import Findings, Severity, brief
from corral.envs.masks import has_mask
from corral.errors import ArgumentError, EnvironmentFault

__all__ = ["FORM", "Difference", "Session", "check_spaces", "middle_of", "record", "steps_of"]

FORM = "an environment of RLlib's form, or Gymnasium's: see docs/environments.md"
SHORT = 200  # steps of further episodes, once one did not end within the limit
FEWEST = 10  # steps that episodes are compared over at least
FURTHER = 18  # episodes beside two of each seed: other seeds, resets, neighbours, copies


@dataclass
class Session:
    """One check of one environment: what to play, what was played, what was found."""

    make: Make
    findings: Findings
    seeds: tuple[int, ...]
    limit: int
    stochastic: bool | None
    seconds: float | None = None  # that the check may take
    name: str = ""
    turns: bool = False
    masked: bool = False
    games: list[Game] = field(default_factory=list)  # those of the watched episodes, by seed
    traces: list[Trace] = field(default_factory=list)  # of ``seeds``
    ignore: tuple[str, ...] = ()  # kinds of parts that are known not to be repeatable
    fork: Literal["deepcopy", "pickle"] | None = None  # how a game can be copied
    episodes: int = 0
    steps: int = 0
    began: float = field(default_factory=time.monotonic)
    unfinished: bool = False  # time was over within the first episode
    cut: bool = False  # episodes are compared over ``limit`` steps, not to their end
    alone: str | None = None  # why there is only one environment, which is not to be closed

    def begin(self) -> bool:
        """Make the environment, check its agents and spaces; return if it can be played at all."""
        add = self.findings.add
        try:
            made = self.make()
            game = game_of(made)
        except NoEnvironment as error:
            add(
                "api: no environment",
                seen=str(error),
                expected="a function that returns a pettingzoo ParallelEnv or AECEnv",
                advice="derive the class from pettingzoo.ParallelEnv or pettingzoo.AECEnv",
            )
            return False
        except EnvironmentFault as error:
            seen, advice = error.seen or str(error), error.advice or "see the error"
            add("api: make raises", seen=seen, expected=FORM, advice=advice)
            return False
        except ArgumentError:  # the user's mistake, not the environment's
            raise
        except Exception as error:  # whatever make raises
            add(
                "api: make raises",
                seen=f"make() raised {type(error).__name__}: {error} ({_line_of(error)})",
                expected="a fresh environment, ready to be reset",
                advice="mend that line; arguments are given by --arg name=value, in Python by "
                "functools.partial(function, name=value)",
            )
            return False
        self.turns = game.turns
        metadata = getattr(made, "metadata", None) or {}
        self.name = str(metadata.get("name", type(made.unwrapped).__name__))
        if self.alone is None and self.make() is made:
            add(
                "api: one environment",
                seen="make() returned the same object twice",
                expected="a fresh environment at every call",
                advice="give a function that constructs the environment",
            )
            return False
        agents = list(getattr(made, "possible_agents", None) or ())
        if not agents:
            add(
                "api: possible_agents",
                "warning",
                seen="no possible_agents",
                expected="the names of all agents that may come",
                advice="set self.possible_agents in the constructor: learners need it for their "
                "networks",
            )
        checked = [check_spaces(game, agent, self.findings, "before reset") for agent in agents]
        sound = all(checked)
        if sound and any(
            has_mask(game.space("observation", agent))
            and not isinstance(game.space("action", agent), spaces.Discrete)
            for agent in agents
        ):
            self.findings.notes.append("masks of actions that are not Discrete were not checked")
        self.count(game)
        self.episodes -= 1  # it was not played
        return sound

    @property
    def shortened(self) -> bool:
        """Return whether episodes may be cut before their end."""
        return self.cut or self.unfinished or self.findings.has("endless")

    def left(self) -> float:
        """Return the seconds that are left; infinite without a limit."""
        if self.seconds is None:
            return math.inf
        return self.seconds - (time.monotonic() - self.began)

    def plan(self) -> None:
        """Cut the episodes that are to come, where whole ones would take too long.

        What was watched tells how long a step takes. Half of the time that is left is for episodes,
        the rest for masks and other processes.
        """
        longest = max((len(game.trace) for game in self.games), default=0)
        if not (self.steps and longest) or self.seconds is None or self.cut:
            return
        each = (time.monotonic() - self.began) / self.steps
        affordable = int(max(self.left(), 0) / 2 / each / (2 * len(self.seeds) + FURTHER))
        if affordable >= longest and not self.unfinished:
            return
        limit = self.steps_of_an_agent(affordable)
        self.cut, self.limit = True, min(self.limit, max(FEWEST, limit))
        self.findings.notes.append(
            f"to end in about {self.seconds:g} s, episodes were compared over their first "
            f"{self.limit:,} steps of each agent (the longest that was seen has "
            f"{self.steps_of_an_agent(longest):,}); give more seconds for all of them"
        )

    def steps_of_an_agent(self, calls: int) -> int:
        """Return about how many steps each agent has made after so many calls of step."""
        return -(-calls // max(1, steps_of(self.games[0], 1)))

    def game(self, watcher: Watcher | None = None) -> Game:
        return game_of(self.make(), watcher)

    def limit_of(self, game: Game) -> int:
        return steps_of(game, self.limit)

    def episode(
        self, seed: int | None, stream: int, game: Game | None = None, ends: float = math.inf
    ) -> Game:
        """Play an episode with ``game``, a fresh one unless given, and return it; it is left where
        it stands when the clock (time.monotonic) says ``ends``."""
        played = game or self.game()
        played.begin(seed, stream)
        ended = play_on(played, self.limit_of(played), ends)
        if not ended and time.monotonic() > ends:
            self.unfinished = True
            self.findings.skip(
                ["endless"],
                f"no episode had ended after {played.step:,} steps, when time was over; give more "
                "seconds, or a lower limit",
            )
        if not ended and not self.shortened:
            self.findings.add(
                "endless: limit",
                at=(None, seed, played.step),
                seen=f"an episode did not end within {played.step:,} steps",
                expected="a termination or a truncation of every agent",
                advice="give the environment a time limit; or, if its episodes are that long, "
                f"raise the check's limit, {self.limit:,}",
            )
            self.limit = min(self.limit, SHORT)
        self.count(played)
        return played

    def count(self, game: Game) -> None:
        """Add a game that was played to the totals, and close it."""
        self.episodes += 1
        self.steps += game.total_steps
        game.total_steps = 0
        if self.alone is not None:
            return
        try:
            game.close()
        except Exception as error:  # whatever it raises
            self.findings.add(
                "api: close",
                "warning",
                seen=f"close() raised {type(error).__name__}: {error}",
                expected="close() may be called at any time",
                advice="release only what is there",
            )

    def differs(self, one: Trace, two: Trace) -> Difference | None:
        return Difference.first(one, two, self.ignore)

    def same(
        self,
        one: Trace,
        two: Trace,
        fault: str,
        seed: int,
        severity: Severity = "error",
        *,
        seen: str,
        **texts: str,
    ) -> bool:
        """Compare two traces of ``seed``; enter a finding, and return False, where they differ."""
        difference = self.differs(one, two)
        if difference is not None:
            at = (difference.agent, seed, difference.step)
            self.findings.add(fault, severity, at=at, seen=f"{seen}: {difference}", **texts)
        return difference is None


def _line_of(error: BaseException) -> str:
    """Return file and line where an error was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def check_spaces(game: Game, agent: Any, findings: Findings, when: str) -> bool:
    """Check that an agent's spaces are the objects that they were first; False: it has none."""
    for kind in ("observation", "action"):
        ask: Callable[[Any], Any] = getattr(game.env, f"{kind}_space")
        try:
            first, now = game.space(kind, agent), ask(agent)
            if not isinstance(first, spaces.Space):
                raise BadAnswer(f"{brief(first)} is no gymnasium space")
        except Exception as error:  # whatever the environment raises
            findings.add(
                f"spaces: {kind} raises",
                at=(agent, None, None),
                seen=f"{kind}_space({agent!r}) {when}: {type(error).__name__}: {error}",
                expected="a space, for every one of possible_agents, at any time",
                advice="build the spaces in the constructor",
            )
            return False
        if now is first:
            continue
        equal = now == first
        findings.add(
            f"spaces: {kind} {'object' if equal else 'changed'}",
            at=(agent, None, None),
            seen=f"{kind}_space({agent!r}) is "
            + ("another object at each call" if equal else f"{now} {when}, at first {first}"),
            expected="the same object at every call"
            + (": seeding a space that is made anew has no effect" if equal else ""),
            advice="build spaces once, in the constructor, or cache the method with lru_cache",
        )
    return True


# --- Episodes and their traces -------------------------------------------------------------------


def record(make: Make, seeds: Sequence[int], limit: int) -> list[Trace]:
    """Play an episode per seed, each in a fresh environment; seed k with action stream k.

    ``limit``: steps of all agents after which an episode is cut. Once one was, ``SHORT`` is.
    """
    traces = []
    for stream, seed in enumerate(seeds):
        game = game_of(make())
        game.begin(seed, stream)
        if not play_on(game, steps_of(game, limit)):
            limit = min(limit, SHORT)
        traces.append(game.trace)
        game.close()
    return traces


def steps_of(game: Game, limit: int) -> int:
    """Return ``limit`` in calls of step: in an AEC environment each agent makes one of its own."""
    agents = getattr(game.env, "possible_agents", None) or game.env.agents
    return limit * max(1, len(agents)) if game.turns else limit


def middle_of(trace: Trace) -> int:
    return trace[-1].step // 2 if trace else 0


@dataclass(frozen=True)
class Difference:
    """The first place at which two traces part."""

    step: int
    what: str
    agent: str | None
    one: str
    two: str

    def __str__(self) -> str:
        """Such as: another reward of a: 0.5 against 0.25; with values that are short enough."""
        whose = f" of {self.agent}" if self.agent else ""
        values = f": {self.one} against {self.two}" if len(self.one + self.two) < 100 else ""
        return f"another {self.what}{whose}{values}"

    @classmethod
    def first(cls, one: Trace, two: Trace, ignore: Iterable[str] = ()) -> Difference | None:
        """Return where ``two`` first differs from ``one``; None: nowhere.

        ``ignore``: kinds of parts that may differ.
        """
        for a, b in zip(one, two, strict=False):
            if (EXCEPTION in a.parts) != (EXCEPTION in b.parts):
                return cls(
                    a.step,
                    "end by an exception",
                    None,
                    a.parts.get(EXCEPTION, "none"),
                    b.parts.get(EXCEPTION, "none"),
                )
            for key in [*a.parts, *(key for key in b.parts if key not in a.parts)]:
                here, there = a.parts.get(key, "nothing"), b.parts.get(key, "nothing")
                if key[0] not in ignore and here != there:
                    return cls(a.step, key[0], key[1] or None, here, there)
        if len(one) == len(two):
            return None
        shorter = min(one, two, key=len)
        ends = [str(trace[-1].step) if trace else "none" for trace in (one, two)]
        return cls(shorter[-1].step if shorter else 0, "last step", None, *ends)
