"""One process at a time trains a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from corral.errors import RunError

if sys.platform != "win32":
    import fcntl

__all__ = ["LOCK", "locked"]

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from training the run in ``folder``.

    The system lets go of the lock with the process, however it ends; forked children do not hold
    it. The file stays: another process might be about to take it.

    Raises RunError, naming the process that has it.
    """
    if sys.platform == "win32":  # there runs are not locked
        yield
        return
    with (folder / LOCK).open("a+") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise RunError(
                f"{folder} is being trained by process {file.read().strip() or '?'}; wait for it, "
                "or stop it"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
