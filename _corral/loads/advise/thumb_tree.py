"""Rules of thumb as trees: questions about a node's inputs, and an amount to forward for each.

A tree asks at most three questions about whole numbers that a node observes (``INPUTS``), and each
answer ends in an amount that can be said: nothing, what arrives beyond 80 % of the capacity, half
of the arrivals, 5 requests. It is fitted to the decisions of a team, in requests. With actions that
say how many requests are kept, amounts are those that keep a number.

1. Of all amounts a few are taken, one after the other, by how much nearer they bring the nearest
   one to the decisions.
2. A decision tree (scikit-learn's) learns which of these is the nearest; a decision weighs as much
   as it matters, in requests.
3. Each leaf gets the amount, of all, that is nearest there; equal leaves, and those that are
   nearly as near together, are joined.
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
"""What a tree may ask for, and how it is said; the others are those that a node can forward to, as
they reported."""

LAST = {"arrivals": "arrivals of the last step", "load": "last arrivals in % of the capacity"}
LAST["overflow"] = "queue + last arrivals - capacity"
"""The same with unknown arrivals: a node observes those of the last step."""

CAME = "came"
"""Requests that arrived after a decision, among the inputs where arrivals are unknown; no tree asks
for them."""

FEW = 6
"""Amounts that a tree is fitted to, at most; with three questions there are eight leaves."""

GAIN = 0.01
"""Each further one of them, and each question, lowers the error by this share of that of the best
amount alone."""

SMALLEST_LEAF = 0.002
"""Share of the decisions that a leaf has at least."""


@dataclass(frozen=True)
class Amount:
    """Requests to forward, by kind and a number; never more than arrive."""

    kind: str  # nothing, all, beyond, margin, patient, backlog, share, part, number, after
    value: int = 100  # percent, or requests of "number" and "after"

    def requests(self, inputs: Mapping[str, Array], queue: int) -> Array:
        """Return it of ``inputs``, int64 [...] each, where nodes hold ``queue`` requests: int64."""
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
        """Return how many arrivals stay, whatever arrives: int64 [...]."""
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
            "beyond": f"what arrives beyond {of}",
            "margin": f"what arrives beyond {of}, at most the others' spare",
            "patient": "what the queue will not hold",
            "backlog": f"what arrives beyond the capacity and {self.value} % of the queue's room, "
            "less the queue",
            "after": f"what arrives after the first {self.value:,}",
            "share": f"{self.value} % of the arrivals",
            "part": f"{self.value} % of what arrives beyond the capacity",
            "number": f"{self.value:,} request{'s' * (self.value != 1)}",
        }[self.kind]


@dataclass(frozen=True)
class Split:
    """A question: whether an input is at most ``at``."""

    feature: str  # of INPUTS
    at: int
    low: Tree  # where it is
    high: Tree


Tree = Split | Amount


class Thumb(Baseline):
    """Plays an agent of dfaas_v0 by a tree, with the observations and actions of its rules."""

    def __init__(self, tree: Tree, rules: DfaasRules, agent: str) -> None:
        super().__init__("overflow", rules, agent)
        self.tree = tree

    def inputs(self, features: Array) -> dict[str, Array]:
        """Return ``INPUTS`` of features [..., F]: int64 [...] each."""
        a, c, q = self.read.load(features)
        spare = self.read.spare(features)
        found = {"arrivals": a, "capacity": c, "queue": q, "overflow": q + a - c}
        found |= {"load": 100 * a // np.maximum(c, 1), "spare": spare}
        return {**found, "room": spare - (q + a - c), "lost": self.read.lost(features)}

    def _forwarded(self, features: Array) -> Array:
        return amount_of(self.tree, self.inputs(features), self.queue)

    def _level(self, features: Array, mask: Array) -> Array:
        if not isinstance(self.levels, Keeps):
            return super()._level(features, mask)
        keep = keep_of(self.tree, self.inputs(features), self.queue)
        level = np.where(keep >= KEEP_ALL, 0, self.levels.of_keep(keep))
        return np.minimum(level, self._most(features, mask))


@dataclass(frozen=True)
class Carried:
    """How the rules of a team carry amounts and levels out."""

    levels: Levels
    queue: int  # requests that a node can hold
    within: int | None = None  # most requests that are forwarded; None: any number

    def forwarded(self, level: Array, inputs: Mapping[str, Array]) -> Array:
        """Return the requests that a level forwards: int64 like ``level``."""
        came = inputs.get(CAME, inputs["arrivals"])
        room = inputs["capacity"] + self.queue - inputs["queue"]
        found = self.levels.forwarded(level, came, room)
        return found if self.within is None else np.minimum(found, self.within)

    def tree(self, tree: Tree, inputs: Mapping[str, Array]) -> Array:
        """Return the requests that a tree or an amount forwards: those of the next level above; of
        levels that keep, those of the nearest one."""
        if isinstance(self.levels, Keeps):
            keep = keep_of(tree, inputs, self.queue)
            room = inputs["capacity"] + self.queue - inputs["queue"]
            level = np.minimum(self.levels.of_keep(keep), self.levels.highest(room))
            return self.forwarded(np.where(keep >= KEEP_ALL, 0, level), inputs)
        arrivals = inputs["arrivals"]
        level = self.levels.level(amount_of(tree, inputs, self.queue), arrivals)
        return self.forwarded(np.minimum(level, self.levels.highest(arrivals)), inputs)


def keep_of(tree: Tree, inputs: Mapping[str, Array], queue: int) -> Array:
    """Return how many arrivals a tree keeps: int64 [...]."""
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
    """Return a tree as plain if-lines. ``known``: whether this step's arrivals are."""
    pad = " " * indent
    if isinstance(tree, Amount):
        return [f"{pad}forward {tree}"]
    what = (INPUTS if known else INPUTS | LAST)[tree.feature]
    if not queue:
        what = what.removeprefix("queue + ")
    low = tree_lines(tree.low, queue, indent + 4, known)
    found = [f"{pad}if {what} <= {tree.at:,}:", *low]
    if isinstance(tree.high, Split):
        rest = tree_lines(tree.high, queue, indent, known)
        return [*found, f"{pad}else {rest[0].strip()}", *rest[1:]]
    return [*found, f"{pad}else:", *tree_lines(tree.high, queue, indent + 4, known)]


# --- Fitting -------------------------------------------------------------------------------------


def fitted(inputs: Mapping[str, Array], forwarded: Array, carried: Carried, depth: int) -> Tree:
    """Return the tree that is nearest to the decisions.

    Args:
        inputs: ``INPUTS`` of S decisions, and what ``CAME``, int64 [S] each.
        forwarded: requests, int64 [S].
        carried: how the rules carry amounts out.
        depth: questions in a row, at most.

    Raises MissingExtraError without scikit-learn.
    """
    learner: Any = require("sklearn.tree", extra="advise", purpose="fit a rule of thumb")
    if isinstance(carried.levels, Keeps):
        came = inputs.get(CAME, inputs["arrivals"])
        amounts = _that_keep((came - forwarded)[forwarded > 0], carried.queue)
    else:  # shares come with a summary, which tells no numbers of requests
        amounts = _vocabulary(forwarded * (not isinstance(carried.levels, Shares)), carried.queue)
    errors = np.empty((len(forwarded), len(amounts)), dtype=np.float32)  # [S, V]
    for i, amount in enumerate(amounts):
        errors[:, i] = np.abs(carried.tree(amount, inputs) - forwarded)
    few = errors[:, _chosen(errors)]
    weight = few.max(axis=1) - few.min(axis=1)
    matters = weight > 0
    if depth < 1 or not matters.any():
        return amounts[int(errors.sum(axis=0, dtype=np.float64).argmin())]
    names = _told_apart(inputs)
    asked = np.stack([inputs[name] for name in names], axis=1)  # [S, inputs]
    smallest = max(1, int(SMALLEST_LEAF * len(forwarded)))
    tree = learner.DecisionTreeClassifier(
        max_depth=depth, min_samples_leaf=smallest, random_state=0
    ).fit(asked[matters], few.argmin(axis=1)[matters], sample_weight=weight[matters])
    path = tree.decision_path(asked).tocsc()  # [S, nodes] which decisions come to a node
    nodes = tree.tree_
    least = GAIN * float(errors.sum(axis=0, dtype=np.float64).min())

    def build(node: int) -> tuple[Tree, float]:
        """Return the tree below a node, and the requests that it errs by."""
        here = path.indices[path.indptr[node] : path.indptr[node + 1]]
        own = errors[here].sum(axis=0, dtype=np.float64)
        alone, error = amounts[int(own.argmin())], float(own.min())
        if nodes.children_left[node] == nodes.children_right[node]:  # a leaf
            return alone, error
        low, high = build(nodes.children_left[node]), build(nodes.children_right[node])
        if low[0] == high[0] or error - low[1] - high[1] <= least:
            return alone, error
        at = int(np.floor(nodes.threshold[node]))
        return Split(names[nodes.feature[node]], at, low[0], high[0]), low[1] + high[1]

    return build(0)[0]


def _told_apart(inputs: Mapping[str, Array]) -> list[str]:
    """Return the inputs, simple ones first, but those that vary not at all or as an earlier one
    does: where the capacity is constant, so is the overflow beside the arrivals."""
    found: dict[str, Array] = {}
    for name in INPUTS:
        order = np.unique(inputs[name], return_inverse=True)[1]  # [S] places among its values
        alike = (np.array_equal(order, each) for each in found.values())
        reverse = (np.array_equal(order.max() - order, each) for each in found.values())
        if order.any() and not any(alike) and not any(reverse):
            found[name] = order
    return [*found]


def _vocabulary(forwarded: Array, queue: int) -> list[Amount]:
    """Return all amounts; of those that are as near, the first is taken."""
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


def _that_keep(kept: Array, queue: int) -> list[Amount]:
    """Return all amounts that keep a number of requests; ``kept`` are numbers that were."""
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
    """Return which few columns of ``errors`` [S, V] together leave the least error: one after the
    other is taken, then what the later ones made needless is left out."""
    chosen = [int(errors.sum(axis=0, dtype=np.float64).argmin())]
    left = errors[:, chosen[0]]  # [S] of the nearest
    least = GAIN * float(left.sum(dtype=np.float64))
    while len(chosen) < FEW:
        each = np.minimum(errors, left[:, None]).sum(axis=0, dtype=np.float64)
        best = int(each.argmin())
        if float(left.sum(dtype=np.float64) - each[best]) <= least:
            break
        chosen.append(best)
        left = np.minimum(left, errors[:, best])
    for column in chosen[:-1]:
        others = [each for each in chosen if each != column]
        without = errors[:, others].min(axis=1)
        if float((without - left).sum(dtype=np.float64)) <= least:
            chosen, left = others, without
    return chosen
