"""Batches of environments that are stepped together as arrays: the fast path.

    batch = make_batch("dfaas_v0", num_envs=64, seed=0)
    observations = batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(1000):
        step = batch.step(batch.sample_actions(rng))

Row r of a Batch plays the same episodes, bit for bit, as a PettingZoo environment with the
generator ``generator(seed, "env", r)``. Row 0 equals ``reset(seed=seed)``. A row that ends its
episode is reset within the same step (Gymnasium's AutoresetMode.SAME_STEP). Then ``observations``
belong to its new episode, and ``finished`` has the last observation of the old episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import gymnasium
import numpy as np

from corral.envs.core import (
    Array,
    Observation,
    Outcome,
    Rules,
    copy_rows,
    generator,
    identity_of,
    keep_rows,
    plays_as_arrays,
    put_rows,
    stack_agents,
    state_arrays,
)
from corral.envs.masks import MASK, require_integers, require_legal, sample_legal
from corral.envs.registry import make_rules
from corral.envs.shells import warn_illegal
from corral.errors import ActionError, ResetNeededError
from corral.memory import COPY, require_memory

__all__ = ["Batch", "BatchStep", "Copies", "Finished", "batch_for", "make_batch"]


@dataclass(frozen=True)
class Finished:
    """D episodes that ended in a step."""

    rows: Array  # int64 [D] environments
    observations: dict[str, Observation]  # last observations, [D, ...]
    global_state: Array  # float32 [D, G] last global state
    returns: Array  # float64 [D, N] sum of each agent's rewards
    lengths: Array  # int64 [D] steps


@dataclass(repr=False)
class BatchStep:
    """The result of one step of B environments."""

    observations: dict[str, Observation]  # for the next decision, [B, ...]
    reward: Array  # float32 [B, N]
    terminated: Array  # bool [B, N] the rules ended the agent's episode in this step
    truncated: Array  # bool [B, N] the time limit ended the agent's episode in this step
    acting: Array  # bool [B, N] which agents act in the next step
    info: dict[str, Array]  # [B, N] of this step, also for the last step of an episode
    finished: Finished | None  # None if no episode ended

    if not TYPE_CHECKING:  # type checkers report it themselves

        def __iter__(self) -> Any:
            raise TypeError(
                "a BatchStep is not a tuple: use step.observations, step.reward, step.terminated, "
                "step.truncated and step.info"
            )

    @property
    def over(self) -> Array:
        """Environments that ended their episode in this step: bool [B]."""
        over = np.zeros(len(self.reward), dtype=bool)
        if self.finished is not None:
            over[self.finished.rows] = True
        return over


def make_batch(
    env: str | Rules[Any], num_envs: int = 64, seed: int | None = None, **env_kwargs: Any
) -> Any:
    """Make a Batch of a registered environment or of rules; for ``zoo_rules`` a ZooBatch.

    ``env_kwargs`` are the environment's arguments. Raises UnknownNameError for an unknown name.
    """
    if not isinstance(env, str) and env_kwargs:
        raise ValueError(
            f"arguments {sorted(env_kwargs)} need an environment name; pass rules without them"
        )
    rules = make_rules(env, **env_kwargs) if isinstance(env, str) else env
    return batch_for(rules, num_envs, seed)


def batch_for(rules: Any, num_envs: int, seed: int | None = None, *, workers: int = 0) -> Any:
    """Return ``num_envs`` copies of an environment: a Batch, or the result of ``rules.make_batch``.

    Only rules that are not array code have ``make_batch``, such as ``zoo_rules``. Raises ValueError
    for ``workers`` if the rules are array code.
    """
    if not plays_as_arrays(rules):
        return rules.make_batch(num_envs, seed, workers=workers)
    if workers:
        raise ValueError(
            f"workers={workers}: only third-party environments use worker processes; {rules.name} "
            "steps all copies at once as arrays, so leave workers out"
        )
    return Batch(rules, num_envs, seed)


class Copies:
    """Base of B environment copies: ``Batch``, ``ZooBatch`` and recorded steps."""

    resumes_exactly: bool = True
    """False if the state cannot be saved; a resumed run then starts new episodes."""

    def rest(self, rows: Array) -> None:
        """Stop playing episodes in these rows, if that saves time."""

    def close(self) -> None:
        """Close worker processes and environments. Call no other method afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class Batch(Copies):
    """B environments of some rules, with autoreset, time limit, generators and episode returns.

    Only one thread at a time may use a batch: a call changes its arrays, and results are views of
    them. Give each thread a separate batch; batches may share their rules. Otherwise hold a lock
    during each call and while its results are used.
    """

    # Gymnasium has AutoresetMode since 1.1.
    autoreset_mode: Any = (
        gymnasium.vector.AutoresetMode.SAME_STEP
        if hasattr(gymnasium.vector, "AutoresetMode")
        else "SameStep"
    )

    def __init__(self, rules: Rules[Any], num_envs: int, seed: int | None = None) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs}: give 1 or more")
        require_memory({f"num_envs={num_envs}": COPY * num_envs})
        self.rules = rules
        self.num_envs = num_envs
        self.agents = rules.agents
        self.seed = seed
        sizes = [int(rules.action_space(agent).n) for agent in rules.agents]
        self._sizes = np.array(sizes if len(set(sizes)) > 1 else sizes[:1], dtype=np.uint64)  # [N]
        self._equal_spaces = (
            len({str(rules.observation_space(agent)) for agent in rules.agents}) == 1
        )
        self._masks: Array | None = None  # [B, N, A] if all agents have equal spaces
        self._agent_masks: list[Array] = []  # otherwise [B, A] of each agent
        self._row, self._column = np.ogrid[:num_envs, : len(rules.agents)]
        self._identity = identity_of(rules)
        self._state: Any = None
        self._warned = rules.illegal == "raise"
        self._limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles

    # --- Episodes --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> dict[str, Observation]:
        """Start new episodes in all rows: observations [B, ...] by agent.

        The first call and any call with ``seed`` seed the generators.
        """
        if self._state is None or seed is not None:
            new_seed = self.seed if seed is None else seed
            self._require_memory(new_seed)
            self._rngs = [generator(new_seed, "env", row) for row in range(self.num_envs)]
            self.seed = new_seed
        self._state = self.rules.start(self._rngs)
        self._began = np.zeros(self.num_envs, dtype=np.int64)
        self._clock, self._alarm = 0, self._limit
        self._ended = np.zeros((self.num_envs, len(self.agents)), dtype=bool)
        self._returns = np.zeros((self.num_envs, len(self.agents)), dtype=np.float64)
        self._observe()
        return self._observations

    def _require_memory(self, seed: int | None) -> None:
        """Raise SizeError if the states of all rows need more than the free memory."""
        if self.num_envs > 1:
            arrays = state_arrays(self.rules.start([generator(seed, "env", 0)]))
            size = COPY + sum(np.asarray(values).nbytes for values in arrays.values())
            require_memory({f"num_envs={self.num_envs}": self.num_envs * size})

    def step(self, actions: Array, held: Array | None = None) -> BatchStep:
        """Play ``actions``, int [B, N]. Entries of agents that do not act are ignored.

        ``held``, bool [B], are copies that do not play: their state stays, and their rewards and
        info are 0. Their actions are ignored.

        Raises ActionError, or IllegalActionError under ``illegal="raise"``, before any change of
        state. Raises ResetNeededError before the first reset.
        """
        if held is None:
            outcome = self.rules.step(self._state, self._checked(actions))
        else:
            if held.dtype != bool or held.shape != (self.num_envs,):
                raise ActionError(f"held: pass bool [{self.num_envs}], a value for each copy")
            outcome = self._step_rows(np.flatnonzero(~held), self._checked(actions, held))
            self._began[held] += 1
        self._state = outcome.state
        self._clock += 1
        self._returns += outcome.reward
        if not self._warned:
            self._warned = warn_illegal(self.rules, outcome.info)

        terminated = truncated = np.zeros(outcome.terminated.shape, dtype=bool)
        reward, info, finished = outcome.reward, outcome.info, None
        if self._clock >= self._alarm or np.count_nonzero(outcome.ends):
            time_is_up = self._elapsed >= self._limit
            ended = outcome.terminated | self._ended
            terminated = ended & ~self._ended
            cut = (
                time_is_up[:, None]
                if outcome.truncated is None
                else (time_is_up[:, None] | outcome.truncated)
            )
            truncated = cut & ~ended
            self._ended = outcome.ends | self._ended
            over = np.flatnonzero(time_is_up | self._ended.all(axis=1))
            if len(over):
                # Both may be views of the state, which new episodes overwrite.
                reward = reward.copy()
                info = {key: values.copy() for key, values in info.items()}
                finished = self._restart(over)
        self._observe()
        return BatchStep(
            observations=self._observations,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            acting=self.acting,
            info=info,
            finished=finished,
        )

    def global_state(self) -> Array:
        """Return the current global state, for a centralized critic: float32 [B, G]."""
        self._require_reset()
        return self.rules.global_state(self._state)

    def first_info(self, rows: Array | slice = slice(None)) -> dict[str, Array]:
        """Return the info of R environments at the start of their episodes: [R, N] by key."""
        self._require_reset()
        return self.rules.info(copy_rows(self._state, rows))

    def sample_actions(self, rng: np.random.Generator) -> Array:
        """Draw uniformly random legal actions, int64 [B, N]; 0 for agents that do not act."""
        self._require_reset()
        if self._masks is None:
            return np.stack([sample_legal(mask, rng) for mask in self._agent_masks], axis=1)
        masks = self._masks.reshape(-1, self._masks.shape[-1])  # [B * N, A]
        return sample_legal(masks, rng).reshape(self.num_envs, len(self.agents))

    def render(self, info: dict[str, Array] | None, mode: str) -> Any:
        """Draw environment 0 after a step with ``info``; None: at the start. See ``Rules``."""
        self._require_reset()
        first = copy_rows(self._state, slice(0, 1))
        if info is None:
            return self.rules.render(first, self.rules.info(first), mode)
        return self.rules.render(first, {key: values[:1] for key, values in info.items()}, mode)

    # --- Saving and restoring --------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return everything that determines the future: ``rules``, ``arrays``, ``generators``.

        A Batch of the same rules and size continues bit for bit after ``restore``.
        """
        self._require_reset()
        arrays = {f"state.{name}": a.copy() for name, a in state_arrays(self._state).items()}
        for name in ("elapsed", "ended", "returns"):
            arrays[name] = getattr(self, f"_{name}").copy()
        return {
            "rules": self._identity,
            "arrays": arrays,
            "generators": [rng.bit_generator.state for rng in self._rngs],
        }

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Continue from a ``snapshot``; return its observations.

        Raises ValueError, before any change of state, if the snapshot does not fit.
        """
        arrays, generators = snapshot.get("arrays", {}), snapshot.get("generators", [])
        rngs = [generator(0, "env", row) for row in range(self.num_envs)]
        state = self.rules.start(rngs)
        expected = {f"state.{name}": a for name, a in state_arrays(state).items()}
        shape = (self.num_envs, len(self.agents))
        expected["elapsed"] = np.zeros(self.num_envs, dtype=np.int64)
        expected["ended"] = np.zeros(shape, dtype=bool)
        expected["returns"] = np.zeros(shape, dtype=np.float64)
        # Arrays of size 0 may be missing: newer versions of the rules may have added them.
        needed = {name for name, array in expected.items() if array.size}
        if len(generators) != self.num_envs or not needed <= set(arrays) <= set(expected):
            raise ValueError(
                "the snapshot does not fit: it has another environment or number of copies"
            )
        if snapshot.get("rules") != self._identity:
            raise ValueError(
                f"the snapshot has rules {snapshot.get('rules')}, but this batch has "
                f"{self._identity}: use the same environment, arguments and load"
            )
        for name, array in expected.items():
            saved = np.asarray(arrays.get(name, array))
            if (saved.shape, saved.dtype) != (array.shape, array.dtype):
                raise ValueError(
                    f"snapshot: {name} is {saved.dtype} {saved.shape}, "
                    f"but this batch needs {array.dtype} {array.shape}"
                )
            array[...] = saved
        try:
            for rng, generator_state in zip(rngs, generators, strict=True):
                rng.bit_generator.state = generator_state
        except (KeyError, TypeError) as error:
            raise ValueError(f"snapshot: invalid state of a generator: {error!r}") from error
        self._rngs, self._state = rngs, state
        self._clock, self._began = 0, -expected["elapsed"]
        self._ended, self._returns = expected["ended"], expected["returns"]
        self._set_alarm()
        self._observe()
        return self._observations

    def moments(self, rows: Array) -> tuple[Any, Array, Array]:
        """Return copies of the current state of R rows.

        Returns the state of the rules, the steps since each episode began (int64 [R]), and which
        agents have ended their episode (bool [R, N]).
        """
        self._require_reset()
        keep_rows(self.rules, self._state, rows)
        return copy_rows(self._state, rows), self._elapsed[rows], self._ended[rows]

    # --- Parts -----------------------------------------------------------------------------------

    @property
    def _elapsed(self) -> Array:
        """Steps since each episode began: int64 [B]."""
        return self._clock - self._began

    def _set_alarm(self) -> None:
        """Store the earliest step at which an episode can reach the time limit.

        Steps before it need not compare the clocks of all rows.
        """
        self._alarm = int(self._began.min()) + self._limit

    def _observe(self) -> None:
        """Store the observations of the current state, and which agents act."""
        self._observations = self.rules.observe(self._state)
        self.acting = self.rules.acting(self._state)
        some_ended = np.count_nonzero(self._ended) > 0
        if some_ended:
            self.acting = self.acting & ~self._ended
        if self.rules.simultaneous:
            self._all_act = not some_ended
        else:
            self._all_act = np.count_nonzero(self.acting) == self.acting.size
        # Stored separately: callers may change the dicts of observations.
        if self._equal_spaces:
            self._masks = stack_agents(self._observations, MASK)
        else:
            self._agent_masks = [self._observations[agent][MASK] for agent in self.agents]

    def _step_rows(self, rows: Array, actions: Array) -> Outcome[Any]:
        """Return the outcome [B, N] of ``actions`` [B, N] in ``rows`` [R]; 0 in other rows."""
        part = self.rules.step(copy_rows(self._state, rows), actions[rows])
        put_rows(self._state, rows, part.state)

        def spread(values: Array) -> Array:
            whole = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
            whole[rows] = values
            return whole

        return Outcome(
            state=self._state,
            reward=spread(part.reward),
            terminated=spread(part.terminated),
            info={key: spread(values) for key, values in part.info.items()},
            truncated=None if part.truncated is None else spread(part.truncated),
        )

    def _restart(self, rows: Array) -> Finished:
        """Return the episodes that ended in ``rows``, and start new episodes there."""
        last = copy_rows(self._state, rows)
        finished = Finished(
            rows=rows,
            observations=self.rules.observe(last),
            global_state=self.rules.global_state(last),
            returns=self._returns[rows],
            lengths=self._elapsed[rows],
        )
        put_rows(self._state, rows, self.rules.start([self._rngs[row] for row in rows]))
        self._began[rows] = self._clock
        self._set_alarm()
        self._returns[rows] = 0.0
        self._ended[rows] = False
        return finished

    def _mask(self, column: int) -> Array:
        """Return the current action mask of one agent: int8 [B, A]."""
        return self._agent_masks[column] if self._masks is None else self._masks[:, column]

    def _legal(self, actions: Array) -> Array:
        """Return which actions [B, N] are legal: bool."""
        if self._masks is not None:
            legal = self._masks[self._row, self._column, actions].astype(bool)
        else:
            columns = range(len(self.agents))
            rows = np.arange(self.num_envs)
            legal = np.stack([self._mask(i)[rows, actions[:, i]] for i in columns], 1).astype(bool)
        return legal

    def _checked(self, actions: Array, held: Array | None = None) -> Array:
        """Return ``actions`` as int64 [B, N], 0 for agents that do not act and in ``held`` copies.

        Raises ActionError.
        """
        self._require_reset()
        shape = (self.num_envs, len(self.agents))
        array = require_integers(actions, shape, "copies x agents")
        idle = None if self._all_act else ~self.acting  # bool [B, N]; None: all agents act
        if held is not None:
            idle = ~self.acting | held[:, None]
        if idle is not None:
            array = np.where(idle, 0, array)
        numbers = array.astype(np.int64, copy=False)
        outside = numbers.view(np.uint64) >= self._sizes  # negative numbers are huge as unsigned
        if np.count_nonzero(outside):
            row, column = np.argwhere(outside)[0]
            raise ActionError(
                f"copy {row}, {self.agents[column]}: action {array[row, column]} is out of range; "
                f"give 0..{int(self.rules.action_space(self.agents[column]).n) - 1}"
            )
        if self.rules.illegal == "raise":
            legal = self._legal(numbers)
            legal = legal if idle is None else legal | idle
            if not legal.all():
                row, column = np.argwhere(~legal)[0]
                agent = f"copy {row}, {self.agents[column]}"
                require_legal(agent, int(numbers[row, column]), self._mask(column)[row])
        return numbers

    def _require_reset(self) -> None:
        if self._state is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() first")
