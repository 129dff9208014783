"""Find the action mask in an observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.envs.core import Array

__all__ = ["mask_in", "mask_key"]

WORDS = ("mask", "legal", "valid", "avail")
"""One of them is in the name of a mask."""


def mask_key(names: Any) -> str | None:
    """Return the first name that reads like one of a mask."""
    words = [name for name in map(str, names) if any(word in name.lower() for word in WORDS)]
    return next((name for name in words if "action" in name.lower()), words[0] if words else None)


def mask_in(obs: Any, actions: int | None) -> Array | None:
    """Return the mask [..., A] in an observation that is a mapping, or None.

    ``actions``: number of discrete actions A; None for other action spaces.
    """
    if actions is None or not isinstance(obs, Mapping):
        return None
    key = mask_key(obs)
    if key is None:
        return next(
            filter(lambda m: m is not None, (mask_in(p, actions) for p in obs.values())), None
        )
    part = obs[key]
    values = np.asarray(part.detach().cpu() if hasattr(part, "detach") else part)
    if values.shape[-1:] != (actions,) or not np.isin(values, (0, 1)).all():
        return None
    return values > 0.5
