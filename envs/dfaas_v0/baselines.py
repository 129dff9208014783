"""Reference policies of dfaas_v0: baselines for learned teams.

A baseline decides how many requests to forward. The environment's ``route`` decides where they go.
A pair is written amount/route: "overflow/equal", "patient/least", "margin/spare", ...
``corral.envs.dfaas_v0.plain_rules`` has the amounts with numbers, such as "backlog=0.75".

| amount | forwards |
|---|---|
| local | nothing |
| random | a uniformly random legal action |
| static | 40 % of the arrivals, rounded down |
| overflow | the arrivals beyond the capacity: max(0, a - c) |
| threshold | the arrivals beyond 80 % of the capacity (this limit is rounded down) |
| margin | the overflow, but at most the spare that its neighbors reported |
| patient | the arrivals that neither capacity nor queue can take: max(0, q + a - c - queue) |
| patient-margin | patient, but at most the spare that its neighbors reported |

A baseline reads only the observation of its node, under the same conditions as a network. If a
level stands for several requests, amounts are rounded up to the next level: requests beyond the
capacity are certainly lost if they stay, but may find room elsewhere. In a replay, baselines
forward exact numbers of requests (``DfaasRules.in_requests``), and "random" draws a uniformly
random number of requests. With ``route="choose"`` all requests go to the neighbor with the largest
reported spare, the first in cyclic order in a tie.

With unknown arrivals, a rule that keeps a fixed number is exact only if levels keep requests
(``amount="keep"``) or are offsets to this rule (``residual``). Otherwise it uses the count of the
last step instead of the current arrivals.
In a replay, rules are carried out exactly as plans, see ``corral.envs.dfaas_v0.plans``.

A summary (``observation="summary"``) contains only ratios. A baseline for it also knows the mean
capacity of its node over the rows. If all rows have this capacity, the baseline recovers whole
requests and the amounts above are exact. Otherwise they are exact to about one request, except for
the room of the queue. Loads of more than 4 times the capacity look like 4 times the capacity.
"""

from __future__ import annotations

import functools

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0.amounts import Choices, Keeps, Requests
from corral.envs.dfaas_v0.features import SUMMARIES
from corral.envs.dfaas_v0.plain_rules import AMOUNTS, PlainRule
from corral.envs.dfaas_v0.plans import KEEP_ALL, shared
from corral.envs.dfaas_v0.residual import Residual
from corral.envs.dfaas_v0.routes import Route
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import MASK, OBSERVATION, highest, sample_legal
from corral.envs.policy import Heuristic, Policy
from corral.envs.reference import Makers

__all__ = [
    "AMOUNTS",
    "PAIRS",
    "Baseline",
    "Teams",
    "arguments_of",
    "baseline_team",
    "meaning",
    "players_of",
    "split_pair",
    "teams_of",
]

PAIRS = (
    "local/equal",
    "random/equal",
    "static/equal",
    "threshold/equal",
    "overflow/equal",
    "overflow/capacity",
    "overflow/spare",
    "overflow/all-to-shortest",
    "overflow/all-to-two",
    "overflow/weighted",
    "overflow/least",
    "margin/equal",
    "margin/spare",
    "patient/equal",
    "patient/least",
    "patient-margin/spare",
)
"""Pairs that a replay compares by default."""

OF_AMOUNT = {
    "local": "nothing",
    "random": "a random number of its arrivals",
    "static": "40 % of its arrivals",
    "backlog": "arrivals beyond its capacity plus {} times its queue limit minus its queued "
    "requests",
    "capacity": "arrivals beyond {} times its capacity",
    "share": "a share of {} of its arrivals",
    "overflow": "arrivals beyond its capacity",
    "threshold": "arrivals beyond 80 % of its capacity",
    "margin": "arrivals beyond its capacity, but at most the spare capacity that its neighbors "
    "reported",
    "patient": "arrivals that neither its capacity nor its queue can take",
    "patient-margin": "arrivals that neither its capacity nor its queue can take, but at most the "
    "spare capacity that its neighbors reported",
}
OF_ROUTE = {
    "equal": "in equal parts to its neighbors",
    "capacity": "to its neighbors in proportion to their capacity",
    "spare": "to its neighbors in proportion to the spare capacity that they reported",
    "shortest": "all to the neighbor that reported the most spare capacity",
    "two": "all to the better of two randomly drawn neighbors, the one that reported more spare "
    "capacity",
    "choose": "all to the neighbor that it chooses",
    "weighted": "each to the neighbor with the fewest forwarded requests per unit of capacity",
    "least": "each to the neighbor with the most reported spare capacity, minus requests already "
    "sent to it",
    "two-choices": "each to the better of two randomly drawn neighbors, the one with more reported "
    "spare capacity, minus requests already sent to it",
    "fill": "to one neighbor up to its limit, then to the next, most reported spare capacity first",
}
"""Descriptions of amounts and routes for ``meaning``."""


def meaning(pair: str) -> str:
    """Return a description of a pair in words.

    For example "a node forwards arrivals beyond its capacity, in equal parts to its neighbors".
    """
    rule = PlainRule.of(pair)
    if rule.amount == "local":
        return "a node forwards nothing and serves its own requests"
    number = "" if rule.number is None else f"{rule.number:g}"
    amount = OF_AMOUNT[rule.amount].format(number)
    if rule.margin is not None:
        amount += f", to each neighbor at most {rule.margin:g} times its reported spare capacity"
    if rule.within_links:
        amount += ", at most as many as the links carry"
    return f"a node forwards {amount}, {OF_ROUTE[rule.route]}"


def split_pair(pair: str) -> tuple[str, Route]:
    """Return ("overflow", "two") for "overflow/two". Without a route, it is "equal"."""
    rule = PlainRule.of(pair)
    return rule.amount_text, rule.route


def arguments_of(team: str) -> dict[str, str]:
    """Return the environment arguments in the name of a team: the route of "overflow/two"."""
    return {"route": split_pair(team)[1]} if "/" in team else {}


class Baseline(Heuristic):
    """A reference policy with an amount of the table above, for a node of dfaas_v0.

    With ``route="choose"`` it plays only ``agent``; the default is the first agent.
    """

    def __init__(self, amount: str, rules: DfaasRules, agent: str | None = None) -> None:
        """``agent``: the agent that it plays; required for rules with a summary."""
        self.rule = PlainRule.of(amount)
        self.amount = self.rule.amount
        limit = None
        if self.rule.within_links and rules.link_limit is not None:
            limit = rules.link_limit * max(rules.network.degree)
        self.within = limit
        self.queue = rules.queue
        self.levels = rules.levels_of
        self.choices = rules.actions if isinstance(rules.actions, Choices) else None
        self.read: _Every | _Summary = _Every(rules, agent)
        if rules.observation in SUMMARIES:
            if agent is None:
                raise ValueError("a baseline for a summary plays one node: give agent=")
            self.read = _Summary(rules, agent)

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return legal actions for one observation or a batch. Only "random" needs ``rng``."""
        features, mask = np.asarray(observation[OBSERVATION]), np.asarray(observation[MASK])
        if self.amount == "random":
            if rng is None:
                raise ValueError("the random policy draws actions: pass rng=, a numpy Generator")
            if self.choices is not None or isinstance(self.levels, Residual):
                return sample_legal(np.atleast_2d(mask), rng).reshape(mask.shape[:-1])
            return rng.integers(self._most(features, mask) + 1)
        level = self._level(features, mask)
        if self.choices is None:
            return level
        return self.choices.action(level, self.read.largest_spare(features))

    def _level(self, features: Array, mask: Array) -> Array:
        """Return the level that forwards the amount, or the highest legal level.

        For ``Keeps``, return the level that keeps the requests of the rule, and for ``Residual``
        the nearest offset.
        """
        if isinstance(self.levels, Residual):
            return self._offset(self.levels, features, mask)
        if isinstance(self.levels, Keeps):
            _, c, q = self.read.load(features)
            keep = self.rule.keep(c, q, self.queue)
            if keep is not None:
                level = np.where(keep >= KEEP_ALL, 0, self.levels.of_keep(keep))
                return np.minimum(level, self._most(features, mask))
        level = self.levels.level(self._forwarded(features), self.read.load(features)[0])
        return np.minimum(level, self._most(features, mask))

    def _offset(self, offsets: Residual, features: Array, mask: Array) -> Array:
        """Return the legal offset that keeps the number nearest to that of this rule."""
        a, c, q = self.read.load(features)
        of_rule, keep = (rule.keep(c, q, self.queue) for rule in (offsets.rule, self.rule))
        assert of_rule is not None
        if keep is None:
            keep = a - self._forwarded(features)
        unit = offsets.units(c + self.queue)
        return offsets.nearest(keep, of_rule, c + self.queue - q, mask, unit)

    def _most(self, features: Array, mask: Array) -> Array:
        """Return the highest legal level."""
        level = highest(mask)  # legal levels are 0 .. level
        if isinstance(self.levels, Requests):
            return np.asarray(level * self.read.load(features)[0])
        return level if self.choices is None else self.choices.split(level)[0]

    def extra(self, observation: Observation) -> dict[str, Array]:
        legal = np.asarray(observation[MASK]) != 0
        if self.amount == "random":
            return {"choices": legal}
        exact = self.choices is None and not isinstance(self.levels, Residual)
        if not self.read.repeats or not exact:
            return {}
        # Levels that forward the same number of requests are equally good.
        arrivals = self.read.load(np.asarray(observation[OBSERVATION]))[0][..., None]
        amounts = self.levels.forwarded(np.arange(legal.shape[-1]), arrivals)
        level = self.choose(observation, None)[..., None]
        return {"choices": legal & (amounts == np.take_along_axis(amounts, level, axis=-1))}

    def _forwarded(self, features: Array) -> Array:
        """Return the number of requests to forward, from features [..., F] of dfaas_v0."""
        a, c, q = self.read.load(features)
        if self.amount == "static":
            return np.asarray(a * 2 // 5)
        keep = self.rule.keep(c, q, self.queue)
        if keep is None:
            return shared(self.rule.number or 0.0, a)
        forwarded = np.maximum(0, a - keep)
        if self.amount.endswith("margin"):
            forwarded = np.minimum(forwarded, self.read.spare(features))
        return np.asarray(np.minimum(forwarded, a if self.within is None else self.within))


class _Every:
    """Reads requests from an observation with features of every other node."""

    repeats = False  # whether several levels may forward the same

    def __init__(self, rules: DfaasRules, agent: str | None) -> None:
        self.scales = *rules.scales, max(rules.queue, 1)
        node = 0 if agent is None else rules.agents.index(agent)
        self.other_features = slice(3, rules.features.plain)
        self.places = np.flatnonzero(rules.network.linked[node])  # of its neighbors

    def load(self, features: Array) -> tuple[Array, Array, Array]:
        """Return arrivals, capacity and queue: int64 [...] each."""
        a, c, q = (_requests(features[..., i], scale) for i, scale in enumerate(self.scales))
        return a, c, q

    def spare(self, features: Array) -> Array:
        """Return the sum of the spare that all neighbors reported: int64 [...]."""
        return np.asarray(
            _requests(features[..., self.other_features][..., ::2], self.scales[1]).sum(axis=-1)
        )

    def lost(self, features: Array) -> Array:
        """Return the sum of the lost requests that all neighbors reported: int64 [...]."""
        return np.asarray(
            _requests(features[..., self.other_features][..., 1::2], self.scales[0]).sum(axis=-1)
        )

    def largest_spare(self, features: Array) -> Array:
        """Return the neighbor with the largest reported spare, for ``Choices``: int64 [...]."""
        if not len(self.places):
            return np.zeros(features.shape[:-1], dtype=np.int64)
        return np.asarray(
            features[..., self.other_features][..., ::2][..., self.places].argmax(axis=-1)
        )


class _Summary:
    """Reads requests from a node's summary, assuming its mean capacity in every row."""

    def __init__(self, rules: DfaasRules, agent: str) -> None:
        node = rules.agents.index(agent)
        assert rules.trace.capacity is not None  # with_capacity ensures it
        capacity = rules.trace.capacity[slice(*rules.rows), node]
        self.capacity = round(float(capacity.mean()))
        self.scale = max(self.capacity, 1)
        self.degree = rules.network.degree[node]
        self.repeats = bool((capacity == self.capacity).all())

    def load(self, features: Array) -> tuple[Array, Array, Array]:
        """Return arrivals, capacity and queue: int64 [...] each."""
        a, q = (_requests(features[..., i], self.scale) for i in range(2))
        return a, np.full_like(a, self.capacity), q

    def spare(self, features: Array) -> Array:
        """Return the sum of the spare that all neighbors reported: int64 [...]."""
        return _requests(features[..., 4], self.scale * self.degree)

    def lost(self, features: Array) -> Array:
        """Return the sum of the lost requests that all neighbors reported: int64 [...]."""
        return _requests(features[..., 10], self.scale * self.degree)

    def largest_spare(self, features: Array) -> Array:
        """Return the neighbor with the largest reported spare, for ``Choices``: int64 [...]."""
        return np.zeros(features.shape[:-1], dtype=np.int64)  # neighbors are ranked by spare


def baseline_team(amount: str, rules: DfaasRules) -> dict[str, Policy]:
    """Return a team in which every node plays the same baseline."""
    if rules.route == "choose" or rules.observation in SUMMARIES:
        return {agent: Baseline(amount, rules, agent) for agent in rules.agents}
    return dict.fromkeys(rules.agents, Baseline(amount, rules))


class Teams(dict[str, dict[str, Policy]]):
    """The reference teams of dfaas_v0 by amount.

    A pair such as "overflow/two" is also a name if "two" is the route of the rules. Another route
    raises ValueError.
    """

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__({amount: baseline_team(amount, rules) for amount in AMOUNTS})
        self.route, self.rules = rules.route, rules

    def __missing__(self, pair: str) -> dict[str, Policy]:
        amount, route = split_pair(pair)
        if "/" in pair and route != self.route:
            raise ValueError(
                f"{pair}: the environment has route={self.route!r}; make it with route={route!r}, "
                f"or give {amount!r}"
            )
        if amount not in self:
            self[amount] = baseline_team(amount, self.rules)
        return self[amount]


def teams_of(rules: DfaasRules) -> Teams:
    """Return the teams by name. Each team is made at its first use."""
    return Teams(rules)


def players_of(rules: DfaasRules, agent: str) -> Makers:
    return {amount: functools.partial(Baseline, amount, agent=agent) for amount in AMOUNTS}


def _requests(share: Array, scale: float) -> Array:
    """Return the whole requests of a float32 feature; exact up to eight million requests."""
    requests: Array = np.rint(share.astype(np.float64) * scale).astype(np.int64)
    return requests
