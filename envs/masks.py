"""Actions and their masks as NumPy arrays: what is an action, and all that is done with masks.

A mask is int8 or bool [..., A]: 1 where an action is legal. It stands beside the observation, in a
Dict space: ``{"observation": ..., "action_mask": ...}``. An agent that does not act has an all-zero
mask. Masked distributions of torch are in ``corral.adapters.masked_distribution``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from corral.errors import ActionError, IllegalActionError, MaskError

__all__ = [
    "MASK",
    "OBSERVATION",
    "as_legal",
    "checked_action",
    "draw",
    "first",
    "greedy",
    "has_mask",
    "highest",
    "mask_space",
    "masked",
    "masked_space",
    "refuse_masked_arrays",
    "require_integers",
    "require_legal",
    "sample_legal",
    "split",
    "split_space",
]

Array = npt.NDArray[Any]

OBSERVATION, MASK = "observation", "action_mask"
"""The two entries of a masked observation."""


# --- Spaces and observations ---------------------------------------------------------------------


def mask_space(actions: int) -> spaces.Box:
    """Return the space of a mask of so many actions."""
    return spaces.Box(0, 1, (actions,), np.int8)


def masked_space(observation: spaces.Space[Any], actions: int) -> spaces.Dict:
    """Return the space of an ``observation`` with a mask of so many actions beside it."""
    return spaces.Dict({OBSERVATION: observation, MASK: mask_space(actions)})


def masked(observation: Any, mask: Array) -> dict[str, Any]:
    """Return an observation with its mask beside it."""
    return {OBSERVATION: observation, MASK: mask}


def has_mask(space: spaces.Space[Any]) -> bool:
    """Tell whether observations of ``space`` bring a mask."""
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def split_space(space: spaces.Space[Any]) -> tuple[spaces.Space[Any], spaces.Space[Any] | None]:
    """Return what is observed beside the mask, and the mask's space; None: there is none.

    Entries beside the mask that are not one "observation" stay a Dict.
    """
    if not has_mask(space):
        return space, None
    assert isinstance(space, spaces.Dict)
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    inner = rest[OBSERVATION] if set(rest) == {OBSERVATION} else spaces.Dict(rest)
    return inner, space[MASK]


def split(observation: Any) -> tuple[Any, Array | None]:
    """Return an observation without its mask, and the mask; None: there is none.

    Nothing is copied, and ``observation`` is not changed.
    """
    if not isinstance(observation, Mapping) or MASK not in observation:
        return observation, None
    rest = {key: part for key, part in observation.items() if key != MASK}
    inner = rest[OBSERVATION] if set(rest) == {OBSERVATION} else rest
    return inner, observation[MASK]


# --- Checks --------------------------------------------------------------------------------------


def as_legal(agent: str, mask: Any) -> Array:
    """Return a mask of 0 and 1 as bool. Raises MaskError for other values."""
    given = np.asarray(mask)
    if given.dtype == np.bool_:
        return given
    if given.dtype.itemsize == 1:
        legal = given.view(np.bool_) if given.size == 0 or given.view(np.uint8).max() <= 1 else None
    else:
        legal = given != 0 if np.isin(given, (0, 1)).all() else None
    if legal is None:
        wrong = given[(given != 0) & (given != 1)][0]
        raise MaskError(f"{agent}: {MASK} holds {wrong!r}, and a mask holds 0 and 1 alone")
    return legal


def require_legal(agent: str, action: int, mask: Array) -> None:
    """Raise IllegalActionError where ``mask`` [A] forbids ``action``."""
    if not mask[action]:
        legal = np.flatnonzero(mask)
        raise IllegalActionError(
            f"{agent}: action {action} is illegal here; legal: {_ranges(legal.tolist())}. "
            f'Choose by observation["{MASK}"].'
        )


def _ranges(numbers: Sequence[int]) -> str:
    """'0..3, 7' for [0, 1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("..".join(map(str, run)) for run in runs) or "none"


# --- Choosing ------------------------------------------------------------------------------------


def sample_legal(masks: Array, rng: np.random.Generator) -> Array:
    """Return a uniformly random legal action for each of ``masks`` [R, A]: int64 [R]; 0 where
    none is legal."""
    if np.count_nonzero(masks.view(np.bool_)) == masks.size:  # as always in some games
        draws = rng.random(len(masks))
        draws *= masks.shape[1]
        return draws.astype(np.int64)
    counts = np.add.reduce(masks, axis=1, dtype=np.int64)  # [R]
    rank: Array = (rng.random(len(masks)) * counts).astype(np.int64)
    # Mostly the legal actions are 0 .. count - 1, and the rank among them is the action itself.
    first_illegal = masks.view(np.bool_).argmin(axis=1)  # 0 where all are legal
    scattered = np.flatnonzero(first_illegal != counts % masks.shape[1])
    if len(scattered):
        legal = np.flatnonzero(masks[scattered])  # row * A + action, row by row
        ends = counts[scattered].cumsum()
        rank[scattered] = legal[ends - counts[scattered] + rank[scattered]] % masks.shape[1]
    return rank


def greedy(scores: Array, mask: Array) -> Array:
    """Return the legal action with the highest score, the first of equal ones: int64 [...].

    ``scores`` float [..., A], none of them -inf; ``mask`` [..., A].
    """
    best: Array = np.where(np.asarray(mask) != 0, scores, -np.inf).argmax(axis=-1)
    return best


def first(mask: Array) -> Array:
    """Return the first legal action of each mask [..., A]: int64 [...]; 0 where none is legal."""
    found: Array = (np.asarray(mask) != 0).argmax(axis=-1)
    return found


def highest(mask: Array) -> Array:
    """Return the last legal action of each mask [..., A]: int64 [...]."""
    found: Array = np.shape(mask)[-1] - 1 - first(np.asarray(mask)[..., ::-1])
    return found


def draw(probabilities: Array, rng: np.random.Generator, mask: Array | None = None) -> Array:
    """Return an action for each row, drawn by its probabilities [R, A]: int64 [R].

    The action at which the running sum passes a uniform number times the whole sum: what has
    probability 0 is never drawn, whatever rounding makes of the sum. With ``mask`` [R, A], illegal
    actions count 0.
    """
    legal = probabilities if mask is None else np.where(np.asarray(mask) != 0, probabilities, 0.0)
    sums = legal.cumsum(axis=-1)
    passed: Array = (sums > rng.random(len(sums))[:, None] * sums[:, -1:]).argmax(axis=-1)
    return passed


# --- Actions -------------------------------------------------------------------------------------


def checked_action(agent: str, action: Any, size: int) -> int:
    """Return ``action`` as an int of 0 .. size - 1. Raises ActionError."""
    try:
        if isinstance(action, bool | np.bool_ | np.ma.MaskedArray):
            raise TypeError
        number = operator.index(action)  # refuses floats, NaN, None, arrays of any length
    except TypeError:
        raise ActionError(
            f"{agent}: action {action!r} of type {type(action).__name__}; "
            f"give one integer of 0..{size - 1}"
        ) from None
    if not 0 <= number < size:
        shown = number if number.bit_length() < 64 else f"of {number.bit_length()} bits"
        raise ActionError(f"{agent}: action {shown} is out of range; give 0..{size - 1}")
    return number


def refuse_masked_arrays(actions: Any) -> None:
    """Raise ActionError for NumPy's masked array, or lists of them: its mask would be dropped."""
    if isinstance(actions, np.ma.MaskedArray):
        raise ActionError("actions are a masked array; give a plain array of integers")
    if isinstance(actions, list | tuple):
        for part in actions:
            refuse_masked_arrays(part)


def require_integers(actions: Any, shape: tuple[int, ...], axes: str) -> Array:
    """Return ``actions`` as an array. Raises ActionError unless they are integers of ``shape``."""
    refuse_masked_arrays(actions)
    try:
        numbers = np.asarray(actions)
    except ValueError:  # rows of different lengths
        raise ActionError(f"give integers of shape {shape}, {axes}") from None
    if numbers.dtype.kind not in "iu" or numbers.shape != shape:
        raise ActionError(
            f"actions are {numbers.dtype} {numbers.shape}; give integers of shape {shape}: {axes}"
        )
    return numbers
