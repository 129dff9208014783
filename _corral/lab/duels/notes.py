"""Notes below the tables of duels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.envs.core import Array, Rules
from corral.lab.duels.contestants import Contestant
from corral.lab.duels.ratings import PRIOR, unmeasured
from corral.trainers.evaluation.zero_sum import constant_sum, is_zero_sum, sum_in_words
from corral.trainers.selfplay.matches import Match

if TYPE_CHECKING:
    from corral.lab.duels.driver import Duels

__all__ = ["notes_of", "outcomes_of"]


def outcomes_of(duels: Duels, *, counted: bool = False) -> Array:
    """Return games won, drawn and lost by the first player: int64 [P, P, 3].

    ``counted``: a pairing of identical episodes counts as one game.
    """
    number = {name: i for i, name in enumerate(duels.players)}
    table = np.zeros((len(number), len(number), 3), dtype=np.int64)
    for row in duels.rows:
        games = 1 if row.same and counted else row.episodes
        counts = np.array([row.won, row.drawn, row.lost])
        table[number[row.player], number[row.other]] = counts * games // row.episodes
    return table


def notes_of(
    duels: Duels, rules: Rules[Any], entrants: Sequence[Contestant], matches: Sequence[Match]
) -> list[str]:
    """Return sentences that readers of the tables need."""
    runs = [entrant for entrant in entrants if entrant.about]
    notes = [entrant.about for entrant in runs]
    if runs:
        greedy = runs[0].deterministic
        notes.append(f"Runs {'play greedily' if greedy else 'sample their actions'}.")
    for entrant in entrants:
        if len(entrant.team) < len(duels.agents):
            notes.append(
                f"{entrant.name} plays only {', '.join(entrant.team)}"
                + (", and its rating is for that seat." if len(duels.agents) == 2 else ".")
            )
    returns = np.concatenate([match.returns for match in matches])
    if not is_zero_sum(rules):
        notes.append(sum_in_words(returns))
        if len(duels.agents) == 2 and constant_sum(returns) is None:
            notes[-1] += " The player with the higher return wins an episode."
    if len(duels.agents) > 2:
        return [*notes, f"{rules.name} has {len(duels.agents)} seats; ratings need two seats."]
    if same := [f"{row.player} - {row.other}" for row in duels.rows if row.same]:
        pairings = "every pairing" if len(same) == len(duels) else _some(same)
        notes.append(
            f"All episodes were identical, action by action, in {pairings}: such a pairing has no "
            "interval, and the ratings count it as one game."
        )
    above, below = unmeasured(duels.players, outcomes_of(duels))
    if above:
        notes.append(
            f"{_some(below)} never won or drew against {_some(above)}: their distance is not "
            f"measured, but set by the {PRIOR:g} drawn game added between each two players."
        )
    for cycle in list(duels.cycles)[:5]:
        steps = ", ".join(f"{a} beats {b}" for a, b in itertools.pairwise([*cycle, cycle[0]]))
        notes.append(f"Cycle: {steps}.")
    if duels.cycles:
        remaining = len(duels.cycles) - 5
        notes.append(
            (f"And {remaining} more cycles. " if remaining > 0 else "")
            + "Beating is not transitive here, so one number per player is misleading: read the "
            "matrix instead."
        )
    return notes


def _some(names: Sequence[str], maximum: int = 4) -> str:
    """Return names with commas, at most ``most`` of them."""
    rest = len(names) - maximum
    return ", ".join(names[:maximum]) + (f" and {rest} more" if rest > 0 else "")
