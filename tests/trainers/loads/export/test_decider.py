"""Decisions on the numbers of the moment are what the environment and the policies play."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, PolicyBase
from corral.trainers.loads.export.decider import Decider
from support.dfaas_configurations import random_configuration
from support.dfaas_scalar import ScalarDfaas
from support.loads import small_trace

Numbers = Mapping[str, Mapping[str, int]]


class Hashing(PolicyBase):
    """Plays a legal action that depends on every bit it observes, and on all it observed before."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []

    def initial_state(self, num_envs: int) -> Array:
        return np.zeros((num_envs, 1), dtype=np.int64)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        features, mask = observation[OBSERVATION], observation[MASK]
        assert deterministic
        assert features.dtype == np.float32
        self.seen.append((features.tobytes(), mask.tobytes()))
        mixed = int(state[0, 0])
        for byte in self.seen[-1][0]:
            mixed = (mixed * 31 + byte) % 1_000_003
        legal = np.flatnonzero(mask[0])
        return Decision(legal[[mixed % len(legal)]], np.array([[mixed]]))


class Offering(ScalarDfaas):
    """The plain re-statement of the rules, which notes what senders offer first."""

    def _shares(self, i: int, f: int) -> list[int]:
        shares = super()._shares(i, f)
        named = zip(self.neighbours[i], shares, strict=True)
        self.offers[i] = {f"site {j}": share for j, share in named if share}
        return shares

    def step(self, actions: Any) -> list[float]:
        self.offers: list[dict[str, int]] = [{} for _ in range(self.n)]
        return super().step(actions)


def presented(names: Any, **numbers: Any) -> dict[str, dict[str, int]]:
    """Numbers by node: nodes[name][key]."""
    return {
        name: {key: int(values[i]) for key, values in numbers.items()}
        for i, name in enumerate(names)
    }


def episode(
    rules: DfaasRules, decider: Decider, seed: int, team: Mapping[str, Any], scalar: Any
) -> Iterator[tuple[dict[str, dict[str, int]], Array]]:
    """Play an episode with ``team``, and yield decisions and forwarded requests."""
    state = rules.start([np.random.default_rng(seed)])
    scalar.draws = state.draws[0].tolist()
    scalar.reset()
    memory = decider.start(seed)
    hidden = {agent: team[agent].initial_state(1) for agent in rules.agents}
    previous = None
    for _ in range(rules.max_cycles):
        arrivals, capacity, _ = rules.load.at(state, rules._row(state))[:, 0]
        given = presented(decider.nodes, arrivals=arrivals, capacity=capacity, queue=state.queue[0])
        decided = decider.decide(given, previous, memory)
        seen = rules.observe(state)
        actions = np.zeros((1, len(rules.agents)), dtype=np.int64)
        for i, agent in enumerate(rules.agents):
            rng = np.random.default_rng(0)
            decision = team[agent].act(seen[agent], hidden[agent], rng, deterministic=True)
            actions[0, i], hidden[agent] = decision.action[0], decision.state
        scalar.step(actions[0].tolist())
        outcome = rules.step(state, actions)
        state = outcome.state
        yield decided, outcome.info["forwarded"][0]
        previous = presented(decider.nodes, spare=state.spare[0], lost=state.lost[0])


@pytest.mark.parametrize("block", range(8))
def test_it_plays_as_the_environment_in_random_configurations(block: int) -> None:
    forwarding, routes = 0, set()
    for seed in range(40 * block, 40 * block + 40):
        config = random_configuration(np.random.default_rng(seed))
        nodes = len(config["trace"].nodes)
        names = tuple(f"site {i}" for i in range(nodes))
        object.__setattr__(config["trace"], "nodes", names)
        try:
            rules = DfaasRules(**config)
        except ValueError:  # route "choose" with too many actions
            assert config["route"] == "choose"
            continue
        played, decided = ({agent: Hashing() for agent in rules.agents} for _ in range(2))
        decider = Decider(rules, decided)
        scalar = Offering(**config)
        for offers, forwarded in episode(rules, decider, seed, played, scalar):
            assert list(offers) == list(names)
            assert [sum(offers[name].values()) for name in names] == forwarded.tolist()
            assert list(offers.values()) == scalar.offers
            forwarding += int(forwarded.any())
        for agent in rules.agents:
            assert decided[agent].seen == played[agent].seen
        routes.add(config["route"])
    assert forwarding > 50
    assert len(routes) == 6


@pytest.mark.parametrize("pair", ["overflow/two", "patient-margin/spare", "margin/shortest"])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_a_rule_forwards_to_the_request(pair: str, delay: int) -> None:
    amount, _, route = pair.partition("/")
    trace = small_trace(steps=60, largest=500)
    config: dict[str, Any] = {"max_cycles": 60, "start": 0, "queue": 100, "route": route}
    config |= {"report_delay": delay, "max_level": 10}
    rules = DfaasRules(trace, **config).in_requests()
    decider = Decider.of_rule(pair, DfaasRules(trace, **config | {"route": "equal"}))
    sums, any_more = 0, 0
    scalar = Offering(trace, **config | {"max_level": 1_000})  # levels of one request
    for offers, forwarded in episode(rules, decider, 5, baseline_team(amount, rules), scalar):
        assert [sum(row.values()) for row in offers.values()] == forwarded.tolist()
        assert list(offers.values()) == [
            {f"site-{name[5:]}": count for name, count in row.items()} for row in scalar.offers
        ]
        sums += int(forwarded.sum())
        any_more += int((forwarded % 50 != 0).any())
    assert sums > 0
    assert any_more  # not in levels
