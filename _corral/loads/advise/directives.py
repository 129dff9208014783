"""Policies as directives of NGINX, HAProxy and Envoy, for the proxies of an operator.

A directive counts the requests in flight that its own proxy has sent. A rule counts the requests of
a step, and a balancer may need the backlogs of all servers. docs/gateway.md shows whole blocks.

NGINX shares its counts among worker processes only with ``zone``. Envoy weighs differently from the
other two, so its methods do the same only with equal weights.

Sources: the manuals of ngx_http_upstream_module, HAProxy (``balance``, ``srv_conn``) and Envoy
(``lb_policy``, ``load_balancing_policies.least_request.v3``).
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from corral.envs.dfaas_v0.plain_rules import STATIC, PlainRule
from corral.loads.advise.rehearsed import Rehearsed
from corral.loads.advise.verdict import LOCAL
from corral.loads.advise.words import requests

__all__ = ["EXACT", "directive_of_balancer", "directive_of_rule"]

FULL_SCAN = "LEAST_REQUEST with selection_method: FULL_SCAN (newer versions, equal weights)"

EXACT = {
    "round-robin": "NGINX: its default; HAProxy: balance roundrobin; Envoy: ROUND_ROBIN",
    "least-requests": "NGINX: least_conn with zone; HAProxy: balance leastconn (both with weights "
    f"in proportion to capacity); Envoy: {FULL_SCAN}",
    "choices=2": "NGINX: random two least_conn with zone; HAProxy: balance random(2); "
    "Envoy: LEAST_REQUEST (equal weights)",
    "shortest-queue": "NGINX: least_conn with zone; HAProxy: balance leastconn; "
    f"Envoy: {FULL_SCAN}",
}
"""Balancer -> directives that do the same."""

WHERE = {"shortest-queue": " in one balancer in front of all servers, which needs no reports"}
"""Balancer -> the only place where its directives do the same."""

NONE = "No directive of NGINX, HAProxy or Envoy does this"
CODE = "The pseudo-code of the balancer is in report.html."

METHODS = {
    "equal": ("", "roundrobin"),
    "weighted": ("weights in proportion to capacity, ", "roundrobin with weights"),
    "least": ("least_conn, ", "leastconn"),
    "two-choices": ("least_conn, ", "leastconn"),
    "fill": (None, "first with maxconn=S for each server"),
}
"""Route -> methods of NGINX and HAProxy among the other servers; None: no method. They know no
reports of spare capacity; their own counts take that place."""

MAX_WEIGHT = 256
"""Maximum weight of a server in HAProxy. NGINX and Envoy allow larger ones. All three need whole
numbers."""


def directive_of_balancer(rehearsed: Rehearsed) -> str:
    """Return the directives for the recommended balancer. Without any, name the cheapest balancer
    of the rehearsal that has some."""
    assert rehearsed.better is not None
    name, played = rehearsed.better.name, rehearsed.played
    if name in EXACT:
        return f"As a directive{WHERE.get(name, '')}: {EXACT[name]}."
    costs = {label: played.daily(costs.cost) for label, costs in played.deterministic.items()}
    cheapest = min(EXACT, key=costs.__getitem__)
    if costs[cheapest] >= costs[rehearsed.today]:
        dear = "The balancers that have a directive cost no less than today's rule here."
        return f"{NONE}. {CODE} {dear}"
    least = f"{cheapest} costs least here, {requests(costs[cheapest])} {played.a_day}"
    return f"{NONE}. {CODE} With one, {least}{WHERE.get(cheapest, '')}: {EXACT[cheapest]}."


def directive_of_rule(label: str, settings: Mapping[str, Any], nodes: int) -> str:
    """Return the directives for a rule, or the nearest ones; "" for one that forwards nothing."""
    rule = PlainRule.of(label)
    keeps_all = rule.amount == "share" and not rule.number and rule.margin is None
    if label == LOCAL or rule.amount == "local" or keeps_all:
        return ""
    if rule.amount in ("share", "static") and rule.margin is None and rule.route == "equal":
        share = STATIC if rule.amount == "static" else rule.number or 0.0
        if share == 1:
            return f"As a directive, without the own server: {EXACT['round-robin']}."
        weights = _whole_weights((1 - share) * (nodes - 1), share)
        haproxy = "weight" if max(weights) <= MAX_WEIGHT else f"none, at most {MAX_WEIGHT}"
        return (
            f"As weights of the own server and each other one, {weights[0]} to {weights[1]}: "
            f"NGINX: weight; HAProxy: {haproxy}; Envoy: load_balancing_weight."
        )
    counts = rule.amount in ("overflow", "threshold", "patient", "backlog", "capacity")
    if not counts or rule.margin is not None or rule.route not in METHODS:
        return f"{NONE}."
    queue = int(settings.get("queue") or 0)
    places = queue if rule.amount == "patient" else 0
    places = rule.places(queue) if rule.amount == "backlog" else places
    among, method = METHODS[rule.route]
    nginx = (
        "none, as backup servers take turns"
        if among is None
        else f"{among}zone, max_conns=S for the own server, backup for the others (one balancer in "
        "front: its default, zone, max_conns=S for each)"
    )
    part = {"threshold": 0.8, "capacity": rule.number}.get(rule.amount) or 1
    of = f"{100 * part:g} % of " * (part != 1)
    more = f" plus {places}" * bool(places)
    return (
        "No directive counts the requests of a step. The nearest ones count those in flight, at "
        f"most S: {of}the number that a server works on at once{more}. NGINX: {nginx}; "
        f"HAProxy: use_backend others if {{ srv_conn(own/NAME) ge S }}, there balance {method}; "
        "Envoy: none."
    )


def _whole_weights(first: float, second: float) -> tuple[int, int]:
    """Return whole numbers from 1 in nearly the same ratio, at most ``MAX_WEIGHT`` if possible."""
    small, large = sorted((first, second))
    if large > MAX_WEIGHT * small:
        weights = 1, round(large / small)
    else:
        weights = Fraction(small / large).limit_denominator(MAX_WEIGHT).as_integer_ratio()
    return weights if first <= second else weights[::-1]
