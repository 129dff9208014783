"""Tables of duels for a terminal with 80 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from corral.lab.duels.driver import Duel, Duels
from corral.trainers.evaluation.tables import COLUMNS, table_of

__all__ = ["duel_tables"]

LABEL = 28
"""Maximum characters of a player's name in the first column of a wide table."""


def duel_tables(duels: Duels) -> Iterator[Table | str]:
    """Yield the matrix, the ratings, and the sentences about them."""
    shown = _short_names(duels.players)
    yield from _matrices(duels, shown)
    yield _about(duels, shown)
    if duels.rated:
        yield _ratings(duels)
        yield (
            "Ratings are on the Elo scale (400 points: odds of 10 to 1), with 95 % intervals over "
            "episodes; points are 1 for a win and 1/2 for a draw."
        )
    yield from duels.notes


def _short_names(players: Sequence[str]) -> dict[str, str]:
    """Return the label of each player: its name, with a number if headings must be short."""
    if _width([*players]) <= COLUMNS - LABEL:
        return {name: name for name in players}
    return {name: f"{i + 1} {name}" for i, name in enumerate(players)}


def _width(headings: Sequence[str]) -> int:
    return sum(max(7, len(name)) + 1 for name in headings)


# --- The matrix ----------------------------------------------------------------------------------


def _matrices(duels: Duels, shown: dict[str, str]) -> Iterator[Table]:
    """Yield the matrix, split into tables that fit 80 columns."""
    columns = list(duels.matrix.columns)
    rows = {(row.player, row.seat, row.other): row for row in duels.rows}
    with_counts = len(columns) <= 6  # won/drawn/lost fits below each return
    while columns:
        for number in range(len(columns), 0, -1):
            table = _matrix(duels, rows, columns[:number], shown, with_counts)
            if Console(width=1000, markup=False, emoji=False).measure(table).maximum <= COLUMNS:
                break
        columns = columns[number:]
        yield table


def _matrix(
    duels: Duels,
    rows: dict[tuple[str, str, str], Duel],
    columns: Sequence[str],
    shown: dict[str, str],
    with_counts: bool,
) -> Table:
    two = len(duels.agents) == 2
    seats = duels.agents[:1] if two else duels.agents
    heads = [name if shown[name] == name else shown[name].split(" ", 1)[0] for name in columns]
    left = duels.agents[0] if two else "player as seat"
    corner = f"{left} \\ {duels.agents[1]}" if two else f"{left} \\ others"
    table = table_of(corner, heads)
    for player in dict.fromkeys(row.player for row in duels.rows):
        for seat in seats:
            name = shown[player] if two else f"{shown[player]} as {seat}"
            cells = [_cell(rows.get((player, seat, other)), with_counts) for other in columns]
            table.add_row(_cut(name), *cells)
    return table


def _cell(row: Duel | None, with_counts: bool) -> str:
    if row is None:
        return "-"
    value = row.return_player
    text = f"{round(value, 2) + 0.0:+.2f}" if abs(value) < 100 else f"{value:+.4g}"
    return (
        f"{text}\n{row.won}/{row.drawn}/{row.lost}" if with_counts and row.won is not None else text
    )


def _cut(name: str) -> str:
    """Cut the middle of a name longer than ``LABEL``."""
    half = LABEL // 2 - 2
    return name if len(name) <= LABEL else f"{name[:half]}...{name[-half:]}"


def _about(duels: Duels, shown: dict[str, str]) -> str:
    """Return sentences about the matrix."""
    rows = duels.rows
    text = "Mean return of the row's player"
    if len(duels.agents) > 2:
        text += " in its seat; the column's player has all other seats"
    elif len(duels.matrix.columns) <= 6:
        text += ", then its episodes won/drawn/lost"
    text += f", over {rows[0].episodes:,} episodes."
    if any(shown[name] != name for name in duels.players):
        text += " Column headings are the numbers of the players."
    illegal = dict.fromkeys(duels.players, 0)
    for row in rows:
        illegal[row.player] += row.illegal_player
        illegal[row.other] += row.illegal_other
    by_player = "; ".join(f"{name} {count}" for name, count in illegal.items() if count)
    return f"{text} Illegal actions: {by_player or '0'}."


# --- Ratings -------------------------------------------------------------------------------------


def _ratings(duels: Duels) -> Table:
    table = table_of("player", ["rating", "95 % interval", "points", "won/drawn/lost"])
    for rating in duels.rated:
        interval = "" if rating.low is None else f"{rating.low:+.0f} to {rating.high:+.0f}"
        counts = f"{rating.won}/{rating.drawn}/{rating.lost}"
        points = f"{100 * rating.points:.1f} %" if math.isfinite(rating.points) else ""
        table.add_row(_cut(rating.player), f"{rating.rating:+.0f}", interval, points, counts)
    return table
