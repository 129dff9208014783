"""Validation: evaluate policies on data that training and final evaluation do not use.

    result = validate(run)  # or validate(env_config, policies)
    result.value, result.figures["served"]

Validation is for choices: the best checkpoint, early stopping, settings. If the environment replays
data, validation plays the rows reserved for it, each whole window once. Otherwise it plays episodes
with separate seeds. All runs of an environment get the same validation, for any seed of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
"""Default number of episodes of a validation, and its maximum number of data windows."""


@dataclass(frozen=True)
class Validation:
    """The result of ``validate``."""

    rows: tuple[TeamScore, ...] | tuple[SeatScore, ...]  # zero-sum: per seat and opponent
    figures: dict[str, float]
    """Numbers by name, as in results.json. Always ``return_learned``. For a team also
    ``return_team``, ``returns.agent_0``, ``kpis.lost`` and shares such as ``served``. For a
    zero-sum game means over seats and opponents: ``won``, ``lost``, ``returns.player_0``."""

    @property
    def value(self) -> float:
        """The mean return of the learning agents, for comparisons; higher is better."""
        return self.figures["return_learned"]


def validation_seed(seed: int = 0) -> int:
    """Return the seed of validation's episodes.

    It is drawn from the stream of purpose "eval" and is larger than any usual seed. Validation
    episodes therefore differ from those of training and evaluation.
    """
    return int(generator(seed, "eval", 1).integers(2**32, 2**62))


def validate(
    source: Run | EnvConfig,
    policies: PolicyLike | Mapping[str, PolicyLike] | None = None,
    *,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool | None = None,
    learners: Sequence[str] | None = None,
    zero_sum: bool | None = None,
    workers: int = 0,
) -> Validation:
    """Play a team on the validation data and return its scores.

    Args:
        source: a run, or the configuration of an environment.
        policies: a team (agent -> policy), or one policy for all; default: those of the run.
        episodes: number of episodes; for data, maximum number of windows, evenly spread. Default:
            64.
        seed: seed of the episodes, see ``validation_seed``. Use the same seed for comparisons.
        deterministic: True: greedy actions; False: sampled actions. Default: the run's mode, see
            ``Run.deterministic``; greedy for other policies.
        learners: agents with returns that count; default: the learners of the run, else all.
        zero_sum: whether to play seat by seat, against reference players and random play; default:
            decided as in ``corral.evaluate``.
        workers: number of processes that step a third-party environment.

    Raises ValueError if the environment replays data but reserves no rows for validation.
    """
    env_config = source.config.env_config if isinstance(source, Run) else source
    if isinstance(source, Run):
        policies = source.policies if policies is None else policies
        learners = source.config.learners if learners is None else learners
    if policies is None:
        raise ValueError("an EnvConfig has no policies: pass policies=, a team (agent -> policy)")
    rules = env_config.validation_rules()
    limit = EPISODES if episodes is None else episodes
    plan: dict[str, Any] = {"episodes": limit, "seed": validation_seed(seed), "workers": workers}
    if env_config.validation and (windows := windows_of(rules, limit)) is not None:
        rules, plan["episodes"] = windows
        plan["num_envs"] = plan["episodes"]
    player = as_player(policies, rules.agents)
    if deterministic is not None:
        player = replace(player, deterministic=deterministic)
    chosen = tuple(rules.agents if learners is None else learners)
    if unknown := [agent for agent in chosen if agent not in rules.agents]:
        raise ValueError(f"learners={unknown}: the agents are {', '.join(rules.agents)}")
    draw = 0.0  # return of each player in a draw
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
    figures = {name: float(value) for name, value in figures_of(score).items() if value is not None}
    sums = {key: values.sum(axis=1) for key, values in played.infos.items()}
    learned = float(sum(score.returns[agent] for agent in learners))
    return {"return_learned": learned, **figures, **shares_of(rules, sums)}


def _seats(
    rules: Rules[Any], player: Player, seats: Sequence[str], plan: Mapping[str, Any]
) -> tuple[SeatScore, ...]:
    """Evaluate the team in each seat against each reference player and random play."""
    rows = []
    for seat in seats:
        (other,) = (agent for agent in rules.agents if agent != seat)
        for name, opponent in seat_players(rules, other).items():
            labels = ("team", player.mode, name)
            greedy = player.greedy
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

    figures = {"return_learned": mean("return_seat")}
    figures |= {f"returns.{seat}": mean("return_seat", seat) for seat in {row.seat for row in rows}}
    figures |= {name: mean(name) for name in ("won", "drawn", "lost", "mean_length")}
    return {**figures, "illegal_actions": float(sum(row.illegal_actions for row in rows))}
