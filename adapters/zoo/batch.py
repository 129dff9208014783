"""Third-party PettingZoo environments as many copies behind the interface of Batch.

    from pettingzoo.classic import tictactoe_v3
    with make_zoo_batch(tictactoe_v3.env, num_envs=16, seed=0, workers=4) as batch:
        observations = batch.reset()
        rng = np.random.default_rng(0)
        for _ in range(1000):
            step = batch.step(batch.sample_actions(rng))

Parallel and AEC environments come to the same terms: ``acting`` says whose actions count. In an AEC
environment a step is the move of one agent. Autoreset, accounting and ``finished`` are Batch's.

The same trajectories come out whatever the number of workers, if the environments draw from
generators of their own: copy r's first ``reset`` has a seed of ``generator(seed, "env", r)``, and
later ones go on. Third-party environments have no state that could be saved: ``snapshot`` raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from corral.adapters.seats import random_actions
from corral.adapters.zoo.copies import (
    Actions,
    Look,
    Moved,
    ZooCopy,
    generators,
    make_copy,
    name_copy,
)
from corral.adapters.zoo.spec import ZooSpec
from corral.adapters.zoo.workers import WorkerCopies
from corral.envs.batch import Batch, BatchStep, Finished
from corral.envs.core import Array, Observation, refuse_masked_arrays, require_integers
from corral.envs.masks import MASK, require_legal, sample_legal
from corral.errors import ActionError, CheckpointError, ResetNeededError

__all__ = ["ZooBatch", "ZooRules", "make_zoo_batch", "zoo_rules"]


def make_zoo_batch(
    make_env: Callable[[], Any],
    num_envs: int,
    seed: int | None = None,
    *,
    workers: int = 0,
    deadline: float = 60.0,
    max_cycles: int | None = None,
) -> ZooBatch:
    """Return ``num_envs`` copies of the ParallelEnv or AECEnv that ``make_env()`` makes.

    Args:
        make_env: is called once here, for the spaces, and once for each copy, where it is to run.
        num_envs: how many, B.
        seed: of all copies; None: unpredictable, but kept as ``seed`` of the ZooBatch.
        workers: processes to spread the copies over; 0: all run in this one. Worth it where a step
            of the environment takes longer than a message, about 0.2 ms.
        deadline: seconds that one copy may take for a reset or a step in a worker.
        max_cycles: steps after which episodes are cut, besides the environment's own limit.

    Raises:
        UnsupportedSpaceError: no PettingZoo environment, or spaces that are not handled.
        EnvironmentFault: it names no possible_agents.
        ValueError: copies, workers, deadline or max_cycles out of range.
    """
    rules = zoo_rules(make_env, max_cycles=max_cycles)
    return rules.make_batch(num_envs, seed, workers=workers, deadline=deadline)


def zoo_rules(make_env: Callable[[], Any], *, max_cycles: int | None = None) -> ZooRules:
    """Return a third-party environment for ``corral.train``; arguments as for ``make_zoo_batch``.

    from mpe2 import simple_spread_v3
    run = corral.train(zoo_rules(simple_spread_v3.parallel_env), trainer="mappo")
    """
    if max_cycles is not None and max_cycles < 1:
        raise ValueError(f"max_cycles={max_cycles}: give 1 or more, or None")
    example = make_env()
    try:
        spec = ZooSpec.of(example, max_cycles)
    finally:
        if hasattr(example, "close"):
            example.close()
    return ZooRules(**vars(spec), make_env=make_env)


@dataclass(frozen=True, kw_only=True)
class ZooRules(ZooSpec):
    """The properties of rules that a trainer asks for, but for playing them: see ``zoo_rules``."""

    make_env: Callable[[], Any]

    render_modes: tuple[str, ...] = ()
    render_fps: int = 1
    illegal: Literal["raise"] = "raise"

    def make_batch(
        self, num_envs: int, seed: int | None = None, *, workers: int = 0, deadline: float = 60.0
    ) -> ZooBatch:
        """See ``make_zoo_batch``."""
        for name, value, least in (("num_envs", num_envs, 1), ("workers", workers, 0)):
            if value < least:
                raise ValueError(f"{name}={value}: give {least} or more")
        if not deadline > 0:
            raise ValueError(f"deadline={deadline}: give seconds, more than 0")
        group: LocalCopies | WorkerCopies = (
            WorkerCopies(self, self.make_env, num_envs, workers, deadline)
            if workers
            else LocalCopies(self, self.make_env, num_envs)
        )
        return ZooBatch(self, group, num_envs, seed)


class LocalCopies:
    """Copies in this process, stepped one after the other."""

    def __init__(self, spec: ZooSpec, make_env: Callable[[], Any], num_envs: int) -> None:
        self._spec, self._make_env, self._num_envs = spec, make_env, num_envs
        self._copies: list[ZooCopy] = []
        self._seed = 0

    def reset(self, seed: int | None) -> list[Look]:
        """Begin anew in every copy; ``seed`` seeds them all, None: they go on."""
        self._seed = self._seed if seed is None else seed
        while len(self._copies) < self._num_envs:
            self._copies.append(make_copy(self._make_env(), self._spec))
        pairs = zip(self._copies, generators(seed, self._num_envs), strict=True)
        return [self._named(i, None, copy.reset, rng) for i, (copy, rng) in enumerate(pairs)]

    def step(self, actions: Sequence[Actions]) -> list[Moved]:
        pairs = zip(self._copies, actions, strict=True)
        return [self._named(i, own, copy.step, own) for i, (copy, own) in enumerate(pairs)]

    def _named(self, number: int, played: Actions | None, call: Callable[..., Any], by: Any) -> Any:
        try:
            return call(by)
        except Exception as error:
            error.add_note(f"in {name_copy(number, self._seed, played)}")
            raise

    def close(self, quiet: bool = False) -> None:
        """End it; ``quiet``: whatever the environments do about it. May be called again."""
        while self._copies:
            try:
                self._copies.pop().close()
            except Exception:
                if not quiet:
                    self.close(quiet=True)
                    raise


class ZooBatch:
    """B copies of a PettingZoo environment; made by ``make_zoo_batch``. Close it after use."""

    autoreset_mode: Any = Batch.autoreset_mode
    resumes_exactly = False

    def __init__(
        self, rules: ZooRules, group: LocalCopies | WorkerCopies, num_envs: int, seed: int | None
    ) -> None:
        self.rules, self.num_envs, self.seed = rules, num_envs, seed
        self.name, self.agents, self.simultaneous = rules.name, rules.agents, rules.simultaneous
        self.max_cycles, self.illegal = rules.max_cycles, rules.illegal
        self.observation_space, self.action_space = rules.observation_space, rules.action_space
        self._group = group
        self._sizes = [rules.actions(i) for i in range(len(rules.agents))]  # None: not Discrete
        self._discrete = all(size is not None for size in self._sizes)
        self._alike = self._discrete and len(set(self._sizes)) == 1
        self._started = self._closed = False
        self._looks: list[Look] | None = None
        self._keys: dict[str, None] = {}  # of info, in the order in which they were first seen

    # --- Episodes --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> dict[str, Observation]:
        """Begin an episode in every copy; the first call, or one with a seed, seeds the copies.

        Raises what the environment raises, or WorkerError; then everything has been closed.
        """
        if self._closed:
            raise ResetNeededError(f"{self.name}: closed; make another with make_zoo_batch")
        if seed is None and not self._started:
            seed = self.seed
            if seed is None:
                seed = int(np.random.default_rng().integers(2**63))
        if seed is not None:
            self.seed = seed
        self._looks = None  # where it is broken off, another reset is needed
        self._look(self._moved(self._group.reset, seed))
        self._started = True
        return self._observations

    def step(self, actions: Array | Mapping[str, Array]) -> BatchStep:
        """Play ``actions``: int [B, N] where all are Discrete, else a dict agent -> [B, ...].

        Entries of agents that do not act are ignored. Raises ActionError or IllegalActionError
        before anything changes, ResetNeededError before the first reset, and what the environment
        raises, or WorkerError; then everything has been closed.
        """
        orders = self._checked(actions)
        self._looks = None
        moved = self._moved(self._group.step, orders)
        self._look([part.look for part in moved])
        for part in moved:
            self._keys.update(dict.fromkeys(part.info))
        nothing = np.zeros(len(self.agents))
        over = [row for row, part in enumerate(moved) if part.final is not None]
        finals = [part.final for part in moved if part.final is not None]
        finished = None
        if finals:
            finished = Finished(
                rows=np.array(over, dtype=np.int64),
                observations=self._stacked([final.look for final in finals]),
                global_state=np.stack([final.look.state for final in finals]),
                returns=np.stack([final.returns for final in finals]),
                lengths=np.array([final.length for final in finals], dtype=np.int64),
            )
        return BatchStep(
            observations=self._observations,
            reward=np.stack([part.reward for part in moved]).astype(np.float32),
            terminated=np.stack([part.terminated for part in moved]),
            truncated=np.stack([part.truncated for part in moved]),
            acting=self.acting,
            info={
                key: np.stack([part.info.get(key, nothing) for part in moved]) for key in self._keys
            },
            finished=finished,
        )

    def global_state(self) -> Array:
        """Return ``env.state()`` where it works, else all observations: float32 [B, G]."""
        return np.stack([look.state for look in self._require_reset()])

    def sample_actions(self, rng: np.random.Generator) -> Any:
        """Return random legal actions, as ``step`` takes them; 0 for agents that do not act.

        Where a Box has no bound, they are drawn within 1 of 0, or of the bound that it has.
        """
        self._require_reset()
        if self._alike:
            masks = np.stack(self._masks, axis=1)  # type: ignore[arg-type]  # [B, N, A]
            legal = masks.reshape(-1, masks.shape[-1])
            return sample_legal(legal, rng).reshape(self.num_envs, -1)
        drawn = {
            agent: random_actions(self.rules.action_space(agent), mask, self.num_envs, rng)
            for agent, mask in zip(self.agents, self._masks, strict=True)
        }
        return np.stack(list(drawn.values()), axis=1) if self._discrete else drawn

    # --- The end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the environments, within 5 s where they are in workers; may be called again.

        Raises, when all has ended, what an environment raised, or WorkerError.
        """
        self._closed, self._looks = True, None
        self._group.close()

    def __enter__(self) -> ZooBatch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.close()
        else:  # which must not be hidden by another
            self._shut()

    def snapshot(self) -> dict[str, Any]:
        """Raises CheckpointError: nothing can save the state of third-party environments."""
        raise CheckpointError(
            f"{self.name} is a third-party environment, whose state cannot be saved; save what was "
            "learned, and begin new episodes with reset() when resuming"
        )

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Raises CheckpointError, see ``snapshot``."""
        raise CheckpointError(
            f"{self.name} is a third-party environment, which cannot go on from a snapshot; call "
            "reset()"
        )

    def _moved(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return what ``call`` returns; where it raises, copies are out of step, and all ends."""
        try:
            return call(*given)
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        self._closed, self._looks = True, None
        self._group.close(quiet=True)

    def _look(self, looks: list[Look]) -> None:
        self._looks = looks
        self._observations = self._stacked(looks)
        self.acting = np.stack([look.acting for look in looks])
        # Kept apart, and as they are: the dicts of the observations are the caller's.
        self._masks = [
            None if size is None else self._observations[agent][MASK].copy()
            for agent, size in zip(self.agents, self._sizes, strict=True)
        ]

    def _stacked(self, looks: Sequence[Look]) -> dict[str, Observation]:
        return {
            agent: _stack([look.observations[i] for look in looks])
            for i, agent in enumerate(self.agents)
        }

    def _checked(self, actions: Any) -> list[dict[str, Any]]:
        """Return the actions of those who act, copy by copy."""
        self._require_reset()
        if self._discrete:
            shape = (self.num_envs, len(self.agents))
            given = require_integers(actions, shape, "copies x agents")
            columns = [given[:, i] for i in range(len(self.agents))]
        else:
            if not isinstance(actions, Mapping) or set(actions) != set(self.agents):
                raise ActionError(
                    f"give a dict of one array [{self.num_envs}, ...] for each of "
                    f"{', '.join(self.agents)}"
                )
            columns = [actions[agent] for agent in self.agents]
        columns = [self._column(i, values) for i, values in enumerate(columns)]
        acting = self.acting.tolist()
        return [
            {agent: columns[i][row] for i, agent in enumerate(self.agents) if acting[row][i]}
            for row in range(self.num_envs)
        ]

    def _column(self, column: int, values: Any) -> Array:
        """Return one agent's checked actions [B, ...]."""
        agent, acts = self.agents[column], self.acting[:, column]
        space: Any = self.rules.action_space(agent)
        shape = (self.num_envs, *space.shape)
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            refuse_masked_arrays(values)
            try:
                given = np.asarray(values)
            except ValueError:
                given = np.zeros(0)
            if given.dtype.kind not in "fiu" or given.shape != shape:
                raise ActionError(
                    f"{agent}: actions are {given.dtype} {given.shape}; give numbers of shape "
                    f"{shape}"
                )
            given = given.astype(space.dtype)
        else:
            given = require_integers(values, shape, f"copies x actions of {agent}")
        if isinstance(space, spaces.Box):
            low, high = space.low, space.high
        elif isinstance(space, spaces.MultiDiscrete):
            low, high = space.start, space.start + space.nvec - 1
        else:
            low, high = np.zeros((), np.int64), np.asarray(space.n - 1)
        inside = (given >= low) & (given <= high) & np.isfinite(given)  # no NaN passes
        wrong = acts & ~inside.reshape(self.num_envs, -1).all(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise ActionError(
                f"copy {row}, {agent}: action {given[row].tolist()} is out of range; "
                f"give {_bounds(low, high)}"
            )
        mask = self._masks[column]
        if mask is not None:
            rows = np.flatnonzero(acts)
            illegal = rows[mask[rows, given[rows]] == 0]
            if len(illegal):
                row = int(illegal[0])
                require_legal(f"copy {row}, {agent}", int(given[row]), mask[row])
        return given if isinstance(space, spaces.Discrete) else given.astype(space.dtype)

    def _require_reset(self) -> list[Look]:
        if self._looks is None:
            what = "closed; make another with make_zoo_batch" if self._closed else "call reset()"
            raise ResetNeededError(f"{self.name}: {what}")
        return self._looks


def _stack(trees: Sequence[Any]) -> Any:
    """Return trees of arrays [...] as one tree of arrays [R, ...]."""
    if isinstance(trees[0], dict):
        return {key: _stack([tree[key] for tree in trees]) for key in trees[0]}
    return np.stack(trees)


def _bounds(low: Array, high: Array) -> str:
    """Return "0..3", or the bounds of each number where they differ."""
    if low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return f"{low.flat[0]}..{high.flat[0]}"
    return f"from {low.tolist()} to {high.tolist()}"
