"""Mistakes that no exception and no curve shows: noise, lost signs, decay, policies left out."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

import corral
from corral import algorithms as alg
from corral.trainers.on_policy.trainer import MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained
from faults.sound import NAMES, Depots, depots
from support.own_networks import Flat, made_of

# --- Rewards and actions of the environment ------------------------------------------------------


class PaidByChance(Depots):
    def step(self, actions: Any) -> Any:
        looks, rewards, *rest = super().step(actions)
        return looks, {agent: float(self.rng.normal()) for agent in rewards}, *rest


@fault("reward-unearned", sure=False)
def rewards_are_noise(folder: Path) -> Run:
    """Rewards are drawn by chance, whatever is played."""
    return trained(folder, depots(PaidByChance))


class Replaces(Depots):
    def step(self, actions: Any) -> Any:
        drawn = {a: int(self.rng.choice(np.flatnonzero(self.mask(i)))) for i, a in enumerate(NAMES)}
        kept = self.rng.random(3) < 0.25
        return super().step({a: actions[a] if kept[i] else drawn[a] for i, a in enumerate(NAMES)})


@fault("actions-idle", sure=False)
def three_of_four_actions_replaced(folder: Path) -> Run:
    """A share of random actions, meant as 0.25, is 0.75."""
    return trained(folder, depots(Replaces))


class PaidInCents(Depots):
    def step(self, actions: Any) -> Any:
        looks, rewards, *rest = super().step(actions)
        return looks, {**rewards, NAMES[2]: 100 * rewards[NAMES[2]]}, *rest


@fault("reward-scales-differ", sure=False)
def one_agent_is_paid_in_cents(folder: Path) -> Run:
    """One agent's rewards are in cents, the others' in euros, and they share a policy."""
    return trained(folder, depots(PaidInCents))


class ViewOfTheFirst(Depots):
    def look(self, i: int) -> Any:
        return super().look(0 if i == 1 else i)


@fault("observation-of-another", sure=False)
def view_of_another_agent(folder: Path) -> Run:
    """The environment shows the second agent what the first one sees."""
    return trained(folder, depots(ViewOfTheFirst))


# --- Policies that are not trained ---------------------------------------------------------------


@fault("policy-untrained", sure=False)
def one_policy_of_three_trained(folder: Path) -> Run:
    """Of three policies, one alone is trained."""
    return trained(folder, depots(), policies="separate", policies_to_train=(NAMES[0],))


# --- Losses and optimizers -----------------------------------------------------------------------


@fault("advantage-unsigned")
def advantages_of_the_loss_without_sign(folder: Path) -> Run:
    """The loss takes the absolute value of advantages."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        size = dataclasses.replace(minibatch, advantage=minibatch.advantage.abs())
        return alg.ppo_loss(size, outputs, settings)

    return trained(folder, "dfaas_v0", trainer=alg.mappo.but(name="mine", loss=loss))


@fault("advantage-unsigned")
def advantages_without_sign(folder: Path) -> Run:
    """Advantages are made by a norm, which is never negative."""

    def advantages(trajectories: Any, settings: Any) -> Any:
        signed = alg.gae(trajectories, settings)
        return alg.Advantages(np.abs(signed.advantage), signed.value_target)

    mine = alg.mappo.but(name="mine", advantages=advantages)
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("decisions-left-out")
def half_of_a_minibatch_dropped(folder: Path) -> Run:
    """The loss takes every second row of a minibatch."""

    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        ratio = (outputs.log_prob - minibatch.log_prob).exp()[::2]
        clipped = ratio.clamp(0.8, 1.2)
        advantage = minibatch.advantage[::2]
        policy = -torch.min(ratio * advantage, clipped * advantage).mean()
        error = (outputs.value - minibatch.value_target)[::2].square().mean()
        return alg.Losses({"policy_loss": policy, "value_loss": error})

    return trained(folder, "dfaas_v0", trainer=alg.mappo.but(name="mine", loss=loss))


@fault("weights-decay")
def weight_decay_huge(folder: Path) -> Run:
    """The weight decay is 30, for 0.003."""

    def optimizer(parameters: Any, settings: Any) -> Any:
        return torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=30.0)

    return trained(folder, "dfaas_v0", trainer=alg.mappo.but(name="mine", optimizer=optimizer))


class SoftmaxOfProbabilities(MAPPO):
    """Its networks end in a softmax, and the distribution takes another one."""

    def begin(self) -> None:
        super().begin()
        for learner in self.learners.values():
            plain = type(learner).distribution.__get__(learner)

            def twice(outputs: Any, mask: Any, plain: Any = plain) -> Any:
                return plain(outputs.softmax(dim=-1), mask)

            learner.distribution = twice


@fault("softmax-twice")
def softmax_taken_twice(folder: Path) -> Run:
    """Probabilities are passed on as logits."""
    return trained(folder, "dfaas_v0", trainer=SoftmaxOfProbabilities)


# --- What the network and the update take away ---------------------------------------------------


@fault("softmax-of-features")
def softmax_before_the_last_layer(folder: Path) -> Run:
    """A network of one's own ends in a softmax, and the trainer adds its last layer."""
    model = made_of(lambda net, obs: net.layer(net.join(obs)).softmax(dim=-1))
    return trained(folder, depots(), model=model)


@fault("units-alike")
def equal_weights_at_the_start(folder: Path) -> Run:
    """All weights of a layer start with the same value."""

    class Equal(Flat):
        def __init__(self) -> None:
            super().__init__()
            self.next = torch.nn.Linear(6, 6)
            torch.nn.init.constant_(self.next.weight, 0.1)
            torch.nn.init.constant_(self.next.bias, 0.0)
            self.last = torch.nn.Linear(6, 6)
            torch.nn.init.constant_(self.last.weight, 0.1)

        def forward(self, obs: Any) -> Any:
            return self.last(self.next(super().forward(obs)).tanh()).tanh()

    return trained(folder, depots(), model=lambda observation_space, *, role: Equal())


@fault("scale-ignored")
def observation_normalized_by_itself(folder: Path) -> Run:
    """A layer norm comes before the first layer."""

    def forward(net: Flat, obs: Any) -> Any:
        joined = net.join(obs)
        return net.layer(torch.nn.functional.layer_norm(joined, joined.shape[1:])).tanh()

    return trained(folder, depots(), model=made_of(forward))


@fault("gradients-grow")
def gradients_added_up(folder: Path) -> Run:
    """The gradient rule adds the gradients of all earlier steps."""
    sums: dict[str, Any] = {}

    def gradients(learner: Any, settings: Any) -> Any:
        for name, parameter in learner.named_parameters():
            if parameter.grad is not None:
                sums[name] = parameter.grad + sums.get(name, 0.0)
                parameter.grad = sums[name].clone()
        return alg.clip_norm(learner, settings)

    return trained(
        folder, "dfaas_v0", trainer=alg.mappo.but(name="mine", gradients=gradients), n_epochs=4
    )


@fault("targets-follow-values")
def targets_of_normalized_advantages(folder: Path) -> Run:
    """Value targets are made of advantages that are already normalized."""

    def advantages(trajectories: Any, settings: Any) -> Any:
        advantage = alg.normalize(alg.gae)(trajectories, settings).advantage
        return alg.Advantages(advantage, advantage + trajectories.value)

    mine = alg.mappo.but(name="mine", advantages=advantages)
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("advantages-mixed")
def advantages_normalized_over_the_copies(folder: Path) -> Run:
    """Advantages are normalized over the copies of one step."""

    def advantages(trajectories: Any, settings: Any) -> Any:
        found = alg.gae(trajectories, settings)
        centered = found.advantage - found.advantage.mean(axis=1, keepdims=True)
        return alg.Advantages(centered, found.value_target)

    mine = alg.mappo.but(name="mine", advantages=advantages)
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("reward-huge")
def rewards_in_millionths(folder: Path) -> Run:
    """Rewards are in millionths, and the trainer of another library does not scale them."""

    class Millionths(Depots):
        def step(self, actions: Any) -> Any:
            looks, rewards, *rest = super().step(actions)
            return looks, {agent: 1e6 * reward for agent, reward in rewards.items()}, *rest

    return trained(folder, depots(Millionths), trainer="sb3_ppo", num_envs=8, n_steps=32)


@fault("play-unchanged")
def learning_starts_after_the_end(folder: Path) -> Run:
    """The run ends before its first update."""
    return corral.train(
        "CartPole-v1",
        trainer="sb3_dqn",
        steps=2_000,
        learning_starts=5_000,
        out=folder,
        progress=False,
    )
