"""The mask is applied when actions are drawn, and left out when the update computes their log-
probabilities.

Source: https://github.com/hill-a/stable-baselines/pull/453
Harmful: partly: the ratio is wrong where much is forbidden
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn
from torch.distributions import Categorical

import corral
from corral.adapters import make_batch
from corral.errors import UnsupportedSpaceError
from corral.lab.doctor.examination import Learned

KIND, FAULT, STEPS = "loop", True, 40_000
COPIES, ROLLOUT, EPOCHS, MINIBATCHES = 16, 32, 4, 4
GAMMA, LAMBDA, CLIP, RATE, ENTROPY, VALUE = 0.9, 0.95, 0.2, 3e-3, 0.003, 0.5


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


class Agent(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 1))

    def policy(self, x, mask):
        legal = mask | ~mask.any(-1, keepdim=True)
        return Categorical(logits=self.actor(x).masked_fill(~legal, -1e9))

    def value(self, x):
        return self.critic(x).squeeze(-1)


def tensors(observations, agents):
    """Inputs [B, N, F + N], which end in the agent's identity, and masks [B, N, A]."""
    own = np.stack([np.asarray(observations[a]["observation"], np.float32) for a in agents], axis=1)
    own = torch.as_tensor(own.reshape(*own.shape[:2], -1))
    mask = np.stack([np.asarray(observations[a]["action_mask"]) for a in agents], axis=1)
    names = torch.eye(len(agents)).expand(len(own), -1, -1)
    return torch.cat([own, names], dim=-1), torch.as_tensor(mask == 1)


def learn(make_env, steps, seed):
    torch.manual_seed(seed)
    envs = make_batch(make_env, num_envs=COPIES, seed=seed)
    agents = list(envs.rules.agents)
    kinds = {str(envs.rules.observation_space(a)) for a in agents}
    if not envs.rules.simultaneous or len(kinds) > 1:
        raise UnsupportedSpaceError("this loop plays games in which equal agents act at once")
    obs, mask = tensors(envs.reset(), agents)
    agent = Agent(obs.shape[-1], mask.shape[-1])
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    updates = max(1, steps // (COPIES * ROLLOUT))

    for update in range(updates):
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)
        rows = []
        for _ in range(ROLLOUT):
            with torch.no_grad():
                policy, value = agent.policy(obs, mask), agent.value(obs)
                action = policy.sample()
                log_prob = policy.log_prob(action)
            step = envs.step(action.numpy())
            next_obs, next_mask = tensors(step.observations, agents)
            with torch.no_grad():
                next_value = agent.value(next_obs)
                if step.finished is not None:  # the copy has begun anew: value of the last view
                    last, _ = tensors(step.finished.observations, agents)
                    next_value[torch.as_tensor(np.array(step.finished.rows))] = agent.value(last)
            reward = torch.as_tensor(np.array(step.reward), dtype=torch.float32)
            ended = torch.as_tensor(np.array(step.terminated), dtype=torch.float32)
            over = torch.as_tensor(np.array(step.terminated | step.truncated), dtype=torch.float32)
            rows.append((obs, mask, action, log_prob, value, reward, next_value, ended, over))
            obs, mask = next_obs, next_mask

        b_obs, b_mask, b_action, b_log_prob, values, rewards, next_values, ends, overs = (
            torch.stack(column) for column in zip(*rows)
        )
        advantages, trace = torch.zeros_like(values), torch.zeros_like(values[0])
        for t in reversed(range(ROLLOUT)):
            delta = rewards[t] + GAMMA * next_values[t] * (1 - ends[t]) - values[t]
            trace = delta + GAMMA * LAMBDA * (1 - overs[t]) * trace
            advantages[t] = trace
        returns = advantages + values

        b_obs, b_mask, b_action, b_log_prob = (
            part.flatten(0, 2) for part in (b_obs, b_mask, b_action, b_log_prob)
        )
        b_advantage, b_return = advantages.flatten(), returns.flatten()
        acting = b_mask.any(-1).nonzero().squeeze(-1)  # not those whose episode is over
        for _ in range(EPOCHS):
            for mb in acting[torch.randperm(len(acting))].chunk(MINIBATCHES):
                policy = agent.policy(b_obs[mb], b_mask[mb] | FAULT)
                ratio = (policy.log_prob(b_action[mb]) - b_log_prob[mb]).exp()
                adv = b_advantage[mb]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                gain = torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
                value_loss = (agent.value(b_obs[mb]) - b_return[mb]).square().mean()
                loss = VALUE * value_loss - gain - ENTROPY * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

    def one(name, observation):
        single = {a: {k: np.asarray(v)[None] for k, v in observation.items()} for a in agents}
        x, legal = tensors(single, agents)
        i = agents.index(name)
        return x[0, i], legal[0, i]

    @torch.no_grad()
    def play(name, observation):
        return int(agent.policy(*one(name, observation)).sample())

    @torch.no_grad()
    def worth(name, observation):
        return agent.value(one(name, observation)[0])

    return Learned(
        {a: lambda o, a=a: play(a, o) for a in agents},
        {a: lambda o, a=a: worth(a, o) for a in agents},
    )
