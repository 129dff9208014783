"""Decisions of a team on the present numbers of its nodes. NumPy alone.

An export holds the source of this module and of what it imports, see ``numpy_folder``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.amounts import Requests
from corral.envs.dfaas_v0.baselines import Baseline, split_pair
from corral.envs.dfaas_v0.features import Deciding
from corral.envs.dfaas_v0.load import Recorded
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.past import keep_reports
from corral.envs.masks import MASK, OBSERVATION

__all__ = [
    "DecisionError",
    "NodeDecider",
    "OutOfRangeError",
    "RuleActor",
    "State",
    "about_rule",
    "limits_of",
]

MOST = 2**31
"""Requests that a rule takes at once: products of two such numbers fit int64."""


class DecisionError(ValueError):
    """A number that is given for a decision is missing, or is none. ``field`` says which, as in
    "nodes.fra.arrivals"."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class OutOfRangeError(DecisionError):
    """A number is larger than any that the team was trained on."""


@dataclass
class State:
    """What a team remembers between two decisions. ``start`` makes it; every decision that it is
    given to brings it to the next step."""

    t: int  # decisions so far
    reports: Array  # int64 [1, K, N, 2] of K steps before the last, see ``corral.envs.dfaas_v0``
    hidden: Any  # hidden states of recurrent networks; None where there are none
    rng: np.random.Generator  # draws the pairs of route "two"
    nodes: tuple[str, ...]


class NodeDecider(Deciding):
    """Decides for N nodes, whose names are ``nodes``.

    Args:
        about: plain values that say how nodes see and choose, see ``about_rules``.
        actor: who chooses. ``act(features [N, F], masks [N, A], hidden, rng)`` returns actions
            int64 [N] and the next hidden state, ``initial()`` the first one, None without any.
            Default: the rule that ``about`` names.
    """

    def __init__(self, about: Mapping[str, Any], actor: Any = None) -> None:
        self.about = dict(about)
        self.nodes = self.agents = tuple(about["nodes"])
        self.queue, self.report_delay = int(about["queue"]), int(about["report_delay"])
        self.observation, self.route = about["observation"], about["route"]
        self.load_scale, self.capacity_scale = about["load_scale"], about["capacity_scale"]
        self.scales = self.load_scale, self.capacity_scale
        links = np.array(about["links"], dtype=bool).reshape(len(self.nodes), len(self.nodes))
        self.network = Network(links, self.route, second_offer=False, link_limit=None)
        if about["requests"] is None:  # any number of them, as a rule forwards in a replay
            self._prepare_actions(np.arange(2), 1)
            self.levels_of = self.actions = Requests(self.load_scale)
        else:
            requests = np.array(about["requests"], dtype=np.int64)
            self._prepare_actions(requests, int(about["max_level"]))
        self._masks = self.actions.masks()
        self._linked = links.any(axis=1)
        self._pairs = np.maximum(self.network.degree, 1)[:, None]
        self._known = frozenset(self.nodes)
        self.load = _Present()
        self.actor = actor
        if actor is None and "rule" in about:
            rules: Any = self  # as far as a reference policy asks
            self.actor = RuleActor(Baseline(about["rule"], rules))
        loads, spares = self.limits["arrivals"], self.limits["capacity"]
        self._present = (("arrivals", loads), ("capacity", spares), ("queue", self.limits["queue"]))
        self._reports = (("spare", spares), ("lost", loads))

    @property
    def limits(self) -> dict[str, int]:
        """The largest arrivals, capacity and queue of a node that it can decide on."""
        return limits_of(self.about)

    def by_rule(self, pair: str) -> NodeDecider:
        """Return what decides for the same nodes by a rule, such as "overflow/capacity": see
        ``about_rule``."""
        return NodeDecider(about_rule(self.about, pair))

    @property
    def remembers(self) -> bool:
        """Whether a decision depends on those before it: then ``state`` must be given."""
        return self.report_delay > 1 or self.actor.initial() is not None

    def start(self, seed: int | np.random.Generator = 0) -> State:
        """Return the state before the first decision. ``seed`` is of what route "two" draws."""
        reports = np.zeros((1, max(self.report_delay - 1, 0), len(self.nodes), 2), dtype=np.int64)
        rng = np.random.default_rng(seed)
        return State(0, reports, self.actor.initial(), rng, self.nodes)

    def decide(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        previous: Mapping[str, Mapping[str, Any]] | None = None,
        state: State | None = None,
    ) -> dict[str, dict[str, int]]:
        """Return how many requests each node offers to which others: name -> other -> requests.

        A node keeps the rest of its arrivals. Others that get nothing are left out.

        Args:
            nodes: name -> "arrivals" of this step, "capacity", and "queue", the requests that wait
                (default 0); all nodes, whole numbers.
            previous: name -> "spare" and "lost", with which the nodes ended the last step; None: 0,
                as at a start.
            state: of ``start``, the same one for every step; it is brought to the next step. A
                start where None.

        Raises:
            DecisionError: a node or a number is missing, unknown or none; nothing has changed then.
            OutOfRangeError: a number is larger than any that was trained on.
            ValueError: ``state`` is missing where decisions depend on it, or of other nodes.
        """
        arrivals, capacity, queue = self._read("nodes", nodes, self._present)
        spare = lost = np.zeros_like(arrivals)
        if previous is not None:
            spare, lost = self._read("previous", previous, self._reports)
        if state is None:
            if previous is not None and self.remembers:
                raise ValueError(
                    "this team remembers earlier steps, and previous= says that there were some: "
                    "make state = start() once, and give state=state at every step"
                )
            state = self.start(np.random.default_rng() if self.route == "two" else 0)
        elif state.nodes != self.nodes:
            raise ValueError(f"state is of other nodes ({', '.join(state.nodes)}): call start()")
        moment = self._moment(arrivals, capacity, queue, spare, lost, state)
        features, masks = self.seen(moment)
        actions, hidden = self.actor.act(features[0], masks[0], state.hidden, state.rng)
        offers = self.offered(moment, actions[None])[0].tolist()
        keep_reports(state.reports, moment.t, spare, lost)
        state.t, state.hidden = state.t + 1, hidden
        names = self.nodes
        return {
            name: {other: count for other, count in zip(names, row, strict=True) if count}
            for name, row in zip(names, offers, strict=True)
        }

    def _moment(
        self, arrivals: Array, capacity: Array, queue: Array, spare: Array, lost: Array, state: Any
    ) -> Any:
        """Return what a state of the environment holds at this moment; arrays [1, N]."""
        section = SimpleNamespace(arrivals=arrivals, capacity=capacity, steps_per_day=None)
        recorded: Any = Recorded(section, self.scales, self.levels_of, self._linked)  # type: ignore[arg-type]
        draws = None
        if self.route == "two":  # [1, 1, N, 2]
            shape = (len(self.nodes), 2)
            draws = state.rng.integers(self._pairs, size=shape, dtype="i4")[None, None]
        return SimpleNamespace(
            t=np.array([state.t]),
            queue=queue,
            spare=spare,
            lost=lost,
            draws=draws,
            reports=state.reports,
            recorded=recorded,
        )

    def _row(self, state: Any) -> Array:
        return FIRST

    def _read(self, what: str, given: Any, fields: tuple[tuple[str, int], ...]) -> Array:
        """Return the numbers of the ``fields``, each with its limit, of all nodes: [fields, 1, N].
        Raises DecisionError."""
        if not isinstance(given, Mapping) or given.keys() != self._known:
            self._refuse_names(what, given)
        numbers: list[int] = []
        for key, limit in fields:
            for name in self.nodes:
                node = given[name]
                if not isinstance(node, Mapping):
                    raise DecisionError(
                        f"{what}.{name}", f"{node!r:.40}: give a mapping with {key}"
                    )
                try:
                    number = node[key]
                except LookupError:
                    number = _missing(what, name, key)
                if type(number) is not int or not 0 <= number <= limit:
                    number = _whole(f"{what}.{name}.{key}", number, limit)
                numbers.append(number)
        known = {key for key, _ in fields}
        for name in self.nodes:
            if not given[name].keys() <= known:
                _refuse_keys(what, name, given[name], fields)
        return np.array(numbers, dtype=np.int64).reshape(len(fields), 1, -1)

    def _refuse_names(self, what: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise DecisionError(what, f"{type(given).__name__}: give a mapping of names of nodes")
        unknown = [str(name) for name in given if name not in self._known]
        missing = [name for name in self.nodes if name not in given]
        told = [f"{_some(missing)} missing"] if missing else []
        told += [f"{_some(unknown)} unknown"] if unknown else []
        raise DecisionError(what, f"{'; '.join(told)}. The nodes are {_some(self.nodes)}")


FIRST = np.zeros(1, dtype=np.int64)
"""The row of a load that is of one step."""


def limits_of(about: Mapping[str, Any]) -> dict[str, int]:
    """Return the largest arrivals, capacity and queue that ``NodeDecider`` takes with ``about``."""
    if about["requests"] is None:
        return dict.fromkeys(("arrivals", "capacity", "queue"), MOST)
    loads, spares = int(about["load_scale"]), int(about["capacity_scale"])
    if about["observation"] != "every":
        loads = spares = MOST
    return {"arrivals": loads, "capacity": spares, "queue": int(about["queue"])}


def about_rule(about: Mapping[str, Any], pair: str) -> dict[str, Any]:
    """Return ``about`` of the same nodes for a rule, amount/route, which forwards to the request,
    as in a replay, and takes any number of requests. Raises ValueError."""
    amount, route = split_pair(pair)
    if amount == "random" or route == "choose":
        raise ValueError(f"{pair}: no rule to decide by; give one such as overflow/capacity")
    return {
        **about,
        "rule": amount,
        "route": route,
        "observation": "every",
        "requests": None,
    }


class RuleActor:
    """Lets a rule choose for all nodes."""

    def __init__(self, rule: Baseline) -> None:
        self.rule = rule

    def initial(self) -> None:
        """Return None: it remembers nothing."""

    def act(self, features: Array, masks: Array, hidden: Any, rng: Any) -> tuple[Array, None]:
        """Return actions int64 [N]: here numbers of requests."""
        return self.rule.choose({OBSERVATION: features, MASK: masks}, rng), None


class _Present:
    """The load of the present step: a ``Recorded`` of one row, which the moment brings along."""

    def at(self, state: Any, row: Array) -> Array:
        found: Array = state.recorded.at(state, row)
        return found

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        found: tuple[Array, Array] = state.recorded.observed(state, row)
        return found


def _whole(field: str, number: Any, limit: int) -> int:
    """Return ``number`` as an int of 0 .. limit. Raises DecisionError, OutOfRangeError."""
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole and isinstance(number, float | np.floating):
        whole = float(number).is_integer()
    if not whole or number < 0:
        raise DecisionError(field, f"{number!r:.40}: give a whole number from 0 to {limit:,}")
    if number > limit:
        remedy = "" if limit == MOST else " that was trained on; a rule takes more: by_rule"
        raise OutOfRangeError(field, f"{int(number):,} is above {limit:,}, the largest{remedy}")
    return int(number)


def _missing(what: str, name: str, key: str) -> int:
    """Return what stands for a number that is not given. Raises DecisionError."""
    if key == "queue":
        return 0
    raise DecisionError(f"{what}.{name}.{key}", "is missing")


def _refuse_keys(what: str, name: str, node: Any, fields: Any) -> None:
    known = [key for key, _ in fields]
    unknown = [str(key) for key in node if key not in known]
    raise DecisionError(f"{what}.{name}.{unknown[0]}", f"is unknown: give {', '.join(known)}")


def _some(names: Any) -> str:
    """Return the first few names, and how many there are more."""
    shown = ", ".join(map(str, names[:8]))
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
