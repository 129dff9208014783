"""The record of policy iteration: its settings, and the loss that learns differences."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from corral.adapters.masked_distribution import MaskedCategorical
from corral.trainers.on_policy.algorithms import entropy_bonus, gae, ippo, value_loss
from corral.trainers.on_policy.learner import START
from corral.trainers.on_policy.records import (
    Advantages,
    Losses,
    Minibatch,
    OnPolicy,
    Outputs,
    Trajectories,
)
from corral.trainers.on_policy.settings import IPPOSettings
from corral.trainers.settings import setting

__all__ = ["GAIN", "TRIED", "PolicyIterationSettings", "policy_iteration"]

FOR_ALL = "the copies of a moment are played by all policies together"

OF_PPO = ("clip_range", "kl_coef", "kl_target", "stay_target", "target_kl")
"""Settings of ippo that say nothing here."""

TRIED, GAIN = "tried", "gain"
"""What is kept of a decision: actions int64 [C], and what they earned more than the first."""


OTHERWISE = (
    *("num_envs", "n_steps", "n_minibatches", "gamma", "gae_lambda", "learning_rate"),
    *("n_epochs", "ent_coef", "ent_coef_end"),
)
"""Settings that presets do not change: theirs were found for returns, and for longer rollouts."""


@dataclass(frozen=True)
class PolicyIterationSettings(IPPOSettings):
    """Settings of policy iteration: networks and rollouts of ippo, and what is compared.

    An env step is slow: ``candidates`` x ``horizon`` further ones are played for each agent.
    """

    num_envs: int = setting(128)
    n_steps: int = setting(4)
    gamma: float = setting(
        1.0,
        "Discount of rewards from one env step to the next, while copies are played on.",
        least=0,
        most=1,
        common=FOR_ALL,
    )
    learning_rate: float | str = setting(2e-3)
    n_epochs: int = setting(8)
    stay_coef: float = setting(
        0.0,
        "With --init: weight of the start's logits, to which what is learned is added.",
        least=0,
    )
    candidates: int = setting(
        8,
        "Number of actions that are compared for each decision, that taken among them.",
        least=2,
        unit="actions",
        common=FOR_ALL,
        sizes="tried",
    )
    lookahead: int = setting(
        12,
        "Steps for which copies are played on, that of the action compared among them.",
        least=1,
        unit="env steps",
        common=FOR_ALL,
    )
    reach: int = setting(
        12,
        "Where actions are amounts: half of those compared lie within so many of the one taken.",
        least=0,
        unit="actions",
        common=FOR_ALL,
    )
    explore: float = setting(
        0.1,
        "Share of the decisions in rollouts that are drawn; the others are greedy.",
        least=0,
        most=1,
        common=FOR_ALL,
    )
    gain_delta: float = setting(
        10.0,
        "Error, in multiples of the mean difference, from which the loss is linear.",
        above=0,
    )
    own_reward: bool = setting(
        False,
        "Count the deciding agent's rewards alone; else the sum of all agents' rewards.",
        common=FOR_ALL,
    )
    futures: str = setting(
        "redrawn",
        "Future of the copies if agents choose before a step's chance (unknown arrivals): "
        "'redrawn' from other data, once per moment; 'recorded', the episode's own.",
        choices=("redrawn", "recorded"),
        common=FOR_ALL,
    )
    teacher: str = setting(
        "",
        "Whose play is improved first: a reference team or player such as overflow, or a run (RUN, "
        "RUN@best).",
        common=FOR_ALL,
    )
    taught: float = setting(
        0.15,
        "Share of the env steps that the teacher plays, if there is one.",
        least=0,
        most=1,
        common=FOR_ALL,
    )

    unused: ClassVar[tuple[str, ...]] = (*OF_PPO, "memory", "action_std")
    unset_by_presets: ClassVar[tuple[str, ...]] = OTHERWISE

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in OF_PPO and value != field.default:
                raise ValueError(
                    f"{field.name}={value}: policy iteration has no use for it; leave it out"
                )
        if self.memory:
            raise ValueError(
                f"memory={self.memory}: policy iteration copies no hidden state; leave it out, or "
                "take mappo"
            )


FAR = 20.0
"""Bound on differences of the start's logits."""

# --- The record ----------------------------------------------------------------------------------


def values_for_others(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return what ``gae`` does, with a discount where the settings have none: values of what never
    ends would have no bound."""
    return gae(trajectories, dataclasses.replace(settings, gamma=min(settings.gamma, 0.99)))


def comparison_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the error of the differences between logits, as what the actions earned, and values'.

    Where a difference is large a Huber loss keeps it from ruling the others. With ``stay_coef`` the
    differences of the start's logits, so many times, are added to what is learned: a prior, which
    small gains do not overcome.
    """
    distribution = outputs.distribution
    assert isinstance(distribution, MaskedCategorical)  # ``check`` has seen to it
    tried, wanted = minibatch.extras[TRIED], minibatch.extras[GAIN]  # [R, C]
    start = minibatch.extras.get(f"{START}logits")
    if start is not None:
        wanted = wanted + minibatch.stay_coef * _differences(start, tried).clamp(-FAR, FAR)
    expected = _differences(distribution.logits, tried)
    error = nn.functional.huber_loss(expected, wanted, delta=settings.gain_delta)
    terms = {"gain_error": error, **entropy_bonus(minibatch, outputs, settings)}
    return Losses({**terms, "value_loss": value_loss(minibatch, outputs, settings)})


def _differences(logits: torch.Tensor, tried: torch.Tensor) -> torch.Tensor:
    """Return how much larger the ``logits`` of actions [R, C] are than that of the first."""
    found = logits.gather(1, tried)
    return found - found[:, :1]


def comparison_metrics(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the terms of the loss, entropy, and how often no tried action was better."""
    unbeaten = (minibatch.extras[GAIN] <= 0).all(dim=1)
    return {**losses.terms, "entropy": outputs.entropy, "unbeaten": unbeaten.float().mean()}


policy_iteration: OnPolicy = ippo.but(
    name="policy_iteration",
    advantages=values_for_others,
    loss=comparison_loss,
    metrics=comparison_metrics,
    reports={
        "gain_error": "update",
        "value_loss": "update",
        "entropy": "first_epoch",
        "unbeaten": "first_epoch",
    },
    Settings=PolicyIterationSettings,
)
"""Choose what played on best, of several actions."""
