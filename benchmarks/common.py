"""What benchmarks share: training, timing, who ran it, the public traces, where results go."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
HOUSES = ("core", "loads", "lab")
"""Folders of benchmarks, by the part of corral that they measure."""

sys.path += [str(HERE / house) for house in HOUSES]  # some benchmarks use others

TRACES = Path(os.environ.get("CORRAL_TRACES", HERE.parents[1] / "shared" / "traces")).resolve()
"""The public traces named in data/README.md, not part of the repository."""


def script(name: str) -> Path:
    """Return the file of a benchmark, in whatever folder it stands; it need not exist."""
    places = [HERE / f"{name}.py", *(HERE / house / f"{name}.py" for house in HOUSES)]
    return next((place for place in places if place.exists()), places[0])


Step = Callable[[], int]
"""Plays on for a moment, and returns how many env steps that was."""


@contextmanager
def temporary_run(env: Any, **options: Any) -> Iterator[Any]:
    """Train, and remove the run's folder at the end of the block."""
    import corral

    with tempfile.TemporaryDirectory() as folder:
        yield corral.train(env, out=Path(folder) / "run", **options)


def random_batch(env: str, num_envs: int, **env_kwargs: Any) -> Step:
    """Return the steps of a Batch in which all play uniformly random legal actions."""
    from corral.adapters import make_batch

    batch = make_batch(env, num_envs=num_envs, seed=0, **env_kwargs)
    batch.reset()
    rng = np.random.default_rng(0)

    def step() -> int:
        batch.step(batch.sample_actions(rng))
        return num_envs

    return step


def random_columns(vec_env: Any, num_envs: int) -> Step:
    """Return the steps of a vector environment of dfaas_v0, whose legal actions are 0 .. highest.

    Its observations have the masks [C, A]; actions are uniformly random.
    """
    rng = np.random.default_rng(0)
    first = vec_env.reset()
    masks = (first[0] if isinstance(first, tuple) else first)["action_mask"]

    def step() -> int:
        nonlocal masks
        levels = np.add.reduce(masks, axis=1, dtype=np.int64)
        actions = (rng.random(len(levels)) * levels).astype(np.int64)
        masks = vec_env.step(actions)[0]["action_mask"]
        return num_envs

    return step


def env_steps_per_second(
    contestants: Mapping[str, Step],
    *,
    rounds: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return each contestant's speed in every round; they take turns of so many seconds."""
    speeds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, step in contestants.items():
            step()
            count, began = 0, clock()
            while (spent := clock() - began) < seconds:
                count += step()
            speeds[name].append(count / spent)
    return speeds


def machine(*packages: str) -> dict[str, Any]:
    """Return versions, processor and thread settings of this run."""
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
    """Return the median, over the rounds, of one contestant's speed over another's."""
    return statistics.median(a / b for a, b in zip(speeds[ours], speeds[theirs], strict=True))


def speed_table(title: str, speeds: dict[str, list[float]], ratios: dict[str, float]) -> str:
    """Return env steps/s of every contestant, and ratios between some, as Markdown."""
    lines = [f"# {title}", "", "| what | env steps/s, median | min | max |", "|---|--:|--:|--:|"]
    for name, found in speeds.items():
        lines.append(
            f"| {name} | {statistics.median(found):,.0f} | {min(found):,.0f} | {max(found):,.0f} |"
        )
    lines += ["", "| ratio, median of the rounds | |", "|---|--:|"]
    lines += [f"| {name} | {value:.0f} |" for name, value in ratios.items()]
    return "\n".join(lines)


def kept_rows(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a queue's results; one that was cut off while written does not count."""
    found = []
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else (), start=1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{file.name}, line {number}: no whole row, left out", file=sys.stderr)
    return found


def append_row(file: Path, row: dict[str, Any]) -> None:
    """Append a row to a queue's results, on a line of its own whatever the file ends with."""
    file.parent.mkdir(exist_ok=True)
    cut_off = file.exists() and not (file.read_bytes() or b"\n").endswith(b"\n")
    with file.open("a") as opened:
        opened.write("\n" * cut_off + json.dumps(row, default=str) + "\n")


def save(name: str, text: str, data: Any, about: dict[str, Any]) -> None:
    """Print ``text`` (Markdown) and keep it in results/<name>.md, ``data`` in <name>.json."""
    stamp = ", ".join(f"{key} {value}" for key, value in about.items())
    page = f"{text.rstrip()}\n\n{stamp}\n"
    print(page)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page)
    (RESULTS / f"{name}.json").write_text(json.dumps({"about": about, **data}, indent=1) + "\n")
