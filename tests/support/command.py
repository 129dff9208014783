"""Run the ``corral`` command as a user does: in its own process or in this one, 80 columns."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

from support import forked
from support.forked import ENVIRONMENT

__all__ = ["ENVIRONMENT", "command_line", "run", "stdout_of", "within"]


@functools.cache
def command_line() -> Any:
    """Return what ``corral`` runs, made once from its signatures: that takes a tenth of a second
    and more."""
    from corral.cli.app import app

    return typer.main.get_command(app)


def run(
    *arguments: str | Path, code: int = 0, folder: Path | None = None, columns: str = "80"
) -> str:
    """The output of ``corral ARGUMENTS``, errors included; it must end with ``code``."""
    env = {**ENVIRONMENT, "COLUMNS": columns}
    done = forked.run(["-m", "corral", *arguments], env=env, folder=folder)
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert "Traceback" not in output
    return output


def stdout_of(*arguments: str | Path, code: int = 0) -> str:
    """What ``corral ARGUMENTS`` writes to stdout alone."""
    done = forked.run(["-m", "corral", *arguments])
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def within(*arguments: str | Path, code: int | None = 0) -> str:
    """The same in this process, which needs no new imports; with None, ``code`` may be any."""
    from corral.cli.app import app

    result = CliRunner().invoke(app, [*map(str, arguments)], terminal_width=80)
    assert code in (None, result.exit_code), (result.output, result.exception)
    return result.output
