"""The report in a browser: sorted, hidden and shown, zoomed, its values told; whole without."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser.conftest import Opened

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.envs.policy import RandomPolicy
from corral.loads.policy_picture import team_pictures
from corral.loads.replay import Replay, replay
from corral.loads.report import write_report
from corral.trainers.evaluation.players import Player
from corral.trainers.report.plots import LearningCurve
from support.messages import shown

ROWS = (100, 100 + 4 * 288)
POLICIES = ["local/equal", "overflow/equal", "random/equal"]
CURVES = [
    LearningCurve("mine", np.array([100, 200, 300]), np.array([np.nan, -9.0, -4.0])),
    LearningCurve("noise", np.array([100, 200, 300]), np.array([-30.0, -20.0, -25.0])),
]


@pytest.fixture(scope="module")
def result() -> Replay:
    rules = DfaasRules("edge3", rows=ROWS)
    team = Player(baseline_team("margin", rules), settings={"route": "spare"})
    noise = Player(dict.fromkeys(rules.agents, RandomPolicy()), deterministic=False)
    played = {"mine, greedy": team, "noise, sampled": noise, **{pair: pair for pair in POLICIES}}
    return replay("edge3", played, rows=ROWS)


@pytest.fixture(scope="module")
def report(result: Replay, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rules = DfaasRules("edge3", rows=ROWS)
    pictures = team_pictures(rules, baseline_team("margin", rules), "mine")
    folder = tmp_path_factory.mktemp("report")
    files = write_report(
        *(result, folder),
        learning=CURVES,
        levels={"random": -28.0},
        pictures=pictures,
    )
    return files["report.html"]


OVERLAPS = """[...document.querySelectorAll('.frame, .axis')].flatMap(frame => {
  const boxes = [...frame.querySelectorAll('span')].filter(span => span.offsetParent).map(span => {
    const range = document.createRange();
    range.selectNodeContents(span);  // the words, without the room around them
    return [span.textContent, range.getBoundingClientRect()];
  });
  return boxes.flatMap(([one, a], k) => boxes.slice(k + 1).filter(([, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)
    .map(([other]) => `${one} / ${other}`));
})"""


def names(page: Any, table: int = 0) -> list[str]:
    found = page.locator("table.sort").nth(table).locator("tbody tr td:first-child")
    return [text.strip() for text in found.all_inner_texts()]


# --- Every width and scheme ----------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_fits_and_has_the_colors_of_its_scheme(
    report: Path, open_page: Opened, width: int, scheme: str
) -> None:
    page = open_page(report, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128
    assert light is (scheme == "light")
    sizes = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => e.childNodes.length && "
        "[...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && "
        "e.offsetParent && !['SCRIPT', 'STYLE'].includes(e.tagName))"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 11  # pixels, at every width


@pytest.mark.parametrize("width", [390, 1280])
def test_words_of_axes_do_not_overlap(report: Path, open_page: Opened, width: int) -> None:
    page = open_page(report, width)
    overlaps = page.evaluate(OVERLAPS)
    assert overlaps == []


def test_the_answer_is_seen_without_scrolling(report: Path, open_page: Opened) -> None:
    page = open_page(report, 390)
    box = page.locator(".verdict").bounding_box()
    assert box["y"] + box["height"] < 700
    assert page.locator("h2").first.inner_text() == "Policies"


def test_without_a_script_the_page_is_whole(report: Path, open_page: Opened) -> None:
    page = open_page(report, 390, script=False)
    assert page.locator("table.sort tbody tr").count() == 6 + 3  # policies, servers
    assert page.locator("figure.node .frame svg path.fill-arrivals").count() == 3
    assert page.locator("button, select").count() == 0  # nothing that would do nothing


# --- What one can do -----------------------------------------------------------------------------


def test_a_table_is_sorted_by_a_click_and_by_a_key(
    report: Path, result: Replay, open_page: Opened
) -> None:
    page = open_page(report)
    lost = {s.policy: s.lost for s in result.scores if s.policy != "optimum"}
    heading = page.locator("table.sort").nth(0).get_by_role("button", name="lost a day")
    heading.click()
    assert [lost[name] for name in names(page)[:-1]] == sorted(lost.values())
    heading.focus()
    page.keyboard.press("Enter")
    assert [lost[name] for name in names(page)[:-1]] == sorted(lost.values(), reverse=True)
    sorted_by = page.locator("table.sort").nth(0).locator("th[aria-sort]")
    assert sorted_by.get_attribute("aria-sort") == "descending"
    page.locator("table.sort").nth(0).get_by_role("button", name="policy").click()
    assert names(page)[:-1] == sorted(names(page)[:-1])


def test_the_optimum_stays_last(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    for _ in range(2):
        page.locator("table.sort").nth(0).get_by_role("button", name="lost %").click()
        assert names(page)[-1] == "optimum"


def test_a_policy_is_hidden_everywhere_and_shown_again(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    page.locator(".controls summary").click()
    chip = page.locator(".chips").get_by_role("button", name="mine, greedy")
    own = page.locator('[data-policy="mine, greedy"], [data-run="mine"]')
    assert own.count() > 8
    assert all(each.is_visible() for each in own.locator("td:first-child").all())
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert not any(each.is_visible() for each in own.all())
    assert page.locator(".controls summary").inner_text() == "Policies shown: 5 of 6"
    assert page.locator('[data-run="noise"]').first.is_visible()
    chip.click()
    assert page.locator('tr[data-policy="mine, greedy"]').first.is_visible()
    page.locator(".chips").get_by_role("button", name="none").click()
    assert page.locator("tbody tr[data-policy]:visible").count() == 0
    page.locator(".chips").get_by_role("button", name="all", exact=True).click()
    assert page.locator("tbody tr[data-policy]:visible").count() == 6


def test_the_pointer_tells_the_values_of_a_step(
    report: Path, result: Replay, open_page: Opened
) -> None:
    page = open_page(report)
    frame = page.locator("figure.node .frame").first
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    page.mouse.move(box["x"] + 0.5 * box["width"] + 0.3, box["y"] + 20)
    said = page.locator("figure.node .tip").first.inner_text()
    row = ROWS[0] + (ROWS[1] - ROWS[0]) // 2
    assert said.split("\n")[0] == "Wed 7 Jan, 08:20 UTC"  # row 676 from Monday on
    assert f"arrivals: {result.trace.arrivals[row, 0]}" in said
    for words in ("capacity: ", "forwarded, mine, greedy: ", "lost, local/equal: "):
        assert words in said
    page.mouse.move(5, 5)
    assert not page.locator("figure.node .tip").first.is_visible()


def test_arrow_keys_tell_values_too(report: Path, result: Replay, open_page: Opened) -> None:
    page = open_page(report)
    frame = page.locator("figure.node .frame").first
    frame.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tip = page.locator("figure.node .tip").first
    assert f"arrivals: {result.trace.arrivals[ROWS[0] + 1, 0]}\n" in tip.inner_text()
    page.keyboard.press("Shift+ArrowRight")
    assert f"arrivals: {result.trace.arrivals[ROWS[0] + 11, 0]}\n" in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_one_zooms_to_a_day_and_back(report: Path, open_page: Opened, width: int) -> None:
    page = open_page(report, width)
    svg = page.locator("figure.node .frame svg").first
    whole = svg.get_attribute("viewBox")
    assert whole == "0 0 1152 100"
    select = page.locator(".zoomer select")
    select.select_option(label="Tue 2026-01-06")
    assert svg.get_attribute("viewBox") == "188 0 288 100"
    marks = page.locator("figure.node .axis").first.locator("span:visible").all_inner_texts()
    assert marks[0] == "UTC"
    assert "12:00" in marks
    assert 3 <= len(marks) <= (10 if width > 600 else 6)
    page.locator(".zoomer").get_by_role("button", name="next day").click()
    assert svg.get_attribute("viewBox") == "476 0 288 100"
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Escape")
    assert svg.get_attribute("viewBox") == whole
    assert "12:00" not in page.locator("figure.node .axis").first.inner_text()


def test_a_double_click_zooms_to_the_day_under_it(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    frame = page.locator("figure.node .frame").first
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    frame.dblclick(position={"x": 0.5 * box["width"], "y": 30})
    chosen = page.locator(".zoomer select").evaluate("each => each.selectedOptions[0].text")
    assert chosen == "Wed 2026-01-07"


def test_a_zoomed_day_shows_its_own_values(report: Path, result: Replay, open_page: Opened) -> None:
    page = open_page(report)
    page.locator(".zoomer select").select_option(label="Tue 2026-01-06")
    page.locator("figure.node .frame").first.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator("figure.node .tip").first.inner_text()
    shown(said.split("\n")[0], "00:00 UTC")
    assert f"arrivals: {result.trace.arrivals[288, 0]}\n" in said


def test_a_learning_curve_tells_its_points(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    frame = page.locator("figure.curves .frame")
    frame.scroll_into_view_if_needed()
    box = frame.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 5)  # the end of the best run
    assert page.locator("figure.curves .tip").inner_text().split("\n") == [
        *("mine", "300 env steps", "return -4"),
    ]


def test_a_heat_map_tells_its_cells(report: Path, open_page: Opened) -> None:
    page = open_page(report)
    frame = page.locator(".maps .frame").first
    frame.focus()
    page.keyboard.press("ArrowDown")
    for _ in range(30):
        page.keyboard.press("ArrowDown")
    said = page.locator(".maps .tip").first.inner_text().split("\n")
    assert said[0] == "arrivals 0, capacity 0"
    assert len(said) == 2  # and that the rows have no such load
