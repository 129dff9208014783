"""The directory of a checkpoint: strict JSON, safetensors, and the manifest over both.

Nothing here trusts what it reads: sizes are bounded before anything is parsed, no format can name
code, and whatever a parser says becomes a CheckpointError that names the file. ``encode_`` holds
what is saved to the same rules, so that what was saved can be loaded. Only regular files inside a
real directory are opened, no link is followed, and a file is read once: what is checked is what is
decoded.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.errors import CheckpointError, FileError
from corral.extras import require
from corral.files import read_file as read_any_file
from corral.files import reason, sha256, strict_json

__all__ = [
    "DIRECTORY",
    "FILE_NAME",
    "MANIFEST",
    "MOST_ARRAYS",
    "MOST_MANIFEST",
    "Entry",
    "Manifest",
    "check_arrays",
    "contents",
    "document",
    "encode_arrays",
    "encode_document",
    "is_intact",
    "read_file",
    "verify",
]

MANIFEST = "manifest.json"
DIRECTORY = re.compile(r"step_(\d{12})(?:_([1-9]\d{0,8}))?", flags=re.ASCII)
FORMAT = "corral checkpoint"
VERSION = 1
FILE_NAME = re.compile(r"[a-z0-9_]{1,100}\.(json|safetensors)", flags=re.ASCII)

MOST_MANIFEST = 2**20  # bytes of manifest.json
MOST_FILES = 1000
MOST_JSON = 64 * 2**20  # bytes of all documents together
MOST_VALUES = 2_000_000  # commas and brackets in a document or header: bounds the parser's memory
MOST_DEPTH = 100  # lists in dicts in lists ... of a document that is saved
MOST_ARRAY_BYTES = 8 * 2**30  # bytes of all array files together
MOST_ARRAYS = 100_000  # of all array files together
MOST_HEADER = 16 * 2**20  # bytes of names, shapes and dtypes in one array file

FLOATS = ("float16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = frozenset(map(np.dtype, ("bool", *INTEGERS, *FLOATS)))


def read_file(path: Path, most: int) -> bytes:
    """Return all bytes of a file of a checkpoint. Links are not followed, more than ``most`` bytes
    not read. Raises CheckpointError."""
    try:
        return read_any_file(path, most, folder=path.parent)
    except FileError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except (OSError, MemoryError) as error:
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from error


# --- Documents -----------------------------------------------------------------------------------


def encode_document(file: str, value: Any) -> bytes:
    """``value`` as JSON in ASCII; tuples become lists. CheckpointError names what JSON cannot hold.

    Keys must be text: JSON would turn others into it, and a run that resumes would not find them.
    """
    _check_plain(file, value, 0)
    data = json.dumps(value, allow_nan=False).encode("ascii")
    _check_size(file, data)
    return data


def _check_plain(place: str, value: Any, depth: int) -> None:
    if depth > MOST_DEPTH:
        raise CheckpointError(f"{place[:200]}: more than {MOST_DEPTH} levels deep; flatten it")
    if isinstance(value, dict):
        for key, below in value.items():
            if not isinstance(key, str):
                raise CheckpointError(f"{place}: key {key!r:.100}; keys are text, use str(key)")
            _check_plain(f"{place}: {key}" if depth == 0 else f"{place}.{key}", below, depth + 1)
    elif isinstance(value, list | tuple):
        for i, below in enumerate(value):
            _check_plain(f"{place}[{i}]", below, depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise CheckpointError(
                f"{place} is {value}, not a finite number; look for its cause, nothing was saved"
            )
    elif isinstance(value, int):
        if value.bit_length() > 10_000:  # Python reads back no more than 4300 digits
            raise CheckpointError(
                f"{place}: a number of {value.bit_length():,} bits; at most 10,000"
            )
    elif value is not None and not isinstance(value, str):
        raise CheckpointError(
            f"{place}: a {type(value).__name__} is no JSON value; give None, bool, int, float, "
            "str, list or dict (arrays belong in arrays)"
        )


def _check_size(file: str, data: bytes) -> None:
    if len(data) > MOST_JSON:
        raise CheckpointError(f"{file}: {len(data):,} bytes of JSON, more than {MOST_JSON:,}")
    _check_values(file, data, 0, len(data))


def _check_values(file: str, data: bytes, start: int, end: int) -> None:
    values = sum(data.count(sign, start, end) for sign in (b",", b"[", b"{"))
    if values > MOST_VALUES:
        raise CheckpointError(f"{file}: {values:,} values of JSON, more than {MOST_VALUES:,}")


def decode_document(file: str, data: bytes) -> Any:
    """Return the JSON value in ``data``; NaN, Infinity, numbers beyond float and duplicate keys
    raise."""
    _check_size(file, data)
    try:
        return strict_json(data.decode("ascii"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(
            f"{file}: is not the JSON that corral writes: {reason(error)}"
        ) from error


# --- Arrays --------------------------------------------------------------------------------------


def check_arrays(file: str, arrays: Mapping[str, Any]) -> None:
    """Raise CheckpointError for what may not be saved: odd names, dtypes, non-finite values.

    A missing safetensors raises MissingExtraError here, before anything is written.
    """
    _safetensors()
    for name, array in arrays.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise CheckpointError(f"{file}: array name {name!r:.100}; give another text")
        if not isinstance(array, np.ndarray):
            raise CheckpointError(
                f"{file}: {name!r} is a {type(array).__name__}; give a numpy array, or a document"
            )
        _check_array(file, name, array)


def _check_array(file: str, name: str, array: Array) -> None:
    if array.dtype.newbyteorder("=") not in DTYPES:
        known = ", ".join(sorted(map(str, DTYPES)))
        raise CheckpointError(
            f"{file}: array {name!r} has dtype {array.dtype}; give one of {known}"
        )
    if array.dtype.kind == "f":
        odd = ~np.isfinite(array)
        if odd.any():
            first = tuple(int(i) for i in np.unravel_index(odd.argmax(), odd.shape))
            raise CheckpointError(
                f"{file}: array {name!r}, {array.shape}, has {np.count_nonzero(odd):,} values that "
                f"are not finite, the first at {first}; look for their cause"
            )


def encode_arrays(file: str, arrays: Mapping[str, Array]) -> bytes:
    """Checked ``arrays`` as safetensors."""
    # Not ascontiguousarray, which makes [] into [1]; safetensors reads the memory as it lies.
    plain = {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    safetensors = _safetensors()
    try:
        return bytes(safetensors.save(plain))
    except Exception as error:
        raise CheckpointError(f"{file}: safetensors cannot hold it: {reason(error)}") from error


def decode_arrays(file: str, data: bytes) -> dict[str, Array]:
    """Return the arrays in ``data``, writable and all finite; about as much memory as ``data``
    is allocated."""
    header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or header > len(data) - 8 or header > MOST_HEADER:
        raise CheckpointError(
            f"{file}: its header claims {header:,} bytes; the file has {len(data):,}, "
            f"and at most {MOST_HEADER:,} are read"
        )
    _check_values(file, data, 8, 8 + header)
    count = data.count(b'"data_offsets"', 8, 8 + header)
    if count > MOST_ARRAYS:
        raise CheckpointError(f"{file}: {count:,} arrays, more than {MOST_ARRAYS:,}")
    safetensors = _safetensors()
    try:
        arrays: dict[str, Array] = safetensors.load(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in the library's Rust code is no Exception
        raise CheckpointError(f"{file}: is not safetensors: {reason(error)}") from error
    if len(arrays) != count:
        raise CheckpointError(f"{file}: an array stands in it twice")
    for name, array in arrays.items():
        _check_array(file, name, array)
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise CheckpointError(f"{file}: array {name!r} is bool, with bytes other than 0 and 1")
    return arrays


def _safetensors() -> Any:
    return require("safetensors.numpy", extra="mappo", purpose="read and write checkpoints")


# --- The manifest --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """Size and digest of a file, as the manifest has them."""

    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of a checkpoint's files; it ends in a digest of itself."""

    step: int
    files: dict[str, Entry]
    corral: str

    @classmethod
    def of(cls, step: int, files: dict[str, Entry]) -> Manifest:
        return cls(step, files, metadata.version("corral"))

    def encode(self) -> bytes:
        """One manifest has one encoding, so that any changed byte shows."""
        body = {
            "format": FORMAT,
            "version": VERSION,
            "corral": self.corral,
            "step": self.step,
            "files": {name: asdict(self.files[name]) for name in sorted(self.files)},
        }
        digest = sha256(json.dumps(body).encode("ascii"))
        return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode("ascii")

    @classmethod
    def decode(cls, file: str, data: bytes) -> Manifest:
        """Return the manifest in ``data``; its sizes are within the caps."""
        value = decode_document(file, data)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise CheckpointError(f"{file}: is not the manifest of a corral checkpoint")
        version = value.get("version")
        if type(version) is int and version > VERSION:
            raise CheckpointError(
                f"{file}: format version {version}, newer than {VERSION}; "
                "load it with a newer corral, or it is damaged"
            )
        try:
            entries = {
                name: Entry(entry["size"], entry["sha256"])
                for name, entry in value["files"].items()
            }
            manifest = cls(value["step"], entries, value["corral"])
            sound = type(manifest.step) is int and all(
                type(entry.size) is int and entry.size >= 0 for entry in entries.values()
            )
            sound = sound and manifest.encode() == data
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file}: is damaged: {reason(error)}") from error
        if not sound:
            raise CheckpointError(f"{file}: is damaged: it does not match its own digest")
        for name in entries:
            if not FILE_NAME.fullmatch(name) or name == MANIFEST:
                raise CheckpointError(f"{file}: lists {name!r:.100}, no file of a checkpoint")
        manifest.check_sizes(file)
        return manifest

    def check_sizes(self, file: str) -> None:
        """Raise CheckpointError where the files, together, are beyond the caps."""
        if len(self.files) > MOST_FILES:
            raise CheckpointError(f"{file}: {len(self.files):,} files, more than {MOST_FILES:,}")
        for suffix, most in ((".json", MOST_JSON), (".safetensors", MOST_ARRAY_BYTES)):
            total = sum(entry.size for name, entry in self.files.items() if name.endswith(suffix))
            if total > most:
                raise CheckpointError(
                    f"{file}: {total:,} bytes of {suffix} files, more than {most:,}"
                )


# --- Directories ---------------------------------------------------------------------------------


def verify(path: Path) -> None:
    """Raise CheckpointError where a checkpoint cannot be loaded, without holding all of it."""
    for _ in contents(path):
        pass


def is_intact(path: Path) -> bool:
    """Return whether all of a checkpoint can be loaded."""
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def contents(path: Path) -> Iterator[tuple[str, Any]]:
    """Every file of a checkpoint, checked and decoded, one at a time."""
    manifest = _manifest(path)
    arrays = 0
    for file, entry in manifest.files.items():
        found = _decoded(path / file, entry)
        if file.endswith(".safetensors"):
            arrays += len(found)
            if arrays > MOST_ARRAYS:
                raise CheckpointError(f"{path}: more than {MOST_ARRAYS:,} arrays")
        yield file, found


def _decoded(path: Path, entry: Entry) -> Any:
    data = read_file(path, entry.size)
    if len(data) != entry.size:
        raise CheckpointError(
            f"{path}: {len(data):,} bytes, but {entry.size:,} were saved: it is damaged"
        )
    if sha256(data) != entry.sha256:
        raise CheckpointError(f"{path}: is damaged: its SHA-256 is not the one saved")
    decode = decode_document if path.suffix == ".json" else decode_arrays
    return decode(str(path), data)


def document(path: Path, name: str) -> Any:
    """Return one document of a checkpoint, checked as ``contents`` does; None: it has none."""
    entry = _manifest(path).files.get(f"{name}.json")
    return None if entry is None else _decoded(path / f"{name}.json", entry)


def _manifest(path: Path) -> Manifest:
    """Return the manifest of a real directory that holds exactly the files it lists."""
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
    named = DIRECTORY.fullmatch(path.name)
    if named is not None and int(named[1]) != manifest.step:
        raise CheckpointError(f"{path}: holds step {manifest.step}; it was renamed")
    return manifest
