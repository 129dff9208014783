"""What was found, as JSON values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

__all__ = ["as_json"]


def as_json(found: Any) -> Any:
    """Return a dataclass as JSON values: arrays as lists, NaN as null."""
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {each.name: as_json(getattr(found, each.name)) for each in dataclasses.fields(found)}
    if isinstance(found, dict):
        return {str(key): as_json(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [as_json(each) for each in found]
    if hasattr(found, "tolist"):
        return as_json(found.tolist())
    if isinstance(found, float) and not math.isfinite(found):
        return None
    return found
