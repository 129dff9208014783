"""What every environment is made of: rules as array code over independent copies.

Shapes are named by one letter everywhere in corral:

    T  time steps          N  agents              F  features of an observation
    B  copies              A  actions             G  features of the global state

The rules of an environment exist once, as a ``Rules`` object that moves B copies at a time. The
PettingZoo shells (``corral.envs.shells``) run it with B = 1, ``corral.envs.batch`` with
thousands.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from corral.errors import ActionError, IllegalActionError

__all__ = [
    "PURPOSES",
    "AgentViews",
    "Array",
    "Observation",
    "Outcome",
    "Rules",
    "Split",
    "agent_views",
    "checked_action",
    "copy_rows",
    "generator",
    "put_rows",
    "require_legal",
    "split_of",
    "stack_agents",
    "state_arrays",
]

Array = npt.NDArray[Any]

Observation = dict[str, Any]
"""``observation`` (array [B, ...], or a dict of such) and ``action_mask`` (int8 [B, A])."""

StateT = TypeVar("StateT")


# --- Chance --------------------------------------------------------------------------------------

PURPOSES = {"env": 0, "policy": 1, "init": 2, "minibatch": 3, "eval": 4}
"""What random numbers are used for; each purpose has streams of its own."""


def generator(seed: int | None, purpose: str, row: int = 0) -> np.random.Generator:
    """The random stream of copy ``row`` (its global index) for one of ``PURPOSES``.

    The same three arguments give the same stream, on every machine and whatever the number of
    copies or processes. Without a seed the stream is unpredictable.
    """
    if seed is None:
        return np.random.default_rng()
    if isinstance(seed, bool) or operator.index(seed) < 0:
        raise ValueError(f"seed {seed!r}: give a whole number, 0 or more")
    sequence = np.random.SeedSequence(operator.index(seed), spawn_key=(PURPOSES[purpose], row))
    return np.random.default_rng(sequence)


# --- Rules ---------------------------------------------------------------------------------------


@dataclass
class Outcome(Generic[StateT]):
    """What one step of the rules returns."""

    state: StateT
    reward: Array  # float32 [B, N]
    terminated: Array  # bool [B, N]
    info: dict[str, Array]  # each [B, N], numeric


class Rules(Protocol[StateT]):
    """An environment's rules, for any number of independent copies at once.

    ``StateT`` is a dataclass whose fields are all arrays with the copies in front ([B, ...]).
    ``step`` may reuse its input's buffers; it must be given well-formed actions (integers within
    the action spaces), and what it returns may share memory with the state until the next step.
    All randomness of an episode is drawn in ``start``. An agent whose part in the episode has ended
    stays ``terminated``, and is paid nothing.
    """

    name: str
    agents: tuple[str, ...]  # fixed order; axis N
    illegal: Literal["penalise", "raise"]
    render_fps: int
    simultaneous: bool  # every live agent acts in every step

    @property
    def max_cycles(self) -> int | None:
        """The time limit in steps, applied by whoever runs the rules."""

    @property
    def render_modes(self) -> tuple[str, ...]: ...

    def observation_space(self, agent: str) -> gymnasium.spaces.Dict: ...

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete: ...

    def state_space(self) -> gymnasium.spaces.Box: ...

    def start(self, rngs: Sequence[np.random.Generator]) -> StateT:
        """Fresh episodes, one per generator."""
        ...

    def observe(self, state: StateT) -> dict[str, Observation]:
        """Every agent's observation, in new arrays. Agents that do not act have a zero mask."""
        ...

    def acting(self, state: StateT) -> Array:
        """Whose action counts in the next step: bool [B, N]."""
        ...

    def step(self, state: StateT, action: Array) -> Outcome[StateT]:
        """Play ``action``, int [B, N]; the entries of agents that do not act are ignored."""
        ...

    def info(self, state: StateT) -> dict[str, Array]:
        """The info of a fresh episode: the same keys as after a step, each [B, N]."""
        ...

    def global_state(self, state: StateT) -> Array:
        """Everything a centralised critic may see: float32 [B, G]."""
        ...

    def render(self, state: StateT, info: dict[str, Array], mode: str) -> Any:
        """A picture of copy 0 after a step with ``info``: text for "ansi", else uint8 [H, W, 3]."""
        ...


# --- States: dataclasses of arrays [B, ...] ------------------------------------------------------


def state_arrays(state: Any) -> dict[str, Array]:
    """The fields of a state by name, not copied: what a checkpoint of it stores."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def copy_rows(state: StateT, rows: Array | slice) -> StateT:
    """A new state that holds copies of the given rows."""
    return type(state)(**{name: a[rows].copy() for name, a in state_arrays(state).items()})


def put_rows(state: StateT, rows: Array | slice, source: StateT) -> None:
    """Overwrite the given rows of ``state`` with the rows of ``source``, in place."""
    for name, values in state_arrays(source).items():
        getattr(state, name)[rows] = values


# --- Observations: one block [B, N, ...] behind the agents' views --------------------------------


class AgentViews(dict[str, Observation]):
    """Like agents' observations as views of shared ``blocks`` [B, N, ...]."""

    def __init__(self, agents: Sequence[str], blocks: Mapping[str, Array]) -> None:
        for i, agent in enumerate(agents):
            self[agent] = {key: block[:, i] for key, block in blocks.items()}
        self.blocks = blocks


def agent_views(agents: Sequence[str], **blocks: Array) -> AgentViews:
    """Split blocks [B, N, ...] of like agents into a dict of views [B, ...] per agent."""
    return AgentViews(agents, blocks)


def stack_agents(observations: Mapping[str, Observation], key: str) -> Array:
    """One array [B, N, ...] of all agents' ``observations[agent][key]``; they must be alike.

    Where they are views of one block, as ``agent_views`` makes them, nothing is copied.
    """
    if isinstance(observations, AgentViews):
        return observations.blocks[key]
    return np.stack([observation[key] for observation in observations.values()], axis=1)


# --- Actions -------------------------------------------------------------------------------------


def checked_action(agent: str, action: Any, size: int) -> int:
    """``action`` as an int of 0 .. size - 1, or ActionError."""
    try:
        if isinstance(action, bool | np.bool_):
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


def require_legal(agent: str, action: int, mask: Array) -> None:
    """Raise IllegalActionError where ``mask`` [A] forbids ``action``."""
    if not mask[action]:
        legal = np.flatnonzero(mask)
        raise IllegalActionError(
            f"{agent}: action {action} is illegal here; legal: {_ranges(legal.tolist())}. "
            'Choose by observation["action_mask"].'
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


# --- Hooks that rules may have -------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Arguments of the rules: those of training, and those that differ in evaluation."""

    train: dict[str, Any]
    held_out: dict[str, Any]


def split_of(rules: Any, rows: Any, held_out: Any) -> Split | None:
    """Return how ``rules`` split their data, ``rows`` of it for training; None: not at all."""
    hook = getattr(rules, "split", None)
    return None if hook is None else hook(rows, held_out)
