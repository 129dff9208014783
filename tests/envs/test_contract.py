"""Every registered environment keeps the contract; and the contract notices who does not."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from corral.envs import ENVIRONMENTS, make_rules
from corral.envs.core import generator
from corral.envs.dfaas_v0 import ROUTES, DfaasRules
from corral.envs.registry import _load
from corral.envs.shells import ParallelShell, TurnShell
from support import faulty_dfaas
from support.contract import ContractViolation, check_contract, check_rules
from support.dfaas_configurations import (
    configurations,
    random_configuration,
    residual_configuration,
)
from support.faulty_dfaas import faulty, faulty_rules
from support.loads import small_trace
from support.messages import refused
from support.thinned import fast_every
from support.turn_rules import MortalRules, PileRules

SHORT: dict[str, dict[str, Any]] = {
    "dfaas_v0": {"trace": small_trace(), "max_cycles": 8, "queue": 3, "route": "two"},
    # So small that the two meet: otherwise it does not show who moves first.
    "arena_v0": {"width": 2, "height": 2, "max_cycles": 20},
}
"""Arguments that make an environment's episodes short; those not named are short anyway."""

SURE: frozenset[str] = frozenset({"two_step_v0", "tictactoe_v0", "rps_v0"})
"""Environments without chance: all seeds give the same episode."""


def makes(name: str) -> list[tuple[str, Any]]:
    """The functions that make a registered environment, by their name in its module."""
    kinds = ["parallel_env", "env", "raw_env"] if ENVIRONMENTS[name].simultaneous else ["env"]
    return [(kind, functools.partial(_load(name, kind), **SHORT.get(name, {}))) for kind in kinds]


REGISTERED = [
    pytest.param(
        name,
        make,
        not place or name != "dfaas_v0",  # its further forms are fast: one process
        id=f"{name}-{kind}",
        marks=[pytest.mark.slow] if place and name != "dfaas_v0" else [],
    )
    for name in ENVIRONMENTS
    for place, (kind, make) in enumerate(makes(name))
]


@pytest.mark.parametrize(("name", "make", "other_process"), REGISTERED)
def test_registered_environments_keep_the_contract(
    name: str, make: Any, other_process: bool
) -> None:
    steps = check_contract(make, chance=name not in SURE, other_process=other_process)
    assert steps > 50


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_registered_rules_keep_the_contract(name: str) -> None:
    make = functools.partial(make_rules, name, **SHORT.get(name, {}))
    assert sum(check_rules(make, seed=seed, num_envs=3) for seed in range(3)) > 5


def variant_of_dfaas(route: str) -> dict[str, Any]:
    """Arguments of four nodes of which one has two neighbours, one has one, and two have none."""
    return {
        "trace": small_trace(nodes=4, largest=300),
        "max_cycles": 5,
        "max_level": 10,
        "queue": 20,
        "link_limit": 30,
        "second_offer": route == "two",
        "neighbours": {"node_0": ["node_1", "node_2"], "node_3": ["node_0"]},
        "forward_cost": 0.05,
        "wait_cost": 0.1,
        "route": route,
        "reward": "team" if route == "equal" else "own",
        "report_delay": {"spare": 0, "two": 2, "shortest": 4}.get(route, 1),
        "augment": {"shift": 2, "scale": 0.3, "mix": 0.5} if route in ("equal", "two") else None,
    }


def check_variant(kwargs: dict[str, Any]) -> None:
    make = functools.partial(_load("dfaas_v0", "parallel_env"), **kwargs)
    assert check_contract(make, seeds=(0, 1)) > 20
    assert check_rules(functools.partial(DfaasRules, **kwargs)) == 5


@pytest.mark.parametrize("route", fast_every(3, ROUTES))
def test_variants_of_dfaas_keep_the_contract(route: str) -> None:
    check_variant(variant_of_dfaas(route))


AUGMENT = {"shift": 2, "scale": 0.3, "noise": 0.2, "mix": 0.5}

TOGETHER: dict[str, dict[str, Any]] = {
    "choose among few": {"route": "choose", "observation": "summary"},
    "choose among all": {"route": "choose", "observation": "summary", "neighbours": None},
    "choose of present reports": {"route": "choose", "report_delay": 0, "neighbours": None},
    "quantiles of drawn days": {"amount": "quantile", "augment": AUGMENT},
    "choose quantiles": {"route": "choose", "amount": "quantile", "augment": AUGMENT},
    "summary of present reports": {"observation": "summary", "report_delay": 0},
    "neighborhood": {"observation": "neighborhood"},
    "neighborhood chooses": {"observation": "neighborhood", "route": "choose"},
    "offsets in a neighborhood": {
        **{"observation": "neighborhood", "arrivals": "unknown", "route": "least"},
        **{"residual": "backlog=0.75/least", "offsets": 2},
    },
    "summary of late reports": {"observation": "summary", "report_delay": 2},
    "offsets": {"residual": "backlog=0.5+margin=1/least", "arrivals": "unknown", "route": "least"},
    "offsets of drawn days": {"residual": "local/two", "offsets": 2, "augment": AUGMENT},
    "offsets in a summary": {"residual": "patient-margin", "observation": "summary"},
    "offsets beyond scales": {
        **{"residual": "capacity=1.5/fill", "beyond": "rule", "load_scale": 90},
        **{"capacity_scale": 100, "last_counts": 2},
    },
    "drawn days beyond scales": {"beyond": "clip", "capacity_scale": 100, "augment": AUGMENT},
    "quantiles beyond scales": {"beyond": "clip", "load_scale": 70, "amount": "quantile"},
    "all": {
        **{"route": "choose", "observation": "summary", "amount": "quantile", "augment": AUGMENT},
        **{"report_delay": 2, "neighbours": None},
    },
}
"""Arguments of dfaas_v0 that meet: what an action means, what it is told, whose days are played."""


@pytest.mark.parametrize("case", fast_every(5, TOGETHER))
def test_arguments_of_dfaas_together_keep_the_contract(case: str) -> None:
    base = variant_of_dfaas("equal") | {"augment": None}
    if "residual" in TOGETHER[case]:
        del base["route"]  # requests go by the route of the rule
    check_variant(base | TOGETHER[case])


PILES = [{}, {"takes": (3, 2)}, {"gift": 0.5}, {"last_move": 1, "gift": 0.25}, {"max_cycles": 3}]


@pytest.mark.parametrize("kwargs", PILES, ids=str)
@pytest.mark.parametrize("tell", ["always", "once"])
def test_turn_based_rules_keep_the_contract(kwargs: dict[str, Any], tell: str) -> None:
    rules = functools.partial(PileRules, (6, 60), **kwargs, tell=tell)
    assert check_contract(lambda **kw: TurnShell(rules(**kw))) > 20
    assert check_rules(rules) > 0


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 2, 7)])
@pytest.mark.parametrize("max_cycles", [None, 4])
@pytest.mark.parametrize("tell", ["always", "once"])
@pytest.mark.parametrize("shell", [ParallelShell, TurnShell])
def test_rules_in_which_agents_die_keep_the_contract(
    sizes: tuple[int, ...], max_cycles: int | None, tell: str, shell: Any
) -> None:
    rules = functools.partial(MortalRules, sizes, max_cycles=max_cycles, tell=tell)
    assert check_contract(lambda **kw: shell(rules(**kw))) > 20
    assert check_rules(rules) > 0


# --- Planted faults ------------------------------------------------------------------------------

FAULTS = {
    "AllowsOneTooMany": "ERROR mask-lies",
    "ForbidsOneTooMany": "ERROR mask-lies",
    "EmptyMask": "ERROR mask: .*all-zero",
    "NanReward": "ERROR reward: .*nan",
    "ObservationOutside": r"ERROR observation: .*1\.75 .*\['observation'\]",
    "WrongDtype": "WARNING observation: .*float16",
    "StateOutside": r"ERROR observation: .*in state\(\)",
    "IgnoresSeed": "ERROR seed",
    "AlwaysTheSame": "ERROR other-seeds",
    "RandomFromStepTwo": "ERROR seed",
    "InfoMissingAtReset": "WARNING info: .*lost",
    "SharedState": "ERROR (shared-state|copies|seed)",
    "NeverEnds": "ERROR endless",
    "RemembersTheEpisodeBefore": "ERROR reset",
    "NumpyRewards": "reward.*float32",
    "BothEnds": "WARNING ends: .*terminated.*truncated",
    "RewardsTheAbsent": "ERROR agents: node_9.*rewards",
    "ChangesBeforeRefusing": "node_1: .*refused",
    "LosesItsClock": "ERROR copies: .*pickle",
    "NewSpaces": r"ERROR spaces: .*action_space\('node_0'\)",
    "KeepsItsObservations": "ERROR aliasing",
    "LegalByWhatWasHandedOut": "receiver.*KeyError",
}


def test_without_a_fault_the_faulty_environment_would_pass() -> None:
    assert check_contract(functools.partial(faulty, ParallelShell), seeds=(0, 1)) > 50
    assert check_rules(functools.partial(faulty_rules, DfaasRules)) == 6


OF_CHECK_ENV = [fault for fault, text in FAULTS.items() if text.startswith(("ERROR", "WARNING"))]
"""Faults that ``check_env`` names: others of their kinds are in conformance/test_conformance.py."""


@pytest.mark.parametrize(
    "fault", [*fast_every(4, OF_CHECK_ENV), *(each for each in FAULTS if each not in OF_CHECK_ENV)]
)
def test_the_contract_catches(fault: str) -> None:
    make = functools.partial(faulty, getattr(faulty_dfaas, fault))
    with pytest.raises(ContractViolation, match=f"(?s){FAULTS[fault]}"):
        check_contract(make, seeds=(0, 1), limit=50)


def test_the_contract_catches_what_differs_between_processes() -> None:
    make = functools.partial(faulty, faulty_dfaas.DependsOnHash)
    assert check_contract(make, seeds=(0, 1)) > 0  # within one process all is well
    with pytest.raises(ContractViolation, match=r"\b(processes|hashing):.*node_0"):
        check_contract(make, seeds=(0, 1), other_process=True)


@pytest.mark.parametrize(
    ("fault", "values"),
    [
        ("NanReward", ("reward",)),
        ("RandomFromStepTwo", ("step", "start")),
        ("InfoMissingAtReset", ("'lost'",)),
        ("ChanceInCopies", ("copy 1", "step 0")),
        ("EmptyMask", ("node_0", "legal")),
    ],
)
def test_the_contract_of_rules_catches(fault: str, values: tuple[str, ...]) -> None:
    with refused(ContractViolation, *values):
        check_rules(functools.partial(faulty_rules, getattr(faulty_dfaas, fault)))


# --- dfaas_v0: no request appears or vanishes ----------------------------------------------------


def check_conservation(seed: int, configure: Any = random_configuration) -> int:
    """Play a random configuration with random actions, illegal ones too; requests accounted for."""
    rng = np.random.default_rng(seed)
    rules = DfaasRules(**configure(rng), keep_flow=True)
    state = rules.start([generator(seed, "env", row) for row in range(3)])
    accounted = 0
    for _ in range(rules.max_cycles):
        before = state.queue.copy()
        action = rng.integers(rules.levels, size=before.shape)
        outcome = rules.step(state, action)
        state, info = outcome.state, outcome.info
        served = info["served_local"] + info["served_remote"]
        # All together.
        entered = (info["arrivals"] + before).sum(axis=1)
        left = (served + info["lost"] + info["waiting"]).sum(axis=1)
        np.testing.assert_array_equal(entered, left)
        # Each node: what it kept, and what it sent.
        refused = info["forwarded"] - state.flow.sum(axis=2)
        kept = info["arrivals"] - info["forwarded"] + before
        np.testing.assert_array_equal(
            kept, info["served_local"] + info["waiting"] + info["lost"] - refused
        )
        np.testing.assert_array_equal(info["served_remote"], state.flow.sum(axis=1))
        for array in (*info.values(), refused, state.spare):
            assert (array >= 0).all()
        accounted += int(entered.sum())
    return accounted


def test_requests_are_conserved_in_many_configurations() -> None:
    assert sum(check_conservation(seed) for seed in range(150)) > 1_000_000
    offsets = [check_conservation(seed, residual_configuration) for seed in range(50)]
    assert sum(offsets) > 1_000_000


@settings(max_examples=30, deadline=None)
@given(configurations())
def test_requests_are_conserved_as_users_see_it(kwargs: dict[str, Any]) -> None:
    """The same through the infos of a PettingZoo environment, over a whole episode."""
    env = ParallelShell(DfaasRules(**kwargs))
    observations, infos = env.reset(seed=0)
    waiting, steps = 0, 0
    rng = np.random.default_rng(0)
    while env.agents:
        actions = {
            agent: int(rng.choice(np.flatnonzero(observations[agent]["action_mask"])))
            for agent in env.agents
        }
        observations, rewards, _, _, infos = env.step(actions)
        total = {key: sum(info[key] for info in infos.values()) for key in infos["node_0"]}
        served = total["served_local"] + total["served_remote"]
        assert total["arrivals"] + waiting == served + total["lost"] + total["waiting"]
        assert total["illegal_actions"] == 0
        assert all(reward <= 0 for reward in rewards.values())
        waiting = total["waiting"]
        steps += 1
    assert steps == kwargs["max_cycles"]


def test_a_pickled_environment_carries_no_window() -> None:
    env = faulty(ParallelShell)
    env.reset(seed=0)
    env._window = object()  # type: ignore[assignment]
    assert pickle.loads(pickle.dumps(env))._window is None
