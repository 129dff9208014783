"""Stable-Baselines3's PPO and sb3-contrib's MaskablePPO for teams, with the masks kept.

Rollouts are collected here, for both, because Stable-Baselines3's own loop knows one policy per
VecEnv: the columns of a VecEnv (copy * N + agent) go to the policies that the agents are mapped to,
each with its own rollout buffer. Losses, optimizer, buffers and networks are Stable-Baselines3's.

At the time limit an episode is cut, not over: the value of the last observation is added to the
last reward, discounted, as Stable-Baselines3 does it (Pardo et al., Time Limits in Reinforcement
Learning, 2018).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger

from corral.adapters.sb3.policies import MaskablePolicy, MaskedPolicy
from corral.adapters.sb3.vec_env import BatchVecEnv, ColumnVecEnv
from corral.adapters.spaces import ColumnCodec, refuse_turns
from corral.adapters.supersuit import vectorize
from corral.envs.batch import make_batch
from corral.envs.core import Array, Rules, generator
from corral.envs.masks import MASK
from corral.envs.shells import ParallelShell
from corral.errors import CheckpointError
from corral.extras import require
from corral.trainers.base import Content, Episode, Update, unwrapped
from corral.trainers.on_policy import saving
from corral.trainers.on_policy.learner import require_device
from corral.trainers.on_policy.saving import checkpoint_of, load_policy, policy_arrays
from corral.trainers.policies import NetworkPolicy, sb3_policy
from corral.trainers.rng import GlobalGenerators
from corral.trainers.sb3.settings import SB3Settings
from corral.trainers.sb3.steps import ended, interrupts_ignored, require_finite

__all__ = ["SB3PPO", "SB3MaskablePPO"]

SAME = (
    *("n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda", "clip_range", "ent_coef"),
    *("vf_coef", "max_grad_norm", "target_kl", "device"),
)
"""Settings that are arguments of Stable-Baselines3's algorithms, by the same names."""


@dataclass
class Learner:
    """One policy: Stable-Baselines3's model of it, and the columns that it plays."""

    model: Any  # PPO or MaskablePPO, without a VecEnv
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


class SB3PPO:
    """PPO whose policy reads the mask from the observation. See ``SB3Settings``."""

    name: ClassVar[str] = "sb3_ppo"
    Settings = SB3Settings
    plays_turns: ClassVar[bool] = False
    algorithm: ClassVar[type] = PPO
    policy_class: ClassVar[type] = MaskedPolicy

    def __init__(
        self,
        rules: Rules[Any],
        settings: SB3Settings,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
    ) -> None:
        """Raises UnsupportedSpaceError for turn-based games and agents that differ."""
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
        self._resumed: dict[str, Any] | None = None  # a snapshot for the VecEnv to come
        self._starts: Array | None = None  # bool [C] columns whose episode has just begun
        if settings.vec_env == "batch":  # SuperSuit's copies step themselves
            self.wrap_batch = unwrapped

    def _learner(self, name: str, index: int, trained: bool) -> Learner:
        agents = [i for i, agent in enumerate(self.rules.agents) if self._policy_of[agent] == name]
        n = len(self.rules.agents)
        columns = (n * np.arange(self.settings.num_envs)[:, None] + agents).reshape(-1)
        rate = self.settings.learning_rate
        model = self.algorithm(
            self.policy_class,
            None,
            learning_rate=(lambda left: rate * max(0.0, left)) if self.settings.anneal else rate,
            policy_kwargs={"net_arch": list(self.settings.net_arch)},
            seed=int(generator(self.seed, "init", index).integers(2**31)),
            _init_setup_model=False,
            **{name: getattr(self.settings, name) for name in SAME},
        )
        # What Stable-Baselines3 reads off a VecEnv. It gets none: its loop is not used.
        model.observation_space = self.layout.observation_space
        model.action_space = self.layout.action_space
        model.n_envs = len(columns)
        model._setup_model()
        model.set_logger(Logger(folder=None, output_formats=[]))
        return Learner(model, columns, trained)

    @property
    def policies(self) -> dict[str, NetworkPolicy]:
        found = {}
        for agent in self.rules.agents:
            policy = self._learners[self._policy_of[agent]].model.policy
            space = self.rules.observation_space(agent)
            found[agent] = sb3_policy(policy, self.layout, space, agent)
        return found

    def values(self, observations: Mapping[str, Any], state: Any = None) -> dict[str, Array]:
        """Return V of what each agent observes, [R, ...]: float32 [R]."""
        found = {}
        for i, agent in enumerate(self.rules.agents):
            own, learner = observations[agent], self._learners[self._policy_of[agent]]
            learner.model.policy.set_training_mode(False)
            entries = self.layout.flat(own, (len(own[MASK]),), i)
            found[agent] = learner.values(entries).cpu().numpy().reshape(-1)
        return found

    @property
    def resumes_exactly(self) -> bool:
        """False over SuperSuit, and of third-party environments: nothing can save their state."""
        return self.settings.vec_env == "batch" and not hasattr(self.rules, "make_batch")

    # --- Training --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ValueError where the device is not there, on which Stable-Baselines3 would take the
        CPU, and MissingExtraError where SuperSuit is asked for and not installed."""
        require_device(self.settings.device)
        if self.settings.vec_env == "supersuit":
            require("supersuit", extra="supersuit", purpose="train with vec_env='supersuit'")

    @property
    def rollout_steps(self) -> int:
        """Env steps of a rollout, over all environments together."""
        return int(self.settings.num_envs * self.settings.n_steps)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Rollouts and updates as long as whole rollouts fit into ``steps``, at least one.

        Default: those that it was made for, over which the learning rate is annealed.
        """
        self.check()
        per_rollout = self.rollout_steps
        last = max(1, (self.steps if steps is None else steps) // per_rollout) * per_rollout
        obs = self._begin()
        while self.env_steps < last:
            with self._generators:
                obs, episodes, seconds = self._collect(obs)
                self.env_steps += per_rollout
                clock = time.perf_counter()
                metrics = self._update()
                seconds["learning"] = time.perf_counter() - clock
            means = self._rewards / per_rollout  # [N]
            rewards = dict(zip(self.rules.agents, means.tolist(), strict=True))
            yield Update(self.env_steps, episodes, metrics, seconds, rewards)

    def _begin(self) -> dict[str, Array]:
        """Return the observations [C, ...] to go on from; begin episodes where there are none."""
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
            vec_env = BatchVecEnv(self.wrap_batch(make_batch(self.rules, num_envs)), agent_id)
            vec_env.seed(self.seed)
            return vec_env
        with interrupts_ignored():  # a Ctrl-C is for this process; it ends the workers
            make = getattr(self.rules, "make", None)  # of third-party environments
            env = ParallelShell(self.rules) if make is None else make()
            return vectorize(env, num_envs, self.settings.cpus, self.seed, agent_id)

    def _collect(
        self, obs: dict[str, Array]
    ) -> tuple[dict[str, Array], list[Episode], dict[str, float]]:
        """Fill the rollout buffers of the policies that train.

        Returns the next observations [C, ...], the episodes that ended, and seconds spent.
        """
        vec_env, starts = self._vec_env, self._starts
        assert vec_env is not None
        assert starts is not None
        episodes: list[Episode] = []
        seconds = {"env": 0.0, "inference": 0.0}
        self._rewards = np.zeros(len(self.rules.agents))  # [N] sums over the rollout
        for learner in self._learners.values():
            learner.model.policy.set_training_mode(False)
            learner.model.rollout_buffer.reset()
        for _ in range(self.settings.n_steps):
            clock = time.perf_counter()
            actions = np.empty(vec_env.num_envs, dtype=np.int64)  # [C]
            chosen = {}
            for name, learner in self._learners.items():
                own = learner.own(obs)
                chosen[name] = (own, *self._choose(learner.model, own))
                actions[learner.columns] = chosen[name][1]
            seconds["inference"] += time.perf_counter() - clock
            clock = time.perf_counter()
            obs, rewards, dones, infos = vec_env.step(actions)  # type: ignore[assignment]
            require_finite(rewards, obs, infos, dones, self.rules.agents)
            self._rewards += rewards.reshape(-1, len(self.rules.agents)).sum(axis=0)
            episodes += ended(infos, dones, self.rules.agents)
            seconds["env"] += time.perf_counter() - clock
            clock = time.perf_counter()
            for name, learner in self._learners.items():
                if learner.trained:
                    own, taken, values, log_probs = chosen[name]
                    learner.model.rollout_buffer.add(
                        own,
                        taken.reshape(-1, 1),
                        self._bootstrapped(learner, rewards, dones, infos),
                        starts[learner.columns],
                        values,
                        log_probs,
                        **self._masks(own),
                    )
            starts = dones
            seconds["inference"] += time.perf_counter() - clock
        self._starts = starts
        for learner in self._learners.values():
            if learner.trained:
                learner.model.rollout_buffer.compute_returns_and_advantage(
                    learner.values(learner.own(obs)), starts[learner.columns]
                )
        return obs, episodes, seconds

    def _choose(self, model: Any, own: dict[str, Array]) -> tuple[Array, Any, Any]:
        """Return actions int64 [P], values and log-probabilities (tensors) for own [P, ...]."""
        with torch.no_grad():
            tensors, _ = model.policy.obs_to_tensor(own)
            actions, values, log_probs = model.policy(tensors, **self._masks(own))
        return actions.cpu().numpy(), values, log_probs

    def _masks(self, own: dict[str, Array]) -> dict[str, Array]:
        """Return what policy and buffer get besides the observations [P, ...]."""
        return {}

    def _bootstrapped(
        self, learner: Learner, rewards: Array, dones: Array, infos: list[dict[str, Any]]
    ) -> Array:
        """Return the rewards [P] of a policy's columns; where the time limit cut, with the
        discounted value of the last observation."""
        own: Array = rewards[learner.columns].copy()
        ended = np.flatnonzero(dones[learner.columns]).tolist()
        cut = [i for i in ended if infos[learner.columns[i]]["TimeLimit.truncated"]]
        if cut:
            last = [infos[learner.columns[i]]["terminal_observation"] for i in cut]
            stacked = {key: np.stack([obs[key] for obs in last]) for key in last[0]}
            own[cut] += self.settings.gamma * learner.values(stacked).cpu().numpy().reshape(-1)
        return own

    def _update(self) -> dict[str, float]:
        """Run Stable-Baselines3's epochs of minibatches for each policy that trains."""
        metrics: dict[str, float] = {}
        # As far as training was before this rollout: Stable-Baselines3 counts it as done, and so
        # spends the last one with a learning rate of 0.
        before = self.env_steps - self.settings.num_envs * self.settings.n_steps
        for name, learner in self._learners.items():
            if not learner.trained:
                continue
            model = learner.model
            model._update_current_progress_remaining(before, self.steps)
            model.train()
            prefix = f"{name}/" if len(self._learners) > 1 else ""
            for key, value in model.logger.name_to_value.items():
                metrics[prefix + key.removeprefix("train/")] = float(value)
            model.logger.name_to_value.clear()
            saving.require_finite_weights(name, model.policy)
        return metrics

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        generators, generator_arrays = self._generators.save()
        n_updates = {name: each.model._n_updates for name, each in self._learners.items()}
        document = {"env_steps": self.env_steps, "generators": generators, "n_updates": n_updates}
        arrays = {"generators": generator_arrays}
        for name, learner in self._learners.items():
            arrays |= policy_arrays(name, learner.model.policy)
        vec_env = self._vec_env if self.resumes_exactly else None
        if isinstance(vec_env, BatchVecEnv) and self._starts is not None:
            snapshot = vec_env.snapshot()
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
        """One zip of Stable-Baselines3 per policy."""
        paths = {folder / f"{name}.zip": each.model for name, each in self._learners.items()}
        for path, model in paths.items():
            model.save(path)
        return list(paths)

    def close(self) -> None:
        if self._vec_env is not None:
            self._vec_env.close()


class SB3MaskablePPO(SB3PPO):
    """sb3-contrib's MaskablePPO: the masks are handed over, stored and applied by it."""

    name: ClassVar[str] = "sb3_maskable_ppo"
    algorithm: ClassVar[type] = MaskablePPO
    policy_class: ClassVar[type] = MaskablePolicy

    def _learner(self, name: str, index: int, trained: bool) -> Learner:
        learner = super()._learner(name, index, trained)
        size = self.settings.batch_size
        decisions = len(learner.columns) * self.settings.n_steps
        if trained and decisions % size == 1:  # MaskablePPO normalises it to NaN
            raise ValueError(
                f"batch_size={size}: a rollout of policy {name} has {decisions} decisions, which "
                "leaves one alone in the last minibatch; give another batch_size, or n_steps"
            )
        return learner

    def _masks(self, own: dict[str, Array]) -> dict[str, Array]:
        return {"action_masks": own[MASK].astype(bool)}
