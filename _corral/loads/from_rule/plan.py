"""The plan of a job of ``from_rule``, in from_rule.json."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypedDict

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.errors import CorralError, RunError
from corral.files import write_file
from corral.loads.from_rule.preset import FromRule
from corral.trainers.base import trainer_class
from corral.trainers.file_fields import read_fields
from corral.trainers.runs.run import FROM_RULE as PLAN
from corral.trainers.settings import make_settings

__all__ = ["PLAN", "SET_BY_PRESET", "Plan", "plan_of", "read_plan", "write_plan"]

MAX_BYTES = 2**24

SET_BY_PRESET = (
    *("trainer", "init", "init_critic", "policies_to_train", "opponents", "self_play", "horizon"),
    *("stop", "evaluate_every", "dry_run", "callbacks", "metrics", "sinks", "model", "settings_of"),
    *("preset", "api", "checkpoint_every", "keep", "teacher", "taught"),
)
"""Arguments of ``corral.train`` that ``from_rule`` sets, or that are not stored with a run."""


class Plan(TypedDict):
    """The content of from_rule.json."""

    out: str
    rule: str
    residual: str  # the rule from which the team starts
    runner_up: str | None
    costs: dict[str, float]  # points, on all days that are not held out
    window: int
    rows: tuple[int, int]
    held_out: tuple[int, int]
    validation: tuple[int, int] | Literal[0]
    minutes: float | None  # longest time of the job
    steps: int
    seed: int
    nodes: int
    settings: dict[str, Any]
    preset: FromRule
    trained: bool
    spent: float  # seconds, at the last time of writing


def plan_of(folder: str | Path) -> Path | None:
    """Return the plan of a run in ``folder``; None if ``from_rule`` did not start it."""
    path = Path(folder) / PLAN
    return path if path.is_file() else None


def write_plan(plan: Plan, folder: Path) -> None:
    """Write a plan into the folder of a run."""
    text = json.dumps({**plan, "preset": asdict(plan["preset"])}, indent=2, default=list)
    write_file(folder / PLAN, text + "\n", folder=folder)


def read_plan(path: Path) -> Plan:
    """Return the plan in a file, with the present folder of its run. Raises RunError."""
    try:
        plan: Any = read_fields(path, Plan, max_bytes=MAX_BYTES, error=RunError, folder=path.parent)
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    plan["out"] = str(path.parent)
    for name, least in (("nodes", 1), ("window", 1), ("seed", 0), ("spent", 0), ("steps", 1)):
        if plan[name] < least:
            raise RunError(f"{path}: {name} = {plan[name]}: must be {least} or more")
    if plan["minutes"] is not None and not plan["minutes"] > 0:
        raise RunError(f"{path}: minutes = {plan['minutes']}: must be above 0")
    key = "rule"
    try:
        PlainRule.of(plan["rule"])
        key = "residual"
        PlainRule.of(plan["residual"])
        key = "preset"
        plan["preset"] = preset = FromRule(**plan["preset"])
        team = trainer_class("policy_iteration")
        make_settings(team, preset.team_settings(plan["nodes"]))
        key = "settings"
        settings = {name: value for name, value in plan["settings"].items() if name != "policies"}
        if refused := [name for name in settings if name in SET_BY_PRESET]:
            raise ValueError(f"{refused[0]} is set by the preset")
        make_settings(team, settings)
    except (CorralError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise RunError(f"{path}: {key}: {error}") from error
    checked_plan: Plan = plan
    return checked_plan
