"""Run folders: one process trains in a folder at a time; a failed start removes its folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from pathlib import Path

from filelock import FileLock, Timeout

from corral.errors import RunError
from corral.files import read_file, write_file
from corral.trainers.runs.run import CHECKPOINTS, PROGRESS
from corral.trainers.runs.run_config import CONFIG, config_values

__all__ = ["begun_folder", "is_locked", "locked", "new_folder", "require_unused"]

LOCK, HOLDER = ".lock", ".lock.pid"
"""The lock file, and the file with the ID of its process: filelock < 4 truncates the lock file."""

WRITTEN = (LOCK, CHECKPOINTS, "tensorboard")
"""Paths not written by ``corral.files``, which does not follow links, but by filelock, TensorBoard
and the checkpoint folder."""

UNFINISHED = re.compile(r"\.writing-\w+|\w+\.csv\.gz|\w+\.npy", flags=re.ASCII)
"""Files that a start writes before config.json; only config.json makes a folder a run."""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Prevent other processes and threads from training the run in ``folder``.

    The operating system releases the lock when the process ends; forked children do not hold it.
    The lock file is not deleted, because another process may be about to lock it.

    Raises RunError with the ID of the process that holds the lock.
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
    """Raise RunError if a path that will be written to is a link: it could lead outside."""
    for name in WRITTEN:
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a link, but a run writes only in its own folder: remove the "
                "link"
            )


def is_locked(folder: Path) -> bool:
    """Return True if a process is training the run in ``folder``."""
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
    """Return the ID of the process that holds the lock, or "?"."""
    with contextlib.suppress(OSError):
        match = re.search(rb"\d+", read_file(folder / HOLDER, 100, folder=folder))
        return "?" if match is None else match[0].decode()
    return "?"


# --- New folders ---------------------------------------------------------------------------------


@contextlib.contextmanager
def begun_folder(out: str | Path | None, name: str, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield the locked folder of a new run; an error before the first update removes it.

    ``out``: a new or empty folder; default: runs/<name>, with a number appended if it exists.
    Leftovers of a killed start are removed; with ``overwrite``, also all files of a folder that
    contains a run, unless it is being trained. Raises RunError for a folder in use.
    """
    require = require_replaceable if overwrite else require_unused
    if out is None and not overwrite:
        folder, created = new_folder(name)
    else:
        folder = Path("runs", name) if out is None else Path(out)
        created = _claimed(folder, require)
    started, cleared = False, False
    try:
        with locked(folder):
            require(folder)  # with the lock, no other process can start there
            _clear(folder)
            try:
                yield folder
                started = True
            except BaseException:
                started = (folder / PROGRESS).exists()
                if not started:
                    _clear(folder, lock=os.name != "nt")  # Windows cannot remove a locked file
                    cleared = True
                raise
    finally:
        if not started:
            if cleared and os.name == "nt":
                (folder / LOCK).unlink(missing_ok=True)
            for parent in created:
                with contextlib.suppress(OSError):  # other processes may have added files
                    parent.rmdir()


def new_folder(name: str) -> tuple[Path, list[Path]]:
    """Create runs/<name>, or with the first free number appended.

    Returns it, and all folders created for it, innermost first.
    """
    for number in count(1):
        folder = Path("runs") / (name if number == 1 else f"{name}-{number}")
        with contextlib.suppress(FileExistsError):
            return folder, _make(folder)
    raise AssertionError


def _make(folder: Path) -> list[Path]:
    """Create a folder; return it and its created parents. Raises FileExistsError."""
    created = [folder, *takewhile(lambda parent: not parent.exists(), folder.parents)]
    folder.mkdir(parents=True)
    return created


def _claimed(folder: Path, require: Callable[[Path], None]) -> list[Path]:
    """Create ``folder`` and return the created folders; [] if it exists and can be used."""
    try:
        return _make(folder)
    except FileExistsError:
        require(folder)
        return []


def require_replaceable(folder: Path) -> None:
    """Raise RunError unless ``folder`` contains a run of corral, or is unused."""
    if (folder / CONFIG).exists():
        config_values(folder)
    else:
        require_unused(folder)


def require_unused(folder: Path) -> None:
    """Raise RunError if ``folder`` contains anything except leftovers of a killed start."""
    if (folder / CONFIG).exists():
        raise RunError(
            f"{folder} contains a run; resume it, pass another folder, or "
            "--overwrite (overwrite=True) to replace it"
        )
    if not folder.is_dir():
        raise RunError(f"{folder} is a file; pass a new folder")
    names = {path.name for path in folder.iterdir()}
    has_lock = LOCK in names
    names = {
        name for name in names - {LOCK, HOLDER} if not (has_lock and UNFINISHED.fullmatch(name))
    }
    if names:
        raise RunError(f"{folder} is not empty; pass a new folder")


def _clear(folder: Path, *, lock: bool = False) -> None:
    """Remove the contents of ``folder``, except its lock."""
    for path in folder.iterdir():
        if path.name not in (LOCK, HOLDER):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if lock:
        for name in (HOLDER, LOCK):
            (folder / name).unlink(missing_ok=True)
