"""The page "Plug it in" is true: what needs no other framework runs, its links lead somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from support import forked

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "plug_it_in.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


RUN_HERE = {
    "For frameworks that read infos": "pettingzoo",
    "Gymnasium": "gymnasium",
    "Stable-Baselines3 and sb3-contrib": "stable_baselines3",
}


@pytest.mark.parametrize(("title", "needs"), RUN_HERE.items())
def test_what_needs_no_other_framework_runs(title: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    (code,) = blocks(section(title))
    done = forked.run(["-c", code], folder=tmp_path)
    assert done.returncode == 0, done.stderr


EXAMINED = "Does your learner learn?"


def test_the_learner_of_the_page_can_be_examined() -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    from corral.lab.doctor.examination import examination

    (code,) = blocks(section(EXAMINED))
    named: dict[str, Any] = {}
    exec(compile(code, "page", "exec"), named)
    (result,) = examination(named["learn"], ["P6"]).results
    assert not result.error
    assert result.kinds(True) == {"P6 masks"}  # it plays the lowest legal action


def test_all_code_is_python() -> None:
    assert len(blocks(PAGE)) > 6
    for code in blocks(PAGE):
        ast.parse(re.sub(r"^return ", "", code, flags=re.MULTILINE))


def test_what_does_not_run_here_says_so() -> None:
    """Excerpts name their program, and blocks that need another framework its extra."""
    assert not re.search(r"^```\n(?!$)[^`]*^```$", PAGE.replace("```python", "~~~"), re.MULTILINE)
    titles = [*RUN_HERE, EXAMINED]
    runs = [code for title in titles for code in blocks(section(title))]
    for code in blocks(PAGE):
        first = code.splitlines()[0]
        if code in runs:
            continue
        if found := re.match(r"# excerpt of (\S+\.py)", first):
            assert (DOCS / found[1]).exists(), first
        else:
            assert re.fullmatch(r"# needs pip install '\.\[\w+\]'", first), first


def test_links_and_anchors_lead_somewhere() -> None:
    titles = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles}
    targets = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(targets) > 10
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in anchors, target
        else:
            assert (DOCS / target).exists(), target


def test_every_example_is_on_the_page() -> None:
    for path in (DOCS / "plug_it_in").glob("*.py"):
        assert f"plug_it_in/{path.name}" in PAGE, path.name
