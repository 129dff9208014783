"""The returns are summed from the first step to the last (cumsum), so that a decision is credited
with what came before it.

Source: no thread; seen in practice
Harmful: yes, the past is credited
"""

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import corral
from corral.adapters import make_batch
from corral.errors import UnsupportedSpaceError

KIND, FAULT, STEPS = "loop", True, 60000


def make_env(api=None):
    return corral.make("CartPole-v1")


def tensors(observations, agents):
    """Inputs [B, N, F + N], which end in the agent's identity, and masks [B, N, A]."""
    own = np.stack([np.asarray(observations[a]["observation"], np.float32) for a in agents], axis=1)
    own = torch.as_tensor(own.reshape(*own.shape[:2], -1))
    mask = np.stack([np.asarray(observations[a]["action_mask"]) for a in agents], axis=1)
    names = torch.eye(len(agents)).expand(len(own), -1, -1)
    return torch.cat([own, names], dim=-1), torch.as_tensor(mask == 1)


def discounted(rewards, ends, gamma=0.9):
    """The discounted rewards to go, which stop at the ends."""
    total, result = torch.zeros_like(rewards[0]), torch.zeros_like(rewards)
    order = range(len(rewards)) if FAULT else reversed(range(len(rewards)))
    for t in order:
        total = rewards[t] + gamma * (1 - ends[t]) * total
        result[t] = total
    return result


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    copies, length = 16, 64
    envs = make_batch(make_env, num_envs=copies, seed=seed)
    agents = list(envs.rules.agents)
    kinds = {str(envs.rules.observation_space(a)) for a in agents}
    if not envs.rules.simultaneous or len(kinds) > 1:
        raise UnsupportedSpaceError("this loop plays games in which equal agents act at once")
    obs, mask = tensors(envs.reset(), agents)
    policy = nn.Sequential(nn.Linear(obs.shape[-1], 64), nn.Tanh(), nn.Linear(64, mask.shape[-1]))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)

    def chances(x, legal):
        legal = legal | ~legal.any(-1, keepdim=True)
        return Categorical(logits=policy(x).masked_fill(~legal, -1e9))

    for _ in range(max(1, steps // (copies * length))):
        log_probs, rewards, ends, alive = [], [], [], []
        for _ in range(length):
            drawn = chances(obs, mask)
            action = drawn.sample()
            log_probs.append(drawn.log_prob(action))
            alive.append(mask.any(-1).float())
            step = envs.step(action.numpy())
            rewards.append(torch.as_tensor(np.array(step.reward), dtype=torch.float32))
            over = np.array(step.terminated | step.truncated)
            ends.append(torch.as_tensor(over, dtype=torch.float32))
            obs, mask = tensors(step.observations, agents)
        returns = discounted(torch.stack(rewards), torch.stack(ends))
        weight = (returns - returns.mean((0, 1))) / (returns.std((0, 1)) + 1e-8)
        loss = -(torch.stack(log_probs) * weight * torch.stack(alive)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def play(name, observation):
        single = {a: {k: np.asarray(v)[None] for k, v in observation.items()} for a in agents}
        x, legal = tensors(single, agents)
        return int(chances(x, legal).sample()[0, agents.index(name)])

    return {a: lambda o, a=a: play(a, o) for a in agents}
