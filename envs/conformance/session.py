"""One check of one environment: what to play, what was played, what was found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from corral.envs.conformance.looks import Looks
from corral.envs.conformance.play import (
    SHORT,
    Game,
    Make,
    Watcher,
    game_of,
    play_on,
    steps_of,
)
from corral.envs.conformance.report import Findings
from corral.envs.conformance.trace import Difference, Trace, first_difference

__all__ = ["Session", "middle_of"]


@dataclass
class Session:
    """One check of one environment: what to play, what was played, what was found."""

    make: Make
    findings: Findings
    seeds: tuple[int, ...]
    limit: int
    stochastic: bool | None
    name: str = ""
    turns: bool = False
    masked: bool = False
    games: list[Game] = field(default_factory=list)  # those of the watched episodes, by seed
    traces: list[Trace] = field(default_factory=list)  # of ``seeds``
    ignore: tuple[str, ...] = ()  # kinds of parts that are known not to be repeatable
    fork: Literal["deepcopy", "pickle"] | None = None  # how a game can be copied
    episodes: int = 0
    steps: int = 0

    def game(self, watcher: Watcher | None = None) -> Game:
        return game_of(self.make(), watcher)

    def limit_of(self, game: Game) -> int:
        return steps_of(game, self.limit)

    def episode(
        self, seed: int | None, stream: int, *, game: Game | None = None, watch: bool = False
    ) -> Game:
        """A game, fresh unless given, after an episode."""
        watcher = Looks(self.findings, seed) if watch else None
        played = game or self.game(watcher)
        played.begin(seed, stream)
        ended = play_on(played, self.limit_of(played))
        if not ended and self.limit > SHORT:
            self.findings.add(
                "endless",
                "limit",
                seed=seed,
                step=played.step,
                seen=f"an episode did not end within {played.step:,} steps",
                expected="a termination or a truncation of every agent",
                advice="give the environment a time limit; or, if its episodes are that long, "
                f"raise the check's limit, {self.limit:,}",
            )
            self.limit = SHORT
        if watcher is not None:
            self.masked |= watcher.masked
        self.count(played)
        return played

    def count(self, game: Game) -> None:
        """Add a game that was played to the totals, and close it."""
        self.episodes += 1
        self.steps += game.total_steps
        game.total_steps = 0
        try:
            game.close()
        except Exception as error:  # whatever it raises
            self.findings.add(
                "api",
                "close",
                "warning",
                seen=f"close() raised {type(error).__name__}: {error}",
                expected="close() may be called at any time",
                advice="release only what is there",
            )

    def differs(self, one: Trace, two: Trace) -> Difference | None:
        return first_difference(one, two, self.ignore)


def middle_of(trace: Trace) -> int:
    return trace[-1].step // 2 if trace else 0
