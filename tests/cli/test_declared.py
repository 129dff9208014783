"""Options that a command leaves to a function of the library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from corral.cli.app import app
from corral.cli.base import App
from corral.cli.declared import Declared, declared

CALLED: list[dict[str, Any]] = []


def play(
    name: str,
    *,
    times: int = 3,
    out: str | Path | None = None,
    how: Literal["well", "badly"] | None = None,
    fast: bool = False,
    num_envs: int = 1,
    share: float = 0.5,
) -> None:
    """Play.

    Args:
        name: of who plays.
        times: how often it plays. Not told on the command line.
        out: a folder; without ``num_envs`` it stays
            empty.
        how: whether it plays well.
        fast: play fast
        num_envs: environments.
        share: of the time.
    """


def application() -> App:
    one = App()

    @one.callback()
    def group() -> None: ...

    @one.command()
    @declared(lambda: play)
    def show(
        name: str,
        times: Declared = ...,
        out: Declared = ...,
        own: Annotated[int, typer.Option(help="Its own.")] = 1,
        how: Declared = "well",
        fast: Declared = ...,
        num_envs: Annotated[Declared, typer.Option("--envs")] = ...,
        share: Annotated[Declared, typer.Option(metavar="<%>")] = ...,
    ) -> None:
        """Show it."""
        CALLED.append(dict(locals()))

    return one


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("", {}),
        ("--times 1e2 --fast", {"times": 100, "fast": True}),
        ("--out a/b --how badly --own 2", {"out": Path("a/b"), "how": "badly", "own": 2}),
        ("--envs 4 --share 0.25", {"num_envs": 4, "share": 0.25}),
    ],
)
def test_types_and_defaults_are_those_of_the_function(words: str, given: dict[str, Any]) -> None:
    done = CliRunner().invoke(application(), ["show", "me", *words.split()])
    assert done.exit_code == 0, done.output
    defaults = {"times": 3, "out": None, "own": 1, "how": "well", "fast": False}
    assert CALLED.pop() == {"name": "me", **defaults, "num_envs": 1, "share": 0.5, **given}


@pytest.mark.parametrize("words", ["--how middling", "--times 1.5", "--no-fast", "--envs 1e2"])
def test_other_words_are_refused(words: str) -> None:
    assert CliRunner().invoke(application(), ["show", "me", *words.split()]).exit_code == 2


def test_help_is_the_first_sentence_of_an_argument_in_order() -> None:
    text = " ".join(CliRunner().invoke(application(), ["show", "--help"]).output.split())
    said = ["How often it plays. [default: 3]", "A folder; without --num-envs it stays empty."]
    said += ["Its own.", "Whether it plays well.", "Play fast.", "--envs", "--share <%>"]
    places = [text.find(each) for each in said]
    assert -1 not in places, (text, places)
    assert places == sorted(places)
    assert "command line" not in text


def commands(group: Any) -> Iterator[Any]:
    """All commands below a group."""
    for each in group.commands.values():
        yield from commands(each) if hasattr(each, "commands") else [each]


def test_every_option_that_is_left_to_a_function_is_declared_there() -> None:
    checked = 0
    for command in commands(typer.main.get_command(app)):
        options = [parameter for parameter in command.whole.params if parameter.opts[0][0] == "-"]
        assert all(option.help for option in options), command.name
        checked += len(options)
    assert checked > 100


def test_the_list_of_commands_imports_no_function_of_the_library() -> None:
    code = (
        "import sys\n"
        "from corral.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('corral.lab', 'corral.loads', 'pandas', 'torch')\n"
        "heavy = [name for name in sys.modules if name.startswith(heavy)]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
