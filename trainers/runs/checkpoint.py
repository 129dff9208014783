"""Checkpoints that cannot execute code, survive a kill, and are rejected if damaged.

    checkpoints/
      step_000000012345/          one directory per checkpoint, never modified
        manifest.json             format version, step, size and SHA-256 of every other file
        <document>.json           any number
        <arrays>.safetensors      any number
      latest                      name of the newest checkpoint, and SHA-256 of its manifest
      best                        the same for the best checkpoint

A checkpoint is written to a sibling directory ``.writing-<pid>-...``, synced, read back and
verified. Only then it is renamed to its final name and entered in ``latest``; older checkpoints are
removed last. So an interrupted save (a kill, a full disk) leaves the previous checkpoint unchanged.
A second, different checkpoint of the same step is named ``step_000000012345_2``. The first is
removed after ``latest`` names the second, because a rename cannot replace a directory. Only one
process may write to a folder at a time.

Loading rejects every directory that differs from its manifest. It never falls back to another
checkpoint, but the error names an intact one.
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
    MAX_ARRAYS,
    MAX_MANIFEST,
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
MAX_KEPT = 10**6
LEFTOVER = re.compile(r"\.(?:writing|removing)-(\d+)-.*", flags=re.ASCII)


class Saved(NamedTuple):
    """A checkpoint directory; sorts from oldest to newest."""

    step: int
    revision: int  # above 1 if the step was saved again with different content
    path: Path


def directory_name(step: int, revision: int) -> str:
    """Return the directory name of a checkpoint."""
    return f"step_{step:012}" + (f"_{revision}" if revision > 1 else "")


def parsed(path: Path) -> Saved | None:
    """Parse the name of a directory; None if it is not a checkpoint name."""
    match = DIRECTORY.fullmatch(path.name)
    return None if match is None else Saved(int(match[1]), int(match[2] or 1), path)


def all_saved(folder: Path) -> list[Saved]:
    """Return the checkpoint directories of ``folder``, complete or incomplete, oldest first."""
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
    """Save ``content`` as the newest checkpoint of ``folder``; return its directory.

    Of the checkpoints up to this step, the ``keep`` newest ("all": every one) and the best are
    kept. Later checkpoints, of a run that was reset to an earlier step, are not touched. If the
    same content is already saved at this step, the existing directory is kept.

    Raises CheckpointError for invalid content, such as non-finite values (nothing is written), and
    for errors of the file system. Earlier checkpoints and ``latest`` stay valid in both cases.
    """
    step = _whole("step", step, 0, 10**12 - 1)
    maximum = MAX_KEPT if keep == "all" else _whole("keep", keep, 1, MAX_KEPT)
    documents = _checked(content)
    outcome = "the checkpoint was not saved; earlier checkpoints are unchanged"
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            sync(folder.parent)
        _remove_leftovers(folder)
        saved, digest = _write_checkpoint(folder, step, documents, content.arrays)
        outcome = f"{saved.path.name} is complete, but latest does not name it"
        _point(folder, "latest", saved, digest)
        outcome = f"{saved.path.name} is saved and latest"
        if best:
            _point(folder, "best", saved, digest)
        _remove_older(folder, saved, maximum)
    except OSError as error:
        place = folder / str(error.filename or "")  # only a name if the folder is being removed
        raise CheckpointError(f"{place}: {error.strerror or error}: {outcome}") from error
    except CheckpointError as error:
        raise CheckpointError(f"{error}: {outcome}") from error.__cause__
    return saved.path


def complete_save(folder: Path, *, keep: int | Literal["all"], best: bool) -> None:
    """Complete a ``save_checkpoint`` that a kill interrupted after ``latest`` was updated: update
    ``best`` and remove older checkpoints. Raises CheckpointError."""
    latest = latest_checkpoint(folder)
    saved = next(candidate for candidate in all_saved(folder) if candidate.path.name == latest.name)
    if best and best_checkpoint(folder) != latest:
        _point(folder, "best", saved, sha256(read_file(latest / MANIFEST, MAX_MANIFEST)))
    _remove_leftovers(folder)
    _remove_older(folder, saved, MAX_KEPT if keep == "all" else keep)


def _whole(name: str, value: int, low: int, high: int) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise CheckpointError(f"{name}={value!r}: pass a whole number") from None
    if not low <= number <= high:
        raise CheckpointError(f"{name}={number}: pass {low:,} to {high:,}")
    return number


def _checked(content: Content) -> dict[str, bytes]:
    """Return the encoded documents by file name. Arrays are only checked here, and encoded when
    they are written."""
    files = [f"{name}.json" for name in content.documents]
    files += [f"{name}.safetensors" for name in content.arrays]
    for file in files:
        if not FILE_NAME.fullmatch(file) or file == MANIFEST:
            raise CheckpointError(
                f"{file!r}: names must be 1 to 100 of a-z, 0-9 and _, and not manifest"
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
    if sum(map(len, content.arrays.values())) > MAX_ARRAYS:
        raise CheckpointError(f"content: more than {MAX_ARRAYS:,} arrays; stack some of them")
    return documents


def _write_checkpoint(
    folder: Path, step: int, documents: Mapping[str, bytes], arrays: Mapping[str, dict[str, Array]]
) -> tuple[Saved, str]:
    """Write, verify and rename a checkpoint; return it and the SHA-256 of its manifest."""
    temporary = folder / f".writing-{os.getpid()}-{directory_name(step, 1)}"
    try:
        temporary.mkdir()
        files = {file: _write(temporary / file, data) for file, data in documents.items()}
        for name, named in arrays.items():
            file = f"{name}.safetensors"
            files[file] = _write(temporary / file, encode_arrays(file, named))
        manifest = Manifest.of(step, files).encode()
        write_through(temporary / MANIFEST, manifest)
        sync(temporary)
        verify(temporary)  # check that the written files can be loaded
        existing = [saved for saved in all_saved(folder) if saved.step == step]
        if existing and _has_same_content(existing[-1].path, manifest):
            shutil.rmtree(temporary)
            return existing[-1], sha256(manifest)
        revision = existing[-1].revision + 1 if existing else 1
        path = folder / directory_name(step, revision)
        os.rename(temporary, path)
        sync(folder)
    except BaseException:  # after a kill, the next save cleans up
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Saved(step, revision, path), sha256(manifest)


def _has_same_content(path: Path, manifest: bytes) -> bool:
    """Return True if ``path`` is intact and has the same manifest."""
    try:
        return read_file(path / MANIFEST, MAX_MANIFEST) == manifest and is_intact(path)
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
    """Remove checkpoints that ``saved`` replaces, and those beyond ``keep``."""
    try:
        best = best_checkpoint(folder)
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. Older checkpoints are not removed while {folder / 'best'} is damaged: "
            "delete this file"
        ) from error
    before = [other for other in all_saved(folder) if other < saved]
    older = [other for other in before if other.step < saved.step]
    superseded = [other for other in before if other.step == saved.step]
    for other in superseded + older[: len(older) - (keep - 1)]:
        if best is None or other.path.name != best.name:
            # Rename first, so that a kill cannot leave an incomplete checkpoint under a valid name.
            removing = folder / f".removing-{os.getpid()}-{other.path.name}"
            os.rename(other.path, removing)
            shutil.rmtree(removing)


def _remove_leftovers(folder: Path) -> None:
    """Remove incomplete directories and files of killed processes."""
    with os.scandir(folder) as entries:
        leftovers = [(entry, LEFTOVER.fullmatch(entry.name)) for entry in entries]
    for entry, match in leftovers:
        if match is None or not _has_ended(int(match[1])):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _has_ended(process: int) -> bool:
    """Return True if a process has ended. This process counts as ended: it is not writing now."""
    if process == os.getpid():
        return True
    if os.name == "nt":  # os.kill would terminate it there
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

    Raises CheckpointError for an incomplete or damaged checkpoint; the message names the previous
    checkpoint if it is intact.
    """
    content = Content({}, {})
    with _suggest_intact(path.parent, parsed(path)):
        for file, value in contents(path):
            name, _, kind = file.partition(".")
            (content.documents if kind == "json" else content.arrays)[name] = value
    return content


def verify_checkpoint(path: Path) -> None:
    """Raise CheckpointError if ``load_checkpoint`` would, using less memory."""
    with _suggest_intact(path.parent, parsed(path)):
        verify(path)


def latest_checkpoint(folder: Path) -> Path:
    """Return the directory that ``folder/latest`` names; without this file, the checkpoint of the
    largest step.

    Raises CheckpointError if the folder has no checkpoint, or ``latest`` is damaged.
    """
    with _suggest_intact(folder, None):
        path = _follow(folder, "latest")
    if path is not None:
        return path
    complete = [saved.path for saved in all_saved(folder) if (saved.path / MANIFEST).is_file()]
    if not complete:
        raise CheckpointError(f"{folder}: contains no checkpoint; pass the folder of a saved run")
    return complete[-1]


def best_checkpoint(folder: Path) -> Path | None:
    """Return the directory that ``folder/best`` names; None without this file."""
    with _suggest_intact(folder, None):
        return _follow(folder, "best")


def named_checkpoint(folder: Path, name: str) -> Path:
    """Return the directory of a checkpoint: "best", "latest", or a number of env steps.

    Raises CheckpointError for a missing checkpoint; the message lists the existing ones.
    """
    path: Path | None
    if name == "latest":
        return latest_checkpoint(folder)
    complete = [saved for saved in all_saved(folder) if (saved.path / MANIFEST).is_file()]
    if name == "best":
        path, missing = (
            best_checkpoint(folder),
            "there is no best checkpoint yet, because no episode has ended",
        )
    else:
        path = next((saved.path for saved in reversed(complete) if saved.step == int(name)), None)
        missing = f"there is no checkpoint at {int(name):,} env steps"
    if path is None:
        steps = ", ".join(f"@{step}" for step in dict.fromkeys(saved.step for saved in complete))
        raise CheckpointError(
            f"{folder}: {missing}. Available: {steps or 'none'}, and @0, the start of the run. To "
            "keep every checkpoint, train with --keep all"
        )
    return path


def _follow(folder: Path, pointer: str) -> Path | None:
    """Return the checkpoint that a pointer file names, after verifying the manifest's digest."""
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
    if sha256(read_file(path / MANIFEST, MAX_MANIFEST)) != match[2]:
        raise CheckpointError(f"{place}: does not match {path / MANIFEST}: one of them is damaged")
    return path


@contextmanager
def _suggest_intact(folder: Path, before: Saved | None) -> Iterator[None]:
    """Add the newest intact checkpoint (older than ``before``) to a CheckpointError."""
    try:
        yield
    except CheckpointError as error:
        try:
            candidates = [s for s in all_saved(folder) if before is None or s[:2] < before[:2]]
        except CheckpointError:
            candidates = []
        intact = next((s.path.name for s in reversed(candidates) if is_intact(s.path)), None)
        if intact is None:
            raise
        raise CheckpointError(f"{error}. {intact} is intact: pass it by name") from error.__cause__
