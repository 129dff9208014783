"""Duels: every player against every other, in every seat, and ratings of what came out.

    duels = corral.duel("runs/new@best", "runs/old", "perfect", "random", episodes=1000)
    duels.matrix, duels.ratings, duels.cycles
    duels.write("duels/monday")

Of two seats each ordered pair plays: A first and B second, and the reverse. Of more seats each
player sits in each seat once, and the others' team in all the rest; there are returns then, and no
ratings. All pairings meet the same episodes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corral.adapters.sources import EnvLike
from corral.envs.arguments import nonnegative_int
from corral.envs.registry import Api
from corral.errors import UnknownNameError
from corral.lab.duels.contestants import Contestant, Contestants, contestants
from corral.lab.duels.notes import notes_of, outcomes_of
from corral.lab.duels.ratings import (
    Rating,
    cycles,
    points_intervals,
    rate,
    wilson,
)
from corral.progress import Progress
from corral.results import Result, csv_text, plain
from corral.trainers.evaluation.episodes import bootstrap_ratio
from corral.trainers.runs.run_config import versions
from corral.trainers.selfplay.matches import Match, play_match, points_of_side

__all__ = ["FILES", "Duel", "Duels", "duel"]

FILES = ("matrix.csv", "duels.csv", "ratings.csv", "duels.json", "duels.svg")
"""What ``Duels.write`` writes; ratings.csv of two seats alone."""


# --- What came out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Duel:
    """One pairing: ``player`` in ``seat``, ``other`` in all other seats; means are over episodes.

    Of two seats ``seat`` is always the first. Where ``same``, all episodes were one and the same,
    action by action: there is nothing to be sure or unsure of, and no interval.
    """

    player: str
    seat: str
    other: str
    return_player: float  # mean return of the seat
    low: float | None  # 95 % bootstrap interval of return_player over episodes
    high: float | None
    return_other: float  # mean over the other seats
    episodes: int
    same: bool
    mean_length: float  # steps
    illegal_player: int  # masked actions chosen, over all episodes
    illegal_other: int
    # Of two seats alone; else None:
    won: int | None = None  # episodes in which the player earned more
    drawn: int | None = None
    lost: int | None = None
    won_low: float | None = None  # 95 % intervals of the shares: Wilson's
    won_high: float | None = None
    drawn_low: float | None = None
    drawn_high: float | None = None
    lost_low: float | None = None
    lost_high: float | None = None
    points: float | None = None  # mean: 1 won, 1/2 drawn, 0 lost
    points_low: float | None = None  # 95 % bootstrap interval
    points_high: float | None = None


@dataclass(frozen=True, eq=False)
class Duels(Sequence[Duel], Result):
    """The result of ``corral.duel``: a sequence of its pairings.

    ``write`` writes ``FILES``: matrix.csv and ratings.csv are the frames of these names, duels.csv
    is ``to_dataframe``, duels.json all of it, duels.svg a picture.
    """

    json_file = "duels.json"

    env: str
    agents: tuple[str, ...]
    players: tuple[str, ...]
    rows: Sequence[Duel]
    rated: Sequence[Rating] = ()  # best first; of two seats
    cycles: Sequence[tuple[str, ...]] = ()  # each beats the next, the last beats the first
    notes: Sequence[str] = ()  # what has to be said of all this, as sentences
    modes: Mapping[str, str] = field(default_factory=dict)  # player -> "greedy", "sampled"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Duels of {len(self.players)} in {self.env}: {len(self.rows)} pairings>"

    def __str__(self) -> str:
        """The matrix, the ratings and what has to be said of them."""
        frames = [self.matrix, self.ratings] if self.rated else [self.matrix]
        tables = [frame.to_string(float_format="{:.4g}".format) for frame in frames]
        return "\n".join([repr(self), *tables, *self.notes])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a line for each pairing, with the fields of ``Duel`` as columns."""
        return pd.DataFrame([dataclasses.asdict(row) for row in self.rows])

    @property
    def matrix(self) -> pd.DataFrame:
        """The mean return of the row's player; columns are who plays the other seats.

        Of two seats the row's player sits first, ``matrix.loc["a", "b"]``; of more seats rows are
        (player, seat). NaN where nobody played.
        """
        table = self.to_dataframe()
        index = "player" if len(self.agents) == 2 else ["player", "seat"]
        found = table.pivot(index=index, columns="other", values="return_player")
        rows = [name for name in self.players if name in set(table["player"])]
        columns = [name for name in self.players if name in set(table["other"])]
        if len(self.agents) > 2:
            both = pd.MultiIndex.from_product([rows, self.agents], names=["player", "seat"])
            return found.reindex(both)[columns]
        return found.loc[rows, columns]

    @property
    def points(self) -> pd.DataFrame:
        """The mean points of row against column over both seat orders: 1 for a win, 1/2 for a draw.

        NaN on the diagonal, and where nobody played; of more than two seats everywhere.
        """
        found = pd.DataFrame(np.nan, index=self.players, columns=self.players)
        for one, other in itertools.permutations(self.players, 2):
            own = [row.points for row in self._between(one, other) if row.points is not None]
            theirs = [1 - row.points for row in self._between(other, one) if row.points is not None]
            if own or theirs:
                found.loc[one, other] = np.mean([*own, *theirs])
        return found

    @property
    def ratings(self) -> pd.DataFrame:
        """Ratings by player, best first, with the fields of ``Rating`` as columns."""
        names = [each.name for each in dataclasses.fields(Rating)]
        table = pd.DataFrame([dataclasses.asdict(each) for each in self.rated], columns=names)
        return table.set_index("player")

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values; the matrix as rows, None where nobody played."""
        own = super().to_json()
        own["pairings"], own["ratings"] = own.pop("rows"), own.pop("rated")
        return {**own, "matrix": plain(self.matrix.to_numpy())}

    def texts(self) -> dict[str, str]:
        from corral.lab.duels.picture import duel_picture

        rated = {"ratings.csv": csv_text(self.ratings, index=True)} if self.rated else {}
        return {
            "matrix.csv": csv_text(self.matrix, index=True),
            "duels.csv": csv_text(self.to_dataframe()),
            **rated,
            **super().texts(),
            "duels.svg": duel_picture(self),
        }

    def _between(self, player: str, other: str) -> list[Duel]:
        return [row for row in self.rows if (row.player, row.other) == (player, other)]


# --- Playing -------------------------------------------------------------------------------------


def duel(
    *players: Contestants,
    env: EnvLike | None = None,
    episodes: int = 1000,
    seed: int = 0,
    sampled: bool = True,
    itself: bool = False,
    anchor: str | None = None,
    out: str | Path | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    model: Any = None,
    trainer: Any = None,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Duels:
    """Let each of ``players`` play each other in every seat, and rate them.

    Args:
        players: two or more: runs (a folder, RUN@best, RUN@N), reference players and teams by name
            (perfect, random, nearest/still), policies (whatever ``corral.envs.policy.as_policy``
            takes), teams (agent -> policy) or a Player; or mappings from names to any of these. A
            run plays the seats that it learned, and a reference player those that it is for.
        env: what is played, where no player is a run; and again for runs in environments of others.
        episodes: episodes of each pairing; all pairings meet the same.
        seed: seed of the episodes, and of actions that are drawn.
        sampled: whether runs and policies sample their actions, as self-play trains them; else
            they play the likeliest. A Player says so itself. Which plays better depends on the
            game: bluffs and rock-paper-scissors need chance, board games rarely do.
        itself: let each also play against itself, in the other seat.
        anchor: the player whose rating is 0; default: the mean of all is.
        out: a folder to write the results to, see ``Duels.write``.
        env_kwargs, api, model, trainer: as of ``corral.load_run``.
        workers: processes that step a third-party environment; 0: this one.
        progress: is called with who plays, episodes played, and episodes to play.

    Of two agents, whoever earns more has won. The ratings are Bradley and Terry's on Elo's scale,
    with bootstrap intervals over episodes; see ``corral.lab.duels.ratings``.

    Raises what ``contestants`` raises, UnknownNameError for an unknown anchor, and ValueError
    for no episodes, and a player whom nobody can play.
    """
    episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    rules, found, run = contestants(
        players,
        env,
        env_kwargs=env_kwargs,
        api=api,
        model=model,
        trainer=trainer,
        deterministic=not sampled,
    )
    names = tuple(each.name for each in found)
    if anchor is not None and anchor not in names:
        raise UnknownNameError.of("player", anchor, names)
    pairings = _pairings(rules.agents, found, itself)
    matches = []
    for i, (one, seat, other) in enumerate(pairings):
        team, greedy = _cast(rules.agents, one, seat, other)
        shown = functools.partial(_show, progress, f"{one.name} - {other.name}", i, len(pairings))
        matches.append(
            play_match(
                rules,
                team,
                greedy,
                episodes=episodes,
                seed=seed,
                workers=workers,
                progress=shown,
            )
        )
    result = Duels(
        rules.name,
        tuple(rules.agents),
        names,
        _rows(rules.agents, pairings, matches),
        modes={each.name: each.mode for each in found},
        env_kwargs=dict(env_kwargs or {}) if run is None else run.config.env_config.env_kwargs,
        seed=seed,
        versions=versions(learning=run is not None),
    )
    result = _rated(result, matches, anchor, seed)
    result = dataclasses.replace(result, notes=notes_of(result, rules, found, matches))
    if out is not None:
        result.write(out)
    return result


Pairing = tuple[Contestant, str, Contestant]
"""A player, its seat, and who plays all others."""


def _pairings(agents: Sequence[str], found: Sequence[Contestant], itself: bool) -> list[Pairing]:
    """Return every player in every seat (of two: the first) with each other one in the rest.

    Raises ValueError where somebody plays none of them.
    """
    seats = agents[:1] if len(agents) == 2 else agents
    pairs = [
        (one, seat, other)
        for one, other in itertools.product(found, repeat=2)
        for seat in seats
        if (one is not other or itself or len(agents) > 2)
        and seat in one.team
        and set(other.team) >= set(agents) - {seat}
    ]
    for each in found:
        if not any(each in (one, other) and one is not other for one, _, other in pairs):
            raise ValueError(
                f"{each.name} plays {', '.join(each.team) or 'no seat'} alone, and nobody here "
                "the other seats: give a player that does"
            )
    return pairs


def _cast(
    agents: Sequence[str], one: Contestant, seat: str, other: Contestant
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return each agent's policy, and whether it plays greedily."""
    sides = {agent: one if agent == seat else other for agent in agents}
    team = {agent: side.team[agent] for agent, side in sides.items()}
    return team, {agent: side.deterministic for agent, side in sides.items()}


def _show(progress: Progress, what: str, before: int, pairings: int, done: int, total: int) -> None:
    progress(what, before * total + done, pairings * total)


def _rows(
    agents: Sequence[str], pairings: Sequence[Pairing], matches: Sequence[Match]
) -> list[Duel]:
    rows = []
    for (one, seat, other), match in zip(pairings, matches, strict=True):
        i = agents.index(seat)
        own, rest = match.returns[:, i], np.delete(match.returns, i, axis=1)
        low, high = (None, None) if match.same else bootstrap_ratio(own, np.ones(len(own)))
        row = Duel(
            one.name,
            seat,
            other.name,
            return_player=float(own.mean()),
            low=low,
            high=high,
            return_other=float(rest.mean()),
            episodes=len(own),
            same=match.same,
            mean_length=float(match.lengths.mean()),
            illegal_player=int(match.illegal[i]),
            illegal_other=int(np.delete(match.illegal, i).sum()),
        )
        rows.append(row if len(agents) > 2 else _with_points(row, match))
    return rows


def _with_points(row: Duel, match: Match) -> Duel:
    """Return the row with what was won, drawn and lost."""
    points = points_of_side(match.returns, [0])
    counts = [int((points == value).sum()) for value in (1.0, 0.5, 0.0)]
    names = ("won", "drawn", "lost")
    given: dict[str, Any] = dict(zip(names, counts, strict=True))
    given["points"] = float(points.mean())
    if not row.same:
        for name, count in zip(names, counts, strict=True):
            given[f"{name}_low"], given[f"{name}_high"] = wilson(count, row.episodes)
        low, high = points_intervals(counts)
        given |= {"points_low": float(low), "points_high": float(high)}
    return dataclasses.replace(row, **given)


def _rated(duels: Duels, matches: Sequence[Match], anchor: str | None, seed: int) -> Duels:
    """Return the same with ratings and cycles, where the game has two seats."""
    if len(duels.agents) > 2:
        return duels
    outcomes, counted = outcomes_of(duels), outcomes_of(duels, counted=True)
    number = {name: i for i, name in enumerate(duels.players)}
    played = np.full((len(number), len(number), duels.rows[0].episodes), -1, dtype=np.int8)
    for row, match in zip(duels.rows, matches, strict=True):
        lost = 2 - 2 * points_of_side(match.returns, [0])  # 0 won, 1 drawn, 2 lost
        played[number[row.player], number[row.other]] = lost
    return dataclasses.replace(
        duels,
        rated=rate(
            duels.players, outcomes, counted=counted, played=played, anchor=anchor, seed=seed
        ),
        cycles=cycles(duels.players, outcomes, seed=seed),
    )
