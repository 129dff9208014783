"""Reference policies of dfaas_v0: what a learned team has to beat.

A baseline decides how much to forward; where it goes is the environment's ``route``. The pair is
written amount/route: "overflow/equal", "overflow/two" (power of two choices), "overflow/shortest"
(join the shortest queue, on last-step information), "margin/spare", ...

| amount | forwards |
|---|---|
| local | nothing |
| random | a uniformly random legal action |
| static | 40 % of the arrivals, rounded down |
| overflow | the arrivals beyond the capacity: max(0, a - c) |
| threshold | the arrivals beyond 80 % of the capacity (that limit rounded down) |
| margin | the overflow, but no more than the spare that its neighbours reported |
| patient | only what the queue will not hold: max(0, q + a - c - queue) |
| patient-margin | patient, capped like margin |

Each reads nothing but its own observation, so that it plays under the same conditions as a network.
Where a unit of action stands for several requests, amounts are rounded up to the next level:
what stays beyond the capacity is lost for certain, what is forwarded may find room.
"""

from __future__ import annotations

import functools

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0.network import ROUTES, Route
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import MASK, OBSERVATION, highest
from corral.envs.policy import Heuristic, Policy
from corral.envs.reference import Makers
from corral.errors import UnknownNameError

__all__ = [
    "AMOUNTS",
    "PAIRS",
    "Baseline",
    "Teams",
    "arguments_of",
    "baseline_team",
    "players_of",
    "split_pair",
]

AMOUNTS = (
    "local",
    "random",
    "static",
    "overflow",
    "threshold",
    "margin",
    "patient",
    "patient-margin",
)

PAIRS = (
    "local/equal",
    "random/equal",
    "static/equal",
    "threshold/equal",
    *(f"overflow/{route}" for route in ROUTES),
    "margin/equal",
    "margin/spare",
    "patient/equal",
    "patient-margin/spare",
)
"""The pairs that a replay compares by default."""


def split_pair(pair: str) -> tuple[str, Route]:
    """Return ("overflow", "two") of "overflow/two"; the route is "equal" where none is given."""
    amount, _, route = pair.strip().partition("/")
    if amount not in AMOUNTS:
        raise UnknownNameError.of("reference policy", amount, AMOUNTS)
    for each in ROUTES:
        if each == (route or "equal"):
            return amount, each
    raise UnknownNameError.of("route", route, ROUTES)


def arguments_of(team: str) -> dict[str, str]:
    """Return the arguments of dfaas_v0 that a team's name says: the route of "overflow/two"."""
    return {"route": split_pair(team)[1]} if "/" in team else {}


class Baseline(Heuristic):
    """One amount of the table above, for a node of dfaas_v0."""

    def __init__(self, amount: str, rules: DfaasRules) -> None:
        if amount not in AMOUNTS:
            raise UnknownNameError.of("reference policy", amount, AMOUNTS)
        self.amount = amount
        self.load_scale = rules.load_scale
        self.capacity_scale = rules.capacity_scale
        self.queue = rules.queue
        self.levels = rules.levels_of

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return legal levels for one observation or a batch. Only "random" needs ``rng``."""
        most = highest(observation[MASK])  # legal are 0 .. most
        if self.amount == "random":
            if rng is None:
                raise ValueError("the random policy needs rng=, a numpy Generator")
            return rng.integers(most + 1)
        forwarded = self._forwarded(np.asarray(observation[OBSERVATION]))
        levels: Array = np.minimum(self.levels.level(forwarded), most)
        return levels

    def extra(self, observation: Observation) -> dict[str, Array]:
        return {"choices": np.asarray(observation[MASK]) != 0} if self.amount == "random" else {}

    def _forwarded(self, features: Array) -> Array:
        """Return the requests to forward, from the features [..., F] of dfaas_v0."""
        a = _requests(features[..., 0], self.load_scale)
        c = _requests(features[..., 1], self.capacity_scale)
        if self.amount == "local":
            return np.zeros_like(a)
        if self.amount == "static":
            return np.asarray(a * 2 // 5)
        if self.amount == "threshold":
            return np.asarray(np.maximum(0, a - c * 4 // 5))
        overflow = np.maximum(0, a - c)
        if self.amount.startswith("patient"):
            q = _requests(features[..., 2], max(self.queue, 1))
            overflow = np.maximum(0, q + a - c - self.queue)
        if self.amount.endswith("margin"):
            spare = _requests(features[..., 3::2], self.capacity_scale).sum(axis=-1)
            overflow = np.minimum(overflow, spare)
        return np.asarray(np.minimum(overflow, a))


def baseline_team(amount: str, rules: DfaasRules) -> dict[str, Policy]:
    """Return a team with the same baseline at every node."""
    return dict.fromkeys(rules.agents, Baseline(amount, rules))


class Teams(dict[str, dict[str, Policy]]):
    """The reference teams of dfaas_v0 by amount. A pair such as "overflow/two" names one as well,
    where "two" is the route of the rules; ValueError tells of any other route."""

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__({amount: baseline_team(amount, rules) for amount in AMOUNTS})
        self.route = rules.route

    def __missing__(self, pair: str) -> dict[str, Policy]:
        amount, route = split_pair(pair)
        if route != self.route:
            raise ValueError(
                f"{pair}: the environment was made with route={self.route!r}; make it with "
                f"route={route!r}, or give {amount!r}"
            )
        return self[amount]


def players_of(rules: DfaasRules, agent: str) -> Makers:
    return {amount: functools.partial(Baseline, amount) for amount in AMOUNTS}


def _requests(share: Array, scale: float) -> Array:
    """Return the whole requests behind a float32 feature; exact up to eight million requests."""
    requests: Array = np.rint(share.astype(np.float64) * scale).astype(np.int64)
    return requests
