"""Sound TorchRL scripts in small pieces, of which a planted fault replaces one.

Every script builds its environment, networks, loss, optimizer and collector, then calls
``listen(loss_module)`` and trains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import torch
import worlds
from planted import Listen
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from torchrl.envs import Compose, GymWrapper, SerialEnv, Transform, TransformedEnv
from torchrl.modules import (
    EGreedyModule,
    MaskedCategorical,
    MultiAgentMLP,
    ProbabilisticActor,
    QValueActor,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import ClipPPOLoss, DQNLoss, HardUpdate, SoftUpdate
from torchrl.objectives.multiagent import MAPPOLoss
from torchrl.objectives.value import GAE

from corral.adapters.torchrl.batch import BatchEnv


def mlp(inputs: int, outputs: int, width: int = 64, activation: type = nn.Tanh) -> nn.Sequential:
    """Return two hidden layers and a linear one."""
    hidden = [nn.Linear(inputs, width), activation(), nn.Linear(width, width), activation()]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class PPO:
    """PPO as in TorchRL's tutorial: collector, GAE, replay buffer, ClipPPOLoss."""

    copies, frames, total = 8, 1024, 10240
    epochs, rows = 10, 128
    lr, gamma, lmbda, clip, entropy, max_grad = 1e-3, 0.99, 0.95, 0.2, 0.005, 0.5
    obs_keys: tuple[str, ...] = ("observation",)

    # The environment.
    def make(self) -> gym.Env:
        return worlds.cartpole()

    def transforms(self) -> list[Transform]:
        return []

    def one_env(self) -> Any:
        return GymWrapper(self.make(), categorical_action_encoding=True)

    def environment(self, seed: int) -> Any:
        env = SerialEnv(self.copies, self.one_env) if self.copies > 1 else self.one_env()
        if transforms := self.transforms():
            env = TransformedEnv(env, Compose(*transforms))
        self.prepare(env)
        env.set_seed(seed)
        return env

    def prepare(self, env: Any) -> None:
        """Measure what a transform needs."""

    # The networks.
    def sizes(self) -> tuple[int, int]:
        return 4, 2

    def actor_net(self) -> nn.Module:
        return mlp(*self.sizes())

    def critic_net(self) -> nn.Module:
        return mlp(self.sizes()[0], 1)

    def policy(self) -> Any:
        return ProbabilisticActor(
            TensorDictModule(self.actor_net(), in_keys=[*self.obs_keys], out_keys=["logits"]),
            in_keys=["logits"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        )

    def value(self) -> Any:
        return ValueOperator(self.critic_net(), in_keys=[*self.obs_keys])

    def networks(self) -> tuple[Any, Any]:
        return self.policy(), self.value()

    # The data.
    def collector(self, env: Any) -> Any:
        return Collector(
            env, self.behavior(), frames_per_batch=self.frames, total_frames=self.total
        )

    def behavior(self) -> Any:
        return self.actor

    def estimator(self) -> Any:
        return GAE(gamma=self.gamma, lmbda=self.lmbda, value_network=self.critic)

    def advantages(self, batch: TensorDict) -> TensorDict:
        with torch.no_grad():
            self.gae(batch)
        return batch.reshape(-1)

    def storage(self) -> ReplayBuffer:
        return ReplayBuffer(
            storage=LazyTensorStorage(max_size=self.frames),
            sampler=SamplerWithoutReplacement(),
            batch_size=self.rows,
        )

    def minibatches(self, flat: TensorDict) -> Iterator[TensorDict]:
        for _ in range(self.epochs):
            self.buffer.extend(flat)
            for _ in range(max(1, len(flat) // self.rows)):
                yield self.buffer.sample()

    # The update.
    def loss(self) -> Any:
        return ClipPPOLoss(
            self.actor,
            self.critic,
            clip_epsilon=self.clip,
            entropy_coeff=self.entropy,
            critic_coeff=0.5,
            loss_critic_type="l2",
        )

    def parameters(self) -> Any:
        return self.loss_module.parameters()

    def optimizer(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

    def objective(self, losses: TensorDict) -> torch.Tensor:
        return losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]

    def update(self, total: torch.Tensor) -> None:
        self.optim.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.loss_module.parameters(), self.max_grad)
        self.optim.step()

    def after_batch(self) -> None:
        """A scheduler, or nothing."""

    def train(self, listen: Listen, seed: int) -> float:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        worlds.begin()
        env = self.environment(seed)
        self.actor, self.critic = self.networks()
        self.gae = self.estimator()
        self.loss_module = self.loss()
        self.optim = self.optimizer()
        self.buffer = self.storage()
        collector = self.collector(env)
        listen(self.loss_module)
        for batch in collector:
            for rows in self.minibatches(self.advantages(batch)):
                self.update(self.objective(self.loss_module(rows)))
            self.after_batch()
        collector.shutdown()
        return self.result()

    def result(self) -> float:
        return worlds.last_return()


class ErrandPPO(PPO):
    """A key, then a door: the reward comes late."""

    total = 8192

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Errand())

    def sizes(self) -> tuple[int, int]:
        return 2, 2


class DepotPPO(PPO):
    """Orders with a mask: MaskedCategorical."""

    lr, entropy, total = 2e-3, 0.01, 8192

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Depot())

    def sizes(self) -> tuple[int, int]:
        return 4, 6

    def policy(self) -> Any:
        body = TensorDictSequential(
            TensorDictModule(self.actor_net(), in_keys=[*self.obs_keys], out_keys=["logits"]),
            TensorDictModule(lambda mask: mask.bool(), in_keys=["action_mask"], out_keys=["mask"]),
        )
        return ProbabilisticActor(
            body,
            in_keys=["logits", "mask"],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
        )


class ThermostatPPO(PPO):
    """A continuous action: TanhNormal in the bounds of the action space."""

    lr, gamma, entropy, total = 3e-3, 0.9, 0.001, 8192

    def make(self) -> gym.Env:
        env = worlds.Count(worlds.Thermostat())
        return gym.wrappers.TransformObservation(
            env, lambda obs: (obs - 15) / 10, env.observation_space
        )

    def sizes(self) -> tuple[int, int]:
        return 3, 2

    def bounds(self) -> dict[str, Any]:
        return {"low": 0.0, "high": 10.0}

    def policy(self) -> Any:
        net = nn.Sequential(self.actor_net(), NormalParamExtractor())
        return ProbabilisticActor(
            TensorDictModule(net, in_keys=[*self.obs_keys], out_keys=["loc", "scale"]),
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
            distribution_kwargs=self.bounds(),
            return_log_prob=True,
        )


class SharedPPO(PPO):
    """One encoder for actor and critic."""

    lr, max_grad = 2e-3, 1.0

    def networks(self) -> tuple[Any, Any]:
        inputs, actions = self.sizes()
        self.encoder = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        shared = TensorDictModule(self.encoder, in_keys=[*self.obs_keys], out_keys=["hidden"])
        self.head, self.value_head = nn.Linear(64, actions), nn.Linear(64, 1)
        logits = TensorDictModule(self.head, in_keys=["hidden"], out_keys=["logits"])
        actor = ProbabilisticActor(
            TensorDictSequential(shared, logits),
            in_keys=["logits"],
            distribution_class=torch.distributions.Categorical,
            return_log_prob=True,
        )
        critic = TensorDictSequential(shared, ValueOperator(self.value_head, in_keys=["hidden"]))
        return actor, critic


class DQN:
    """DQN with a target network, a replay buffer and epsilon-greedy exploration."""

    copies, frames, total, rows = 4, 64, 8192, 128
    updates, warmup = 8, 1024
    lr, gamma = 1e-3, 0.97
    anneal = 4000

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Errand())

    def transforms(self) -> list[Transform]:
        return []

    def environment(self, seed: int) -> Any:
        env = SerialEnv(
            self.copies, lambda: GymWrapper(self.make(), categorical_action_encoding=True)
        )
        if transforms := self.transforms():
            env = TransformedEnv(env, Compose(*transforms))
        env.set_seed(seed)
        return env

    def sizes(self) -> tuple[int, int]:
        return 2, 2

    def net(self) -> nn.Module:
        return mlp(*self.sizes(), activation=nn.ReLU)

    def exploration(self, spec: Any) -> EGreedyModule:
        return EGreedyModule(spec, eps_init=1.0, eps_end=0.05, annealing_num_steps=self.anneal)

    def loss(self) -> DQNLoss:
        loss = DQNLoss(self.q, action_space=self.action_spec, delay_value=True, double_dqn=True)
        loss.make_value_estimator(gamma=self.gamma)
        return loss

    def updater(self) -> Any:
        return SoftUpdate(self.loss_module, eps=0.98)

    def optimizer(self) -> Any:
        return torch.optim.Adam(self.loss_module.parameters(), lr=self.lr)

    def storage(self) -> ReplayBuffer:
        return ReplayBuffer(storage=LazyTensorStorage(10_000), batch_size=self.rows)

    def remember(self, batch: TensorDict) -> None:
        self.buffer.extend(batch.reshape(-1))

    def explored(self, batch: TensorDict) -> None:
        self.greedy.step(batch.numel())

    def after_update(self) -> None:
        self.target.step()

    def sample(self) -> TensorDict:
        return self.buffer.sample()

    def train(self, listen: Listen, seed: int) -> float:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        worlds.begin()
        env = self.environment(seed)
        self.action_spec = env.action_spec_unbatched
        self.q = QValueActor(self.net(), in_keys=["observation"], spec=self.action_spec)
        self.greedy = self.exploration(self.action_spec)
        self.loss_module = self.loss()
        self.target = self.updater()
        self.optim = self.optimizer()
        self.buffer = self.storage()
        listen(self.loss_module)
        collector = Collector(
            env,
            TensorDictSequential(self.q, self.greedy),
            frames_per_batch=self.frames,
            total_frames=self.total,
        )
        seen = 0
        for batch in collector:
            self.remember(batch)
            self.explored(batch)
            seen += batch.numel()
            for _ in range(self.updates if seen >= self.warmup else 0):
                loss = self.loss_module(self.sample())["loss"]
                self.optim.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.loss_module.parameters(), 10.0)
                self.optim.step()
                self.after_update()
        collector.shutdown()
        return worlds.last_return()


class CartPoleDQN(DQN):
    """CartPole-v1 with a target network that is copied every 200 updates."""

    total, anneal, updates, lr, gamma = 10240, 4000, 12, 1e-3, 0.98

    def make(self) -> gym.Env:
        return worlds.cartpole()

    def sizes(self) -> tuple[int, int]:
        return 4, 2

    def updater(self) -> Any:
        return HardUpdate(self.loss_module, value_network_update_interval=200)


class DfaasMAPPO:
    """dfaas_v0 with TorchRL's MAPPO, masked: 20 copies of a team of three nodes."""

    copies, batch, epochs, rows, total = 20, 960, 8, 240, 9600
    lr, gamma, lmbda = 4e-3, 0.5, 0.9
    centralized = True

    def environment(self, seed: int) -> Any:
        game = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}
        return BatchEnv("dfaas_v0", num_envs=self.copies, seed=seed, **game)

    def optimizer(self) -> Any:
        return torch.optim.Adam(self.loss_module.parameters(), lr=self.lr)

    def reward(self, batch: TensorDict) -> None:
        """Leave the rewards as they are, one for each agent."""

    def flat(self, batch: TensorDict) -> TensorDict:
        return batch.reshape(-1)

    def mask_key(self) -> Any:
        return ("node", "action_mask")

    def train(self, listen: Listen, seed: int) -> float:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        env = self.environment(seed)
        agents, obs_key = env.group_map["node"], ("node", "observation", "observation")
        sizes: dict[str, Any] = {"n_agents": len(agents), "share_params": True, "depth": 2}
        sizes |= {"num_cells": 64, "activation_class": nn.Tanh}
        features, actions = (
            env.observation_spec[obs_key].shape[-1],
            env.action_spec["node", "action"].n,
        )
        net = MultiAgentMLP(features, actions, centralized=False, **sizes)
        actor = ProbabilisticActor(
            TensorDictModule(net, in_keys=[obs_key], out_keys=[("node", "logits")]),
            in_keys={"logits": ("node", "logits"), "mask": self.mask_key()},
            out_keys=[("node", "action")],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
            log_prob_key=("node", "log_prob"),
        )
        net = MultiAgentMLP(features, 1, centralized=self.centralized, **sizes)
        critic = TensorDictModule(net, in_keys=[obs_key], out_keys=[("node", "state_value")])
        loss = self.loss_module = MAPPOLoss(actor, critic, entropy_coeff=0.003)
        names = "action", "reward", "done", "terminated", "advantage", "value_target"
        loss.set_keys(
            value=("node", "state_value"),
            sample_log_prob=("node", "log_prob"),
            **{name: ("node", name) for name in names},
        )
        loss.make_value_estimator(gamma=self.gamma, lmbda=self.lmbda)
        target = {"target_params": loss.target_critic_network_params}
        optimizer = self.optimizer()
        listen(loss)
        returns = []
        for batch in Collector(env, actor, frames_per_batch=self.batch, total_frames=self.total):
            returns.append(float(batch["next", "node", "reward"].sum(-2).mean()) * 48)
            self.reward(batch)
            with torch.no_grad():
                loss.value_estimator(batch, params=loss.critic_network_params, **target)
            flat = self.flat(batch)
            for _ in range(self.epochs):
                for rows in torch.randperm(len(flat)).split(self.rows):
                    losses = loss(flat[rows])
                    total = (
                        losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                    )
                    optimizer.zero_grad()
                    total.backward()
                    torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                    optimizer.step()
        return sum(returns[-2:]) / len(returns[-2:])


def train_of(script: type, **settings: Any) -> Callable[[Listen, int], float]:
    """Return a function of listen and seed that trains this script with these settings."""

    def train(listen: Listen, seed: int) -> float:
        run = script()
        for name, value in settings.items():
            assert hasattr(run, name), name
            setattr(run, name, value)
        return float(run.train(listen, seed))

    return train
