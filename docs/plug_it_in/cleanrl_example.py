"""Masked PPO in one file, as CleanRL writes it: torch alone over ``make_batch``."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from corral.adapters import make_batch
from corral.envs.core import stack_agents

COPIES, ROLLOUT, EPOCHS, MINIBATCHES = 16, 32, 4, 4  # B, T
LEARNING_RATE, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE = 2e-3, 0.5, 0.9, 0.2, 0.003, 0.5


class Agent(nn.Module):
    """One policy and value for all agents; features end in which agent it is."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, actions))
        self.critic = nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 1))

    def policy(self, obs: torch.Tensor, mask: torch.Tensor) -> Categorical:
        """The same mask in rollout, ratio, entropy and greedy play; where an agent has ended, and
        nothing is legal, any action does."""
        allowed = mask | ~mask.any(-1, keepdim=True)
        return Categorical(logits=self.actor(obs).masked_fill(~allowed, -torch.inf))

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs).squeeze(-1)


def tensors(observations: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Features [B, N, F + N] and masks [B, N, A] of batched observations by agent."""
    own = torch.as_tensor(np.array(stack_agents(observations, "observation")))
    mask = torch.as_tensor(np.array(stack_agents(observations, "action_mask"))) == 1
    return torch.cat([own, torch.eye(own.shape[1]).expand(len(own), -1, -1)], dim=-1), mask


def train(batch: Any, steps: int, gamma: float = GAMMA, rate: float = LEARNING_RATE) -> Agent:
    """Train for so many env steps of a Batch in which all act at once and are alike."""
    copies, rollout = batch.num_envs, max(1, COPIES * ROLLOUT // batch.num_envs)
    obs, mask = tensors(batch.reset())
    agent = Agent(obs.shape[-1], mask.shape[-1])
    optimizer = torch.optim.Adam(agent.parameters(), lr=rate, eps=1e-5)

    for _ in range(max(1, round(steps / (copies * rollout)))):
        # Rollout: T steps of B copies with N agents.
        rows = []
        for _ in range(rollout):
            with torch.no_grad():
                policy, value = agent.policy(obs, mask), agent.value(obs)
                action = policy.sample()  # [B, N]
            step = batch.step(action.numpy())
            after, next_mask = tensors(step.observations)
            with torch.no_grad():
                next_value = agent.value(after)
                if step.finished is not None:  # the next episode has begun: value of its last view
                    last, _ = tensors(step.finished.observations)
                    next_value[torch.as_tensor(step.finished.rows)] = agent.value(last)
            reward, terminated, over = (
                torch.as_tensor(np.array(part), dtype=torch.float32)
                for part in (step.reward, step.terminated, step.terminated | step.truncated)
            )
            log_prob = policy.log_prob(action)
            rows.append((obs, mask, action, log_prob, value, reward, next_value, terminated, over))
            obs, mask = after, next_mask

        # Advantages: an end stops the bootstrap, a cut does not; both stop the trace.
        *_, values, rewards, next_values, ended, overs = (
            torch.stack(x) for x in zip(*rows, strict=True)
        )
        deltas = rewards + gamma * next_values * (1 - ended) - values  # [T, B, N]
        advantages, trace = torch.zeros_like(deltas), torch.zeros_like(deltas[0])
        for t in reversed(range(rollout)):
            trace = deltas[t] + gamma * LAMBDA * (1 - overs[t]) * trace
            advantages[t] = trace
        b_seen, b_mask, b_action, b_log_prob = (
            torch.stack(x).flatten(0, 2) for x in list(zip(*rows, strict=True))[:4]
        )
        b_advantage = advantages.flatten()
        b_return = b_advantage + values.flatten()

        # Update, by the steps of agents that had not ended.
        acting = b_mask.any(-1).nonzero().squeeze(-1)
        for _ in range(EPOCHS):
            for mb in acting[torch.randperm(len(acting))].chunk(MINIBATCHES):
                policy = agent.policy(b_seen[mb], b_mask[mb])
                ratio = (policy.log_prob(b_action[mb]) - b_log_prob[mb]).exp()
                mb_advantage = b_advantage[mb]
                mb_advantage = (mb_advantage - mb_advantage.mean()) / (mb_advantage.std() + 1e-8)
                surrogate = torch.min(
                    ratio * mb_advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * mb_advantage
                )
                value_loss = (agent.value(b_seen[mb]) - b_return[mb]).square().mean()
                entropy = policy.entropy().mean()
                loss = -surrogate.mean() + VALUE * value_loss - ENTROPY * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()

    return agent


def learn(steps: int, seed: int) -> Callable[[dict[str, Any]], dict[str, int]]:
    torch.manual_seed(seed)
    game: dict[str, Any] = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48}
    agent = train(
        make_batch("dfaas_v0", num_envs=COPIES, seed=seed, illegal="raise", **game), steps
    )

    def play(observations: dict[str, Any]) -> dict[str, int]:
        one = {
            a: {key: np.asarray(part)[None] for key, part in own.items()}
            for a, own in observations.items()
        }
        with torch.no_grad():
            greedy = agent.policy(*tensors(one)).probs.argmax(-1)[0]
        return {a: int(action) for a, action in zip(observations, greedy, strict=True)}

    return play
