"""Tables of an Evaluation for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from corral.envs.core import Rules
from corral.envs.reference import reference_players
from corral.trainers.evaluation.scores import MAX_AGENTS, Evaluation, TeamScore
from corral.trainers.evaluation.zero_sum import SeatScore

__all__ = ["COLUMNS", "LEARNED", "returns_by_agent", "table_of", "tables"]

COLUMNS = 80
"""Maximum width of a table in terminal columns."""

LEARNED = "bold green"
"""Terminal style of the rows of learned policies."""


def tables(evaluation: Evaluation, rules: Rules[Any]) -> Iterator[Table | str]:
    """Yield the tables and notes of ``evaluation``; for zero-sum games, one table per seat."""
    if not isinstance(evaluation[0], SeatScore):
        yield _team_table(evaluation, team="constant_sum" not in evaluation.details)
        yield _about_episodes(evaluation)
        yield from evaluation.notes()
        return
    for seat in dict.fromkeys(score.seat for score in evaluation):
        yield from _seat_tables(seat, [score for score in evaluation if score.seat == seat])
        other = next(agent for agent in rules.agents if agent != seat)
        yield from map(str, reference_players(rules, other)[1].values())
    illegal = sum(score.illegal_actions for score in evaluation)
    yield (
        f"Mean return, then episodes won/drawn/lost of {evaluation[0].episodes}. Opponents sample "
        f"their actions. Illegal actions: {illegal}."
    )
    yield from evaluation.notes()


def _about_episodes(scores: Sequence[TeamScore]) -> str:
    """Return a note on the number of episodes and illegal actions."""
    illegal = [f"{s.policy} {s.illegal_actions}" for s in scores if s.illegal_actions]
    counts = "; ".join(illegal) or "0"
    return (
        f"Means over {scores[0].episodes} episodes per row; the length is in steps. "
        f"Illegal actions: {counts}."
    )


def returns_by_agent(returns: Sequence[Mapping[str, float]]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of the agents' returns, one row for each entry of ``returns``.

    There is one column per agent. Many agents are summarized by minimum, mean and maximum. A single
    agent has no column.
    """
    agents = list(dict.fromkeys(agent for row in returns for agent in row))
    if len(agents) < 2:
        return [], [[] for _ in returns]
    if len(agents) <= MAX_AGENTS:
        lines = [[f"{row[agent]:.4g}" for agent in agents] if row else [] for row in returns]
        return agents, [line or [""] * len(agents) for line in lines]
    return _range_over_agents(returns)


def _range_over_agents(
    returns: Sequence[Mapping[str, float]],
) -> tuple[list[str], list[list[str]]]:
    lines = []
    for row in returns:
        values = list(row.values())
        figures = (min(values), sum(values) / len(values), max(values)) if values else ()
        lines.append([f"{figure:.4g}" for figure in figures] or [""] * 3)
    return [f"{name}\nagent" for name in ("min", "mean", "max")], lines


def table_of(names: str, numbers: Iterable[str]) -> Table:
    """Return an empty table with a text column ``names`` and the numeric columns ``numbers``."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(names, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _team_table(scores: Sequence[TeamScore], *, team: bool) -> Table:
    """Return a table with one row per team: the returns of its agents and, if ``team``, the sum."""
    returns = [score.returns for score in scores]
    agents = list(returns[0])
    for headings, lines in (returns_by_agent(returns), _range_over_agents(returns)):
        team = team or len(agents) < 2
        before = ["team\nreturn", "95 %\ninterval"] if team else []
        table = table_of("\npolicy", [*before, *(headings if len(agents) > 1 else ()), "\nlength"])
        for score, cells in zip(scores, lines, strict=True):
            interval = "" if score.low is None else f"{score.low:.4g} to {score.high:.4g}"
            cells_of_team = [f"{score.return_team:.4g}", interval] if team else []
            length = f"{score.mean_length:.1f}"
            values = (*cells_of_team, *(cells if len(agents) > 1 else ()), length)
            table.add_row(score.policy, *values, style=LEARNED if score.mode else "")
        if Console(width=1000, markup=False, emoji=False).measure(table).maximum <= COLUMNS:
            break
    return table


def _seat_tables(seat: str, scores: Sequence[SeatScore]) -> Iterator[Table]:
    """Yield the tables of a seat; each has as many opponents as fit into 80 columns."""
    opponents = list(dict.fromkeys(score.opponent for score in scores))
    while opponents:
        for count in range(len(opponents), 0, -1):
            shown = opponents[:count]
            table = _seat_table(seat, [score for score in scores if score.opponent in shown])
            if Console(width=1000, markup=False, emoji=False).measure(table).maximum <= COLUMNS:
                break
        opponents = opponents[count:]
        yield table


def _seat_table(seat: str, scores: Sequence[SeatScore]) -> Table:
    """Return the table of a seat: one row per player, one column per opponent."""
    opponents = dict.fromkeys(score.opponent for score in scores)
    heading = f"{seat}, against"
    label = max(len(text) for text in (heading, *(score.policy for score in scores)))
    # One line per player if it fits into 80 columns, else two lines.
    for gap in (" ", "\n"):
        cells = {(s.policy, s.opponent): gap.join(_seat_cell(s)) for s in scores}
        wide = max(len(line) for cell in cells.values() for line in cell.split("\n"))
        if label + len(opponents) * (wide + 2) <= 80:
            break
    table = table_of(heading, opponents)
    for policy in dict.fromkeys(score.policy for score in scores):
        style = LEARNED if any(s.mode for s in scores if s.policy == policy) else ""
        table.add_row(policy, *(cells[policy, opponent] for opponent in opponents), style=style)
    return table


def _seat_cell(score: SeatScore) -> tuple[str, str]:
    """Return the mean return, and the numbers of episodes won, drawn and lost."""
    counts = (round(share * score.episodes) for share in (score.won, score.drawn, score.lost))
    return f"{score.return_seat:+.2f}", "/".join(map(str, counts))
