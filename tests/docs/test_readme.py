"""The README is true: its snippets run, its links lead somewhere, its table is the demo's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_snippet_runs_in_the_order_of_the_page(tmp_path: Path) -> None:
    python, console = blocks("python"), blocks("console")
    assert len(python) >= 3
    assert len(console) >= 1
    for snippet in python:
        run([sys.executable, "-c", snippet], tmp_path)
    commands = [line[2:] for block in console for line in block.splitlines()]
    assert len(commands) >= 3
    for command in commands:
        assert command.startswith("corral ")
        run([sys.executable, "-m", *command.split()], tmp_path)
    assert (tmp_path / "report" / "report.html").exists()


def test_the_table_is_what_the_demo_prints(tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="the demo installs scipy: corral[optimum]")
    demo = next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if "corral replay" in line
    )
    arguments = demo.split("corral ", 1)[1].replace("runs/demo", str(tmp_path)).split()
    printed = run([sys.executable, "-m", "corral", *arguments], tmp_path)
    shown = re.search(r"<!-- demo -->\n```\n(.*?)```", README, flags=re.DOTALL)
    assert shown is not None
    table = [line.rstrip() for line in printed.splitlines()]
    for line in shown.group(1).splitlines():
        assert line.rstrip() in table


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "data/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    for target in targets:
        assert ((ROOT / page).parent / target).exists(), target


def test_the_names_of_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_figures_are_those_of_the_benchmarks() -> None:
    results = ROOT / "benchmarks" / "results"
    stepping = json.loads((results / "stepping.json").read_text())["ratios"]
    columns = json.loads((results / "sb3_vec_envs.json").read_text())["ratios"]
    year = json.loads((results / "replay_year.json").read_text())["seconds"]
    for row, figure in (
        ("random legal actions, 64 copies", stepping["Batch over SuperSuit, 64 copies"]),
        ("the same with 1024 copies", stepping["Batch over SuperSuit, 1024 copies"]),
        ("the same over SuperSuit, 64 copies", columns["Batch over vectorize, cpus=0"]),
        ("13 policies, with the optimum", year["replay"]),
    ):
        line = next(line for line in README.splitlines() if row in line)
        assert re.search(rf"\| {figure:.0f} (times|s)", line), (line, figure)
