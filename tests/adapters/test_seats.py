"""Who plays the seats that are not the learner's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from corral.adapters import BatchVectorEnv, SeatEnv, make_zoo_batch
from corral.envs import ENVIRONMENTS, arena_v0, make_rules
from corral.envs.arena_v0 import ArenaRules
from corral.envs.arena_v0.baselines import Still
from corral.envs.policy import Decision
from corral.envs.reference import reference_team, team_names
from corral.errors import (
    ActionError,
    UnknownNameError,
)
from support.messages import refused
from support.seat_games import GAMES, LOAD, first_legal, play


def test_opponents_are_named_given_or_drawn() -> None:
    rules = GAMES["arena"]()
    named = SeatEnv(rules, opponents="nearest/still")
    given = SeatEnv(rules, opponents={"agent_1": first_legal, "agent_2": Still(rules)})
    shared = SeatEnv(rules, opponents=Still(rules))
    plays = [play(env, 0, np.random.default_rng(0)) for env in (named, given, shared)]
    assert plays[0] == plays[1] == plays[2]
    drawn = play(SeatEnv(rules), 0, np.random.default_rng(0))
    assert drawn == play(SeatEnv(rules, opponents="random"), 0, np.random.default_rng(0))
    assert drawn != plays[0]


def test_opponents_remember_within_an_episode_and_not_beyond() -> None:
    """The nearest explorer must know where it has been; its next episode is as its first."""
    env = SeatEnv(ArenaRules(3, 3, max_cycles=8), "agent_2", "nearest/still")
    fields = []
    for _ in range(2):
        env.reset(seed=0)
        found = [env.step(1)[0]["observation"] for _ in range(8)]  # bumps into its wall
        fields.append([int(seen[9:].argmax()) for seen in found])  # where the explorer went
    assert fields[0] == fields[1]
    assert len(set(fields[0])) >= 7


@pytest.mark.parametrize(
    ("kwargs", "error", "values"),
    [
        ({"env": "arena_v1"}, UnknownNameError, ("'arena_v1'", "'arena_v0'")),
        ({"seat": "agent_3"}, UnknownNameError, ("arena_v0", "'agent_3'", "agent_1, agent_2")),
        ({"opponents": {}}, ValueError, ("opponents", "agent_2", "arena_v0")),
        ({"opponents": {"agent": first_legal}}, UnknownNameError, ("'agent'", "agent_1, agent_2")),
        ({"opponents": "nearest/stil"}, UnknownNameError, ("'nearest/stil'", "'nearest/still'")),
        ({"render_mode": "rgb"}, ValueError, ("render_mode='rgb'", "'human', 'ansi'")),
        ({"seat": 0}, UnknownNameError, (0, "agent_1, agent_2")),
        (
            {"widht": 5},
            TypeError,
            ("'widht'", "'width'", "env, seat, opponents", "width, height"),
        ),
        ({"render": "ansi"}, TypeError, ("'render'", "'render_mode'")),
        ({"opponents": {"agent_2": "stil"}}, UnknownNameError, ("agent_2", "'stil'", "'still'")),
        ({"opponents": "runs/x.zip"}, ValueError, ("opponents", "PPO.load('runs/x.zip')")),
        (
            {"opponents": Path("x@best")},
            ValueError,
            ("opponents", "corral.load_run('x@best').policies"),
        ),
        ({"opponents": SimpleNamespace(policies={})}, ValueError, ("opponents", "run.policies")),
        (
            {"env": ArenaRules(), "width": 3},
            ValueError,
            ("env_kwargs={'width': 3}", "corral.envs.arena_v0.rules.ArenaRules"),
        ),
    ],
)
def test_wrong_arguments_are_named(
    kwargs: dict[str, Any], error: type[Exception], values: tuple[Any, ...]
) -> None:
    with refused(error, *values):
        SeatEnv(**{"env": "arena_v0", **kwargs})


def test_names_in_a_mapping(tmp_path: Path) -> None:
    named = SeatEnv("rps_v0", opponents={"player_1": "beat-last"})
    given = SeatEnv("rps_v0", opponents="beat-last")
    rng = np.random.default_rng
    assert play(named, 0, rng(0)) == play(given, 0, rng(0))
    assert play(SeatEnv("rps_v0", opponents={"player_1": "random"}), 0, rng(0))
    with pytest.raises(ValueError, match=r"load_run\(.*\).policies"):
        SeatEnv("rps_v0", opponents=f"{tmp_path}@best")


def test_an_opponents_action_is_checked() -> None:
    env = SeatEnv("arena_v0", opponents=lambda observation: 4)
    env.reset(seed=0)
    with refused(ActionError, "agent_2", "action 4", "0..3"):
        env.step(0)


def test_reference_teams_have_names() -> None:
    rules = make_rules("dfaas_v0", **LOAD, route="two")
    assert set(reference_team("overflow/two", rules)) == set(rules.agents)
    assert set(reference_team("overflow", rules)) == set(rules.agents)
    with refused(ValueError, "overflow/equal", "route='two'", "route='equal'", "'overflow'"):
        reference_team("overflow/equal", rules)
    for name in (*ENVIRONMENTS, "probe_p01_v0"):
        for team in team_names(made := make_rules(name)):
            assert set(reference_team(team, made)) == set(made.agents)
        with pytest.raises(UnknownNameError, match="random"):
            reference_team("nobody", made)


def masked(*actions: int) -> Any:
    return np.ma.array(actions, mask=[True] + [False] * (len(actions) - 1))


def test_masked_arrays_are_no_actions() -> None:
    """NumPy would drop their mask: through a policy, a seat, columns, and third-party games."""
    careless = SeatEnv(ArenaRules(), opponents=lambda seen: 0)
    careless._others["agent_2"].policy.act = lambda *args, **kwargs: Decision(masked(1))  # type: ignore[method-assign]
    careless.reset(seed=0)
    seat, columns = SeatEnv(ArenaRules()), BatchVectorEnv(ArenaRules(), 4)
    batch = make_zoo_batch(arena_v0.parallel_env, 2, seed=0)
    for env in (seat, columns, batch):
        env.reset()
    for call in (
        lambda: careless.step(0),
        lambda: seat.step(masked(1)[0]),
        lambda: columns.step(masked(1, 2, 3, 0)),
        lambda: batch.step(masked(0, 1, 2, 3).reshape(2, 2)),
        lambda: batch.step([masked(0, 1), masked(2, 3)]),  # type: ignore[arg-type]
    ):
        with pytest.raises(ActionError, match="masked"):
            call()
