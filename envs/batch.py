"""Batches of environments, stepped together as arrays: the fast path.

    batch = make_batch("dfaas_v0", num_envs=64, seed=0)
    observations = batch.reset()
    rng = np.random.default_rng(0)
    for _ in range(1000):
        step = batch.step(batch.sample_actions(rng))

Row r of a Batch plays, bit for bit, the episodes of a PettingZoo environment whose generator is
``generator(seed, "env", r)``; row 0 is the one of ``reset(seed=seed)``. A finished row is reset
within the step that ends it (Gymnasium's AutoresetMode.SAME_STEP): ``observations`` are then those
of its new episode, ``finished`` has the last observation of the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np

from corral.envs.core import (
    Array,
    Observation,
    Rules,
    copy_rows,
    generator,
    identity_of,
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
    """The episodes that ended in a step, D of them."""

    rows: Array  # int64 [D] of which environments
    observations: dict[str, Observation]  # the last ones, [D, ...]
    global_state: Array  # float32 [D, G] the last one
    returns: Array  # float64 [D, N] sum of each agent's rewards
    lengths: Array  # int64 [D] steps


@dataclass(repr=False)
class BatchStep:
    """The result of one step of B environments."""

    observations: dict[str, Observation]  # for the next decision, [B, ...]
    reward: Array  # float32 [B, N]
    terminated: Array  # bool [B, N] the agent's episode ended by the rules, in this step
    truncated: Array  # bool [B, N] it was cut by the time limit, in this step
    acting: Array  # bool [B, N] whose action counts in the next step
    info: dict[str, Array]  # [B, N] of this step, also where it was an episode's last
    finished: Finished | None  # None where no episode ended

    @property
    def over(self) -> Array:
        """The environments whose episode ended in this step: bool [B]."""
        over = np.zeros(len(self.reward), dtype=bool)
        if self.finished is not None:
            over[self.finished.rows] = True
        return over


def make_batch(
    env: str | Rules[Any], num_envs: int = 64, seed: int | None = None, **env_kwargs: Any
) -> Any:
    """Make a Batch of a registered environment or of given rules; a ZooBatch of ``zoo_rules``.

    ``env_kwargs`` are the environment's arguments. Raises UnknownNameError for an unknown name.
    """
    if not isinstance(env, str) and env_kwargs:
        raise ValueError(f"arguments {sorted(env_kwargs)} need an environment's name, not rules")
    rules = make_rules(env, **env_kwargs) if isinstance(env, str) else env
    return batch_for(rules, num_envs, seed)


def batch_for(rules: Any, num_envs: int, seed: int | None = None, *, workers: int = 0) -> Any:
    """Return what plays ``num_envs`` copies: what the rules' own ``make_batch(num_envs, seed,
    workers=)`` makes, as those of ``zoo_rules`` have it, else a Batch.

    Raises ValueError for ``workers`` where they would be of no use.
    """
    if not plays_as_arrays(rules):
        return rules.make_batch(num_envs, seed, workers=workers)
    if workers:
        raise ValueError(
            f"workers={workers}: {rules.name} steps all copies at once as arrays; worker processes "
            "are for third-party environments"
        )
    return Batch(rules, num_envs, seed)


class Copies:
    """What plays B environments: a ``Batch``, a ``ZooBatch``, recorded steps."""

    resumes_exactly: bool = True
    """False: nothing can save the moment of play; a resumed run begins new episodes."""

    def rest(self, rows: Array) -> None:
        """Play no more episodes in these rows, where that saves time."""

    def close(self) -> None:
        """End worker processes and environments; nothing else may be called afterwards."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()


class Batch(Copies):
    """B environments of some rules, with autoreset, time limit, generators and episode returns.

    One thread at a time may use a batch: a call changes its arrays, and results hold views of them.
    Threads take a batch each, which may share their rules, or a lock of their own around each call
    and the use of what it returns.
    """

    # Gymnasium names the modes from 1.1 on.
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
        self._alike = len({str(rules.observation_space(agent)) for agent in rules.agents}) == 1
        self._masks: Array | None = None  # [B, N, A] of like agents, or
        self._each_mask: list[Array] = []  # [B, A] of each
        self._row, self._column = np.ogrid[:num_envs, : len(rules.agents)]
        self._identity = identity_of(rules)
        self._state: Any = None
        self._warned = rules.illegal == "raise"
        self._limit = np.iinfo(np.int64).max if rules.max_cycles is None else rules.max_cycles

    # --- Episodes --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> dict[str, Observation]:
        """Begin all episodes anew, [B, ...] by agent. The first call, or one with a seed, seeds."""
        if self._state is None or seed is not None:
            chosen = self.seed if seed is None else seed
            self._require_memory(chosen)
            self._rngs = [generator(chosen, "env", row) for row in range(self.num_envs)]
            self.seed = chosen
        self._state = self.rules.start(self._rngs)
        self._began = np.zeros(self.num_envs, dtype=np.int64)
        self._clock, self._alarm = 0, self._limit
        self._ended = np.zeros((self.num_envs, len(self.agents)), dtype=bool)
        self._returns = np.zeros((self.num_envs, len(self.agents)), dtype=np.float64)
        self._observe()
        return self._observations

    def _require_memory(self, seed: int | None) -> None:
        """Raise SizeError where the states of all rows take more memory than is free."""
        if self.num_envs > 1:
            one = state_arrays(self.rules.start([generator(seed, "env", 0)]))
            size = COPY + sum(np.asarray(values).nbytes for values in one.values())
            require_memory({f"num_envs={self.num_envs}": self.num_envs * size})

    def step(self, actions: Array) -> BatchStep:
        """Play ``actions``, int [B, N]; entries of agents that do not act are ignored.

        Raises ActionError, or IllegalActionError under ``illegal="raise"``, before anything
        changes, and ResetNeededError before the first reset.
        """
        outcome = self.rules.step(self._state, self._checked(actions))
        self._state = outcome.state
        self._clock += 1
        self._returns += outcome.reward
        if not self._warned:
            self._warned = warn_illegal(self.rules, outcome.info)

        terminated = truncated = np.zeros(outcome.terminated.shape, dtype=bool)
        reward, info, finished = outcome.reward, outcome.info, None
        if self._clock >= self._alarm or np.count_nonzero(outcome.terminated):
            time_is_up = self._elapsed >= self._limit
            ended = outcome.terminated | self._ended
            terminated = ended & ~self._ended
            truncated = time_is_up[:, None] & ~ended
            self._ended = ended
            over = np.flatnonzero(time_is_up | ended.all(axis=1))
            if len(over):
                # Both may hold arrays of the state, in which new episodes are about to begin.
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
        """Return what a centralized critic may observe now: float32 [B, G]."""
        self._require_reset()
        return self.rules.global_state(self._state)

    def first_info(self, rows: Array | slice = slice(None)) -> dict[str, Array]:
        """Return the info of R environments whose episodes have just begun: [R, N] by key."""
        self._require_reset()
        return self.rules.info(copy_rows(self._state, rows))

    def sample_actions(self, rng: np.random.Generator) -> Array:
        """Draw uniformly random legal actions, int64 [B, N]; 0 for agents that do not act."""
        self._require_reset()
        if self._masks is None:  # unlike agents
            return np.stack([sample_legal(mask, rng) for mask in self._each_mask], axis=1)
        masks = self._masks.reshape(-1, self._masks.shape[-1])  # [B * N, A]
        return sample_legal(masks, rng).reshape(self.num_envs, len(self.agents))

    def render(self, info: dict[str, Array] | None, mode: str) -> Any:
        """Draw environment 0 after a step with ``info`` (None: before the first), see Rules."""
        self._require_reset()
        first = copy_rows(self._state, slice(0, 1))
        if info is None:
            return self.rules.render(first, self.rules.info(first), mode)
        return self.rules.render(first, {key: values[:1] for key, values in info.items()}, mode)

    # --- Saving and restoring --------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return all that decides what comes next: ``rules``, ``arrays`` by name, ``generators``.

        A Batch of the same rules and size that restores it plays on bit for bit.
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
        """Go on from a ``snapshot``; returns the observations of that moment.

        Raises ValueError, before anything changes, where the snapshot does not fit.
        """
        arrays, generators = snapshot.get("arrays", {}), snapshot.get("generators", [])
        rngs = [generator(0, "env", row) for row in range(self.num_envs)]
        state = self.rules.start(rngs)
        expected = {f"state.{name}": a for name, a in state_arrays(state).items()}
        shape = (self.num_envs, len(self.agents))
        expected["elapsed"] = np.zeros(self.num_envs, dtype=np.int64)
        expected["ended"] = np.zeros(shape, dtype=bool)
        expected["returns"] = np.zeros(shape, dtype=np.float64)
        # What these rules keep nothing in may be younger than the snapshot.
        needed = {name for name, array in expected.items() if array.size}
        if len(generators) != self.num_envs or not needed <= set(arrays) <= set(expected):
            raise ValueError("the snapshot is of another environment or number of copies")
        if snapshot.get("rules") != self._identity:
            raise ValueError(
                f"the snapshot is of rules {snapshot.get('rules')}, here they are "
                f"{self._identity}: another environment, other arguments, or another load"
            )
        for name, array in expected.items():
            saved = np.asarray(arrays.get(name, array))
            if (saved.shape, saved.dtype) != (array.shape, array.dtype):
                raise ValueError(
                    f"snapshot: {name} is {saved.dtype} {saved.shape}, "
                    f"here it is {array.dtype} {array.shape}"
                )
            array[...] = saved
        try:
            for rng, own in zip(rngs, generators, strict=True):
                rng.bit_generator.state = own
        except (KeyError, TypeError) as error:
            raise ValueError(f"snapshot: no state of a generator: {error!r}") from error
        self._rngs, self._state = rngs, state
        self._clock, self._began = 0, -expected["elapsed"]
        self._ended, self._returns = expected["ended"], expected["returns"]
        self._set_alarm()
        self._observe()
        return self._observations

    def moments(self, rows: Array) -> tuple[Any, Array, Array]:
        """Return copies of R rows as they stand: the rules' state, the steps since each episode
        began (int64 [R]), and whose part in it is over (bool [R, N])."""
        self._require_reset()
        return copy_rows(self._state, rows), self._elapsed[rows], self._ended[rows]

    # --- Parts -----------------------------------------------------------------------------------

    @property
    def _elapsed(self) -> Array:
        """Steps since each episode began: int64 [B]."""
        return self._clock - self._began

    def _set_alarm(self) -> None:
        """Note when the next episode runs out of time, to compare all clocks then only."""
        self._alarm = int(self._began.min()) + self._limit

    def _observe(self) -> None:
        """Take the observations of the present state, and who acts on them."""
        self._observations = self.rules.observe(self._state)
        self.acting = self.rules.acting(self._state)
        some_ended = np.count_nonzero(self._ended) > 0
        if some_ended:
            self.acting = self.acting & ~self._ended
        if self.rules.simultaneous:
            self._all_act = not some_ended
        else:
            self._all_act = np.count_nonzero(self.acting) == self.acting.size
        # Held apart: the dicts of the observations are the caller's, to change at will.
        if self._alike:
            self._masks = stack_agents(self._observations, MASK)
        else:
            self._each_mask = [self._observations[agent][MASK] for agent in self.agents]

    def _restart(self, rows: Array) -> Finished:
        """Return what ended, and begin new episodes in its place."""
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
        """Return the present action mask of one agent: int8 [B, A]."""
        return self._each_mask[column] if self._masks is None else self._masks[:, column]

    def _legal(self, actions: Array) -> Array:
        """Return whether each action [B, N] is legal: bool; True where an agent does not act."""
        if self._masks is not None:
            legal = self._masks[self._row, self._column, actions].astype(bool)
        else:
            columns = range(len(self.agents))
            rows = np.arange(self.num_envs)
            legal = np.stack([self._mask(i)[rows, actions[:, i]] for i in columns], 1).astype(bool)
        return np.asarray(legal if self._all_act else legal | ~self.acting)

    def _checked(self, actions: Array) -> Array:
        """Return ``actions`` as int64 [B, N], 0 where an agent does not act, or raise."""
        self._require_reset()
        shape = (self.num_envs, len(self.agents))
        given = require_integers(actions, shape, "copies x agents")
        if not self._all_act:
            given = np.where(self.acting, given, 0)
        numbers = given.astype(np.int64, copy=False)
        outside = numbers.view(np.uint64) >= self._sizes  # as unsigned, what is below 0 is huge
        if np.count_nonzero(outside):
            row, column = np.argwhere(outside)[0]
            raise ActionError(
                f"copy {row}, {self.agents[column]}: action {given[row, column]} is out of range; "
                f"give 0..{int(self.rules.action_space(self.agents[column]).n) - 1}"
            )
        if self.rules.illegal == "raise" and not (legal := self._legal(numbers)).all():
            row, column = np.argwhere(~legal)[0]
            agent = f"copy {row}, {self.agents[column]}"
            require_legal(agent, int(numbers[row, column]), self._mask(column)[row])
        return numbers

    def _require_reset(self) -> None:
        if self._state is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() first")
