"""Vectorized copies of third-party PettingZoo environments, with the interface of Batch.

    from corral.envs.registry import NamedEnv
    make = NamedEnv("classic/tictactoe-v3")
    with make_zoo_batch(make, num_envs=16, seed=0, workers=4) as batch:
        observations = batch.reset()
        rng = np.random.default_rng(0)
        for _ in range(1000):
            step = batch.step(batch.sample_actions(rng))

Parallel and AEC environments have the same interface: ``acting`` marks the agents that act. In an
AEC environment, a step is the move of one agent. Autoreset, returns and ``finished`` are as in
Batch.

Trajectories do not depend on the number of workers, if the environments use their own random
generators. The first ``reset`` of copy r has a seed from ``generator(seed, "env", r)``; later
resets continue its stream. The state of third-party environments cannot be saved, so ``snapshot``
raises CheckpointError.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pettingzoo import AECEnv, ParallelEnv

from corral.adapters.seats import random_actions
from corral.adapters.zoo.copies import CopyStep, Observed
from corral.adapters.zoo.group import LocalCopies
from corral.adapters.zoo.spec import ZooSpec
from corral.adapters.zoo.turns import ZooTurns
from corral.adapters.zoo.workers import WorkerCopies
from corral.envs.batch import Batch, BatchStep, Copies, Finished
from corral.envs.core import Array, Observation
from corral.envs.masks import MASK, require_integers, sample_legal
from corral.envs.others.convert import EnvFactory, as_pettingzoo
from corral.envs.registry import REGISTERED
from corral.errors import ActionError, CheckpointError, ResetNeededError
from corral.memory import COPY, PROCESS, require_memory

__all__ = ["ZooBatch", "ZooRules", "make_zoo_batch", "stack_rows", "zoo_rules"]


def make_zoo_batch(
    make_env: Callable[[], Any] | ZooRules,
    num_envs: int,
    seed: int | None = None,
    *,
    workers: int = 0,
    deadline: float = 60.0,
    max_cycles: int | None = None,
) -> ZooBatch:
    """Return ``num_envs`` copies of the ParallelEnv or AECEnv that ``make_env()`` makes.

    Args:
        make_env: a function that is called once here, for the spaces, and once per copy, in the
            process of the copy; or the result of ``zoo_rules``.
        num_envs: number of copies, B.
        seed: seed of all copies; None: unpredictable, and stored as ``seed`` of the ZooBatch.
        workers: number of processes for the copies; 0: all run in this process. Workers pay off if
            a step of the environment takes longer than a message, about 0.2 ms.
        deadline: maximum seconds for a reset or step of one copy in a worker.
        max_cycles: time limit in steps, in addition to the environment's own limit.

    Raises:
        UnsupportedSpaceError: not a PettingZoo environment, or unsupported spaces.
        EnvironmentFault: the environment has no possible_agents.
        ValueError: copies, workers, deadline or max_cycles out of range.
    """
    if not isinstance(make_env, ZooRules):
        rules = zoo_rules(make_env, max_cycles=max_cycles)
    elif max_cycles is None:
        rules = make_env
    else:
        rules = zoo_rules(make_env.make_env, max_cycles=max_cycles)
    return rules.make_batch(num_envs, seed, workers=workers, deadline=deadline)


def zoo_rules(make_env: Callable[[], Any], *, max_cycles: int | None = None) -> ZooRules:
    """Return the rules of a third-party environment, for ``corral.train``.

    Arguments are as for ``make_zoo_batch``. ``make_env`` may also return an environment of
    Gymnasium, or an RLlib MultiAgentEnv, see ``corral.envs.others``.

    from mpe2 import simple_spread_v3
    run = corral.train(zoo_rules(simple_spread_v3.parallel_env), trainer="mappo")
    """
    if max_cycles is not None and max_cycles < 1:
        raise ValueError(f"max_cycles={max_cycles} must be 1 or more, or None")
    example = make_env()
    if not isinstance(example, AECEnv | ParallelEnv):
        make_env = EnvFactory(make_env)
        example = as_pettingzoo(example)
    try:
        spec = ZooSpec.of(example, max_cycles)
    finally:
        if hasattr(example, "close"):
            example.close()
    if spec.name in REGISTERED:  # a wrapped environment of corral differs from corral's
        spec = dataclasses.replace(spec, name=f"wrapped_{spec.name}")
    values = {field.name: vars(spec)[field.name] for field in dataclasses.fields(spec)}
    return ZooRules(**values, make_env=make_env)


@dataclass(frozen=True, kw_only=True)
class ZooRules(ZooSpec):
    """The properties of third-party rules that a trainer needs, see ``zoo_rules``."""

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
                raise ValueError(f"{name}={value} must be {least} or more")
        if not deadline > 0:
            raise ValueError(f"deadline={deadline} must be more than 0 seconds")
        processes = min(workers, num_envs)
        require_memory(
            {f"num_envs={num_envs}": COPY * num_envs, f"workers={workers}": PROCESS * processes}
        )
        group: LocalCopies | WorkerCopies = (
            WorkerCopies(self, self.make_env, num_envs, workers, deadline)
            if workers
            else LocalCopies(self, self.make_env, num_envs)
        )
        return ZooBatch(self, group, num_envs, seed)

    def make_turns(self, agent: str, render_mode: str | None = None) -> ZooTurns:
        """Return one copy in which agents act one after another, for ``SeatEnv``."""
        return ZooTurns(self.without_state(), self.make(render_mode), agent)

    def without_state(self) -> ZooRules:
        """Return these rules without the global state, which may be slower than a step."""
        return dataclasses.replace(self, state_size=0)

    def make(self, render_mode: str | None = None) -> Any:
        """Return a new environment. Passes ``render_mode`` to ``make_env`` if it has this argument.

        Raises ValueError if the environment does not have the ``render_mode``.
        """
        if render_mode is None:
            return self.make_env()
        try:
            inspect.signature(self.make_env).bind(render_mode=render_mode)
        except (TypeError, ValueError):  # no such argument, or no signature
            env = self.make_env()
        else:
            env = self.make_env(render_mode=render_mode)  # type: ignore[call-arg]
        modes = list(env.metadata.get("render_modes", ()))
        if render_mode not in modes or getattr(env, "render_mode", render_mode) != render_mode:
            env.close()
            raise ValueError(
                f"render_mode={render_mode!r}: {self.name} has {modes}. Pass one of these modes, "
                "and a make_env with the argument render_mode= (a name, a function or a class), or "
                "an environment with this render_mode"
            )
        return env


class ZooBatch(Copies):
    """B copies of a PettingZoo environment, made by ``make_zoo_batch``. Close it after use."""

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
        self._same_actions = self._discrete and len(set(self._sizes)) == 1
        self._started = self._closed = False
        self._looks: list[Observed] | None = None
        self._no_info = np.zeros(len(self.agents))
        self._keys: dict[str, None] = {}  # info keys in order of first appearance

    # --- Episodes --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> dict[str, Observation]:
        """Begin an episode in every copy. The first call, or a call with a seed, seeds the copies.

        Raises the errors of the environment, or WorkerError. Then all copies are closed.
        """
        if self._closed:
            raise ResetNeededError(f"{self.name} is closed; make a new one with make_zoo_batch")
        if seed is None and not self._started:
            seed = self.seed
            if seed is None:
                seed = int(np.random.default_rng().integers(2**63))
        if seed is not None:
            self.seed = seed
        self._looks = None  # an interrupted reset requires another reset
        self._resting = np.zeros(self.num_envs, dtype=bool)
        self._look(self._moved(self._group.reset, seed))
        self._started = True
        return self._observations

    def step(self, actions: Array | Mapping[str, Array]) -> BatchStep:
        """Play ``actions``: int [B, N] if all are Discrete, else a dict agent -> [B, ...].

        Entries of agents that do not act are ignored. Raises ActionError or IllegalActionError
        before anything changes, and ResetNeededError before the first reset. Raises the errors of
        the environment, or WorkerError; then all copies are closed.
        """
        orders, looks = self._checked(actions), self._require_reset()
        self._looks = None
        moved = [
            _resting_step(looks[row]) if part is None else part
            for row, part in enumerate(self._moved(self._group.step, orders))
        ]
        self._look([part.look for part in moved])
        for part in moved:
            self._keys.update(dict.fromkeys(part.info))
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
                key: np.stack([part.info.get(key, self._no_info) for part in moved])
                for key in self._keys
            },
            finished=finished,
        )

    def rest(self, rows: Array) -> None:
        """Do not step the copies ``rows`` [R] until the next reset.

        No agent acts in these copies, and observations do not change.
        """
        looks = self._require_reset()
        for row in rows.tolist():
            looks[row] = dataclasses.replace(looks[row], acting=np.zeros_like(self.acting[row]))
        self._resting[rows] = True
        self.acting[rows] = False

    def first_info(self, rows: Array | slice = slice(None)) -> dict[str, Array]:
        """Return the info of R copies at the start of an episode: [R, N] by key."""
        looks = [self._require_reset()[row] for row in np.arange(self.num_envs)[rows]]
        keys, nothing = dict.fromkeys(k for look in looks for k in look.info), self._no_info
        return {key: np.stack([look.info.get(key, nothing) for look in looks]) for key in keys}

    def global_state(self) -> Array:
        """Return ``env.state()`` if it exists, else all observations: float32 [B, G]."""
        return np.stack([look.state for look in self._require_reset()])

    def sample_actions(self, rng: np.random.Generator) -> Any:
        """Return random legal actions for ``step``; 0 for agents that do not act.

        For a Box without bounds, numbers are in -1 .. 1. With one bound, they are within 1 of it.
        """
        self._require_reset()
        if self._same_actions:
            masks = np.stack(self._masks, axis=1)  # type: ignore[arg-type]  # [B, N, A]
            legal = masks.reshape(-1, masks.shape[-1])
            return sample_legal(legal, rng).reshape(self.num_envs, -1)
        drawn = {
            agent: random_actions(self.rules.action_space(agent), mask, self.num_envs, rng)
            for agent, mask in zip(self.agents, self._masks, strict=True)
        }
        return np.stack(list(drawn.values()), axis=1) if self._discrete else drawn

    # --- Closing, saving -------------------------------------------------------------------------

    def close(self) -> None:
        """Close the environments, within 5 s for workers. Repeated calls are allowed.

        Afterwards, raises the error of an environment, or WorkerError.
        """
        self._closed, self._looks = True, None
        self._group.close()

    def __enter__(self) -> ZooBatch:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.close()
        else:  # the error must not be hidden by another one
            self._shut()

    def snapshot(self) -> dict[str, Any]:
        """Raise CheckpointError: the state of third-party environments cannot be saved."""
        raise CheckpointError(
            f"{self.name} is a third-party environment, and its state cannot be saved; save the "
            "policies, and begin new episodes with reset() when resuming"
        )

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Observation]:
        """Raise CheckpointError, see ``snapshot``."""
        raise CheckpointError(
            f"{self.name} is a third-party environment, and cannot resume from a snapshot; call "
            "reset()"
        )

    def _moved(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return ``call(*given)``. After an error copies are out of step, so all are closed."""
        try:
            return call(*args)
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        self._closed, self._looks = True, None
        self._group.close(quiet=True)

    def _look(self, looks: list[Observed]) -> None:
        self._looks = looks
        self._observations = self._stacked(looks)
        self.acting = np.stack([look.acting for look in looks])
        # Copies, because callers may change the observations.
        self._masks = [
            None if size is None else self._observations[agent][MASK].copy()
            for agent, size in zip(self.agents, self._sizes, strict=True)
        ]

    def _stacked(self, looks: Sequence[Observed]) -> dict[str, Observation]:
        return {
            agent: stack_rows([look.observations[i] for look in looks])
            for i, agent in enumerate(self.agents)
        }

    def _checked(self, actions: Any) -> list[dict[str, Any] | None]:
        """Return the actions of the acting agents, per copy; None for a copy at rest."""
        self._require_reset()
        if self._discrete:
            shape = (self.num_envs, len(self.agents))
            checked = require_integers(actions, shape, "copies x agents")
            columns = [checked[:, i] for i in range(len(self.agents))]
        else:
            if not isinstance(actions, Mapping) or set(actions) != set(self.agents):
                raise ActionError(
                    f"actions must be a dict of one array [{self.num_envs}, ...] for each of "
                    f"{', '.join(self.agents)}"
                )
            columns = [actions[agent] for agent in self.agents]
        columns = [
            self.rules.checked(i, values, self.acting[:, i], self._masks[i])
            for i, values in enumerate(columns)
        ]
        acting = self.acting.tolist()
        return [
            None
            if self._resting[row]
            else {agent: columns[i][row] for i, agent in enumerate(self.agents) if acting[row][i]}
            for row in range(self.num_envs)
        ]

    def _require_reset(self) -> list[Observed]:
        if self._looks is None:
            what = "closed; make a new one with make_zoo_batch" if self._closed else "call reset()"
            raise ResetNeededError(f"{self.name}: {what}")
        return self._looks


def _resting_step(look: Observed) -> CopyStep:
    """Return the result for a copy that is not stepped."""
    count = len(look.acting)
    none = np.zeros(count, dtype=bool)
    return CopyStep(look, np.zeros(count), none, none.copy(), {}, None)


def stack_rows(trees: Sequence[Any]) -> Any:
    """Return trees of arrays [...] as one tree of arrays [R, ...]."""
    if isinstance(trees[0], dict):
        return {key: stack_rows([tree[key] for tree in trees]) for key in trees[0]}
    shape = trees[0].shape
    if not shape:
        return np.stack(trees)
    return np.concatenate(trees).reshape(len(trees), *shape)  # np.stack takes twice the time
