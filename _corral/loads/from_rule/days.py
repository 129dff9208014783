"""The days of a load, and what the rules cost on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from corral.data import Trace
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.loads.from_rule.preset import FromRule
from corral.loads.judge import CAPACITY, NOT_OF_THE_GAME
from corral.loads.replay import DEFAULT_WINDOW, OWN, replay
from corral.loads.scores import WindowSums
from corral.loads.textbook import TODAY as RULES
from corral.loads.textbook import Fitted, fit
from corral.progress import Progress
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.runs.env_config import EnvConfig

__all__ = [
    "RULES",
    "as_of_a_rule",
    "divided",
    "fitted",
    "game_of",
    "not_held_out",
    "of_validation",
    "played",
    "require_a_choice",
    "taught_by",
]


COUNTS = 4
"""Own counts of past steps that a team observes if arrivals are unknown, beside the mean load at
the time of day. Four find a trend; benchmarks/loads/redraw.py compares this with the last count
alone."""


def as_of_a_rule(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments whose actions say what a rule says: how many requests are kept, or for a
    summary the share that is forwarded; with unknown arrivals, what helps to foresee them."""
    found: dict[str, Any] = {"amount": "keep"}
    if kwargs.get("observation") == "summary":
        found["amount"] = "share"
    if kwargs["arrivals"] == "unknown":
        days = _trace_of(kwargs).steps_per_day is not None
        found |= {"last_counts": COUNTS, "daily_mean": days}
    return found | dict(kwargs)


def taught_by(rule: str, ranked: Sequence[str]) -> PlainRule:
    """Return the rule that a team starts from: the best of those that actions can express, which
    say how many requests are kept, and nothing of margins."""
    for name in (rule, *ranked):
        found = PlainRule.of(name)
        if found.margin is None:
            return found
    return dataclasses.replace(PlainRule.of(rule), margin=None)


def _trace_of(kwargs: Mapping[str, Any]) -> Trace:
    return DfaasRules(**{k: v for k, v in kwargs.items() if k in ("trace", "capacity")}).trace


def divided(
    kwargs: Mapping[str, Any], held_out: Any, validation: Any, preset: FromRule
) -> tuple[EnvConfig, int]:
    """Return the environment with its days divided, and the steps of a window: a day of the trace
    unless ``max_cycles`` is given."""
    trace = _trace_of(kwargs)
    window = int(kwargs.get("max_cycles") or trace.steps_per_day or DEFAULT_WINDOW)
    arguments = {**kwargs, "max_cycles": window}
    days = len(trace) // window
    if held_out is None and kwargs.get("rows") is None and days >= 4:
        last = max(1, round(HELD_OUT * days)) * window  # whole days, so that the others are whole
        held_out = (len(trace) - last, len(trace))
    if validation is None:
        rest = EnvConfig.of("dfaas_v0", arguments, held_out, None, 0)
        low, high = rest.env_kwargs["rows"]
        days = (high - low) // window
        count = max(FEWEST_WINDOWS, round(preset.validation * days))
        count = count if days >= FEWEST_WINDOWS + 2 else days // 2
        validation = (high - count * window, high) if count else 0
    return EnvConfig.of("dfaas_v0", arguments, held_out, None, validation), window


def not_held_out(config: EnvConfig) -> tuple[int, int]:
    """Return the rows of training and validation together."""
    rows = [config.env_kwargs["rows"], *([config.validation["rows"]] if config.validation else [])]
    return min(low for low, _ in rows), max(high for _, high in rows)


def of_validation(count: int, days: int, given: bool) -> str:
    """Return in words how many windows validate, and what that means."""
    told = f"{count} of these {days} days are kept for validation"
    if count >= FEWEST_WINDOWS:
        return told
    why = "" if given else f" (more than {FEWEST_WINDOWS + 1} days are needed to keep more)"
    return f"{told}{why}: below {FEWEST_WINDOWS} the rule is recommended, whatever is learned"


def require_a_choice(config: EnvConfig) -> None:
    """Raise ValueError where it makes no difference what nodes do."""
    rules: Any = config.rules()
    name, nodes = rules.trace.name, len(rules.agents)
    if not rules.network.links.any():
        alone = "one node" if nodes == 1 else f"{nodes} nodes, and none has a neighbour"
        raise ValueError(
            f"{name} has {alone}: there is nobody to forward to, so that no rule and no team can "
            "make a difference"
        )
    section = rules.trace.section(*not_held_out(config))
    if not section.arrivals.any():
        raise ValueError(f"{name}: no request arrives on the days that are not held out")
    if not section.capacity.any():
        raise ValueError(
            f"{name}: no node can serve anything on the days that are not held out (capacity 0), "
            "so that no rule and no team can make a difference"
        )


def fitted(config: EnvConfig, rows: tuple[int, int], window: int, show: Progress) -> Fitted:
    """Return the textbook fitted to ``rows``, by the route of the environment if it has one."""
    assert config.trace is not None
    game = game_of(config) | {"route": config.env_kwargs.get("route")}
    return fit(config.trace, rows=rows, window=window, progress=show, **game)


def played(
    config: EnvConfig, pairs: list[str], rows: tuple[int, int], window: int, show: Progress
) -> dict[str, WindowSums]:
    assert config.trace is not None
    plan: dict[str, Any] = {"rows": rows, "window": window, "optimum_windows": 0}
    return replay(config.trace, pairs, **plan, progress=show, **game_of(config)).sums


def game_of(config: EnvConfig) -> dict[str, Any]:
    """Return the arguments of ``replay`` in which rules play as the environment's learners do."""
    arguments = config.env_kwargs
    own = {key: value for key, value in arguments.items() if key not in NOT_OF_THE_GAME}
    own |= {key: arguments[key] for key in OWN if key in arguments and key != "route"}
    return own | {key: arguments[key] for key in CAPACITY}
