"""The extras of pyproject.toml are those that the code names, and go together as it says."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from corral.extras import ALONE
from corral.trainers.base import BUILT_IN

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def named() -> set[str]:
    """Return the extras that ``require(..., extra=...)`` names."""
    found = set()
    for top in ("_corral", "data", "envs", "adapters", "trainers"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("require"):
                    found |= {
                        keyword.value.value
                        for keyword in node.keywords
                        if keyword.arg == "extra" and isinstance(keyword.value, ast.Constant)
                    }
    return found


def test_every_extra_that_an_error_names_can_be_installed() -> None:
    wanted = (named() | {spec.needs[1] for spec in BUILT_IN.values()}) - {""}
    assert len(wanted) >= 6
    assert wanted - set(EXTRAS) == set()


def test_all_is_all_but_what_stands_alone() -> None:
    (everything,) = EXTRAS["all"]
    listed = everything.removeprefix("corral[").removesuffix("]").split(",")
    assert set(listed) == set(EXTRAS) - set(ALONE) - {"all", "dev"}
    assert set(ALONE) <= set(EXTRAS)


def test_stable_baselines3_comes_without_supersuit() -> None:
    assert not any("supersuit" in each for each in EXTRAS["sb3"])
    assert any(each.startswith("supersuit") for each in EXTRAS["supersuit"])
