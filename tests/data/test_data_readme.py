"""data/README.md is true: its Python runs, its figures are those of the bundled traces."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from corral.cli.commands.loads import imports
from corral.data import load_trace
from corral.data.read import MAX_CELLS
from corral.data.source import MAX_BYTES, MAX_LINE, MAX_NODES
from support.traces import public_traces

ROOT = Path(__file__).parents[2]
README = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_there_are_snippets():
    assert len(SNIPPETS) == 4


@pytest.mark.parametrize("snippet", SNIPPETS, ids=["first", "frame", "import", "requests"])
def test_snippets_run(snippet, tmp_path):
    environment = dict(os.environ)
    if "TRACES_DIR" in snippet:
        environment["TRACES_DIR"] = str(public_traces())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "<Trace" in done.stdout


@pytest.mark.parametrize(("name", "column"), [("edge3", 1), ("edge8", 2)])
def test_figures_of_the_bundled_traces(name, column):
    trace = load_trace(name)
    assert trace.capacity is not None

    def served(low: int, high: int) -> tuple[str, str]:
        load, capacity = trace.arrivals[low:high], trace.capacity[low:high]
        local = np.minimum(load, capacity).sum()
        pooled = np.minimum(load.sum(axis=1), capacity.sum(axis=1)).sum()
        return f"{100 * local / load.sum():.1f} %", f"{100 * pooled / load.sum():.1f} %"

    cut = int(0.7 * len(trace))
    figures = {
        "nodes": str(len(trace.nodes)),
        "requests": f"{trace.arrivals.sum():,}",
        "mean load of all": f"{trace.arrivals.sum(axis=1).mean():.1f}",
        "mean capacity of all": f"{trace.capacity.sum(axis=1).mean():.1f}",
        "served without forwarding": served(0, len(trace))[0],
        "served at best": served(0, len(trace))[1],
        "the same, first": " and ".join(served(0, cut)),
        "the same, last": " and ".join(served(cut, len(trace))),
    }
    for row, figure in figures.items():
        line = next(line for line in README.splitlines() if line.startswith(f"| {row}"))
        assert line.split("|")[column + 1].strip() == figure, row


def test_the_limits_are_those_stated():
    assert f"`max_cells` = {MAX_CELLS:,}" in README
    assert f"`max_bytes` = {MAX_BYTES // 2**20} MiB" in README
    assert f"`max_nodes` = {MAX_NODES:,}" in README
    assert f"{MAX_LINE // 2**10} KiB per line" in README


def test_the_commands_have_these_options():
    lines = re.findall(r"^corral trace import .*$", README, flags=re.MULTILINE)
    group = typer.main.get_command(imports.app)
    words = [shlex.split(line)[3:] for line in lines]
    # A line that begins with a file is of the command "file".
    words = [line if line[0] in group.commands else ["file", *line] for line in words]
    assert list(dict.fromkeys(line[0] for line in words)) == list(group.commands)
    for name, *rest in words:
        made = group.commands[name].make_context("import", rest)
        assert str(made.params["out_file"]).endswith((".csv", ".csv.gz"))


def test_the_figures_of_exports_are_those_measured():
    measured = json.loads((ROOT / "benchmarks" / "results" / "exports.json").read_text())["rows"]
    assert len(measured) == 9
    for kind, size, options, cpu, _, off in measured:
        given = options if options == "none" else f"`{options}`"
        assert f"| {kind} | {size} | {given} | {cpu} | {off} |" in README
