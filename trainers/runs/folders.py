"""Folders of runs: one trainer works in one at a time; a start that fails leaves none behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

from filelock import FileLock, Timeout

from corral.errors import RunError
from corral.files import read_file, write_file
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS
from corral.trainers.runs.run_config import CONFIG

__all__ = ["begun_folder", "is_locked", "locked", "new_folder"]

LOCK, HOLDER = ".lock", ".lock.pid"
"""The lock, and the process that has it: filelock before version 4 empties what it locks."""

WRITTEN = (LOCK, CHECKPOINTS, "tensorboard")
"""What others write: filelock, TensorBoard, and checkpoints by their folder. All else is written by
``corral.files``, which follows no link."""

UNFINISHED = re.compile(r"\.writing-\w+|\w+\.csv\.gz|\w+\.npy", flags=re.ASCII)
"""Files that a start writes before config.json, which makes a folder a run."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes and threads from training the run in ``folder``.

    The system lets go of the lock with the process, however it ends; forked children do not hold
    it. The file stays: another process might be about to take it.

    Raises RunError, naming the process that has it.
    """
    _require_no_links(folder)
    lock = FileLock(folder / LOCK, timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder} is being trained by process {_holder(folder)}; wait for it, or stop it"
        ) from None
    try:
        write_file(folder / HOLDER, f"{os.getpid()}\n", folder=folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def _require_no_links(folder: Path) -> None:
    """Raise RunError where a link lies in a folder that will be written to: it could lead out."""
    for name in WRITTEN:
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a link, and a run writes in its own folder: remove it"
            )


def is_locked(folder: Path) -> bool:
    """Return whether a process trains the run in ``folder``."""
    if not (folder / LOCK).exists():
        return False
    lock = FileLock(folder / LOCK, timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


def _holder(folder: Path) -> str:
    """Return the process that has the lock, or "?"."""
    with contextlib.suppress(OSError):
        found = re.search(rb"\d+", read_file(folder / HOLDER, 100, folder=folder))
        return "?" if found is None else found[0].decode()
    return "?"


# --- New folders ---------------------------------------------------------------------------------


@contextlib.contextmanager
def begun_folder(out: str | Path | None, name: str) -> Iterator[Path]:
    """Yield the folder of a new run, locked. It goes where an error comes before any update.

    ``out``: a folder that is new, or empty; default: runs/<name>, or with a number after it. What a
    start that was killed left there is removed. Raises RunError for a folder in use.
    """
    if out is None:
        folder, made = new_folder(name)
    else:
        folder = Path(out)
        made = _claimed(folder)
    begun, cleared = False, False
    try:
        with locked(folder):
            _require_unused(folder)  # now that nobody else can begin there
            _clear(folder)
            try:
                yield folder
                begun = True
            except BaseException:
                begun = (folder / PROGRESS).exists()
                if not begun:
                    _clear(folder, lock=os.name != "nt")  # there it cannot be removed yet
                    cleared = True
                raise
    finally:
        if not begun:
            if cleared and os.name == "nt":
                (folder / LOCK).unlink(missing_ok=True)
            for each in made:
                with contextlib.suppress(OSError):  # others may have come in
                    each.rmdir()


def new_folder(name: str) -> tuple[Path, list[Path]]:
    """Make runs/<name>, or with the first free number after it.

    Returns it, and all folders that were made for it, the innermost first.
    """
    for number in count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            return folder, _make(folder)
    raise AssertionError


def _make(folder: Path) -> list[Path]:
    """Make a folder; return it and its parents that were made. Raises FileExistsError."""
    made = [folder, *takewhile(lambda parent: not parent.exists(), folder.parents)]
    folder.mkdir(parents=True)
    return made


def _claimed(folder: Path) -> list[Path]:
    """Return what was made of ``folder``: nothing, where it is there and free to be used."""
    try:
        return _make(folder)
    except FileExistsError:
        _require_unused(folder)
        return []


def _require_unused(folder: Path) -> None:
    """Raise RunError where something is in ``folder`` that no start left there."""
    if (folder / CONFIG).exists():
        raise RunError(f"{folder} holds a run; resume it, or give another folder")
    if not folder.is_dir():
        raise RunError(f"{folder} is a file; give a new folder")
    names = {path.name for path in folder.iterdir()}
    begun = LOCK in names
    names = {name for name in names - {LOCK, HOLDER} if not (begun and UNFINISHED.fullmatch(name))}
    if names:
        raise RunError(f"{folder} is not empty; give a new folder")


def _clear(folder: Path, *, lock: bool = False) -> None:
    """Remove what is in ``folder``, but for its lock."""
    for path in folder.iterdir():
        if path.name not in (LOCK, HOLDER):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if lock:
        for name in (HOLDER, LOCK):
            (folder / name).unlink(missing_ok=True)
