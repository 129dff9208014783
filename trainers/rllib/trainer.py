"""RLlib's PPO for teams, with the masks kept: on one machine, or on as many as Ray has nodes.

    corral train dfaas_v0 --trainer rllib_ppo --runners 2
    corral train dfaas_v0 --trainer rllib_ppo --runners 16 --address 10.0.0.1:6379

Runners play, wherever Ray puts them; this process learns. A runner that dies, with its node or
without, is missed for as long as it takes Ray to start another; training goes on with the others.

The networks are kept here as plain torch, and their weights go to RLlib and come back after each
update: a run is saved, loaded and judged without Ray. Adam's moments and the episodes under way are
RLlib's, and begin anew when a run is resumed.

The same seed learns the same where this process plays too (``runners=0``) and there is one policy.
RLlib goes through sets of the names of several, whose order is PYTHONHASHSEED's.

Returns are those that the environment counted (``corral.adapters.rllib.env``). RLlib's own leave
out rewards of an agent before its first turn.
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
from corral.trainers.policies import NetworkPolicy, rllib_policy
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
"""Metrics: RLlib's name -> the name in the other trainers."""

OWN_RAY = {
    # It listens on the loopback interface alone. Ray takes 127.0.0.1 for a mistake, but on systems
    # for which it has this variable.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # 15 by itself: beside anything else runners would starve.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Of a Ray that is started here, where Ray has not been imported before: it reads them once."""

ANSWER = 5.0
"""Seconds within which a cluster's address must answer."""

RETRY = 0.5
"""Seconds after which runners are asked again."""

OBJECT_STORE = 256 * 2**20
"""Bytes of shared memory for a Ray of our own: episodes and weights on their way."""


class RLlibPPO(Trainer):
    """PPO of RLlib. See ``RLlibPPOSettings``."""

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
        """Raises UnsupportedSpaceError for actions that are not Discrete, and where agents of one
        policy differ."""
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
            )
            for i, agent in enumerate(self.rules.agents)
        }

    @property
    def resumes_exactly(self) -> bool:
        return False

    # --- Training --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MissingExtraError where Ray is not installed, which only learning needs, and
        WorkerError where nothing answers at the address."""
        if self.settings.address == "local" and "ray" not in sys.modules:
            for name, value in OWN_RAY.items():
                os.environ.setdefault(name, value)
        require("ray.rllib", extra="rllib", purpose="train with rllib_ppo")
        host, colon, port = self.settings.address.rpartition(":")
        if colon and port.isdecimal():  # Ray itself tries for minutes
            try:
                socket.create_connection((host, int(port)), timeout=ANSWER).close()
            except (OSError, OverflowError) as error:
                raise self._no_cluster(error) from error

    @property
    def rollout_steps(self) -> int:
        """Env steps of an update."""
        return int(self.settings.train_batch_size)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Updates as long as whole ones fit into ``steps``, at least one.

        Default: those that it was made for, over which settings are annealed. Raises WorkerError
        where the environment raised in a runner, or no runner plays any more.
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
            if not sampled or math.isnan(
                sampled
            ):  # NaN: all runners were lost, or are being restarted
                silent = time.monotonic() - heard
                if silent > self.settings.patience:
                    raise WorkerError(
                        f"no runner has played for {silent:.0f} s (patience="
                        f"{self.settings.patience:g}): look at the cluster with 'ray status', and "
                        "go on with corral train --resume"
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
        """Connect to the cluster, or start a Ray of our own on this machine."""
        import ray

        for name in ("ray.rllib", "ray.tune"):  # they warn of what is as it should be
            logging.getLogger(name).setLevel(logging.ERROR)
        if ray.is_initialized():  # whoever did it has decided where
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
            f"address={self.settings.address}: no Ray cluster answers there: {error}. Start one "
            "with 'ray start --head'; see docs/scaling.md"
        )

    def _build(self) -> Any:
        """RLlib's algorithm, with the weights of the networks."""
        try:
            algorithm = ppo_config(self).build_algo()
        except Exception as error:
            if not self.settings.runners:
                raise
            raise WorkerError(
                f"the runners do not start: {error!r}. Each node needs this version of corral, and "
                "the module of rules of one's own; what they said is in Ray's logs"
            ) from error
        networks = self._networks.items()
        weights = {name: arrays_of(own.state_dict()) for name, own in networks}
        algorithm.learner_group.set_state({"learner": {"rl_module": weights}})
        algorithm.env_runner_group.sync_weights(
            from_worker_or_learner_group=algorithm.learner_group, inference_only=True
        )
        return algorithm

    def _fetch(self) -> None:
        """Copy the weights that RLlib has learned."""
        state = self._algorithm.learner_group.get_state(components="learner/rl_module")
        for name in self.trained:
            weights = state["learner"]["rl_module"][name]
            networks = self._networks[name]
            networks.load_state_dict({k: torch.tensor(np.asarray(v)) for k, v in weights.items()})
            require_finite_weights(name, networks)

    def _metrics(self, result: Mapping[str, Any]) -> dict[str, float]:
        """Return RLlib's metrics of an update, by policy where there are several."""
        metrics = {}
        for name in self.trained:
            results = result.get("learners", {}).get(name, {})
            prefix = f"{name}/" if len(self._networks) > 1 else ""
            for theirs, ours in METRICS.items():
                if theirs != "mean_kl_loss" or self.settings.kl_coef:
                    metrics[prefix + ours] = float(results.get(theirs, np.nan))
        return metrics

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        networks = self._networks.items()
        arrays = {f"policy_{name}": arrays_of(own.state_dict()) for name, own in networks}
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
        """Stop RLlib; and Ray, where it was started or joined here."""
        algorithm, self._algorithm = self._algorithm, None
        if algorithm is not None:
            algorithm.stop()
            with contextlib.suppress(OSError):
                os.rmdir(algorithm.logdir)  # RLlib makes it, and nothing came into it
            torch.use_deterministic_algorithms(self._deterministic)  # RLlib sets it for all
        if self._own_ray:
            import ray

            ray.shutdown()
            self._own_ray = False
