"""Duels: every player against every other player in every seat, with ratings.

    duels = corral.duel("runs/new@best", "runs/old", "perfect", "random", episodes=1000)
    duels.matrix, duels.ratings, duels.cycles
    duels.write("duels/monday")

With two seats, each ordered pair plays: A first and B second, and the reverse. With more seats,
each player takes each seat once, and the other player's team takes all remaining seats. The result
then has returns, but no ratings. All pairings play the same episodes.
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
from corral.errors import UnknownNameError, concise
from corral.lab.duels.contestants import Contestant, Contestants, contestants
from corral.lab.duels.notes import notes_of, outcomes_of
from corral.lab.duels.ratings import (
    Rating,
    cycles,
    points_intervals,
    rate,
    wilson,
)
from corral.progress import Progress, cell_progress
from corral.results import Result, csv_text, filled, plain
from corral.trainers.evaluation.episodes import bootstrap_ratio
from corral.trainers.runs.run_config import versions
from corral.trainers.selfplay.matches import Match, play_match, points_of_side

__all__ = ["FILES", "Duel", "Duels", "duel"]

FILES = ("matrix.csv", "duels.csv", "ratings.csv", "duels.json", "duels.svg")
"""Files that ``Duels.write`` writes; ratings.csv only for two seats."""


# --- Results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Duel:
    """A pairing: ``player`` in ``seat``, ``other`` in all other seats. Means are over episodes.

    With two seats, ``seat`` is always the first. If ``same`` is True, all episodes were identical,
    action by action, and the intervals are None.
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
    # Only with two seats; else None:
    won: int | None = None  # episodes in which the player had the higher return
    drawn: int | None = None
    lost: int | None = None
    won_low: float | None = None  # 95 % intervals of the shares (Wilson)
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

    ``write`` writes ``FILES``. matrix.csv and ratings.csv hold the frames with these names,
    duels.csv holds ``to_dataframe``, duels.json everything, and duels.svg a picture.
    """

    json_file = "duels.json"

    env: str
    agents: tuple[str, ...]
    players: tuple[str, ...]
    rows: Sequence[Duel]
    rated: Sequence[Rating] = ()  # best first; only with two seats
    cycles: Sequence[tuple[str, ...]] = ()  # each player beats the next, the last beats the first
    notes: Sequence[str] = ()  # sentences about the result
    modes: Mapping[str, str] = field(default_factory=dict)  # player -> "greedy", "sampled"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Duels of {len(self.players)} in {self.env}: {len(self.rows)} pairings>"

    def text(self, width: int = 80) -> str:
        """Return matrix, ratings and notes. The tables may be wider than ``width``."""
        frames = [self.matrix, self.ratings] if self.rated else [self.matrix]
        tables = [frame.to_string(float_format="{:.4g}".format) for frame in frames]
        return "\n".join([repr(self), *tables, *(filled([note], width) for note in self.notes)])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each pairing, with the fields of ``Duel`` as columns."""
        return pd.DataFrame([dataclasses.asdict(row) for row in self.rows])

    @property
    def matrix(self) -> pd.DataFrame:
        """The mean return of the row's player. The column's player plays the other seats.

        With two seats, the row's player sits first: ``matrix.loc["a", "b"]``. With more seats, the
        rows are (player, seat). Pairings that were not played are NaN.
        """
        table = self.to_dataframe()
        index = "player" if len(self.agents) == 2 else ["player", "seat"]
        matrix = table.pivot(index=index, columns="other", values="return_player")
        rows = [name for name in self.players if name in set(table["player"])]
        columns = [name for name in self.players if name in set(table["other"])]
        if len(self.agents) > 2:
            player_and_seat = pd.MultiIndex.from_product(
                [rows, self.agents], names=["player", "seat"]
            )
            return matrix.reindex(player_and_seat)[columns]
        return matrix.loc[rows, columns]

    @property
    def points(self) -> pd.DataFrame:
        """The mean points of row against column over both seat orders: win 1, draw 1/2, loss 0.

        NaN on the diagonal and for pairs that did not play; all NaN with more than two seats.
        """
        points = pd.DataFrame(np.nan, index=self.players, columns=self.players)
        for player, other in itertools.permutations(self.players, 2):
            as_first = [
                row.points for row in self._between(player, other) if row.points is not None
            ]
            as_second = [
                1 - row.points for row in self._between(other, player) if row.points is not None
            ]
            if as_first or as_second:
                points.loc[player, other] = np.mean([*as_first, *as_second])
        return points

    @property
    def ratings(self) -> pd.DataFrame:
        """Ratings by player, best first, with the fields of ``Rating`` as columns."""
        names = [item.name for item in dataclasses.fields(Rating)]
        table = pd.DataFrame([dataclasses.asdict(item) for item in self.rated], columns=names)
        return table.set_index("player")

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values. The matrix is a list of rows, None if not played."""
        values = super().to_json()
        values["pairings"], values["ratings"] = values.pop("rows"), values.pop("rated")
        return {**values, "matrix": plain(self.matrix.to_numpy())}

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


@concise
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
    progress: Progress = cell_progress,
) -> Duels:
    """Let ``players`` play each other in every seat, and rate them.

    Args:
        players: two or more: runs (a folder, RUN@best, RUN@N), reference players and teams by name
            (perfect, random, nearest/still), policies (anything ``corral.envs.policy.as_policy``
            takes), teams (agent -> policy) or a Player; or mappings from names to any of these. A
            run plays its trained seats; a reference player plays the seats that it supports.
        env: the environment, if no player is a run; also required for runs in third-party
            environments.
        episodes: number of episodes per pairing. A pairing assigns players to seats: two players
            make two pairings. All pairings play the same episodes.
        seed: seed of the episodes and of sampled actions.
        sampled: whether runs and policies sample their actions, as in self-play training, or play
            greedily. A Player has a setting for this. Which plays better depends on the game:
            bluffing games and rock-paper-scissors need random actions, board games rarely do.
        itself: let each player also play against itself, in the other seat.
        anchor: the player with rating 0; default: the mean of all ratings is 0.
        out: a folder to write the results to, see ``Duels.write``.
        env_kwargs, api, model, trainer: as in ``corral.load_run``.
        workers: processes that step a third-party environment; 0: this process.
        progress: called with the names of the players, the episodes played and the total.

    With two agents, the higher return wins. The ratings are Bradley and Terry's on the Elo scale,
    with bootstrap intervals over episodes; see ``corral.lab.duels.ratings``.

    Raises the errors of ``contestants``, UnknownNameError for an unknown anchor, and ValueError
    for no episodes and for a player without a possible pairing.
    """
    episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    rules, entrants, run = contestants(
        players,
        env,
        env_kwargs=env_kwargs,
        api=api,
        model=model,
        trainer=trainer,
        deterministic=not sampled,
    )
    names = tuple(entrant.name for entrant in entrants)
    if anchor is not None and anchor not in names:
        raise UnknownNameError.of("player", anchor, names)
    pairings = _pairings(rules.agents, entrants, itself)
    matches = []
    for i, (player, seat, other) in enumerate(pairings):
        team, greedy = _cast(rules.agents, player, seat, other)
        shown = functools.partial(
            _show, progress, f"{player.name} - {other.name}", i, len(pairings)
        )
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
        modes={entrant.name: entrant.mode for entrant in entrants},
        env_kwargs=dict(env_kwargs or {}) if run is None else run.config.env_config.env_kwargs,
        seed=seed,
        versions=versions(learning=run is not None),
    )
    result = _rated(result, matches, anchor, seed)
    result = dataclasses.replace(result, notes=notes_of(result, rules, entrants, matches))
    if out is not None:
        result.write(out)
    return result


Pairing = tuple[Contestant, str, Contestant]
"""A player, its seat, and the player of all other seats."""


def _pairings(agents: Sequence[str], entrants: Sequence[Contestant], itself: bool) -> list[Pairing]:
    """Return all pairings: each player in each seat (of two: the first), against each other player.

    Raises ValueError if a player has no pairing.
    """
    seats = agents[:1] if len(agents) == 2 else agents
    pairs = [
        (player, seat, other)
        for player, other in itertools.product(entrants, repeat=2)
        for seat in seats
        if (player is not other or itself or len(agents) > 2)
        and seat in player.team
        and set(other.team) >= set(agents) - {seat}
    ]
    for entrant in entrants:
        if not any(
            entrant in (player, other) and player is not other for player, _, other in pairs
        ):
            raise ValueError(
                f"{entrant.name} plays only {', '.join(entrant.team) or 'no seat'}, and no player "
                "here plays the other seats: add a player that does"
            )
    return pairs


def _cast(
    agents: Sequence[str], player: Contestant, seat: str, other: Contestant
) -> tuple[dict[str, Any], dict[str, bool]]:
    """Return each agent's policy, and whether it acts greedily."""
    sides = {agent: player if agent == seat else other for agent in agents}
    team = {agent: side.team[agent] for agent, side in sides.items()}
    return team, {agent: side.deterministic for agent, side in sides.items()}


def _show(
    progress: Progress, label: str, matches_played: int, pairings: int, done: int, total: int
) -> None:
    progress(label, matches_played * total + done, pairings * total)


def _rows(
    agents: Sequence[str], pairings: Sequence[Pairing], matches: Sequence[Match]
) -> list[Duel]:
    rows = []
    for (player, seat, other), match in zip(pairings, matches, strict=True):
        i = agents.index(seat)
        player_returns, other_returns = match.returns[:, i], np.delete(match.returns, i, axis=1)
        low, high = (
            (None, None)
            if match.same
            else bootstrap_ratio(player_returns, np.ones(len(player_returns)))
        )
        row = Duel(
            player.name,
            seat,
            other.name,
            return_player=float(player_returns.mean()),
            low=low,
            high=high,
            return_other=float(other_returns.mean()),
            episodes=len(player_returns),
            same=match.same,
            mean_length=float(match.lengths.mean()),
            illegal_player=int(match.illegal[i]),
            illegal_other=int(np.delete(match.illegal, i).sum()),
        )
        rows.append(row if len(agents) > 2 else _with_points(row, match))
    return rows


def _with_points(row: Duel, match: Match) -> Duel:
    """Return the row with games won, drawn and lost, and the points."""
    points = points_of_side(match.returns, [0])
    counts = [int((points == value).sum()) for value in (1.0, 0.5, 0.0)]
    names = ("won", "drawn", "lost")
    fields: dict[str, Any] = dict(zip(names, counts, strict=True))
    fields["points"] = float(points.mean())
    if not row.same:
        for name, count in zip(names, counts, strict=True):
            fields[f"{name}_low"], fields[f"{name}_high"] = wilson(count, row.episodes)
        low, high = points_intervals(counts)
        fields |= {"points_low": float(low), "points_high": float(high)}
    return dataclasses.replace(row, **fields)


def _rated(duels: Duels, matches: Sequence[Match], anchor: str | None, seed: int) -> Duels:
    """Return the result with ratings and cycles, if the game has two seats."""
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
