"""Checkpoints that cannot execute code, survive a kill, and are refused when damaged.

    checkpoints/
      step_000000012345/          one directory each, never written to again
        manifest.json             format version, step, size and SHA-256 of every other file
        <document>.json           any number of them
        <arrays>.safetensors      any number of them
      latest                      the name of the newest, and the SHA-256 of its manifest
      best                        the same, of the best so far

A checkpoint is written into a sibling directory ``.writing-<pid>-...``, synced, read back and
verified, and only then renamed into place and announced in ``latest``; older ones go last. Whatever
stops a save (a kill, a full disk) therefore leaves the one before it as it was. A second, different
checkpoint of the same step becomes ``step_000000012345_2``, and the first goes once the second is
announced: a directory cannot replace another in one move. One process writes to a folder at a time.

Loading refuses everything that is not exactly what the manifest lists; it never falls back to
another checkpoint by itself, but names one that is intact.
"""

from __future__ import annotations

import operator
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from corral.envs.core import Array
from corral.errors import CheckpointError
from corral.files import reason, sha256, sync, write_through
from corral.trainers.content import Content
from corral.trainers.runs.checkpoint_format import (
    DIRECTORY,
    FILE_NAME,
    MANIFEST,
    MOST_ARRAYS,
    MOST_MANIFEST,
    Entry,
    Manifest,
    check_arrays,
    contents,
    encode_arrays,
    encode_document,
    is_intact,
    read_file,
    verify,
)

__all__ = [
    "Content",
    "best_checkpoint",
    "complete_save",
    "latest_checkpoint",
    "load_checkpoint",
    "named_checkpoint",
    "save_checkpoint",
    "verify_checkpoint",
]

POINTER = re.compile(r"(step_\d{12}(?:_[1-9]\d{0,8})?) ([0-9a-f]{64})\n", flags=re.ASCII)
MOST_KEPT = 10**6
LEFTOVER = re.compile(r"\.(?:writing|removing)-(\d+)-.*", flags=re.ASCII)


class Saved(NamedTuple):
    """A checkpoint directory; they sort from the oldest to the newest."""

    step: int
    revision: int  # 1, or more where a step was saved again with another content
    path: Path


def directory_name(step: int, revision: int) -> str:
    """Return the name of a checkpoint's directory."""
    return f"step_{step:012}" + (f"_{revision}" if revision > 1 else "")


def parsed(path: Path) -> Saved | None:
    """Parse the name of a directory; None where it is no checkpoint's."""
    match = DIRECTORY.fullmatch(path.name)
    return None if match is None else Saved(int(match[1]), int(match[2] or 1), path)


def all_saved(folder: Path) -> list[Saved]:
    """Return the checkpoint directories of ``folder``, complete or not, oldest first."""
    try:
        with os.scandir(folder) as entries:
            paths = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"{folder}: cannot be listed: {reason(error)}") from error
    return sorted(saved for path in paths if (saved := parsed(path)) is not None)


# --- Saving --------------------------------------------------------------------------------------


def save_checkpoint(
    folder: Path,
    step: int,
    content: Content,
    *,
    keep: int | Literal["all"] = 3,
    best: bool = False,
) -> Path:
    """Save ``content`` as the newest checkpoint of ``folder``; its directory.

    Of the checkpoints up to this step the ``keep`` newest stay ("all": every one), and the one that
    ``best`` names; later ones, of a run that went back, are left alone. Saving the same content at
    the same step again keeps the directory that is there. Raises CheckpointError for content that
    cannot be saved (values that are not finite among it: nothing is written then), and where the
    file system fails; earlier checkpoints and ``latest`` stay valid either way.
    """
    step = _whole("step", step, 0, 10**12 - 1)
    most = MOST_KEPT if keep == "all" else _whole("keep", keep, 1, MOST_KEPT)
    documents = _checked(content)
    outcome = "the checkpoint was not saved, earlier ones are untouched"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync(folder.parent)
        _remove_leftovers(folder)
        saved, digest = _write_checkpoint(folder, step, documents, content.arrays)
        outcome = f"{saved.path.name} is complete, but not announced as latest"
        _point(folder, "latest", saved, digest)
        outcome = f"{saved.path.name} is saved, and latest"
        if best:
            _point(folder, "best", saved, digest)
        _remove_older(folder, saved, most)
    except OSError as error:
        place = folder / str(error.filename or "")  # a name alone where a folder is removed
        raise CheckpointError(f"{place}: {error.strerror or error}: {outcome}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{error}: {outcome}") from error.__cause__
    return saved.path


def complete_save(folder: Path, *, keep: int | Literal["all"], best: bool) -> None:
    """Do what a kill may have kept ``save_checkpoint`` from, after the latest checkpoint was
    announced: let ``best`` name it too, and remove older ones. Raises CheckpointError."""
    latest = latest_checkpoint(folder)
    saved = next(each for each in all_saved(folder) if each.path.name == latest.name)
    if best and best_checkpoint(folder) != latest:
        _point(folder, "best", saved, sha256(read_file(latest / MANIFEST, MOST_MANIFEST)))
    _remove_leftovers(folder)
    _remove_older(folder, saved, MOST_KEPT if keep == "all" else keep)


def _whole(name: str, value: int, low: int, high: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise CheckpointError(f"{name}={value!r}: give a whole number") from None
    if not low <= number <= high:
        raise CheckpointError(f"{name}={number}: give {low:,} .. {high:,}")
    return number


def _checked(content: Content) -> dict[str, bytes]:
    """Return the encoded documents by file name; arrays are checked here, and encoded when
    written."""
    files = [f"{name}.json" for name in content.documents]
    files += [f"{name}.safetensors" for name in content.arrays]
    for file in files:
        if not FILE_NAME.fullmatch(file) or file == MANIFEST:
            raise CheckpointError(
                f"{file!r}: names are 1 to 100 of a-z, 0-9 and _, and manifest is taken"
            )
    documents = {
        f"{name}.json": encode_document(f"{name}.json", value)
        for name, value in content.documents.items()
    }
    sizes = {file: len(data) for file, data in documents.items()}
    for name, arrays in content.arrays.items():
        check_arrays(f"{name}.safetensors", arrays)
        sizes[f"{name}.safetensors"] = sum(array.nbytes for array in arrays.values())
    Manifest(0, {file: Entry(size, "") for file, size in sizes.items()}, "").check_sizes("content")
    if sum(map(len, content.arrays.values())) > MOST_ARRAYS:
        raise CheckpointError(f"content: more than {MOST_ARRAYS:,} arrays; stack some")
    return documents


def _write_checkpoint(
    folder: Path, step: int, documents: Mapping[str, bytes], arrays: Mapping[str, dict[str, Array]]
) -> tuple[Saved, str]:
    """Write, verify, rename; the checkpoint and the SHA-256 of its manifest."""
    temporary = folder / f".writing-{os.getpid()}-{directory_name(step, 1)}"
    try:
        temporary.mkdir()
        files = {file: _write(temporary / file, data) for file, data in documents.items()}
        for name, found in arrays.items():
            file = f"{name}.safetensors"
            files[file] = _write(temporary / file, encode_arrays(file, found))
        manifest = Manifest.of(step, files).encode()
        write_through(temporary / MANIFEST, manifest)
        sync(temporary)
        verify(temporary)  # what was written can be loaded
        there = [saved for saved in all_saved(folder) if saved.step == step]
        if there and _holds(there[-1].path, manifest):
            shutil.rmtree(temporary)
            return there[-1], sha256(manifest)
        revision = there[-1].revision + 1 if there else 1
        path = folder / directory_name(step, revision)
        os.rename(temporary, path)
        sync(folder)
    except BaseException:  # a kill is seen to by the next save
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Saved(step, revision, path), sha256(manifest)


def _holds(path: Path, manifest: bytes) -> bool:
    """Return whether ``path`` is intact and lists the same content."""
    try:
        return read_file(path / MANIFEST, MOST_MANIFEST) == manifest and is_intact(path)
    except CheckpointError:
        return False


def _write(path: Path, data: bytes) -> Entry:
    write_through(path, data)
    return Entry(len(data), sha256(data))


def _point(folder: Path, pointer: str, saved: Saved, digest: str) -> None:
    temporary = folder / f".writing-{os.getpid()}-{pointer}"
    try:
        write_through(temporary, f"{saved.path.name} {digest}\n".encode("ascii"))
        os.replace(temporary, folder / pointer)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(folder)


def _remove_older(folder: Path, saved: Saved, keep: int) -> None:
    """Remove what ``saved`` supersedes, and what is beyond ``keep``."""
    try:
        best = best_checkpoint(folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. No older one is removed while {folder / 'best'} is in doubt: delete it"
        ) from error
    before = [other for other in all_saved(folder) if other < saved]
    older = [other for other in before if other.step < saved.step]
    superseded = [other for other in before if other.step == saved.step]
    for other in superseded + older[: len(older) - (keep - 1)]:
        if best is None or other.path.name != best.name:
            # Renamed first: a kill must not leave half a checkpoint under a good name.
            removing = folder / f".removing-{os.getpid()}-{other.path.name}"
            os.rename(other.path, removing)
            shutil.rmtree(removing)


def _remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half written or half removed."""
    with os.scandir(folder) as entries:
        found = [(entry, LEFTOVER.fullmatch(entry.name)) for entry in entries]
    for entry, match in found:
        if match is None or not _is_over(int(match[1])):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _is_over(process: int) -> bool:
    """Return whether a process ended. This one is not writing during the call."""
    if process == os.getpid():
        return True
    if os.name == "nt":  # where os.kill would end it
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


# --- Loading -------------------------------------------------------------------------------------


def load_checkpoint(path: Path) -> Content:
    """Return the content of one checkpoint directory.

    Raises CheckpointError for whatever is not a complete, undamaged checkpoint; the message names
    the checkpoint before it if that one is intact.
    """
    content = Content({}, {})
    with _naming_an_intact_one(path.parent, parsed(path)):
        for file, value in contents(path):
            name, _, kind = file.partition(".")
            (content.documents if kind == "json" else content.arrays)[name] = value
    return content


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError where ``load_checkpoint`` would, without holding all of it."""
    with _naming_an_intact_one(path.parent, parsed(path)):
        verify(path)


def latest_checkpoint(folder: Path) -> Path:
    """Return the directory that ``folder/latest`` names; without it, the one of the
    largest step.

    Raises CheckpointError where there is none, or ``latest`` is damaged.
    """
    with _naming_an_intact_one(folder, None):
        found = _follow(folder, "latest")
    if found is not None:
        return found
    complete = [saved.path for saved in all_saved(folder) if (saved.path / MANIFEST).is_file()]
    if not complete:
        raise CheckpointError(f"{folder}: holds no checkpoint; name a folder that a run saved to")
    return complete[-1]


def best_checkpoint(folder: Path) -> Path | None:
    """Return the directory that ``folder/best`` names; None where there is no such file."""
    with _naming_an_intact_one(folder, None):
        return _follow(folder, "best")


def named_checkpoint(folder: Path, name: str) -> Path:
    """Return the directory of a checkpoint: "best", "latest", or that of so many env steps.

    Raises CheckpointError where there is none; the message says which there are.
    """
    found: Path | None
    if name == "latest":
        return latest_checkpoint(folder)
    complete = [saved for saved in all_saved(folder) if (saved.path / MANIFEST).is_file()]
    if name == "best":
        found, missing = best_checkpoint(folder), "no checkpoint is the best: no episode had ended"
    else:
        found = next((each.path for each in reversed(complete) if each.step == int(name)), None)
        missing = f"no checkpoint of {int(name):,} env steps is kept"
    if found is None:
        steps = ", ".join(f"@{step}" for step in dict.fromkeys(each.step for each in complete))
        raise CheckpointError(
            f"{folder}: {missing}. There are {steps or 'none'}, and @0, as the run began; training "
            "with --keep all keeps every one"
        )
    return found


def _follow(folder: Path, pointer: str) -> Path | None:
    """Return the checkpoint that a pointer names, after comparing the digest of its manifest."""
    place = folder / pointer
    try:
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"{place}: cannot be read: {reason(error)}") from error
    data = read_file(place, 200)
    match = POINTER.fullmatch(data.decode("ascii", errors="replace"))
    if match is None:
        raise CheckpointError(f"{place}: is damaged: it does not name a checkpoint")
    path = folder / match[1]
    if sha256(read_file(path / MANIFEST, MOST_MANIFEST)) != match[2]:
        raise CheckpointError(f"{place}: does not fit {path / MANIFEST}: one of them is damaged")
    return path


@contextmanager
def _naming_an_intact_one(folder: Path, before: Saved | None) -> Iterator[None]:
    """Complete a CheckpointError with the newest intact checkpoint (older than ``before``)."""
    try:
        yield
    except CheckpointError as error:
        try:
            others = [s for s in all_saved(folder) if before is None or s[:2] < before[:2]]
        except CheckpointError:
            others = []
        intact = next((s.path.name for s in reversed(others) if is_intact(s.path)), None)
        if intact is None:
            raise
        raise CheckpointError(f"{error}. {intact} is intact: pass it by name") from error.__cause__
