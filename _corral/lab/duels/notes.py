"""What has to be said of duels beside their tables."""

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
    """Return games won, drawn and lost by who sits first: int64 [P, P, 3].

    ``counted``: episodes that are all the same are one.
    """
    number = {name: i for i, name in enumerate(duels.players)}
    table = np.zeros((len(number), len(number), 3), dtype=np.int64)
    for row in duels.rows:
        games = 1 if row.same and counted else row.episodes
        counts = np.array([row.won, row.drawn, row.lost])
        table[number[row.player], number[row.other]] = counts * games // row.episodes
    return table


def notes_of(
    duels: Duels, rules: Rules[Any], found: Sequence[Contestant], matches: Sequence[Match]
) -> list[str]:
    """Return what a reader of the tables has to know, as sentences."""
    runs = [each for each in found if each.about]
    notes = [each.about for each in runs]
    if runs:
        greedy = runs[0].deterministic
        notes.append(f"Runs {'play greedily' if greedy else 'sample their actions'}.")
    for each in found:
        if len(each.team) < len(duels.agents):
            notes.append(
                f"{each.name} plays {', '.join(each.team)} alone"
                + (", and its rating is of that seat." if len(duels.agents) == 2 else ".")
            )
    returns = np.concatenate([match.returns for match in matches])
    if not is_zero_sum(rules):
        notes.append(sum_in_words(returns))
        if len(duels.agents) == 2 and constant_sum(returns) is None:
            notes[-1] += " Won is an episode in which one earned more than the other."
    if len(duels.agents) > 2:
        return [*notes, f"{rules.name} has {len(duels.agents)} seats: there are no ratings."]
    if same := [f"{row.player} - {row.other}" for row in duels.rows if row.same]:
        every = "every pairing" if len(same) == len(duels) else _some(same)
        notes.append(
            f"All episodes were the same, action by action, in {every}: such a pairing has no "
            "interval, and its ratings count it as one game."
        )
    above, below = unmeasured(duels.players, outcomes_of(duels))
    if above:
        notes.append(
            f"{_some(below)} took nothing off {_some(above)}: how far apart they are is no "
            f"measurement, but due to the {PRIOR:g} drawn game that is added between each two."
        )
    for cycle in list(duels.cycles)[:5]:
        said = ", ".join(f"{a} beats {b}" for a, b in itertools.pairwise([*cycle, cycle[0]]))
        notes.append(f"Cycle: {said}.")
    if duels.cycles:
        more = len(duels.cycles) - 5
        notes.append(
            (f"And {more} more cycles. " if more > 0 else "")
            + "Who beats whom runs in circles here: one number for each player misleads, read the "
            "matrix instead."
        )
    return notes


def _some(names: Sequence[str], most: int = 4) -> str:
    """Return names with commas, the first few of many."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
