"""Check recorded steps against an environment and list every fault with its entry and row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.core import Array, Rules
from corral.envs.masks import MASK, OBSERVATION, split_space
from corral.errors import StepFault

__all__ = ["faults_of"]

OPTIONAL = ("choices", "reward", "terminated", "truncated")


def faults_of(
    file: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    rules: Rules[Any],
    digest: str,
) -> list[StepFault]:
    """Return all faults of ``arrays`` for ``rules``; ``digest`` is the digest of their spaces."""
    if faults := [StepFault(file, *fault) for fault in _of_header(header, rules, digest)]:
        return faults  # further faults would only be consequences
    lengths = arrays.get("lengths")
    if lengths is None or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
        rule = "is missing; add the number of steps of each episode, integers [E]"
        if lengths is not None:
            rule = f"is {_kind(lengths)}; store integers [E] with E >= 1"
        return [StepFault(file, "lengths", rule)]
    if (wrong := _first(lengths < 1)) is not None:
        rule = f"an episode has {lengths[wrong]} steps; the minimum is 1"
        return [StepFault(file, "lengths", rule, wrong)]
    size = int(lengths.sum(dtype=object))
    sizes = {a.shape[:1] for name, a in arrays.items() if name.endswith(f"/{MASK}")}
    if len(sizes) == 1 and sizes not in ({(size,)}, {()}):
        rule = f"the sum is {size:,}, but the entries have {sizes.pop()[0]:,} rows; make them equal"
        return [StepFault(file, "lengths", rule)]
    faults_list = [*_of_entries(arrays, rules), *_of_state(arrays, rules, size)]
    for agent in rules.agents:
        faults_list += _of_agent(arrays, rules, agent, size, lengths)
    return [StepFault(file, entry, rule, *index) for entry, rule, *index in faults_list]


def _of_header(
    header: Mapping[str, Any], rules: Rules[Any], digest: str
) -> Iterator[tuple[str, str]]:
    if header.get("env") != rules.name:
        yield "header", f"recorded in {header.get('env')!r:.80}, but this is {rules.name}"
    elif header.get("spaces", digest) != digest:
        kwargs = header.get("env_kwargs")
        yield (
            "header",
            f"recorded with spaces that differ from {rules.name} here. Its arguments were "
            f"{kwargs!r:.300}; pass these to the environment, or record again",
        )


def _entry_spaces(rules: Rules[Any], agent: str) -> dict[str, spaces.Space[Any]]:
    """Return the entries of an agent's observation, with their spaces."""
    inner, _ = split_space(rules.observation_space(agent))
    name = f"{agent}/{OBSERVATION}"
    if isinstance(inner, spaces.Dict):
        return {f"{name}/{key}": part for key, part in inner.spaces.items()}
    return {name: inner}


def _of_entries(arrays: Mapping[str, Array], rules: Rules[Any]) -> Iterator[tuple[Any, ...]]:
    needed, optional = set(), {"lengths", "state"}
    for agent in rules.agents:
        needed |= {*_entry_spaces(rules, agent), f"{agent}/{MASK}", f"{agent}/action"}
        optional |= {f"{agent}/{name}" for name in OPTIONAL}
    for name in sorted(needed - set(arrays)):
        yield name, "is missing"
    for name in sorted(set(arrays) - needed - optional):
        yield name, f"is not an entry of {rules.name}; the agents are {', '.join(rules.agents)}"


def _of_state(
    arrays: Mapping[str, Array], rules: Rules[Any], size: int
) -> Iterator[tuple[Any, ...]]:
    if (state := arrays.get("state")) is None:
        return
    features = math.prod(rules.state_space().shape)
    if state.dtype.kind != "f" or state.shape != (size, features):
        yield "state", f"is {_kind(state)}; store floats of shape {(size, features)}"
    elif (wrong := _first(~np.isfinite(state))) is not None:
        yield "state", "contains a number that is not finite", wrong


def _of_agent(
    arrays: Mapping[str, Array], rules: Rules[Any], agent: str, size: int, lengths: Array
) -> Iterator[tuple[Any, ...]]:
    for name, space in _entry_spaces(rules, agent).items():
        if name in arrays:
            yield from _of_observation(name, arrays[name], space, size)
    actions = int(getattr(rules.action_space(agent), "n", 0))
    mask, action = arrays.get(f"{agent}/{MASK}"), arrays.get(f"{agent}/action")
    fits = True
    for name, values, shape, kinds in (
        (MASK, mask, (size, actions), "biu"),
        ("action", action, (size,), "iu"),
        ("choices", arrays.get(f"{agent}/choices"), (size, actions), "b"),
        ("reward", arrays.get(f"{agent}/reward"), (size,), "fiu"),
        ("terminated", arrays.get(f"{agent}/terminated"), (size,), "b"),
        ("truncated", arrays.get(f"{agent}/truncated"), (size,), "b"),
    ):
        if values is not None and (values.shape != shape or values.dtype.kind not in kinds):
            content = {"b": "bool", "biu": "0 and 1", "iu": "integers", "fiu": "numbers"}[kinds]
            yield f"{agent}/{name}", f"is {_kind(values)}; store {content} of shape {shape}"
            fits = fits and name not in (MASK, "action", "choices", "terminated", "truncated")
    reward = arrays.get(f"{agent}/reward")
    if reward is not None and (wrong := _first(~np.isfinite(reward))) is not None:
        yield f"{agent}/reward", "is not finite; store a finite number", wrong
    if not fits or mask is None or action is None:
        return
    if (wrong := _first((mask != 0) & (mask != 1))) is not None:
        yield f"{agent}/{MASK}", "contains a number other than 0 and 1", wrong
        return
    yield from _of_decisions(arrays, agent, mask != 0, action)
    yield from _of_ends(arrays, agent, mask != 0, lengths)


def _of_decisions(
    arrays: Mapping[str, Array], agent: str, legal: Array, action: Array
) -> Iterator[tuple[Any, ...]]:
    acts: Array = np.asarray(legal.any(axis=1))
    actions = legal.shape[1]
    outside: Array = np.asarray(acts & ((action < 0) | (action >= actions)))
    if (wrong := _first(outside)) is not None:
        yield f"{agent}/action", f"{action[wrong]} is out of range; use 0..{actions - 1}", wrong
    inside = np.where(acts & ~outside, action, 0).astype(np.int64)
    illegal = acts & ~outside & ~legal[np.arange(len(legal)), inside]
    if (wrong := _first(illegal)) is not None:
        allowed = np.flatnonzero(legal[wrong]).tolist()
        more = f" ({np.count_nonzero(illegal):,} illegal rows)" if illegal.sum() > 1 else ""
        rule = f"{action[wrong]} is illegal; the mask allows {allowed!s:.100}{more}"
        yield f"{agent}/action", rule, wrong
    if (choices := arrays.get(f"{agent}/choices")) is None:
        return
    if (wrong := _first(choices & ~legal & acts[:, None])) is not None:
        yield f"{agent}/choices", "contains an illegal action", wrong
    missing = acts & ~outside & ~choices[np.arange(len(legal)), inside]
    if (wrong := _first(missing)) is not None:
        yield f"{agent}/choices", "must include the played action", wrong


def _of_ends(
    arrays: Mapping[str, Array], agent: str, legal: Array, lengths: Array
) -> Iterator[tuple[Any, ...]]:
    """Yield faults of recorded ends: an agent must end exactly once in each episode."""
    none = np.zeros(len(legal), dtype=bool)
    recorded = [arrays.get(f"{agent}/{name}") for name in ("terminated", "truncated")]
    if recorded[0] is None:
        return
    terminated, truncated = (none if values is None else values for values in recorded)
    if (wrong := _first(terminated & truncated)) is not None:
        yield f"{agent}/truncated", "the step is also terminated; set only one of them", wrong
    first = np.cumsum(lengths) - lengths
    ends = np.add.reduceat((terminated | truncated).astype(np.int64), first)
    if (wrong := _first(ends != 1)) is not None:
        rule = f"{ends[wrong]} ends in episode {wrong}; there must be exactly one"
        yield f"{agent}/terminated", rule, int(first[wrong])


def _of_observation(
    name: str, values: Array, space: spaces.Space[Any], size: int
) -> Iterator[tuple[Any, ...]]:
    shape = (size, *(space.shape or ()))
    if values.shape != shape or values.dtype.kind not in "biuf":
        yield name, f"is {_kind(values)}; store numbers of shape {shape}"
    elif (wrong := _first(~np.isfinite(values))) is not None:
        yield name, "contains a number that is not finite", wrong
    elif isinstance(space, spaces.Box):
        if space.dtype.kind in "iu" and values.dtype != space.dtype:
            yield name, f"is {values.dtype}; store {space.dtype}"
        elif (wrong := _first((values < space.low) | (values > space.high))) is not None:
            low, high = space.low.min(), space.high.max()
            yield name, f"contains a number outside its space, {low:g} to {high:g}", wrong


def _first(wrong: Array) -> int | None:
    """Return the first row that contains True; None if all are False."""
    rows = wrong.reshape(len(wrong), -1).any(axis=1) if wrong.size else wrong
    return int(rows.argmax()) if rows.any() else None


def _kind(values: Array) -> str:
    return f"{values.dtype} {values.shape}"
