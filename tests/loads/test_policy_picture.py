"""Pictures of what a team has learned: the grid, the masks, what stands in the background."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import Baseline, baseline_team
from corral.envs.policy import Decision
from corral.loads import policy_picture as module
from corral.loads.policy_picture import backgrounds, policy_picture, team_pictures
from corral.trainers.evaluation.players import Player
from support.loads import DAY, days
from support.messages import refused


def random_trace(largest: int = 30, nodes: int = 3) -> Trace:
    rng = np.random.default_rng(2)
    arrivals = rng.integers(0, largest + 1, (60, nodes))
    arrivals[0, 0] = largest
    capacity = rng.integers(0, largest // 2 + 1, (60, nodes))
    capacity[0, 0] = largest // 2
    names = tuple(f"n{i}" for i in range(nodes))
    return Trace(nodes=names, arrivals=arrivals, capacity=capacity, times=np.arange(60))


class Highest:
    """The largest legal action; keeps what it saw."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def initial_state(self, num_envs: int) -> None:
        return None

    def act(self, observation: Any, *unused: Any, **also_unused: Any) -> Decision:
        self.seen.append(observation)
        return Decision(observation["action_mask"].sum(axis=1, dtype=np.int64) - 1)


def sides(picture: Any) -> tuple[Any, Any]:
    return picture.arrivals[None, :], picture.capacity[:, None]


def test_overflow_is_what_exceeds_the_capacity() -> None:
    rules = DfaasRules(random_trace(), max_cycles=20)
    picture = policy_picture(rules, Baseline("overflow", rules), "node_1", label="reference")
    assert picture.arrivals.tolist() == list(range(31))
    assert picture.capacity.tolist() == list(range(16))
    a, c = sides(picture)
    np.testing.assert_array_equal(picture.forwarded, np.maximum(0, a - c))
    assert (picture.policy, picture.agent, picture.node) == ("reference", "node_1", "n1")


@pytest.mark.parametrize("amount", ["unit", "keep"])
@pytest.mark.parametrize("observation", ["every", "summary", "neighborhood"])
def test_with_unknown_arrivals_the_last_count_is_that_of_the_step(
    observation: Literal["every", "summary", "neighborhood"], amount: str
) -> None:
    """Whatever else a node observes: further counts, and the mean of the time of day."""
    if observation != "every" and amount == "keep":
        pytest.skip("no such rules")
    load = days(3)
    own: dict[str, Any] = {"observation": observation, "amount": amount, "last_counts": 3}
    rules = DfaasRules(load, max_cycles=DAY, arrivals="unknown", daily_mean=True, **own)
    reference = baseline_team("overflow", rules)["node_1"]
    picture = policy_picture(rules, reference, "node_1")
    a, c = sides(picture)
    if observation == "every":
        np.testing.assert_array_equal(picture.forwarded, np.maximum(0, a - c))
    else:  # it is as if the capacity were the mean one
        at = picture.capacity.tolist().index(14)
        np.testing.assert_array_equal(picture.forwarded[at], np.maximum(0, a[0] - 14))


@pytest.mark.parametrize("observation", ["every", "summary", "neighborhood"])
@pytest.mark.parametrize("report_delay", [0, 1, 2])
def test_actions_that_name_a_neighbour_are_drawn_as_requests(
    observation: Literal["every", "summary", "neighborhood"], report_delay: int
) -> None:
    rules = DfaasRules(
        random_trace(),
        max_cycles=20,
        route="choose",
        observation=observation,
        report_delay=report_delay,
    )
    picture = policy_picture(rules, Baseline("overflow", rules, "node_1"), "node_1")
    a, c = sides(picture)
    off = np.abs(picture.forwarded - np.maximum(0, a - c))
    if observation == "every":
        assert (off == 0).all()
    else:  # ratios tell requests to about one, and no more than 4 times the capacity
        assert (off[a <= 4 * c] <= 1).all()


@pytest.mark.parametrize("points", [2, 7, 40, 500])
def test_the_grid_is_even_and_no_larger_than_asked(points: int) -> None:
    rules = DfaasRules(random_trace(100), max_cycles=20)
    picture = policy_picture(rules, Baseline("local", rules), "node_0", points)
    for axis, largest in ((picture.arrivals, 100), (picture.capacity, 50)):
        assert axis[0] == 0
        assert len(axis) <= points
        assert len(set(np.diff(axis).tolist())) == 1
        assert largest - np.diff(axis)[0] < axis[-1] <= largest


def test_masks_and_scales_are_those_of_the_rules() -> None:
    """Levels of several requests: the last legal one reaches beyond the arrivals."""
    own: dict[str, Any] = {"load_scale": 50, "capacity_scale": 40, "max_level": 10}
    rules = DfaasRules(random_trace(), max_cycles=20, **own)
    assert rules.unit == 5
    policy = Highest()
    picture = policy_picture(rules, policy, "node_2", background=np.full(7, 0.5))
    a, _ = sides(picture)
    np.testing.assert_array_equal(picture.forwarded, np.broadcast_to(a, picture.forwarded.shape))
    (seen,) = policy.seen
    assert seen["action_mask"].shape == (31 * 16, 11)
    legal = np.tile(-(-np.arange(31) // 5) + 1, 16)
    np.testing.assert_array_equal(seen["action_mask"].sum(axis=1), legal)
    at = 9 * 31 + 20  # capacity 9, arrivals 20
    np.testing.assert_allclose(seen["observation"][at, :2], [20 / 50, 9 / 40])
    assert (seen["observation"][:, 2:] == 0.5).all()


def test_a_node_without_neighbours_forwards_nothing() -> None:
    rules = DfaasRules(random_trace(), max_cycles=20, neighbours={"node_1": ["node_0"]})
    pictures = {p.agent: p for p in team_pictures(rules, Highest(), "all") if not p.reference}
    assert pictures["node_0"].forwarded.max() == 0
    assert pictures["node_1"].forwarded.max() == 30
    # The reference is drawn of a node that has a choice.
    assert team_pictures(rules, Highest(), "all")[-1].forwarded.max() == 30


def test_the_background_is_the_mean_of_a_replay() -> None:
    """The queue of a patient node stands at its mean: not at zero, where it never is for long."""
    trace = random_trace()
    rules = DfaasRules(trace, max_cycles=20, queue=10)
    team = baseline_team("patient", rules)
    means = backgrounds(rules, team)
    for i, agent in enumerate(rules.agents):
        assert means[agent][0] == pytest.approx(trace.arrivals[:, i].mean() / 30, rel=1e-6)
        assert 0.05 < means[agent][2] < 0.95
    picture = policy_picture(rules, team["node_0"], "node_0", background=means["node_0"])
    a, c = sides(picture)
    queued = round(float(means["node_0"][2]) * 10)
    expected = np.clip(queued + a - c - 10, 0, a)
    np.testing.assert_array_equal(picture.forwarded, expected)
    alone = policy_picture(rules, team["node_0"], "node_0")  # finds the background by itself
    np.testing.assert_array_equal(alone.forwarded, expected)


def test_a_team_is_drawn_node_by_node_beside_the_reference() -> None:
    rules = DfaasRules(random_trace(), max_cycles=20)
    team = {**baseline_team("local", rules), "node_1": Baseline("static", rules)}
    pictures = team_pictures(rules, Player(team, deterministic=False), "mine")
    assert [(p.policy, p.agent, p.reference) for p in pictures] == [
        ("mine", "node_0", ""),
        ("mine", "node_1", ""),
        ("mine", "node_2", ""),
        ("mine", "node_0", "overflow"),
    ]
    assert [int(p.forwarded.max()) for p in pictures] == [0, 12, 0, 30]
    some = team_pictures(rules, team, "mine", agents=["node_1"], reference="threshold")
    assert [(p.agent, p.reference) for p in some] == [("node_1", ""), ("node_0", "threshold")]


def test_many_nodes_are_observed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = DfaasRules(random_trace(), max_cycles=20)
    policy = Highest()
    whole = policy_picture(rules, policy, "node_0", background=np.zeros(7))
    monkeypatch.setattr(module, "LARGEST", 1000)
    parts = policy_picture(rules, policy, "node_0", background=np.zeros(7))
    np.testing.assert_array_equal(parts.forwarded, whole.forwarded)
    sizes = [len(seen["action_mask"]) for seen in policy.seen]
    assert len(sizes) > 5
    assert max(sizes[1:]) * 3 * 7 <= 1000


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ({"agent": "node_3"}, ("agent='node_3'", "node_0, node_1, node_2")),
        ({"points": 1}, ("points=1", "2")),
        ({"background": np.zeros(5)}, ("background (5,)", "7 features")),
    ],
)
def test_mistakes_are_explained(arguments: dict[str, Any], values: tuple[str, ...]) -> None:
    given = {"agent": "node_0", **arguments}
    with refused(ValueError, *values):
        policy_picture(DfaasRules(random_trace()), Highest(), **given)
