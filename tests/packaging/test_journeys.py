"""How far a reader has to go: circles of modules, imports by text, what a training loads."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSES = {"_corral": "corral"} | {
    top: f"corral.{top}" for top in ("data", "envs", "adapters", "trainers")
}
CORE = ("corral.data", "corral.envs", "corral.adapters", "corral.trainers")
TABLES = {
    *("corral", "corral.registration", "corral.envs", "corral.envs.registry"),
    "corral.envs.reference",  # players stand beside their environment
}
"""Where modules are named in texts: what is imported when it is first asked for. Gymnasium and
PettingZoo take their environments as texts."""

CIRCLES = 9
"""In the core; may only fall. The aim is 0."""
LOADED = 122
"""Modules of corral that ``corral.train("arena_v0")`` loads; may only fall. The aim is 100."""
LOOKED_UP = re.compile(r"(resolve_name|import_module|__import__)$")


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield each module of corral: its name and what it holds."""
    for top, package in HOUSES.items():
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT / top).with_suffix("").parts
            name = ".".join([package, *(part for part in parts if part != "__init__")])
            yield name, ast.parse(path.read_text(encoding="utf-8"))


MODULES = dict(sources())


def imported(name: str) -> set[str]:
    """The modules of corral that a module imports, in functions and for types, too."""
    found: set[str] = set()
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (below & MODULES.keys()) or {node.module}
    return (found & MODULES.keys()) - {name}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for each in sorted(graph[node]):
            if each not in index:
                visit(each)
            if each in stack:
                low[node] = min(low[node], low[each])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": set()}
    assert circles(graph) == [["a", "b", "c"]]


def test_circles_of_modules() -> None:
    core = {name: imported(name) for name in MODULES if name.startswith(CORE)}
    within = {name: found & core.keys() for name, found in core.items()}
    found = circles(within)
    assert len(found) <= CIRCLES, found


def texts_imported(tree: ast.Module) -> Iterator[str]:
    """Yield the texts "module:attribute", and those that are given to an import by text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, attribute = node.value.partition(":")
            if module in MODULES and colon and attribute.isidentifier():
                yield node.value
        elif isinstance(node, ast.Call) and LOOKED_UP.search(ast.unparse(node.func)):
            for given in node.args:
                if isinstance(given, ast.Constant | ast.JoinedStr) and "corral" in ast.unparse(
                    given
                ):
                    yield ast.unparse(given)


def test_modules_are_named_in_tables_alone() -> None:
    """A text that is imported is seen by no tool, and by no reader."""
    found = {name: sorted(texts_imported(tree)) for name, tree in MODULES.items()}
    named = {name for name, texts in found.items() if texts}
    assert named - TABLES == set(), {name: found[name] for name in named - TABLES}
    assert len(found["corral.registration"]) > 20


def test_modules_that_a_training_loads() -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    code = (
        "import json, sys, tempfile, corral\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    corral.train('arena_v0', steps=64, num_envs=4, n_steps=16, progress=False,\n"
        "                 out=folder + '/run')\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] == 'corral']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "corral.trainers.on_policy.trainer" in loaded
    assert len(loaded) <= LOADED, sorted(loaded)
    assert not [name for name in loaded if name.startswith("corral.loads")]
