"""The directories of checkpoints: which there are, and what one of them holds.

Only regular files inside a real directory are opened, no link is followed, and a file is read once:
what is checked is what is decoded.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from corral.errors import CheckpointError
from corral.trainers.runs.checkpoint_format import (
    MOST_ARRAYS,
    MOST_FILES,
    MOST_MANIFEST,
    Manifest,
    decode_arrays,
    decode_document,
    reason,
    sha256,
)

__all__ = [
    "MANIFEST",
    "Saved",
    "all_saved",
    "contents",
    "directory_name",
    "is_intact",
    "parsed",
    "read_file",
]

MANIFEST = "manifest.json"
DIRECTORY = re.compile(r"step_(\d{12})(?:_([1-9]\d{0,8}))?", flags=re.ASCII)


class Saved(NamedTuple):
    """A checkpoint directory; they sort from the oldest to the newest."""

    step: int
    revision: int  # 1, or more where a step was saved again with another content
    path: Path


def directory_name(step: int, revision: int) -> str:
    """The name of a checkpoint's directory."""
    return f"step_{step:012}" + (f"_{revision}" if revision > 1 else "")


def parsed(path: Path) -> Saved | None:
    """What the name of a directory says; None where it is no checkpoint's."""
    match = DIRECTORY.fullmatch(path.name)
    return None if match is None else Saved(int(match[1]), int(match[2] or 1), path)


def all_saved(folder: Path) -> list[Saved]:
    """The checkpoint directories of ``folder``, complete or not, oldest first."""
    try:
        with os.scandir(folder) as entries:
            paths = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be listed: {reason(error)}") from error
    return sorted(saved for path in paths if (saved := parsed(path)) is not None)


def is_intact(path: Path) -> bool:
    """Whether all of a checkpoint can be loaded."""
    try:
        for _ in contents(path):
            pass
    except CheckpointError:
        return False
    return True


def contents(path: Path) -> Iterator[tuple[str, Any]]:
    """Every file of a checkpoint, checked and decoded, one at a time."""
    manifest = _manifest(path)
    arrays = 0
    for file, entry in manifest.files.items():
        data = read_file(path / file, entry.size)
        if len(data) != entry.size:
            raise CheckpointError(
                f"{path / file}: {len(data):,} bytes, but {entry.size:,} were saved: it is damaged"
            )
        if sha256(data) != entry.sha256:
            raise CheckpointError(f"{path / file}: is damaged: its SHA-256 is not the one saved")
        if file.endswith(".json"):
            yield file, decode_document(str(path / file), data)
        else:
            found = decode_arrays(str(path / file), data)
            arrays += len(found)
            if arrays > MOST_ARRAYS:
                raise CheckpointError(f"{path}: more than {MOST_ARRAYS:,} arrays")
            del data
            yield file, found


def _manifest(path: Path) -> Manifest:
    """The manifest of a real directory that holds exactly the files it lists."""
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISLNK(kind):
            raise CheckpointError(f"{path}: is a link; name the directory itself")
        if not stat.S_ISDIR(kind):
            raise CheckpointError(
                f"{path}: is a file, and a corral checkpoint is a directory; zip files and pickles "
                "can run code and are not opened"
            )
        with os.scandir(path) as entries:
            names = {entry.name for entry in islice(entries, MOST_FILES + 2)}
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from error
    if len(names) > MOST_FILES + 1:
        raise CheckpointError(f"{path}: holds more than {MOST_FILES:,} files")
    if MANIFEST not in names:
        raise CheckpointError(f"{path}: has no {MANIFEST}, so it is no complete corral checkpoint")
    data = read_file(path / MANIFEST, MOST_MANIFEST)
    manifest = Manifest.decode(str(path / MANIFEST), data)
    listed = {*manifest.files, MANIFEST}
    for fault, odd in (("lacks", listed - names), ("also holds", names - listed)):
        if odd:
            shown = ", ".join(map(repr, sorted(odd)[:5]))
            raise CheckpointError(f"{path}: {fault} {shown}, against its manifest")
    named = parsed(path)
    if named is not None and named.step != manifest.step:
        raise CheckpointError(f"{path}: holds step {manifest.step}; it was renamed")
    return manifest


def read_file(path: Path, most: int) -> bytes:
    """All bytes of a regular file. Links are not followed, more than ``most`` bytes not read."""
    # A named pipe would block without O_NONBLOCK.
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode):
                raise CheckpointError(f"{path}: is not a regular file; remove it")
            if about.st_size > most:
                raise CheckpointError(
                    f"{path}: {about.st_size:,} bytes, more than {most:,}: it is damaged"
                )
            with open(handle, "rb", closefd=False) as file:
                data = file.read(about.st_size + 1)
        finally:
            os.close(handle)
    except (OSError, MemoryError) as error:
        if getattr(error, "errno", None) == errno.ELOOP:
            raise CheckpointError(f"{path}: is a link, and links are not followed") from error
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from error
    if len(data) != about.st_size:
        raise CheckpointError(f"{path}: changes while it is read")
    return data
