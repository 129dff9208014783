"""Common base of the Stable-Baselines3 trainers: models, policies, the VecEnv, saving.

Stable-Baselines3's own loop supports one policy per VecEnv. Here each column of a VecEnv
(copy * N + agent) goes to the policy of its agent, and each policy is a separate model. Losses,
optimizers, buffers and networks are Stable-Baselines3's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from corral.adapters.sb3.vec_env import BatchVecEnv, ColumnVecEnv
from corral.adapters.spaces import ColumnCodec, refuse_turns
from corral.adapters.supersuit import vectorize
from corral.envs.batch import make_batch
from corral.envs.core import Array, Rules, generator, plays_as_arrays, third_party
from corral.envs.masks import MASK
from corral.envs.shells import ParallelShell
from corral.errors import CheckpointError
from corral.extras import require
from corral.trainers.base import Episode, Trainer, Update
from corral.trainers.capabilities import Capabilities
from corral.trainers.content import Content, checkpoint_of
from corral.trainers.on_policy.learner import require_device
from corral.trainers.on_policy.saving import load_policy, policy_arrays
from corral.trainers.policies import NetworkPolicy, sb3_policy, unmasked
from corral.trainers.rng import GlobalGenerators
from corral.trainers.sb3.steps import ended, interrupts_ignored, require_finite

__all__ = ["Learner", "Rollout", "SB3Trainer", "Step"]

Step = tuple[dict[str, Array], Array, Array, list[dict[str, Any]]]
"""Result of a VecEnv's step: observations [C, ...], rewards [C], dones [C], infos."""


@dataclass
class Learner:
    """One policy: its Stable-Baselines3 model, and its columns."""

    model: Any  # a Stable-Baselines3 algorithm without a VecEnv
    columns: Array  # int64 [P] copy * N + agent
    trained: bool

    def own(self, obs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the policy's columns [P, ...] of observations [C, ...]."""
        return {key: values[self.columns] for key, values in obs.items()}

    def values(self, own: Mapping[str, Array]) -> torch.Tensor:
        """Return V of observations [R, ...]: [R, 1]."""
        with torch.no_grad():
            tensors, _ = self.model.policy.obs_to_tensor(own)
            values: torch.Tensor = self.model.policy.predict_values(tensors)
        return values


@dataclass
class Rollout:
    """Counters between two rows of progress."""

    rewards: Array  # [N] sums over the env steps
    episodes: list[Episode] = field(default_factory=list)
    seconds: dict[str, float] = field(
        default_factory=lambda: {"env": 0.0, "inference": 0.0, "learning": 0.0}
    )

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Add the block's run time to the seconds of ``what``."""
        began = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - began


class SB3Trainer(Trainer):
    """A trainer of columns. Subclasses choose an algorithm and implement learning from a rollout.

    ``arguments`` are the settings that the algorithm takes under the same names.
    """

    name: ClassVar[str]
    Settings: ClassVar[type]
    capabilities = Capabilities(turns=False)
    algorithm: ClassVar[type]
    policy_class: ClassVar[type]
    arguments: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        rules: Rules[Any],
        settings: Any,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
    ) -> None:
        """Raises UnsupportedSpaceError for turn-based games and agents with different spaces."""
        if not rules.simultaneous:
            refuse_turns(rules.name)
        self.rules, self.settings, self.seed, self.steps = rules, settings, seed, steps
        self.layout = ColumnCodec.of(rules, rules.name, rules.agents, settings.agent_id)
        self.env_steps = 0
        self._policy_of = dict(policies)
        self._generators = GlobalGenerators(seed)
        with self._generators:
            self._learners = {
                name: self._learner(name, index, name in policies_to_train)
                for index, name in enumerate(dict.fromkeys(policies.values()))
            }
        self._vec_env: ColumnVecEnv | None = None
        self._resumed: dict[str, Any] | None = None  # a snapshot for the next VecEnv
        self._starts: Array | None = None  # bool [C] columns at the start of an episode
        self._wraps: list[Callable[[Any], Any]] = []  # wrappers of the batch, see ``wrap_batches``

    def _learner(self, name: str, index: int, trained: bool) -> Learner:
        agents = [i for i, agent in enumerate(self.rules.agents) if self._policy_of[agent] == name]
        n = len(self.rules.agents)
        columns = (n * np.arange(self.settings.num_envs)[:, None] + agents).reshape(-1)
        rate = self.settings.learning_rate
        model = self.algorithm(
            self.policy_class,
            None,
            learning_rate=(lambda remaining: rate * max(0.0, remaining))
            if self.settings.anneal
            else rate,
            seed=int(generator(self.seed, "init", index).integers(2**31)),
            _init_setup_model=False,
            **self._arguments(len(agents), trained),
        )
        # Stable-Baselines3 reads these from a VecEnv, which this model does not get.
        model.observation_space = self.layout.observation_space
        model.action_space = self._action_space()
        model.n_envs = len(columns)
        model._setup_model()
        model.set_logger(Logger(folder=None, output_formats=[]))
        return Learner(model, columns, trained)

    def _arguments(self, agents: int, trained: bool) -> dict[str, Any]:
        """Return the algorithm's arguments for a policy with ``agents`` agents."""
        arguments = {name: getattr(self.settings, name) for name in self.arguments}
        return {"policy_kwargs": {"net_arch": list(self.settings.net_arch)}, **arguments}

    def _action_space(self) -> Any:
        """Return the action space for a new model."""
        return self.layout.action_space

    @property
    def policies(self) -> dict[str, NetworkPolicy]:
        network_policies = {}
        for agent in self.rules.agents:
            policy = self._learners[self._policy_of[agent]].model.policy
            space = self.rules.observation_space(agent)
            network_policies[agent] = sb3_policy(
                policy, self.layout, space, agent, unmasked=unmasked(self.rules, agent)
            )
        return network_policies

    def values(self, observations: Mapping[str, Any], state: Any = None) -> dict[str, Array]:
        """Return V of each agent's observations [R, ...]: float32 [R]."""
        result = {}
        for i, agent in enumerate(self.rules.agents):
            observation, learner = observations[agent], self._learners[self._policy_of[agent]]
            learner.model.policy.set_training_mode(False)
            entries = self.layout.flat(observation, (len(observation[MASK]),), i)
            result[agent] = learner.values(entries).cpu().numpy().reshape(-1)
        return result

    @property
    def resumes_exactly(self) -> bool:
        """False with SuperSuit and in third-party environments: their state cannot be saved."""
        return self.settings.vec_env == "batch" and plays_as_arrays(self.rules)

    # --- Training --------------------------------------------------------------------------------

    def wrap_batches(self, wrap: Callable[[Any], Any]) -> bool:
        """Add a wrapper; return False with SuperSuit, which steps the copies itself."""
        self._wraps.append(wrap)
        return bool(self.settings.vec_env == "batch")

    def check(self) -> None:
        """Raise ValueError if the device is missing, instead of using the CPU silently.

        Raise MissingExtraError if SuperSuit is requested but not installed.
        """
        require_device(self.settings.device)
        if self.settings.vec_env == "supersuit":
            require("supersuit", extra="supersuit", purpose="train with vec_env='supersuit'")

    @property
    def rollout_steps(self) -> int:
        """Env steps of a rollout, over all environment copies."""
        return int(self.settings.num_envs * self.settings.n_steps)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates while whole rollouts fit into ``steps``, at least one.

        Default: the planned number of steps, over which settings are annealed.
        """
        self.check()
        per_rollout = self.rollout_steps
        last = max(1, (self.steps if steps is None else steps) // per_rollout) * per_rollout
        obs = self._begin()
        while self.env_steps < last:
            with self._generators:
                obs, rollout, metrics = self._learn_rollout(obs)
            means = rollout.rewards / per_rollout  # [N]
            rewards = dict(zip(self.rules.agents, means.tolist(), strict=True))
            yield Update(self.env_steps, rollout.episodes, metrics, rollout.seconds, rewards)

    def _learn_rollout(
        self, obs: dict[str, Array]
    ) -> tuple[dict[str, Array], Rollout, dict[str, float]]:
        """Play a rollout from observations [C, ...], learn from it, and count its env steps.

        Returns the next observations, the counters and the metrics.
        """
        raise NotImplementedError

    def _begin(self) -> dict[str, Array]:
        """Return the current observations [C, ...]; start new episodes if there is no saved
        state."""
        if self._vec_env is None:
            self._vec_env = self._make_vec_env()
        if self._resumed is not None and isinstance(self._vec_env, BatchVecEnv):
            try:
                obs = self._vec_env.restore(self._resumed)
            except ValueError as error:
                raise CheckpointError(str(error)) from error
        else:
            obs = self._vec_env.reset()
            self._starts = np.ones(self._vec_env.num_envs, dtype=bool)
        self._resumed = None
        return obs

    def _make_vec_env(self) -> ColumnVecEnv:
        num_envs, agent_id = self.settings.num_envs, self.settings.agent_id
        if self.settings.vec_env == "batch":
            batch: Any = make_batch(self.rules, num_envs)
            for wrap in self._wraps:
                batch = wrap(batch)
            vec_env = BatchVecEnv(batch, agent_id)
            vec_env.seed(self.seed)
            return vec_env
        with interrupts_ignored():  # only this process handles Ctrl-C, and it ends the workers
            rules: Any = self.rules
            env = rules.make() if third_party(rules) else ParallelShell(rules)
            return vectorize(env, num_envs, self.settings.cpus, self.seed, agent_id)

    def _step(self, actions: Array, rollout: Rollout) -> Step:
        """Step the VecEnv with actions [C], and update the counters."""
        assert self._vec_env is not None
        obs, rewards, dones, infos = self._vec_env.step(actions)
        assert isinstance(obs, dict)
        require_finite(rewards, obs, infos, dones, self.rules.agents)
        rollout.rewards += rewards.reshape(-1, len(self.rules.agents)).sum(axis=0)
        rollout.episodes += ended(infos, dones, self.rules.agents)
        self._starts = dones
        return obs, rewards, dones, infos

    def _logged(self, name: str, model: Any) -> dict[str, float]:
        """Return the metrics that a model logged since the last call, and clear them."""
        prefix = f"{name}/" if len(self._learners) > 1 else ""
        logged: dict[str, float] = {
            prefix + key.rpartition("/")[2]: float(value)
            for key, value in model.logger.name_to_value.items()
        }
        model.logger.name_to_value.clear()
        return logged

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        generators, generator_arrays = self._generators.save()
        n_updates = {name: item.model._n_updates for name, item in self._learners.items()}
        document = {"env_steps": self.env_steps, "generators": generators, "n_updates": n_updates}
        arrays = {"generators": generator_arrays}
        for name, learner in self._learners.items():
            arrays |= policy_arrays(name, learner.model.policy)
        vec_env = self._vec_env if self.resumes_exactly else None
        snapshot = None if self._resumed is None else dict(self._resumed)  # loaded but not started
        if isinstance(vec_env, BatchVecEnv) and self._starts is not None and snapshot is None:
            snapshot = vec_env.snapshot()
        if snapshot is not None and self._starts is not None:
            arrays["environment"] = {**snapshot.pop("arrays"), "starts": self._starts}
            document["environment"] = snapshot
        return Content({"trainer": document}, arrays)

    def load(self, content: Content) -> None:
        with checkpoint_of(self.name):
            document, arrays = content.documents["trainer"], content.arrays
            for name, learner in self._learners.items():
                load_policy(name, learner.model.policy, arrays)
                learner.model._n_updates = int(document["n_updates"][name])
            self.env_steps = int(document["env_steps"])
            self._generators.load(document["generators"], arrays["generators"])
            self._resumed, self._starts = None, None
            if self.resumes_exactly:
                environment = dict(arrays["environment"])
                self._starts = environment.pop("starts")
                self._resumed = {**document["environment"], "arrays": environment}

    def export(self, folder: Path) -> list[Path]:
        """Write one Stable-Baselines3 zip file per policy."""
        paths = {folder / f"{name}.zip": learner.model for name, learner in self._learners.items()}
        for path, model in paths.items():
            model.save(path)
        return list(paths)

    def close(self) -> None:
        if self._vec_env is not None:
            self._vec_env.close()
