"""Decisions of a team from the current numbers of its nodes. NumPy only.

Exports contain the source of this module and of its imports, see ``numpy_folder``.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.amounts import Amounts, Keeps, Shares
from corral.envs.dfaas_v0.features import BY_CAPACITY, SUMMARIES, Deciding
from corral.envs.dfaas_v0.load import Recorded
from corral.envs.dfaas_v0.network import Network
from corral.envs.dfaas_v0.past import keep_reports
from corral.envs.dfaas_v0.plain_rules import PlainRule, plans_of
from corral.envs.dfaas_v0.plans import KEEP_ALL, Plans
from corral.envs.dfaas_v0.residual import Residual
from corral.envs.dfaas_v0.routes import UNBOUNDED
from corral.loads.export.inputs import (
    DecisionError,
    Inputs,
    NodeLoads,
    OutOfRangeError,
    limits_of,
    slot_of,
)
from corral.loads.export.plan_values import TO_ONE_NODE, values_of

__all__ = [
    "DecisionError",
    "NodeDecider",
    "OutOfRangeError",
    "State",
    "about_rule",
    "digest_of",
    "limits_of",
]


OF_NETWORKS = ("team", "networks", "residual", "offsets", "beyond")
"""Keys of ``about`` that do not concern a rule."""

LOG = logging.getLogger("corral")
MAX_LINES = 100
"""Maximum number of log lines of one decider about states of other teams."""


@dataclass
class State:
    """The memory of a team between two decisions. ``start`` creates it; each decision advances it
    by one step.

    A state belongs to the team that created it. If another team receives it, such as a later
    training of the same team, it restarts: ``restarted`` is then True, and a line is logged.
    """

    t: int  # decisions so far
    reports: Array  # int64 [1, K, N, 2] of K steps before the last, see ``corral.envs.dfaas_v0``
    hidden: Any  # hidden states of recurrent networks; None without any
    rng: np.random.Generator  # draws the pairs of route "two"
    nodes: tuple[str, ...]
    draws: Array | None = None  # int32 [1, 1, N, 2] random numbers of route "two-choices"
    team: str = ""  # digest of the team; "" for a team without memory
    restarted: bool = False  # whether the last decision received another team's state
    exceeds: bool = False  # whether it received a number above its scale, see ``Deciding.exceeds``


class NodeDecider(Deciding):
    """Decides for N ``nodes``, by name.

    Args:
        about: description of the nodes, observations and actions, see ``about_rules``.
        actor: chooses actions. ``act(features [N, F], masks [N, A], hidden, rng)`` returns
            actions int64 [N] and the next hidden state; ``initial()`` returns the first one, None
            without any; ``sound(hidden)`` whether it is valid. None: the rule in ``about`` decides.
    """

    def __init__(self, about: Mapping[str, Any], actor: Any = None) -> None:
        self.about = dict(about)
        self.nodes = self.agents = tuple(about["nodes"])
        self.queue, self.report_delay = int(about["queue"]), int(about["report_delay"])
        self.observation, self.route = about["observation"], about["route"]
        self.load_scale, self.capacity_scale = about["load_scale"], about["capacity_scale"]
        self.scales = self.load_scale, self.capacity_scale
        # Exports of earlier versions lack the following keys.
        self.arrivals = about.get("arrivals", "known")
        self.last_counts = about.get("last_counts", 0)
        table = about.get("daily_mean")
        self.daily_mean = None if table is None else np.array(table, dtype=np.float64)
        self.caps = about.get("caps")
        self.link_limit = about.get("link_limit")
        self.beyond = about.get("beyond")
        self.residual = None
        if about.get("residual") is not None:
            most = self.capacity_scale + self.queue
            relative = self.observation in SUMMARIES
            self.residual = Residual(
                about["residual"], int(about["offsets"]), most, int(about["max_level"]), relative
            )
        links = np.array(about["links"], dtype=bool).reshape(len(self.nodes), len(self.nodes))
        self.network = Network(links, self.route, second_offer=False, link_limit=None)
        self._linked = np.asarray(links.any(axis=1))
        self.rule: PlainRule | None = None
        if actor is None and "rule" in about:
            self.rule = PlainRule.of(f"{about['rule']}/{self.route}")
        levels: Any = about.get("amount")
        if levels not in ("keep", "share"):
            levels = np.array([0, 1] if self.rule else about["requests"], dtype=np.int64)
        self._prepare_actions(levels, int(about["max_level"]) if self.rule is None else 1)
        self._masks = self.actions.masks()
        self._pairs = np.maximum(self.network.degree, 1)[:, None]
        self.load = _Present()
        self.actor = actor
        self.inputs = Inputs(about)
        # Not cached properties, which would slow down every attribute access.
        self.remembers = self.report_delay > 1 or self._initial() is not None
        self._own_states = self.team if self.remembers else ""
        self._most_reported = min(self.limits["arrivals"], self.limits["capacity"])
        self._other_teams: set[str] = set()  # teams with a log line

    @property
    def limits(self) -> dict[str, int]:
        """The maximum arrivals, capacity and queue of a node for a decision."""
        return limits_of(self.about)

    def by_rule(self, rule: str, arrivals: str | None = None) -> NodeDecider:
        """Return a decider for the same nodes by a rule, such as "overflow/capacity": see
        ``about_rule``."""
        return NodeDecider(about_rule(self.about, rule, arrivals))

    remembers: bool
    """Whether a decision depends on earlier ones: ``state`` is then required."""

    @property
    def team(self) -> str:
        """The digest of the decider: the team's, or that of ``about`` for a rule."""
        return self.about.get("team") or digest_of(self.about)

    def start(self, seed: int | np.random.Generator = 0) -> State:
        """Return the state before the first decision. ``seed``: for the draws of routes "two" and
        "two-choices"."""
        nodes = len(self.nodes)
        reports = np.zeros((1, max(self.report_delay - 1, 0), nodes, 2), dtype=np.int64)
        rng = np.random.default_rng(seed)
        draws = None
        if self.route == "two-choices":
            draws = rng.integers(2**31, size=(1, 1, nodes, 2), dtype="i4")
        return State(0, reports, self._initial(), rng, self.nodes, draws, self._own_states)

    def decide(
        self,
        nodes: Mapping[str, Mapping[str, Any]],
        previous: Mapping[str, Mapping[str, Any]] | None = None,
        state: State | None = None,
        time: Any = None,
    ) -> dict[str, dict[str, Any]]:
        """Return a decision for each node: numbers of requests, or a plan.

        With known arrivals: name -> other name -> requests that the node offers to it. A node keeps
        the rest of its arrivals. Nodes that get no requests are omitted.

        With unknown arrivals: name -> a plan, see ``corral.envs.dfaas_v0.plans``: its "keep",
        "share", "most", "caps", "route" and "order". A route that sends all requests of a step to
        one node becomes route "fill" with an order.

        Args:
            nodes: name -> "capacity" of this step, "queue", the waiting requests (default 0), and
                "arrivals" of this step; with unknown arrivals "last_arrivals", the count of the
                last step, or a list of counts, newest first. All nodes; integers.
            previous: name -> "spare" and "lost" of the nodes at the end of the last step; None: 0,
                as at the start.
            state: from ``start``; pass the same one at every step, it is updated. None, or the
                state of another team with these nodes: restart, see ``State``.
            time: time of the step, ISO-8601 or a datetime, UTC without a zone; required by teams
                that observe their mean load by time of day.

        Raises:
            DecisionError: a node or a number is missing, unknown or invalid; nothing has changed.
            OutOfRangeError: a number is larger than any in training, also in ``state``.
            ValueError: ``state`` is required and missing, or has other nodes.
        """
        load = self.inputs.load(nodes)
        spare = lost = np.zeros_like(load.queue)
        if previous is not None:
            spare, lost = self.inputs.reports(previous)
        slot = self._slot(time)
        if state is None:
            if previous is not None and self.remembers:
                raise ValueError(
                    "this team remembers earlier steps, and previous= is from an earlier step: "
                    "call state = start() once, and pass state=state at every step"
                )
            draws_pairs = self.route in ("two", "two-choices")
            state = self.start(np.random.default_rng() if draws_pairs else 0)
        elif state.nodes != self.nodes:
            raise ValueError(f"state has other nodes ({', '.join(state.nodes)}): call start()")
        elif self.remembers:
            self._check_state(state)
        moment = self._moment(load, spare, lost, state)
        moment.mean = None if self.daily_mean is None else self.daily_mean[slot][None]
        moment.nodes, moment.time = nodes, time
        state.exceeds = self.beyond is not None and bool(self.exceeds(moment)[0])
        decision, hidden = self._decided(moment, state)
        keep_reports(state.reports, moment.t, spare, lost)
        state.t, state.hidden = state.t + 1, hidden
        return decision

    # --- State -----------------------------------------------------------------------------------

    def _check_state(self, state: State) -> None:
        """Restart a state of another team. Raises DecisionError for numbers that no decision can
        have left."""
        if state.team != self._own_states:
            self._tell_of(state.team)
            new = self.start(state.rng)
            state.t, state.reports, state.hidden = new.t, new.reports, new.hidden
            state.draws, state.team, state.restarted = new.draws, new.team, True
            return
        state.restarted = False
        reports = state.reports
        if reports.size and (
            reports.item(reports.argmin()) < 0
            or reports.item(reports.argmax()) > self._most_reported
        ):
            self._check_reports(reports)
        if state.hidden is not None and not self.actor.sound(state.hidden):
            raise DecisionError("state.hidden", "has numbers outside the range of hidden states")

    def sound(self, state: State) -> bool:
        """Whether the hidden states of networks are in range."""
        return state.hidden is None or bool(self.actor.sound(state.hidden))

    def _check_reports(self, reports: Array) -> None:
        """Raise OutOfRangeError for reports [1, K, N, 2] outside the limits."""
        limits = self.limits["capacity"], self.limits["arrivals"]
        invalid = (reports < 0) | (reports > np.array(limits))
        for _, _, i, k in np.argwhere(invalid)[:1].tolist():
            number = reports[..., i, k][invalid[..., i, k]][0]
            key = ("spare", "lost")[k]
            raise OutOfRangeError(
                f"state.reports.{self.nodes[i]}.{key}", f"{number}, not in 0 to {limits[k]:,}"
            )

    def _tell_of(self, team: str) -> None:
        """Log a line about a state of another team, once for each team."""
        if team not in self._other_teams and len(self._other_teams) < MAX_LINES:
            self._other_teams.add(team)
            LOG.warning(
                "state of another team (%.12s), or of an earlier training of this team "
                "(%.12s): it restarts",
                team or "a rule",
                self._own_states,
            )

    # --- Decision --------------------------------------------------------------------------------

    def _decided(self, moment: Any, state: State) -> tuple[dict[str, dict[str, Any]], Any]:
        """Return the decision for ``decide``, and the next hidden state."""
        hidden = None
        if self.rule is not None:
            plans = self._by_rule(moment)
            if self.arrivals == "unknown":
                return self._as_plans(moment, plans), hidden
            offers = self._offered_by(moment, plans)
        else:
            features, masks = self.seen(moment)
            actions, hidden = self.actor.act(features[0], masks[0], state.hidden, state.rng)
            if self.residual is not None and self.arrivals == "known":
                offers = self._offered_by(moment, self.planned(moment, actions[None]))
                return self._as_numbers(offers[0]), hidden
            if self.arrivals == "unknown":
                return self._as_plans(moment, self.planned(moment, actions[None])), hidden
            offers = self.offered(moment, actions[None])
        return self._as_numbers(offers[0]), hidden

    def planned(self, moment: Any, action: Array) -> Plans:
        """Return the plans for legal actions int64 [1, N]."""
        if self.residual is not None:
            return self.residual_plans(moment, action)[0]
        capacity, highest = self.load.at(moment, FIRST)[1:]
        room = self._room(moment, capacity)
        level, _, named = self._chosen(moment, action, self._highest(room, highest))
        forwards = level > 0
        keep, share, most = np.where(forwards, 0, KEEP_ALL), None, None
        if isinstance(self.levels_of, Keeps):
            keep = np.where(forwards, self.levels_of.kept(level, room), KEEP_ALL)
        elif isinstance(self.levels_of, Shares):
            share = np.where(forwards, level / self.levels_of.most, np.nan)
        elif isinstance(self.levels_of, Amounts):
            most = np.where(forwards, self.levels_of.requests.take(level), UNBOUNDED)
        moment.named = named  # for route "choose"
        return Plans(self.route, keep, share, most, self.caps)

    def _by_rule(self, moment: Any) -> Plans:
        assert self.rule is not None
        return plans_of([self.rule], self.inputs_of_rules(moment))

    def _offered_by(self, moment: Any, plans: Plans) -> Array:
        """Return the requests that i offers to j by ``plans`` with known arrivals: int64 [1, N, N].

        Like ``DfaasRules.carry_out``.
        """
        arrivals = self.load.at(moment, FIRST)[0]
        network = self.network.by(plans.route)
        basis = plans.weights
        if basis is None:
            basis = self._basis_of(moment, plans.route)
        targets = plans.offers
        if targets is None:
            targets = self._drawn(moment, plans.route)
        forwarded = plans.forwarded(arrivals, network)
        return network.offered(forwarded, basis, targets, plans.caps)

    def _basis_of(self, moment: Any, route: Any) -> Array:
        if route in BY_CAPACITY:
            return np.asarray(self.load.at(moment, FIRST)[1])
        return self._reported(moment)[0]

    def _as_numbers(self, offers: Array) -> dict[str, dict[str, Any]]:
        names = self.nodes
        return {
            name: {other: count for other, count in zip(names, row, strict=True) if count}
            for name, row in zip(names, offers.tolist(), strict=True)
        }

    def _as_plans(self, moment: Any, plans: Plans) -> dict[str, dict[str, Any]]:
        target = None
        if plans.route in TO_ONE_NODE:  # find the recipient of a single request
            network, one_request = self.network.by(plans.route), self._linked[None].astype(np.int64)
            targets = moment.named
            if targets is None:
                targets = self._drawn(moment, plans.route)
            offers = network.offered(one_request, self._basis_of(moment, plans.route), targets)
            target = offers[0].argmax(axis=1)
        return values_of(plans, self.network, self.nodes, target)

    # --- Current numbers -------------------------------------------------------------------------

    def _moment(self, load: NodeLoads, spare: Array, lost: Array, state: State) -> Any:
        """Return the current numbers in the form of an environment state; arrays [1, N]."""
        section = SimpleNamespace(
            arrivals=load.arrivals, capacity=load.capacity, steps_per_day=None
        )
        recorded: Any = Recorded(section, self.scales, self.levels_of, self._linked)  # type: ignore[arg-type]
        draws = state.draws
        if self.route == "two":  # [1, 1, N, 2]
            shape = (len(self.nodes), 2)
            draws = state.rng.integers(self._pairs, size=shape, dtype="i4")[None, None]
        return SimpleNamespace(
            t=np.array([state.t]),
            queue=load.queue,
            counts=load.counts,
            spare=spare,
            lost=lost,
            draws=draws,
            reports=state.reports,
            recorded=recorded,
            named=None,
        )

    def _slot(self, time: Any) -> int | None:
        """Return the step of the day, if it is observed. Raises DecisionError."""
        if self.daily_mean is None:
            if time is not None and self.rule is None and self.arrivals == "known":
                raise DecisionError(
                    "time", "is not used: this team does not observe the time; omit it"
                )
            return None if time is None else slot_of(time, 1)
        if time is None:
            raise DecisionError(
                "time",
                "is missing: this team observes its mean load by time of day; pass ISO-8601, such "
                "as 2026-03-01T12:05:00Z",
            )
        return slot_of(time, len(self.daily_mean))

    def _initial(self) -> Any:
        return None if self.actor is None else self.actor.initial()

    def _row(self, state: Any, back: int = 0) -> Array:
        return FIRST

    def _expected(self, state: Any, row: Array) -> Array:
        mean: Array = state.mean
        return mean


FIRST = np.zeros(1, dtype=np.int64)
"""The only row of the current load."""


def about_rule(about: Mapping[str, Any], rule: str, arrivals: str | None = None) -> dict[str, Any]:
    """Return ``about`` for the same nodes and a rule, amount/route. The rule forwards to the
    request, as in a replay, and accepts any number of requests.

    ``arrivals``: "known" or "unknown"; default: as in ``about``. Raises ValueError,
    UnknownNameError.
    """
    amount, _, route = rule.partition("/")
    if amount == "random" or route == "choose":
        raise ValueError(f"{rule}: not a rule for decisions; pass one such as overflow/capacity")
    parsed = PlainRule.of(rule)
    if parsed.within_links and "link_limit" not in about:
        raise ValueError(f"{rule}: this export has no link limit; export it again")
    default_arrivals = about.get("arrivals", "known")
    return {
        **{key: value for key, value in about.items() if key not in OF_NETWORKS},
        "rule": parsed.amount_text,
        "route": parsed.route,
        "observation": "every",
        "requests": None,
        "arrivals": arrivals or default_arrivals,
        "last_counts": about.get("last_counts", 0) if arrivals in (None, default_arrivals) else 0,
        "amount": None,
        "daily_mean": None,
        "caps": None,
    }


def digest_of(about: Mapping[str, Any], more: str = "") -> str:
    """Return a SHA-256 digest of JSON values and a text."""
    text = json.dumps(about, sort_keys=True) + more
    return hashlib.sha256(text.encode()).hexdigest()


class _Present:
    """The load of the current step: the single row of a ``Recorded`` in the state."""

    def at(self, state: Any, row: Array) -> Array:
        load: Array = state.recorded.at(state, row)
        return load

    def observed(self, state: Any, row: Array) -> tuple[Array, Array]:
        load: tuple[Array, Array] = state.recorded.observed(state, row)
        return load

    def counted(self, state: Any, row: Array, back: int) -> Array:
        counts: Array = state.counts[back - 1]
        return counts
