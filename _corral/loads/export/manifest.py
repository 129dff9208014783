"""The files of an export, checked before use.

``manifest.json`` lists size and SHA-256 of every file, and ends with its own digest. A digest
detects damage and mistakes. It does not prove who made the files: there is no signature, and an
attacker can write a matching manifest. So sizes, shapes and values are limited as well.

Exports contain the source of this module, see ``numpy_folder``. NumPy only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.files import read_file

__all__ = [
    "MANIFEST",
    "MAX_TEXT",
    "MAX_WEIGHTS",
    "ExportError",
    "decode_arrays",
    "decode_json",
    "encode_arrays",
    "encode_manifest",
    "read_export",
    "read_graph",
    "with_digest",
]

MANIFEST = "manifest.json"
EXPORT_FORMAT, EXPORT_VERSION = "corral export", 1

MAX_MANIFEST = 2**20  # bytes of manifest.json
MAX_TEXT = 32 * 2**20  # bytes of about.json, or of policy.py
MAX_WEIGHTS = 128 * 2**20  # bytes of weights.npz
MAX_GRAPH = 2**31  # bytes of an ONNX graph
MAX_VALUES = 4_000_000  # commas and brackets of a JSON text: bounds the parser's memory


class ExportError(ValueError):
    """The files of an export are damaged, edited or mixed up."""


# --- The manifest --------------------------------------------------------------------------------


def encode_manifest(files: Mapping[str, bytes], corral: str) -> bytes:
    """Return the manifest of ``files``, name -> content, for version ``corral``."""
    entries = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in sorted(files.items())
    }
    return encode_entries(entries, corral)


def encode_entries(entries: Mapping[str, Any], corral: Any) -> bytes:
    """Return the canonical encoding of a manifest, so that any changed byte is detected."""
    body = {"format": EXPORT_FORMAT, "version": EXPORT_VERSION, "corral": corral, "files": entries}
    digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1) + "\n").encode()


def read_export(folder: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Return the content of the files of an export, checked against its manifest.

    ``sizes``: names that must be listed, with their maximum number of bytes. Links are followed,
    because some deployments mount files as links. Raises ExportError.
    """
    path = folder / MANIFEST
    data = _read(path, MAX_MANIFEST)
    content = decode_json(str(path), data)
    try:
        newer = content["format"] == EXPORT_FORMAT and content["version"] > EXPORT_VERSION
        entries: dict[str, Any] = content["files"]
        sound = encode_entries(entries, content["corral"]) == data
        listed = {name: (entry["size"], entry["sha256"]) for name, entry in entries.items()}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ExportError(f"{path} is not the manifest of an export: {error!r:.100}") from error
    if newer:
        raise ExportError(f"{path} was written by a newer corral, or is damaged")
    if not sound:
        raise ExportError(f"{path} is damaged: it does not match its digest")
    if listed.keys() != sizes.keys():
        raise ExportError(f"{path} lists {', '.join(listed)[:200]}, not {', '.join(sizes)}")
    files = {}
    for name, (size, digest) in listed.items():
        files[name] = _read(folder / name, sizes[name])
        if (len(files[name]), hashlib.sha256(files[name]).hexdigest()) != (size, digest):
            raise ExportError(
                f"{folder / name} is damaged or edited: its SHA-256 differs from {MANIFEST}"
            )
    return files


def _read(path: Path, most: int) -> bytes:
    try:
        return read_file(path, most)
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or error}") from error


def decode_json(name: str, data: bytes) -> Any:
    """Return the value of a JSON text. Raises ExportError."""
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > MAX_VALUES:
        raise ExportError(f"{name} has more than {MAX_VALUES:,} values")
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{name} is not JSON: {str(error)[:100]}") from error


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number")


# --- Weights -------------------------------------------------------------------------------------


def encode_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays in the format of NumPy's ``savez``; equal arrays give equal bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return file.getvalue()


def decode_arrays(
    name: str, data: bytes, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Return the arrays of a NumPy zip: finite float32 arrays with the expected ``shapes``.

    Nothing larger than ``data`` is allocated. Raises ExportError.
    """
    counts = {f"{key}.npy": math.prod(shape) for key, shape in shapes.items()}
    if 4 * sum(counts.values()) > len(data) or data.count(b"PK\x01\x02") > len(shapes) + 1_000:
        raise ExportError(f"{name} does not have the {len(shapes)} arrays listed in about.json")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {member.filename: member for member in archive.infolist()}
            if members.keys() != counts.keys() or len(archive.infolist()) != len(counts):
                raise ValueError(f"it has {', '.join(members)[:200]}")
            for member in members.values():
                size = member.file_size
                if member.compress_type != zipfile.ZIP_STORED or size != member.compress_size:
                    raise ValueError(f"{member.filename} is compressed")
                if size > 4 * counts[member.filename] + 4_096:  # a header is shorter
                    raise ValueError(f"{member.filename} has {size:,} bytes")
            arrays = {
                key: _array(archive.read(f"{key}.npy"), shape) for key, shape in shapes.items()
            }
    except Exception as error:  # errors of zipfile and NumPy have no common base
        raise ExportError(
            f"{name} does not have the arrays listed in about.json: {str(error)[:200]}"
        ) from error
    for key, array in arrays.items():
        if not np.isfinite(array).all():
            raise ExportError(f"{name}: {key} has values that are not finite")
    return arrays


def _array(data: bytes, shape: tuple[int, ...]) -> Array:
    """Return the array of a NumPy file with the expected header."""
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of another format")
    claimed, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if claimed != shape or dtype != np.dtype("<f4") or (fortran_order and len(shape) > 1):
        order = " in Fortran order" if fortran_order else ""
        raise ValueError(f"expected float32 {shape}, found {dtype} {claimed}{order}")
    return np.frombuffer(data, dtype="<f4", offset=file.tell()).reshape(shape).astype(np.float32)


# --- ONNX graphs ---------------------------------------------------------------------------------

UNSIGNED = "0" * 64
"""Placeholder for a graph's digest while the digest is computed."""


def with_digest(data: bytes) -> bytes:
    """Replace ``UNSIGNED``, which occurs once in a file, by the SHA-256 of the file."""
    if data.count(UNSIGNED.encode()) != 1:
        raise ExportError("a name in the graph has 64 zeros, the placeholder of its digest")
    digest = hashlib.sha256(data).hexdigest()
    return data.replace(UNSIGNED.encode(), digest.encode())


def read_graph(path: str | Path) -> bytes:
    """Return a graph written by ``export("onnx")``, for onnxruntime.

    Its metadata have ``sha256``, the digest of the file with zeros in its place. Raises ExportError
    if the digest does not match.
    """
    data = _read(Path(path), MAX_GRAPH)
    digest = _digest_of(data)
    whole = data.replace(digest, UNSIGNED.encode())
    if data.count(digest) != 1 or hashlib.sha256(whole).hexdigest().encode() != digest:
        raise ExportError(f"{path} is damaged or edited: its SHA-256 differs from its metadata")
    return data


def _digest_of(data: bytes) -> bytes:
    """Return the 64 digits of the metadata's ``sha256``: an entry is its length, key and value."""
    key = b"\n\x06sha256\x12\x40"
    place = data.rfind(key)
    if place < 0:
        raise ExportError("not a graph written by corral: its metadata lack sha256")
    return data[place + len(key) : place + len(key) + 64]
