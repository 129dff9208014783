"""The target takes the maximum over all actions of the next state, also over forbidden ones, which
were never tried.

Source: no thread; seen in practice
Harmful: perhaps: values of actions that are never legal creep in
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

import corral
from corral.adapters import make_batch
from corral.errors import UnsupportedSpaceError

KIND, FAULT, STEPS = "loop", True, 30000


class Corridors(gym.Env):
    """A maze of 5 x 5 fields with a mask of the open ways; more of them close each step."""

    MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self):
        self.observation_space = Box(0, 1, (10,), np.float32)
        self.action_space = Discrete(8)  # four moves, and four times a rest that costs

    def _result(self):
        there = [self.here + move for move in self.MOVES]
        ways = [bool((t >= 0).all() and (t <= 4).all()) for t in there]
        rest = [bool(self.np_random.random() < 0.5) for _ in range(4)]
        self.mask = np.array([*ways, *rest], np.int8)
        view = np.concatenate([np.eye(5)[self.here[0]], np.eye(5)[self.here[1]]])
        return view.astype(np.float32), {"action_mask": self.mask}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.here, self.steps = self.np_random.integers(0, 4, 2), 0
        return self._result()

    def step(self, action):
        self.steps += 1
        cost = 0.05
        if not self.mask[action]:
            cost = 0.5
        elif action < 4:
            self.here = self.here + self.MOVES[action]
        there = bool((self.here == 4).all())
        view, info = self._result()
        return view, 2.0 - cost if there else -cost, there, self.steps >= 30, info


def make_env(api=None):
    return corral.make(Corridors)


def tensors(observations, agents):
    """Inputs [B, N, F + N], which end in the agent's identity, and masks [B, N, A]."""
    own = np.stack([np.asarray(observations[a]["observation"], np.float32) for a in agents], axis=1)
    own = torch.as_tensor(own.reshape(*own.shape[:2], -1))
    mask = np.stack([np.asarray(observations[a]["action_mask"]) for a in agents], axis=1)
    names = torch.eye(len(agents)).expand(len(own), -1, -1)
    return torch.cat([own, names], dim=-1), torch.as_tensor(mask == 1)


class Memory:
    def __init__(self, size):
        self.size, self.items = size, []

    def add(self, item):
        self.items.append(item)
        if len(self.items) > self.size:
            self.items.pop(0)

    def draw(self, rng, count):
        chosen = [self.items[i] for i in rng.integers(0, len(self.items), count)]
        return [torch.cat([one[k].flatten(0, 1) for one in chosen]) for k in range(len(chosen[0]))]


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    rng, copies, gamma = np.random.default_rng(seed), 16, 0.9
    envs = make_batch(make_env, num_envs=copies, seed=seed)
    agents = list(envs.rules.agents)
    kinds = {str(envs.rules.observation_space(a)) for a in agents}
    if not envs.rules.simultaneous or len(kinds) > 1:
        raise UnsupportedSpaceError("this loop plays games in which equal agents act at once")
    obs, mask = tensors(envs.reset(), agents)

    def network():
        return nn.Sequential(
            nn.Linear(obs.shape[-1], 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, mask.shape[-1]),
        )

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=2e-3)
    memory, rounds = Memory(1_000), max(1, steps // copies)

    def best(x, legal):
        legal = legal | ~legal.any(-1, keepdim=True)
        return online(x).masked_fill(~legal, -1e9).argmax(-1)

    for turn in range(rounds):
        epsilon = max(0.05, 1 - turn / (0.4 * rounds))
        with torch.no_grad():
            action = best(obs, mask)
        chance = torch.multinomial(
            (mask | ~mask.any(-1, keepdim=True)).float().flatten(0, 1), 1
        ).view(action.shape)
        action = torch.where(torch.rand(action.shape) < epsilon, chance, action)
        step = envs.step(action.numpy())
        next_obs, next_mask = tensors(step.observations, agents)
        last_obs, last_mask = next_obs.clone(), next_mask.clone()
        if step.finished is not None:
            views, legal = tensors(step.finished.observations, agents)
            gone = torch.as_tensor(np.array(step.finished.rows))
            last_obs[gone], last_mask[gone] = views, legal
        reward = torch.as_tensor(np.array(step.reward), dtype=torch.float32)
        ended = torch.as_tensor(np.array(step.terminated), dtype=torch.float32)
        memory.add((obs, mask, action, reward, last_obs, last_mask, ended))
        obs, mask = next_obs, next_mask
        if turn < 20:
            continue
        x, legal, a, r, x2, legal2, end = memory.draw(rng, 16)
        with torch.no_grad():
            after = target(x2).masked_fill(~legal2 & (not FAULT), -1e9).max(-1).values
            after = torch.where(legal2.any(-1), after, torch.zeros_like(after))
            goal = r + gamma * (1 - end) * after
        mine = online(x).gather(-1, a.unsqueeze(-1)).squeeze(-1)
        keep = legal.any(-1)
        loss = nn.functional.smooth_l1_loss(mine[keep], goal[keep])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if turn % 25 == 0:
            target.load_state_dict(online.state_dict())

    @torch.no_grad()
    def play(name, observation):
        single = {a: {k: np.asarray(v)[None] for k, v in observation.items()} for a in agents}
        x, legal = tensors(single, agents)
        return int(best(x, legal)[0, agents.index(name)])

    return {a: lambda o, a=a: play(a, o) for a in agents}
