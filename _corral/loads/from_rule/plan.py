"""Where a run that begins with a rule keeps its plan."""

from __future__ import annotations

from pathlib import Path

from corral.trainers.runs.run import FROM_RULE as PLAN

__all__ = ["CLONE", "PLAN", "clone_folder", "plan_of"]

CLONE = "-clone"


def clone_folder(out: Path) -> Path:
    """Return the folder of the clone that the run in ``out`` starts from."""
    return out.with_name(f"{out.name}{CLONE}")


def plan_of(folder: str | Path) -> Path | None:
    """Return the plan of a run, or of a clone, in ``folder``; None where it began otherwise."""
    places = Path(folder) / PLAN, clone_folder(Path(folder)) / PLAN
    return next((path for path in places if path.is_file()), None)
