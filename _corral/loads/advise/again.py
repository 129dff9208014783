"""Play an entry of a replay again in single windows, to see its steps: a replay keeps only sums."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array, changed, generator
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import ActionError, IllegalActionWarning
from corral.loads.judge import CAPACITY, as_trained
from corral.loads.replay import Entry, Plays, Replay, plan_of, ready, with_team
from corral.trainers.evaluation.episodes import Changed, Turn, play
from corral.trainers.evaluation.judge import players
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run

__all__ = ["Again", "again", "player_of", "require_label"]


@dataclass(frozen=True)
class Again:
    """An entry of a replay, ready to play: its rules over the replay's rows, and its Player or
    planner."""

    label: str
    rules: DfaasRules
    player: Plays
    seed: int

    def on_rows(self, rows: tuple[int, int]) -> Again:
        """Return the entry on other rows of the trace, with the same action levels."""
        rules = changed(self.rules, rows=rows)
        rules._prepare_section()
        return Again(self.label, rules, self.player, self.seed)

    def play(
        self,
        first: Array,
        steps: int,
        on_turn: Callable[[Turn], None],
        episode: tuple[int, int] | None = None,
    ) -> None:
        """Play ``steps`` from each of the rows ``first`` [B] of the section, in parallel.

        ``episode``: (seed, environment index) of the replay's window, for routes that draw. Raises
        ActionError for malformed actions.
        """

        def start(rngs: Any) -> Any:
            start_rngs = (
                rngs
                if episode is None
                else [generator(episode[0], "env", episode[1]) for _ in first]
            )
            return rules.start_at(first, start_rngs)

        rules, team = with_team(self.rules, self.player, self.seed)
        windows: Any = Changed(rules, max_cycles=steps, start=start)
        greedy = dict.fromkeys(rules.agents, team.greedy)
        once = np.ones(len(first), dtype=np.int64)
        try:
            with warnings.catch_warnings():  # illegal actions are counted
                warnings.simplefilter("ignore", IllegalActionWarning)
                for turn in play(windows, team.team, greedy, quota=once, seed=self.seed):
                    on_turn(turn)
        except ActionError as error:
            raise type(error)(f"policy {self.label}: {error}") from error


def again(result: Replay, label: str, entry: Entry | Run | None = None, **changes: Any) -> Again:
    """Return the entry ``label`` of the replay, ready to play.

    Args:
        entry: the policy that was replayed, or its run, which plays greedily or sampled as in the
            replay. None: the rule with the name ``label``.
        changes: arguments of dfaas_v0 that differ from those of the replay, such as ``rows``.

    Raises ValueError if the entry is missing, does not fit the nodes, or is a run of another
    environment.
    """
    settings = {key: v for key, v in result.settings.items() if key not in CAPACITY}
    section = {"rows": result.rows, "max_cycles": result.window, **settings, **changes}
    base = DfaasRules(result.trace, **{**section, "observation": "every", "route": result.route})
    if entry is None:
        if label in result.teams:
            raise ValueError(f"policy {label} is a team: pass it, or its run, as entry")
        entry = label
    if isinstance(entry, Run):
        entry = player_of(entry, result.teams[label].mode if label in result.teams else "greedy")
    if label in result.teams and isinstance(entry, Player) and result.teams[label].beyond:
        played = {**entry.settings, "beyond": result.teams[label].beyond}
        entry = dataclasses.replace(entry, settings=played)
    return Again(label, *ready(base, *plan_of(label, entry, base, section)), result.seed)


def player_of(run: Run, mode: str = "greedy") -> Player:
    """Return the team of a run. Raises ValueError if the run is of another environment."""
    as_trained([run], {})
    by_mode = {player.mode: player for player in players(run)}
    return by_mode.get(mode, by_mode["greedy"])


def require_label(result: Replay, label: str) -> None:
    """Raise ValueError if the replay has no policy ``label``."""
    if label not in result.sums:
        raise ValueError(f"policy {label!r} was not replayed; choose from {', '.join(result.sums)}")
