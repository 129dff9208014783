"""Actions and action masks as NumPy arrays: spaces, checks, sampling and greedy choice.

A mask is int8 or bool [..., A]: 1 if an action is legal. Observations are Dict spaces with two
entries: ``{"observation": ..., "action_mask": ...}``. An agent that does not act has an all-zero
mask. ``corral.adapters.masked_distribution`` has masked torch distributions.
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
    """Return the space of a mask of ``actions`` actions."""
    return spaces.Box(0, 1, (actions,), np.int8)


def masked_space(observation: spaces.Space[Any], actions: int) -> spaces.Dict:
    """Return the Dict space of ``observation`` together with a mask of ``actions`` actions."""
    return spaces.Dict({OBSERVATION: observation, MASK: mask_space(actions)})


def masked(observation: Any, mask: Array) -> dict[str, Any]:
    """Return a dict of an observation and its mask."""
    return {OBSERVATION: observation, MASK: mask}


def has_mask(space: spaces.Space[Any]) -> bool:
    """Return True if observations of ``space`` contain a mask."""
    return isinstance(space, spaces.Dict) and MASK in space.spaces


def split_space(space: spaces.Space[Any]) -> tuple[spaces.Space[Any], spaces.Space[Any] | None]:
    """Return the space without the mask, and the space of the mask or None.

    A Dict with further entries, or with other names than "observation", stays a Dict.
    """
    if not has_mask(space):
        return space, None
    assert isinstance(space, spaces.Dict)
    rest = {key: part for key, part in space.spaces.items() if key != MASK}
    inner = rest[OBSERVATION] if set(rest) == {OBSERVATION} else spaces.Dict(rest)
    return inner, space[MASK]


def split(observation: Any) -> tuple[Any, Array | None]:
    """Return an observation without its mask, and the mask or None.

    Copies nothing and does not change ``observation``.
    """
    if not isinstance(observation, Mapping) or MASK not in observation:
        return observation, None
    if len(observation) == 2 and OBSERVATION in observation:
        return observation[OBSERVATION], observation[MASK]
    return {key: part for key, part in observation.items() if key != MASK}, observation[MASK]


# --- Checks --------------------------------------------------------------------------------------


def as_legal(agent: str, mask: Any) -> Array:
    """Return a mask of 0 and 1 as bool. Raises MaskError for other values."""
    array = np.asarray(mask)
    if array.dtype == np.bool_:
        return array
    if array.dtype.itemsize == 1:
        legal = array.view(np.bool_) if array.size == 0 or array.view(np.uint8).max() <= 1 else None
    else:
        legal = array != 0 if np.isin(array, (0, 1)).all() else None
    if legal is None:
        wrong = array[(array != 0) & (array != 1)][0]
        raise MaskError(f"{agent}: {MASK} holds {wrong!r}; a mask may only hold 0 and 1")
    return legal


def require_legal(agent: str, action: int, mask: Array) -> None:
    """Raise IllegalActionError if ``mask`` [A] forbids ``action``."""
    if not mask[action]:
        legal = np.flatnonzero(mask)
        raise IllegalActionError(
            f"{agent}: action {action} is illegal; legal: {_ranges(legal.tolist())}. "
            f'Choose an action that observation["{MASK}"] allows.'
        )


def _ranges(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text: "0..3, 7" for [0, 1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("..".join(map(str, run)) for run in runs) or "none"


# --- Choosing ------------------------------------------------------------------------------------


def sample_legal(masks: Array, rng: np.random.Generator) -> Array:
    """Return a uniformly random legal action for each of ``masks`` [R, A]: int64 [R].

    The action is 0 for a mask without legal actions.
    """
    if np.count_nonzero(masks.view(np.bool_)) == masks.size:  # all are legal
        draws = rng.random(len(masks))
        draws *= masks.shape[1]
        return draws.astype(np.int64)
    counts = np.add.reduce(masks, axis=1, dtype=np.int64)  # [R]
    rank: Array = (rng.random(len(masks)) * counts).astype(np.int64)
    # In most masks the legal actions are 0 .. count - 1, so that the rank is the action.
    first_illegal = masks.view(np.bool_).argmin(axis=1)  # 0 if all are legal
    scattered = np.flatnonzero(first_illegal != counts % masks.shape[1])
    if len(scattered):
        legal = np.flatnonzero(masks[scattered])  # row * A + action, row by row
        ends = counts[scattered].cumsum()
        rank[scattered] = legal[ends - counts[scattered] + rank[scattered]] % masks.shape[1]
    return rank


def greedy(scores: Array, mask: Array) -> Array:
    """Return the legal action with the highest score: int64 [...]. A tie goes to the first action.

    ``scores`` is float [..., A] without -inf; ``mask`` is [..., A].
    """
    best: Array = np.where(np.asarray(mask) != 0, scores, -np.inf).argmax(axis=-1)
    return best


def first(mask: Array) -> Array:
    """Return the first legal action of each mask [..., A]: int64 [...]; 0 if no action is legal."""
    action: Array = (np.asarray(mask) != 0).argmax(axis=-1)
    return action


def highest(mask: Array) -> Array:
    """Return the last legal action of each mask [..., A]: int64 [...]."""
    action: Array = np.shape(mask)[-1] - 1 - first(np.asarray(mask)[..., ::-1])
    return action


def draw(probabilities: Array, rng: np.random.Generator, mask: Array | None = None) -> Array:
    """Draw an action for each row of ``probabilities`` [R, A]: int64 [R].

    Returns the first action at which the running sum exceeds a uniform number times the total. Thus
    actions with probability 0 are never drawn, even with rounding errors. ``mask`` [R, A] sets the
    probability of illegal actions to 0.
    """
    legal = probabilities if mask is None else np.where(np.asarray(mask) != 0, probabilities, 0.0)
    sums = legal.cumsum(axis=-1)
    passed: Array = (sums > rng.random(len(sums))[:, None] * sums[:, -1:]).argmax(axis=-1)
    return passed


# --- Actions -------------------------------------------------------------------------------------


def checked_action(agent: str, action: Any, size: int) -> int:
    """Return ``action`` as an int of 0 .. size - 1. Raises ActionError for anything else."""
    try:
        if isinstance(action, bool | np.bool_ | np.ma.MaskedArray):
            raise TypeError
        number = operator.index(action)  # refuses floats, NaN, None, arrays of any length
    except TypeError:
        raise ActionError(
            f"{agent}: action {action!r} is of type {type(action).__name__}; "
            f"give one integer of 0..{size - 1}"
        ) from None
    if not 0 <= number < size:
        shown = number if number.bit_length() < 64 else f"of {number.bit_length()} bits"
        raise ActionError(f"{agent}: action {shown} is out of range; give 0..{size - 1}")
    return number


def refuse_masked_arrays(actions: Any) -> None:
    """Raise ActionError for a NumPy masked array or a list of them; NumPy would drop its mask."""
    if isinstance(actions, np.ma.MaskedArray):
        raise ActionError("actions are a masked array; give a plain array of integers")
    if isinstance(actions, list | tuple):
        for part in actions:
            refuse_masked_arrays(part)


def require_integers(actions: Any, shape: tuple[int, ...], axes: str) -> Array:
    """Return ``actions`` as an array. Raises ActionError unless it holds integers of ``shape``."""
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
