"""What checkpoints stand: kills, damage, hostile files, full and forbidden disks.

    OMP_NUM_THREADS=1 python benchmarks/core/checkpoint_trust.py [--share 0.1]

``--share`` is of the kills and of the damages of each file.

A kill ends a process, not the machine: what a power cut leaves is up to the file system, which is
asked (fsync) to keep everything before it is announced. Real disks are filled and made read-only
where tmpfs may be mounted, permissions are taken where this runs as root.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from corral.errors import CheckpointError
from corral.trainers.runs.checkpoint import latest_checkpoint, load_checkpoint, save_checkpoint
from support.checkpoints import (
    content_of,
    damaged_loads,
    fail_everywhere,
    kill_savers,
    largest_file,
    same,
)
from support.hostile_checkpoints import meet_all

KILLS, DAMAGES = 200, 300
FILES = ("manifest.json", "run.json", "networks.safetensors", "latest")
SIZES = (20, 150, 500)  # of about 2 KB, 90 KB and 1 MB
NOBODY = 65534


def kills(folder: Path, count: int) -> dict[str, Any]:
    """By the size of the checkpoint: what kills left."""
    parts = {}
    for i, size in enumerate(SIZES):
        number = count // len(SIZES) + (i < count % len(SIZES))
        parts[size] = {"kills": number, **kill_savers(str(folder / f"{size}"), number, i, size)}
    return {str(size): found for size, found in parts.items()}


def damages(folder: Path, count: int) -> dict[str, Any]:
    """By file and kind of damage: how many of the loads were refused."""
    return {
        f"{file}, {kind}": damaged_loads(folder / file / kind, file, kind, count, seed=i)
        for i, file in enumerate(FILES)
        for kind in ("truncation", "bit flip")
    }


def one_failure(folder: Path, around: Callable[[], Any]) -> str:
    """ "loud, ..." where a save under ``around`` fails by name and the one before still loads."""
    try:
        with around():
            save_checkpoint(folder, 2, content_of(2, 500))
    except CheckpointError as error:
        if not same(load_checkpoint(latest_checkpoint(folder)), content_of(1, 500)):
            return "LOST the one before"
        reason = error.__cause__.strerror if isinstance(error.__cause__, OSError) else error
        return f"loud ({reason}), the one before intact"
    return "SILENT"


def in_child(call: Callable[[], str]) -> str:
    """The answer of ``call`` in a forked process, which may give up its rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, call().encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as answer:
        return answer.read()


class Nothing:
    """A context that changes nothing."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def mount(*arguments: str) -> str | None:
    """Why it could not be mounted, or None."""
    done = subprocess.run(["mount", "-t", "tmpfs", *arguments], capture_output=True, text=True)
    return done.stderr.strip() or "failed" if done.returncode else None


def real_failures(folder: Path) -> dict[str, str]:
    """Disks that fail by themselves, not by a changed call."""
    found = {}
    target = folder / "limit"
    save_checkpoint(target, 1, content_of(1, 500))
    found["no file may exceed 100 KB (RLIMIT_FSIZE)"] = one_failure(
        target, lambda: largest_file(100_000)
    )
    disk = folder / "tmpfs"
    disk.mkdir()
    name_full, name_read_only = "a full tmpfs of 1.5 MB", "a tmpfs made read-only"
    refused = mount("-o", "size=1500k", "corral", str(disk))
    if refused is None:
        try:
            save_checkpoint(disk / "c", 1, content_of(1, 500))
            found[name_full] = one_failure(disk / "c", Nothing)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            found[name_read_only] = one_failure(disk / "c", Nothing)
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    else:
        found[name_full] = found[name_read_only] = f"not run: {refused}"
    target = folder / "forbidden"
    save_checkpoint(target, 1, content_of(1, 500))
    folder.chmod(0o755)
    target.chmod(0o555)

    def forbidden() -> str:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        return one_failure(target, Nothing)

    found["a folder without permission to write"] = in_child(forbidden)
    target.chmod(0o755)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0)
    share = parser.parse_args().share
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        killed = kills(folder / "kills", math.ceil(KILLS * share))
        damaged = damages(folder / "damage", math.ceil(DAMAGES * share))
        hostile = meet_all(large=True)
        injected = {
            f"{os.strerror(number)}, {'from then on' if stays else 'once'}": fail_everywhere(
                folder / f"{number}", number, stays=stays
            )
            for number in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)
            for stays in (False, True)
        }
        real = real_failures(folder)
    data = {
        "rows": rows(killed, damaged, hostile, injected, real),
        "kills": killed,
        "damage": damaged,
        "hostile": hostile,
        "injected failures": injected,
        "real failures": real,
    }
    text = page(killed, damaged, hostile, injected, real)
    save("checkpoint_trust", text, data, machine("safetensors"))


def rows(
    killed: dict[str, Any],
    damaged: dict[str, Any],
    hostile: dict[str, Any],
    injected: dict[str, Any],
    real: dict[str, str],
) -> list[dict[str, Any]]:
    """Return tries, those that held, and which did not, by kind."""

    def row(what: str, counts: dict[str, tuple[int, int]]) -> dict[str, Any]:
        tries, faults = (sum(each) for each in zip(*counts.values(), strict=True))
        not_held = [f"{name}: {wrong}" for name, (_, wrong) in counts.items() if wrong]
        return {"what": what, "tries": tries, "held": tries - faults, "not_held": not_held}

    ran = {name: said for name, said in real.items() if not said.startswith("not run")}
    return [
        row(
            "SIGKILL while saving",
            {f"size {size}": (part["kills"], part["faults"]) for size, part in killed.items()},
        ),
        row(
            "truncated files and flipped bits",
            {name: (sum(each.values()), each["wrong"]) for name, each in damaged.items()},
        ),
        row(
            "hostile checkpoints",
            {
                name: (1, int(each["result"] != "CheckpointError" or each["code"] > 0))
                for name, each in hostile.items()
            },
        ),
        row(
            "disk full, no permission, read-only, while saving",
            {name: (each["failures"], each["faults"]) for name, each in injected.items()}
            | {name: (1, int(not said.startswith("loud"))) for name, said in ran.items()},
        ),
    ]


def page(
    killed: dict[str, Any],
    damaged: dict[str, Any],
    hostile: dict[str, Any],
    injected: dict[str, Any],
    real: dict[str, str],
) -> str:
    """The results as Markdown."""
    good = sum(part["kills"] - part["faults"] for part in killed.values())
    number = sum(part["kills"] for part in killed.values())
    lines = [
        "# What checkpoints stand",
        "",
        f"SIGKILL at random moments of a process that saves in a loop: after {good} of {number}",
        "kills latest loaded, was the newest announced or one newer, and all others were intact.",
        "",
        "| content about | kills | newest announced | one newer | left half written "
        "| half removed | complete, unannounced | faults | left over at the end |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for size, part in killed.items():
        counts = [
            part.get(key, 0)
            for key in (
                "kills",
                "newest announced",
                "one newer",
                "left half written",
                "left half removed",
                "complete, not yet announced",
                "faults",
                "leftovers after the next save",
            )
        ]
        lines.append(f"| {4 * int(size) ** 2 / 1000:,.0f} KB | {' | '.join(map(str, counts))} |")
    lines += [
        "",
        "Files damaged at random places, then loaded; refused means by a CheckpointError that",
        "names the file and an intact checkpoint.",
        "",
        "| file, damage | refused | loaded an intact one | wrong |",
        "|---|--:|--:|--:|",
    ]
    for name, found in damaged.items():
        lines.append(f"| {name} | {' | '.join(map(str, found.values()))} |")
    refused = sum(found["result"] == "CheckpointError" for found in hostile.values())
    code = sum(found["code"] for found in hostile.values())
    most = max(found["growth"] for found in hostile.values())
    touched = sum(found["writes"] + found["changed outside"] for found in hostile.values())
    ratio = max(
        found["growth"] / found["size"] for found in hostile.values() if found["size"] > 1e6
    )
    lines += [
        "",
        f"Hostile checkpoints: {refused} of {len(hostile)} refused, code run {code} times,",
        f"{touched} writes (counted by an audit hook and by comparing the folders). Peak memory",
        f"grew by at most {most / 1e6:.0f} MB, and by {ratio:.0f} times the bytes on the disk",
        "where those are above 1 MB; 4 MB of it is there whatever is read.",
        "",
        "| case | result | MB on the disk | memory, MB | seconds |",
        "|---|---|--:|--:|--:|",
    ]
    for name, found in hostile.items():
        lines.append(
            f"| {name} | {found['result']} | {found['size'] / 1e6:.1f} "
            f"| {found.get('growth', 0) / 1e6:.1f} | {found.get('seconds', 0):.2f} |"
        )
    lines += [
        "",
        "A failure at the first call of the file system in a save, at the second, ... at the last.",
        "",
        "| failure | saves | loud | new one announced | lost, damaged or silent |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, found in injected.items():
        lines.append(
            f"| {name} | {found['failures']} | {found['loud']} "
            f"| {found['new one announced']} | {found['faults']} |"
        )
    lines += ["", "| disk | a save is |", "|---|---|"]
    lines += [f"| {name} | {found} |" for name, found in real.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
