"""The days of a load, and the costs of rules on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.residual import WITHOUT_KEEP
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.loads.from_rule.preset import FromRule
from corral.loads.judge import CAPACITY, NOT_OF_THE_GAME
from corral.loads.replay import DEFAULT_WINDOW, OF_TEAMS, OWN, fitting_scales, replay
from corral.loads.scores import WindowSums
from corral.loads.textbook import TODAY as RULES
from corral.loads.textbook import Fitted, fit
from corral.progress import Progress
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.runs.env_config import EnvConfig

__all__ = [
    "RULES",
    "divided",
    "fitted",
    "game_of",
    "not_held_out",
    "of_validation",
    "played",
    "require_a_choice",
    "residual_arguments",
    "starts_from",
    "with_past",
]


COUNTS = 4
"""Number of past counts that a team observes with unknown arrivals, in addition to the mean load at
the time of day. Four are enough to detect a trend; benchmarks/loads/redraw.py compares this with
the last count alone."""


def with_past(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with observations that help to predict arrivals, if these are unknown."""
    if kwargs["arrivals"] == "known":
        return dict(kwargs)
    days = _trace_of(kwargs).steps_per_day is not None
    return {"last_counts": COUNTS, "daily_mean": days, **kwargs}


def starts_from(rule: str, ranked: Sequence[str]) -> PlainRule:
    """Return the rule from which a team starts: the best one that keeps a number of requests.

    Actions are offsets to this number. Without such a rule it is "local", by the route of ``rule``.
    """
    for name in (rule, *ranked):
        candidate = PlainRule.of(name)
        if candidate.amount not in WITHOUT_KEEP:
            return candidate
    return PlainRule("local", PlainRule.of(rule).route)


def residual_arguments(config: EnvConfig, rule: PlainRule, preset: FromRule) -> dict[str, Any]:
    """Return the arguments of a team that starts from ``rule``.

    Scales leave room for later days: they are ``preset.scale`` times the maximum of the training
    rows. In steps beyond them the team follows the rule.
    """
    rules: Any = config.rules()
    section = rules.trace.section(*config.env_kwargs["rows"])
    scales = {
        name: preset.scale * max(1, int(numbers.max()))
        for name, numbers in (
            ("load_scale", section.arrivals),
            ("capacity_scale", section.capacity),
        )
    }
    return {"residual": str(rule), "route": rule.route, "beyond": "rule", **scales}


def _trace_of(kwargs: Mapping[str, Any]) -> Trace:
    return DfaasRules(**{k: v for k, v in kwargs.items() if k in ("trace", "capacity")}).trace


def divided(
    kwargs: Mapping[str, Any], held_out: Any, validation: Any, preset: FromRule
) -> tuple[EnvConfig, int]:
    """Return the environment with its days divided, and the steps of a window: ``max_cycles``, or a
    day of the trace."""
    trace = _trace_of(kwargs)
    window = int(kwargs.get("max_cycles") or trace.steps_per_day or DEFAULT_WINDOW)
    arguments = {**kwargs, "max_cycles": window}
    days = len(trace) // window
    if held_out is None and kwargs.get("rows") is None and days >= 4:
        held_out_steps = max(1, round(HELD_OUT * days)) * window  # in whole days
        held_out = (len(trace) - held_out_steps, len(trace))
    if validation is None:
        split = EnvConfig.of("dfaas_v0", arguments, held_out, None, 0)
        low, high = split.env_kwargs["rows"]
        days = (high - low) // window
        count = max(FEWEST_WINDOWS, round(preset.validation * days))
        count = count if days >= FEWEST_WINDOWS + 2 else days // 2
        validation = (high - count * window, high) if count else 0
    return EnvConfig.of("dfaas_v0", arguments, held_out, None, validation), window


def not_held_out(config: EnvConfig) -> tuple[int, int]:
    """Return the rows of training and validation together."""
    rows = [config.env_kwargs["rows"], *([config.validation["rows"]] if config.validation else [])]
    return min(low for low, _ in rows), max(high for _, high in rows)


def of_validation(count: int, days: int, requested: bool) -> str:
    """Return a sentence on the number of validation windows, and its consequences."""
    text = f"{count} of these {days} days are kept for validation"
    if count >= FEWEST_WINDOWS:
        return text
    why = "" if requested else f" (more than {FEWEST_WINDOWS + 1} days are needed to keep more)"
    return f"{text}{why}: below {FEWEST_WINDOWS} the rule is recommended, whatever the result"


def require_a_choice(config: EnvConfig) -> None:
    """Raise ValueError if all policies must do the same on this load."""
    rules: Any = config.rules()
    name, nodes = rules.trace.name, len(rules.agents)
    if not rules.network.links.any():
        reason = "only one node" if nodes == 1 else f"{nodes} nodes without neighbors"
        raise ValueError(
            f"{name} has {reason}: nodes cannot forward, so no rule and no team can make a "
            "difference"
        )
    section = rules.trace.section(*not_held_out(config))
    if not section.arrivals.any():
        raise ValueError(f"{name}: no request arrives on the days that are not held out")
    if not section.capacity.any():
        raise ValueError(
            f"{name}: no node can serve anything on the days that are not held out (capacity 0), "
            "so no rule and no team can make a difference"
        )


def fitted(
    config: EnvConfig, rows: tuple[int, int], window: int, route: str | None, show: Progress
) -> Fitted:
    """Return the textbook fitted to ``rows``; ``route``: of all rules, None: any."""
    assert config.trace is not None
    game = game_of(config) | {"route": route}
    return fit(config.trace, rows=rows, window=window, progress=show, **game)


def played(
    config: EnvConfig, pairs: list[str], rows: tuple[int, int], window: int, show: Progress
) -> dict[str, WindowSums]:
    assert config.trace is not None
    plan: dict[str, Any] = {"rows": rows, "window": window, "optimum_windows": 0}
    return replay(config.trace, pairs, **plan, progress=show, **game_of(config)).sums


def game_of(config: EnvConfig) -> dict[str, Any]:
    """Return the arguments of ``replay`` with which rules play the environment's game."""
    arguments = config.env_kwargs
    settings = {key: value for key, value in arguments.items() if key not in NOT_OF_THE_GAME}
    settings |= {key: arguments[key] for key in OWN if key in arguments and key not in OF_TEAMS}
    settings |= {key: arguments[key] for key in CAPACITY}
    return settings if config.trace is None else fitting_scales(settings, config.trace)
