"""Validation: how well policies play where neither training nor the final judgment looks.

    found = validate(run)  # or validate(env_config, policies)
    found.value, found.figures["served"]

It is for choices: which checkpoint is the best, when to stop, which settings. Where the environment
replays data, validation plays the rows that are kept for it, each whole window once; elsewhere
episodes of seeds of its own. It is the same for every run of an environment, whatever its seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Rules, generator, shares_of, windows_of
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import PolicyLike
from corral.trainers.evaluation.players import Player, as_player
from corral.trainers.evaluation.scores import TeamScore, evaluate_team, figures_of
from corral.trainers.evaluation.zero_sum import (
    SeatScore,
    constant_sum,
    evaluate_seat,
    is_zero_sum,
    seat_players,
)
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run

__all__ = ["EPISODES", "Validation", "validate", "validation_seed"]

EPISODES = 64
"""Episodes, and at most so many windows of data, that a validation plays by default."""


@dataclass(frozen=True)
class Validation:
    """The result of ``validate``."""

    rows: tuple[TeamScore, ...] | tuple[SeatScore, ...]  # of a zero-sum game: each seat, opponent
    figures: dict[str, float]
    """Numbers by name, those of results.json: ``return_learned`` and, of a team, ``return_team``,
    ``returns.agent_0``, ``kpis.lost``, shares such as ``served``; of a zero-sum game the means over
    seats and opponents: ``won``, ``lost``, ``returns.player_0``."""

    @property
    def value(self) -> float:
        """The mean return of the agents that learn: what is to be compared, more is better."""
        return self.figures["return_learned"]


def validation_seed(seed: int = 0) -> int:
    """Return the seed of validation's episodes.

    It is drawn from the stream of purpose "eval", and larger than any seed that is typed: no
    episode's stream is one of training, or of an evaluation.
    """
    return int(generator(seed, "eval", 1).integers(2**32, 2**62))


def validate(
    source: Run | EnvConfig,
    policies: PolicyLike | Mapping[str, PolicyLike] | None = None,
    *,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool = True,
    learners: Sequence[str] | None = None,
    zero_sum: bool | None = None,
    workers: int = 0,
) -> Validation:
    """Play a team on what is kept for validation.

    Args:
        source: a run, or the configuration of an environment.
        policies: a team (agent -> policy), or one policy for all; default: those of the run.
        episodes: how many; of windows of data at most so many, evenly spread. Default: 64.
        seed: of the episodes, see ``validation_seed``; leave it as it is to compare.
        deterministic: greedy play; False: sampled actions.
        learners: agents whose return counts; default: those that learn in the run, else all.
        zero_sum: whether to play seat by seat, against reference players and random play; default:
            as ``corral.evaluate`` finds it.
        workers: processes that step a third-party environment.

    Raises ValueError where the environment has data, and none are kept for validation.
    """
    env_config = source.config.env_config if isinstance(source, Run) else source
    if isinstance(source, Run):
        policies = source.policies if policies is None else policies
        learners = source.config.learners if learners is None else learners
    if policies is None:
        raise ValueError("give policies, a team (agent -> policy), beside an EnvConfig")
    rules = env_config.validation_rules()
    most = EPISODES if episodes is None else episodes
    plan: dict[str, Any] = {"episodes": most, "seed": validation_seed(seed), "workers": workers}
    if env_config.validation and (found := windows_of(rules, most)) is not None:
        rules, plan["episodes"] = found
        plan["num_envs"] = plan["episodes"]
    player = Player(as_player(policies, rules.agents).team, deterministic)
    chosen = tuple(rules.agents if learners is None else learners)
    if unknown := [agent for agent in chosen if agent not in rules.agents]:
        raise ValueError(f"learners={unknown}: the agents are {', '.join(rules.agents)}")
    draw = 0.0  # what both earn
    if not zero_sum and not (zero_sum is None and is_zero_sum(rules)):
        played: list[EndedEpisodes] = []
        score = evaluate_team(rules, player, on_played=played.append, **plan)
        total = constant_sum(played[0].returns) if zero_sum is None else None
        if total is None or len(rules.agents) != 2:
            return Validation((score,), _team_figures(rules, score, played[0], chosen))
        draw = total / 2
    rows = _seats(rules, player, chosen, {**plan, "draw": draw})
    return Validation(rows, _seat_figures(rows))


def _team_figures(
    rules: Rules[Any], score: TeamScore, played: EndedEpisodes, learners: Sequence[str]
) -> dict[str, float]:
    found = {name: float(value) for name, value in figures_of(score).items() if value is not None}
    sums = {key: each.sum(axis=1) for key, each in played.infos.items()}
    learned = float(sum(score.returns[agent] for agent in learners))
    return {"return_learned": learned, **found, **shares_of(rules, sums)}


def _seats(
    rules: Rules[Any], player: Player, seats: Sequence[str], plan: Mapping[str, Any]
) -> tuple[SeatScore, ...]:
    """Return what the team earns in each seat, against each reference player and random play."""
    rows = []
    for seat in seats:
        (other,) = (agent for agent in rules.agents if agent != seat)
        for name, opponent in seat_players(rules, other).items():
            labels = ("team", player.mode, name)
            greedy = player.deterministic
            rows.append(
                evaluate_seat(
                    *(rules, seat, player.team[seat], opponent),
                    **{**plan, "deterministic": greedy, "labels": labels},
                )
            )
    return tuple(rows)


def _seat_figures(rows: Sequence[SeatScore]) -> dict[str, float]:
    def mean(name: str, seat: str | None = None) -> float:
        return float(np.mean([getattr(r, name) for r in rows if seat in (None, r.seat)]))

    found = {"return_learned": mean("return_seat")}
    found |= {f"returns.{seat}": mean("return_seat", seat) for seat in {row.seat for row in rows}}
    found |= {name: mean(name) for name in ("won", "drawn", "lost", "mean_length")}
    return {**found, "illegal_actions": float(sum(row.illegal_actions for row in rows))}
