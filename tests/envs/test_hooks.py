"""What rules may offer besides: splits of their data, what a team carries along, named teams."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from corral.envs import make_rules
from corral.envs.core import carried_by, split_of
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS
from corral.envs.reference import reference_team, team_names, teams_of
from corral.errors import UnknownNameError
from support.loads import small_trace
from support.messages import refused


@pytest.mark.parametrize("name", ["arena_v0", "tictactoe_v0", "rps_v0", "two_step_v0", "tiles_v0"])
def test_rules_without_data_have_nothing_to_split_or_to_carry(name: str) -> None:
    rules = make_rules(name)
    assert split_of(rules, None, None) is None
    assert carried_by(rules) == {}
    assert bool(teams_of(rules)) == (name in ("arena_v0", "tiles_v0"))


@pytest.mark.parametrize(
    ("steps", "rows", "held_out", "train", "test"),
    [
        (40, None, None, (0, 28), (28, 40)),
        (10, None, 0.2, (0, 8), (8, 10)),
        (10, None, 0, (0, 10), (0, 10)),  # nothing is held out: judged on the same rows
        (1, None, None, (0, 1), (0, 1)),
        (3, None, 0.99, (0, 1), (1, 3)),
        (40, (5, 20), None, (5, 20), (20, 40)),
        (40, (0, 40), None, (0, 40), (0, 40)),
        (40, (5, 20), (30, 35), (5, 20), (30, 35)),
        (40, (20, 40), (0, 20), (20, 40), (0, 20)),
        (40, None, [30, 40], (0, 30), (30, 40)),
    ],
)
def test_a_load_is_split_by_rows(
    steps: int, rows: Any, held_out: Any, train: Any, test: Any
) -> None:
    load = small_trace(steps=steps)
    rules = DfaasRules(load, rows=rows, capacity="1.25x")
    split = split_of(rules, rows, held_out)
    assert split is not None
    assert split.held_out == {"rows": test}
    levels = np.rint(1.25 * load.arrivals[slice(*train)].mean(axis=0))
    assert split.train == {
        "trace": load,  # with the capacity of its own: ``capacity`` stays an argument
        "rows": train,
        "load_scale": rules.load_scale,
        "capacity_scale": max(1, levels.max()),
        "capacity_rows": train,
    }
    again = DfaasRules(**{**split.train, "capacity": "1.25x"})
    assert again.trace.capacity is not None
    assert (again.trace.capacity == levels).all()
    assert again.rows == train


@pytest.mark.parametrize(
    ("rows", "held_out", "values"),
    [
        (None, 1, ("held_out=1", 0, 1)),
        (None, float("nan"), ("held_out=nan", 0, 1)),
        (None, (30, 50), ("held_out=(30, 50)", "(low, high)", "0..40")),
        (None, (1, 2, 3), ("held_out=(1, 2, 3)", "(low, high)", "0..40")),
        (None, (0, 20), ("held_out=(0, 20)", "rows")),
        ((0, 20), 0.3, ("rows", "held_out")),
    ],
)
def test_wrong_splits_are_named(rows: Any, held_out: Any, values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        split_of(DfaasRules(small_trace(steps=40), rows=rows), rows, held_out)


def test_a_team_carries_what_it_observes_and_acts_by() -> None:
    links = {"node_0": ["node_1"]}
    rules = DfaasRules(small_trace(), max_level=4, neighbours=links, route="two", queue=3)
    carried = carried_by(rules)
    assert set(carried) == {
        *("amount", "arrivals", "capacity_scale", "load_scale", "max_level"),
        *("neighbours", "observation", "route"),
    }
    other = DfaasRules(small_trace(), **carried)
    assert other.unit == rules.unit
    assert np.array_equal(other.network.links, rules.network.links)
    assert other.queue == 0


def test_teams_by_name() -> None:
    rules = DfaasRules(small_trace(), route="two")
    assert set(AMOUNTS) <= set(team_names(rules))
    assert list(reference_team(" overflow/two ", rules)) == list(rules.agents)
    with refused(ValueError, "overflow/equal", "route='two'", "route='equal'", "'overflow'"):
        reference_team("overflow/equal", rules)
    with refused(UnknownNameError, "'overflw'", "'overflow'"):
        reference_team("overflw", rules)
    with refused(UnknownNameError, "arena_v0", "'nearst/still'", "'nearest/still'"):
        reference_team("nearst/still", make_rules("arena_v0"))
    one = reference_team("beat-last", make_rules("rps_v0"))
    assert list(one) == ["player_0", "player_1"]
