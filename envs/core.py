"""Rules, states and observations: the parts of every environment.

All of corral names array axes by these letters:

    T  time steps          N  agents              F  features of an observation
    B  environments        A  actions             G  features of the global state

The rules of an environment are written once, as a ``Rules`` object that steps B independent
environments at a time. The PettingZoo shells (``corral.envs.shells``) run it with B = 1, and
``corral.envs.batch`` with thousands.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from corral.envs.masks import MASK, OBSERVATION

__all__ = [
    "ENDLESS",
    "PURPOSES",
    "AgentViews",
    "Array",
    "Observation",
    "OptionalRules",
    "Outcome",
    "Rules",
    "Split",
    "agent_views",
    "best_returns_of",
    *("amounts_of", "any_number", "carried_by", "changed", "copy_rows", "for_copies"),
    *("first_action_of", "for_rendering", "future_of", "generator", "hides_chance"),
    *(
        "identity_of",
        "keep_rows",
        "max_rows_of",
        "places_of",
        "plays_as_arrays",
        "put_rows",
        "redraw_of",
        "redrawing",
    ),
    *("replays_data", "shares_of", "split_of", "stack_agents", "starts_of", "state_arrays"),
    *("third_party", "windows_of", "with_limit", "without_state"),
]

Array = npt.NDArray[Any]

Observation = dict[str, Any]
"""``observation`` (array [B, ...], or a dict of arrays) and ``action_mask`` (int8 [B, A])."""

RulesT = TypeVar("RulesT")
StateT = TypeVar("StateT")
Redraw = Callable[[Any, Sequence[np.random.Generator], bool], Any]


# --- Chance --------------------------------------------------------------------------------------

PURPOSES = {"env": 0, "policy": 1, "init": 2, "minibatch": 3, "eval": 4, "opponent": 5}
"""Uses of random numbers; each use has separate streams."""


def generator(seed: int | None, purpose: str, row: int = 0) -> np.random.Generator:
    """Return the random generator of environment ``row`` (a global index) for one of ``PURPOSES``.

    The same arguments give the same stream, on every machine and for any number of environments or
    processes. Without a seed the stream is unpredictable.
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
    """The result of one step of the rules."""

    state: StateT
    reward: Array  # float32 [B, N]
    terminated: Array  # bool [B, N]
    info: dict[str, Array]  # each [B, N], numeric
    truncated: Array | None = None  # bool [B, N] by a time limit of the rules; None: no agent

    @property
    def ends(self) -> Array:
        """Agents with an episode that has ended: bool [B, N]."""
        return self.terminated if self.truncated is None else self.terminated | self.truncated


class Rules(Protocol[StateT]):
    """An environment's rules, for any number of independent environments at once.

    All fields of the dataclass ``StateT`` are arrays [B, ...]. ``step`` may reuse the buffers of
    its input. It requires valid actions: integers within the action spaces. Its result may share
    memory with the state until the next step. ``start`` draws all randomness of an episode. An
    agent that has ended its episode stays ``terminated``, and its rewards are 0. ``OptionalRules``
    lists optional methods.

    Rules read ``max_cycles`` each time that they need it, because ``with_limit`` copies rules and
    sets another limit. The caller applies the limit. With None, episodes have no time limit.
    """

    name: str
    agents: tuple[str, ...]  # fixed order; axis N
    illegal: Literal["penalise", "raise"]
    render_fps: int
    simultaneous: bool  # every live agent acts in every step

    @property
    def max_cycles(self) -> int | None:
        """The time limit in steps."""

    @property
    def render_modes(self) -> tuple[str, ...]: ...

    def observation_space(self, agent: str) -> gymnasium.spaces.Dict: ...

    def action_space(self, agent: str) -> gymnasium.spaces.Discrete: ...

    def state_space(self) -> gymnasium.spaces.Box: ...

    def start(self, rngs: Sequence[np.random.Generator]) -> StateT:
        """Begin B episodes, one per generator."""
        ...

    def observe(self, state: StateT) -> dict[str, Observation]:
        """Return new arrays with all agents' observations; a zero mask if an agent does not act."""
        ...

    def acting(self, state: StateT) -> Array:
        """Return which agents act in the next step: bool [B, N]."""
        ...

    def step(self, state: StateT, action: Array) -> Outcome[StateT]:
        """Play ``action``, int [B, N]. Entries of agents that do not act are ignored."""
        ...

    def info(self, state: StateT) -> dict[str, Array]:
        """Return the info at the start of an episode: the same keys as in a step, each [B, N]."""
        ...

    def global_state(self, state: StateT) -> Array:
        """Return all values that a centralized critic may observe: float32 [B, G]."""
        ...

    def render(self, state: StateT, info: dict[str, Array], mode: str) -> Any:
        """Draw environment 0 after a step with ``info``: text ("ansi"), or uint8 [H, W, 3]."""
        ...


# --- Optional methods of rules -------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Environment arguments for training, validation and held-out evaluation.

    Validation compares policies during training. The held-out data is for the final evaluation.
    """

    train: dict[str, Any]  # fixed for training
    held_out: dict[str, Any]  # arguments that differ in the held-out evaluation
    validation: dict[str, Any] = field(default_factory=dict)  # that differ in it; empty: no data


class OptionalRules(Protocol):
    """Optional methods of rules, in addition to those of ``Rules``.

    The functions below call these methods, and return a default for rules without them. No other
    code checks whether rules have a method.
    """

    def split(self, rows: tuple[int, int] | None, held_out: Any, validation: Any) -> Split:
        """Divide the data that the environment replays into training, validation and held-out data.

        Args:
            rows: rows for training and validation; None: the default.
            held_out: share or section of the data to hold out; None: the default.
            validation: share or section of the data for validation; 0: no validation; None: the
                default.

        Raises ValueError if the arguments contradict each other.
        """
        ...

    def in_windows(self, most: int) -> tuple[Rules[Any], int]:
        """Return rules that play their data in order, and the number of environments for that.

        Each environment plays one window in its first episode. If there are more than ``most``
        windows, ``most`` of them are chosen, evenly spread over the data.
        """
        ...

    def shares(self, info: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
        """Return amounts by name, not yet divided, and their total: each [E].

        ``info`` holds the sums of E episodes over steps and agents, each [E]. Reports state amount
        / total as a share.
        """
        ...

    def carried(self) -> dict[str, Any]:
        """Return the arguments that determine a team's observations and actions.

        The team keeps these arguments if it plays in an environment with other arguments.
        """
        ...

    def any_number(self) -> str | None:
        """Return the argument that lets one policy play any number of agents, as text, or None.

        Agents then share the policy, and it does not observe which agent it plays.
        """
        ...

    def teams(self) -> Mapping[str, Mapping[str, Any]]:
        """Return teams of reference policies by name: agent -> ``Policy``."""
        ...

    def for_rendering(self) -> Rules[Any]:
        """Return rules of the same game with states that keep all data for pictures."""
        ...

    def amounts(self) -> tuple[str, Array]:
        """Return the unit of the actions' amounts, and the amount of each action: float64 [A]."""
        ...

    def first_action(self) -> int | None:
        """Return the action that an untrained policy prefers; None: no preference."""
        ...

    def redraw(self, state: Any, rngs: Sequence[np.random.Generator], told: bool = False) -> Any:
        """Redraw the randomness in ``state`` that no agent can have observed.

        Uses one generator per row, in the order of rows, so that one generator may serve all rows.
        With ``told``, agents know the global state: then only future randomness that the global
        state does not show is redrawn. May change ``state`` in place. Rules without randomness
        return ``state``.
        """
        ...

    def redrawing(self) -> Rules[Any] | None:
        """Return rules with a ``redraw`` that replaces the data of future steps by other data.

        For rules that replay data and have no ``redraw``. Returns None if there is too little data.
        """
        ...

    def hides_chance(self) -> bool:
        """Return True if agents choose before they observe the randomness of the step.

        Copies of a moment then need ``redraw``. Otherwise a comparison of decisions would use
        randomness that the agents cannot know.
        """
        ...

    def keep(self, state: Any, rows: Array) -> None:
        """Prepare the rows of ``state`` for copies that are played on after its next step.

        For rules with states that hold running environments. ``max_rows`` limits their number.
        """
        ...

    max_rows: int
    """Maximum number of rows that are played at the same time. Default: no limit."""

    def places(self, state: Any) -> list[str]:
        """Return the position of each row of ``state`` in the replayed data: "row 1,204"."""
        ...

    def future(self, state: Any) -> Array:
        """Return the part of ``state`` that determines the rest of an episode: [B, K].

        Rows with equal values have equal observations, rewards and ends for any actions. Data that
        is only for pictures is not included.
        """
        ...

    def starts(self) -> tuple[Any, Array]:
        """Return all start states of episodes, in K rows, and their probabilities [K]."""
        ...

    def best_returns(self, rngs: Sequence[np.random.Generator]) -> Array | None:
        """Return the optimum of the team return in the episodes that ``start(rngs)`` begins: [B].

        No policy has a higher return, even with future knowledge. None: it has no closed form.
        """
        ...

    identity: str
    """Text that identifies the rules and arguments of a saved batch. Default: the name."""

    make_env: Callable[[], Any]
    """Makes one environment; only for rules of third-party environments, see ``zoo_rules``."""

    def make_batch(self, num_envs: int, seed: int | None, *, workers: int = 0) -> Any:
        """Return environment copies that step themselves, for rules that are not array code.

        The states of these rules can be neither set nor copied.
        """
        ...

    def make_turns(self, agent: str, render_mode: str | None = None) -> Any:
        """Return one environment copy in which agents act in turn, for ``SeatEnv``."""
        ...

    def without_state(self) -> Rules[Any]:
        """Return these rules without a global state, to save time if no policy needs it."""
        ...


def plays_as_arrays(rules: Rules[Any]) -> bool:
    """Return True if ``start`` and ``step`` are array code that plays from any state.

    False for third-party environments and for recorded steps, see ``OptionalRules.make_batch``.
    """
    return not hasattr(rules, "make_batch")


def third_party(rules: Rules[Any]) -> bool:
    """Return True for rules of a third-party environment."""
    return hasattr(rules, "make_env")


def identity_of(rules: Rules[Any]) -> str:
    """Return ``OptionalRules.identity``; default: the name."""
    return str(getattr(rules, "identity", rules.name))


def without_state(rules: Rules[Any]) -> Rules[Any]:
    """Return rules without a global state, if they have this option; otherwise ``rules``."""
    less: Rules[Any] = getattr(rules, "without_state", lambda: rules)()
    return less


def replays_data(rules: Rules[Any]) -> bool:
    """Return True if the environment replays data, which actions cannot change."""
    return hasattr(rules, "split")


def split_of(
    rules: Rules[Any], rows: tuple[int, int] | None, held_out: Any, validation: Any = None
) -> Split | None:
    """Return the division of the replayed data, see ``OptionalRules.split``; None without data."""
    split = getattr(rules, "split", None)
    divided: Split | None = None if split is None else split(rows, held_out, validation)
    return divided


def windows_of(rules: Rules[Any], most: int) -> tuple[Rules[Any], int] | None:
    """Return ``OptionalRules.in_windows``: rules that go through their data; None without data."""
    windows: tuple[Rules[Any], int] | None = getattr(rules, "in_windows", lambda most: None)(most)
    return windows


def shares_of(rules: Rules[Any], info: Mapping[str, Array]) -> dict[str, float]:
    """Return shares over all episodes, see ``OptionalRules.shares``; {} for rules without shares.

    A share is the sum of its amounts over the episodes, divided by the sum of the totals.
    """
    if (shares := getattr(rules, "shares", None)) is None:
        return {}
    amounts, whole = shares(info)
    return {name: float(amount.sum() / max(1, whole.sum())) for name, amount in amounts.items()}


def carried_by(rules: Rules[Any]) -> dict[str, Any]:
    """Return ``OptionalRules.carried``; default: {}."""
    carried: dict[str, Any] = getattr(rules, "carried", dict)()
    return carried


def any_number(rules: Rules[Any]) -> str | None:
    """Return ``OptionalRules.any_number``; default: None."""
    argument: str | None = getattr(rules, "any_number", lambda: None)()
    return argument


def redraw_of(rules: Rules[Any]) -> Redraw | None:
    """Return the method ``OptionalRules.redraw``; default: None."""
    return getattr(rules, "redraw", None)


def redrawing(rules: Rules[Any]) -> Rules[Any] | None:
    """Return rules that have ``redraw``, see ``OptionalRules.redrawing``, or None."""
    other: Rules[Any] | None = getattr(rules, "redrawing", lambda: None)()
    return rules if redraw_of(rules) is not None else other


def hides_chance(rules: Rules[Any]) -> bool:
    """Return ``OptionalRules.hides_chance``; default: False."""
    hidden: bool = getattr(rules, "hides_chance", lambda: False)()
    return hidden


def for_copies(rules: Rules[Any]) -> Rules[Any]:
    """Return the rules for playing copies of a moment, to compare decisions.

    If ``rules`` hide the randomness of a step and have other data, the result has ``redraw``.
    Otherwise it is ``rules``.
    """
    if not hides_chance(rules) or redraw_of(rules) is not None:
        return rules
    return redrawing(rules) or rules


def keep_rows(rules: Rules[Any], state: Any, rows: Array) -> None:
    """Call ``OptionalRules.keep``; rules of array code need nothing."""
    getattr(rules, "keep", lambda state, rows: None)(state, rows)


def max_rows_of(rules: Rules[Any]) -> int | None:
    """Return ``OptionalRules.max_rows``; default: None."""
    limit: int | None = getattr(rules, "max_rows", None)
    return limit


def places_of(rules: Rules[Any], state: Any) -> list[str] | None:
    """Return ``OptionalRules.places``; default: None."""
    places: list[str] | None = getattr(rules, "places", lambda state: None)(state)
    return places


def future_of(rules: Rules[Any], state: Any) -> list[Array]:
    """Return the arrays that determine the rest of an episode, see ``OptionalRules.future``.

    Default: all arrays of the state.
    """
    future = getattr(rules, "future", None)
    return [*state_arrays(state).values()] if future is None else [future(state)]


def starts_of(rules: Rules[Any]) -> tuple[Any, Array] | None:
    """Return ``OptionalRules.starts``; default: None."""
    starts: tuple[Any, Array] | None = getattr(rules, "starts", lambda: None)()
    return starts


def best_returns_of(rules: Rules[Any], rngs: Sequence[np.random.Generator]) -> Array | None:
    """Return ``OptionalRules.best_returns``; default: None."""
    best: Array | None = getattr(rules, "best_returns", lambda rngs: None)(rngs)
    return best


def for_rendering(rules: Rules[Any]) -> Rules[Any]:
    """Return rules with states that keep all data for pictures; default: ``rules``."""
    pictured: Rules[Any] = getattr(rules, "for_rendering", lambda: rules)()
    return pictured


def amounts_of(rules: Rules[Any]) -> tuple[str | None, Array | None]:
    """Return ``OptionalRules.amounts``: a unit, and float64 [A]; default: None twice."""
    amounts: tuple[str | None, Array | None] = getattr(rules, "amounts", lambda: (None, None))()
    return amounts


def first_action_of(rules: Rules[Any]) -> int | None:
    """Return ``OptionalRules.first_action``; default: None."""
    action: int | None = getattr(rules, "first_action", lambda: None)()
    return action


# --- The time limit ------------------------------------------------------------------------------

ENDLESS = 10_000
"""Steps that rules without a time limit draw in advance; after that the draws repeat."""


def with_limit(rules: Rules[Any], max_cycles: int | None) -> Rules[Any]:
    """Return rules with this time limit; ``rules`` if they already have it."""
    if rules.max_cycles == max_cycles:
        return rules
    return changed(rules, max_cycles=max_cycles)


def changed(rules: RulesT, **attributes: Any) -> RulesT:
    """Return a copy of ``rules`` with other values of the attributes ``attributes``."""
    other = copy.copy(rules)
    vars(other).update(attributes)
    return other


# --- States: dataclasses of arrays [B, ...] ------------------------------------------------------


def state_arrays(state: Any) -> dict[str, Array]:
    """Return the fields of a state by name, without copying them; a checkpoint stores them."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def copy_rows(state: StateT, rows: Array | slice) -> StateT:
    """Return a new state with copies of the rows ``rows``."""
    return type(state)(**{name: a[rows].copy() for name, a in state_arrays(state).items()})


def put_rows(state: StateT, rows: Array | slice, source: StateT) -> None:
    """Overwrite the rows ``rows`` of ``state`` with the rows of ``source``, in place."""
    for name, values in state_arrays(source).items():
        getattr(state, name)[rows] = values


# --- Observations: views of one block [B, N, ...] ------------------------------------------------


class AgentViews(dict[str, Observation]):
    """Observations of agents with equal spaces, as views of shared ``blocks`` [B, N, ...]."""

    def __init__(self, agents: Sequence[str], blocks: Mapping[str, Array]) -> None:
        for i, agent in enumerate(agents):
            self[agent] = {key: block[:, i] for key, block in blocks.items()}
        self.blocks = blocks


def agent_views(agents: Sequence[str], observation: Array, action_mask: Array) -> AgentViews:
    """Return observations of agents with equal spaces: views [B, ...] of two blocks [B, N, ...]."""
    return AgentViews(agents, {OBSERVATION: observation, MASK: action_mask})


def stack_agents(observations: Mapping[str, Observation], key: str) -> Array:
    """Stack ``observations[agent][key]`` of agents with equal spaces to one array [B, N, ...].

    Does not copy views of one block, which ``agent_views`` makes.
    """
    if isinstance(observations, AgentViews):
        return observations.blocks[key]
    return np.stack([observation[key] for observation in observations.values()], axis=1)
