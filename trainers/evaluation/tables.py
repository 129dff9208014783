"""The tables of an Evaluation for the terminal, for 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich import box
from rich.table import Table

from corral.envs.core import Rules
from corral.envs.reference import reference_players
from corral.trainers.evaluation.scores import Evaluation, TeamScore
from corral.trainers.evaluation.zero_sum import SeatScore

__all__ = ["table_of", "tables"]


def tables(evaluation: Evaluation, rules: Rules[Any]) -> Iterator[Table | str]:
    """Yield tables and sentences that say what ``evaluation`` found: by seat in zero-sum games."""
    if not isinstance(evaluation[0], SeatScore):
        yield _team_table(evaluation)
        return
    for seat in dict.fromkeys(score.seat for score in evaluation):
        yield _seat_table(seat, [score for score in evaluation if score.seat == seat])
        other = next(agent for agent in rules.agents if agent != seat)
        yield from map(str, reference_players(rules, other)[1].values())
    illegal = sum(score.illegal_actions for score in evaluation)
    yield (
        f"Mean return, then episodes won/drawn/lost, of {evaluation[0].episodes}. "
        f"Illegal actions: {illegal}."
    )


def table_of(names: str, numbers: Iterable[str]) -> Table:
    """Return an empty table: a column headed ``names``, and those of ``numbers`` to its right."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(names, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _team_table(scores: Iterable[TeamScore]) -> Table:
    headings = ("team return", "95 % interval", "episodes", "length", "illegal")
    table = table_of("policy", headings)
    for score in scores:
        interval = "" if score.low is None else f"{score.low:.4g} to {score.high:.4g}"
        table.add_row(
            score.policy,
            f"{score.return_team:.4g}",
            interval,
            str(score.episodes),
            f"{score.mean_length:.1f}",
            str(score.illegal_actions),
        )
    return table


def _seat_table(seat: str, scores: Sequence[SeatScore]) -> Table:
    """Return the table of a seat: its players below each other, their opponents side by side."""
    opponents = dict.fromkeys(score.opponent for score in scores)
    heading = f"{seat}, against"
    label = max(len(text) for text in (heading, *(score.policy for score in scores)))
    # One line for each player where that fits into 80 columns, else two.
    for gap in (" ", "\n"):
        cells = {(s.policy, s.opponent): gap.join(_seat_cell(s)) for s in scores}
        wide = max(len(line) for cell in cells.values() for line in cell.split("\n"))
        if label + len(opponents) * (wide + 2) <= 80:
            break
    table = table_of(heading, opponents)
    for policy in dict.fromkeys(score.policy for score in scores):
        table.add_row(policy, *(cells[policy, opponent] for opponent in opponents))
    return table


def _seat_cell(score: SeatScore) -> tuple[str, str]:
    """Return the mean return, and how many episodes were won, drawn and lost."""
    counts = (round(share * score.episodes) for share in (score.won, score.drawn, score.lost))
    return f"{score.return_seat:+.2f}", "/".join(map(str, counts))
