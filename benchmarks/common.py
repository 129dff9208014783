"""What every benchmark shares: who ran it, where the public traces are, where results go."""

from __future__ import annotations

import json
import os
import platform
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TRACES = Path(
    os.environ.get("CORRAL_TRACES", Path(__file__).parents[2] / "shared" / "traces")
).resolve()
"""The public traces named in data/README.md, not part of the repository."""


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


def save(name: str, text: str, data: Any, about: dict[str, Any]) -> None:
    """Print ``text`` (Markdown) and keep it in results/<name>.md, ``data`` in <name>.json."""
    stamp = ", ".join(f"{key} {value}" for key, value in about.items())
    page = f"{text.rstrip()}\n\n{stamp}\n"
    print(page)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.json").write_text(json.dumps({"about": about, **data}, indent=1) + "\n")
