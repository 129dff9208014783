"""The policy interface of heuristics and networks, and adapters for other players.

All policies have ``Policy.act``. Policies of corral inherit from ``PolicyBase`` and also have
``predict``, as in Stable-Baselines3. ``as_policy`` turns models and functions into policies.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, OBSERVATION, greedy, masked, split
from corral.errors import ActionError

__all__ = [
    "Decision",
    "Heuristic",
    "Memoryless",
    "Policy",
    "PolicyBase",
    "PolicyLike",
    "RandomPolicy",
    "as_policy",
    "count_rows",
    "put_tree",
    "take_tree",
]


@dataclass(frozen=True)
class Decision:
    """The choice of a policy.

    ``extra`` may hold arrays [B, A]: "choices" (bool: equally good actions) and "probabilities".
    """

    action: Array  # int [B], or a single integer for a single observation
    state: Any = None  # hidden state of a recurrent policy, to pass to the next ``act``
    extra: dict[str, Array] = field(default_factory=dict)


class Policy(Protocol):
    """Chooses actions for one agent, for a single observation or a batch of observations.

    The shape of the action mask shows which: int8 [A] for a single one, [B, A] for a batch.
    """

    def initial_state(self, num_envs: int) -> Any:
        """Return the hidden state at the start of an episode; None for policies without it."""
        ...

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose legal actions. ``rng`` is for policies that draw actions."""
        ...


# --- Bases of policies ---------------------------------------------------------------------------


class PolicyBase(ABC):
    """Base of policies: adds ``predict`` to ``initial_state`` and ``act``."""

    memory: int = 0
    """Size of a hidden state float32 [B, memory] with values in -1..1; 0: another state or none."""
    rng: np.random.Generator | None = None
    """The generator of ``predict``. None: an unpredictable one is made at the first call."""

    @abstractmethod
    def initial_state(self, num_envs: int) -> Any:
        """Return the hidden state at the start of an episode; None for policies without it."""

    @abstractmethod
    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose legal actions. ``rng`` is for policies that draw actions."""

    def predict(
        self,
        observation: Observation,
        state: Any = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Return actions and the next hidden state, with the signature of Stable-Baselines3.

        Use it for ``evaluate_policy(policy, make_vec_env(...))``, or with a SeatEnv.

        Args:
            observation: as for ``act``, of one environment or of B: ``{"observation": ...,
                "action_mask": ...}``; or flattened by a VecEnv or SeatEnv. The entry ``agent`` is
                ignored: a policy of one agent plays that agent in every column.
            state: hidden state from the previous call; None: the initial state.
            episode_start: bool [B]: reset ``state`` in these rows.
            deterministic: choose the most likely action; otherwise draw it with ``rng``.
            action_masks: raises TypeError, because the observation contains the mask.

        Returns:
            Actions [B, ...] or one action; and the next state: None, or arrays [B, ...], with
                B = 1 for one observation.
        """
        if action_masks is not None:
            raise TypeError("action_masks=: leave it out; the observation contains action_mask")
        observation = _unflattened(observation)
        rows = self.rows(observation)
        batch = take_tree(observation, None) if rows is None else observation
        size = rows or 1
        hidden = self.initial_state(size) if state is None else state
        if episode_start is not None and hidden is not None:
            starts = np.broadcast_to(np.asarray(episode_start, dtype=bool), (size,))
            started = np.flatnonzero(starts)
            hidden = put_tree(hidden, started, self.initial_state(len(started)))
        if self.rng is None:
            self.rng = np.random.default_rng()
        decision = self.act(batch, hidden, self.rng, deterministic=deterministic)
        actions = np.asarray(decision.action)
        return (actions[0] if rows is None else actions), decision.state

    def rows(self, observation: Observation) -> int | None:
        """Return B for an observation [B, ...] and None for a single one, from its mask."""
        mask = np.asarray(observation[MASK])
        return None if mask.ndim == 1 else len(mask)


def _unflattened(observation: Any) -> Any:
    """Return an observation in the environment's form; undoes ``corral.adapters.spaces``."""
    if not isinstance(observation, Mapping) or MASK not in observation:
        return observation
    if OBSERVATION in observation:
        return masked(observation[OBSERVATION], observation[MASK])
    prefix = f"{OBSERVATION}_"
    parts = {k.removeprefix(prefix): v for k, v in observation.items() if k.startswith(prefix)}
    return masked(parts, observation[MASK]) if parts else observation


class Memoryless(PolicyBase):
    """Base of policies without a hidden state."""

    def initial_state(self, num_envs: int) -> None:
        """Return None: there is no hidden state."""
        return None


class Heuristic(Memoryless):
    """Base of policies without a hidden state that ignore ``deterministic``."""

    @abstractmethod
    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        """Return an action for each observation, int [B], or one for a single observation."""

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        return Decision(self.choose(observation, rng), extra=self.extra(observation))  # nosec B610: no Django

    def extra(self, observation: Observation) -> dict[str, Array]:
        return {}


class RandomPolicy(Heuristic):
    """Plays uniformly random legal actions, even if ``deterministic``."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        if rng is None:
            raise ValueError("the random policy draws actions: pass rng=, a numpy Generator")
        return greedy(rng.random(np.shape(observation[MASK])), observation[MASK])

    def extra(self, observation: Observation) -> dict[str, Array]:
        legal = np.asarray(observation[MASK]) != 0
        return {"choices": legal, "probabilities": legal / np.maximum(1, legal.sum(-1)[..., None])}


# --- Adapters for other players ------------------------------------------------------------------


class Predictor(Protocol):
    """A model of Stable-Baselines3, or any object with the same ``predict``."""

    @property
    def predict(self) -> Callable[..., tuple[Any, Any]]: ...


class Actor(Protocol):
    """An object with ``act``, which may return actions without a Decision."""

    @property
    def act(self) -> Callable[..., Any]: ...


PolicyLike = Policy | Actor | Predictor | Callable[[Observation], Any]
"""All types that ``as_policy`` accepts."""


def as_policy(player: PolicyLike, agent: str = "the policy", agents: Sequence[str] = ()) -> Policy:
    """Return a policy that plays ``agent``, one of ``agents``, by calling ``player``.

    | player | called with | returns |
    |---|---|---|
    | a Policy, an object with ``act`` | a batch [R] | a Decision, or actions [R, ...] |
    | a model of Stable-Baselines3, an object with ``predict`` | a batch [R] | actions, state |
    | a function, ``lambda observation: 0`` | one observation | an action |

    An object without ``initial_state`` has no hidden state. A model gets the entries of its
    ``observation_space``, which may include ``agent`` as in ``make_vec_env`` and ``SeatEnv``. It
    draws from the generators of its library. Models without masks may choose illegal actions.

    Raises ValueError for other types. Invalid actions raise ActionError when they are played.
    """
    if isinstance(player, PolicyBase):
        return player
    if isinstance(player, type):
        raise ValueError(f"{agent}: {player.__name__} is a class; give an instance of it")
    if callable(getattr(player, "act", None)):
        return _Acting(player, agent)
    if callable(getattr(player, "predict", None)):
        return _Predicting(player, agent, agents)
    if callable(player):
        return _Choosing(player, agent)
    raise ValueError(
        f"{agent}: {player!r} is not a policy; give an object with act or predict, or a function "
        "from one observation to an action"
    )


class _Acting(PolicyBase):
    """Adapter for an object with ``act``; ``initial_state`` and ``Decision`` are optional."""

    def __init__(self, player: Any, agent: str) -> None:
        self.player, self.agent = player, agent

    def initial_state(self, num_envs: int) -> Any:
        initial = getattr(self.player, "initial_state", None)
        return None if initial is None else initial(num_envs)

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        result = self.player.act(observation, state, rng, deterministic=deterministic)
        return result if isinstance(result, Decision) else Decision(_as_actions(result, self.agent))


class _Choosing(Memoryless):
    """Adapter for a function of one observation."""

    def __init__(self, choose: Callable[[Observation], Any], agent: str) -> None:
        self.choose, self.agent = choose, agent

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Call the function for each observation of the batch: actions [R, ...]."""
        rows = range(count_rows(observation))
        chosen = [self.choose(take_tree(observation, row)) for row in rows]
        return Decision(_as_actions(chosen, self.agent))


class _Predicting(PolicyBase):
    """Adapter for a model of Stable-Baselines3 or sb3-contrib."""

    def __init__(self, model: Any, agent: str, agents: Sequence[str]) -> None:
        self.model, self.agent, self.agents = model, agent, tuple(agents)
        self.takes_masks = "action_masks" in inspect.signature(model.predict).parameters

    def initial_state(self, num_envs: int) -> Any:
        """Return arrays [B, layers, H] for a recurrent model, otherwise None."""
        shape = getattr(getattr(self.model, "policy", None), "lstm_hidden_state_shape", None)
        if shape is None:
            return None
        return tuple(np.zeros((num_envs, shape[0], shape[2]), np.float32) for _ in range(2))

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        mask = split(observation)[1]
        masks: dict[str, Any] = {}
        if self.takes_masks and mask is not None:
            masks["action_masks"] = np.asarray(mask, dtype=bool)
        actions, after = self.model.predict(
            self._entries(observation), _swapped(state), deterministic=deterministic, **masks
        )
        return Decision(_as_actions(actions, self.agent), _swapped(after))

    def _entries(self, observation: Any) -> Any:
        """Return the entries of an observation [R, ...] that the model observes."""
        space = getattr(self.model, "observation_space", None)
        required = getattr(space, "spaces", None)  # of a Dict
        inner, mask = split(observation)
        if not isinstance(required, Mapping):
            return observation if space is None else inner
        entries: dict[str, Any] = {OBSERVATION: inner, MASK: mask}
        if isinstance(inner, Mapping):  # as corral.adapters.spaces.ColumnCodec names them
            named = {f"{OBSERVATION}_{key}".replace(".", "_"): part for key, part in inner.items()}
            entries = {MASK: mask, **inner, **named}
        if self.agent in self.agents:
            identity = np.eye(len(self.agents), dtype=np.float32)[self.agents.index(self.agent)]
            entries["agent"] = np.tile(identity, (count_rows(observation), 1))
        missing = [key for key in required if entries.get(key) is None]
        if missing:
            raise ValueError(
                f"{self.agent}: the model needs {missing}, but the observation has only "
                f"{[key for key, part in entries.items() if part is not None]}; give a model that "
                "was trained in this environment"
            )
        return {key: np.asarray(entries[key]) for key in required}


def _swapped(state: Any) -> Any:
    """Swap the first two axes, because sb3-contrib keeps hidden states as [layers, B, H]."""
    return None if state is None else tuple(np.swapaxes(part, 0, 1) for part in state)


def _as_actions(actions: Any, agent: str) -> Array:
    """Return actions as an array. Raises ActionError if their shapes differ."""
    try:
        return np.asarray(actions)
    except ValueError:
        raise ActionError(
            f"{agent}: the policy's actions have different shapes; give one action for each row"
        ) from None


# --- Trees: None, arrays [B, ...], and tuples, lists and dicts of trees --------------------------


def count_rows(observation: Any) -> int:
    """Return the number of rows R of an observation [R, ...]."""
    if isinstance(observation, Mapping):
        mask = observation.get(MASK)
        return count_rows(next(iter(observation.values())) if mask is None else mask)
    return len(observation)


def take_tree(tree: Any, rows: Array | int | None) -> Any:
    """Return the rows ``rows`` [R] of every array of an observation or of a policy's state.

    An int takes one row without its axis. None inserts a new axis in front, as in NumPy.
    """
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: take_tree(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return rebuilt(tree, [take_tree(part, rows) for part in tree])
    return np.asarray(tree)[rows]


def put_tree(tree: Any, rows: Array, source: Any) -> Any:
    """Return a copy of ``tree`` with the rows ``rows`` [R] replaced by ``source`` [R, ...].

    Raises ValueError if the two trees have different structures.
    """
    if tree is None and source is None:
        return None
    if isinstance(tree, Mapping) and isinstance(source, Mapping) and set(tree) == set(source):
        return {key: put_tree(part, rows, source[key]) for key, part in tree.items()}
    if isinstance(tree, tuple | list) and isinstance(source, tuple | list):
        parts = zip(tree, source, strict=True)
        return rebuilt(tree, [put_tree(part, rows, new) for part, new in parts])
    if tree is None or source is None or isinstance(tree, Mapping | tuple | list):
        raise ValueError(
            f"a policy's state was {type(tree).__name__} and became {type(source).__name__}; keep "
            "the structure of initial_state: None, or arrays [B, ...] in tuples, lists or dicts"
        )
    old, new = np.asarray(tree), np.asarray(source)
    filled = old.astype(np.result_type(old, new))  # a copy
    filled[rows] = new
    return filled


def rebuilt(tree: tuple[Any, ...] | list[Any], parts: list[Any]) -> Any:
    """Return ``parts`` as a tree of the same type; a named tuple takes them as arguments."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
