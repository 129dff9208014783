"""Colors of page.css can be read, on light pages and on dark ones: computed from the CSS itself."""

from __future__ import annotations

import re
from importlib import resources

import pytest

CSS = resources.files("corral.trainers.report").joinpath("page.css").read_text(encoding="utf-8")
LEAST_TEXT, LEAST_MARK = 4.5, 3.0  # WCAG 2.1: 1.4.3 and 1.4.11
SCHEMES = ("light", "dark")
WORDS = {"ink", "soft"}
"""Variables that text may be colored with."""
GROUNDS = {"paper", "answer", "team", "button"}
MARKS = {"blue", "red", "green", "purple", "sky", "orange", "gray", "strong"}
RULES = {"rule"}
"""Lines that tell nothing by themselves: between the lines of a table, at midnights."""


def variables(scheme: str) -> dict[str, str]:
    light, dark = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    found = dict(re.findall(r"--(\w+): (#\w{6})", light))
    other = dict(re.findall(r"--(\w+): (#\w{6})", dark))
    assert set(found) == set(other)
    return found if scheme == "light" else other


def luminance(color: str) -> float:
    """Relative luminance, as WCAG defines it."""
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(color: str, opacity: float, ground: str) -> str:
    pairs = ((int(color[k : k + 2], 16), int(ground[k : k + 2], 16)) for k in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * a + (1 - opacity) * b):02x}" for a, b in pairs)


def used(what: str) -> set[str]:
    """Names of the variables that some property is set to."""
    values = re.findall(rf"(?<![-\w])(?:{what})\s*:([^;}}]*)", CSS)
    return {name for value in values for name in re.findall(r"var\(--(\w+)\)", value)}


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


def test_every_color_is_a_variable_that_is_checked_below() -> None:
    rest = re.sub(r":root \{.*?\}", "", CSS, flags=re.DOTALL)
    assert re.findall(r"#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(", rest) == []
    assert used("color") <= WORDS
    assert used("background") <= GROUNDS | MARKS | WORDS
    assert used("fill|stroke|border[\\w-]*|outline") <= MARKS | RULES | WORDS | {"paper"}
    assert set(variables("light")) == WORDS | GROUNDS | MARKS | RULES


@pytest.mark.parametrize("scheme", SCHEMES)
def test_text_can_be_read_on_every_ground(scheme: str) -> None:
    colors = variables(scheme)
    found = {(w, g): contrast(colors[w], colors[g]) for w in WORDS for g in GROUNDS}
    assert {pair: c for pair, c in found.items() if c < LEAST_TEXT} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_marks_can_be_told_from_the_page(scheme: str) -> None:
    colors = variables(scheme)
    drawn = {name: colors[name] for name in MARKS}
    opacity = re.search(r"\.fill-arrivals \{ fill: var\(--blue\); fill-opacity: ([\d.]+)", CSS)
    assert opacity is not None
    drawn["arrivals"] = mixed(colors["blue"], float(opacity[1]), colors["paper"])
    found = {name: contrast(color, colors["paper"]) for name, color in drawn.items()}
    assert {name: c for name, c in found.items() if c < LEAST_MARK} == {}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_page_is_of_the_scheme_that_it_says(scheme: str) -> None:
    colors = variables(scheme)
    assert (luminance(colors["paper"]) > luminance(colors["ink"])) is (scheme == "light")
