"""The floor plan holds: every room is installed, and imports run in one direction."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = {"_corral": "corral"} | {
    top: f"corral.{top}" for top in ("data", "envs", "adapters", "trainers")
}

ORDER = (
    *("base", "criteria", "schedules", "settings", "rng", "policies"),
    *(
        "runs",
        "opponents",
        "evaluation",
        "report",
        "callbacks",
        "session",
        "kinds",
        "planning",
        "plan",
        "driver",
    ),
    *(
        "config_files",
        "selfplay",
        "on_policy",
        "cloning",
        "policy_iteration",
        "sb3",
        "rllib",
        "benchmarl",
    ),
)
"""Rooms of trainers; each imports only what stands before it."""

OPTIONAL = ("ray", "torchrl", "benchmarl", "tensordict")


def sources() -> Iterator[Path]:
    for top in HOUSE:
        yield from sorted((ROOT / top).rglob("*.py"))


def module_of(path: Path) -> str:
    top, *rest = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([HOUSE[top], *(part for part in rest if part != "__init__")])


def imported(path: Path, *, late: bool = True) -> set[str]:
    """Return the modules of corral that a file imports anywhere, but for types alone; ``late``:
    also in functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree) if late else tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("corral"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("corral")}
    return found


def test_every_room_is_a_package_that_is_installed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    rooms = {module_of(path.parent / "__init__.py") for path in sources()}
    assert rooms - {"corral.command"} | {"corral_command"} == set(listed)
    for path in sources():
        assert (path.parent / "__init__.py").is_file(), path.parent


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[2] if len(parts) > 2 and parts[1] == "trainers" and parts[2] in ORDER else None


def test_rooms_of_trainers_import_one_way() -> None:
    wrong, checked = [], 0
    for path in (ROOT / "trainers").rglob("*.py"):
        here = room_of(module_of(path))
        for name in imported(path, late=False):
            there = room_of(name)
            if here is None or there is None or here == there:
                continue
            checked += 1
            if ORDER.index(there) > ORDER.index(here):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert checked > 20
    assert wrong == []


@pytest.mark.parametrize("house", ["data", "envs", "adapters", "trainers"])
def test_the_core_names_neither_loads_nor_lab(house: str) -> None:
    """In code or in a text; docstrings may."""
    for path in (ROOT / house).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        }
        named = texts | imported(path) | imported(path, late=False)
        assert not [each for each in named if re.search(r"corral\.(loads|lab)\b", each)], path


def test_no_module_has_the_name_of_a_function_that_its_package_exports() -> None:
    checked = 0
    for path in sources():
        if path.name != "__init__.py":
            continue
        try:
            package = importlib.import_module(module_of(path))
        except ImportError as error:
            if not any(name in str(error) for name in OPTIONAL):
                raise
            continue
        inside = {child.stem for child in path.parent.iterdir()} - {"__init__"}
        callables = {
            name
            for name in getattr(package, "__all__", ())
            if callable(getattr(package, name)) and not isinstance(getattr(package, name), type)
        }
        assert inside & callables == set(), package.__name__
        checked += 1
    assert checked > 15


@pytest.mark.parametrize(
    "room", ["evaluation", "report", "runs", "on_policy", "sb3", "rllib", "benchmarl"]
)
def test_dfaas_v0_is_an_environment_and_no_second_code_path(room: str) -> None:
    """Only its own folder, _corral/loads, data/ and the registry know it."""
    for path in (ROOT / "trainers" / room).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        words = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        assert "DfaasRules" not in names, path
        assert "dfaas_v0" not in words, path
        assert not any("dfaas_v0" in name for name in imported(path)), path
