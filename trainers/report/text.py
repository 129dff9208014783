"""Words that every report needs."""

from __future__ import annotations

import platform
from importlib import metadata

__all__ = ["counted", "versions"]


def versions() -> dict[str, str]:
    """Return what figures are made with here, by package."""
    packages = ("corral", "numpy", "pandas", "gymnasium", "pettingzoo", "scipy")
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def counted(number: int, what: str) -> str:
    """Return "1 window", "2 windows", ..."""
    return f"{number} {what}" + ("" if number == 1 else "s")
