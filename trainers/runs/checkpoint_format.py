"""The files of a checkpoint: strict JSON, safetensors, and a manifest of all files.

Input is not trusted: sizes are limited before parsing, no format can refer to code, and every
parser error becomes a CheckpointError with the file name. The ``encode_`` functions apply the same
rules, so that every saved file can be loaded. Only regular files in a real directory are opened,
links are not followed, and each file is read once: exactly the verified bytes are decoded.
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
    "MAX_ARRAYS",
    "MAX_MANIFEST",
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

MAX_MANIFEST = 2**20  # bytes of manifest.json
MAX_FILES = 1000
MAX_JSON = 64 * 2**20  # total bytes of all documents
MAX_VALUES = 2_000_000  # commas and brackets per document or header, limits the parser's memory
MAX_DEPTH = 100  # nesting depth of a saved document
MAX_ARRAY_BYTES = 8 * 2**30  # total bytes of all array files
MAX_ARRAYS = 100_000  # total number of arrays
MAX_HEADER = 16 * 2**20  # bytes of names, shapes and dtypes in one array file

FLOATS = ("float16", "float32", "float64")
INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = frozenset(map(np.dtype, ("bool", *INTEGERS, *FLOATS)))


def read_file(path: Path, most: int) -> bytes:
    """Return the bytes of a checkpoint file, at most ``most``. Does not follow links. Raises
    CheckpointError."""
    try:
        return read_any_file(path, most, folder=path.parent)
    except FileError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    except (OSError, MemoryError) as error:
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from error


# --- Documents -----------------------------------------------------------------------------------


def encode_document(file: str, value: Any) -> bytes:
    """Encode ``value`` as ASCII JSON; tuples become lists. Raises CheckpointError for other types.

    Keys must be strings: JSON would convert other keys, and a resumed run would not find them.
    """
    _check_plain(file, value, 0)
    data = json.dumps(value, allow_nan=False).encode("ascii")
    _check_size(file, data)
    return data


def _check_plain(place: str, value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CheckpointError(f"{place[:200]}: more than {MAX_DEPTH} levels deep; flatten it")
    if isinstance(value, dict):
        for key, entry in value.items():
            if not isinstance(key, str):
                raise CheckpointError(
                    f"{place}: key {key!r:.100}; keys must be strings, use str(key)"
                )
            _check_plain(f"{place}: {key}" if depth == 0 else f"{place}.{key}", entry, depth + 1)
    elif isinstance(value, list | tuple):
        for i, entry in enumerate(value):
            _check_plain(f"{place}[{i}]", entry, depth + 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise CheckpointError(
                f"{place} is {value}, not a finite number; find its cause. Nothing was saved"
            )
    elif isinstance(value, int):
        if value.bit_length() > 10_000:  # Python parses at most 4300 digits
            raise CheckpointError(
                f"{place}: an integer of {value.bit_length():,} bits; the maximum is 10,000"
            )
    elif value is not None and not isinstance(value, str):
        raise CheckpointError(
            f"{place}: {type(value).__name__} is not a JSON type; use None, bool, int, float, str, "
            "list or dict (arrays belong in arrays)"
        )


def _check_size(file: str, data: bytes) -> None:
    if len(data) > MAX_JSON:
        raise CheckpointError(f"{file}: {len(data):,} bytes of JSON, more than {MAX_JSON:,}")
    _check_values(file, data, 0, len(data))


def _check_values(file: str, data: bytes, start: int, end: int) -> None:
    values = sum(data.count(sign, start, end) for sign in (b",", b"[", b"{"))
    if values > MAX_VALUES:
        raise CheckpointError(f"{file}: {values:,} JSON values, more than {MAX_VALUES:,}")


def decode_document(file: str, data: bytes) -> Any:
    """Decode the JSON value in ``data``. Raises CheckpointError for NaN, Infinity, numbers beyond
    float and duplicate keys."""
    _check_size(file, data)
    try:
        return strict_json(data.decode("ascii"))
    except (ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{file}: is not valid JSON of corral: {reason(error)}") from error


# --- Arrays --------------------------------------------------------------------------------------


def check_arrays(file: str, arrays: Mapping[str, Any]) -> None:
    """Raise CheckpointError for invalid array names, dtypes and non-finite values.

    If safetensors is missing, MissingExtraError is raised here, before files are written.
    """
    _safetensors()
    for name, array in arrays.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise CheckpointError(f"{file}: invalid array name {name!r:.100}; use another string")
        if not isinstance(array, np.ndarray):
            raise CheckpointError(
                f"{file}: {name!r} has type {type(array).__name__}; pass a NumPy array, or save it "
                "in a document"
            )
        _check_array(file, name, array)


def _check_array(file: str, name: str, array: Array) -> None:
    if array.dtype.newbyteorder("=") not in DTYPES:
        allowed = ", ".join(sorted(map(str, DTYPES)))
        raise CheckpointError(
            f"{file}: array {name!r} has dtype {array.dtype}; use one of {allowed}"
        )
    if array.dtype.kind == "f":
        nonfinite = ~np.isfinite(array)
        if nonfinite.any():
            first = tuple(int(i) for i in np.unravel_index(nonfinite.argmax(), nonfinite.shape))
            raise CheckpointError(
                f"{file}: array {name!r}, {array.shape}, has {np.count_nonzero(nonfinite):,} "
                f"non-finite values, the first at {first}; find their cause"
            )


def encode_arrays(file: str, arrays: Mapping[str, Array]) -> bytes:
    """Encode ``arrays``, which were checked, as safetensors."""
    # Not ascontiguousarray, which turns shape [] into [1]; safetensors reads memory in order.
    plain = {
        name: np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        for name, array in arrays.items()
    }
    safetensors = _safetensors()
    try:
        return bytes(safetensors.save(plain))
    except Exception as error:
        raise CheckpointError(f"{file}: safetensors cannot encode it: {reason(error)}") from error


def decode_arrays(file: str, data: bytes) -> dict[str, Array]:
    """Decode the arrays in ``data``, writable and all finite. Allocates about as much memory as
    ``data``."""
    header = int.from_bytes(data[:8], "little")
    if len(data) < 8 or header > len(data) - 8 or header > MAX_HEADER:
        raise CheckpointError(
            f"{file}: its header claims {header:,} bytes; the file has {len(data):,}, and the "
            f"maximum is {MAX_HEADER:,}"
        )
    _check_values(file, data, 8, 8 + header)
    count = data.count(b'"data_offsets"', 8, 8 + header)
    if count > MAX_ARRAYS:
        raise CheckpointError(f"{file}: {count:,} arrays, more than {MAX_ARRAYS:,}")
    safetensors = _safetensors()
    try:
        arrays: dict[str, Array] = safetensors.load(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust code is not an Exception
        raise CheckpointError(f"{file}: is not safetensors: {reason(error)}") from error
    if len(arrays) != count:
        raise CheckpointError(f"{file}: duplicate array")
    for name, array in arrays.items():
        _check_array(file, name, array)
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise CheckpointError(
                f"{file}: array {name!r} is bool, but contains bytes other than 0 and 1"
            )
    return arrays


def _safetensors() -> Any:
    return require("safetensors.numpy", extra="mappo", purpose="read and write checkpoints")


# --- The manifest --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """Size and SHA-256 of a file in the manifest."""

    size: int  # bytes
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The list of a checkpoint's files, with a digest of the manifest itself."""

    step: int
    files: dict[str, Entry]
    corral: str

    @classmethod
    def of(cls, step: int, files: dict[str, Entry]) -> Manifest:
        return cls(step, files, metadata.version("corral"))

    def encode(self) -> bytes:
        """Encode the manifest. The encoding is unique, so that every changed byte is detected."""
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
        """Decode the manifest in ``data``, and check the size limits."""
        value = decode_document(file, data)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise CheckpointError(f"{file}: is not the manifest of a corral checkpoint")
        version = value.get("version")
        if type(version) is int and version > VERSION:
            raise CheckpointError(
                f"{file}: format version {version} is newer than {VERSION}; load it with a newer "
                "corral. Otherwise the file is damaged"
            )
        try:
            entries = {
                name: Entry(entry["size"], entry["sha256"])
                for name, entry in value["files"].items()
            }
            manifest = cls(value["step"], entries, value["corral"])
            valid = type(manifest.step) is int and all(
                type(entry.size) is int and entry.size >= 0 for entry in entries.values()
            )
            valid = valid and manifest.encode() == data
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{file}: is damaged: {reason(error)}") from error
        if not valid:
            raise CheckpointError(f"{file}: is damaged: it does not match its own digest")
        for name in entries:
            if not FILE_NAME.fullmatch(name) or name == MANIFEST:
                raise CheckpointError(
                    f"{file}: lists {name!r:.100}, which is not a checkpoint file"
                )
        manifest.check_sizes(file)
        return manifest

    def check_sizes(self, file: str) -> None:
        """Raise CheckpointError if the files exceed the limits."""
        if len(self.files) > MAX_FILES:
            raise CheckpointError(f"{file}: {len(self.files):,} files, more than {MAX_FILES:,}")
        for suffix, limit in ((".json", MAX_JSON), (".safetensors", MAX_ARRAY_BYTES)):
            total = sum(entry.size for name, entry in self.files.items() if name.endswith(suffix))
            if total > limit:
                raise CheckpointError(
                    f"{file}: {total:,} bytes of {suffix} files, more than {limit:,}"
                )


# --- Directories ---------------------------------------------------------------------------------


def verify(path: Path) -> None:
    """Raise CheckpointError if a checkpoint cannot be loaded, one file at a time."""
    for _ in contents(path):
        pass


def is_intact(path: Path) -> bool:
    """Return True if a checkpoint can be loaded completely."""
    try:
        verify(path)
    except CheckpointError:
        return False
    return True


def contents(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield every file of a checkpoint, verified and decoded, one at a time."""
    manifest = _manifest(path)
    arrays = 0
    for file, entry in manifest.files.items():
        value = _decoded(path / file, entry)
        if file.endswith(".safetensors"):
            arrays += len(value)
            if arrays > MAX_ARRAYS:
                raise CheckpointError(f"{path}: more than {MAX_ARRAYS:,} arrays")
        yield file, value


def _decoded(path: Path, entry: Entry) -> Any:
    data = read_file(path, entry.size)
    if len(data) != entry.size:
        raise CheckpointError(
            f"{path}: has {len(data):,} bytes, but {entry.size:,} were saved: it is damaged"
        )
    if sha256(data) != entry.sha256:
        raise CheckpointError(f"{path}: is damaged: its SHA-256 differs from the saved one")
    decode = decode_document if path.suffix == ".json" else decode_arrays
    return decode(str(path), data)


def document(path: Path, name: str) -> Any:
    """Return one document of a checkpoint, verified as in ``contents``; None if it is missing."""
    entry = _manifest(path).files.get(f"{name}.json")
    return None if entry is None else _decoded(path / f"{name}.json", entry)


def _manifest(path: Path) -> Manifest:
    """Return the manifest of a directory, after checking that the directory matches it."""
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISLNK(kind):
            raise CheckpointError(f"{path}: is a link; pass the directory itself")
        if not stat.S_ISDIR(kind):
            raise CheckpointError(
                f"{path}: is a file, but a corral checkpoint is a directory; zip files and pickles "
                "can execute code and are not opened"
            )
        with os.scandir(path) as entries:
            names = {entry.name for entry in islice(entries, MAX_FILES + 2)}
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from error
    if len(names) > MAX_FILES + 1:
        raise CheckpointError(f"{path}: contains more than {MAX_FILES:,} files")
    if MANIFEST not in names:
        raise CheckpointError(
            f"{path}: has no {MANIFEST}, so it is not a complete corral checkpoint"
        )
    data = read_file(path / MANIFEST, MAX_MANIFEST)
    manifest = Manifest.decode(str(path / MANIFEST), data)
    listed = {*manifest.files, MANIFEST}
    for fault, unexpected in (("lacks", listed - names), ("also contains", names - listed)):
        if unexpected:
            shown = ", ".join(map(repr, sorted(unexpected)[:5]))
            raise CheckpointError(f"{path}: {fault} {shown}, unlike its manifest")
    match = DIRECTORY.fullmatch(path.name)
    if match is not None and int(match[1]) != manifest.step:
        raise CheckpointError(f"{path}: contains step {manifest.step}; it was renamed")
    return manifest
