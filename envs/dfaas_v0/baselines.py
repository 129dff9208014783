"""Reference policies of dfaas_v0: what a learned team has to beat.

A baseline decides how much to forward; where it goes is the environment's ``route``. The pair is
written amount/route: "overflow/equal", "patient/least", "margin/spare", ...
``corral.envs.dfaas_v0.plain_rules`` has the table of amounts with numbers, such as "backlog=0.75".

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
Where a level of action stands for several requests, amounts are rounded up to the next one: what
stays beyond the capacity is lost for certain, what is forwarded may find room. In a replay they
forward to the request, in rules of their own (``DfaasRules.in_requests``); "random" then draws a
uniformly random number of requests. With ``route="choose"`` all goes to the neighbour that reported
the largest spare, the first of equal ones in cyclic order.

With unknown arrivals a rule that keeps a number plays it exactly where levels keep
(``amount="keep"``); elsewhere the count of the last step stands for this one's. In a replay rules
are carried out as plans, exactly, see ``corral.envs.dfaas_v0.plans``.

A summary (``observation="summary"``) tells ratios alone. What a player adds is its node's capacity,
the mean over the rows: where that is the same in all rows, the ratios are whole requests again, and
the amounts those above; where it varies, they are exact to about a request, but for the room of the
queue. More than 4 times the capacity looks like 4 times.
"""

from __future__ import annotations

import functools

import numpy as np

from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0.amounts import Choices, Keeps, Requests
from corral.envs.dfaas_v0.plain_rules import AMOUNTS, PlainRule
from corral.envs.dfaas_v0.plans import KEEP_ALL, shared
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
"""The pairs that a replay compares by default."""

OF_AMOUNT = {
    "local": "nothing",
    "random": "a random number of its requests",
    "static": "40 % of what arrives",
    "backlog": "what exceeds its capacity and {} times its queue, less what is queued",
    "capacity": "what exceeds {} times its capacity",
    "share": "a share of {} of what arrives",
    "overflow": "what exceeds its capacity",
    "threshold": "what exceeds 80 % of its capacity",
    "margin": "what exceeds its capacity, but no more than the others reported to have room for",
    "patient": "what neither its capacity nor its queue has room for",
    "patient-margin": "what neither its capacity nor its queue has room for, but no more than the "
    "others reported to have room for",
}
OF_ROUTE = {
    "equal": "in equal parts to the others",
    "capacity": "to the others in proportion to their capacity",
    "spare": "to the others in proportion to the spare capacity that they reported",
    "shortest": "all to the node that reported the most spare capacity",
    "two": "all to the better of two others drawn at random: the one that reported more spare "
    "capacity",
    "choose": "all to the node that it chooses",
    "weighted": "each to the node that got the fewest for its capacity",
    "least": "each to the node with the most reported spare capacity, less what it was sent",
    "two-choices": "each to the better of two nodes drawn at random: the one with more reported "
    "spare capacity, less what it was sent",
    "fill": "to one node up to its limit, then to the next, the most reported spare capacity first",
}
"""Amounts and routes in the words of ``meaning``."""


def meaning(pair: str) -> str:
    """Return what a pair does, in plain words: "a node forwards what exceeds its capacity, in equal
    parts to the others"."""
    rule = PlainRule.of(pair)
    if rule.amount == "local":
        return "a node forwards nothing, and serves what it can itself"
    number = "" if rule.number is None else f"{rule.number:g}"
    amount = OF_AMOUNT[rule.amount].format(number)
    if rule.margin is not None:
        amount += f", to each at most {rule.margin:g} times the spare capacity that it reported"
    if rule.within_links:
        amount += ", no more than the links carry"
    return f"a node forwards {amount}, {OF_ROUTE[rule.route]}"


def split_pair(pair: str) -> tuple[str, Route]:
    """Return ("overflow", "two") of "overflow/two"; the route is "equal" where none is given."""
    rule = PlainRule.of(pair)
    return rule.amount_text, rule.route


def arguments_of(team: str) -> dict[str, str]:
    """Return the arguments of dfaas_v0 that a team's name says: the route of "overflow/two"."""
    return {"route": split_pair(team)[1]} if "/" in team else {}


class Baseline(Heuristic):
    """One amount of the table above, for a node of dfaas_v0; with ``route="choose"`` for that
    ``agent`` alone, which default is the first."""

    def __init__(self, amount: str, rules: DfaasRules, agent: str | None = None) -> None:
        """``agent``: whom it plays; needed where the rules give a summary."""
        self.rule = PlainRule.of(amount)
        self.amount = self.rule.amount
        most = None
        if self.rule.within_links and rules.link_limit is not None:
            most = rules.link_limit * max(rules.network.degree)
        self.within = most
        self.queue = rules.queue
        self.levels = rules.levels_of
        self.choices = rules.actions if isinstance(rules.actions, Choices) else None
        self.read: _Every | _Summary = _Every(rules, agent)
        if rules.observation == "summary":
            if agent is None:
                raise ValueError("a summary is read as the node that it is of: give agent=")
            self.read = _Summary(rules, agent)

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return legal actions for one observation or a batch. Only "random" needs ``rng``."""
        features, mask = np.asarray(observation[OBSERVATION]), np.asarray(observation[MASK])
        if self.amount == "random":
            if rng is None:
                raise ValueError("the random policy needs rng=, a numpy Generator")
            if self.choices is not None:
                return sample_legal(np.atleast_2d(mask), rng).reshape(mask.shape[:-1])
            return rng.integers(self._most(features, mask) + 1)
        level = self._level(features, mask)
        if self.choices is None:
            return level
        return self.choices.action(level, self.read.largest_spare(features))

    def _level(self, features: Array, mask: Array) -> Array:
        """Return the level that forwards the amount, or the highest legal one; of levels that keep,
        the one that keeps as many."""
        if isinstance(self.levels, Keeps):
            _, c, q = self.read.load(features)
            keep = self.rule.keep(c, q, self.queue)
            if keep is not None:
                level = np.where(keep >= KEEP_ALL, 0, self.levels.of_keep(keep))
                return np.minimum(level, self._most(features, mask))
        level = self.levels.level(self._forwarded(features), self.read.load(features)[0])
        return np.minimum(level, self._most(features, mask))

    def _most(self, features: Array, mask: Array) -> Array:
        """Return the highest legal level."""
        most = highest(mask)  # legal are 0 .. most
        if isinstance(self.levels, Requests):
            return np.asarray(most * self.read.load(features)[0])
        return most if self.choices is None else self.choices.split(most)[0]

    def extra(self, observation: Observation) -> dict[str, Array]:
        legal = np.asarray(observation[MASK]) != 0
        if self.amount == "random":
            return {"choices": legal}
        if not self.read.repeats or self.choices is not None:
            return {}
        # Levels that forward as many requests are as good.
        arrivals = self.read.load(np.asarray(observation[OBSERVATION]))[0][..., None]
        amounts = self.levels.forwarded(np.arange(legal.shape[-1]), arrivals)
        level = self.choose(observation, None)[..., None]
        return {"choices": legal & (amounts == np.take_along_axis(amounts, level, axis=-1))}

    def _forwarded(self, features: Array) -> Array:
        """Return the requests to forward, from the features [..., F] of dfaas_v0."""
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
    """Reads requests out of the features of every other node."""

    repeats = False  # whether several levels may forward the same

    def __init__(self, rules: DfaasRules, agent: str | None) -> None:
        self.scales = rules.load_scale, rules.capacity_scale, max(rules.queue, 1)
        node = 0 if agent is None else rules.agents.index(agent)
        self.others = slice(3, rules.features.plain)
        self.places = np.flatnonzero(rules.network.linked[node])  # of its neighbours

    def load(self, features: Array) -> tuple[Array, Array, Array]:
        """Return arrivals, capacity and queue: int64 [...] each."""
        a, c, q = (_requests(features[..., i], scale) for i, scale in enumerate(self.scales))
        return a, c, q

    def spare(self, features: Array) -> Array:
        """Return what all neighbours have reported as spare: int64 [...]."""
        return np.asarray(
            _requests(features[..., self.others][..., ::2], self.scales[1]).sum(axis=-1)
        )

    def lost(self, features: Array) -> Array:
        """Return what all neighbours have reported as lost: int64 [...]."""
        return np.asarray(
            _requests(features[..., self.others][..., 1::2], self.scales[0]).sum(axis=-1)
        )

    def largest_spare(self, features: Array) -> Array:
        """Return which neighbour has reported the largest spare, for ``Choices``: int64 [...]."""
        if not len(self.places):
            return np.zeros(features.shape[:-1], dtype=np.int64)
        return np.asarray(features[..., self.others][..., ::2][..., self.places].argmax(axis=-1))


class _Summary:
    """Reads requests out of a node's summary, as if it had its mean capacity in every row."""

    def __init__(self, rules: DfaasRules, agent: str) -> None:
        node = rules.agents.index(agent)
        assert rules.trace.capacity is not None  # the rules have seen to it
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
        """Return what all neighbours have reported as spare: int64 [...]."""
        return _requests(features[..., 4], self.scale * self.degree)

    def lost(self, features: Array) -> Array:
        """Return what all neighbours have reported as lost: int64 [...]."""
        return _requests(features[..., 10], self.scale * self.degree)

    def largest_spare(self, features: Array) -> Array:
        """Return which neighbour has reported the largest spare, for ``Choices``: int64 [...]."""
        return np.zeros(features.shape[:-1], dtype=np.int64)  # they are ranked by it


def baseline_team(amount: str, rules: DfaasRules) -> dict[str, Policy]:
    """Return a team with the same baseline at every node, but for whom they read and call."""
    if rules.route == "choose" or rules.observation == "summary":
        return {agent: Baseline(amount, rules, agent) for agent in rules.agents}
    return dict.fromkeys(rules.agents, Baseline(amount, rules))


class Teams(dict[str, dict[str, Policy]]):
    """The reference teams of dfaas_v0 by amount. A pair such as "overflow/two" names one as well,
    where "two" is the route of the rules; ValueError tells of any other route."""

    def __init__(self, rules: DfaasRules) -> None:
        super().__init__({amount: baseline_team(amount, rules) for amount in AMOUNTS})
        self.route, self.rules = rules.route, rules

    def __missing__(self, pair: str) -> dict[str, Policy]:
        amount, route = split_pair(pair)
        if "/" in pair and route != self.route:
            raise ValueError(
                f"{pair}: the environment was made with route={self.route!r}; make it with "
                f"route={route!r}, or give {amount!r}"
            )
        if amount not in self:
            self[amount] = baseline_team(amount, self.rules)
        return self[amount]


def teams_of(rules: DfaasRules) -> Teams:
    """Return the teams by name; each is made when it is first asked for."""
    return Teams(rules)


def players_of(rules: DfaasRules, agent: str) -> Makers:
    return {amount: functools.partial(Baseline, amount, agent=agent) for amount in AMOUNTS}


def _requests(share: Array, scale: float) -> Array:
    """Return the whole requests behind a float32 feature; exact up to eight million requests."""
    requests: Array = np.rint(share.astype(np.float64) * scale).astype(np.int64)
    return requests
