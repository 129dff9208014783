"""Whether the verdict of an advice still holds on later days: ``corral advise --recheck``."""

from __future__ import annotations

from corral.loads.recheck.driver import recheck
from corral.loads.recheck.result import Recheck

__all__ = ["Recheck", "recheck"]
