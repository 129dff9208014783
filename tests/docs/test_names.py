"""Every name that the pages mention exists: modules and what is in them, files and folders."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from corral.errors import MissingExtraError

ROOT = Path(__file__).parents[2]
FOLDERS = ("_corral", "adapters", "benchmarks", "data", "docs", "envs", "tests", "trainers")
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for folder in (".", "benchmarks", "data", "docs")
    for page in (ROOT / folder).glob("*.md")
    if page.name != "LOG.md"  # a diary: what was, when it was written
)
ENTRY_POINTS = {"corral.sinks"}
"""Groups of entry points that are no modules."""
NAME = re.compile(r"\bcorral(?:\.[A-Za-z_]\w*)+")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")


def text_of(page: str) -> str:
    """Return the text of a page; a module:function is a dotted name like others."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "CHANGELOG.md":  # tables of renames name what was
        text = re.sub(r"^\|.*\|$", "", text, flags=re.MULTILINE)
    return re.sub(r"(corral[\w.]+):(?=[a-z])", r"\1.", text)


def resolve(name: str) -> None:
    """Import the module that ``name`` begins with, and look up the rest. Raises AttributeError."""
    parts = name.split(".")
    found: object = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part) and isinstance(found, ModuleType):
            try:
                importlib.import_module(".".join(parts[:depth]))
            except MissingExtraError:
                return in_source(name)
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("corral"):
                    return in_source(name)
                raise AttributeError(name) from None
        found = getattr(found, part)
    return None


def in_source(name: str) -> None:
    """Look for a name whose framework is not installed in the files of corral."""
    _, top, *rest = name.split(".")
    for depth in range(len(rest), -1, -1):
        module = ROOT.joinpath(top, *rest[:depth])
        for file in (module.with_suffix(".py"), module / "__init__.py"):
            if file.is_file():
                code = file.read_text(encoding="utf-8")
                if all(re.search(rf"\b{part}\b", code) for part in rest[depth:]):
                    return
    raise AttributeError(name)


@pytest.mark.parametrize("page", PAGES)
def test_names_of_corral_exist(page: str) -> None:
    wrong = []
    for name in sorted(set(NAME.findall(text_of(page))) - ENTRY_POINTS):
        try:
            resolve(name)
        except AttributeError:
            wrong.append(name)
    assert not wrong


@pytest.mark.parametrize("page", PAGES)
def test_paths_of_the_repository_exist(page: str) -> None:
    paths = sorted(set(PATH.findall(text_of(page))))
    here = (ROOT / page).parent
    assert not [p for p in paths if not (ROOT / p).exists() and not (here / p).exists()]


def test_the_pages_mention_names_and_paths() -> None:
    """Else nothing would have been checked."""
    texts = [text_of(page) for page in PAGES]
    assert len(PAGES) >= 8
    assert len({name for text in texts for name in NAME.findall(text)}) > 30
    assert len({path for text in texts for path in PATH.findall(text)}) > 15


@pytest.mark.parametrize(
    "name", ["corral.envs.baselines", "corral.data.read.nothing", "corral.adapters.torchrl.Nothing"]
)
def test_wrong_names_are_found(name: str) -> None:
    with pytest.raises(AttributeError):
        resolve(name)
