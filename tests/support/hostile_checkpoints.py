"""Checkpoints made by an enemy: to run code, to reach other files, to hang, to fill the memory.

Each case is a function (checkpoint, outside) that changes an intact checkpoint directory into a
hostile one; ``outside`` is a folder that nothing may touch. ``load`` says which call meets it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral.files import sha256
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from corral.trainers.runs.checkpoint_format import Entry, Manifest
from support.checkpoints import content_of, meet

Case = Callable[[Path, Path], None]
CASES: dict[str, Case] = {}
LARGE: set[str] = set()  # the names of those that take seconds
FOLLOWED = ("latest",)  # cases whose name begins so are met through latest_checkpoint

GIB = 2**30


def case(name: str, *, large: bool = False) -> Callable[[Case], Case]:
    def keep(build: Case) -> Case:
        CASES[name] = build
        if large:
            LARGE.add(name)
        return build

    return keep


class RunsCode:
    """Its pickle runs a shell command when it is loaded."""

    def __init__(self, outside: Path) -> None:
        self.outside = outside

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.outside / 'ran'}",)


def forge(path: Path, files: dict[str, bytes], at: int = 2, **entries: Entry) -> None:
    """Put ``files`` into a checkpoint of step ``at``, with a manifest that agrees with them."""
    listed = {}
    for name, data in files.items():
        (path / name).write_bytes(data)
    for name in sorted({*os.listdir(path), *files} - {"manifest.json"}):
        data = (path / name).read_bytes()
        listed[name] = Entry(len(data), sha256(data))
    for name, entry in entries.items():
        listed[name.replace("__", ".")] = entry
    (path / "manifest.json").write_bytes(Manifest.of(at, listed).encode())


def header(value: Any, data: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + data


def sparse(path: Path, size: int) -> None:
    """A file that claims ``size`` bytes and takes none."""
    with open(path, "wb") as file:
        file.truncate(size)


@case("a pickle in the place of a checkpoint")
def _(path: Path, outside: Path) -> None:
    shutil.rmtree(path)
    path.write_bytes(pickle.dumps(RunsCode(outside)))


@case("a zip with a pickle (as torch and SB3 write) in its place")
def _(path: Path, outside: Path) -> None:
    shutil.rmtree(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(RunsCode(outside)))
        archive.writestr("../ran", "")


@case("a pickle in the place of the arrays, manifest in agreement")
def _(path: Path, outside: Path) -> None:
    forge(path, {"networks.safetensors": pickle.dumps(RunsCode(outside))})


@case("a pickle in the place of a document, manifest in agreement")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": pickle.dumps(RunsCode(outside))})


@case("a pickle in the place of the manifest")
def _(path: Path, outside: Path) -> None:
    (path / "manifest.json").write_bytes(pickle.dumps(RunsCode(outside)))


@case("a module and a pickle beside the files")
def _(path: Path, outside: Path) -> None:
    (path / "__init__.py").write_text(f"open({str(outside / 'ran')!r}, 'w')")
    (path / "policy.pkl").write_bytes(pickle.dumps(RunsCode(outside)))


@case("a listed module")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.py": b"raise SystemExit"})


@case("a document's path leads out by ..")
def _(path: Path, outside: Path) -> None:
    data = (outside / "secret.json").read_bytes()
    name = os.path.relpath(outside / "secret.json", path)
    forge(path, {}, **{name: Entry(len(data), sha256(data))})


@case("a document's path is absolute")
def _(path: Path, outside: Path) -> None:
    data = (outside / "secret.json").read_bytes()
    forge(path, {}, **{str(outside / "secret.json"): Entry(len(data), sha256(data))})


@case("a document is a link to a file outside")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": (outside / "secret.json").read_bytes()})
    (path / "run.json").unlink()
    (path / "run.json").symlink_to(outside / "secret.json")


@case("the manifest is a link")
def _(path: Path, outside: Path) -> None:
    shutil.move(path / "manifest.json", outside / "manifest.json")
    (path / "manifest.json").symlink_to(outside / "manifest.json")


@case("the arrays are a link to /dev/zero")
def _(path: Path, outside: Path) -> None:
    (path / "networks.safetensors").unlink()
    (path / "networks.safetensors").symlink_to("/dev/zero")


@case("the checkpoint is a link")
def _(path: Path, outside: Path) -> None:
    shutil.move(path, outside / "moved")
    path.symlink_to(outside / "moved")


@case("a document is a named pipe that nobody writes to")
def _(path: Path, outside: Path) -> None:
    (path / "run.json").unlink()
    os.mkfifo(path / "run.json")


@case("a document is a directory")
def _(path: Path, outside: Path) -> None:
    (path / "run.json").unlink()
    (path / "run.json").mkdir()


@case("100,000 files beside the manifest's", large=True)
def _(path: Path, outside: Path) -> None:
    for i in range(100_000):
        (path / f"f{i}.json").touch()


@case("the manifest is a sparse file of 1 TiB")
def _(path: Path, outside: Path) -> None:
    sparse(path / "manifest.json", 1024 * GIB)


@case("the arrays are a sparse file of 9 GiB, in the manifest too")
def _(path: Path, outside: Path) -> None:
    sparse(path / "big.safetensors", 9 * GIB)
    (path / "big.safetensors").rename(outside / "big")  # not hashed here
    forge(path, {}, big__safetensors=Entry(9 * GIB, "0" * 64))
    (outside / "big").rename(path / "big.safetensors")


@case("the arrays are a sparse file of 1 TiB, small in the manifest")
def _(path: Path, outside: Path) -> None:
    sparse(path / "networks.safetensors", 1024 * GIB)


@case("the manifest claims 2 ** 62 bytes")
def _(path: Path, outside: Path) -> None:
    forge(path, {}, networks__safetensors=Entry(2**62, "0" * 64))


@case("a document of 1 million brackets")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b"[" * 1_000_000 + b"]" * 1_000_000})


@case("a manifest of 400,000 brackets")
def _(path: Path, outside: Path) -> None:
    (path / "manifest.json").write_bytes(b'{"a":' * 100_000 + b"1" + b"}" * 100_000)


@case("a document of 60 MB of empty lists", large=True)
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b"[" + b"[]," * 20_000_000 + b"[]]"})


@case("a document of as many objects as are read, then NaN", large=True)
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b"[" + b'{"":0},' * 999_000 + b"NaN]"})


@case("a document of 60 MB of digits", large=True)
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b"9" * 60_000_000})


@case("a document with 1e999 and NaN")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b'{"rate": 1e999, "other": NaN}'})


@case("a document with a key that stands twice")
def _(path: Path, outside: Path) -> None:
    forge(path, {"run.json": b'{"step": 1, "step": 2}'})


@case("a header of 2 ** 63 bytes")
def _(path: Path, outside: Path) -> None:
    forge(path, {"networks.safetensors": (2**63).to_bytes(8, "little") + b"{}"})


@case("a header of 60 MB of metadata", large=True)
def _(path: Path, outside: Path) -> None:
    metadata = b",".join(b'"%d":""' % i for i in range(5_000_000))
    forge(path, {"networks.safetensors": header(b'{"__metadata__":{' + metadata + b"}}")})


@case("as much metadata as is read, then damage", large=True)
def _(path: Path, outside: Path) -> None:
    metadata = b",".join(b'"%d":""' % i for i in range(1_300_000))
    forge(path, {"networks.safetensors": header(b'{"__metadata__":{' + metadata + b"},1}")})


@case("150,000 empty arrays", large=True)
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    forge(path, {"networks.safetensors": header({str(i): entry for i in range(150_000)})})


@case("100,000 empty arrays, as many as are read, and one damaged", large=True)
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    arrays = {str(i): entry for i in range(99_999)} | {"x": {**entry, "dtype": "X"}}
    forge(path, {"networks.safetensors": header(arrays)})


@case("an array with 1.9 million dimensions", large=True)
def _(path: Path, outside: Path) -> None:
    entry = b'{"dtype":"U8","shape":[' + b"1," * 1_899_999 + b'1],"data_offsets":[0,1]}'
    forge(path, {"networks.safetensors": header(b'{"a":' + entry + b"}", b"x")})


@case("an array whose size overflows")
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 0]}
    forge(path, {"networks.safetensors": header({"a": entry})})


@case("arrays that overlap")
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    forge(path, {"networks.safetensors": header({"a": entry, "b": entry}, bytes(8))})


@case("an array that stands twice")
def _(path: Path, outside: Path) -> None:
    entry = b'{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
    data = header(b'{"a":' + entry + b',"a":' + entry + b"}", b"x")
    forge(path, {"networks.safetensors": data})


@case("an array of a dtype that is not saved")
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}
    forge(path, {"networks.safetensors": header({"a": entry}, bytes(8))})


@case("a bool array with bytes beyond 1")
def _(path: Path, outside: Path) -> None:
    entry = {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}
    forge(path, {"networks.safetensors": header({"a": entry}, b"x")})


@case("60 MB of float16 NaN in 30 dimensions", large=True)
def _(path: Path, outside: Path) -> None:
    shape = [30_000_000, *[1] * 29]
    entry = {"dtype": "F16", "shape": shape, "data_offsets": [0, 60_000_000]}
    forge(path, {"networks.safetensors": header({"a": entry}, b"\xff" * 60_000_000)})


@case("a newer format version")
def _(path: Path, outside: Path) -> None:
    value = json.loads((path / "manifest.json").read_bytes())
    (path / "manifest.json").write_text(json.dumps({**value, "version": 2}))


@case("another step's checkpoint under its name")
def _(path: Path, outside: Path) -> None:
    shutil.rmtree(path)
    shutil.copytree(path.parent / "step_000000000001", path)


@case("latest names a path outside")
def _(path: Path, outside: Path) -> None:
    shutil.copytree(path, outside / "evil")
    name = os.path.relpath(outside / "evil", path.parent)
    digest = sha256((path / "manifest.json").read_bytes())
    (path.parent / "latest").write_text(f"{name} {digest}\n")


@case("latest is a link")
def _(path: Path, outside: Path) -> None:
    shutil.move(path.parent / "latest", outside / "latest")
    (path.parent / "latest").symlink_to(outside / "latest")


@case("latest is a sparse file of 1 TiB")
def _(path: Path, outside: Path) -> None:
    sparse(path.parent / "latest", 1024 * GIB)


def tree(folder: Path) -> dict[str, tuple[int, ...]]:
    """Mode, size, bytes on the disk and last change of all below ``folder``; follows no link."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            about = os.lstat(os.path.join(root, name))
            kept = (about.st_mode, about.st_size, 512 * about.st_blocks, about.st_mtime_ns)
            found[os.path.join(root, name)] = kept
    return found


def meet_all(*, large: bool) -> dict[str, dict[str, Any]]:
    """What came of loading each hostile checkpoint; forks, so call it through ``alone``."""
    results = {}
    for name in CASES:
        if name in LARGE and not large:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder, outside = Path(place, "checkpoints"), Path(place, "outside")
            outside.mkdir()
            (outside / "secret.json").write_text('{"password": 1}')
            for step in (1, 2):
                path = save_checkpoint(folder, step, content_of(step, 20))
            load_checkpoint(path)  # whatever is imported late is now
            CASES[name](path, outside)
            before = tree(Path(place))
            size = sum(about[2] for file, about in before.items() if file.startswith(str(path)))
            if name.startswith(FOLLOWED):
                met = meet(folder, latest_checkpoint)
            else:
                met = meet(path, load_checkpoint)
            met["changed outside"] = tree(Path(place)) != before
            results[name] = {**met, "size": size}
    return results
