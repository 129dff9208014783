"""Memory checks: compare the need of a size with the free memory before allocating."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.errors import SizeError

__all__ = ["COPY", "MEMORY", "PROCESS", "free_memory", "require_memory"]

MEMORY = "CORRAL_MEMORY"
"""Environment variable with which users set the limit, in GiB."""

COPY, PROCESS = 2**10, 2**24
"""Minimum bytes of an environment copy (its random generator) and of a process."""

SMALL = 2**26
"""Number of bytes up to which free memory is not checked."""

UNKNOWN = 2**36
"""Free bytes to assume if the system does not report them."""


def require_memory(needed: Mapping[str, int]) -> None:
    """Raise SizeError if more memory is needed than is free.

    ``needed`` holds bytes by size, such as {"num_envs=10": 320}. The message names the largest.
    """
    total = sum(needed.values())
    if total <= SMALL or total <= (free := free_memory()):
        return
    size = max(needed, key=needed.__getitem__)
    raise SizeError(
        f"{size} needs at least {_gib(needed[size])} of memory; {_gib(free)} are free. Choose a "
        "smaller size, or set another limit in GiB: "
        f"{MEMORY}={math.ceil(total / 2**30) if total < 2**70 else '...'}"
    )


def free_memory() -> int:
    """Return the free memory for this process in bytes; ``MEMORY`` overrides the system's value.

    Raises SizeError if ``MEMORY`` is not a number above 0.
    """
    if text := os.environ.get(MEMORY):
        with contextlib.suppress(ValueError, OverflowError):
            if (bound := float(text)) > 0:
                return int(bound * 2**30)
        raise SizeError(f"{MEMORY}={text[:40]!r}: give a number of GiB above 0")
    bounds = [_of_system(), _of_group(), _of_process()]
    return max(0, min((bound for bound in bounds if bound is not None), default=UNKNOWN))


def _of_system() -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 2**10
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _of_group() -> int | None:
    """Return the unused part of a container's memory limit."""
    folder = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):
        limit = int((folder / "memory.max").read_text(encoding="ascii"))
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        cached = 0  # cached file pages, which can be freed
        for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith("inactive_file "):
                cached = int(line.split()[1])
        return limit - used + cached
    return None


def _of_process() -> int | None:
    """Return the unused part of the limit ``ulimit -v``."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit: Any = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return int(limit) - pages * os.sysconf("SC_PAGE_SIZE")
    return None


def _gib(size: int) -> str:
    for unit, name in ((2**80, "YiB"), (2**40, "TiB"), (2**30, "GiB")):
        if size >= unit:
            return f"{size // unit:,} {name}" if size < 10**6 * unit else f"over 10**6 {name}"
    return f"{size / 2**20:,.0f} MiB"
