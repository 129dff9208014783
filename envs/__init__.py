"""PettingZoo environments with action masks in their observations.

    from corral.envs import dfaas_v0
    env = dfaas_v0.parallel_env(trace="edge3")

Each environment is a module ``corral.envs.<name>`` with ``env`` and ``raw_env``, and with
``parallel_env`` if all agents act at once. The docstring of the module is the manual of the
environment. ``make`` makes an environment by name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.envs.registry import (
    ENVIRONMENTS,
    PROBES,
    EnvSpec,
    make,
    make_rules,
)

if TYPE_CHECKING:
    from corral.envs.conformance import check_env

__all__ = ["ENVIRONMENTS", "PROBES", "EnvSpec", "check_env", "make", "make_rules"]


def __getattr__(name: str) -> Any:
    # Imported on first use: ``import corral`` stays fast, and playing needs no checks.
    if name == "check_env":
        from corral.envs.conformance import check_env

        return check_env
    if name in ENVIRONMENTS:
        return importlib.import_module(ENVIRONMENTS[name].module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
