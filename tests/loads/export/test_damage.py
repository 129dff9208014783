"""An export that is damaged, edited or mixed up is refused by a named error, and never plays."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="trains networks")

import corral
from corral.errors import RunError
from corral.loads.export import manifest
from corral.loads.export.manifest import MANIFEST, ExportError, encode_manifest
from corral.loads.export.standalone import Decider
from corral.loads.serve.service import service_of
from support.loads import small_trace
from support.thinned import fast_every

FILES = ("policy.py", "about.json", "weights.npz")
NAMES = ("site-0", "site-1", "site-2")
NODES = {name: {"arrivals": 9, "capacity": 5} for name in NAMES}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a recurrent team whose reports are late."""
    folder = tmp_path_factory.mktemp("team")
    trained(folder / "run").export("numpy", folder / "gateway")
    return folder / "gateway"


@pytest.fixture(scope="module")
def offsets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a team whose actions are offsets to a rule."""
    folder = tmp_path_factory.mktemp("offsets")
    rule = {"residual": "backlog=0.5/least", "offsets": 2, "beyond": "rule"}
    trained(folder / "run", **rule).export("numpy", folder / "gateway")
    return folder / "gateway"


def trained(folder: Path, **env_kwargs: Any) -> Any:
    settings = {"trace": small_trace(), "max_cycles": 10, "queue": 3, "report_delay": 3}
    return corral.train(
        "dfaas_v0",
        trainer="mappo",
        steps=32,
        out=folder,
        env_kwargs=settings | env_kwargs,
        num_envs=2,
        n_steps=8,
        net_arch=(6,),
        memory=4,
        validation=0,
        preset="none",
        progress=False,
        seed=1,
    )


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "gateway"))


def standing_alone(folder: Path) -> Callable[[Path], Any]:
    """What makes the Decider of the policy.py of a folder, and its error."""
    names: dict[str, Any] = {"__name__": "policy_of_test", "__file__": str(folder / "policy.py")}
    sys.modules["policy_of_test"] = type(sys)("policy_of_test")  # dataclasses look there
    exec(compile((folder / "policy.py").read_text(encoding="utf-8"), "policy.py", "exec"), names)

    def make(place: Path) -> Any:
        try:
            return names["Decider"](place)
        except names["ExportError"] as error:
            raise ExportError(str(error)) from error

    return make


@pytest.fixture(scope="module")
def readers(exported: Path) -> list[Callable[[Path], Any]]:
    """Both that read an export: corral, and the code that is written out."""
    return [Decider, standing_alone(exported)]


def require_refused(readers: list[Callable[[Path], Any]], folder: Path) -> None:
    for reader in readers:
        with pytest.raises(ExportError):
            reader(folder)


def sealed(folder: Path) -> None:
    """Write the manifest anew, as somebody would who means harm."""
    files = {name: (folder / name).read_bytes() for name in FILES}
    (folder / MANIFEST).write_bytes(encode_manifest(files, corral.__version__))


# --- Whole ---------------------------------------------------------------------------------------


def test_a_manifest_lists_every_file_and_ends_in_a_digest_of_itself(exported: Path) -> None:
    found = json.loads((exported / MANIFEST).read_bytes())
    assert list(found) == ["format", "version", "corral", "files", "sha256"]
    assert set(found["files"]) == set(FILES)
    for name, entry in found["files"].items():
        data = (exported / name).read_bytes()
        assert entry == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    digest = found.pop("sha256")
    assert digest == hashlib.sha256(json.dumps(found).encode()).hexdigest()


def test_the_same_team_is_written_to_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    trained(tmp_path / "run").export("numpy", tmp_path / "again")
    for name in (*FILES, MANIFEST):
        assert (tmp_path / "again" / name).read_bytes() == (exported / name).read_bytes()


def test_all_formats_have_a_manifest(exported: Path, tmp_path: Path) -> None:
    run = corral.load_run(exported.parent / "run")
    paths = run.export("weights", tmp_path / "weights")
    assert paths[-1].name == MANIFEST
    files = {path.name: path.read_bytes() for path in paths[:-1]}
    assert paths[-1].read_bytes() == encode_manifest(files, corral.__version__)


# --- Damage --------------------------------------------------------------------------------------


def test_150_changed_digits_of_about_json_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]]
) -> None:
    path, rng = folder / "about.json", np.random.default_rng(1)
    whole = path.read_text(encoding="utf-8")
    places = [place.start() for place in re.finditer(r"\d", whole)]
    for place in rng.choice(places, 150, replace=False).tolist():
        other = str((int(whole[place]) + int(rng.integers(1, 10))) % 10)
        path.write_text(whole[:place] + other + whole[place + 1 :], encoding="utf-8")
        require_refused(readers, folder)
    path.write_text(whole, encoding="utf-8")
    for reader in readers:
        assert reader(folder).nodes == NAMES


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_150_flipped_bits_of_every_file_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]], name: str
) -> None:
    path, rng = folder / name, np.random.default_rng(2)
    whole = path.read_bytes()
    for place in rng.integers(8 * len(whole), size=150).tolist():
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        require_refused(readers, folder)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_files_that_are_cut_longer_or_missing_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]], name: str
) -> None:
    path = folder / name
    whole = path.read_bytes()
    for data in (b"", whole[:-1], whole[: len(whole) // 2], whole + b" ", whole * 2):
        path.write_bytes(data)
        require_refused(readers, folder)
    path.unlink()
    require_refused(readers, folder)
    path.mkdir()
    require_refused(readers, folder)


def arrays_of(folder: Path) -> dict[str, Any]:
    with np.load(folder / "weights.npz") as weights:
        return dict(weights)


def test_weights_and_nodes_that_were_changed_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]]
) -> None:
    weights = arrays_of(folder)
    for change in (np.negative, lambda values: np.full_like(values, np.nan), np.zeros_like):
        np.savez(folder / "weights.npz", **{key: change(values) for key, values in weights.items()})
        require_refused(readers, folder)
    np.savez(folder / "weights.npz", **weights)  # the same numbers in another file
    require_refused(readers, folder)


def test_swapped_nodes_and_the_weights_of_another_team_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]], exported: Path, tmp_path: Path
) -> None:
    about = json.loads((folder / "about.json").read_text())
    about["nodes"] = [*reversed(about["nodes"])]
    (folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    require_refused(readers, folder)


# --- Files that mean harm, with a manifest that fits ----------------------------------------------


def test_weights_that_are_not_finite_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]]
) -> None:
    weights = arrays_of(folder)
    for name in weights:
        for value in (np.nan, np.inf):
            odd = weights[name].copy()
            odd.flat[-1] = value
            np.savez(folder / "weights.npz", **{**weights, name: odd})
            sealed(folder)
            require_refused(readers, folder)
    np.savez(folder / "weights.npz", **weights)
    sealed(folder)
    for reader in readers:
        assert reader(folder).nodes == NAMES


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found | {"0.head": found["0.head"][:, :-1]},
        lambda found: found | {"0.head": found["0.head"].astype(np.float64)},
        lambda found: found | {"0.head": found["0.head"].astype("O")},
        lambda found: found | {"0.head": np.asfortranarray(found["0.head"])},
        lambda found: found | {"0.head": found["0.head"].reshape(1, *found["0.head"].shape)},
        lambda found: found | {"0.more": found["0.head"]},
        lambda found: {key: found[key] for key in found if key != "0.head"},
        lambda found: {},
    ],
)
def test_weights_of_other_shapes_or_types_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]], change: Any
) -> None:
    np.savez(folder / "weights.npz", **change(arrays_of(folder)))
    sealed(folder)
    require_refused(readers, folder)


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def members_of(folder: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(folder / "weights.npz") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def claiming(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """An array's file whose header claims a shape, with 16 bytes of data."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + bytes(16)


BOMBS: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "a huge shape": lambda found: zipped({**found, "0.head.npy": claiming((2**40, 2**20))}),
    "a shape below 0": lambda found: zipped({**found, "0.head.npy": claiming((-1, 4))}),
    "a pickle": lambda found: zipped({**found, "0.head.npy": claiming((4,), "|O")}),
    "a long header": lambda found: zipped(
        {**found, "0.head.npy": b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + bytes(9)}
    ),
    "compressed zeros": lambda found: zipped(
        {**found, "0.head.npy": bytes(200 * 2**20)}, zipfile.ZIP_DEFLATED
    ),
    "compressed": lambda found: zipped(found, zipfile.ZIP_DEFLATED),
    "no zip": lambda found: b"PK\x03\x04" + bytes(100),
    "empty": lambda found: b"",
    "many members": lambda found: zipped({f"{i}.npy": b"" for i in range(20_000)}),
    "a size that it has not": lambda found: zipped(found).replace(
        len(found["0.head.npy"]).to_bytes(4, "little"), (2**31 - 1).to_bytes(4, "little")
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_weights_that_are_bombs_are_refused(
    folder: Path, readers: list[Callable[[Path], Any]], name: str
) -> None:
    (folder / "weights.npz").write_bytes(BOMBS[name](members_of(folder)))
    sealed(folder)
    require_refused(readers, folder)


def changed_about(folder: Path, **values: Any) -> None:
    about = json.loads((folder / "about.json").read_text())
    networks = {key: value for key, value in values.items() if key in about["networks"][0]}
    about["networks"][0] |= networks
    about |= {key: value for key, value in values.items() if key not in networks}
    (folder / "about.json").write_text(json.dumps(about))
    sealed(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"report_delay": 10**9},
        {"report_delay": -1},
        {"report_delay": 1.5},
        {"last_counts": 10**9},
        {"max_level": 10**9},
        {"max_level": 0},
        {"max_level": True},
        {"queue": 10**30},
        {"requests": [*range(200_000)]},
        {"requests": [0, -5]},
        {"requests": "many"},
        {"load_scale": 0},
        {"load_scale": "12"},
        {"capacity_scale": 10**400},
        {"links": [[0, 1], [1, 0]]},
        {"links": 3},
        {"links": [[0, 1, 10**30], [1, 0, 1], [1, 1, 0]]},
        {"route": "nowhere"},
        {"route": 7},
        {"observation": "all"},
        {"arrivals": "late"},
        {"amount": "much"},
        {"daily_mean": [[1.0]]},
        {"daily_mean": 5},
        {"caps": -1},
        {"nodes": ["a", "b", "c"]},
        {"units": [10**9]},
        {"units": [6] * 100_000},
        {"units": 6},
        {"memory": 10**9},
        {"memory": -4},
        {"inputs": 10**9},
        {"at": 10**9},
        {"at": -1},
        {"activation": "exec"},
        {"actions": 3},
        {"networks": []},
        {"networks": [{}]},
        {"networks": {"0": 1}},
        {"networks": None},
        {"team": 3},
        {"beyond": "rule"},  # without a rule
        {"beyond": "cut"},
        {"beyond": ["rule"]},
        {"residual": "overflow/equal"},  # without offsets
    ],
    ids=str,
)
def test_an_about_that_no_export_has_is_refused(
    folder: Path, readers: list[Callable[[Path], Any]], values: dict[str, Any]
) -> None:
    changed_about(folder, **values)
    require_refused(readers, folder)


@pytest.mark.parametrize(
    "values",
    [
        {"residual": "static/least"},
        {"residual": "share=0.5/least"},
        {"residual": "patient/spare"},  # another route than that of the team
        {"residual": "backlog=0.5"},
        {"residual": "backlog=0.5/choose", "route": "choose"},
        {"residual": "backlog=1e400/least"},
        {"residual": "backlog=0.5/least" + " " * 10_000},
        {"residual": "nothing/least"},
        {"residual": ""},
        {"residual": 3},
        {"residual": ["patient/least"]},
        {"residual": None},
        {"offsets": 0},
        {"offsets": -2},
        {"offsets": True},
        {"offsets": 2.0},
        {"offsets": "2"},
        {"offsets": 10**30},
        {"offsets": None},
        {"offsets": 3},  # other actions than the network has
        {"beyond": "cut"},
        {"beyond": True},
        {"beyond": 10**30},
        {"beyond": {"rule": 1}},
        {"amount": "keep"},
    ],
    ids=str,
)
def test_an_about_of_another_rule_is_refused(
    offsets: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    folder = Path(shutil.copytree(offsets, tmp_path / "gateway"))
    changed_about(folder, **values)
    require_refused([Decider, standing_alone(offsets)], folder)


def test_an_about_without_what_belongs_to_its_rule_is_refused(
    offsets: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(offsets, tmp_path / "gateway"))
    about = json.loads((folder / "about.json").read_text())
    for key in ("residual", "offsets"):
        few = {name: value for name, value in about.items() if name != key}
        (folder / "about.json").write_text(json.dumps(few))
        sealed(folder)
        require_refused([Decider, standing_alone(offsets)], folder)
    (folder / "about.json").write_text(json.dumps(about))
    sealed(folder)
    assert Decider(folder).residual is not None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "{" * 100_000, "[" * 1_000_000, '{"nodes": NaN}', "\ud800", "[[],"],
    ids=range(9),
)
def test_text_that_is_no_about_is_refused(
    folder: Path, readers: list[Callable[[Path], Any]], text: str
) -> None:
    (folder / "about.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    sealed(folder)
    require_refused(readers, folder)


def test_a_manifest_of_other_files_is_refused(
    folder: Path, readers: list[Callable[[Path], Any]]
) -> None:
    files = {name: (folder / name).read_bytes() for name in FILES}
    (folder / "more").write_bytes(b"more")
    for odd in ({"../more": b"more"}, {"more": b"more"}):
        (folder / MANIFEST).write_bytes(encode_manifest({**files, **odd}, "0.1.0"))
        require_refused(readers, folder)
    (folder / MANIFEST).write_bytes(encode_manifest({"about.json": files["about.json"]}, "0.1.0"))
    require_refused(readers, folder)
    whole = encode_manifest(files, "0.1.0")
    (folder / MANIFEST).write_bytes(whole.replace(b'"version": 1', b'"version": 2'))
    require_refused(readers, folder)
    (folder / MANIFEST).write_bytes(b"[" * 500_000)
    require_refused(readers, folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_pipes_and_sparse_files_are_neither_waited_for_nor_read(
    folder: Path, readers: list[Callable[[Path], Any]], name: str
) -> None:
    path = folder / name
    with open(path, "r+b") as file:
        file.truncate(2**36)
    require_refused(readers, folder)
    path.unlink()
    os.mkfifo(path)
    require_refused(readers, folder)
    path.unlink()
    path.symlink_to("/dev/zero")
    require_refused(readers, folder)


MEMORY = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
sys.path.insert(0, sys.argv[1])
import policy
try:
    policy.Decider()
except policy.ExportError:
    # Not ru_maxrss, which a child takes over from its parent.
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")
@pytest.mark.parametrize("name", fast_every(3, ["about", "members", "weights"]))
def test_the_largest_files_take_less_than_a_gigabyte(folder: Path, name: str) -> None:
    if name == "about":
        data = b"[" + b"[]," * ((manifest.MAX_TEXT - 9) // 3) + b"[]]"
        (folder / "about.json").write_bytes(data)
    elif name == "members":
        record = b"PK\x01\x02" + bytes(42)
        many = manifest.MAX_WEIGHTS // len(record) - 10
        (folder / "weights.npz").write_bytes(record * many + b"PK\x05\x06" + bytes(18))
    else:
        (folder / "weights.npz").write_bytes(bytes(manifest.MAX_WEIGHTS))
    sealed(folder)
    command = [sys.executable, "-c", MEMORY, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.stdout, done.stderr
    assert int(done.stdout) < 2**20  # kilobytes


# --- Served --------------------------------------------------------------------------------------


def test_a_damaged_export_is_not_served(folder: Path) -> None:
    assert service_of(folder).decide(NODES).by == "team"
    for name in (*FILES, MANIFEST):
        whole = (folder / name).read_bytes()
        place = len(whole) // 2
        flipped = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        (folder / name).write_bytes(flipped)
        with pytest.raises(RunError):
            service_of(folder)
        (folder / name).unlink()
        with pytest.raises(RunError):
            service_of(folder)
        (folder / name).write_bytes(whole)
    changed_about(folder, seen={name: {"arrivals": [0, "x"]} for name in NAMES})
    with pytest.raises(RunError):
        service_of(folder)
    changed_about(folder, seen={})
    with pytest.raises(RunError):
        service_of(folder)
