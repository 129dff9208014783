"""The games of the published comparison: what is learned in each, and how a team is judged.

Everybody learns the same game with the same discounting, and is judged greedily on the same
episodes, none of which it has learned from where the game replays a load.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import TRACES

from corral.adapters import zoo_rules
from corral.envs.core import Rules
from corral.envs.policy import Decision
from corral.envs.reference import teams_of
from corral.envs.registry import make_rules
from corral.loads.replay import replay
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_players

__all__ = ["GAMES", "Game", "Judged"]

EPISODES, SEED = 200, 10_000  # that judge a game without data, the same for all

Judged = dict[str, float]
"""What was found of a team: "value" in the game's unit, and the "illegal" actions it took."""


@dataclass(frozen=True)
class Game:
    """A game: how trainers of corral are called, what others learn, and how a team is judged."""

    title: str
    unit: str
    env: Callable[[], Any]  # what corral.train takes
    rules: Callable[[], Rules[Any]]  # what others learn, on the same data
    judge: Callable[[Mapping[str, Any]], dict[str, Judged]]  # label -> team
    references: Callable[[], dict[str, Judged]]
    options: Callable[[], dict[str, Any]] = dict  # of corral.train
    discounting: dict[str, float] = field(default_factory=dict)  # what everybody is given
    lower_is_better: bool = False
    share: int = 1  # team returns of training are divided by it, to be in the unit
    best: str = ""  # the reference that tables show beside random play
    alike: bool = True  # one policy serves all agents; else each has its own
    max_steps: int | None = None  # of an episode, where the rules name none
    only: tuple[str, ...] = ()  # these alone play it, with ``seeds``; empty: all
    steps: int = 100_000
    seeds: tuple[int, ...] = ()


# --- dfaas_v0 ------------------------------------------------------------------------------------


def _judged_default(teams: Mapping[str, Any]) -> dict[str, Judged]:
    result = replay("edge3", dict(teams), rows=(2822, 4032), illegal="raise")
    return {
        score.policy: {
            "value": 100 * float(score.share_of_optimum or 0.0),
            "illegal": score.illegal_actions,
        }
        for score in result.scores
    }


@functools.cache
def _hard_load() -> tuple[Any, tuple[int, int]]:
    if not TRACES.exists():
        raise SystemExit(f"{TRACES}: the public traces are not there; CORRAL_TRACES names them")
    import hard_days

    return hard_days.load()


def _hard(**more: Any) -> dict[str, Any]:
    from reference_policies import HARD

    return {**HARD, "trace": _hard_load()[0], "route": "spare", **more}


def _judged_hard(teams: Mapping[str, Any]) -> dict[str, Judged]:
    game = _hard()
    trace, route = game.pop("trace"), game.pop("route")
    result = replay(
        trace,
        {
            label: team if isinstance(team, str) else Player(team, settings={"route": route})
            for label, team in teams.items()
        },
        rows=_hard_load()[1],
        window=720,
        optimum_windows=0,
        **game,
    )
    return {
        score.policy: {"value": 100 * score.cost, "illegal": score.illegal_actions}
        for score in result.scores
    }


def _pairs(
    judge: Callable[[Mapping[str, Any]], dict[str, Judged]], heuristic: str
) -> Callable[[], dict[str, Judged]]:
    def references() -> dict[str, Judged]:
        found = judge({"random/equal": "random/equal", heuristic: heuristic})
        return {"random": found["random/equal"], heuristic: found[heuristic]}

    return references


# --- Games that are played for some episodes -----------------------------------------------------


def _played(rules: Callable[[], Rules[Any]], share: int = 1) -> Callable[..., dict[str, Judged]]:
    """Judge by the mean return of the team; of each of ``share`` agents, where it says so."""

    def judge(teams: Mapping[str, Any]) -> dict[str, Judged]:
        scores = evaluate_players(rules(), dict(teams), episodes=EPISODES, seed=SEED)
        return {
            score.policy: {
                "value": float(score.return_team) / share,
                "illegal": score.illegal_actions,
            }
            for score in scores
        }

    return judge


def _arena(**arguments: Any) -> Rules[Any]:
    return make_rules("arena_v0", illegal="raise", **arguments)


def _arena_references(**arguments: Any) -> dict[str, Judged]:
    return _played(lambda: _arena(**arguments))(teams_of(_arena(**arguments)))


def spread_env() -> Any:
    """Make the environment; a function of a module, since BenchMARL pickles its task."""
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(N=3, local_ratio=0.5, max_cycles=25)


def _spread() -> Any:
    return zoo_rules(spread_env)


class Nearest:
    """Goes to the landmark that the agent's number is given when all are shared out shortest."""

    def __init__(self, agent: int) -> None:
        self.agent = agent

    def act(
        self, observation: Any, state: Any = None, rng: Any = None, deterministic: bool = False
    ) -> Decision:
        from scipy.optimize import linear_sum_assignment

        seen = np.asarray(observation["observation"])
        marks, others = seen[:, 4:10].reshape(-1, 3, 2), seen[:, 10:14].reshape(-1, 2, 2)
        actions = np.zeros(len(seen), dtype=np.int64)
        for row in range(len(seen)):
            places = np.insert(others[row], self.agent, 0.0, axis=0)  # of all agents, from this one
            distances = np.linalg.norm(places[:, None] - marks[row][None], axis=-1)
            x, y = marks[row][linear_sum_assignment(distances)[1][self.agent]] - seen[row, :2] * 0.5
            sideways = abs(x) > abs(y)
            move = (2 if x > 0 else 1) if sideways else (4 if y > 0 else 3)
            actions[row] = move if max(abs(x), abs(y)) > 0.05 else 0
        return Decision(actions)


def _spread_references() -> dict[str, Judged]:
    rules = _spread()
    team = {agent: Nearest(number) for number, agent in enumerate(rules.agents)}
    return _judged_spread({"shared out": team})


def _two_step() -> Rules[Any]:
    return make_rules("two_step_v0", illegal="raise")


_judged_spread = _played(_spread, share=3)
_judged_two_step = _played(_two_step)


def _two_step_references() -> dict[str, Judged]:
    found = _judged_two_step({})
    return {**found, "safe choice": {"value": 7.0, "illegal": 0}}


GAMES: dict[str, Game] = {
    "dfaas_default": Game(
        "dfaas_v0, default",
        "% of the optimum, rows not learned from",
        env=lambda: "dfaas_v0",
        rules=lambda: make_rules("dfaas_v0", trace="edge3", rows=(0, 2822), illegal="raise"),
        judge=_judged_default,
        references=_pairs(_judged_default, "overflow/equal"),
        best="overflow/equal",
        options=lambda: {"validation": 0},
        discounting={"gamma": 0.5},  # what the registry gives the trainers of corral
    ),
    "dfaas_hard": Game(
        "dfaas_v0, hard days",
        "cost, % of the arrivals, days not learned from",
        env=lambda: "dfaas_v0",
        rules=lambda: make_rules(
            "dfaas_v0",
            **_hard(reward="team", max_cycles=240, illegal="raise", rows=(0, _hard_load()[1][0])),
        ),
        judge=_judged_hard,
        references=_pairs(_judged_hard, "patient-margin/spare"),
        best="patient-margin/spare",
        options=lambda: {
            "env_kwargs": _hard(reward="team", max_cycles=240),
            "held_out": _hard_load()[1],
            "validation": 0,
        },
        discounting={"gamma": 0.8, "gae_lambda": 0.8},
        lower_is_better=True,
    ),
    "arena": Game(
        "arena_v0",
        "sum of both returns",
        env=lambda: "arena_v0",
        rules=_arena,
        judge=_played(_arena),
        references=_arena_references,
        best="nearest/chase",
        alike=False,
    ),
    "simple_spread": Game(
        "mpe2 simple_spread_v3",
        "return per agent",
        env=_spread,
        rules=_spread,
        judge=_judged_spread,
        references=_spread_references,
        share=3,
        best="shared out",
        max_steps=25,
    ),
    "two_step": Game(
        "two_step_v0",
        "return; 8 is the optimum",
        env=lambda: "two_step_v0",
        rules=_two_step,
        judge=_judged_two_step,
        references=_two_step_references,
        best="safe choice",
    ),
    "arena_visited": Game(
        'arena_v0, observation="visited"',
        "sum of both returns",
        env=lambda: "arena_v0",
        rules=functools.partial(_arena, observation="visited"),
        judge=_played(functools.partial(_arena, observation="visited")),
        references=functools.partial(_arena_references, observation="visited"),
        best="nearest/chase",
        options=lambda: {"env_kwargs": {"observation": "visited"}},
        alike=False,
        only=("mappo",),
        steps=1_000_000,
        seeds=(0, 1, 2),
    ),
}
