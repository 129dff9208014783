"""The versions that a report names."""

from __future__ import annotations

import platform
from importlib import metadata

__all__ = ["versions"]


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
