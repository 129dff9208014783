"""Files, read and written so that a folder from a stranger does no harm.

``read_file`` opens regular files alone, never more bytes than it is told; ``write_file`` lets a
file appear whole or not at all. Both take ``folder``: the part of the path below it may then hold
no link, so that what lies in the folder of a run cannot lead out of it. A path without one was
typed by whoever calls, and its links are followed.

Where a system has no ``dir_fd`` (Windows), the parts are looked at one by one before the file is
opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from corral.errors import FileError

__all__ = [
    "append_to",
    "make_folder",
    "open_regular",
    "read_file",
    "read_json",
    "read_text",
    "reason",
    "require_no_links",
    "sha256",
    "strict_json",
    "sync",
    "write_file",
    "write_folder",
    "write_through",
]

BY_HANDLE = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd
"""Whether files can be opened relative to a folder that is open."""

PLAIN = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags of every file: a named pipe would block without O_NONBLOCK."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


# --- Reading -------------------------------------------------------------------------------------


def open_regular(path: Path, *, folder: Path | None = None) -> BufferedReader:
    """Open a regular file to read bytes, without waiting for anything.

    Raises FileError, an OSError, for a pipe, a device or a socket, and for a link below
    ``folder``; IsADirectoryError for a folder; OSError where the system cannot open it.
    """
    with _parent(path, folder) as (parent, name):
        flags = os.O_RDONLY | PLAIN | (NO_LINK if folder is not None else 0)
        try:
            handle = os.open(name, flags, dir_fd=parent)
        except OSError as error:
            raise _of_path(error, path) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return open(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    raise FileError(errno.EINVAL, "is not a regular file", str(path))


def read_file(path: Path, most: int, *, folder: Path | None = None) -> bytes:
    """Return all bytes of a regular file; see ``open_regular``.

    Raises FileError besides for more than ``most`` bytes.
    """
    with open_regular(path, folder=folder) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            what = f"holds {size:,} bytes; at most {most:,} are read"
            raise FileError(errno.EFBIG, what, str(path))
        data = file.read(size + 1)
    if len(data) != size:
        raise FileError(errno.EAGAIN, "changes while it is read", str(path))
    return data


def read_text(path: Path, most: int, *, folder: Path | None = None) -> str:
    """Return the UTF-8 text of a file; see ``read_file``. Raises UnicodeDecodeError besides."""
    return read_file(path, most, folder=folder).decode("utf-8")


def read_json(path: Path, most: int, *, folder: Path | None = None) -> Any:
    """Return the value of a JSON file; see ``read_file`` and ``strict_json``."""
    return strict_json(read_text(path, most, folder=folder))


def strict_json(text: str) -> Any:
    """Return the JSON value.

    Raises ValueError for what is no JSON, for numbers that are not finite, for keys that stand
    twice, and for brackets nested beyond what Python reads.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("its brackets are nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


# --- Writing -------------------------------------------------------------------------------------


def write_file(path: Path, data: bytes | str, *, folder: Path | None = None) -> Path:
    """Write ``data``, text as UTF-8, to ``path``, whole or not at all, and return ``path``.

    It is written beside ``path`` under a random name that did not exist, synced, and renamed. A
    link of that name is replaced, not followed. Missing folders are made. Raises OSError.
    """
    if isinstance(data, str):  # names of files that are no UTF-8 are written as escapes
        data = data.encode("utf-8", errors="backslashreplace")
    make_folder(path.parent, folder=folder)
    with _parent(path, folder) as (parent, name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN | NO_LINK
        # Short, as a name may have 255 bytes.
        beside = os.path.join(os.path.dirname(name), f".writing-{secrets.token_hex(8)}")
        try:
            handle = os.open(beside, flags, 0o666, dir_fd=parent)
            try:
                with open(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(beside, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(beside, dir_fd=parent)
                raise
            if parent is not None:
                os.fsync(parent)
        except OSError as error:
            raise _of_path(error, path) from error
    return path


def append_to(path: Path, *, folder: Path | None = None) -> IO[str]:
    """Open a regular file to append text to it, UTF-8. Raises OSError, FileError."""
    with _parent(path, folder) as (parent, name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | PLAIN
        flags |= NO_LINK if folder is not None else 0
        try:
            handle = os.open(name, flags, 0o666, dir_fd=parent)
        except OSError as error:
            raise _of_path(error, path) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileError(errno.EINVAL, "is not a regular file", str(path))
    return open(handle, "a", newline="", encoding="utf-8")


def make_folder(path: Path, *, folder: Path | None = None) -> None:
    """Make a folder where it is missing. Raises FileError for a link below ``folder``."""
    if folder is not None:
        require_no_links(path, folder)
    path.mkdir(parents=True, exist_ok=True)


def require_no_links(path: Path, folder: Path) -> None:
    """Raise FileError where a part of ``path`` below ``folder`` is a link."""
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if part == os.pardir or place.is_symlink():
            raise _link(place)


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


# --- Words and digests ---------------------------------------------------------------------------


def sha256(data: bytes) -> str:
    """Return the digest as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def reason(error: BaseException) -> str:
    """One line of an error of another library, bounded."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


# --- Inside --------------------------------------------------------------------------------------


@contextmanager
def _parent(path: Path, folder: Path | None) -> Iterator[tuple[int | None, str]]:
    """Yield an open handle of the folder that ``path`` lies in, and its name there.

    The parts below ``folder`` are opened one by one, none of them through a link. Without a handle
    (None) the name is the whole path.
    """
    if folder is not None and not BY_HANDLE:
        require_no_links(path, folder)
    if not BY_HANDLE:
        yield None, str(path)
        return
    if path.name in ("", os.pardir):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", str(path))
    parts = () if folder is None else path.parent.relative_to(folder).parts
    try:
        handle = os.open(path.parent if folder is None else folder, DIRECTORY)
    except OSError as error:
        raise _of_path(error, path) from error
    try:
        for part in parts:
            if part == os.pardir:
                raise _link(path)
            try:
                below = os.open(part, DIRECTORY | NO_LINK, dir_fd=handle)
            except OSError as error:
                if stat.S_ISLNK(_mode(part, handle)):
                    raise _link(path) from error
                raise _of_path(error, path) from error
            os.close(handle)
            handle = below
        yield handle, path.name
    finally:
        os.close(handle)


def _mode(name: str, parent: int) -> int:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _link(path: Path) -> FileError:
    return FileError(errno.ELOOP, "is a link, or lies behind one; none is followed", str(path))


def _of_path(error: OSError, path: Path) -> OSError:
    """Return the same error, of the whole path: a system call was told a part of it."""
    if isinstance(error, FileError):
        return error
    if error.errno == errno.ELOOP:
        return _link(path)
    if error.errno == errno.ENXIO:  # a pipe that is opened for writing, a socket
        return FileError(errno.EINVAL, "is not a regular file", str(path))
    return OSError(error.errno, error.strerror, str(path))
