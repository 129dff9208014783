"""Actions of dfaas_v0 that are offsets to a rule, and numbers above the scales."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from corral.data.trace import Trace
from corral.envs.batch import Batch
from corral.envs.core import (
    amounts_of,
    first_action_of,
    generator,
    places_of,
    redraw_of,
    redrawing,
)
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS, Baseline
from corral.envs.dfaas_v0.plain_rules import PlainRule, plans_of
from corral.envs.dfaas_v0.residual import Residual
from corral.errors import ScaleError
from support.dfaas_configurations import RULES, random_draws, residual_configuration
from support.dfaas_scalar import ScalarDfaas
from support.loads import days, small_trace
from support.messages import refused
from support.plan_scalar import plan_of_rule
from support.plan_worlds import ROUTES, assert_same, begin, random_world, rules_of

INFO = ("arrivals", "forwarded", "served_local", "served_remote", "lost", "waiting", "waited")


# --- Offsets, worked out by hand -----------------------------------------------------------------

ALL = 10**9
"""At least so many are kept by a node that forwards nothing."""

OFFSETS = [
    # rule, unit, c, q, Q: requests kept by the actions, which are the offsets 0, -1, 1, -2, 2
    ("patient", 1, 4, 1, 3, [6, 5, None, 4, None]),  # the rule keeps all that there is room for
    ("patient", 4, 4, 1, 3, [6, 2, None, 0, None]),
    ("overflow", 1, 4, 1, 3, [4, 3, 5, 2, 6]),
    ("overflow", 1, 1, 0, 9, [1, 0, 2, None, 3]),  # none keeps less than 0
    ("overflow", 3, 4, 0, 3, [4, 1, 7, 0, None]),
    ("overflow", 1, 0, 0, 0, [0, None, None, None, None]),
    ("overflow", 1, 0, 0, 1, [0, None, 1, None, None]),
    ("threshold", 1, 9, 0, 0, [7, 6, 8, 5, 9]),
    ("backlog=2", 1, 4, 0, 3, [10, 7, None, None, None]),  # -1, 1 and -2 all keep the room, 7
    ("backlog=2", 2, 4, 0, 3, [10, 7, None, 6, None]),
    ("backlog=2", 4, 4, 0, 3, [10, 6, 7, 2, None]),
    ("backlog=2", 3, 0, 2, 2, [2, 0, None, None, None]),  # no room, although the rule keeps 2
    ("backlog=2", 2, 0, 3, 3, [3, 0, None, None, None]),
    ("capacity=1.5", 1, 4, 0, 1, [6, 5, None, 4, None]),
    ("capacity=1.5", 1, 4, 1, 1, [6, 4, None, None, None]),
    ("capacity=1.5", 2, 4, 1, 1, [6, 4, None, 2, None]),
    ("capacity=1.5", 3, 4, 1, 1, [6, 3, 4, 0, None]),
    ("local", 1, 4, 1, 3, [ALL, 5, 6, 4, None]),  # a room of 6
    ("local", 9, 4, 1, 3, [ALL, 0, 6, None, None]),
    ("local", 1, 0, 3, 3, [ALL, 0, None, None, None]),  # no room: 0 is less than all
]


@pytest.mark.parametrize(("rule", "unit", "c", "q", "limit", "kept"), OFFSETS)
def test_offsets(rule: str, unit: int, c: int, q: int, limit: int, kept: list[int | None]) -> None:
    residual = Residual(rule, 2, 1000 * unit, 1000)
    assert residual.unit == unit
    capacity, queue = np.array([[c, c]]), np.array([[q, q]])
    keep, room = PlainRule.of(rule).keep(capacity, queue, limit), capacity + limit - queue
    assert keep is not None
    of_unit = residual.units(capacity + limit)
    masks = residual.masks_of(keep, room, np.array([True, False]), of_unit)
    assert masks.dtype == np.int8
    assert masks[0].tolist() == [[int(each is not None) for each in kept], [1, 0, 0, 0, 0]]
    for action, expected in enumerate(kept):
        found = int(residual.kept(np.array([[action, 0]]), keep, room, of_unit)[0, 0])
        if expected is None:
            assert found in kept[:action]
        else:
            assert min(found, ALL) == expected


def test_actions_are_ordered_by_distance() -> None:
    rules = DfaasRules(small_trace(), residual="patient/least", offsets=3, max_level=5)
    assert rules.unit == 3  # 12 requests are the most that a node can hold
    assert rules.levels == 7
    label, amounts = amounts_of(rules)
    assert label is not None
    assert amounts is not None
    assert amounts.tolist() == [0, -3, 3, -6, 6, -9, 9]
    assert first_action_of(rules) == 0
    assert first_action_of(DfaasRules(small_trace())) is None
    assert rules.route == "least"


# --- The rule itself -----------------------------------------------------------------------------


@pytest.mark.parametrize("arrivals", ["known", "unknown"])
@pytest.mark.parametrize("route", ROUTES)
def test_action_0_is_the_rule_request_by_request(route: str, arrivals: str) -> None:
    """In whole episodes of random worlds, next to the second simulator."""
    for seed, amount in enumerate(RULES * 2):
        rng = np.random.default_rng([seed, len(route)])
        world = random_world(rng)
        rules = rules_of(world, residual=f"{amount}/{route}", arrivals=arrivals, max_cycles=5)
        plays, state = begin(rules, world, rng.integers(len(world.arrivals), size=2), seed)
        text = amount.replace("+", ",")
        for _ in range(5):
            outcome = rules.step(state, np.zeros_like(state.queue))
            state = outcome.state
            for copy, play in enumerate(plays):
                counts = play.step(lambda knows, text=text: plan_of_rule(text, route, knows))
                assert_same(rules, outcome, copy, counts)


@pytest.mark.parametrize("beyond", [None, "rule"])
@pytest.mark.parametrize("route", [*ROUTES, "two-choices"])
def test_action_0_is_the_rule_as_a_replay_plays_it(route: str, beyond: str | None) -> None:
    trace = small_trace(nodes=4, largest=30)
    settings: dict[str, Any] = {
        **{"queue": 7, "forward_cost": 0.2, "link_limit": 6, "max_cycles": 12},
        "neighbours": {"node_0": ["node_1", "node_2"], "node_1": ["node_0"], "node_3": ["node_0"]},
    }
    scales = {} if beyond is None else {"beyond": beyond, "load_scale": 9, "capacity_scale": 20}
    for amount in RULES:
        rule = f"{amount}/{route}"
        ours = DfaasRules(trace, **settings, **scales, residual=rule)
        theirs = DfaasRules(trace, **settings, route=route)
        states = [each.start([generator(3, "env", i) for i in range(4)]) for each in (ours, theirs)]
        for _ in range(12):
            played = ours.step(states[0], np.zeros_like(states[0].queue))
            plans = plans_of([PlainRule.of(rule)], theirs.inputs_of_rules(states[1]))
            replayed = theirs.carry_out(states[1], plans)
            for key in INFO:
                np.testing.assert_array_equal(played.info[key], replayed.info[key], err_msg=rule)
            assert not played.info["illegal_actions"].any()
            states = [played.state, replayed.state]


# --- What is legal -------------------------------------------------------------------------------


def test_every_legal_offset_changes_what_is_kept() -> None:
    """Legal actions of a node keep different numbers; an illegal one keeps what another keeps."""
    met: Counter[str] = Counter()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        kwargs = residual_configuration(rng)
        rules = DfaasRules(**kwargs)
        state = rules.start([generator(seed, "env", copy) for copy in range(3)])
        assert rules.residual is not None
        for _ in range(min(4, rules.max_cycles)):
            masks = rules.seen(state)[1] != 0
            outcome_plans = [
                rules.residual_plans(state, np.full_like(state.queue, action))[0].keep
                for action in range(rules.levels)
            ]
            kept = np.stack(outcome_plans, axis=-1)  # [B, N, A]
            assert masks[..., 0].all()
            by_rule = rules.exceeds(state) if rules.beyond == "rule" else np.zeros(3, bool)
            for copy, i in np.ndindex(state.queue.shape):
                numbers, legal = kept[copy, i].tolist(), masks[copy, i]
                alone = not rules.network.links[i].any()
                met["alone"] += alone
                met["by rule"] += by_rule[copy]
                if alone or by_rule[copy]:
                    assert legal.sum() == 1
                    continue
                assert len({numbers[a] for a in np.flatnonzero(legal)}) == legal.sum()
                for action in np.flatnonzero(~legal):
                    assert numbers[action] in numbers[:action]
                met["some"] += 1 < legal.sum() < rules.levels
                met["all"] += bool(legal.all())
                room = rules.load.at(state, rules._row(state))[1][copy, i] + rules.queue
                met["above the room"] += room - state.queue[copy, i] < numbers[0] < ALL
            action = np.where(rng.random(masks.shape) < 0.5, 0, masks).argmax(axis=-1)
            state = rules.step(state, action).state
    assert len(met) == 5
    assert min(met.values()) > 20


@pytest.mark.parametrize("link_limit", [None, 2])
def test_an_illegal_offset_forwards_all_arrivals_within_the_caps(link_limit: int | None) -> None:
    trace = Trace(
        nodes=("a", "b", "c"),
        arrivals=np.array([[5, 7, 9]] * 4),
        capacity=np.array([[6, 6, 6]] * 4),
        times=np.arange(4),
    )
    rules = DfaasRules(
        trace, residual="backlog=1+margin=1", link_limit=link_limit, start=0,
        neighbours={"node_0": ["node_1", "node_2"]}, max_cycles=4,
    )  # fmt: skip
    state = rules.start([np.random.default_rng(0)])
    state = rules.step(state, np.zeros((1, 3), np.int64)).state  # 1, 0 and 0 are spare
    masks = rules.seen(state)[1][0]
    assert masks[:, 2].tolist() == [0, 0, 0]  # no queue: the rule keeps all that there is room for
    info = rules.step(state, np.array([[2, 2, 1]])).info
    assert info["illegal_actions"].tolist() == [[1, 1, 1]]
    # Nodes b and c have no neighbors, and so no caps: margins are caps of each neighbor.
    assert info["forwarded"].tolist() == [[0, 0, 0]]
    state = rules.start([np.random.default_rng(0)])
    free = DfaasRules(trace, residual="overflow", link_limit=link_limit, start=0, max_cycles=4)
    info = free.step(free.start([np.random.default_rng(0)]), np.array([[2, 2, 0]])).info
    assert info["illegal_actions"].tolist() == [[1, 1, 0]]
    assert info["forwarded"].tolist() == [[5, 7, 3]]


# --- Numbers above the scales --------------------------------------------------------------------

ROWS = 8
CALM = [3, 3, 3]


def legal_steps(given: dict[str, Any], arrivals: dict[int, int], capacity: dict[int, int]) -> Any:
    """The steps in which any node may deviate from the rule. Node b gets the arrivals and the
    capacity of some steps; all other numbers are 3, and the scales are 5."""
    load, served = (np.full((ROWS, 3), 3) for _ in range(2))
    for table, values in ((load, arrivals), (served, capacity)):
        for step, value in values.items():
            table[step, 1] = value
    trace = Trace(nodes=("a", "b", "c"), arrivals=load, capacity=served, times=np.arange(ROWS))
    rules = DfaasRules(
        trace, residual="overflow", load_scale=5, capacity_scale=5, start=0, max_cycles=ROWS,
        queue=4, **{"beyond": "rule", **given},
    )  # fmt: skip
    state = rules.start([np.random.default_rng(0)])
    steps = []
    for step in range(ROWS):
        features, masks = rules.seen(state)
        assert features.max() <= 1 or rules.observation != "every"
        assert rules.global_state(state).max() <= 1
        free = masks[0, :, 1:].any(axis=-1)
        assert free.all() or not free.any(), "all nodes alike"
        if free.all():
            steps.append(step)
        state = rules.step(state, np.zeros((1, 3), np.int64)).state
    return steps


def without(*steps: int) -> list[int]:
    return [step for step in range(ROWS) if step not in steps]


@pytest.mark.parametrize(
    ("given", "arrivals", "capacity", "by_rule"),
    [
        ({}, {}, {}, []),
        ({}, {2: 5}, {4: 5}, []),  # as large as the scale
        ({}, {2: 6}, {}, [2]),  # known: in the step itself
        ({"arrivals": "unknown"}, {2: 6}, {}, [3]),  # unknown: in the step after it
        ({"arrivals": "unknown", "last_counts": 3}, {2: 6}, {}, [3, 4, 5]),
        ({"last_counts": 2}, {2: 6}, {}, [2, 3, 4]),
        ({}, {}, {4: 6}, [4]),  # half of it is spare
        # A capacity of 9 serves 3 of its node: in the next step it reports a spare of 6.
        ({"arrivals": "unknown"}, {}, {4: 9}, [4, 5]),
        ({"arrivals": "unknown", "report_delay": 3}, {}, {4: 9}, [4, 7]),
        ({"report_delay": 2}, {1: 20}, {}, [1, 3]),  # no node takes the overflow: 17 are lost
        ({"report_delay": 2}, {1: 8}, {}, [1]),  # 5 are
        ({"beyond": "clip"}, {2: 6}, {4: 9}, []),
        ({"observation": "summary"}, {2: 30}, {4: 9}, []),  # it has no scales
    ],
    ids=str,
)
def test_the_rule_plays_where_a_number_is_above_its_scale(
    given: dict[str, Any], arrivals: dict[int, int], capacity: dict[int, int], by_rule: list[int]
) -> None:
    assert legal_steps(given, arrivals, capacity) == without(*by_rule)


@pytest.mark.parametrize("scale", ["load_scale", "capacity_scale"])
@pytest.mark.parametrize("residual", [None, "patient/least"])
def test_without_beyond_larger_numbers_are_an_error(scale: str, residual: str | None) -> None:
    with refused(ScaleError, f"{scale}=5", f"{scale}=12"):
        DfaasRules(small_trace(), residual=residual, **{scale: 5})


def test_larger_numbers_do_not_change_scales_and_units() -> None:
    plain = DfaasRules(small_trace(), residual="patient", load_scale=20, capacity_scale=20)
    for beyond in ("rule", "clip"):
        rules = DfaasRules(
            small_trace(largest=90), residual="patient", load_scale=20, capacity_scale=20,
            beyond=beyond,
        )  # fmt: skip
        assert (rules.scales, rules.unit, rules.levels) == (plain.scales, plain.unit, plain.levels)
        assert rules.observation_space("node_0") == plain.observation_space("node_0")


DECIDING = {
    "arrivals": ("counts", "lost"),
    "counts": ("arrivals", "lost"),
    "capacity": ("spare",),
    "spare": ("capacity",),
    "lost": ("arrivals", "counts"),
}
"""Kinds of numbers; and what is below its scale where the kind alone decides."""


def test_the_configurations_meet_numbers_above_the_scales() -> None:
    """Every kind of number, alone; and every rule with every kind of beyond."""
    met: Counter[str] = Counter()
    pairs = set()
    for seed in range(400):
        rng = np.random.default_rng(seed)
        kwargs = residual_configuration(rng)
        pairs.add((kwargs["residual"].partition("/")[0], kwargs.get("beyond")))
        if kwargs.get("beyond") != "rule" or "two-choices" in kwargs["residual"]:
            continue
        scalar = ScalarDfaas(**kwargs)
        scalar.draws = random_draws(rng, scalar)
        scalar.reset()
        for step in range(min(6, scalar.max_cycles)):
            if step:
                scalar.step([0] * scalar.n)
            counts = [max(scalar._counts(i), default=0) for i in range(scalar.n)]
            above = {
                "arrivals": not scalar.unknown and max(scalar.a) > scalar.load_scale,
                "counts": max(counts) > scalar.load_scale,
                "capacity": max(scalar.c) > scalar.capacity_scale,
                "spare": max(scalar.reported_spare) > scalar.capacity_scale,
                "lost": max(scalar.reported_lost) > scalar.load_scale,
            }
            met["none"] += not any(above.values())
            if scalar.summary:
                continue
            for name, reasons in DECIDING.items():
                met[name] += above[name] and not any(above[other] for other in reasons)
    assert set(met) == {"none", "arrivals", "counts", "capacity", "spare", "lost"}
    assert min(met.values()) >= 2, met
    assert pairs == {(rule, beyond) for rule in RULES for beyond in (None, "rule", "clip")}


# --- What belongs to the game --------------------------------------------------------------------

SETTINGS: dict[str, Any] = {"residual": "backlog=0.5+margin=2/least", "offsets": 4, "queue": 8}


def test_the_identity_and_what_is_carried_name_the_rule() -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"residual": "backlog=0.5/least"},
        {"residual": "backlog=0.5+margin=2/fill"},
        {"offsets": 5},
        {"beyond": "clip"},
        {"beyond": "rule"},
    ]
    rules = [DfaasRules(small_trace(), **{**SETTINGS, **change}) for change in changes]
    assert len({each.identity for each in rules}) == len(rules)
    for each, change in zip(rules, changes, strict=True):
        carried = each.carried()
        for name in ("residual", "offsets", "beyond"):
            assert carried.get(name) == {**SETTINGS, **change}.get(name)
        again = DfaasRules(small_trace(), queue=8, **carried)
        assert again.identity == each.identity
    old = DfaasRules(small_trace())
    assert not {"residual", "offsets", "beyond"} & set(old.carried())


def test_offsets_and_another_route_than_that_of_the_rule_are_refused() -> None:
    with refused(ValueError, "offsets=3", "residual"):
        DfaasRules(small_trace(), offsets=3)
    for route in ("equal", "fill"):
        with refused(ValueError, f"route='{route}'", "residual='overflow/least'"):
            DfaasRules(small_trace(), residual="overflow/least", route=route)
    assert DfaasRules(small_trace(), residual="overflow/least").route == "least"
    assert DfaasRules(small_trace(), residual="overflow/equal", route="equal").route == "equal"
    assert DfaasRules(small_trace()).route == "equal"


@pytest.mark.parametrize("beyond", [None, "rule"])
def test_the_same_rule_written_otherwise_is_the_same_game(beyond: str | None) -> None:
    texts = ("backlog=0.50/round-robin", " backlog=.5", "backlog=0.5/equal")
    rules = [DfaasRules(small_trace(), queue=8, residual=text, beyond=beyond) for text in texts]
    assert len({each.identity for each in rules}) == 1


def test_a_split_keeps_the_rule() -> None:
    rules = DfaasRules(days(9), max_cycles=24, **SETTINGS, beyond="rule", daily_mean=True)
    split = rules.split(None, 0.2, 0.2)
    kwargs = {"max_cycles": 24, **SETTINGS, "beyond": "rule"}
    parts = [DfaasRules(**{**kwargs, **split.train})]
    parts.append(DfaasRules(**{**kwargs, **split.train, **split.validation}))
    for part in parts:
        assert part.carried() == parts[0].carried()
        assert str(part.residual) == str(rules.residual)
        assert part.unit == rules.unit


@pytest.mark.parametrize("augment", [None, "shift=2,scale=0.3,noise=0.2,mix=0.5"])
def test_a_pickled_game_goes_on_alike(augment: str | None) -> None:
    rules = DfaasRules(
        days(5), max_cycles=24, **SETTINGS, beyond="rule", load_scale=20, augment=augment
    )
    batch, other = Batch(rules, 4, seed=2), Batch(pickle.loads(pickle.dumps(rules)), 4, seed=2)
    batch.reset()
    other.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):
        actions = batch.sample_actions(rng)
        ours, theirs = batch.step(actions), other.step(actions)
        for agent, seen in ours.observations.items():
            for key, values in seen.items():
                assert values.tobytes() == theirs.observations[agent][key].tobytes()
        np.testing.assert_array_equal(ours.reward, theirs.reward)


def test_exact_requests_of_a_residual_game_have_no_offsets() -> None:
    """Reference policies forward any number of requests, also of loads above the scales."""
    rules = DfaasRules(
        small_trace(largest=90), **SETTINGS, beyond="rule", load_scale=20, capacity_scale=20
    )
    exact = rules.in_requests()
    assert exact.residual is None
    state = exact.start([generator(0, "env", i) for i in range(8)])
    largest = 0
    for _ in range(20):
        seen = exact.observe(state)
        chosen = [Baseline("overflow", exact).act(seen[agent]).action for agent in exact.agents]
        arrivals, capacity, _ = exact.load.at(state, exact._row(state))
        outcome = exact.step(state, np.stack(chosen, axis=1))
        expected = np.maximum(arrivals - capacity, 0)
        np.testing.assert_array_equal(outcome.info["forwarded"], expected)
        largest = max(largest, int(expected.max()))
        state = outcome.state
    assert largest > 20


@pytest.mark.parametrize("scale", [10, 1000])
def test_augmented_loads_end_at_the_scale_or_the_largest_load(scale: int) -> None:
    trace = days(5)
    rules = DfaasRules(
        trace, max_cycles=24, **SETTINGS, beyond="rule", load_scale=scale, augment="scale=0.5"
    )
    state = rules.start([generator(0, "env", i) for i in range(8)])
    arrivals = [rules.step(state, np.zeros_like(state.queue)).info["arrivals"] for _ in range(24)]
    largest = int(trace.arrivals.max())
    if scale < largest:
        assert np.max(arrivals) == largest
    else:
        assert largest < np.max(arrivals) <= scale


def test_a_redraw_keeps_the_rule() -> None:
    rules = DfaasRules(
        days(9), max_cycles=24, **SETTINGS, beyond="rule", load_scale=20, arrivals="unknown"
    )
    other = redrawing(rules)
    assert other is not None
    redraw = redraw_of(other)
    assert redraw is not None
    state = other.start([generator(0, "env", i) for i in range(8)])
    for _ in range(6):
        state = other.step(state, np.zeros_like(state.queue)).state
    before = other.seen(state)
    after = other.seen(redraw(state, np.random.default_rng(0).spawn(8)))
    for ours, theirs in zip(before, after, strict=True):
        assert ours.tobytes() == theirs.tobytes()
    assert len(places_of(rules, state)) == 8


# --- Reference policies --------------------------------------------------------------------------


@pytest.mark.parametrize("observation", ["every", "summary"])
@pytest.mark.parametrize("arrivals", ["known", "unknown"])
def test_reference_policies_choose_the_nearest_offset(arrivals: Any, observation: Any) -> None:
    trace = small_trace()
    trace = Trace(trace.nodes, trace.arrivals, np.full_like(trace.arrivals, 7), trace.times)
    names = [*AMOUNTS, "backlog=0.5", "capacity=1.2", "share=0.3"]
    for rule in ("patient/least", "overflow", "local", "backlog=2", "capacity=0.5+margin=1"):
        rules = DfaasRules(
            trace, residual=rule, offsets=2, queue=5, arrivals=arrivals, observation=observation
        )
        batch = Batch(rules, 4, seed=0)
        seen, rng = batch.reset(), np.random.default_rng(0)
        assert rules.residual is not None
        for _ in range(12):
            for i, agent in enumerate(rules.agents):
                scale, place = (7, 1) if observation == "summary" else (5, 2)
                q = np.rint(seen[agent]["observation"][:, place].astype(float) * scale)
                mask = seen[agent]["action_mask"] != 0
                for name in names:
                    player = Baseline(name, rules, agent)
                    action = player.choose(seen[agent], rng)
                    assert np.take_along_axis(mask, action[:, None], axis=1).all()
                    if name in ("random", "static") or name.startswith("share"):
                        continue
                    for row in range(4):
                        wanted = kept_of(name, 7, int(q[row]), 5)
                        offered = [
                            abs(min(kept, 12 - int(q[row])) - min(wanted, 12 - int(q[row])))
                            for kept in kept_by(rule, 7, int(q[row]), 5, 2)
                        ]
                        legal = [each for each, ok in zip(offered, mask[row], strict=True) if ok]
                        assert offered[action[row]] == min(legal), (name, rule, i)
            seen = batch.step(batch.sample_actions(rng)).observations


def kept_of(name: str, c: int, q: int, queue: int) -> int:
    """What a rule keeps, in plain numbers."""
    amount, _, number = name.partition("/")[0].partition("+")[0].partition("=")
    if amount in ("overflow", "margin"):
        return c
    if amount == "local":
        return ALL
    if amount.startswith("patient"):
        return c + queue - q
    if amount == "threshold":
        return c * 4 // 5
    if amount == "backlog":
        return max(0, int(c + float(number) * queue) - q)
    return int(float(number) * c)


def kept_by(rule: str, c: int, q: int, queue: int, reach: int) -> list[int]:
    """What the offsets 0, -1, 1, ... to a rule keep, in units of one request."""
    keep, room = kept_of(rule, c, q, queue), c + queue - q
    kept = [keep]
    for distance in range(1, reach + 1):
        kept += [min(max(0, min(keep, room) + o), room) for o in (-distance, distance)]
        if keep < ALL:
            kept[-2:] = [min(max(0, keep + o), room) for o in (-distance, distance)]
    return kept


def test_the_rule_itself_is_the_nearest_to_the_rule() -> None:
    for rule in RULES:
        rules = DfaasRules(small_trace(), residual=f"{rule}/least", queue=5)
        batch = Batch(rules, 8, seed=0)
        seen, rng = batch.reset(), np.random.default_rng(0)
        for _ in range(20):
            player = Baseline(rule, rules)
            for agent in rules.agents:
                assert not player.act(seen[agent]).action.any(), rule
            seen = batch.step(batch.sample_actions(rng)).observations


def test_the_random_policy_draws_legal_offsets() -> None:
    rules = DfaasRules(small_trace(), residual="overflow", offsets=2, queue=5)
    batch = Batch(rules, 200, seed=0)
    seen, rng = batch.reset()["node_0"], np.random.default_rng(0)
    player = Baseline("random", rules)
    actions = np.array([player.choose(seen, rng) for _ in range(60)])
    legal = seen["action_mask"] != 0
    drawn = np.stack([(actions == action).any(axis=0) for action in range(5)], axis=1)
    np.testing.assert_array_equal(drawn, legal)


def test_augmented_loads_beyond_the_scale_keep_their_peaks() -> None:
    for augment in (None, "noise=0.0001"):
        rules = DfaasRules("edge3", beyond="clip", load_scale=5, max_cycles=20, augment=augment)
        state = rules.start([np.random.default_rng(0)])
        arrivals = 0
        for _ in range(20):
            outcome = rules.step(state, np.zeros((1, 3), dtype=np.int64))
            state, arrivals = outcome.state, arrivals + int(outcome.info["arrivals"].sum())
        assert arrivals > 20 * 3 * 5
