"""Rules, states and observations: what every environment is made of.

Shapes are named by one letter everywhere in corral:

    T  time steps          N  agents              F  features of an observation
    B  environments        A  actions             G  features of the global state

The rules of an environment exist once, as a ``Rules`` object that steps B independent environments
at a time. The PettingZoo shells (``corral.envs.shells``) run it with B = 1, ``corral.envs.batch``
with thousands.
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
    *("amounts_of", "any_number", "carried_by", "changed", "copy_rows", "for_copies"),
    *("for_rendering", "future_of", "generator", "hides_chance", "identity_of", "places_of"),
    *("plays_as_arrays", "put_rows", "redraw_of", "redrawing", "replays_data", "shares_of"),
    *("split_of", "stack_agents", "starts_of", "state_arrays", "third_party", "windows_of"),
    *("with_limit", "without_state"),
]

Array = npt.NDArray[Any]

Observation = dict[str, Any]
"""``observation`` (array [B, ...], or a dict of such) and ``action_mask`` (int8 [B, A])."""

RulesT = TypeVar("RulesT")
StateT = TypeVar("StateT")
Redraw = Callable[[Any, Sequence[np.random.Generator], bool], Any]


# --- Chance --------------------------------------------------------------------------------------

PURPOSES = {"env": 0, "policy": 1, "init": 2, "minibatch": 3, "eval": 4, "opponent": 5}
"""Uses of random numbers; each has streams of its own."""


def generator(seed: int | None, purpose: str, row: int = 0) -> np.random.Generator:
    """Return the random stream of environment ``row`` (a global index) for one of ``PURPOSES``.

    The same three arguments give the same stream, on every machine and whatever the number of
    environments or processes. Without a seed the stream is unpredictable.
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


class Rules(Protocol[StateT]):
    """An environment's rules, for any number of independent environments at once.

    ``StateT`` is a dataclass whose fields are all arrays [B, ...]. ``step`` may reuse its input's
    buffers; it must be given well-formed actions (integers within the action spaces), and what it
    returns may share memory with the state until the next step. All randomness of an episode is
    drawn in ``start``. An agent whose part in the episode has ended stays ``terminated``, and its
    rewards are 0. ``OptionalRules`` lists what rules may offer besides.

    What depends on ``max_cycles`` reads it when it is needed: ``with_limit`` copies rules and sets
    another. The caller applies the limit; None is an episode that nobody cuts.
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
        """Return all agents' observations, new arrays; a zero mask for those that do not act."""
        ...

    def acting(self, state: StateT) -> Array:
        """Return the agents whose action counts in the next step: bool [B, N]."""
        ...

    def step(self, state: StateT, action: Array) -> Outcome[StateT]:
        """Play ``action``, int [B, N]; the entries of agents that do not act are ignored."""
        ...

    def info(self, state: StateT) -> dict[str, Array]:
        """Return the info of a fresh episode: the keys of a step's, each [B, N]."""
        ...

    def global_state(self, state: StateT) -> Array:
        """Return everything that a centralized critic may observe: float32 [B, G]."""
        ...

    def render(self, state: StateT, info: dict[str, Array], mode: str) -> Any:
        """Draw environment 0 after a step with ``info``: text for "ansi", else uint8 [H, W, 3]."""
        ...


# --- What rules may offer besides ----------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Arguments of an environment that divide its data: what is trained on, what policies are
    compared on while they learn (validation), and what is held out for the final judgment."""

    train: dict[str, Any]  # fixed for training
    held_out: dict[str, Any]  # those that differ in the evaluation
    validation: dict[str, Any] = field(default_factory=dict)  # that differ there; empty: no data


class OptionalRules(Protocol):
    """Methods that rules may have beside those of ``Rules``. The functions below call them, and
    return what holds for rules without them; nobody else asks whether rules have one."""

    def split(self, rows: tuple[int, int] | None, held_out: Any, validation: Any) -> Split:
        """Divide the data that the environment replays: training, validation, held out.

        ``rows`` are those that the user chose to train and validate on, ``held_out`` is the share
        or the section to hold out, ``validation`` that to validate on, 0: none; None: the default.
        Raises ValueError where they contradict each other.
        """
        ...

    def in_windows(self, most: int) -> tuple[Rules[Any], int]:
        """Return rules whose first episodes go through the data in order, a window in each
        environment, and how many environments that takes: at most so many, evenly spread."""
        ...

    def shares(self, info: Mapping[str, Array]) -> tuple[dict[str, Array], Array]:
        """Return what reports state as shares, by name, and of what they are shares: each [E].

        ``info`` holds the sums of E episodes over steps and agents, each [E].
        """
        ...

    def carried(self) -> dict[str, Any]:
        """Return the arguments that a team's observations and actions depend on: what it brings
        along when it plays in an environment with other arguments."""
        ...

    def any_number(self) -> str | None:
        """Return what makes one policy play any number of agents, in words, where it is so: such a
        policy is shared, and not told which agent it plays."""
        ...

    def teams(self) -> Mapping[str, Mapping[str, Any]]:
        """Return teams of reference policies, by name: agent -> its ``Policy``."""
        ...

    def for_rendering(self) -> Rules[Any]:
        """Return rules that play alike, and whose states keep all that pictures show."""
        ...

    def amounts(self) -> tuple[str, Array]:
        """Return what actions amount to, where they do: a unit, and float64 [A] by action."""
        ...

    def redraw(self, state: Any, rngs: Sequence[np.random.Generator], told: bool = False) -> Any:
        """Draw anew, one generator per row, what no agent can have observed of ``state``; where
        they are ``told``, what its global state does not show either: chance that is to come.
        The rows are drawn in order, so that one generator may serve all of them. May change
        ``state`` in place. Rules without chance return it."""
        ...

    def redrawing(self) -> Rules[Any] | None:
        """Return rules whose ``redraw`` puts other data in the place of what is to come, for rules
        that replay data and have none; None: there is too little of it."""
        ...

    def hides_chance(self) -> bool:
        """Return whether agents choose before they observe the chance of the step itself. Copies of
        a moment then need ``redraw``: they must not meet a chance that its agents cannot know."""
        ...

    def places(self, state: Any) -> list[str]:
        """Return in words where in its data each row of ``state`` stands: "row 1,204"."""
        ...

    def future(self, state: Any) -> Array:
        """Return what of ``state`` matters from here on, [B, K]: rows that are equal in it observe,
        pay and end alike, whatever is played. What is kept for pictures does not."""
        ...

    def starts(self) -> tuple[Any, Array]:
        """Return all states that episodes begin in, K rows, and their probabilities [K]."""
        ...

    identity: str
    """What a saved batch was played with, if the name and the arrays do not tell; default: name."""

    make_env: Callable[[], Any]
    """Makes one environment. Rules of third-party environments have it, see ``zoo_rules``."""

    def make_batch(self, num_envs: int, seed: int | None, *, workers: int = 0) -> Any:
        """Return copies that play by themselves. Rules with it are no array code: their states can
        be neither set nor copied."""
        ...

    def make_turns(self, agent: str, render_mode: str | None = None) -> Any:
        """Return one copy whose agents are asked in turn, for ``SeatEnv``."""
        ...

    def without_state(self) -> Rules[Any]:
        """Return these rules without a global state, for players that need none."""
        ...


def plays_as_arrays(rules: Rules[Any]) -> bool:
    """Return whether ``start`` and ``step`` are array code that plays from any state: false for
    third-party environments and for recorded steps, see ``OptionalRules.make_batch``."""
    return not hasattr(rules, "make_batch")


def third_party(rules: Rules[Any]) -> bool:
    """Return whether these are the rules of a third-party environment."""
    return hasattr(rules, "make_env")


def identity_of(rules: Rules[Any]) -> str:
    """Return ``OptionalRules.identity``; default: the name."""
    return str(getattr(rules, "identity", rules.name))


def without_state(rules: Rules[Any]) -> Rules[Any]:
    """Return rules without a global state, if leaving it out saves time; default: these."""
    less: Rules[Any] = getattr(rules, "without_state", lambda: rules)()
    return less


def replays_data(rules: Rules[Any]) -> bool:
    """Return whether the environment replays data, which nobody's actions change."""
    return hasattr(rules, "split")


def split_of(
    rules: Rules[Any], rows: tuple[int, int] | None, held_out: Any, validation: Any = None
) -> Split | None:
    """Return how the rules divide their data, see ``OptionalRules.split``; None: they have none."""
    split = getattr(rules, "split", None)
    divided: Split | None = None if split is None else split(rows, held_out, validation)
    return divided


def windows_of(rules: Rules[Any], most: int) -> tuple[Rules[Any], int] | None:
    """Return rules that go through their data, see ``OptionalRules.in_windows``; None: no data."""
    found: tuple[Rules[Any], int] | None = getattr(rules, "in_windows", lambda most: None)(most)
    return found


def shares_of(rules: Rules[Any], info: Mapping[str, Array]) -> dict[str, float]:
    """Return shares over all episodes, see ``OptionalRules.shares``; default: none.

    They are sums over the episodes, over the sum of what they are shares of.
    """
    if (shares := getattr(rules, "shares", None)) is None:
        return {}
    amounts, whole = shares(info)
    return {name: float(amount.sum() / max(1, whole.sum())) for name, amount in amounts.items()}


def carried_by(rules: Rules[Any]) -> dict[str, Any]:
    """Return the arguments that a team of these rules brings along elsewhere; default: none."""
    carried: dict[str, Any] = getattr(rules, "carried", dict)()
    return carried


def any_number(rules: Rules[Any]) -> str | None:
    """Return why one policy plays any number of agents, ``OptionalRules.any_number``; else None."""
    found: str | None = getattr(rules, "any_number", lambda: None)()
    return found


def redraw_of(rules: Rules[Any]) -> Redraw | None:
    """Return what draws a state's future anew, see ``OptionalRules.redraw``; None: nothing does."""
    return getattr(rules, "redraw", None)


def redrawing(rules: Rules[Any]) -> Rules[Any] | None:
    """Return rules that have ``redraw``, see ``OptionalRules.redrawing``; None: there are none."""
    found: Rules[Any] | None = getattr(rules, "redrawing", lambda: None)()
    return rules if redraw_of(rules) is not None else found


def hides_chance(rules: Rules[Any]) -> bool:
    """Return ``OptionalRules.hides_chance``; default: False."""
    found: bool = getattr(rules, "hides_chance", lambda: False)()
    return found


def for_copies(rules: Rules[Any]) -> Rules[Any]:
    """Return rules by which copies of a moment are played to compare decisions: with ``redraw`` if
    they hide the chance of a step and have other data, else these."""
    if not hides_chance(rules) or redraw_of(rules) is not None:
        return rules
    return redrawing(rules) or rules


def places_of(rules: Rules[Any], state: Any) -> list[str] | None:
    """Return where each row of ``state`` stands, see ``OptionalRules.places``; default: None."""
    found: list[str] | None = getattr(rules, "places", lambda state: None)(state)
    return found


def future_of(rules: Rules[Any], state: Any) -> list[Array]:
    """Return what a state's future hangs on, see ``OptionalRules.future``; default: all of it."""
    future = getattr(rules, "future", None)
    return [*state_arrays(state).values()] if future is None else [future(state)]


def starts_of(rules: Rules[Any]) -> tuple[Any, Array] | None:
    """Return all starts, see ``OptionalRules.starts``; default: None."""
    found: tuple[Any, Array] | None = getattr(rules, "starts", lambda: None)()
    return found


def for_rendering(rules: Rules[Any]) -> Rules[Any]:
    """Return rules whose states keep all that pictures show; default: these."""
    pictured: Rules[Any] = getattr(rules, "for_rendering", lambda: rules)()
    return pictured


def amounts_of(rules: Rules[Any]) -> tuple[str | None, Array | None]:
    """Return the unit of what actions amount to, and float64 [A]; default: None twice."""
    found: tuple[str | None, Array | None] = getattr(rules, "amounts", lambda: (None, None))()
    return found


# --- The time limit ------------------------------------------------------------------------------

ENDLESS = 10_000
"""Steps for which rules without a time limit draw ahead; then what they drew comes again."""


def with_limit(rules: Rules[Any], max_cycles: int | None) -> Rules[Any]:
    """Return rules that differ in their time limit alone; these, where they have that one."""
    if rules.max_cycles == max_cycles:
        return rules
    return changed(rules, max_cycles=max_cycles)


def changed(rules: RulesT, **attributes: Any) -> RulesT:
    """Return a copy of ``rules`` with other ``attributes``."""
    other = copy.copy(rules)
    vars(other).update(attributes)
    return other


# --- States: dataclasses of arrays [B, ...] ------------------------------------------------------


def state_arrays(state: Any) -> dict[str, Array]:
    """Return the fields of a state by name, not copied: what a checkpoint of it stores."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


def copy_rows(state: StateT, rows: Array | slice) -> StateT:
    """Return a new state that holds copies of the given rows."""
    return type(state)(**{name: a[rows].copy() for name, a in state_arrays(state).items()})


def put_rows(state: StateT, rows: Array | slice, source: StateT) -> None:
    """Overwrite the given rows of ``state`` with the rows of ``source``, in place."""
    for name, values in state_arrays(source).items():
        getattr(state, name)[rows] = values


# --- Observations: one block [B, N, ...] behind the agents' views --------------------------------


class AgentViews(dict[str, Observation]):
    """Observations of like agents, as views of shared ``blocks`` [B, N, ...]."""

    def __init__(self, agents: Sequence[str], blocks: Mapping[str, Array]) -> None:
        for i, agent in enumerate(agents):
            self[agent] = {key: block[:, i] for key, block in blocks.items()}
        self.blocks = blocks


def agent_views(agents: Sequence[str], observation: Array, action_mask: Array) -> AgentViews:
    """Return the observations of like agents: views [B, ...] of the two blocks [B, N, ...]."""
    return AgentViews(agents, {OBSERVATION: observation, MASK: action_mask})


def stack_agents(observations: Mapping[str, Observation], key: str) -> Array:
    """Stack ``observations[agent][key]`` of like agents to one array [B, N, ...].

    Where they are views of one block, as ``agent_views`` makes them, nothing is copied.
    """
    if isinstance(observations, AgentViews):
        return observations.blocks[key]
    return np.stack([observation[key] for observation in observations.values()], axis=1)
