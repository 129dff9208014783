"""Run the ``corral`` command as a user does: in its own process or in this one, 80 columns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

ENVIRONMENT = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1"}


def run(
    *arguments: str | Path, code: int = 0, folder: Path | None = None, columns: str = "80"
) -> str:
    """The output of ``corral ARGUMENTS``, errors included; it must end with ``code``."""
    done = subprocess.run(
        [sys.executable, "-m", "corral", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "COLUMNS": columns},
        cwd=folder,
        timeout=120,
    )
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert "Traceback" not in output
    return output


def within(*arguments: str | Path, code: int | None = 0) -> str:
    """The same in this process, which needs no new imports; with None, ``code`` may be any."""
    from corral.cli.app import app

    result = CliRunner().invoke(app, [*map(str, arguments)], terminal_width=80)
    assert code in (None, result.exit_code), (result.output, result.exception)
    return result.output
