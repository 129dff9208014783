"""Sound training loops in plain torch, as CleanRL writes them: PPO, REINFORCE and DQN.

Every part that users get wrong is a small method, so that a planted fault replaces one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tasks import CartPole, Catch, Errands, Make, Reach, Scores, of
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

Columns = dict[str, Tensor]


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights and no bias at the start."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Copies:
    """B copies of an environment. An episode that ends begins anew in the same step."""

    def __init__(self, make: Make, count: int, seed: int) -> None:
        self.scores = Scores()
        self.envs = [make(self.scores) for _ in range(count)]
        self.seed = seed
        self.action_space: Any = self.envs[0].action_space
        self.obs_shape = self.envs[0].observation_space.shape

    def begin(self, index: int) -> Any:
        """First observation of the first episode of a copy."""
        return self.envs[index].reset(seed=self.seed * 1000 + index)[0]

    def restart(self, index: int) -> Any:
        """First observation of the next episode of a copy."""
        return self.envs[index].reset()[0]

    def stack(self, observations: list[Any]) -> np.ndarray:
        return np.stack(observations).astype(np.float32)

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        """Observations [B, ...] and masks [B, A]."""
        return self.stack([self.begin(index) for index in range(len(self.envs))]), self.masks()

    def masks(self) -> np.ndarray:
        if not hasattr(self.action_space, "n"):
            return np.ones((len(self.envs), 1), bool)
        if not self.envs[0].has_wrapper_attr("action_masks"):
            return np.ones((len(self.envs), int(self.action_space.n)), bool)
        return np.stack(
            [np.asarray(env.get_wrapper_attr("action_masks")(), bool) for env in self.envs]
        )

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        """Observations, masks, rewards, terminated, truncated, and the observations before a
        reset (elsewhere those that follow)."""
        rows, after = [], []
        for index, env in enumerate(self.envs):
            obs, reward, terminated, truncated, _ = env.step(actions[index])
            after.append(obs)
            if terminated or truncated:
                obs = self.restart(index)
            rows.append((obs, reward, terminated, truncated))
        observations, rewards, terminated, truncated = (list(x) for x in zip(*rows, strict=True))
        return (
            self.stack(observations),
            self.masks(),
            np.array(rewards, np.float32),
            np.array(terminated, np.float32),
            np.array(truncated, np.float32),
            np.stack(after).astype(np.float32),
        )


class ActorCritic(nn.Module):
    """Two separate networks of two layers."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 64) -> None:
        super().__init__()
        self.actor = nn.Sequential(
            nn.Flatten(),
            layer(inputs, hidden),
            nn.Tanh(),
            layer(hidden, hidden),
            nn.Tanh(),
            layer(hidden, outputs, 0.01),
        )
        self.critic = nn.Sequential(
            nn.Flatten(),
            layer(inputs, hidden),
            nn.Tanh(),
            layer(hidden, hidden),
            nn.Tanh(),
            layer(hidden, 1, 1.0),
        )
        self.log_std = nn.Parameter(torch.zeros(outputs))  # continuous actions

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


class PPO:
    """Proximal policy optimization for discrete actions with masks."""

    make: Make = staticmethod(of(CartPole))
    copies, length, updates = 8, 128, 30
    epochs, minibatch = 5, 128
    rate, gamma, lam, clip = 2.5e-3, 0.99, 0.95, 0.2
    entropy_weight, value_weight, max_norm = 0.01, 0.5, 0.5
    hidden = 64
    copies_class: type[Copies] = Copies

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.envs = self.environments(seed)
        self.net = self.network()
        self.optimizer = self.make_optimizer()

    # What is played, and what learns.

    def environments(self, seed: int) -> Any:
        return self.copies_class(self.make, self.copies, seed)

    def outputs(self) -> int:
        space = self.envs.action_space
        return int(space.n) if hasattr(space, "n") else int(space.shape[0])

    def network(self) -> Any:
        return ActorCritic(int(np.prod(self.envs.obs_shape)), self.outputs(), self.hidden)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.parameters(), lr=self.rate, eps=1e-5)

    def anneal(self, update: int) -> None:
        """Lower the learning rate linearly to 0."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * (1 - update / self.updates)

    def policy(self, obs: Tensor, mask: Tensor) -> Distribution:
        return Categorical(logits=self.net.actor(obs).masked_fill(~mask, -torch.inf))

    # Rollout.

    def choose(self, policy: Distribution) -> tuple[Tensor, Tensor]:
        """Actions to take, and actions to store."""
        actions = policy.sample()
        return actions, actions

    def play(self) -> Columns:
        """Play T steps of B copies; columns [T, B, ...]."""
        if not hasattr(self, "obs"):
            self.obs, self.mask = self.envs.reset()
        rows: list[Columns] = []
        for _ in range(self.length):
            obs, mask = torch.as_tensor(self.obs), torch.as_tensor(self.mask)
            with torch.no_grad():
                policy = self.policy(obs, mask)
                taken, actions = self.choose(policy)
                row = {
                    "obs": obs,
                    "mask": mask,
                    "actions": actions,
                    "log_probs": policy.log_prob(actions),
                    "values": self.net.value(obs),
                }
            self.obs, self.mask, *outcome = self.envs.step(taken.numpy())
            names = ("rewards", "terminated", "truncated", "after")
            row |= {key: torch.as_tensor(x) for key, x in zip(names, outcome, strict=True)}
            rows.append(row)
        return self.stack(rows)

    def stack(self, rows: list[Columns]) -> Columns:
        return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}

    # Advantages.

    def bootstrap(self, rollout: Columns) -> Tensor:
        """Discounted values of the next observations; 0 after a termination, [T, B]."""
        with torch.no_grad():
            after = self.net.value(rollout["after"].flatten(0, 1)).view_as(rollout["values"])
        return self.gamma * after * (1 - rollout["terminated"])

    def over(self, rollout: Columns) -> Tensor:
        """Where an episode ends, [T, B]: the trace stops there."""
        return torch.maximum(rollout["terminated"], rollout["truncated"])

    def estimate(self, rollout: Columns) -> None:
        """Add generalized advantages and returns."""
        deltas = rollout["rewards"] + self.bootstrap(rollout) - rollout["values"]
        over = self.over(rollout)
        advantages, trace = torch.zeros_like(deltas), torch.zeros_like(deltas[0])
        for t in reversed(range(len(deltas))):
            trace = deltas[t] + self.gamma * self.lam * (1 - over[t]) * trace
            advantages[t] = trace
        rollout["advantages"] = advantages
        rollout["returns"] = advantages + rollout["values"]

    # Update.

    def flatten(self, rollout: Columns) -> Columns:
        return {name: column.flatten(0, 1) for name, column in rollout.items()}

    def minibatches(self, batch: Columns) -> Iterator[Columns]:
        size = len(batch["actions"])
        for _ in range(self.epochs):
            for rows in torch.randperm(size).split(self.minibatch):
                yield {name: column[rows] for name, column in batch.items()}

    def normalized(self, advantages: Tensor) -> Tensor:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    def ratio(self, mb: Columns, new_log_probs: Tensor) -> Tensor:
        return (new_log_probs - mb["log_probs"]).exp()

    def surrogate(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        return torch.min(ratio * advantages, clipped * advantages).mean()

    def value_loss(self, mb: Columns) -> Tensor:
        return (self.net.value(mb["obs"]) - mb["returns"]).square().mean()

    def total(self, surrogate: Tensor, value_loss: Tensor, entropy: Tensor) -> Tensor:
        return -surrogate + self.value_weight * value_loss - self.entropy_weight * entropy

    def loss(self, mb: Columns) -> tuple[Tensor, Tensor, Tensor]:
        """Loss, and log-probabilities and entropies [R] of the present policy."""
        policy = self.policy(mb["obs"], mb["mask"])
        new_log_probs, entropy = policy.log_prob(mb["actions"]), policy.entropy()
        advantages = self.normalized(mb["advantages"])
        surrogate = self.surrogate(self.ratio(mb, new_log_probs), advantages)
        return self.total(surrogate, self.value_loss(mb), entropy.mean()), new_log_probs, entropy

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
        self.optimizer.step()

    def after_rollout(self, rollout: Columns) -> None:
        """Called between the rollout and its update."""

    def heard(self, columns: Columns) -> Columns:
        return {name: column for name, column in columns.items() if name != "after"}

    def learn(self, listen: Any) -> float:
        ear = listen(policy=self.net, optimizer=self.optimizer)
        for update in range(self.updates):
            self.anneal(update)
            rollout = self.play()
            self.estimate(rollout)
            self.after_rollout(rollout)
            ear.rollout(**self.heard(rollout))
            for mb in self.minibatches(self.flatten(rollout)):
                loss, new_log_probs, entropy = self.loss(mb)
                ear.batch(**self.heard(mb), new_log_probs=new_log_probs, entropy=entropy, loss=loss)
                self.descend(loss)
        return self.score()

    def score(self) -> float:
        return self.envs.scores.mean()


class MaskedPPO(PPO):
    """PPO on the errands, with masks."""

    make = staticmethod(of(Errands))
    updates, epochs, minibatch = 28, 6, 256


class ContinuousPPO(PPO):
    """PPO with a Gaussian policy on the point mass."""

    make = staticmethod(of(Reach))
    updates, entropy_weight, minibatch = 30, 0.0, 256

    def policy(self, obs: Tensor, mask: Tensor) -> Distribution:
        return Independent(Normal(self.net.actor(obs), self.net.log_std.exp()), 1)

    def choose(self, policy: Distribution) -> tuple[Tensor, Tensor]:
        """The clipped action is taken, the sampled one stored."""
        actions = policy.sample()
        return actions.clamp(-1, 1), actions


class Reinforce:
    """REINFORCE with a mean baseline, on whole episodes of one environment."""

    make: Make = staticmethod(of(Catch))
    episodes, group, rate, gamma = 2000, 10, 1e-2, 0.99

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.scores = Scores()
        self.env = self.make(self.scores)
        self.env.reset(seed=seed)
        self.net = self.network()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=self.rate)

    def network(self) -> Any:
        space: Any = self.env.action_space
        inputs = int(np.prod(self.env.observation_space.shape or ()))
        return nn.Sequential(
            nn.Flatten(), layer(inputs, 64), nn.Tanh(), layer(64, int(space.n), 0.01)
        )

    def prepare(self, obs: Any) -> Tensor:
        return torch.as_tensor(np.asarray(obs, np.float32)[None] / 255)

    def policy(self, obs: Tensor) -> Categorical:
        return Categorical(logits=self.net(obs))

    def episode(self) -> Columns:
        rows, over = [], False
        obs = self.prepare(self.env.reset()[0])
        while not over:
            with torch.no_grad():
                policy = self.policy(obs)
                action = policy.sample()
            after, reward, terminated, truncated, _ = self.env.step(int(action))
            rows.append((obs[0], action[0], policy.log_prob(action)[0], reward, terminated))
            obs, over = self.prepare(after), terminated or truncated
        seen, actions, log_probs, rewards, terminated = zip(*rows, strict=True)
        return {
            "obs": torch.stack(seen),
            "actions": torch.stack(actions),
            "log_probs": torch.stack(log_probs),
            "rewards": torch.tensor(rewards, dtype=torch.float32),
            "terminated": torch.tensor(terminated, dtype=torch.float32),
        }

    def returns(self, rewards: Tensor) -> Tensor:
        """Discounted rewards to go, [T]."""
        returns, to_go = torch.zeros_like(rewards), torch.tensor(0.0)
        for t in reversed(range(len(rewards))):
            to_go = rewards[t] + self.gamma * to_go
            returns[t] = to_go
        return returns

    def advantages(self, returns: Tensor) -> Tensor:
        return (returns - returns.mean()) / (returns.std() + 1e-8)

    def loss(self, log_probs: Tensor, advantages: Tensor) -> Tensor:
        return -(log_probs * advantages).mean()

    def learn(self, listen: Any) -> float:
        ear = listen(policy=self.net, optimizer=self.optimizer)
        for _ in range(self.episodes // self.group):
            played = [self.episode() for _ in range(self.group)]
            for one in played:
                one["returns"] = self.returns(one["rewards"])
            batch = {name: torch.cat([one[name] for one in played]) for name in played[0]}
            batch["advantages"] = self.advantages(batch["returns"])
            policy = self.policy(batch["obs"])
            new_log_probs = policy.log_prob(batch["actions"])
            loss = self.loss(new_log_probs, batch["advantages"])
            ear.batch(**batch, new_log_probs=new_log_probs, entropy=policy.entropy(), loss=loss)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return self.scores.mean()


class Replay:
    """A ring of transitions."""

    def __init__(self, capacity: int, shape: tuple[int, ...]) -> None:
        self.capacity, self.size, self.next = capacity, 0, 0
        self.obs, self.after = (np.zeros((capacity, *shape), np.float32) for _ in range(2))
        self.actions = np.zeros(capacity, np.int64)
        self.rewards, self.terminated = (np.zeros(capacity, np.float32) for _ in range(2))

    def add(self, obs: Any, action: int, reward: float, terminated: bool, after: Any) -> None:
        at = self.next
        self.obs[at], self.actions[at], self.rewards[at] = obs, action, reward
        self.terminated[at], self.after[at] = terminated, after
        self.next = (at + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def rows(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(self.size, size=count)

    def sample(self, count: int, rng: np.random.Generator) -> Columns:
        rows = self.rows(count, rng)
        names = ("obs", "actions", "rewards", "terminated", "after")
        return {name: torch.as_tensor(getattr(self, name)[rows]) for name in names}


class DQN:
    """Deep Q-learning with a target network."""

    make: Make = staticmethod(of(Catch))
    steps, start, every, sync = 12_000, 500, 4, 250
    capacity, batch, rate, gamma = 10_000, 64, 1e-3, 0.99
    explore, least = 0.4, 0.03
    replay_class: type[Replay] = Replay

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        self.scores = Scores()
        self.env = self.make(self.scores)
        self.seed = seed
        shape = self.env.observation_space.shape or ()
        space: Any = self.env.action_space
        self.net = self.network(int(np.prod(shape)), int(space.n))
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=self.rate)
        self.replay = self.replay_class(self.capacity, shape)

    def network(self, inputs: int, outputs: int) -> Any:
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, outputs))

    def prepare(self, obs: Any) -> np.ndarray:
        return np.asarray(obs, np.float32) / 255

    def epsilon(self, step: int) -> float:
        return max(self.least, 1 - (1 - self.least) * step / (self.explore * self.steps))

    def act(self, obs: np.ndarray, step: int) -> int:
        if self.rng.random() < self.epsilon(step):
            return int(self.rng.integers(self.env.action_space.n))  # type: ignore[attr-defined]
        with torch.no_grad():
            return int(self.net(torch.as_tensor(obs)[None]).argmax(-1))

    def targets(self, mb: Columns) -> Tensor:
        with torch.no_grad():
            best = self.target(mb["after"]).max(-1).values
        return mb["rewards"] + self.gamma * (1 - mb["terminated"]) * best

    def values(self, mb: Columns) -> Tensor:
        """Q-values of the actions that were taken, [R]."""
        return self.net(mb["obs"]).gather(1, mb["actions"][:, None]).squeeze(1)

    def synchronize(self) -> None:
        self.target.load_state_dict(self.net.state_dict())

    def remember(
        self, obs: Any, action: int, reward: float, terminated: bool, truncated: bool, after: Any
    ) -> None:
        self.replay.add(obs, action, reward, terminated, after)

    def learn(self, listen: Any) -> float:
        ear = listen(policy=self.net, optimizer=self.optimizer)
        obs = self.prepare(self.env.reset(seed=self.seed)[0])
        for step in range(self.steps):
            action = self.act(obs, step)
            seen, reward, terminated, truncated, _ = self.env.step(action)
            after = self.prepare(seen)
            self.remember(obs, action, float(reward), terminated, truncated, after)
            obs = self.prepare(self.env.reset()[0]) if terminated or truncated else after
            if step >= self.start and step % self.every == 0:
                mb = self.replay.sample(self.batch, self.rng)
                targets, values = self.targets(mb), self.values(mb)
                loss = nn.functional.smooth_l1_loss(values, targets)
                ear.batch(
                    obs=mb["obs"],
                    actions=mb["actions"],
                    rewards=mb["rewards"],
                    terminated=mb["terminated"],
                    values=values,
                    returns=targets,
                    loss=loss,
                )
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            if step % self.sync == 0:
                self.synchronize()
        return self.scores.mean()
