"""The JSON format of marl-eval (Gorsane et al. 2022, arXiv 2209.10485), also used by BenchMARL.

    {environment: {task: {algorithm: {run: {
        "step_1": {"step_count": 6000, "elapsed_time": 3.2, "return": [an evaluation's episodes]},
        "absolute_metrics": {"return": [...]}}}}}}

As in BenchMARL, a return in these files is the mean over agents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from corral.errors import RunError
from corral.files import read_json, reason
from corral.lab.comparing.groups import Group, Member
from corral.text import shortened
from corral.trainers.file_fields import fields_of

__all__ = ["is_file", "marl_eval_json", "read_marl_eval"]

METRIC = "return"
MAX_BYTES = 2**28

Step = TypedDict(
    "Step", {"step_count": int, "return": list[float] | float, "elapsed_time": NotRequired[float]}
)
"""The fields of an evaluation that are read; a file may have more."""


def is_file(value: Any) -> bool:
    """Whether the value names a file in this format, not a run."""
    return isinstance(value, str | Path) and str(value).endswith(".json")


def read_marl_eval(path: str | Path) -> tuple[str, dict[str, Group]]:
    """Return the task of a file, "environment/task", and its groups: algorithm -> runs.

    A score is the mean of the last step. Raises RunError if the file is not in this format, or if
    it holds several tasks.
    """
    file = Path(path)
    try:
        content = read_json(file, MAX_BYTES)
    except FileNotFoundError:
        raise RunError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {reason(error)}") from None
    tasks = [
        (env, task)
        for env, tasks_of in _items(file, "environments", content)
        for task, _ in _items(file, env, tasks_of)
    ]
    if len(tasks) != 1:
        named = ", ".join(shortened("/".join(names), 80) for names in tasks[:10])
        raise RunError(f"{path} holds {len(tasks)} tasks ({named}); give a file with one task")
    ((env, task),) = tasks
    groups = {
        algorithm: tuple(
            _member(file, f"{algorithm}.{name}", steps)
            for name, steps in _items(file, algorithm, runs)
        )
        for algorithm, runs in _items(file, task, content[env][task])
    }
    if not all(groups.values()) or not groups:
        raise RunError(f"{path} holds no runs")
    return f"{env}/{task}", groups


def _items(path: Path, key: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise RunError(
            f"{path}: {key[:200]} is not an object. In marl-eval format, environment, task, "
            "algorithm, run and step are nested objects"
        )
    return [*value.items()]


def _member(path: Path, name: str, steps: Any) -> Member:
    points = []
    for key, values in _items(path, name, steps):
        if key != "absolute_metrics":
            place = f"{name}.{key}"
            step = fields_of(path, place, values, Step, error=RunError)
            returns = [step[METRIC]] if isinstance(step[METRIC], int | float) else step[METRIC]
            if not returns or not step["step_count"] >= 0:
                raise RunError(
                    f"{path}: {place[:200]}: step_count must be 0 or more, with at least one return"
                )
            points.append(
                (step["step_count"], float(np.mean(returns)), step.get("elapsed_time", math.nan))
            )
    if not points:
        raise RunError(f"{path}: {name[:200]} holds no steps")
    counts, returns, elapsed = np.array(sorted(points), dtype=np.float64).T
    digits = name.rpartition("_")[2]
    seed = int(digits) if digits.isdigit() else None
    return Member(name, seed, int(counts[-1]), float(returns[-1]), counts, returns, elapsed)


def marl_eval_json(
    env: str, groups: Mapping[str, Group], grid: np.ndarray, *, over: int = 1
) -> dict[str, Any]:
    """Return groups in this format, at the env steps of ``grid``.

    Returns are divided by ``over``, the number of agents that they sum over. Without a grid, each
    run has one step: its last return, or its score if it has no curve.
    """
    algorithms: dict[str, Any] = {}
    for label, group in groups.items():
        runs: dict[str, Any] = {}
        for i, member in enumerate(group):
            name = f"seed_{i if member.seed is None else member.seed}"
            name = name if name not in runs else f"{name}_{i}"  # two runs with the same seed
            runs[name] = _steps(member, grid, over)
        algorithms[label] = runs
    return {"corral": {env: algorithms}}


def _steps(member: Member, grid: np.ndarray, over: int) -> dict[str, Any]:
    if not len(grid) or not len(member.steps):
        last = float(member.returns[-1]) / over if len(member.returns) else member.score
        step = {"step_count": member.env_steps, METRIC: [last]}
        return {"step_0": step, "absolute_metrics": {METRIC: [last]}}
    returns = np.interp(grid, member.steps, member.returns) / over
    steps: dict[str, Any] = {}
    for i, (count, value) in enumerate(zip(grid, returns, strict=True)):
        steps[f"step_{i}"] = {"step_count": int(count), METRIC: [float(value)]}
        if member.elapsed is not None and np.isfinite(member.elapsed).all():
            seconds = float(np.interp(count, member.steps, member.elapsed))
            steps[f"step_{i}"]["elapsed_time"] = seconds
    return {**steps, "absolute_metrics": {METRIC: [float(returns.max())]}}
