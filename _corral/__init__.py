"""corral: PettingZoo environments with action masks, and what is needed to judge who plays them.

``corral.make(name, **kwargs)`` builds an environment; ``corral.data`` reads load traces,
``corral.envs`` holds the environments, ``corral.adapters`` runs thousands of copies.
"""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.envs import make

__all__ = ["__version__", "make"]

__version__ = metadata.version("corral")


def __getattr__(name: str) -> Any:
    # Late, so that ``import corral`` alone stays light and no import runs in a circle.
    if name == "make":
        from corral.envs import make

        return make
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
