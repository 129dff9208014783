"""A PPO update in plain torch, with parts that a test replaces, and what was heard of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from corral.lab.listening.heard import Heard, Minibatch, as_array
from corral.lab.listening.layers import Layers
from corral.lab.listening.outputs import watch_outputs
from corral.lab.listening.rules_updates import RULES
from corral.lab.listening.steps import Steps

ROWS, FEATURES, ACTIONS = 128, 6, 4


class ActorCritic(nn.Module):
    """Two small networks."""

    def __init__(self, activation: type[nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(FEATURES, 16), activation(), nn.Linear(16, ACTIONS))
        self.critic = nn.Sequential(nn.Linear(FEATURES, 16), activation(), nn.Linear(16, 1))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)[:, 0]


class Listener:
    """Hears as the ear does, without rollouts."""

    def __init__(self, network: nn.Module | None, last: int = 100) -> None:
        self.heard = Heard("policy", network=network)
        self.steps = Steps(self.heard, lambda: self.heard.updates <= last)
        self.layers = Layers(self.heard, lambda: self.heard.updates <= last)
        self.steps.start()
        self.layers.start()

    def begin_update(self) -> None:
        self.heard.updates += 1
        self.steps.begin_update()
        self.layers.begin_update()

    def batch(self, **data: Any) -> None:
        names = {entry.name for entry in dataclasses.fields(Minibatch)}
        mine = [item for item in self.heard.minibatches if item.update == self.heard.updates]
        minibatch = Minibatch(
            **{name: as_array(values) for name, values in data.items() if name in names},
            losses={name: float(item.detach()) for name, item in data.items() if name not in names},
            first=not mine,
            update=self.heard.updates,
            step=len(self.heard.steps),
        )
        self.heard.minibatches.append(minibatch)
        watch_outputs(minibatch, data)

    def stop(self) -> None:
        self.steps.stop()
        self.layers.stop()

    def findings(self) -> dict[str, int]:
        """Return the certainty of each cause."""
        found = [finding for rule in RULES if (finding := rule(self.heard)) is not None]
        return {finding.cause: finding.certainty for finding in found}


@dataclass
class Rows:
    """Decisions [R, ...] of a rollout or a minibatch."""

    obs: torch.Tensor
    mask: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def __getitem__(self, at: torch.Tensor) -> Rows:
        return Rows(**{name: values[at] for name, values in vars(self).items()})


def policy_loss(new: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Return the clipped loss of PPO, with advantages normalized in the minibatch."""
    advantages = (rows.advantages - rows.advantages.mean()) / (rows.advantages.std() + 1e-8)
    ratio = (new - rows.log_probs).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def value_loss(values: torch.Tensor, rows: Rows) -> torch.Tensor:
    return 0.5 * (values - rows.returns).square().mean()


def masked(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return logits.masked_fill(~mask, -torch.inf)


def entropy_of(logits: torch.Tensor) -> torch.Tensor:
    chances = torch.softmax(logits, dim=1)
    return -(chances * chances.clamp(min=1e-30).log()).sum(dim=1)


@dataclass
class Loop:
    """A training of a few updates on random observations. Tests replace its parts."""

    network: nn.Module
    policy_loss: Callable[[torch.Tensor, Rows], torch.Tensor] = policy_loss
    value_loss: Callable[[torch.Tensor, Rows], torch.Tensor] = value_loss
    forward: Callable[[nn.Module, torch.Tensor], tuple[torch.Tensor, torch.Tensor]] = (
        lambda network, obs: network(obs)
    )
    of_play: Callable[[Rows], Rows] = lambda rows: rows  # what is stored
    in_loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = masked
    in_play: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = masked
    entropy_logits: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = masked
    entropy_weight: float = 0.01
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.Adam(
        parameters, lr=3e-3
    )
    parameters: Callable[[nn.Module], Any] = lambda network: network.parameters()
    before_step: Callable[[nn.Module], Any] = lambda network: nn.utils.clip_grad_norm_(
        network.parameters(), 0.5
    )
    after_update: Callable[[Loop], Any] = lambda loop: None
    zero_grad: bool = True
    updates: int = 4
    epochs: int = 2
    listen: bool = True
    heard: Listener | None = None
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def rollout(self) -> Rows:
        """Play: the reward depends on the action and the observation."""
        obs = torch.from_numpy(self.rng.normal(size=(ROWS, FEATURES))).float()
        mask = torch.from_numpy(self.rng.random((ROWS, ACTIONS)) < 0.7)
        mask[:, 0] = True
        with torch.no_grad():
            logits, values = self.forward(self.network, obs)
            logits = torch.log_softmax(self.in_play(logits, mask), dim=1)
        noise = torch.from_numpy(self.rng.gumbel(size=(ROWS, ACTIONS))).float()
        actions = (logits + noise).argmax(dim=1)
        rows = torch.arange(ROWS)
        returns = 2.0 * obs[rows, actions] + 0.5 * obs[:, 5] + 1.0
        return Rows(
            obs=obs,
            mask=mask,
            actions=actions,
            log_probs=logits[rows, actions],
            values=values,
            advantages=returns - values,
            returns=returns,
        )

    def run(self) -> Listener:
        """Train, and return what was heard."""
        listener = self.heard = Listener(self.network if self.listen else None)
        optimizer = self.optimizer(self.parameters(self.network))
        for _ in range(self.updates):
            stored = self.of_play(self.rollout())
            if self.listen:
                listener.begin_update()
            for _ in range(self.epochs):
                order = torch.from_numpy(self.rng.permutation(ROWS))
                for at in order.split(ROWS // 2):
                    self.learn(stored[at], optimizer, listener)
            self.after_update(self)
        listener.stop()
        return listener

    def learn(self, rows: Rows, optimizer: torch.optim.Optimizer, listener: Listener) -> None:
        """Make one step."""
        outputs, values = self.forward(self.network, rows.obs)
        logits = self.in_loss(outputs, rows.mask)
        new = torch.log_softmax(logits, dim=1)[torch.arange(len(rows.obs)), rows.actions]
        entropy = entropy_of(self.entropy_logits(outputs, rows.mask))
        loss = (
            self.policy_loss(new, rows)
            + self.value_loss(values, rows)
            - self.entropy_weight * entropy.mean()
        )
        if self.zero_grad:
            optimizer.zero_grad()
        if self.listen:
            listener.batch(
                obs=rows.obs,
                mask=rows.mask,
                actions=rows.actions,
                log_probs=rows.log_probs,
                new_log_probs=new,
                logits=logits,
                entropy=entropy,
                values=values,
                advantages=rows.advantages,
                returns=rows.returns,
                loss=loss,
            )
        loss.backward()
        self.before_step(self.network)
        optimizer.step()


def network(seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    return ActorCritic()
