"""What tests of decisions share: policies that depend on all they observe, numbers by node."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0.plans import Plan, Plans
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import MASK, OBSERVATION
from corral.envs.policy import Decision, PolicyBase
from support.dfaas_scalar import ScalarDfaas


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
        self.first[i] = dict(zip(self.neighbours[i], shares, strict=True))
        return shares

    def step(self, actions: Any) -> list[float]:
        self.first: list[dict[int, int]] = [{} for _ in range(self.n)]
        return super().step(actions)

    def offers(self, names: Any) -> list[dict[str, int]]:
        """The offers of the last step, by node and the name of the other one."""
        return [{names[j]: share for j, share in row.items() if share} for row in self.first]


def presented(names: Any, **numbers: Any) -> dict[str, dict[str, int]]:
    """Numbers by node: nodes[name][key]."""
    return {
        name: {key: int(values[i]) for key, values in numbers.items()}
        for i, name in enumerate(names)
    }


def moment_of(rules: DfaasRules, state: Any, names: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a gateway sends: nodes, and the time if it is observed."""
    arrivals, capacity, _ = rules.load.at(state, rules._row(state))[:, 0]
    numbers = {"capacity": capacity, "queue": state.queue[0]}
    if rules.arrivals == "known":
        numbers["arrivals"] = arrivals
    nodes: dict[str, Any] = presented(names, **numbers)
    if rules.last_counts:
        backs = range(1, rules.last_counts + 1)
        counts = [rules.load.counted(state, rules._row(state, k), k)[0] for k in backs]
        counts = counts[: int(state.t[0])]  # of steps that were
        for i, name in enumerate(names):
            nodes[name]["last_arrivals"] = [int(each[i]) for each in counts]
            if rules.last_counts == 1 and counts:
                nodes[name]["last_arrivals"] = int(counts[0][i])
    if rules.daily_mean is None:
        return nodes, {}
    row = rules.rows[0] + int(rules._row(state)[0])
    seconds = int(rules.trace.times[row])
    return nodes, {"time": datetime.fromtimestamp(seconds, UTC).isoformat()}


def carried_out(rules: DfaasRules, state: Any, plans: Mapping[str, Any]) -> Any:
    """What becomes of plans in the environment."""
    made = Plans.of(rules, [[Plan(**plans[name]) for name in rules.trace.nodes]])
    return rules.carry_out(copy.deepcopy(state), made)


def assert_same(one: Any, other: Any) -> None:
    for key, values in one.info.items():
        assert values.tolist() == other.info[key].tolist(), key
    assert one.reward.tolist() == other.reward.tolist()
    for key in ("queue", "spare", "lost", "reports"):
        assert getattr(one.state, key).tolist() == getattr(other.state, key).tolist(), key
