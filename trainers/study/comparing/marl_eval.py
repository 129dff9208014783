"""The JSON form of marl-eval (Gorsane et al. 2022, arXiv 2209.10485), which BenchMARL writes too.

    {environment: {task: {algorithm: {run: {
        "step_1": {"step_count": 6000, "elapsed_time": 3.2, "return": [an evaluation's episodes]},
        "absolute_metrics": {"return": [...]}}}}}}

A return in these files is the mean over agents, as BenchMARL has it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.trainers.study.comparing.groups import Group, Member

__all__ = ["is_file", "marl_eval_json", "read_marl_eval"]

METRIC = "return"


def is_file(given: Any) -> bool:
    """Return whether this names a file of this form, not a run."""
    return isinstance(given, str | Path) and str(given).endswith(".json")


def read_marl_eval(path: str | Path) -> tuple[str, dict[str, Group]]:
    """Return the task of a file, "environment/task", and its groups: algorithm -> its runs. A score
    is the mean of the last step.

    Raises ValueError where it is no file of this form, or holds more than one task.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    try:
        tasks = [(env, task) for env, within in found.items() for task in within]
        if len(tasks) > 1:
            named = ", ".join("/".join(each) for each in tasks)
            raise ValueError(f"{path} holds several tasks: {named}; give a file of one")
        ((env, task),) = tasks
        groups = {
            algorithm: tuple(_member(path, name, steps) for name, steps in runs.items())
            for algorithm, runs in found[env][task].items()
        }
    except (AttributeError, KeyError, TypeError, IndexError) as error:
        raise _other_form(path) from error
    except ValueError as error:
        raise (error if str(path) in str(error) else _other_form(path)) from None
    if not all(groups.values()) or not groups:
        raise ValueError(f"{path} holds no runs")
    return f"{env}/{task}", groups


def _other_form(path: str | Path) -> ValueError:
    return ValueError(
        f"{path} is not of marl-eval's form: environment, task, algorithm, run, step; each step "
        f"has step_count and {METRIC}"
    )


def _member(path: str | Path, name: str, steps: Mapping[str, Any]) -> Member:
    points = sorted(
        (int(step["step_count"]), _mean(step[METRIC]), float(step.get("elapsed_time", math.nan)))
        for key, step in steps.items()
        if key != "absolute_metrics"
    )
    counts, returns, elapsed = np.array(points, dtype=np.float64).T  # ValueError where none
    if not np.isfinite(returns).all():
        raise ValueError(f"{path}: {name} has a {METRIC} that is no number")
    digits = name.rpartition("_")[2]
    seed = int(digits) if digits.isdigit() else None
    return Member(name, seed, int(counts[-1]), float(returns[-1]), counts, returns, elapsed)


def _mean(values: Any) -> float:
    return float(np.mean(np.asarray(values, dtype=np.float64)))


def marl_eval_json(
    env: str, groups: Mapping[str, Group], grid: np.ndarray, *, over: int = 1
) -> dict[str, Any]:
    """Return groups in this form, at the env steps of ``grid``; returns are divided by ``over``,
    the number of agents that they sum. Without a grid there is one step, the last: a run without
    any curve has its score there."""
    found: dict[str, Any] = {}
    for label, group in groups.items():
        runs: dict[str, Any] = {}
        for i, member in enumerate(group):
            name = f"seed_{i if member.seed is None else member.seed}"
            name = name if name not in runs else f"{name}_{i}"  # two runs of one seed
            runs[name] = _steps(member, grid, over)
        found[label] = runs
    return {"corral": {env: found}}


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
