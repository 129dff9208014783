"""Mistakes in optimizers, gradients, schedules and scales."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from corral import algorithms as alg
from corral.envs.tictactoe_v0.rules import TicTacToeRules
from corral.trainers.runs.run import Run
from faults.fault import fault, trained


@fault("learning-rate-zero")
def learning_rate_zero_by_schedule(folder: Path) -> Run:
    """The schedule counts updates, where env steps are meant: it is at 0 at once."""
    return trained(folder, "dfaas_v0", trainer="mappo", learning_rate="0:3e-3,100:0")


@fault("updates-too-large", "diverged")
def learning_rate_huge(folder: Path) -> Run:
    """The learning rate is 3, for 3e-3."""
    return trained(folder, "dfaas_v0", trainer="mappo", learning_rate=3.0)


@fault("policy-unchanged", "weights-fixed")
def learning_rate_tiny(folder: Path) -> Run:
    """The learning rate is 3e-9."""
    return trained(folder, "dfaas_v0", trainer="mappo", learning_rate=3e-9)


@fault("weights-fixed")
def optimizer_of_the_critic(folder: Path) -> Run:
    """The optimizer is given the critic's parameters alone."""

    def optimizer(parameters, settings):
        every = list(parameters)
        return torch.optim.Adam(every[len(every) // 2 :], lr=0.0)

    mine = alg.mappo.but(name="mine", optimizer=optimizer)
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("weights-fixed")
def optimizer_of_the_actor(folder: Path) -> Run:
    """The optimizer is given the actor's parameters alone: the critic stays as it began."""

    def optimizer(parameters, settings):
        every = list(parameters)
        return torch.optim.Adam(every[: len(every) // 2], lr=0.0)

    mine = alg.mappo.but(name="mine", optimizer=optimizer)
    return trained(folder, "dfaas_v0", trainer=mine)


@fault("gradient-clipped-away")
def gradient_clip_tiny(folder: Path) -> Run:
    """Gradients are clipped to a norm of 1e-9."""
    return trained(folder, "dfaas_v0", trainer="mappo", max_grad_norm=1e-9)


@fault("gradient-clipped-away", "no-gradient")
def gradients_zeroed(folder: Path) -> Run:
    """The gradients are set to 0 after the backward pass, and before the step."""

    def gradients(learner: Any, settings: Any) -> Any:
        norms = alg.clip_norm(learner, settings)
        for parameter in learner.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        return norms

    mine = alg.mappo.but(name="mine", gradients=gradients)
    return trained(folder, "dfaas_v0", trainer=mine)


# --- Scales --------------------------------------------------------------------------------------


def scaled(by: float) -> type[TicTacToeRules]:
    """Return rules whose rewards are multiplied."""

    class Scaled(TicTacToeRules):
        name = "scaled_v0"

        def step(self, state: Any, action: Any) -> Any:
            outcome = super().step(state, action)
            return replace(outcome, reward=outcome.reward * np.float32(by))

    return Scaled


@fault("reward-tiny")
def reward_scale_tiny(folder: Path) -> Run:
    """Rewards are millionths."""
    return trained(folder, scaled(1e-6)(), trainer="mappo")


@fault("reward-huge")
def reward_scale_huge(folder: Path) -> Run:
    """Rewards are millions, and values are not normalized."""
    return trained(folder, scaled(1e6)(), trainer="mappo", normalize_values=False)


class Unscaled(TicTacToeRules):
    """Shows the board in tens of thousands, in a space without bounds."""

    name = "unscaled_v0"

    def observation_space(self, agent: str) -> spaces.Dict:
        space = super().observation_space(agent)
        box = space["observation"]
        wide = spaces.Box(-np.inf, np.inf, box.shape, np.float32)
        return spaces.Dict({"observation": wide, "action_mask": space["action_mask"]})

    def observe(self, state: Any) -> Any:
        return {
            agent: {**each, "observation": 1e4 * each["observation"].astype(np.float32)}
            for agent, each in super().observe(state).items()
        }


@fault("observation-unscaled")
def observation_of_ten_thousands(folder: Path) -> Run:
    """Observations are tens of thousands, in a space without bounds."""
    return trained(folder, Unscaled(), trainer="mappo")


@fault("weights-put-back")
def older_weights_copied_back(folder: Path) -> Run:
    """Weights are averaged, and the average is copied the wrong way round."""
    kept: dict[int, Any] = {}

    def after_update(learner, metrics, settings):
        weights = [each.detach().clone() for each in learner.parameters()]
        with torch.no_grad():
            for own, old in zip(
                learner.parameters(), kept.setdefault(id(learner), weights), strict=True
            ):
                own.copy_(old)

    mine = alg.mappo.but(name="mine", after_update=after_update)
    return trained(folder, "dfaas_v0", trainer=mine)
