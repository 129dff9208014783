"""The report of an advice in a browser: one screen, folded sections, two printed pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser.conftest import Opened
from browser.test_report import OVERLAPS

import corral
from corral.data import write_trace
from support.loads import days

HEIGHTS = {1280: 2_600, 390: 3_600}
"""Most pixels of the page, by its width, with all sections folded."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advice")
    load = folder / "loads.csv"
    write_trace(days(8), load)
    corral.advise(load, train=False, out=folder, queue=5, forward_cost=0.1, route="equal")
    return folder / "report.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_folded_page_is_short_and_fits(
    report: Path, open_page: Opened, width: int, scheme: str
) -> None:
    page = open_page(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollHeight") <= HEIGHTS[width]
    assert page.evaluate(OVERLAPS) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128
    assert light is (scheme == "light")
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(OVERLAPS) == []


def test_verdict_and_picture_are_seen_without_scrolling(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    box = page.locator("figure.node").first.bounding_box()
    assert box["y"] + box["height"] < 900
    assert page.locator(".verdict").bounding_box()["y"] < box["y"]


def test_no_option_of_a_command_is_broken_on_a_phone(report: Path, open_page: Opened) -> None:
    lines = """[...document.querySelectorAll('.commands')].flatMap(block => {
      const words = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
      const broken = [];
      for (let node; (node = words.nextNode());)
        for (const option of node.data.matchAll(/--[a-z-]+/g)) {
          const range = document.createRange();
          range.setStart(node, option.index);
          range.setEnd(node, option.index + option[0].length);
          if (range.getClientRects().length > 1) broken.push(option[0]);
        }
      return broken;
    })"""
    for width in range(300, 480, 12):
        assert open_page(report, width).evaluate(lines) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_prints_on_two_pages(report: Path, open_page: Opened, scheme: str) -> None:
    printed = open_page(report, 1280, scheme).pdf(format="A4", print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 2
    page = open_page(report, 1280, scheme)
    page.emulate_media(media="print")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert min(map(int, re.findall(r"\d+", ground)[:3])) > 240


def test_a_folded_section_opens_and_its_charts_have_their_own_days(
    report: Path, open_page: Opened
) -> None:
    page = open_page(report)
    sections = page.locator("details.part")
    heading = page.locator("summary", has_text="Each server over time")
    figures = page.locator("figure.node")
    assert sections.count() >= 6
    assert figures.count() == 4  # all servers, and each of three
    assert not figures.nth(1).is_visible()
    heading.click()
    assert figures.nth(1).is_visible()
    whole = figures.nth(1).locator("svg").first.get_attribute("viewBox")
    page.locator(".zoomer select").first.select_option(index=1)
    assert figures.nth(0).locator("svg").first.get_attribute("viewBox") != whole
    assert figures.nth(1).locator("svg").first.get_attribute("viewBox") == whole
