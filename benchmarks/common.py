"""What every benchmark shares: who ran it, where the public traces are, where results go."""

from __future__ import annotations

import json
import os
import platform
import statistics
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TRACES = Path(
    os.environ.get("CORRAL_TRACES", Path(__file__).parents[2] / "shared" / "traces")
).resolve()
"""The public traces named in data/README.md, not part of the repository."""


def trained(environment: str, **arguments: Any) -> Any:
    """``corral.train``; a Ctrl-C ends the benchmark, not one of its runs."""
    import corral

    run = corral.train(environment, **arguments)
    if run.stopped_by is not None:
        raise SystemExit(128 + run.stopped_by)
    return run


def machine(*packages: str) -> dict[str, Any]:
    """Versions, processor and thread settings of this run."""
    found = {package: metadata.version(package) for package in ("corral", "numpy", *packages)}
    return {
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        **found,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "unset"),
    }


def ratio(speeds: dict[str, list[float]], ours: str, theirs: str) -> float:
    """The median, over the rounds, of one contestant's speed over another's."""
    return statistics.median(a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True))


def speed_table(title: str, speeds: dict[str, list[float]], ratios: dict[str, float]) -> str:
    """Env steps/s of every contestant, and ratios between some, as Markdown."""
    lines = [f"# {title}", "", "| what | env steps/s, median | min | max |", "|---|--:|--:|--:|"]
    for name, found in speeds.items():
        lines.append(
            f"| {name} | {statistics.median(found):,.0f} | {min(found):,.0f} | {max(found):,.0f} |"
        )
    lines += ["", "| ratio, median of the rounds | |", "|---|--:|"]
    lines += [f"| {name} | {value:.0f} |" for name, value in ratios.items()]
    return "\n".join(lines)


def save(name: str, text: str, data: Any, about: dict[str, Any]) -> None:
    """Print ``text`` (Markdown) and keep it in results/<name>.md, ``data`` in <name>.json."""
    stamp = ", ".join(f"{key} {value}" for key, value in about.items())
    page = f"{text.rstrip()}\n\n{stamp}\n"
    print(page)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.json").write_text(json.dumps({"about": about, **data}, indent=1) + "\n")
