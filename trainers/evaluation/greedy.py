"""Greedy play far below sampled play: measured at the end of training, and reported in evaluations.

A policy that has not converged, or that must mix its actions, may earn much with sampled actions
and little with the most likely actions. The end of training plays both in the same episodes, and
the run then plays in the better mode. An evaluation plays both too, and reports such a gap.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.adapters.seats import random_policy
from corral.envs.core import Array, Rules
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import Policy
from corral.trainers.evaluation.episodes import bootstrap_ratio, play
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.evaluation.validate import validation_seed
from corral.trainers.evaluation.zero_sum import SeatScore, constant_sum, is_zero_sum
from corral.trainers.runs.run import ModeRecord, Run
from corral.trainers.runs.run_config import RunConfig

__all__ = [
    "Gap",
    "describe_gaps",
    "describe_modes",
    "gap_of",
    "greedy_alone",
    "in_order",
    "measured_mode",
    "seat_gaps",
    "team_gaps",
]

LEARNED = 0.5
"""Minimum gap, as a share of the difference between sampled and random play."""

CHOSEN = 0.1
"""The same share, from which a run plays with sampled actions."""

SPREAD = 0.5
"""Minimum gap, as a share of the standard deviation of sampled play between episodes."""


@dataclass(frozen=True)
class Gap:
    """The mean returns of greedy and sampled play in the same episodes, with greedy far below."""

    greedy: float
    sampled: float
    low: float  # 95 % bootstrap interval of the difference, over the pairs of episodes
    high: float
    episodes: int
    seat: str = ""  # in a zero-sum game


def greedy_alone(run: Run) -> bool:
    """Return True if a run's policies are only played greedily.

    Their probabilities do not say how often to play an action.
    """
    return run.config.trainer == "policy_iteration"


def gap_of(
    greedy: Array, sampled: Array, chance: Array, seat: str = "", share: float = LEARNED
) -> Gap | None:
    """Return the gap of greedy below sampled play; None if it is small or not significant.

    ``greedy``, ``sampled`` and ``chance`` (random play) are returns [E] of the same episodes.
    ``share`` is the minimum gap, as a share of the difference between sampled and random play.
    """
    difference = np.asarray(sampled, dtype=np.float64) - greedy
    low, high = bootstrap_ratio(difference, np.ones(len(difference)))
    if low is None or high is None or low <= 0:
        return None
    large = max(share * abs(np.mean(sampled) - np.mean(chance)), SPREAD * np.std(sampled))
    if difference.mean() < large:
        return None
    return Gap(float(np.mean(greedy)), float(np.mean(sampled)), low, high, len(difference), seat)


def in_order(played: EndedEpisodes) -> Array:
    """Return the returns [E, N] of episodes in order of their environments and starts.

    This order is the same for all players.
    """
    return np.asarray(played.returns[np.argsort(played.rows, kind="stable")])


def team_gaps(
    runs: Mapping[str, Run], played: Sequence[EndedEpisodes]
) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the gaps of runs that play greedily, far below their sampled play, by label.

    ``played`` has the episodes of each run, greedy and then sampled (if it is played so), and
    finally the episodes of random play. A run that plays with sampled actions plays these first;
    it has no gap to report.
    """
    team = (in_order(episodes).sum(axis=1) for episodes in played)
    both = [(next(team), None if greedy_alone(run) else next(team)) for run in runs.values()]
    chance = next(team)
    gaps = {
        label: (gap_of(greedy, sampled, chance), run.config)
        for (label, run), (greedy, sampled) in zip(runs.items(), both, strict=True)
        if sampled is not None and run.deterministic
    }
    return {label: (gap, config) for label, (gap, config) in gaps.items() if gap is not None}


def seat_gaps(
    runs: Mapping[str, Run],
    agents: Sequence[str],
    rows: Sequence[SeatScore],
    played: Sequence[EndedEpisodes],
) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the gaps of runs in a zero-sum game, over all opponents of a seat.

    Only the seat with the largest gap is returned. ``played`` has the episodes of each of ``rows``.
    """
    earned: dict[tuple[str, str], list[Array]] = {}
    for row, episodes in zip(rows, played, strict=True):
        own = in_order(episodes)[:, agents.index(row.seat)]
        earned.setdefault((row.seat, row.policy), []).append(own)
    gaps_of_runs = {}
    for label, run in runs.items():
        if greedy_alone(run) or not run.deterministic:
            continue
        gaps = []
        for seat in dict.fromkeys(row.seat for row in rows):
            greedy, sampled, chance = (
                np.concatenate(earned[seat, name])
                for name in (f"{label}, greedy", f"{label}, sampled", "random")
            )
            gap = gap_of(greedy, sampled, chance, seat)
            gaps += [] if gap is None else [gap]
        if gaps:
            gaps_of_runs[label] = (max(gaps, key=lambda gap: gap.sampled - gap.greedy), run.config)
    return gaps_of_runs


# --- At the end of training ----------------------------------------------------------------------


def measured_mode(
    config: RunConfig, policies: Mapping[str, Policy], *, steps: int, episodes: int
) -> ModeRecord | None:
    """Play ``episodes`` greedily and with sampled actions, and return which mode plays better.

    The episodes have the seed of validation, so training has not played them. They are cut after
    ``steps``. "sampled" needs a gap, see ``gap_of``. Random play follows only if the gap depends on
    it.

    None if the modes cannot be compared in this way. In a constant-sum game the sum over both
    players says nothing, and the return of one of them depends on the opponent. An environment that
    replays data has rows in place of episodes; its plans are for servers, which play greedily.
    """
    rules = config.env_config.rules()
    comparable = config.trainer_class().capabilities.sampled and not config.env_config.held_out
    if not comparable or is_zero_sum(rules):
        return None
    workers = config.settings.get("workers", 0)
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    players = (Player(policies, True), Player(policies, False), Player(chance, False))

    def returns(player: Player) -> Array:
        return _cut_returns(rules, player, steps=steps, episodes=episodes, workers=workers)

    both = [returns(player) for player in players[:2]]
    if not np.isfinite(both).all() or constant_sum(np.concatenate(both)) is not None:
        return None
    learners = [rules.agents.index(agent) for agent in config.learners]
    greedy, sampled = (one[:, learners].sum(axis=1) for one in both)
    far = gap_of(greedy, sampled, sampled) is not None
    if far:
        random_play = returns(players[2])[:, learners].sum(axis=1)
        far = gap_of(greedy, sampled, random_play, share=CHOSEN) is not None
    mode = "sampled" if far else "greedy"
    return ModeRecord(mode, float(greedy.mean()), float(sampled.mean()), episodes)


def _cut_returns(
    rules: Rules[Any], player: Player, *, steps: int, episodes: int, workers: int
) -> Array:
    """Return the returns [E, N] of the first ``steps`` of one episode in each of E environments.

    Greedy play may never reach the end of an episode without a time limit.
    """
    player = as_player(player, rules.agents)
    modes = dict.fromkeys(rules.agents, player.greedy)
    quota = np.ones(episodes, dtype=np.int64)
    total = np.zeros((episodes, len(rules.agents)))
    playing = np.ones(episodes, dtype=bool)
    turns: Any = play(
        rules, player.team, modes, quota=quota, seed=validation_seed(), workers=workers
    )
    with contextlib.closing(turns):
        for turn in itertools.islice(turns, steps):
            total[playing] += turn.step.reward[playing]
            playing[turn.ended.rows] = False
    return total


# --- Texts ---------------------------------------------------------------------------------------


def describe_gaps(gaps: Mapping[str, tuple[Gap, RunConfig]]) -> dict[str, Any]:
    """Return the entry of gaps for results.json: the figures and the sentence ``said`` of each run.

    The result is empty without gaps.
    """
    entries = [
        {"run": label, **dataclasses.asdict(gap), "said": _sentence(label, gap, config)}
        for label, (gap, config) in gaps.items()
    ]
    return {"greedy_below_sampled": entries} if entries else {}


def describe_modes(runs: Mapping[str, Run]) -> dict[str, Any]:
    """Return the entry of results.json for runs that play with sampled actions, with the figures
    of the end of training and the sentence ``said``; empty if all play greedily."""
    entries = [
        {
            "run": label,
            **dataclasses.asdict(record),
            "said": f"{label} plays with sampled actions: at the end of training, "
            f"{record.sampled:.3g} against {record.greedy:.3g} greedily, in the same "
            f"{record.episodes} episodes.",
        }
        for label, run in runs.items()
        if not run.deterministic
        and (record := run.mode_record) is not None
        and record.mode == "sampled"
    ]
    return {"plays_sampled": entries} if entries else {}


def _sentence(label: str, gap: Gap, config: RunConfig) -> str:
    player = f"{label} as {gap.seat}" if gap.seat else label
    longer = "train longer" + " or with a lower ent_coef" * bool(config.settings.get("ent_coef"))
    mixed = f". In a zero-sum game a mixed strategy may be correct; otherwise {longer}."
    return (
        f"{player}: greedy play is far below sampled play, {gap.greedy:.3g} against "
        f"{gap.sampled:.3g} in the same {gap.episodes} episodes (95 % interval of the difference "
        f"{gap.low:.3g} to {gap.high:.3g}). Play it with sampled actions (in Python "
        f"deterministic=False){mixed if gap.seat else f', or {longer}.'}"
    )
