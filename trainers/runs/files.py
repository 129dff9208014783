"""Files of a run: written whole or not at all, and read once."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from corral.errors import CheckpointError

__all__ = [
    "read_file",
    "reason",
    "replace_text",
    "sha256",
    "sync",
    "write_folder",
    "write_through",
]


def replace_text(path: Path, text: str) -> Path:
    """Write ``text`` to ``path``, whole or not at all; its folder is made if missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, encoding="utf-8", newline="")
    os.replace(unfinished, path)
    return path


def write_folder(
    target: Path, write: Callable[[Path], list[Path]], *, overwrite: bool
) -> list[Path]:
    """Move what ``write`` writes into an empty folder to ``target``, and return the files.

    Raises FileExistsError, before anything changes there, where a file is there and ``overwrite``
    is not set.
    """
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{target} is a file: give a folder")
    new = [place for place in (target, *target.parents) if not place.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=target, prefix=".exporting-") as place:
            written = {target / path.relative_to(place): path for path in write(Path(place))}
            if taken := [str(path) for path in written if path.exists() and not overwrite]:
                raise FileExistsError(
                    f"{', '.join(taken)} exists; pass --overwrite (overwrite=True) to replace it"
                )
            for path, source in written.items():
                os.replace(source, path)
    except BaseException:
        for folder in new:
            if any(folder.iterdir()):
                break
            folder.rmdir()
        raise
    return list(written)


def write_through(path: Path, data: bytes) -> None:
    """Write a new file through to the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # so that verifying reads what the disk has
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sync(folder: Path) -> None:
    """Write a directory's entries through to the disk."""
    if os.name == "nt":  # has no such call
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def sha256(data: bytes) -> str:
    """Return the digest as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def reason(error: BaseException) -> str:
    """One line of an error of another library, bounded."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
