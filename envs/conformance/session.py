"""State of one check of one environment: its settings, played episodes and findings."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gymnasium import spaces

from corral.clock import Clock
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

FORM = "an environment with RLlib's or Gymnasium's interface, see docs/environments.md"
SHORT = 200  # maximum steps of later episodes, after one reached the limit
FEWEST = 10  # minimum number of compared steps
FURTHER = 18  # episodes besides two per seed: other seeds, resets, interleaving, copies


@dataclass
class Session:
    """State of one check of one environment: its settings, played episodes and findings."""

    make: Make
    findings: Findings
    seeds: tuple[int, ...]
    limit: int
    stochastic: bool | None
    seconds: float | None = None  # time limit of the check, by ``clock``
    name: str = ""
    turns: bool = False
    masked: bool = False
    alternates: bool = False  # agents of a ParallelEnv take turns
    games: list[Game] = field(default_factory=list)  # games of the watched episodes, by seed
    traces: list[Trace] = field(default_factory=list)  # traces of ``seeds``
    ignore: tuple[str, ...] = ()  # kinds of trace entries that are not repeatable
    fork: Literal["deepcopy", "pickle"] | None = None  # how to copy a game; None: no way
    episodes: int = 0
    steps: int = 0
    clock: Clock = field(default_factory=Clock)
    after_whole: Trace = field(default_factory=list)  # seeds[0] again, after the watched episode
    whole_limit: int = 0  # ``limit`` without cuts
    unfinished: bool = False  # the time limit was reached in the first episode
    cut: bool = False  # episodes are compared over ``limit`` steps only
    no_copies: str | None = None  # reason for playing one environment, which stays open

    def begin(self) -> bool:
        """Construct the environment, check its agents and spaces, and return True if playable."""
        add = self.findings.add
        try:
            made = self.make()
            game = game_of(made)
        except NoEnvironment as error:
            add(
                "api: no environment",
                seen=str(error),
                expected="a function that returns a PettingZoo ParallelEnv or AECEnv",
                advice="derive the class from pettingzoo.ParallelEnv or pettingzoo.AECEnv",
            )
            return False
        except EnvironmentFault as error:
            seen, advice = error.seen or str(error), error.advice or "see the error"
            add("api: make raises", seen=seen, expected=FORM, advice=advice)
            return False
        except ArgumentError:  # the user's mistake, not the environment's
            raise
        except Exception as error:  # make may raise any exception
            add(
                "api: make raises",
                seen=f"make() raised {type(error).__name__}: {error} ({_line_of(error)})",
                expected="a fresh environment, ready to be reset",
                advice="correct that line. Pass missing arguments with --arg name=value, or in "
                "Python with functools.partial(function, name=value)",
            )
            return False
        self.turns = game.turns
        metadata = getattr(made, "metadata", None) or {}
        self.name = str(metadata.get("name", type(made.unwrapped).__name__))
        if self.no_copies is None and self.make() is made:
            add(
                "api: one environment",
                seen="make() returned the same object twice",
                expected="a fresh environment at every call",
                advice="construct the environment in every call",
            )
            return False
        agents = list(getattr(made, "possible_agents", None) or ())
        if not agents:
            add(
                "api: possible_agents",
                "warning",
                seen="possible_agents is missing",
                expected="the names of all agents that can appear",
                advice="set self.possible_agents in the constructor: learners build one network "
                "per agent from it",
            )
        checked = [check_spaces(game, agent, self.findings, "before reset") for agent in agents]
        sound = all(checked)
        if sound and any(
            has_mask(game.space("observation", agent))
            and not isinstance(game.space("action", agent), spaces.Discrete)
            for agent in agents
        ):
            self.findings.notes.append("masks of non-Discrete actions were not checked")
        self.count(game)
        self.episodes -= 1  # no episode was played
        return sound

    @property
    def shortened(self) -> bool:
        """Return True if episodes may stop before their end."""
        return self.cut or self.unfinished or self.findings.has("endless")

    def remaining(self) -> float:
        """Return the remaining seconds; infinite without a time limit."""
        if self.seconds is None:
            return math.inf
        return self.seconds - self.clock.seconds()

    def plan(self) -> None:
        """Limit the length of the following episodes if whole ones would take too long.

        The watched episodes show the time per step. Half of the remaining time is for episodes, the
        rest for masks and other processes.
        """
        longest = max((len(game.trace) for game in self.games), default=0)
        if not (self.steps and longest) or self.seconds is None or self.cut:
            return
        steps = max(self.remaining(), 0) / 2 / self.per_step()
        affordable = int(steps / (2 * len(self.seeds) + FURTHER))
        if affordable >= longest and not self.unfinished:
            return
        limit = self.steps_of_an_agent(affordable)
        self.cut, self.limit = True, min(self.limit, max(FEWEST, limit))
        self.findings.notes.append(
            f"to finish in about {self.seconds:g} s, episodes were compared over the first "
            f"{self.limit:,} steps of each agent (the longest episode has "
            f"{self.steps_of_an_agent(longest):,}); allow more seconds to compare all steps"
        )

    def per_step(self) -> float:
        """Return the mean seconds per step so far; at least one step has been played."""
        return self.clock.seconds() / self.steps

    def steps_of_an_agent(self, calls: int) -> int:
        """Return the approximate number of steps per agent in ``calls`` calls of step."""
        return -(-calls // max(1, steps_of(self.games[0], 1)))

    def game(self, watcher: Watcher | None = None) -> Game:
        return game_of(self.make(), watcher)

    def limit_of(self, game: Game) -> int:
        return steps_of(game, self.limit)

    def episode(
        self,
        seed: int | None,
        stream: int,
        game: Game | None = None,
        *,
        ends: float = math.inf,
        leave_open: bool = False,
    ) -> Game:
        """Play an episode and return its game, closed unless ``leave_open``.

        ``game`` defaults to a fresh one. Play stops at the time ``ends`` of the clock.
        """
        played = game or self.game()
        played.begin(seed, stream)
        ended = play_on(played, self.limit_of(played), lambda: self.clock.seconds() < ends)
        if not ended and self.clock.seconds() > ends:
            self.unfinished = True
            self.findings.skip(
                ["endless"],
                f"no episode ended within {played.step:,} steps before the time limit. Allow more "
                "seconds, or set a lower limit",
            )
        if not ended and not self.shortened:
            self.findings.add(
                "endless: limit",
                at=(None, seed, played.step),
                seen=f"an episode did not end within {played.step:,} steps",
                expected="a termination or a truncation of every agent",
                advice="set a time limit in the environment; if its episodes really are that "
                f"long, raise the limit of the check (now {self.limit:,})",
            )
            self.limit = min(self.limit, SHORT)
        self.count(played, leave_open=leave_open)
        return played

    def count(self, game: Game, *, leave_open: bool = False) -> None:
        """Add a played game to the totals and close it."""
        self.episodes += 1
        self.steps += game.total_steps
        game.total_steps = 0
        if not leave_open:
            self.close(game)

    def close(self, game: Game) -> None:
        """Close the environment of a game, unless it is the only one."""
        if self.no_copies is not None:
            return
        try:
            game.close()
        except Exception as error:  # close may raise any exception
            self.findings.add(
                "api: close",
                "warning",
                seen=f"close() raised {type(error).__name__}: {error}",
                expected="close() raises no exception, whenever it is called",
                advice="release only resources that exist",
            )

    def difference(self, one: Trace, two: Trace) -> Difference | None:
        return Difference.first(one, two, self.ignore)

    def require_equal(
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
        """Compare two traces of ``seed``. Return True if equal; otherwise add a finding."""
        difference = self.difference(one, two)
        if difference is not None:
            at = (difference.agent, seed, difference.step)
            self.findings.add(fault, severity, at=at, seen=f"{seen}: {difference}", **texts)
        return difference is None


def _line_of(error: BaseException) -> str:
    """Return the file and line that raised an error."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def check_spaces(game: Game, agent: Any, findings: Findings, when: str) -> bool:
    """Check that an agent's spaces are always the same objects. Return False if one is missing."""
    for kind in ("observation", "action"):
        current: Callable[[Any], Any] = getattr(game.env, f"{kind}_space")
        try:
            first, now = game.space(kind, agent), current(agent)
            if not isinstance(first, spaces.Space):
                raise BadAnswer(f"{brief(first)} is not a gymnasium space")
        except Exception as error:  # the environment may raise any exception
            findings.add(
                f"spaces: {kind} raises",
                at=(agent, None, None),
                seen=f"{kind}_space({agent!r}) {when}: {type(error).__name__}: {error}",
                expected="a space for each of possible_agents, at any time",
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
            + ("a new object at each call" if equal else f"{now} {when}, initially {first}"),
            expected="the same object at every call"
            + (": seeding a newly created space has no effect" if equal else ""),
            advice="build spaces once, in the constructor, or cache the method with lru_cache",
        )
    return True


# --- Episodes and their traces -------------------------------------------------------------------


def record(make: Make, seeds: Sequence[int], limit: int) -> list[Trace]:
    """Play one episode per seed, each in a fresh environment; seed k uses action stream k.

    ``limit``: maximum steps of an agent per episode; ``SHORT`` after an episode has reached it.
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
    """Convert ``limit`` steps of an agent into calls of step; in AEC each agent has its own."""
    agents = getattr(game.env, "possible_agents", None) or game.env.agents
    return limit * max(1, len(agents)) if game.turns else limit


def middle_of(trace: Trace) -> int:
    return trace[-1].step // 2 if trace else 0


@dataclass(frozen=True)
class Difference:
    """The first difference between two traces."""

    step: int
    kind: str
    agent: str | None
    one: str
    two: str

    def __str__(self) -> str:
        """Describe the difference, for example "different reward of a: 0.5 against 0.25"."""
        owner = f" of {self.agent}" if self.agent else ""
        values = f": {self.one} against {self.two}" if len(self.one + self.two) < 100 else ""
        return f"different {self.kind}{owner}{values}"

    @classmethod
    def first(cls, one: Trace, two: Trace, ignore: Iterable[str] = ()) -> Difference | None:
        """Return the first difference between two traces; None if they are equal.

        ``ignore``: kinds of entries that may differ.
        """
        for a, b in zip(one, two, strict=False):
            if (EXCEPTION in a.parts) != (EXCEPTION in b.parts):
                return cls(
                    a.step,
                    "outcome (exception)",
                    None,
                    a.parts.get(EXCEPTION, "none"),
                    b.parts.get(EXCEPTION, "none"),
                )
            for key in [*a.parts, *(key for key in b.parts if key not in a.parts)]:
                first, second = a.parts.get(key, "nothing"), b.parts.get(key, "nothing")
                if key[0] not in ignore and first != second:
                    return cls(a.step, key[0], key[1] or None, first, second)
        if len(one) == len(two):
            return None
        shorter = min(one, two, key=len)
        ends = [str(trace[-1].step) if trace else "none" for trace in (one, two)]
        return cls(shorter[-1].step if shorter else 0, "last step", None, *ends)
