"""Parse the text of an opponent: the name of one player, or several names with weights.

    beat-last                              a reference player of that seat
    runs/week_1@best                       the policy of a run for that agent, see ``load_run``
    runs/week_1@best:2,beat-last:1,random  a mix: drawn for each episode by weight (default 1)

A weight follows the last colon of a part. A folder name may contain colons (``C:\\runs\\a``): text
after the last colon is not a weight if it contains a slash or an @. A folder name may not contain a
comma. A folder name that ends like a weight needs an explicit weight: ``runs/a:2:1``.
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


def parse_mix(opponent: Any) -> dict[str, float]:
    """Return the players of a text or of a mapping name -> weight, with weights that sum to 1.

    A Path or a Run is replaced by its name. Raises ValueError if the text is invalid.
    """
    weights = weights_of(opponent)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def mix_text(opponent: Any) -> str:
    """Return a text that ``parse_mix`` parses to the same mix; only the name for one player."""
    weights = weights_of(opponent)
    if len(weights) == 1:
        name = next(iter(weights))
        return name if _split_weight(name)[1] is None else f"{name}:1"
    return ",".join(f"{name}:{_short(weight)}" for name, weight in weights.items())


def weights_of(opponent: Any) -> dict[str, float]:
    """Return the players of ``parse_mix`` with unnormalized weights; the default weight is 1."""
    if isinstance(opponent, Mapping):
        pairs = [(_name(name), weight) for name, weight in opponent.items()]
    else:
        pairs = [_name_and_weight(part) for part in _parts(_name(opponent))]
        pairs = [(name, 1.0 if weight is None else weight) for name, weight in pairs]
    weights: dict[str, float] = {}
    for name, weight in pairs:
        if not name:
            raise ValueError(f"opponent {opponent!r}: a name is missing; pass names, {EXAMPLE}")
        if "," in name:
            raise ValueError(
                f"opponent {name!r}: commas separate the players of a mix. Rename the run's folder "
                "so that it has no comma"
            )
        if name in weights:
            raise ValueError(f"opponent {opponent!r} contains {name} twice; list it once")
        weights[name] = _weight(name, weight)
    if not weights:
        raise ValueError(f"opponent {opponent!r}: pass at least one player, {EXAMPLE}")
    if not math.isfinite(sum(weights.values())):
        raise ValueError(f"opponent {opponent!r}: the weights sum to infinity; reduce them")
    return weights


def _name(opponent: Any) -> str:
    """Return the name of a text, a Path or a Run. Raises ValueError for a policy."""
    if isinstance(opponent, Run):
        return opponent.name
    if isinstance(opponent, str | PathLike):
        return str(opponent).strip()
    raise ValueError(
        f"opponent {opponent!r:.200}: a run stores the names of its opponents, so that it can be "
        f"resumed. Pass the name of a reference player, a run (RUN or RUN@best), or a mix, "
        f"{EXAMPLE}. For functions and policies use corral.adapters.SeatEnv(env, opponents=...)"
    )


def _parts(text: str) -> list[str]:
    """Split a text at commas. Raises ValueError if the whole text is a run's folder."""
    if "," in text and _is_folder(text):
        raise ValueError(
            f"opponent {text!r} is a run's folder, but commas separate the players of a mix. "
            "Rename the folder so that it has no comma"
        )
    return text.split(",")


def _name_and_weight(text: str) -> tuple[str, str | None]:
    """Return the name and the weight of one part; None if it does not have a weight."""
    name, weight = _split_weight(text.strip())
    if weight is not None and _is_folder(text.strip()):
        raise ValueError(
            f"opponent {text.strip()!r} is ambiguous: it is a run's folder, and could also be "
            f"{name} with weight {weight}. Write {text.strip()}:1 for the folder"
        )
    return name, weight


def _split_weight(text: str) -> tuple[str, str | None]:
    name, colon, weight = text.rpartition(":")
    if not colon or set(weight) & set("/\\@"):
        return text, None
    return name.strip(), weight.strip()


def _is_folder(text: str) -> bool:
    """Return True if the whole text names a run's folder, or a checkpoint of a run."""
    folder, at = place_of(text)
    valid = at is None or CHECKPOINT_NAME.fullmatch(at) is not None
    return valid and (folder / CONFIG).is_file()


def _weight(name: str, weight: Any) -> float:
    try:
        if isinstance(weight, bool):
            raise TypeError
        value = float(weight)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise ValueError(
            f"opponent {shortened(name, 200)}: invalid weight {weight!r}; pass a finite number "
            f"above 0, {EXAMPLE}"
        )
    return value


def _short(weight: float) -> str:
    return repr(weight).removesuffix(".0")
