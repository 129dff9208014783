"""The days of a load, and what the rules cost on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.envs.dfaas_v0 import ROUTES, DfaasRules
from corral.envs.dfaas_v0.baselines import AMOUNTS
from corral.envs.dfaas_v0.rows import HELD_OUT
from corral.progress import Progress
from corral.trainers.evaluation.intervals import FEWEST_WINDOWS
from corral.trainers.loads.from_rule.preset import FromRule
from corral.trainers.loads.judge import CAPACITY, NOT_OF_THE_GAME
from corral.trainers.loads.replay import DEFAULT_WINDOW, OWN, replay
from corral.trainers.loads.scores import WindowSums
from corral.trainers.runs.env_config import EnvConfig

__all__ = [
    "RULES",
    "costs_of",
    "divided",
    "game_of",
    "not_held_out",
    "of_validation",
    "played",
    "require_a_choice",
]

SPLITS = tuple(route for route in ROUTES if route != "choose")
RULES = (
    "local/equal",
    *(f"{a}/{route}" for a in AMOUNTS if a not in ("local", "random") for route in SPLITS),
)
"""The rules that are compared: all amounts with all routes; what is random is no rule to clone."""


def divided(
    kwargs: Mapping[str, Any], held_out: Any, validation: Any, preset: FromRule
) -> tuple[EnvConfig, int]:
    """Return the environment with its days divided, and the steps of a window: a day of the trace
    unless ``max_cycles`` is given."""
    plain = DfaasRules(**{k: v for k, v in kwargs.items() if k in ("trace", "capacity")})
    window = int(kwargs.get("max_cycles") or plain.trace.steps_per_day or DEFAULT_WINDOW)
    arguments = {**kwargs, "max_cycles": window}
    days = len(plain.trace) // window
    if held_out is None and kwargs.get("rows") is None and days >= 4:
        last = max(1, round(HELD_OUT * days)) * window  # whole days, so that the others are whole
        held_out = (len(plain.trace) - last, len(plain.trace))
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


def costs_of(
    config: EnvConfig, pairs: list[str], rows: tuple[int, int], window: int, show: Progress
) -> dict[str, float]:
    """Return the cost of rules on ``rows``, in points."""
    sums = played(config, pairs, rows, window, show)
    return {pair: 100 * float(s.cost.sum() / max(1, s.arrivals.sum())) for pair, s in sums.items()}


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
