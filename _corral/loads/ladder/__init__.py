"""The ladder of a load: the saving of each step of knowledge, in requests a day.

from corral.loads.ladder import ladder
print(*ladder("loads.csv", queue=16).lines(), sep="\n")
"""

from __future__ import annotations

from corral.loads.ladder.climb import ladder
from corral.loads.ladder.result import Ladder, Rung

__all__ = ["Ladder", "Rung", "ladder"]
