"""Optional dependencies: imported on first use; an error names the extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from corral.errors import MissingExtraError

__all__ = ["require"]

ALONE = ("agilerl", "benchmarl", "openspiel", "rllib", "skrl", "tianshou", "torchrl")
"""Extras with incompatible pins. Each needs a separate virtual environment."""

ALONE_LINES = """python3 -m venv .venv-{extra} && .venv-{extra}/bin/pip install '.[{extra}]'
.venv-{extra}/bin/corral ..."""
"""Commands that create the environment of an extra, and run corral in it."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``. Raises MissingExtraError with installation instructions.

    ``purpose`` completes the sentence "... is needed to <purpose>".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        how = f"pip install '.[{extra}]' in the folder of corral's sources"
        if extra in ALONE:
            how += ", in a separate virtual environment:\n" + ALONE_LINES.format(extra=extra)
        raise MissingExtraError(f"{package} is needed to {purpose}: {how}") from error
