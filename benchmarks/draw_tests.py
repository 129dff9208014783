"""A plugin of pytest: ``pytest -p draw_tests --draw 0.05`` runs a share of the parameters of each
test, at least one."""

from __future__ import annotations

import math
import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draw", type=float, default=1.0, help="share of the parameters of a test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    share, rng = config.getoption("--draw"), random.Random(0)
    drawn = {
        id(item)
        for own in by_test.values()
        for item in rng.sample(own, math.ceil(share * len(own)))
    }
    items[:] = [item for item in items if id(item) in drawn]
