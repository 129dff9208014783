"""Optional dependencies: imported when first needed, and named with their extra when missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from corral.errors import MissingExtraError

__all__ = ["require"]

ALONE = ("agilerl", "benchmarl", "openspiel", "rllib", "skrl", "tianshou", "torchrl")
"""Extras whose pins exclude each other, and what corral trains with otherwise."""

ALONE_LINES = """python3 -m venv .venv-{extra} && .venv-{extra}/bin/pip install '.[{extra}]'
.venv-{extra}/bin/corral ..."""
"""What makes such an environment, and what then stands for the command ``corral``."""


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or raise MissingExtraError that says how to install it.

    ``purpose`` completes the sentence "... is needed to <purpose>".
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        how = f"pip install '.[{extra}]' in the folder of corral's sources"
        if extra in ALONE:
            how += ", in a virtual environment of its own:\n" + ALONE_LINES.format(extra=extra)
        raise MissingExtraError(f"{package} is needed to {purpose}: {how}") from error
