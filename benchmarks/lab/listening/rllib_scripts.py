"""Sound RLlib scripts (PPO, new API stack) in small pieces, of which a planted fault replaces one.

Every script builds its configuration and algorithm, then calls ``listen(algo)`` and trains.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import ray
import torch
import worlds
from planted import Listen
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiCategorical
from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.tune import register_env
from torch import nn

from corral.adapters.rllib import EpisodeReturns, RLlibEnv
from corral.adapters.rllib.module import MaskedRLModule


class CartPole:
    """PPO on CartPole-v1 with RLlib's default module."""

    iterations, copies, batch, minibatch, epochs = 8, 8, 1024, 256, 8
    lr: Any = 2e-3
    gamma, lambda_, clip, entropy, grad_clip = 0.99, 0.95, 0.2, 0.005, 0.5
    vf_clip, vf_coeff = float("inf"), 0.5

    def make(self) -> gym.Env:
        return worlds.cartpole()

    def module(self) -> Any:
        model = DefaultModelConfig(
            fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False
        )
        return RLModuleSpec(model_config=model)

    def environment(self, config: PPOConfig) -> PPOConfig:
        register_env("planted", lambda _: self.make())
        return config.environment("planted", disable_env_checking=True)

    def more(self, config: PPOConfig) -> PPOConfig:
        """Connectors, callbacks, policies or a learner."""
        return config

    def config(self, seed: int) -> PPOConfig:
        config = (
            self.environment(PPOConfig())
            .env_runners(num_env_runners=0, num_envs_per_env_runner=self.copies)
            .learners(num_learners=0)
            .rl_module(rl_module_spec=self.module())
            .training(
                train_batch_size_per_learner=self.batch,
                minibatch_size=self.minibatch,
                num_epochs=self.epochs,
                lr=self.lr,
                gamma=self.gamma,
                lambda_=self.lambda_,
                clip_param=self.clip,
                entropy_coeff=self.entropy,
                grad_clip=self.grad_clip,
                vf_clip_param=self.vf_clip,
                vf_loss_coeff=self.vf_coeff,
                use_kl_loss=False,
            )
            .debugging(seed=seed, log_level="ERROR")
        )
        return self.more(config)

    def train(self, listen: Listen, seed: int) -> float:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        random.seed(seed)  # RLlib's seed does not reach the connectors of a user
        started()
        worlds.begin()
        algo = self.config(seed).build_algo()
        listen(algo)
        for _ in range(self.iterations):
            results = algo.train()
        algo.stop()
        return self.result(results)

    def result(self, results: dict[str, Any]) -> float:
        return worlds.last_return()


def started() -> None:
    """Start ray once, in this process only."""
    if not ray.is_initialized():
        os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")


class Errand(CartPole):
    """A key, then a door: the reward comes late."""

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Errand())


class Depot(CartPole):
    """Masked orders with corral's MaskedRLModule."""

    gamma = 0.95

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Depot())

    def module(self) -> Any:
        return RLModuleSpec(MaskedRLModule, model_config={"net_arch": (64, 64)})


class TurretModule(TorchRLModule, ValueFunctionAPI):
    """An image, a vector and two masked heads."""

    heads = (3, 2)

    def setup(self) -> None:
        self.image = nn.Sequential(
            nn.Conv2d(2, 8, (1, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(56, 64), nn.ReLU()
        )
        self.vector = nn.Sequential(nn.Linear(2, 16), nn.ReLU())
        self.trunk = nn.Sequential(nn.Linear(80, 64), nn.ReLU())
        self.pi = nn.ModuleList(nn.Linear(64, size) for size in self.heads)
        lengths = list(self.heads)
        self.action_dist_cls = TorchMultiCategorical.get_partial_dist_cls(input_lens=lengths)
        self.vf = nn.Linear(64, 1)

    def features(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        both = [self.image(obs["image"].float() / 255), self.vector(obs["vector"])]
        return self.trunk(torch.cat(both, dim=-1))

    def logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        flat = torch.cat([head(hidden) for head in self.pi], dim=-1)
        return flat.masked_fill(mask == 0, -1e9)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        hidden = self.features(obs)
        return {Columns.ACTION_DIST_INPUTS: self.logits(hidden, obs["action_mask"])}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self.vf(self.features(batch[Columns.OBS])).squeeze(-1)


class Turret(CartPole):
    """An image, a vector and two masked heads with a module of the user."""

    gamma, iterations, batch = 0.95, 10, 1024
    module_class: type = TurretModule

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Turret())

    def module(self) -> Any:
        return RLModuleSpec(self.module_class)


class PlainModule(TorchRLModule, ValueFunctionAPI):
    """A module of the user for vectors: an encoder and two heads."""

    def setup(self) -> None:
        inputs, actions = self.observation_space.shape[0], self.action_space.n
        self.encoder = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi, self.vf = nn.Linear(64, int(actions)), nn.Linear(64, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.pi(self.encoder(batch[Columns.OBS]))}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return self.vf(self.encoder(batch[Columns.OBS])).squeeze(-1)


class OwnModule(CartPole):
    """CartPole-v1 with a module of the user."""

    module_class: type = PlainModule
    vf_coeff = 0.05

    def module(self) -> Any:
        return RLModuleSpec(self.module_class)


class Relay(MultiAgentEnv):
    """Two roles that sort parcels: the picker chooses a bin, then the packer a box.

    Each agent sees one of four kinds (one-hot) and has four actions. Right is (kind + 1) % 4 for
    the picker and 3 - kind for the packer. A right choice pays 1; with `at_end` all is paid when
    the agent ends. The packer ends after 8 steps, the picker after 12.
    """

    STEPS: dict[str, int] = {"picker": 12, "packer": 8}  # noqa: RUF012

    def __init__(self, *, at_end: bool = False) -> None:
        super().__init__()
        self.at_end = at_end
        self.possible_agents = list(self.STEPS)
        self.agents = list(self.STEPS)
        self.observation_spaces = {a: gym.spaces.Box(0, 1, (4,), np.float32) for a in self.STEPS}
        self.action_spaces = {a: gym.spaces.Discrete(4) for a in self.STEPS}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.clock = list(self.STEPS), 0
        self.saved = dict.fromkeys(self.STEPS, 0.0)
        self.true = 0.0
        self.draw()
        return self.look(self.agents), {}

    def draw(self) -> None:
        self.kind = {agent: int(self.rng.integers(4)) for agent in self.STEPS}

    def look(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.eye(4, dtype=np.float32)[self.kind[agent]] for agent in agents}

    def right(self, agent: str) -> int:
        return (self.kind[agent] + 1) % 4 if agent == "picker" else 3 - self.kind[agent]

    def step(self, actions: dict[str, Any]) -> Any:
        acted = list(actions)
        paid = {a: float(int(actions[a]) == self.right(a)) for a in acted}
        self.true += sum(paid.values())
        self.clock += 1
        over = [a for a in acted if self.clock >= self.STEPS[a]]
        rewards = self.pay(paid, over)
        self.draw()
        self.agents = [a for a in self.agents if a not in over]
        ends = {a: a in over for a in acted} | {"__all__": self.all_over(over)}
        if ends["__all__"]:
            worlds.RETURNS.append(self.true)
        return self.look(acted), rewards, ends, {"__all__": False}, {}

    def all_over(self, over: list[str]) -> bool:
        return not self.agents

    def pay(self, paid: dict[str, float], over: list[str]) -> dict[str, float]:
        if not self.at_end:
            return paid
        for agent, one in paid.items():
            self.saved[agent] += one
        return {agent: self.saved[agent] if agent in over else 0.0 for agent in paid}


class TwoPolicies(CartPole):
    """A picker and a packer, each with its own policy."""

    copies, iterations, batch, minibatch, epochs, lr = 4, 8, 512, 256, 8, 4e-3
    at_end, gamma, entropy = False, 0.5, 0.01

    def make(self) -> Any:
        return Relay(at_end=self.at_end)

    def policies(self) -> list[str]:
        return ["picker", "packer"]

    def policy_of(self, agent: str, episode: Any = None, **kwargs: Any) -> str:
        return agent

    def trained(self) -> list[str]:
        return self.policies()

    def module(self) -> Any:
        model = DefaultModelConfig(fcnet_hiddens=[32], vf_share_layers=False)
        spec = {name: RLModuleSpec(model_config=model) for name in self.policies()}
        return MultiRLModuleSpec(rl_module_specs=spec)

    def more(self, config: PPOConfig) -> PPOConfig:
        return config.multi_agent(
            policies=set(self.policies()),
            policy_mapping_fn=self.policy_of,
            policies_to_train=self.trained(),
        )


class PaidAtEnd(TwoPolicies):
    """The same, but each agent is paid once, when it ends."""

    at_end, gamma, lambda_, iterations = True, 1.0, 1.0, 14


class Dfaas(CartPole):
    """corral's dfaas_v0 through RLlibEnv, one policy for the team."""

    copies, iterations, batch, minibatch, epochs, lr = 16, 6, 768, 576, 6, 4e-3
    gamma, entropy = 0.5, 0.003

    def environment(self, config: PPOConfig) -> PPOConfig:
        game = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}
        env = {"env": "dfaas_v0", "env_kwargs": game}
        return config.environment(RLlibEnv, env_config=env, disable_env_checking=True)

    def module(self) -> Any:
        return RLModuleSpec(MaskedRLModule, model_config={"net_arch": (64, 64)})

    def more(self, config: PPOConfig) -> PPOConfig:
        return config.multi_agent(
            policies={"team"}, policy_mapping_fn=lambda agent, episode, **_: "team"
        ).callbacks(EpisodeReturns)

    def result(self, results: dict[str, Any]) -> float:
        return float(results["env_runners"]["episode_return_mean"])


def random_play_of(script: type) -> Callable[[int], float] | None:
    """Return a function of a seed: the mean return of random legal play in this script's task."""
    if issubclass(script, Dfaas):
        return worlds.random_team
    if not issubclass(script, TwoPolicies):
        return worlds.random_play(script().make)

    def play(seed: int) -> float:
        worlds.begin()
        env, rng = script().make(), np.random.default_rng(seed)
        for episode in range(30):
            env.reset(seed=seed * 1000 + episode)
            while env.agents:
                env.step({agent: int(rng.integers(4)) for agent in env.agents})
        return worlds.last_return(30)

    return play


def train_of(script: type, **settings: Any) -> Callable[[Listen, int], float]:
    """Return a function of listen and seed that trains this script with these settings."""

    def train(listen: Listen, seed: int) -> float:
        run = script()
        for name, value in settings.items():
            assert hasattr(run, name), name
            setattr(run, name, value)
        return float(run.train(listen, seed))

    return train
