"""RLlib's PPO for teams, with action masks, on one machine or on all nodes of a Ray cluster.

    corral train dfaas_v0 --trainer rllib_ppo --runners 2
    corral train dfaas_v0 --trainer rllib_ppo --runners 16 --address 10.0.0.1:6379

Runners play on any node; this process trains. If a runner or its node dies, training continues with
the other runners until Ray has started a new one.

This module keeps the networks as plain torch modules. Their weights are copied to RLlib and back
after each update, so a run can be saved, loaded and evaluated without Ray. Adam's moments and
unfinished episodes belong to RLlib; they start from the beginning when a run is resumed.

Training is reproducible with the same seed if this process also plays (``runners=0``) and the run
has one policy. With several policies RLlib iterates over sets of their names, in an order that
depends on PYTHONHASHSEED.

Returns are those that the environment counted (``corral.adapters.rllib.env``). RLlib's own returns
omit rewards of an agent before its first turn.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces

from corral.adapters.networks import MaskedActorCritic, describe
from corral.envs.core import Rules, generator
from corral.errors import WorkerError
from corral.extras import require
from corral.trainers.base import Episode, Trainer, Update
from corral.trainers.content import Content, checkpoint_of, require_arrays, shapes_of
from corral.trainers.on_policy.buffer import make_groups
from corral.trainers.on_policy.saving import (
    arrays_of,
    require_finite_weights,
    write_actor,
)
from corral.trainers.policies import NetworkPolicy, rllib_policy, unmasked
from corral.trainers.rllib.config import ppo_config
from corral.trainers.rllib.settings import RLlibPPOSettings
from corral.trainers.rng import GlobalGenerators

__all__ = ["RLlibPPO"]

METRICS = {
    "policy_loss": "policy_loss",
    "vf_loss": "value_loss",
    "entropy": "entropy",
    "mean_kl_loss": "approx_kl",
    "vf_explained_var": "explained_variance",
    "gradients_default_optimizer_global_norm": "grad_norm",
    "default_optimizer_learning_rate": "learning_rate",
}
"""Metrics: RLlib's name -> corral's name."""

OWN_RAY = {
    # Listen on the loopback interface only. Ray rejects 127.0.0.1 except on systems with this
    # variable.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray's default is 15, which starves runners next to any other load.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables for a new Ray; Ray reads them once, when it is imported."""

ANSWER = 5.0
"""Maximum time in seconds for a cluster's address to answer."""

RETRY = 0.5
"""Time in seconds before runners are asked for samples again."""

OBJECT_STORE = 256 * 2**20
"""Shared memory in bytes of a new Ray, for episodes and weights."""


class RLlibPPO(Trainer):
    """RLlib's PPO. See ``RLlibPPOSettings``."""

    name: ClassVar[str] = "rllib_ppo"
    Settings: ClassVar[type] = RLlibPPOSettings
    rollout_of: ClassVar[str] = "train_batch_size"

    def __init__(
        self,
        rules: Rules[Any],
        settings: RLlibPPOSettings,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
    ) -> None:
        """Raises UnsupportedSpaceError for actions that are not Discrete, and for different agents
        in one policy."""
        self.rules, self.settings, self.seed, self.steps = rules, settings, seed, steps
        self.env_steps = 0
        self.policy_of = dict(policies)
        self.trained = tuple(policies_to_train)
        self.groups = make_groups(rules, policies, settings.agent_id)
        self.identified = any(group.identities for group in self.groups)
        self._networks = {
            group.policy: self._network(group.agents[0], index)
            for index, group in enumerate(self.groups)
        }
        self._generators = GlobalGenerators(seed)
        self._algorithm: Any = None
        self._own_ray = False

    # --- Networks and policies -------------------------------------------------------------------

    def spaces(self, agent: str) -> tuple[spaces.Dict, spaces.Space[Any]]:
        """Return the agent's observation space in RLlibEnv, and its action space."""
        entries = dict(self.rules.observation_space(agent).spaces)
        if self.settings.critic_input == "state":
            shape = self.rules.state_space().shape
            entries["state"] = spaces.Box(-np.inf, np.inf, shape, np.float32)
        if self.identified:
            entries["agent"] = spaces.Box(0.0, 1.0, (len(self.rules.agents),), np.float32)
        return spaces.Dict(entries), self.rules.action_space(agent)

    @property
    def architecture(self) -> dict[str, Any]:
        """Arguments of MaskedActorCritic."""
        return {
            "net_arch": self.settings.net_arch,
            "activation": self.settings.activation,
            "cnn_arch": self.settings.cnn_layers,
        }

    def _network(self, agent: str, index: int) -> MaskedActorCritic:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(self.seed, "init", index).integers(2**63)))
            return MaskedActorCritic(*self.spaces(agent), **self.architecture)

    @property
    def policies(self) -> dict[str, NetworkPolicy]:
        identities = np.eye(len(self.rules.agents), dtype=np.float32)
        return {
            agent: rllib_policy(
                self._networks[self.policy_of[agent]],
                next(group for group in self.groups if agent in group.agents),
                agent,
                identities[i] if self.identified else None,
                unmasked=unmasked(self.rules, agent),
            )
            for i, agent in enumerate(self.rules.agents)
        }

    @property
    def resumes_exactly(self) -> bool:
        return False

    # --- Training --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MissingExtraError if Ray is not installed; only training needs it.

        Raise WorkerError if the address does not answer.
        """
        if self.settings.address == "local" and "ray" not in sys.modules:
            for name, value in OWN_RAY.items():
                os.environ.setdefault(name, value)
        require("ray.rllib", extra="rllib", purpose="train with rllib_ppo")
        host, colon, port = self.settings.address.rpartition(":")
        if colon and port.isdecimal():  # test here, because Ray itself tries for minutes
            try:
                socket.create_connection((host, int(port)), timeout=ANSWER).close()
            except (OSError, OverflowError) as error:
                raise self._no_cluster(error) from error

    @property
    def rollout_steps(self) -> int:
        """Env steps of an update."""
        return int(self.settings.train_batch_size)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates while whole ones fit into ``steps``, at least one.

        Default: the planned number of steps, over which settings are annealed. Raises WorkerError
        if the environment raises in a runner, or if no runner plays any more.
        """
        self.check()
        size = self.rollout_steps
        last = max(1, (self.steps if steps is None else steps) // size) * size
        if self._algorithm is None:
            self._start_ray()
            self._deterministic = torch.are_deterministic_algorithms_enabled()
            with self._generators:
                self._algorithm = self._build()
        heard = time.monotonic()
        while self.env_steps < last:
            clock = time.perf_counter()
            with self._generators:
                result = self._algorithm.train()
            played = result.get("env_runners", {})
            if faults := played.get("corral_faults"):
                raise WorkerError(f"{self.rules.name}, in a runner: {faults[0]}")
            sampled = played.get("num_env_steps_sampled", 0)
            if not sampled or math.isnan(sampled):  # NaN: all runners are lost or restarting
                silent = time.monotonic() - heard
                if silent > self.settings.patience:
                    raise WorkerError(
                        f"no runner has played for {silent:.0f} s (patience="
                        f"{self.settings.patience:g}): check the cluster with 'ray status', then "
                        "resume with corral train --resume"
                    )
                time.sleep(RETRY)
                continue
            heard = time.monotonic()
            self._fetch()
            self.env_steps += int(sampled)
            episodes = [Episode(**episode) for episode in played.get("corral_episodes") or ()]
            seconds = {"rllib": time.perf_counter() - clock}
            yield Update(self.env_steps, episodes, self._metrics(result), seconds)

    def _start_ray(self) -> None:
        """Connect to the cluster, or start a new Ray on this machine."""
        import ray

        for name in ("ray.rllib", "ray.tune"):  # hide needless warnings
            logging.getLogger(name).setLevel(logging.ERROR)
        if ray.is_initialized():  # the user has already chosen a cluster
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
        if self.settings.address == "local":
            cores = self.settings.runners * self.settings.cpus_per_runner
            options |= {
                "num_cpus": max(1, round(cores + 1)),
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE,
                "_node_ip_address": "127.0.0.1",
            }
        try:
            ray.init(address=self.settings.address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise self._no_cluster(error) from error
        self._own_ray = True

    def _no_cluster(self, error: Exception) -> WorkerError:
        return WorkerError(
            f"address={self.settings.address}: no Ray cluster answers: {error}. Start a cluster "
            "with 'ray start --head'; see docs/scaling.md"
        )

    def _build(self) -> Any:
        """Return RLlib's algorithm, with the weights of the networks."""
        try:
            algorithm = ppo_config(self).build_algo()
        except Exception as error:
            if not self.settings.runners:
                raise
            raise WorkerError(
                f"the runners do not start: {error!r}. Install this version of corral, and the "
                "module of custom rules, on each node; Ray's logs contain the runners' output"
            ) from error
        networks = self._networks.items()
        weights = {name: arrays_of(network.state_dict()) for name, network in networks}
        algorithm.learner_group.set_state({"learner": {"rl_module": weights}})
        algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=algorithm.learner_group, inference_only=True
        )
        return algorithm

    def _fetch(self) -> None:
        """Copy RLlib's trained weights to the networks."""
        state = self._algorithm.learner_group.get_state(components="learner/rl_module")
        for name in self.trained:
            weights = state["learner"]["rl_module"][name]
            networks = self._networks[name]
            networks.load_state_dict({k: torch.tensor(np.asarray(v)) for k, v in weights.items()})
            require_finite_weights(name, networks)

    def _metrics(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Return RLlib's metrics of an update; with several policies, prefixed by policy."""
        metrics = {}
        for name in self.trained:
            results = result.get("learners", {}).get(name, {})
            prefix = f"{name}/" if len(self._networks) > 1 else ""
            for their_name, our_name in METRICS.items():
                if their_name != "mean_kl_loss" or self.settings.kl_coef:
                    metrics[prefix + our_name] = float(results.get(their_name, np.nan))
        return metrics

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        networks = self._networks.items()
        arrays = {f"policy_{name}": arrays_of(network.state_dict()) for name, network in networks}
        return Content({"trainer": {"env_steps": self.env_steps}}, arrays)

    def load(self, content: Content) -> None:
        with checkpoint_of(self.name):
            steps = int(content.documents["trainer"]["env_steps"])
            files = {name: content.arrays[f"policy_{name}"] for name in self._networks}
            for name, networks in self._networks.items():
                expected = shapes_of(arrays_of(networks.state_dict()))
                require_arrays(f"policy_{name}", files[name], expected)
        for name, networks in self._networks.items():
            weights = {key: torch.from_numpy(a.copy()) for key, a in files[name].items()}
            networks.load_state_dict(weights)
        self.env_steps = steps

    def export(self, folder: Path) -> list[Path]:
        """Write each policy's actor: weights in <policy>.safetensors, a description in .json."""
        paths = []
        for group in self.groups:
            weights = arrays_of(self._networks[group.policy].actor.state_dict())
            about = {
                "agents": list(group.agents),
                "agent_id": self.identified,
                **self.architecture,
                **describe(group.layout, group.actions),
            }
            paths += write_actor(folder, group.policy, weights, about)
        return paths

    def close(self) -> None:
        """Stop RLlib, and Ray if this trainer started or joined it."""
        algorithm, self._algorithm = self._algorithm, None
        if algorithm is not None:
            algorithm.stop()
            with contextlib.suppress(OSError):
                os.rmdir(algorithm.logdir)  # RLlib creates it, and it is empty
            torch.use_deterministic_algorithms(self._deterministic)  # RLlib sets it globally
        if self._own_ray:
            import ray

            ray.shutdown()
            self._own_ray = False
