"""Run BenchMARL's experiment one iteration at a time. Imports BenchMARL.

Algorithm, losses, optimizers, replay buffers and collector are BenchMARL's. BenchMARL's own loop
cannot be run step by step; it also prints and writes files. This module does the work of one
iteration of that loop, with two differences:

- MASAC in BenchMARL gives illegal actions the logit -18. A legal action with logit -40 then loses
  to them, so illegal actions are sometimes chosen. Here their probability is exactly 0.
- VDN and QMIX get the sum of a group's rewards. BenchMARL uses the mean.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import benchmarl.algorithms as algorithms
import numpy as np
import torch
from benchmarl.algorithms.masac import Masac, MasacConfig
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import Mlp, MlpConfig
from torchrl.modules import EGreedyModule

from corral.adapters.masked_distribution import MaskedCategorical
from corral.adapters.networks import ACTIVATIONS
from corral.adapters.torchrl.batch import BatchEnv
from corral.adapters.torchrl.benchmarl import CorralTask
from corral.envs.core import Array, Observation
from corral.errors import NonFiniteError
from corral.trainers.base import Episode
from corral.trainers.content import require_arrays, shapes_of
from corral.trainers.on_policy.buffer import AgentGroup, ObservationBuffer
from corral.trainers.on_policy.saving import arrays_of

__all__ = ["Learning", "LegalCategorical"]

METRICS = {
    "loss": "value_loss",
    "grad_norm_loss": "grad_norm",
    "loss_qvalue": "value_loss",
    "loss_actor": "policy_loss",
    "grad_norm_loss_actor": "grad_norm",
    "alpha": "ent_coef",
    "entropy": "entropy",
}
"""Metrics: BenchMARL's name -> corral's name."""

ENDLESS = 10**9
"""Number of iterations passed to BenchMARL; the caller decides when training ends."""

LEAST = -1e4
"""Log-probability of illegal actions: finite in sums, and its exponential is exactly 0."""


# --- The environment ------------------------------------------------------------------------------


class Features:
    """Encodes a group's observations as network inputs: float32 [B, n, F]."""

    def __init__(self, group: AgentGroup, num_envs: int) -> None:
        self._buffer = ObservationBuffer(group, num_envs)
        self.width = int(self._buffer.vector.shape[-1])

    def __call__(self, observations: Mapping[str, Observation]) -> Array:
        self._buffer.store(slice(None), observations)
        return self._buffer.vector


class PolicyTask(CorralTask):
    """A CorralTask with one group per policy."""

    def __init__(self, rules: Any, groups: Mapping[str, AgentGroup], team_reward: bool) -> None:
        super().__init__(rules.name, rules=rules)
        self._groups, self._team_reward = dict(groups), team_reward

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], BatchEnv]:
        return lambda: self._env(num_envs, seed, device)

    def _env(self, num_envs: int, seed: int | None, device: Any) -> BatchEnv:
        features = {key: Features(group, num_envs) for key, group in self._groups.items()}
        return BatchEnv(
            self._rules,
            num_envs,
            seed,
            return_state=True,
            device=device,
            group_map={key: list(group.agents) for key, group in self._groups.items()},
            encoders={key: (feature.width, feature) for key, feature in features.items()},
            team_reward=self._team_reward,
        )


# --- MASAC ---------------------------------------------------------------------------------------


class LegalCategorical(torch.distributions.Categorical):
    """Corral's masked distribution, with the interface of TorchRL's losses."""

    def __init__(self, logits: torch.Tensor, mask: torch.Tensor) -> None:
        self.masked = MaskedCategorical(logits, mask)
        super().__init__(logits=self.masked.logits.clamp(min=LEAST), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> torch.Tensor:
        return self.masked.sample(sample_shape=tuple(sample_shape))


class LegalMasac(Masac):
    """MASAC without illegal actions."""

    def _get_policy_for_loss(self, group: str, model_config: Any, continuous: bool) -> Any:
        policy = super()._get_policy_for_loss(group, model_config, continuous)
        policy[-1].distribution_class, policy[-1].distribution_kwargs = LegalCategorical, {}
        return policy


@dataclass
class LegalMasacConfig(MasacConfig):
    """Configuration of LegalMasac."""

    @staticmethod
    def associated_class() -> type[Masac]:
        return LegalMasac


# --- Iterations ----------------------------------------------------------------------------------


class Learning:
    """A BenchMARL experiment for ``learner``; its environments start with ``seed``."""

    def __init__(self, learner: Any, seed: int) -> None:
        self.learner = learner
        self.groups = {f"group_{i}": group for i, group in enumerate(learner.groups)}
        logging.getLogger("torchrl").setLevel(logging.ERROR)  # hides messages about buffer memory
        self.folder = tempfile.mkdtemp(prefix="benchmarl_")
        settings = learner.settings
        model = MlpConfig(
            num_cells=list(settings.net_arch),
            layer_class=torch.nn.Linear,
            activation_class=ACTIVATIONS[settings.activation],
        )
        with _unwarned():
            self.experiment = Experiment(
                task=PolicyTask(learner.rules, self.groups, learner.team_reward),
                algorithm_config=self._algorithm(),
                model_config=model,
                critic_model_config=MlpConfig(**vars(model)),
                seed=seed,
                config=self._config(),
            )
            self._batches = iter(self.experiment.collector)
        self.env: BatchEnv = self.experiment.collector.env.base_env
        self.env.on_step = self._heard
        self.episodes: list[Episode] = []
        self.rewards = np.zeros(len(learner.rules.agents))  # [N] sums since the last iteration
        self._stats = learner.episode_stats()

    def _algorithm(self) -> Any:
        """Return BenchMARL's configuration of the algorithm."""
        settings: Any = self.learner.settings
        name = self.learner.algorithm
        kind: Any = LegalMasacConfig if name == "Masac" else getattr(algorithms, f"{name}Config")
        values = MasacConfig._load_from_yaml(name)
        values["loss_function"] = settings.loss_function
        if name == "Qmix":
            values["mixing_embed_dim"] = settings.mixing_embed_dim
        if name == "Masac":
            values["alpha_init"], values["max_alpha"] = settings.ent_coef, settings.ent_coef_max
            values["discrete_target_entropy_weight"] = settings.target_entropy
        return kind(**values)

    def _config(self) -> ExperimentConfig:
        settings, config = self.learner.settings, ExperimentConfig.get_from_yaml()
        values = {
            "sampling_device": "cpu",
            "train_device": "cpu",
            "buffer_device": "cpu",
            "share_policy_params": True,
            "gamma": settings.gamma,
            "lr": settings.learning_rate,
            "clip_grad_val": settings.max_grad_norm,
            "polyak_tau": settings.tau,
            "exploration_anneal_frames": 1,  # ``explore`` sets the share itself
            "max_n_frames": self.learner.rollout_steps * ENDLESS,
            "off_policy_collected_frames_per_batch": self.learner.rollout_steps,
            "off_policy_n_envs_per_worker": settings.num_envs,
            "off_policy_n_optimizer_steps": settings.gradient_steps,
            "off_policy_train_batch_size": settings.batch_size,
            "off_policy_memory_size": settings.buffer_size,
            "evaluation": False,
            "evaluation_episodes": 1,
            "render": False,
            "loggers": [],
            "create_json": False,
            "save_folder": self.folder,
        }
        for name, value in values.items():
            if not hasattr(config, name):
                raise AttributeError(f"BenchMARL's ExperimentConfig has no {name}")
            setattr(config, name, value)
        return config

    def _heard(self, step: Any) -> None:
        """Record rewards and finished episodes of a step."""
        if not np.isfinite(step.reward).all():
            copy, column = np.argwhere(~np.isfinite(step.reward))[0]
            raise NonFiniteError(
                f"copy {copy}, {self.learner.rules.agents[column]}: the reward is "
                f"{step.reward[copy, column]}"
            )
        self.rewards += step.reward.sum(axis=0)
        self.episodes += self._stats.add(step)

    def collect(self, explore: float) -> Any:
        """Play with a share ``explore`` of random legal actions; return BenchMARL's batch."""
        self.episodes, self.rewards[:] = [], 0.0
        for key, group in self.groups.items():
            for module in self.experiment.group_policies[key].modules():
                if isinstance(module, EGreedyModule):
                    share = explore if group.policy in self.learner.trained else 0.0
                    module.eps.data.fill_(share)
        with _unwarned():
            return next(self._batches).detach()

    def update(self, batch: Any, learns: bool) -> dict[str, float]:
        """Store a batch and train the trainable policies from their replay buffers; return
        metrics."""
        experiment, metrics = self.experiment, {}
        for key, group in self.groups.items():
            if group.policy not in self.learner.trained:
                continue
            group_batch = batch.exclude(*experiment._get_excluded_keys(key))
            group_batch = experiment.algorithm.process_batch(key, group_batch).reshape(-1)
            experiment.replay_buffers[key].extend(group_batch)
            if not learns:
                continue
            steps = range(self.learner.settings.gradient_steps)
            losses: Any = torch.stack([experiment._optimizer_loop(key) for _ in steps])
            prefix = f"{group.policy}/" if len(self.groups) > 1 else ""
            loss_names = set(losses.keys())  # "in" does not work for a TensorDict
            for their_name, our_name in METRICS.items():
                if their_name in loss_names:
                    metrics[prefix + our_name] = float(losses[their_name].float().mean())
        return metrics

    # --- Weights ---------------------------------------------------------------------------------

    def give(self, networks: Mapping[str, torch.nn.Module]) -> None:
        """Copy the weights of the policies' networks to BenchMARL, including target networks."""
        for key, group in self.groups.items():
            inside, weights = self._inside(key), networks[group.policy].state_dict()
            require_arrays(group.policy, arrays_of(weights), shapes_of(arrays_of(inside)))
            for name, values in inside.items():
                values.data.copy_(weights[name])
            tensors = self._tensors(key)
            for name, values in tensors.items():
                source = tensors.get(name.removeprefix("target_"))
                if source is not None:
                    values.data.copy_(source.data)

    def take(self, networks: Mapping[str, torch.nn.Module]) -> None:
        """Copy BenchMARL's trained weights to the policies' networks."""
        for key, group in self.groups.items():
            inside = {name: values.data for name, values in self._inside(key).items()}
            networks[group.policy].load_state_dict(inside)

    def _inside(self, key: str) -> dict[str, torch.Tensor]:
        """Return the weights of BenchMARL's network of a group, with the names of the torch MLP."""
        policy = self.experiment.algorithm.get_policy_for_loss(key)
        (network,) = (module for module in policy.modules() if isinstance(module, Mlp))
        return dict(network.mlp.params.flatten_keys(".").items())

    def _tensors(self, key: str) -> dict[str, torch.Tensor]:
        """Return all parameters and buffers of a group's loss, by name."""
        loss = self.experiment.losses[key]
        return {**dict(loss.named_parameters()), **dict(loss.named_buffers())}

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> dict[str, dict[str, Array]]:
        """Return the files of the training state besides the policies.

        They hold critics, mixers, target networks, the entropy weight and Adam's moments.
        """
        files = {}
        for key, group in self.groups.items():
            arrays = {f"loss.{name}": a for name, a in arrays_of(self._tensors(key)).items()}
            arrays |= arrays_of(self._moments(key))
            files[f"learning_{group.policy}"] = arrays
        return files

    def load(self, files: Mapping[str, Mapping[str, Array]]) -> None:
        """Restore the state from ``save``. Raises CheckpointError if it does not fit."""
        for key, group in self.groups.items():
            arrays = dict(files[f"learning_{group.policy}"])
            tensors = {f"loss.{name}": tensor for name, tensor in self._tensors(key).items()}
            moments = {name: a for name, a in arrays.items() if name.startswith("adam.")}
            if moments:
                self._begin_moments(key)
            expected = tensors | (self._moments(key) if moments else {})
            require_arrays(f"learning_{group.policy}", arrays, shapes_of(arrays_of(expected)))
            for name, values in expected.items():
                values.data.copy_(torch.from_numpy(arrays[name].copy()))

    def _moments(self, key: str) -> dict[str, torch.Tensor]:
        moments = {}
        for name, optimizer in self.experiment.optimizers[key].items():
            parameters = [item for part in optimizer.param_groups for item in part["params"]]
            for i, parameter in enumerate(parameters):
                for moment, values in optimizer.state.get(parameter, {}).items():
                    moments[f"adam.{name}.{i}.{moment}"] = values
        return moments

    def _begin_moments(self, key: str) -> None:
        """Make Adam create its moments, with steps of size 0 along gradients of 0."""
        for optimizer in self.experiment.optimizers[key].values():
            rates = [part["lr"] for part in optimizer.param_groups]
            for part in optimizer.param_groups:
                part["lr"] = 0.0
                for parameter in part["params"]:
                    parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            optimizer.zero_grad()
            for part, rate in zip(optimizer.param_groups, rates, strict=True):
                part["lr"] = rate

    def close(self) -> None:
        self.experiment.close()
        self.env.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _unwarned() -> Iterator[None]:
    """Hide TorchRL's warnings about names in BenchMARL, and BenchMARL's own warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
