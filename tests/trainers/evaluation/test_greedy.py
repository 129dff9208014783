"""Greedy play far below sampled play: said where it is so, and nowhere else."""

from __future__ import annotations

import html
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules
from corral.envs.core import Array
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import Decision
from corral.envs.reference import reference_team, team_names
from corral.envs.registry import ENVIRONMENTS
from corral.trainers.evaluation.greedy import gap_of, in_order, seat_gaps, team_gaps
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.scores import evaluate_players
from corral.trainers.evaluation.zero_sum import evaluate_seats, is_zero_sum
from support.messages import shown
from support.thinned import fast_every

RNG = np.random.default_rng(5)


def often(share: float, episodes: int = 100) -> Array:
    """Returns of a game that is won, 1, in that share of the episodes."""
    return (np.arange(episodes) < share * episodes).astype(float)


# --- When it is far below ------------------------------------------------------------------------


def test_a_game_that_greedy_play_loses() -> None:
    gap = gap_of(often(0.08), RNG.permutation(often(0.94)), often(0.05))
    assert gap is not None
    assert (gap.greedy, gap.sampled, gap.episodes) == pytest.approx((0.08, 0.94, 100))
    assert 0.7 < gap.low < 0.86 < gap.high < 1


@pytest.mark.parametrize(
    ("greedy", "sampled", "chance"),
    [
        (often(0.94), often(0.94), often(0.05)),  # the same
        (often(0.94), often(0.08), often(0.05)),  # the other way round
        (RNG.permutation(often(0.85)), often(0.94), often(0.05)),  # below, but not far
        (often(0.5) + 7, often(0.5) + 7.1, often(0.5) + 6),  # for certain, but little was lost
        (often(0.02), RNG.permutation(often(0.08)), often(0.05)),  # may be chance
        (often(0.2) + 7, often(0.25) + 7, often(0.5)),
        (np.zeros(1), np.ones(1), np.zeros(1)),  # one episode says nothing
        (np.zeros(5), np.zeros(5), np.zeros(5)),
    ],
)
def test_otherwise_nothing_is_said(greedy: Array, sampled: Array, chance: Array) -> None:
    assert gap_of(greedy, sampled, chance) is None


def test_episodes_are_paired_by_where_and_when_they_began() -> None:
    returns = np.array([[2.0, 0], [0, 1], [3, 0], [1, 1]])
    played = EndedEpisodes(("a", "b"), np.array([1, 0, 1, 0]), returns, np.ones(4), {})
    assert in_order(played).tolist() == [[0, 1], [1, 1], [2, 0], [3, 0]]


# --- Policies at play ----------------------------------------------------------------------------


def run_of(team: Any, rules: Any) -> Any:
    """What is asked of a run."""
    agents = dict.fromkeys(rules.agents, "shared")
    config = SimpleNamespace(
        trainer="mappo", policies=agents, learners=rules.agents, settings={"ent_coef": 0.01}
    )
    return SimpleNamespace(config=config, policies=team, deterministic=True)


def gaps_of(team: Any, rules: Any, episodes: int = 32) -> Any:
    """Judge a team as ``corral.evaluate`` does, in 32 episodes."""
    played: list[EndedEpisodes] = []
    runs = {"run": run_of(team, rules)}
    both = {f"run, {p.mode}": p for p in (Player(team, True), Player(team, False))}
    plan: dict[str, Any] = {"episodes": episodes, "on_played": played.append}
    if is_zero_sum(rules):
        rows = evaluate_seats(rules, both, **plan)
        return seat_gaps(runs, rules.agents, rows, played)
    evaluate_players(rules, both, **plan)
    return team_gaps(runs, played)


class Undecided:
    """Likes the first legal action best, and takes another of them often enough."""

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, state: Any = None, rng: Any = None, **how: Any) -> Decision:
        mask = np.asarray(observation["action_mask"])
        first = mask.argmax(axis=1)
        if how.get("deterministic", False):
            return Decision(first)
        other = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
        return Decision(np.where(rng.random(len(mask)) < 0.3, first, other))


@pytest.mark.parametrize("env", ["arena_v0", "rps_v0"])
def test_policies_that_have_not_settled(env: str) -> None:
    rules = make_rules(env)
    team = {agent: Undecided() for agent in rules.agents}
    ((gap, _),) = gaps_of(team, rules).values()
    assert gap.sampled > gap.greedy
    assert gap.low > 0
    assert bool(gap.seat) == (env == "rps_v0")


SMALL: dict[str, dict[str, Any]] = {"dfaas_v0": {"max_cycles": 30}, "tiles_v0": {"max_cycles": 10}}


@pytest.mark.parametrize(
    "env", fast_every(3, [env for env in ENVIRONMENTS if not env.startswith("probe")])
)
def test_no_false_alarm_over_reference_teams(env: str) -> None:
    """They draw among equally good actions at most: greedy play is as good."""
    rules = make_rules(env, **SMALL.get(env, {}))
    names = [name for name in team_names(rules) if not name.startswith("random/")]
    assert names
    for name in names:
        assert gaps_of(reference_team(name, rules), rules) == {}, name


# --- Evaluations ---------------------------------------------------------------------------------


def test_an_evaluation_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    import corral
    from support.command import within

    run = corral.train(
        "arena_v0",
        steps=256,
        seed=0,
        out=tmp_path / "run",
        num_envs=16,
        n_steps=16,
        net_arch=(8,),
        ent_coef=0.01,
        env_kwargs={"max_cycles": 40},
        progress=False,
    )
    found = corral.evaluate(run, episodes=30)
    greedy, sampled = found[0], found[1]
    (said,) = found.details["greedy_below_sampled"]
    assert (said["run"], said["episodes"]) == ("mappo", 30)
    assert said["greedy"] == pytest.approx(greedy.return_team)
    assert said["sampled"] == pytest.approx(sampled.return_team)
    figures = f"{greedy.return_team:.3g}", f"{sampled.return_team:.3g}", 30
    shown(said["said"], "mappo:", *figures, "deterministic=False", "ent_coef")
    assert "separate" not in said["said"]  # separate policies learn from fewer decisions
    assert json.loads((run.folder / "results.json").read_text())["greedy_below_sampled"] == [said]
    assert said["said"] in str(found).replace("\n", " ")
    assert html.escape(said["said"]) in found._repr_html_()
    printed = within("evaluate", run.folder, "--episodes", "30")
    assert said["said"] in " ".join(printed.split())
    lines = [line for line in printed.splitlines() if not line.startswith(("Res", "Rep"))]
    assert max(map(len, lines)) <= 80
