"""Plain rules in words, and as code for the configuration of a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.envs.dfaas_v0.plain_rules import STATIC, PlainRule

__all__ = ["WIDTH", "pseudo_code_of", "sentence_of", "short_of"]

# --- One sentence --------------------------------------------------------------------------------

ONE_BY_ONE = {
    "equal": "to its neighbors in turn",
    "weighted": "to its neighbors in turn, in proportion to their capacity",
    "least": "to the neighbor with the most reported spare capacity, less the requests sent there "
    "in this step",
    "two-choices": "to the better of two neighbors drawn at random: the one with more reported "
    "spare capacity, less the requests sent there in this step",
    "fill": "to one neighbor up to its limit, then to the next, the most reported spare capacity "
    "first",
}
TOGETHER = {
    "shortest": "sends {} to the neighbor with the most reported spare capacity",
    "two": "sends {} to the better of two neighbors drawn at random: the one with more reported "
    "spare capacity",
    "capacity": "divides {} among its neighbors in proportion to their capacity",
    "spare": "divides {} among its neighbors in proportion to their reported spare capacity",
}


def sentence_of(rule: PlainRule, settings: Mapping[str, Any] | None = None) -> str:
    """Return the rule in one sentence.

    ``settings`` are arguments of dfaas_v0. With them, the sentence states ``queue`` and
    ``link_limit`` in requests.
    """
    if rule.amount == "local":
        return "A node serves all its requests itself and forwards none."
    settings = settings or {}
    share = _share(rule)
    one_by_one = rule.route in ONE_BY_ONE
    if share is not None:
        requests = f"{share} of its requests"
        start = "A node"
    else:
        requests = "each further request" if one_by_one else "all further requests"
        start = f"A node keeps {_kept(rule, settings)}, then"
    action = f"sends {requests} {ONE_BY_ONE[rule.route]}" if one_by_one else ""
    action = action or TOGETHER[rule.route].format(requests)
    return f"{start} {action}{_at_most(rule, settings)}."


IN_SHORT = {
    "equal": "in turn",
    "weighted": "in proportion to capacity",
    "least": "to the most reported spare capacity",
    "two-choices": "to the better of two at random",
    "fill": "to one neighbor after the other",
    "shortest": "of a step to one neighbor",
    "two": "of a step to the better of two at random",
    "capacity": "divided by capacity",
    "spare": "divided by reported spare capacity",
}


def short_of(rule: PlainRule) -> str:
    """Return the rule in a few words, such as "local first, overflow in turn"."""
    if rule.amount == "local":
        return "each node serves its own requests"
    share = _share(rule)
    if share is not None:
        return f"{share} of each node's requests to its neighbors, {IN_SHORT[rule.route]}"
    waits = rule.amount.startswith("patient") or (rule.amount == "backlog" and bool(rule.number))
    first = "local capacity and queue first" if waits else "local first"
    return f"{first}, overflow {IN_SHORT[rule.route]}"


def _share(rule: PlainRule) -> str | None:
    if rule.amount == "random":
        return "a random share"
    if rule.amount == "static":
        return f"{100 * STATIC:g} %"
    return f"{100 * (rule.number or 0):g} %" if rule.amount == "share" else None


def _kept(rule: PlainRule, settings: Mapping[str, Any]) -> str:
    if rule.amount == "backlog":
        if not rule.number or settings.get("queue") == 0:
            return "requests until they and its queue fill its capacity"
        if "queue" in settings:
            queue = int(settings["queue"])
            part = f"{rule.places(queue)} places in its queue of {queue}"
        else:
            part = f"{100 * rule.number:g} % of its queue"
        return f"requests until its capacity and {part} are used"
    if rule.amount.startswith("patient"):
        return "requests until its capacity and its queue are used"
    share = {"threshold": 0.8, "capacity": rule.number}.get(rule.amount) or 1
    of = "" if share == 1 else f"{100 * share:g} % of "
    return f"the first requests of a step, up to {of}its capacity"


def _at_most(rule: PlainRule, settings: Mapping[str, Any]) -> str:
    if rule.amount.endswith("margin"):
        return ", at most the total spare capacity that its neighbors reported"
    bounds = []
    limit = settings.get("link_limit")
    if rule.within_links and limit is not None:
        bounds.append(f"{limit}")
    if rule.margin is not None:
        times = "" if rule.margin == 1 else f"{rule.margin:g} times "
        bounds.append(f"{times}its reported spare capacity")
    return f", at most {' and '.join(bounds)} to each" if bounds else ""


# --- Code ----------------------------------------------------------------------------------------

WIDTH = 76
"""Longest line of pseudo-code; a terminal of 80 columns shows it indented by four."""

CHOSEN = {
    "equal": "min({}, key=lambda n: sent[n])",
    "weighted": "min({}, key=use)",
    "least": "max({}, key=lambda n: spare[n] - sent[n])",
    "two-choices": "max(choices({}, k=2), key=lambda n: spare[n] - sent[n])",
    "fill": "max({}, key=lambda n: spare[n])",
}
"""The neighbor for the next request, among the neighbors below their limit."""

USE = "lambda n: (sent[n] + 1) / max(capacity[n], 1e-9)"

TARGETS = {
    "shortest": "max(neighbours, key=lambda n: spare[n])",
    "two": "max(choices(neighbours, k=2), key=lambda n: spare[n])",
}
"""The neighbor for all requests of a step."""


def pseudo_code_of(rule: PlainRule, settings: Mapping[str, Any]) -> str:
    """Return the rule in a few lines of Python-like code, of at most ``WIDTH`` characters.

    c is the capacity of the step, q the requests that wait at its start, and a its arrivals.
    neighbours are in cyclic order, and spare[n] is the spare capacity that neighbor n reported.
    ``settings`` are arguments of dfaas_v0; ``queue`` and ``link_limit`` are filled in.
    """
    if rule.amount == "local":
        return "at each request:\n    serve here"
    queue, limit = int(settings.get("queue") or 0), settings.get("link_limit")
    if rule.route in ("capacity", "spare"):
        return _divided(rule, queue, _cap(rule, limit))
    step = {"sent": "dict.fromkeys(neighbours, 0)"}
    keeps, lines = "kept < keep", []
    if rule.amount in ("share", "static", "random"):
        number = rule.number if rule.amount == "share" else STATIC
        share = "share" if rule.amount == "random" else f"{number:g}"
        step |= {"m": "0"} | ({"share": "random()"} if rule.amount == "random" else {})
        keeps = f"ceil({share} * m - 1e-9) == ceil({share} * (m - 1) - 1e-9)"
        lines.append("m += 1")
        served = "serve here"
    else:
        step |= {"keep": _keep(rule, queue), "kept": "0"}
        served = "serve here; kept += 1"
    if rule.route in TARGETS:
        step["first"] = TARGETS[rule.route]
    if rule.route == "weighted":
        step["use"] = USE
    free = "neighbours"
    cap = _cap(rule, limit)
    if cap is not None:
        free = "free"
        if rule.amount.endswith("margin"):
            step["room"] = "sum(spare.values())"
            cap = "sum(sent.values()) < room"
        elif " " in (bound := cap.removeprefix("sent[n] < ")):
            step["limit"] = f"{{n: {bound} for n in neighbours}}"
            cap = "sent[n] < limit[n]"
        lines.append(f"free = [n for n in neighbours if {cap}]")
    full = " or not free" * (cap is not None)
    if len(f"    if {keeps}{full}: {served}") > WIDTH:
        lines.append(f"stays = {keeps}")
        keeps = "stays"
    lines.append(f"if {keeps}{full}: {served}")
    if rule.route in CHOSEN:
        chosen = CHOSEN[rule.route].format(free)
    else:
        chosen = "first" if cap is None else "first if first in free else free[0]"
    lines += ["else:", f"    n = {chosen}", "    send to n; sent[n] += 1"]
    begin = [f"{', '.join(step)} = {', '.join(step.values())}"]
    if len(begin[0]) + 4 > WIDTH:
        begin = [f"{name} = {value}" for name, value in step.items()]
    return "\n".join(["at each step:", *_indented(begin), "at each request:", *_indented(lines)])


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _keep(rule: PlainRule, queue: int) -> str:
    if rule.amount == "backlog":
        places = rule.places(queue)
        return f"max(0, c{f' + {places}' if places else ''} - q)" if queue else "c"
    if rule.amount.startswith("patient"):
        return f"c + {queue} - q" if queue else "c"
    if rule.amount == "threshold":
        return "c * 4 // 5"
    if rule.amount == "capacity" and rule.number != 1:
        return f"floor({rule.number:g} * c + 1e-9)"
    return "c"


def _cap(rule: PlainRule, limit: int | None) -> str | None:
    """Return the condition for sending one more request to a neighbor; None: always."""
    if rule.amount.endswith("margin"):
        return "sum(sent.values()) < sum(spare.values())"
    bounds = []
    if rule.within_links and limit is not None:
        bounds.append(f"{limit}")
    if rule.margin is not None:
        whole = rule.margin == int(rule.margin)
        times = "" if rule.margin == 1 else f"{rule.margin:g} * "
        bounds.append(f"{times}spare[n]" if whole else f"floor({times}spare[n] + 1e-9)")
    if not bounds:
        return None
    return "sent[n] < " + (bounds[0] if len(bounds) == 1 else f"min({', '.join(bounds)})")


def _divided(rule: PlainRule, queue: int, cap: str | None) -> str:
    """Return the code of a rule that divides the requests of a step among the neighbors."""
    keep = _keep(rule, queue)
    go = f"max(0, a - {f'({keep})' if ' ' in keep else keep})"
    if rule.amount in ("share", "static", "random"):
        name = "random()" if rule.amount == "random" else f"{rule.number or STATIC:g}"
        go = f"floor({name} * a)" if rule.amount == "static" else f"ceil({name} * a)"
    if rule.amount.endswith("margin"):
        go = f"min({go}, sum(spare.values()))"
        cap = None
    weights = "capacity" if rule.route == "capacity" else "spare"
    lines = [
        f"f = {go}",
        f"total = sum({weights}.values())",
        f"for n in neighbours: send floor(f * {weights}[n] / total) to n",
        "send the rest of f one by one, in turn",
    ]
    if cap is not None:
        lines.append(f"but to n only while {cap}")
    return "\n".join(["at each step:", *_indented([*lines, "serve all other requests here"])])
