"""PettingZoo environments whose observations carry action masks.

    from corral.envs import dfaas_v0
    env = dfaas_v0.parallel_env(trace="edge3")

Every environment is a module ``corral.envs.<name>`` with ``parallel_env`` (where all agents act at
once), ``env`` and ``raw_env``; its docstring is its manual. ``make`` builds one by name.
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
    # Late: whoever plays needs no checks, and whoever says ``import corral`` nothing at all.
    if name == "check_env":
        from corral.envs.conformance import check_env

        return check_env
    if name in ENVIRONMENTS:
        return importlib.import_module(ENVIRONMENTS[name].module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
