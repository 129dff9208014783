"""Rules of thumb as trees: questions about a node's inputs, with an amount to forward in each leaf.

A tree asks at most three questions about whole numbers that a node observes (``INPUTS``). Each leaf
is an amount in words: nothing, the arrivals beyond 80 % of the capacity, half of the arrivals, 5
requests. The tree is fitted to the requests that a team forwarded. If the team's actions set how
many requests are kept, only amounts that set this number are used.

1. A few amounts are selected out of all, one after the other: each time the one that most reduces
   the error of the nearest selected amount.
2. A decision tree (scikit-learn) learns which selected amount is the nearest. The weight of a
   decision is the difference between the largest and the smallest error, in requests.
3. Each leaf gets the nearest of all amounts. Leaves are merged if they are equal, or if merging
   hardly increases the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.amounts import Keeps, Levels, Shares
from corral.envs.dfaas_v0.baselines import Baseline
from corral.envs.dfaas_v0.plans import KEEP_ALL
from corral.envs.dfaas_v0.residual import Residual
from corral.extras import require

__all__ = ["CAME", "INPUTS", "Amount", "Carried", "Split", "Thumb", "Tree", "fitted", "tree_lines"]

INPUTS = {
    "arrivals": "arrivals",
    "capacity": "capacity",
    "queue": "queue",
    "overflow": "queue + arrivals - capacity",
    "load": "arrivals in % of the capacity",
    "spare": "spare of the others",
    "room": "spare of the others - overflow",
    "lost": "lost by the others",
}
"""Inputs for questions, with their names in the text. "The others" are the nodes to which a node
can forward; their values are reported ones."""

LAST = {"arrivals": "arrivals of the last step", "load": "last arrivals in % of the capacity"}
LAST["overflow"] = "queue + last arrivals - capacity"
"""Names with unknown arrivals: a node then observes the arrivals of the last step."""

CAME = "came"
"""Name of the input with the requests that arrived after a decision, if arrivals are unknown; trees
ask no questions about it."""

FEW = 6
"""A tree is fitted to at most this many amounts; three questions give eight leaves."""

GAIN = 0.01
"""Each further amount, and each question, must lower the error by at least this fraction of the
error of the best single amount."""

SMALLEST_LEAF = 0.002
"""Smallest fraction of the decisions in a leaf."""


@dataclass(frozen=True)
class Amount:
    """Requests to forward, by kind and number; never more than the arrivals."""

    kind: str  # nothing, all, beyond, margin, patient, backlog, share, part, number, after
    value: int = 100  # percent, or requests of "number" and "after"

    def requests(self, inputs: Mapping[str, Array], queue: int) -> Array:
        """Return the requests to forward, int64, for ``inputs``, int64 [...] each, and a maximum
        queue of ``queue`` requests."""
        a, c = inputs["arrivals"], inputs["capacity"]
        beyond = a - c * self.value // 100
        wanted: dict[str, Callable[[], Array]] = {
            "nothing": lambda: 0 * a,
            "all": lambda: a,
            "beyond": lambda: beyond,
            "margin": lambda: np.minimum(beyond, inputs["spare"]),
            "patient": lambda: inputs["overflow"] - queue,
            "share": lambda: a * self.value // 100,
            "part": lambda: np.maximum(a - c, 0) * self.value // 100,
            "number": lambda: np.full_like(a, self.value),
        }
        return np.asarray(np.clip(wanted[self.kind](), 0, a))

    def keep(self, inputs: Mapping[str, Array], queue: int) -> Array:
        """Return the number of arrivals to keep, which may exceed the arrivals: int64 [...]."""
        c, q = inputs["capacity"], inputs["queue"]
        kept: dict[str, Callable[[], Array]] = {
            "nothing": lambda: np.full_like(c, KEEP_ALL),
            "all": lambda: 0 * c,
            "beyond": lambda: c * self.value // 100,
            "patient": lambda: c + queue - q,
            "backlog": lambda: c + queue * self.value // 100 - q,
            "after": lambda: np.full_like(c, self.value),
        }
        return np.maximum(kept[self.kind](), 0)

    def __str__(self) -> str:
        of = "the capacity" if self.value == 100 else f"{self.value} % of the capacity"
        return {
            "nothing": "nothing",
            "all": "all arrivals",
            "beyond": f"arrivals beyond {of}",
            "margin": f"arrivals beyond {of}, at most the others' spare",
            "patient": "the arrivals that do not fit into the queue",
            "backlog": f"arrivals beyond the capacity and {self.value} % of the queue's room, "
            "minus the queue",
            "after": f"arrivals after the first {self.value:,}",
            "share": f"{self.value} % of the arrivals",
            "part": f"{self.value} % of the arrivals beyond the capacity",
            "number": f"{self.value:,} request{'s' * (self.value != 1)}",
        }[self.kind]


@dataclass(frozen=True)
class Split:
    """A question: is the input at most ``at``?"""

    feature: str  # of INPUTS
    at: int
    low: Tree  # if it is
    high: Tree  # if it is not


Tree = Split | Amount


class Thumb(Baseline):
    """Plays an agent of dfaas_v0 by a tree, with the observations and actions of the rules."""

    def __init__(self, tree: Tree, rules: DfaasRules, agent: str) -> None:
        super().__init__("overflow", rules, agent)
        self.tree = tree

    def inputs(self, features: Array) -> dict[str, Array]:
        """Return ``INPUTS`` of features [..., F]: int64 [...] each."""
        a, c, q = self.read.load(features)
        spare = self.read.spare(features)
        inputs_by_name = {"arrivals": a, "capacity": c, "queue": q, "overflow": q + a - c}
        inputs_by_name |= {"load": 100 * a // np.maximum(c, 1), "spare": spare}
        return {**inputs_by_name, "room": spare - (q + a - c), "lost": self.read.lost(features)}

    def _forwarded(self, features: Array) -> Array:
        return amount_of(self.tree, self.inputs(features), self.queue)

    def _level(self, features: Array, mask: Array) -> Array:
        if isinstance(self.levels, Residual):
            _, c, q = self.read.load(features)
            of_rule = self.levels.rule.keep(c, q, self.queue)
            assert of_rule is not None
            keep = keep_of(self.tree, self.inputs(features), self.queue)
            unit = self.levels.units(c + self.queue)
            return self.levels.nearest(keep, of_rule, c + self.queue - q, mask, unit)
        if not isinstance(self.levels, Keeps):
            return super()._level(features, mask)
        keep = keep_of(self.tree, self.inputs(features), self.queue)
        level = np.where(keep >= KEEP_ALL, 0, self.levels.of_keep(keep))
        return np.minimum(level, self._most(features, mask))


@dataclass(frozen=True)
class Carried:
    """How the rules of a team turn amounts and levels into forwarded requests."""

    levels: Levels
    queue: int  # requests that a node can hold
    within: int | None = None  # maximum of forwarded requests; None: unlimited

    def forwarded(self, level: Array, inputs: Mapping[str, Array]) -> Array:
        """Return the requests that a level forwards: int64, shaped like ``level``."""
        came = inputs.get(CAME, inputs["arrivals"])
        room = inputs["capacity"] + self.queue - inputs["queue"]
        if isinstance(self.levels, Residual):
            unit = self.levels.units(inputs["capacity"] + self.queue)
            keep = self.levels.kept(level, self._of_rule(inputs), room, unit)
            count = np.maximum(came - keep, 0)
        else:
            count = self.levels.forwarded(level, came, room)
        return np.asarray(count if self.within is None else np.minimum(count, self.within))

    def _of_rule(self, inputs: Mapping[str, Array]) -> Array:
        """Return the requests that the rule of a residual team keeps."""
        assert isinstance(self.levels, Residual)
        keep = self.levels.rule.keep(inputs["capacity"], inputs["queue"], self.queue)
        assert keep is not None
        return keep

    def tree(self, tree: Tree, inputs: Mapping[str, Array]) -> Array:
        """Return the requests that a tree or an amount forwards after rounding to a level: up to
        the next one, or to the nearest one if levels set the requests to keep."""
        if isinstance(self.levels, Residual):
            keep, of_rule = keep_of(tree, inputs, self.queue), self._of_rule(inputs)
            room = inputs["capacity"] + self.queue - inputs["queue"]
            every = np.ones((*np.shape(keep), self.levels.count), dtype=np.int8)
            unit = self.levels.units(inputs["capacity"] + self.queue)
            return self.forwarded(self.levels.nearest(keep, of_rule, room, every, unit), inputs)
        if isinstance(self.levels, Keeps):
            keep = keep_of(tree, inputs, self.queue)
            room = inputs["capacity"] + self.queue - inputs["queue"]
            level = np.minimum(self.levels.of_keep(keep), self.levels.highest(room))
            return self.forwarded(np.where(keep >= KEEP_ALL, 0, level), inputs)
        arrivals = inputs["arrivals"]
        level = self.levels.level(amount_of(tree, inputs, self.queue), arrivals)
        return self.forwarded(np.minimum(level, self.levels.highest(arrivals)), inputs)


def keep_of(tree: Tree, inputs: Mapping[str, Array], queue: int) -> Array:
    """Return the number of arrivals that a tree keeps: int64 [...]."""
    if isinstance(tree, Amount):
        return tree.keep(inputs, queue)
    low, high = (keep_of(part, inputs, queue) for part in (tree.low, tree.high))
    return np.where(inputs[tree.feature] <= tree.at, low, high)


def amount_of(tree: Tree, inputs: Mapping[str, Array], queue: int) -> Array:
    """Return the requests that a tree forwards: int64 [...]."""
    if isinstance(tree, Amount):
        return tree.requests(inputs, queue)
    low, high = (amount_of(part, inputs, queue) for part in (tree.low, tree.high))
    return np.where(inputs[tree.feature] <= tree.at, low, high)


def tree_lines(tree: Tree, queue: int, indent: int = 0, known: bool = True) -> list[str]:
    """Return a tree as if-lines. ``known``: whether nodes know this step's arrivals."""
    pad = " " * indent
    if isinstance(tree, Amount):
        return [f"{pad}forward {tree}"]
    question = (INPUTS if known else INPUTS | LAST)[tree.feature]
    if not queue:
        question = question.removeprefix("queue + ")
    low = tree_lines(tree.low, queue, indent + 4, known)
    lines = [f"{pad}if {question} <= {tree.at:,}:", *low]
    if isinstance(tree.high, Split):
        rest = tree_lines(tree.high, queue, indent, known)
        return [*lines, f"{pad}else {rest[0].strip()}", *rest[1:]]
    return [*lines, f"{pad}else:", *tree_lines(tree.high, queue, indent + 4, known)]


# --- Fitting -------------------------------------------------------------------------------------


def fitted(inputs: Mapping[str, Array], forwarded: Array, carried: Carried, depth: int) -> Tree:
    """Return the tree that is nearest to the decisions.

    Args:
        inputs: ``INPUTS`` of S decisions, and ``CAME``, int64 [S] each.
        forwarded: requests, int64 [S].
        carried: how the rules turn amounts into forwarded requests.
        depth: maximum number of questions in a row.

    Raises MissingExtraError without scikit-learn.
    """
    learner: Any = require("sklearn.tree", extra="advise", purpose="fit a rule of thumb")
    if isinstance(carried.levels, Keeps | Residual):
        came = inputs.get(CAME, inputs["arrivals"])
        amounts = _keep_amounts((came - forwarded)[forwarded > 0], carried.queue)
    else:  # shares imply a summary observation, which has no numbers of requests
        amounts = _vocabulary(forwarded * (not isinstance(carried.levels, Shares)), carried.queue)
    errors = np.empty((len(forwarded), len(amounts)), dtype=np.float32)  # [S, V]
    for i, amount in enumerate(amounts):
        errors[:, i] = np.abs(carried.tree(amount, inputs) - forwarded)
    few = errors[:, _chosen(errors)]
    weight = few.max(axis=1) - few.min(axis=1)
    relevant = weight > 0
    if depth < 1 or not relevant.any():
        return amounts[int(errors.sum(axis=0, dtype=np.float64).argmin())]
    names = _distinguishable(inputs)
    question_values = np.stack([inputs[name] for name in names], axis=1)  # [S, inputs]
    smallest = max(1, int(SMALLEST_LEAF * len(forwarded)))
    tree = learner.DecisionTreeClassifier(
        max_depth=depth, min_samples_leaf=smallest, random_state=0
    ).fit(question_values[relevant], few.argmin(axis=1)[relevant], sample_weight=weight[relevant])
    path = tree.decision_path(question_values).tocsc()  # [S, nodes] decisions that reach a node
    nodes = tree.tree_
    least = GAIN * float(errors.sum(axis=0, dtype=np.float64).min())

    def build(node: int) -> tuple[Tree, float]:
        """Return the tree below a node, and its error in requests."""
        reached = path.indices[path.indptr[node] : path.indptr[node + 1]]
        node_errors = errors[reached].sum(axis=0, dtype=np.float64)
        single, error = amounts[int(node_errors.argmin())], float(node_errors.min())
        if nodes.children_left[node] == nodes.children_right[node]:  # a leaf
            return single, error
        low, high = build(nodes.children_left[node]), build(nodes.children_right[node])
        if low[0] == high[0] or error - low[1] - high[1] <= least:
            return single, error
        at = int(np.floor(nodes.threshold[node]))
        return Split(names[nodes.feature[node]], at, low[0], high[0]), low[1] + high[1]

    return build(0)[0]


def _distinguishable(inputs: Mapping[str, Array]) -> list[str]:
    """Return the inputs that can be distinguished, simple ones first. Left out are constant inputs
    and those with the same or the reverse order as an earlier one: with constant capacity the
    overflow orders decisions as the arrivals do."""
    distinct: dict[str, Array] = {}
    for name in INPUTS:
        order = np.unique(inputs[name], return_inverse=True)[1]  # [S] ranks
        equal = (np.array_equal(order, earlier) for earlier in distinct.values())
        reversed_order = (
            np.array_equal(order.max() - order, earlier) for earlier in distinct.values()
        )
        if order.any() and not any(equal) and not any(reversed_order):
            distinct[name] = order
    return [*distinct]


def _vocabulary(forwarded: Array, queue: int) -> list[Amount]:
    """Return all amounts, in order of preference: the first of equally near ones is used."""
    some = forwarded[forwarded > 0]
    numbers: list[float] = []
    if len(some):
        numbers = np.unique(np.quantile(some, np.linspace(0.05, 0.95, 10)).round()).tolist()
    return [
        Amount("nothing"),
        Amount("beyond"),
        *([Amount("patient")] if queue else []),
        Amount("all"),
        Amount("margin"),
        *(Amount("beyond", percent) for percent in (80, 90, 110, 120, 50, 60, 70, 130, 140, 150)),
        *(Amount("beyond", percent) for percent in (75, 85, 95, 105)),
        *(Amount("margin", percent) for percent in (80, 90)),
        *(Amount("share", percent) for percent in (50, 25, 75, 10, 20, 30, 40, 60, 70, 80, 90)),
        *(Amount("part", percent) for percent in (50, 25, 75)),
        *(Amount("number", int(number)) for number in numbers),
    ]


def _keep_amounts(kept: Array, queue: int) -> list[Amount]:
    """Return all amounts that set the requests to keep; ``kept``: numbers kept by the team."""
    numbers: list[float] = []
    if len(kept):
        numbers = np.unique(np.quantile(kept, np.linspace(0.05, 0.95, 10)).round()).tolist()
    backlogs = (75, 50, 25, 90, 80, 70, 60, 40, 30, 20, 10) if queue else ()
    return [
        Amount("nothing"),
        Amount("beyond"),
        *([Amount("patient")] if queue else []),
        Amount("all"),
        *(Amount("backlog", percent) for percent in backlogs),
        *(Amount("beyond", percent) for percent in (80, 90, 110, 120, 50, 60, 70, 130, 140, 150)),
        *(Amount("beyond", percent) for percent in (75, 85, 95, 105)),
        *(Amount("after", int(number)) for number in numbers),
    ]


def _chosen(errors: Array) -> list[int]:
    """Return the few columns of ``errors`` [S, V] that together leave the least error. Columns are
    added greedily; then those made redundant by later ones are removed."""
    chosen = [int(errors.sum(axis=0, dtype=np.float64).argmin())]
    remaining = errors[:, chosen[0]]  # [S] error of the nearest
    least = GAIN * float(remaining.sum(dtype=np.float64))
    while len(chosen) < FEW:
        totals = np.minimum(errors, remaining[:, None]).sum(axis=0, dtype=np.float64)
        best = int(totals.argmin())
        if float(remaining.sum(dtype=np.float64) - totals[best]) <= least:
            break
        chosen.append(best)
        remaining = np.minimum(remaining, errors[:, best])
    for column in chosen[:-1]:
        rest = [index for index in chosen if index != column]
        without = errors[:, rest].min(axis=1)
        if float((without - remaining).sum(dtype=np.float64)) <= least:
            chosen, remaining = rest, without
    return chosen
