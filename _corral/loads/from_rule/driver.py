"""The preset of the main job: a team that starts from the best rule, and what to play in the end.

    run = corral.from_rule(env_kwargs={"trace": "loads.csv"}, minutes=5)
    run.recommendation.play  # "team" or "rule"

1. The textbook is fitted to the days that are not held out: the best plain rule has the least cost.
2. Its route is the environment's, and it is cloned (a run of its own, <RUN>-clone). Actions say how
   many requests a node keeps, as the rule does.
3. The trainer "policy_iteration" goes on from the clone.
4. On the way the team is validated, day by day beside the rule, and the clone before it; the best
   checkpoint is the best by that.
5. ``corral.loads.from_rule.recommend`` says what to play: recommendation.json.

Clone and team are runs that go on bit for bit where they stopped; what else was found is in
from_rule.json in the folders of both, so that ``resume_from_rule`` goes on with all of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.errors import RunError
from corral.loads.from_rule.days import (
    as_of_a_rule,
    divided,
    fitted,
    not_held_out,
    of_validation,
    require_a_choice,
    taught_by,
)
from corral.loads.from_rule.parts import Parts
from corral.loads.from_rule.plan import SET_BY_PRESET, Plan, plan_of, read_plan
from corral.loads.from_rule.preset import FROM_RULE, MINUTES, FromRule
from corral.progress import Progress
from corral.text import visible
from corral.trainers.planning import Minutes
from corral.trainers.runs.folders import new_folder
from corral.trainers.runs.run import Run

__all__ = ["from_rule", "resume_from_rule"]


def from_rule(
    env: str = "dfaas_v0",
    *,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    held_out: float | tuple[int, int] | None = None,
    validation: float | tuple[int, int] | None = None,
    out: str | Path | None = None,
    progress: bool | None = None,
    preset: FromRule = FROM_RULE,
    show: Progress = lambda what, done, total: None,
    quiet: bool = False,
    rule: str | None = None,
    **settings: Any,
) -> Run:
    """Train a team that starts from the best rule of a load; return its run, which recommends.

    Args:
        env: "dfaas_v0".
        minutes: that all of it may take; default: 5, where no ``steps`` are given.
        steps: env steps of clone and team together, in place of minutes.
        seed, out, progress: as in ``corral.train``.
        env_kwargs: arguments of the environment; default: arrivals unknown until a step is over,
            ``amount="keep"``. A route leaves only the rules with it.
        held_out: as in ``corral.train``; default: three of ten days, the last ones.
        validation: the same; default: three of ten days that are not held out, at least 6.
        preset: what is set where nobody gives it.
        show: is told of the rules that are played.
        quiet: whether nothing is said of the best rule and the days.
        rule: the rule to start from, if it was fitted before; default: fitted here.
        settings: of policy_iteration; those of networks and rollouts are the clone's too.

    Raises ValueError where no rule or team can matter (one node, no load, no capacity), and what
    ``corral.train`` raises.
    """
    if env != "dfaas_v0":
        raise ValueError(f"from_rule starts from rules of dfaas_v0; {env} has none")
    if refused := [name for name in settings if name in SET_BY_PRESET]:
        raise ValueError(f"{refused[0]}=: from_rule sets it itself; leave it out")
    if steps is not None and minutes is not None:
        raise ValueError(f"minutes={minutes:g}: give minutes, or steps, not both")
    limit = Minutes.of(MINUTES if minutes is None else minutes, steps=False)
    assert limit is not None
    kwargs = as_of_a_rule({**preset.env_kwargs, **(env_kwargs or {})})
    config, window = divided(kwargs, held_out, validation, preset)
    require_a_choice(config)
    low, high = not_held_out(config)
    days = (high - low) // window
    say = (lambda message: None) if quiet else _say
    ranked: list[tuple[str, float]] = []
    if rule is None:
        found = fitted(config, (low, high), window, show)
        every = 100 / max(1.0, float(found.arrivals.sum()))
        costs = {name: every * float(cost.sum()) for name, cost in found.costs.items()}
        ranked = sorted(costs.items(), key=lambda each: each[1])
        rule = str(found.rule)
        say(
            f"the best of {found.tried} plain rules on the {days} days that are not held out (rows "
            f"{low}:{high}) is {rule}: cost {costs[rule]:.2f} % of the arrivals"
        )
    teacher = taught_by(rule, [name for name, _ in ranked])
    second = next((name for name, _ in ranked if name != rule), None)
    kept = config.validation.get("rows")
    count = 0 if kept is None else (kept[1] - kept[0]) // window
    say(of_validation(count, days, validation is not None))
    folder = new_folder(f"dfaas_v0-from-rule-seed{seed}")[0] if out is None else Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is not empty; give a new folder, or go on: --resume {folder}")
    plan: Plan = {
        "out": str(folder),
        "rule": rule,
        "teacher": str(teacher),
        "runner_up": second,
        "costs": dict(ranked),  # points, on all days that are not held out
        "window": window,
        "rows": (low, high),
        "held_out": tuple(config.held_out["rows"]),
        "validation": 0 if kept is None else tuple(kept),
        "minutes": None if steps is not None else limit.minutes,
        "steps": steps,
        "seed": seed,
        "nodes": len(config.rules().agents),
        "settings": settings,
        "preset": preset,
        "cloned": False,
        "trained": False,
        "spent": 0.0,  # seconds, when it was last written down
    }
    kwargs["route"] = teacher.route
    return Parts(plan, limit, progress).run({**kwargs, "max_cycles": window})


def resume_from_rule(folder: str | Path, *, progress: bool | None = None) -> Run:
    """Go on with what ``from_rule`` began in ``folder``, or <folder>-clone; return the run.

    Clone and team go on as if they had never stopped, to the steps that were planned. Raises
    RunError where nothing was begun there, and what ``corral.resume`` raises.
    """
    path = plan_of(folder)
    if path is None:
        raise RunError(f"{folder} holds nothing that from_rule began; begin it again")
    plan = read_plan(path)
    limit = Minutes(plan["minutes"] or 0.0, time.monotonic() - plan["spent"])
    return Parts(plan, limit, progress).run()


def _say(message: str) -> None:
    print(f"corral: {visible(message)}", file=sys.stderr)
