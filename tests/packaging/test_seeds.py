"""One rule for ``seed``: what computes a result takes 0, what makes an environment takes None."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from corral.cli.app import app

ROOT = Path(__file__).parents[2]


def defaults(floor: str) -> Iterator[tuple[str, str]]:
    """Yield where an argument ``seed`` has a default, and that default."""
    for path in (ROOT / floor).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            given = node.args
            plain = [*given.posonlyargs, *given.args]
            pairs = [
                *zip(plain[len(plain) - len(given.defaults) :], given.defaults, strict=True),
                *zip(given.kwonlyargs, given.kw_defaults, strict=True),
            ]
            for argument, default in pairs:
                if argument.arg == "seed" and default is not None:
                    yield (
                        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}",
                        ast.unparse(default),
                    )


@pytest.mark.parametrize(
    ("floor", "default"), [("envs", "None"), ("adapters", "None"), ("trainers", "0")]
)
def test_every_seed_has_the_default_of_its_floor(floor: str, default: str) -> None:
    """Envs and adapters make environments, as Gymnasium and PettingZoo do; trainers compute."""
    found = dict(defaults(floor))
    assert len(found) >= 5
    assert {where: value for where, value in found.items() if value != default} == {}


def test_every_command_with_a_seed_begins_at_0() -> None:
    found = {}
    for command in typer.main.get_group(app).commands.values():
        for parameter in command.get_params(typer.Context(command)):
            if parameter.name == "seed":
                found[command.name] = parameter.default
    assert len(found) >= 8
    assert set(found.values()) == {0}


def test_make_trace_has_a_seed_of_its_own() -> None:
    from corral.data.generator import TraceSpec

    assert inspect.signature(TraceSpec).parameters["seed"].default == 0
