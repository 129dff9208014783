"""Policies: the one interface of heuristics and networks, and what else can stand for one.

``Policy.act`` is how policies are asked. Those of corral are ``PolicyBase`` and have
Stable-Baselines3's ``predict`` too. ``as_policy`` makes a policy of whatever can play.
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
    """A choice; ``extra`` may hold, [B, A], "choices" (bool, equally good) and "probabilities"."""

    action: Array  # int [B], or a single integer for a single observation
    state: Any = None  # of a recurrent policy, to be given back at the next step
    extra: dict[str, Array] = field(default_factory=dict)


class Policy(Protocol):
    """Chooses actions for one agent, for a single observation or a batch of them.

    The shape of the action mask tells which of the two it is: int8 [A] or [B, A].
    """

    def initial_state(self, num_envs: int) -> Any:
        """Return the hidden state before an episode's first step; None where there is none."""
        ...

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose legal actions; ``rng`` serves policies that draw them."""
        ...


# --- Bases of policies ---------------------------------------------------------------------------


class PolicyBase(ABC):
    """Base of policies: adds ``predict`` to ``initial_state`` and ``act``."""

    memory: int = 0
    """Units of a hidden state float32 [B, memory] whose values lie in -1..1; 0: none, or another
    one."""
    rng: np.random.Generator | None = None
    """Where ``predict`` draws from; None: an unpredictable generator, made when first needed."""

    @abstractmethod
    def initial_state(self, num_envs: int) -> Any:
        """Return the hidden state before an episode's first step; None where there is none."""

    @abstractmethod
    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """Choose legal actions; ``rng`` serves policies that draw them."""

    def predict(
        self,
        observation: Observation,
        state: Any = None,
        episode_start: npt.ArrayLike | None = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, Any]:
        """Return the actions and the next hidden state: ``act``, as Stable-Baselines3 asks for it.

        ``evaluate_policy(policy, make_vec_env(...))`` plays it, or over a SeatEnv.

        Args:
            observation: as for ``act``, of one environment or of B: ``{"observation": ...,
                "action_mask": ...}``; or as a VecEnv or SeatEnv flattens it. Its entry ``agent`` is
                not read: a policy of one agent plays as that agent in every column.
            state: what the call before returned; None: the initial one.
            episode_start: bool [B], where ``state`` is to begin anew.
            deterministic: the likeliest action; else it is drawn with ``rng``.
            action_masks: refused by TypeError; the observation holds its mask.

        Returns actions [B, ...], or one action; and a state of arrays [B, ...], B = 1 for one
        observation, or None.
        """
        if action_masks is not None:
            raise TypeError("action_masks=: leave it out; the observation holds its action_mask")
        observation = _unflattened(observation)
        rows = self.rows(observation)
        batch = take_tree(observation, None) if rows is None else observation
        size = rows or 1
        hidden = self.initial_state(size) if state is None else state
        if episode_start is not None and hidden is not None:
            starts = np.broadcast_to(np.asarray(episode_start, dtype=bool), (size,))
            begins = np.flatnonzero(starts)
            hidden = put_tree(hidden, begins, self.initial_state(len(begins)))
        if self.rng is None:
            self.rng = np.random.default_rng()
        decision = self.act(batch, hidden, self.rng, deterministic=deterministic)
        actions = np.asarray(decision.action)
        return (actions[0] if rows is None else actions), decision.state

    def rows(self, observation: Observation) -> int | None:
        """Return B of an observation [B, ...], None for a single one; by its mask."""
        mask = np.asarray(observation[MASK])
        return None if mask.ndim == 1 else len(mask)


def _unflattened(observation: Any) -> Any:
    """Return an observation of a ColumnCodec (``corral.adapters.spaces``) as the environment's."""
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
    """Base of policies without a hidden state that choose alike whether deterministic or not."""

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
    """Plays uniformly random legal actions, always by chance."""

    def choose(self, observation: Observation, rng: np.random.Generator | None) -> Array:
        if rng is None:
            raise ValueError("the random policy needs rng=, a numpy Generator")
        return greedy(rng.random(np.shape(observation[MASK])), observation[MASK])

    def extra(self, observation: Observation) -> dict[str, Array]:
        legal = np.asarray(observation[MASK]) != 0
        return {"choices": legal, "probabilities": legal / np.maximum(1, legal.sum(-1)[..., None])}


# --- What can stand for a policy -----------------------------------------------------------------


class Predictor(Protocol):
    """A model of Stable-Baselines3, or what has its ``predict``."""

    @property
    def predict(self) -> Callable[..., tuple[Any, Any]]: ...


class Actor(Protocol):
    """An object with ``act``, which may return actions alone."""

    @property
    def act(self) -> Callable[..., Any]: ...


PolicyLike = Policy | Actor | Predictor | Callable[[Observation], Any]
"""Whatever ``as_policy`` takes."""


def as_policy(player: PolicyLike, agent: str = "the policy", agents: Sequence[str] = ()) -> Policy:
    """Return a policy that plays ``agent``, one of ``agents``, as ``player`` does.

    | player | is asked | returns |
    |---|---|---|
    | a Policy, an object with ``act`` | for a batch [R] | a Decision, or actions [R, ...] |
    | a model of Stable-Baselines3, an object with ``predict`` | for a batch [R] | actions, state |
    | a function, ``lambda observation: 0`` | for one observation | an action |

    An object without ``initial_state`` has no hidden state. A model is shown the entries that its
    ``observation_space`` names, ``agent`` among them, as in ``make_vec_env`` and ``SeatEnv``; it
    draws from the generators of its own library. Models without masks may choose illegal actions.

    Raises ValueError for anything else. Malformed actions raise ActionError where they are played.
    """
    if isinstance(player, PolicyBase):
        return player
    if isinstance(player, type):
        raise ValueError(f"{agent}: {player.__name__} is a class: give an instance of it")
    if callable(getattr(player, "act", None)):
        return _Acting(player, agent)
    if callable(getattr(player, "predict", None)):
        return _Predicting(player, agent, agents)
    if callable(player):
        return _Choosing(player, agent)
    raise ValueError(
        f"{agent}: {player!r} is no policy: give an object with act or predict, or a function from "
        "one observation to an action"
    )


class _Acting(PolicyBase):
    """An object with ``act`` that may lack ``initial_state``, and may return actions alone."""

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
        found = self.player.act(observation, state, rng, deterministic=deterministic)
        return found if isinstance(found, Decision) else Decision(_as_actions(found, self.agent))


class _Choosing(Memoryless):
    """A function of one observation."""

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
    """A model of Stable-Baselines3 or sb3-contrib."""

    def __init__(self, model: Any, agent: str, agents: Sequence[str]) -> None:
        self.model, self.agent, self.agents = model, agent, tuple(agents)
        self.takes_masks = "action_masks" in inspect.signature(model.predict).parameters

    def initial_state(self, num_envs: int) -> Any:
        """Return arrays [B, layers, H] of a recurrent model, None for others."""
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
        """Return what the model observes of an observation [R, ...]."""
        space = getattr(self.model, "observation_space", None)
        wanted = getattr(space, "spaces", None)  # of a Dict
        inner, mask = split(observation)
        if not isinstance(wanted, Mapping):
            return observation if space is None else inner
        entries: dict[str, Any] = {OBSERVATION: inner, MASK: mask}
        if isinstance(inner, Mapping):  # as corral.adapters.spaces.ColumnCodec names them
            named = {f"{OBSERVATION}_{key}".replace(".", "_"): part for key, part in inner.items()}
            entries = {MASK: mask, **inner, **named}
        if self.agent in self.agents:
            identity = np.eye(len(self.agents), dtype=np.float32)[self.agents.index(self.agent)]
            entries["agent"] = np.tile(identity, (count_rows(observation), 1))
        missing = [key for key in wanted if entries.get(key) is None]
        if missing:
            raise ValueError(
                f"{self.agent}: the model observes {missing}, and here there is "
                f"{[key for key, part in entries.items() if part is not None]}; give one that was "
                "trained in this environment"
            )
        return {key: np.asarray(entries[key]) for key in wanted}


def _swapped(state: Any) -> Any:
    """Exchange the first two axes: a recurrent model of sb3-contrib keeps [layers, B, H]."""
    return None if state is None else tuple(np.swapaxes(part, 0, 1) for part in state)


def _as_actions(found: Any, agent: str) -> Array:
    """Return actions as an array. Raises ActionError where they are of different shapes."""
    try:
        return np.asarray(found)
    except ValueError:
        raise ActionError(
            f"{agent}: the policy's actions are of different shapes; give one action for each row"
        ) from None


# --- Trees: None, arrays [B, ...], and tuples, lists and dicts of trees --------------------------


def count_rows(observation: Any) -> int:
    """Return R of an observation [R, ...]."""
    if isinstance(observation, Mapping):
        mask = observation.get(MASK)
        return count_rows(next(iter(observation.values())) if mask is None else mask)
    return len(observation)


def take_tree(tree: Any, rows: Array | int | None) -> Any:
    """Return ``rows`` [R] of every array of an observation or of a policy's state.

    An int takes one row without its axis; None puts a new axis in front, as in NumPy.
    """
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: take_tree(part, rows) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        return rebuilt(tree, [take_tree(part, rows) for part in tree])
    return np.asarray(tree)[rows]


def put_tree(tree: Any, rows: Array, source: Any) -> Any:
    """Return ``tree`` with ``rows`` [R] replaced by ``source`` [R, ...]; neither is changed.

    Raises ValueError where the two are not built alike.
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
            f"a policy's state was {type(tree).__name__} and became {type(source).__name__}; give "
            "what initial_state gives: None, or arrays [B, ...] in tuples, lists or dicts"
        )
    old, new = np.asarray(tree), np.asarray(source)
    filled = old.astype(np.result_type(old, new))  # a copy
    filled[rows] = new
    return filled


def rebuilt(tree: tuple[Any, ...] | list[Any], parts: list[Any]) -> Any:
    """Return ``parts`` as a tree of the same kind; a named tuple takes them one by one."""
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
