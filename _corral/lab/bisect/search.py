"""Delta debugging: search a smallest set of differences that makes a training fail.

    smallest((1, 2, 3, 4), lambda part: {2, 3} <= part)  # frozenset({2, 3})

Zeller, "Yesterday, my program worked. Today, it does not. Why?" (1999), halves the set. If neither
half fails, the failure needs differences of both: each half is searched while the other half is
present. So k differences that fail only together take about 2 k log2(n) tests. ``ddmin`` (Zeller
and Hildebrandt, 2002) tests more subsets, and a test here takes several trainings. Its guarantee
is checked at the end: without any single element the set does not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["smallest"]

Item = TypeVar("Item")


def smallest(
    items: Sequence[Item], fails: Callable[[frozenset[Item]], bool]
) -> frozenset[Item] | None:
    """Return a subset of ``items`` that fails, and does not fail without any one of its elements.

    ``items`` together must fail. None: the search ended with a set that does not fail, because
    tests contradicted each other.
    """
    chosen = _halved(tuple(items), frozenset(), fails)
    if len(chosen) < len(items) and not fails(chosen):
        return None
    for item in sorted(chosen, key=list(items).index) if len(chosen) > 1 else ():
        if len(chosen) > 1 and fails(chosen - {item}):
            chosen -= {item}
    return chosen


def _halved(
    items: tuple[Item, ...],
    present: frozenset[Item],
    fails: Callable[[frozenset[Item]], bool],
) -> frozenset[Item]:
    """Return the part of ``items`` that is necessary for a failure if ``present`` are present."""
    if len(items) == 1:
        return frozenset(items)
    first, second = items[: len(items) // 2], items[len(items) // 2 :]
    for half in (first, second):
        if fails(present.union(half)):
            return _halved(half, present, fails)
    return _halved(first, present.union(second), fails) | _halved(
        second, present.union(first), fails
    )
