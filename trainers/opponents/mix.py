"""Who plays a seat that never learns, as text: a player's name, or several with weights.

    beat-last                              a reference player of that seat
    runs/week_1@best                       the policy of a run for that agent, see ``load_run``
    runs/week_1@best:2,beat-last:1,random  drawn anew for each episode, by weight; 1 where none is

Weights stand after the last colon of a part. A folder's name may hold colons (``C:\\runs\\a``):
what follows the last colon is no weight where it holds a slash or an @. It may hold no comma, and
one that ends like a weight gets one: ``runs/a:2:1``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

from corral.text import shortened
from corral.trainers.runs.run import CHECKPOINT_NAME, Run, place_of
from corral.trainers.runs.run_config import CONFIG

__all__ = ["mix_text", "parse_mix", "weights_of"]

EXAMPLE = "such as beat-last:2,runs/mine@best:1"


def parse_mix(given: Any) -> dict[str, float]:
    """Return the players of a text, or of a mapping name -> weight, with weights that sum to 1.

    A Path or a Run stands for its name. Raises ValueError, with what is wrong with it.
    """
    weights = weights_of(given)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def mix_text(given: Any) -> str:
    """Return the text of which ``parse_mix`` makes the same: the name alone where there is one."""
    weights = weights_of(given)
    if len(weights) == 1:
        name = next(iter(weights))
        return name if _divided(name)[1] is None else f"{name}:1"
    return ",".join(f"{name}:{_short(weight)}" for name, weight in weights.items())


def weights_of(given: Any) -> dict[str, float]:
    """Return the same with the weights as they were given; 1 where none was."""
    if isinstance(given, Mapping):
        pairs = [(_name(name), weight) for name, weight in given.items()]
    else:
        pairs = [_parted(part) for part in _parts(_name(given))]
        pairs = [(name, 1.0 if weight is None else weight) for name, weight in pairs]
    found: dict[str, float] = {}
    for name, weight in pairs:
        if not name:
            raise ValueError(f"opponent {given!r}: a name is missing; give names, {EXAMPLE}")
        if "," in name:
            raise ValueError(
                f"opponent {name!r}: commas part the players of a mix; give the run's folder a "
                "name without one"
            )
        if name in found:
            raise ValueError(f"opponent {given!r} names {name} twice; give it one weight")
        found[name] = _weight(name, weight)
    if not found:
        raise ValueError(f"opponent {given!r}: name a player, {EXAMPLE}")
    if not math.isfinite(sum(found.values())):
        raise ValueError(f"opponent {given!r}: the weights sum to infinity; give smaller ones")
    return found


def _name(given: Any) -> str:
    """Return the name that a text, a Path or a Run is. Raises ValueError for a policy."""
    if isinstance(given, Run):
        return given.name
    if isinstance(given, str | PathLike):
        return str(given).strip()
    raise ValueError(
        f"opponent {given!r:.200}: a run keeps the names of its opponents, so that it can go on; "
        f"give the name of a reference player, a run (RUN or RUN@best), or a mix, {EXAMPLE}. "
        "Functions and policies play in corral.adapters.SeatEnv(env, opponents=...)"
    )


def _parts(text: str) -> list[str]:
    """Return the parts between commas. Raises ValueError where a folder's name has commas."""
    if "," in text and _is_folder(text):
        raise ValueError(
            f"opponent {text!r} is a run's folder, and commas part the players of a mix; give it "
            "a name without one"
        )
    return text.split(",")


def _parted(text: str) -> tuple[str, str | None]:
    """Return the name and the weight of one part; None: it has no weight."""
    name, weight = _divided(text.strip())
    if weight is not None and _is_folder(text.strip()):
        raise ValueError(
            f"opponent {text.strip()!r} is a run's folder, and could be {name} with weight "
            f"{weight}; write {text.strip()}:1"
        )
    return name, weight


def _divided(text: str) -> tuple[str, str | None]:
    name, colon, weight = text.rpartition(":")
    if not colon or set(weight) & set("/\\@"):
        return text, None
    return name.strip(), weight.strip()


def _is_folder(text: str) -> bool:
    """Return whether all of a text is a run's folder, or names a checkpoint of one."""
    folder, at = place_of(text)
    known = at is None or CHECKPOINT_NAME.fullmatch(at) is not None
    return known and (folder / CONFIG).is_file()


def _weight(name: str, weight: Any) -> float:
    try:
        if isinstance(weight, bool):
            raise TypeError
        value = float(weight)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"opponent {shortened(name, 200)}: weight {weight!r}: give a finite number above 0, "
            f"{EXAMPLE}"
        )
    return value


def _short(weight: float) -> str:
    return repr(weight).removesuffix(".0")
