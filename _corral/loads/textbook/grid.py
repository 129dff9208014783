"""The plain rules of a race: a coarse grid, and the neighbors of a rule."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plain_rules import AMOUNTS, STATIC, PlainRule
from corral.envs.dfaas_v0.routes import Route
from corral.errors import ArgumentError

__all__ = ["TODAY", "coarse", "near", "of_routes", "routes_of"]

TODAY = (
    "local/equal",
    *(
        f"{amount}/{route}"
        for amount in AMOUNTS
        if amount not in ("local", "random")
        for route in ("equal", "capacity", "spare", "all-to-shortest", "all-to-two")
    ),
)
"""Rules without a number that split all requests of a step at once."""

FAST: tuple[Route, ...] = ("equal", "weighted", "least", "fill", "shortest", "two")
ONE_BY_ONE: Route = "two-choices"
"""A route that loops over requests."""
BY_COUNT: tuple[Route, ...] = ("capacity", "spare")
"""Routes that divide a number of requests, which must be known beforehand."""

BACKLOGS = (0, 0.25, 0.5, 0.75, 1, 1.5, 2.5)
CAPACITIES = (0.4, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5)
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6)
MARGINS = (0.5, 1, 2)
WITH_MARGINS = {"backlog": (0.25, 0.6, 1), "capacity": (0.8, 1, 1.2)}
"""Numbers that the grid combines with margins."""

AS_TUNED: dict[str, tuple[str, float, float | None]] = {
    "static": ("share", STATIC, None),
    "overflow": ("capacity", 1, None),
    "threshold": ("capacity", 0.8, None),
    "margin": ("capacity", 1, 1),
    "patient": ("backlog", 1, None),
    "patient-margin": ("backlog", 1, 1),
}
"""Amount without a number -> the nearest amount with a number, its number and margin."""

STEPS = {"backlog": 0.25, "capacity": 0.1, "share": 0.05}
"""Approximate distance between the numbers of an amount in the grid."""


def routes_of(route: str | None, arrivals: str) -> tuple[Route, ...]:
    """Return the routes to try: ``route``, or all routes possible with ``arrivals``."""
    possible = (*FAST, ONE_BY_ONE, *(BY_COUNT if arrivals == "known" else ()))
    if route is None:
        return possible
    requested = PlainRule.of(f"local/{route}").route
    if requested in BY_COUNT and arrivals != "known":
        raise ArgumentError(
            f"route={route!r} divides the requests of a step, so it needs their number beforehand. "
            f"With arrivals='unknown' give one of {', '.join([*FAST, ONE_BY_ONE])}"
        )
    return (requested,)


def coarse(rules: DfaasRules, routes: Sequence[Route]) -> list[PlainRule]:
    """Return the first rules of a race: all amounts without a number, and a grid of numbers."""
    named = [
        PlainRule(amount, route)
        for amount in ("local", *AS_TUNED)
        for route in routes
        if rules.queue
        or not amount.startswith("patient")  # without a queue, they equal overflow and margin
    ]
    numbers = {"backlog": BACKLOGS if rules.queue else (), "capacity": CAPACITIES, "share": SHARES}
    tuned = [
        PlainRule(amount, route, number)
        for amount, values in numbers.items()
        for number in values
        for route in routes
    ]
    tuned += [
        PlainRule(amount, route, number, margin)
        for amount, values in WITH_MARGINS.items()
        if numbers[amount]
        for number in values
        for margin in MARGINS
        for route in routes
    ]
    return distinct([*named, *tuned], rules)


def near(rule: PlainRule, step: float, rules: DfaasRules) -> list[PlainRule]:
    """Return rules with another number or another margin.

    The number differs by ``step`` times the distance in the grid. For a rule without a number,
    return the neighbors of the nearest rule with a number.
    """
    if rule.amount in ("local", "random"):
        return []
    if rule.number is None or (rule.amount == "backlog" and not rules.queue):
        amount, number, margin = AS_TUNED.get(rule.amount, AS_TUNED["overflow"])
        if amount == "backlog" and not rules.queue:
            amount = "capacity"
        rule = PlainRule(amount, rule.route, number, margin)
        return distinct([rule, *near(rule, step, rules)], rules)
    maximum = 1.0 if rule.amount == "share" else math.inf
    width = step * STEPS[rule.amount]
    if rule.amount == "backlog":
        width = max(width, 1 / rules.queue)  # one request
    numbers = [number for sign in (-1, 1) if 0 <= (number := rule.number + sign * width) <= maximum]
    candidates = [dataclasses.replace(rule, number=number) for number in numbers]
    margins: list[float | None] = [*MARGINS]
    if rule.margin is not None:
        width = 0.5 * step * min(rule.margin, 1)
        margins = [None, rule.margin - width, rule.margin + width]
    candidates += [
        dataclasses.replace(rule, margin=None if margin is None else round(margin, 3))
        for margin in margins
    ]
    return distinct(candidates, rules)


def of_routes(rule: PlainRule, routes: Iterable[Route]) -> list[PlainRule]:
    """Return copies of ``rule`` with each of the routes."""
    return [dataclasses.replace(rule, route=route) for route in routes]


def distinct(candidates: Iterable[PlainRule], rules: DfaasRules) -> list[PlainRule]:
    """Return the rules with short numbers, without duplicates."""
    return list({short(rule, rules.queue): None for rule in candidates})


def short(rule: PlainRule, queue: int) -> PlainRule:
    """Return an equivalent rule with few digits in its number."""
    if rule.amount == "local":
        return PlainRule("local")
    if rule.number is None:
        return rule
    if rule.amount == "backlog" and queue:
        return dataclasses.replace(rule, number=_of_places(rule.places(queue), queue))
    return dataclasses.replace(rule, number=round(rule.number, 4))


def _of_places(places: int, queue: int) -> float:
    """Return the number x with the fewest digits for a backlog of ``places`` = floor(x * queue)."""
    exact = round(places / queue, 3)
    if exact * queue == places:
        return exact
    for digits in range(1, 10):
        parts = float(10**digits)
        number = math.ceil(places / queue * parts - 1e-9) / parts
        if PlainRule("backlog", number=number).places(queue) == places:
            return number
    return places / queue
