"""The report of a rehearsal in a browser: every width and scheme, charts, hidden policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser.conftest import Opened
from browser.test_report import OVERLAPS

import corral
from support.loads import days

POLICIES = ["local", "backlog=0.75/least", "room", "choices", "weighted-round-robin", "random"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = corral.rehearse(
        days(7), [*POLICIES, "overflow"], queue=8, forward_cost=0.2, compiled=False
    )
    return result.write(tmp_path_factory.mktemp("rehearsal"))["report.html"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_and_words_do_not_overlap(
    report: Path, open_page: Opened, width: int, scheme: str
) -> None:
    page = open_page(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERLAPS) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128
    assert light is (scheme == "light")


def test_a_hidden_policy_leaves_tables_charts_and_legends(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    room = page.locator("[data-policy='room']")
    visible = room.evaluate_all("all => all.filter(e => e.getBoundingClientRect().width).length")
    assert visible == 9  # rows of three tables, and curves and entries of three charts
    page.locator(".controls summary").click()
    page.locator(".chips button", has_text="room").first.click()
    assert room.evaluate_all("all => all.filter(e => !e.hasAttribute('hidden')).length") == 0


def test_the_page_is_complete_without_its_script(report: Path, open_page: Opened) -> None:
    page = open_page(report, 390, script=False)
    assert page.locator("figure svg path[data-policy]").count() == 18  # six in each chart
    assert page.locator("button, select").count() == 0
