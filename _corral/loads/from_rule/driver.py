"""The preset "from rule": train a team that starts from the best rule, and recommend one of them.

    run = corral.from_rule(env_kwargs={"trace": "loads.csv"}, minutes=5)
    run.recommendation.play  # "team" or "rule"

1. The textbook of plain rules is fitted to the days that are not held out; the best rule has the
   least cost.
2. The trainer "policy_iteration" trains a team whose actions are offsets to the number of requests
   that the rule keeps (``residual`` of dfaas_v0). Before training the team is the rule.
3. During training the team is validated, day by day, compared with the rule. This selects the best
   checkpoint.
4. ``corral.loads.from_rule.recommend`` recommends team or rule: recommendation.json.

The team is a resumable run: a resumed run gives the same numbers. All other results are in
from_rule.json in its folder, so that ``resume_from_rule`` can continue from them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import canonical_route
from corral.errors import RunError
from corral.loads.from_rule.days import (
    divided,
    fitted,
    not_held_out,
    of_validation,
    require_a_choice,
    residual_arguments,
    starts_from,
    with_past,
)
from corral.loads.from_rule.parts import Parts
from corral.loads.from_rule.plan import SET_BY_PRESET, Plan, plan_of, read_plan
from corral.loads.from_rule.preset import FROM_RULE, MINUTES, FromRule
from corral.progress import Progress
from corral.text import visible
from corral.trainers.planning import Minutes
from corral.trainers.runs.folders import new_folder, require_replaceable, require_unused
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
    overwrite: bool = False,
    progress: bool | None = None,
    preset: FromRule = FROM_RULE,
    show: Progress = lambda what, done, total: None,
    quiet: bool = False,
    rule: str | None = None,
    **settings: Any,
) -> Run:
    """Train a team that starts from the best rule of a load; return its run, with a recommendation.

    Args:
        env: "dfaas_v0".
        minutes: longest time of the whole job; default: 5, or no limit with ``steps``. Training
            that this ends before its steps is not enough to reject a team.
        steps: env steps of training; default: by the number of nodes.
        seed, out, overwrite, progress: as in ``corral.train``.
        env_kwargs: arguments of the environment; default: arrivals unknown until the end of a step.
            A ``route`` restricts the rules to that route.
        held_out: as in ``corral.train``; default: the last 30 % of the days.
        validation: as in ``corral.train``; default: 30 % of the days that are not held out, at
            least 6.
        preset: default settings.
        show: called with the progress of the rules that are played; if ``quiet``, also with that of
            the training.
        quiet: do not print the best rule and the division of days.
        rule: the rule to start from, if already fitted; default: fitted here.
        settings: settings of policy_iteration.

    Raises ValueError if no rule or team can make a difference (one node, no load, no capacity), and
    the errors of ``corral.train``.
    """
    if env != "dfaas_v0":
        raise ValueError(f"from_rule starts from rules of dfaas_v0; {env} has none")
    if refused := [name for name in settings if name in SET_BY_PRESET]:
        raise ValueError(f"{refused[0]}=: from_rule sets it; omit it")
    for name in ("amount", "residual"):
        if name in (env_kwargs or {}):
            raise ValueError(f"env_kwargs: {name}: from_rule sets it; omit it")
    route = (env_kwargs or {}).get("route")
    if (
        rule is not None
        and route is not None
        and PlainRule.of(rule).route != canonical_route(route)
    ):
        raise ValueError(f"rule={rule!r} has another route than route={route!r}; omit the route")
    name = f"dfaas_v0-from-rule-seed{seed}"
    out = Path("runs", name) if out is None and overwrite else out
    if out is not None and Path(out).exists():
        (require_replaceable if overwrite else require_unused)(Path(out))
    default = MINUTES if steps is None else None
    limit = Minutes.of(default if minutes is None else minutes, steps=False)
    kwargs = with_past({**preset.env_kwargs, **(env_kwargs or {})})
    config, window = divided(kwargs, held_out, validation, preset)
    require_a_choice(config)
    low, high = not_held_out(config)
    days = (high - low) // window
    say = (lambda message: None) if quiet else _say
    ranked: list[tuple[str, float]] = []
    if rule is None:
        fitted_rules = fitted(config, (low, high), window, kwargs.get("route"), show)
        every = 100 / max(1.0, float(fitted_rules.arrivals.sum()))
        costs = {name: every * float(cost.sum()) for name, cost in fitted_rules.costs.items()}
        ranked = sorted(costs.items(), key=lambda item: item[1])
        rule = str(fitted_rules.rule)
        say(
            f"the best of {fitted_rules.tried} plain rules on the {days} days not held out "
            f"(rows {low}:{high}) is {rule}: cost {costs[rule]:.2f} % of the arrivals"
        )
    start = starts_from(rule, [name for name, _ in ranked])
    runner_up = next((name for name, _ in ranked if name != rule), None)
    kept = config.validation.get("rows")
    count = 0 if kept is None else (kept[1] - kept[0]) // window
    say(of_validation(count, days, validation is not None))
    folder = new_folder(name)[0] if out is None else Path(out)
    nodes = len(config.rules().agents)
    plan: Plan = {
        "out": str(folder),
        "rule": rule,
        "residual": str(start),
        "runner_up": runner_up,
        "costs": dict(ranked),  # points, on all days that are not held out
        "window": window,
        "rows": (low, high),
        "held_out": tuple(config.held_out["rows"]),
        "validation": 0 if kept is None else tuple(kept),
        "minutes": None if limit is None else limit.minutes,
        "steps": preset.steps(nodes) if steps is None else steps,
        "seed": seed,
        "nodes": nodes,
        "settings": settings,
        "preset": preset,
        "trained": False,
        "spent": 0.0,  # seconds, at the last time of writing
    }
    began = time.monotonic() if limit is None else limit.began
    arguments = {**residual_arguments(config, start, preset), **kwargs, "max_cycles": window}
    parts = Parts(plan, limit, began, progress, show if quiet else None)
    return parts.run({**arguments, "route": start.route}, overwrite=overwrite)


def resume_from_rule(
    folder: str | Path, *, progress: bool | None = None, show: Progress | None = None
) -> Run:
    """Resume a job of ``from_rule`` in ``folder``; return the run.

    ``progress``: as in ``corral.train``. ``show``: called with the env steps of the training.

    The team continues as if it had never stopped, to the planned steps. Raises RunError if
    ``from_rule`` did not start in this folder, and the errors of ``corral.resume``.
    """
    path = plan_of(folder)
    if path is None:
        raise RunError(f"{folder} has no job of from_rule to resume; start a new one")
    plan = read_plan(path)
    began = time.monotonic() - plan["spent"]
    limit = None if plan["minutes"] is None else Minutes(plan["minutes"], began)
    return Parts(plan, limit, began, progress, show).run()


def _say(message: str) -> None:
    print(f"corral: {visible(message)}", file=sys.stderr)
