"""Safe file access, also in folders from an untrusted source.

``read_file`` opens only regular files and reads a limited number of bytes. ``write_file`` writes a
file completely or not at all. Both take ``folder``: no part of the path below it may be a link, so
that files in a run's folder cannot point outside of it. A path without ``folder`` comes from the
caller, and its links are followed.

On systems without ``dir_fd`` (Windows), the path's parts are checked one by one before the file is
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
    "naming",
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
    """Open a regular file to read bytes, without blocking.

    Raises FileError, an OSError, for a pipe, a device or a socket, and for a link below
    ``folder``; IsADirectoryError for a folder; OSError if the system cannot open it.
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


def read_file(path: Path, max_bytes: int, *, folder: Path | None = None) -> bytes:
    """Return all bytes of a regular file; see ``open_regular``.

    Also raises FileError for more than ``max_bytes`` bytes.
    """
    with open_regular(path, folder=folder) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            message = f"has {size:,} bytes; the limit is {max_bytes:,}"
            raise FileError(errno.EFBIG, message, str(path))
        data = file.read(size + 1)
    if len(data) != size:
        raise FileError(errno.EAGAIN, "changed while it was read", str(path))
    return data


def read_text(path: Path, max_bytes: int, *, folder: Path | None = None) -> str:
    """Return the UTF-8 text of a file; see ``read_file``. Also raises UnicodeDecodeError."""
    return read_file(path, max_bytes, folder=folder).decode("utf-8")


def read_json(path: Path, max_bytes: int, *, folder: Path | None = None) -> Any:
    """Return the value of a JSON file; see ``read_file`` and ``strict_json``."""
    return strict_json(read_text(path, max_bytes, folder=folder))


def strict_json(text: str) -> Any:
    """Return the JSON value of a text.

    Raises ValueError for invalid JSON, for numbers that are not finite, for duplicate keys, and
    for brackets nested too deep for Python.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError:
        raise ValueError("the brackets are nested too deep") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate[:40]!r} in one object")
    return members


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


# --- Writing -------------------------------------------------------------------------------------


def write_file(path: Path, data: bytes | str, *, folder: Path | None = None) -> Path:
    """Write ``data``, text as UTF-8, to ``path`` completely or not at all, and return ``path``.

    The data is written to a new file with a random name in the same folder, synced, and renamed. A
    link at ``path`` is replaced, not followed. Missing folders are created. Raises OSError.
    """
    if isinstance(data, str):  # file names that are not UTF-8 become escapes
        data = data.encode("utf-8", errors="backslashreplace")
    make_folder(path.parent, folder=folder)
    with _parent(path, folder) as (parent, name):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN | NO_LINK
        # The name is short, because file names are limited to 255 bytes.
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
    """Create a folder if it is missing. Raises FileError for a link below ``folder``."""
    if folder is not None:
        require_no_links(path, folder)
    path.mkdir(parents=True, exist_ok=True)


def require_no_links(path: Path, folder: Path) -> None:
    """Raise FileError if a part of ``path`` below ``folder`` is a link."""
    current = folder
    for part in path.relative_to(folder).parts:
        current /= part
        if part == os.pardir or current.is_symlink():
            raise _link(current)


def write_folder(
    target: Path, write: Callable[[Path], list[Path]], *, overwrite: bool
) -> list[Path]:
    """Let ``write`` fill an empty folder, move the files to ``target``, and return their paths.

    Raises FileExistsError before ``target`` is changed, if a file exists and ``overwrite`` is
    False.
    """
    if target.exists() and not target.is_dir():
        raise NotADirectoryError(f"{target} is a file; name a folder")
    new = [scratch for scratch in (target, *target.parents) if not scratch.exists()]
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=target, prefix=".exporting-") as scratch:
            with naming(target):
                paths = write(Path(scratch))
            written = {target / path.relative_to(scratch): path for path in paths}
            if existing := [str(path) for path in written if path.exists() and not overwrite]:
                raise FileExistsError(
                    f"{', '.join(existing)} already exists; pass --overwrite (overwrite=True)"
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
    """Write a new file and force it to disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # a later read then comes from the disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sync(folder: Path) -> None:
    """Force a directory's entries to disk."""
    if os.name == "nt":  # Windows cannot sync folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add ``path`` to an OSError without a path, as of a full disk, that is raised in the block."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


# --- Error texts and digests ---------------------------------------------------------------------


def sha256(data: bytes) -> str:
    """Return the SHA-256 digest as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def reason(error: BaseException) -> str:
    """Return the message of another library's error, on one line of limited length."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]


# --- Private helpers -----------------------------------------------------------------------------


@contextmanager
def _parent(path: Path, folder: Path | None) -> Iterator[tuple[int | None, str]]:
    """Yield an open handle of the folder of ``path``, and the file's name in it.

    The parts below ``folder`` are opened one by one, never through a link. Without support for
    handles, yield None and the whole path.
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
                next_handle = os.open(part, DIRECTORY | NO_LINK, dir_fd=handle)
            except OSError as error:
                if stat.S_ISLNK(_mode(part, handle)):
                    raise _link(path) from error
                raise _of_path(error, path) from error
            os.close(handle)
            handle = next_handle
        yield handle, path.name
    finally:
        os.close(handle)


def _mode(name: str, parent: int) -> int:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _link(path: Path) -> FileError:
    return FileError(
        errno.ELOOP, "is a link or lies behind a link; links are not followed", str(path)
    )


def _of_path(error: OSError, path: Path) -> OSError:
    """Return the same error with the whole path; the system call had only a part of it."""
    if isinstance(error, FileError):
        return error
    if error.errno == errno.ELOOP:
        return _link(path)
    if error.errno == errno.ENXIO:  # a pipe opened for writing, or a socket
        return FileError(errno.EINVAL, "is not a regular file", str(path))
    return OSError(error.errno, error.strerror, str(path))
