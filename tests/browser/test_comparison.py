"""The page of a comparison in a browser: it fits, every run is shown, groups hide and show."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from browser.conftest import Opened

from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import Group, Member


def group(name: str, *scores: float) -> Group:
    steps = np.linspace(0, 2e5, 20)
    return tuple(
        Member(f"runs/compare-arena_v0/{name}-seed{k}", k, 200_000, score, steps, score * steps)
        for k, score in enumerate(scores)
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    groups = {"mappo": group("mappo", 1, 2, 3, 4, 5), "ippo": group("ippo", 2, 3, 1, 0.5, 2)}
    found = Comparison("arena_v0", "return", groups, versions={"corral": "1"})
    return found.write(tmp_path_factory.mktemp("comparison"))["report.html"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_and_shows_every_run(
    report: Path, open_page: Opened, width: int, scheme: str
) -> None:
    page = open_page(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name in ("mappo", "ippo"):
        for k in range(5):
            words = f"runs/compare-arena_v0/{name}-seed{k}"
            assert page.locator("td", has_text=words).is_visible()
            assert page.locator(f'path[data-name="{name}: {words}"]').is_visible()


def test_a_group_is_hidden_everywhere(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    summary = page.locator(".controls summary")
    assert summary.inner_text() == "Groups shown: 2 of 2"
    summary.click()
    page.locator(".chips").get_by_role("button", name="mappo", exact=True).click()
    assert summary.inner_text() == "Groups shown: 1 of 2"
    own = page.locator('[data-policy="mappo"], [data-run="mappo"]')
    assert own.count() == 1 + 1 + 5 + 5 + 1  # group, dots, runs, curves, legend
    assert not any(each.is_visible() for each in own.all())
    assert page.locator('[data-run="ippo"]').count() == 6
