"""The record of policy iteration: its settings, and its loss on differences between actions."""

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

SHARED_COPIES = "the copies of a state are played by all policies together"

UNUSED_OF_PPO = ("clip_range", "kl_coef", "kl_target", "stay_target", "target_kl")
"""Settings of ippo that have no effect here."""

TRIED, GAIN = "tried", "gain"
"""Extras of a decision: tried actions int64 [C], and their gains over the action taken."""


UNSET_BY_PRESETS = (
    *("num_envs", "n_steps", "n_minibatches", "gamma", "gae_lambda", "learning_rate"),
    *("n_epochs", "ent_coef", "ent_coef_end"),
)
"""Settings that presets do not change; preset values were tuned for returns and longer rollouts."""


@dataclass(frozen=True)
class PolicyIterationSettings(IPPOSettings):
    """Settings of policy iteration: networks and rollouts as in ippo, and the comparison.

    Each env step costs ``candidates`` x ``lookahead`` simulated steps per agent.
    """

    num_envs: int = setting(128)
    n_steps: int = setting(4)
    gamma: float = setting(
        1.0,
        "Discount factor per env step in the simulated copies.",
        least=0,
        most=1,
        common=SHARED_COPIES,
    )
    learning_rate: float | str = setting(2e-3)
    n_epochs: int = setting(8)
    stay_coef: float = setting(
        0.0,
        "With --init: weight of the initial policy's logits as a prior of the learned gains.",
        least=0,
    )
    candidates: int = setting(
        8,
        "Number of actions compared per decision, including the action taken.",
        least=2,
        unit="actions",
        common=SHARED_COPIES,
        sizes="tried",
    )
    lookahead: int = setting(
        12,
        "Number of simulated steps per action, including the step of the action.",
        least=1,
        unit="env steps",
        common=SHARED_COPIES,
    )
    reach: int = setting(
        12,
        "If actions are amounts: half of the candidates are at most this far from the one taken.",
        least=0,
        unit="actions",
        common=SHARED_COPIES,
    )
    explore: float = setting(
        0.1,
        "Share of sampled decisions in rollouts; the others are greedy.",
        least=0,
        most=1,
        common=SHARED_COPIES,
    )
    gain_delta: float = setting(
        10.0,
        "Error above which the loss is linear (Huber), in multiples of the mean difference.",
        above=0,
    )
    gain_coef: float = setting(
        1.0,
        "Difference of logits for a gain of mean size; below 1, sampled play explores more.",
        above=0,
        common=SHARED_COPIES,
    )
    own_reward: bool = setting(
        False,
        "Count only the deciding agent's rewards, instead of the sum over all agents.",
        common=SHARED_COPIES,
    )
    bootstrap: bool = setting(
        False,
        "Replace the rewards after the simulated steps by the critic's value of the last state: "
        "for zero-sum games of two players in turn.",
        common=SHARED_COPIES,
    )
    futures: str = setting(
        "redrawn",
        "Future of the copies if agents act before a step's random events (unknown arrivals): "
        "'redrawn' from other data, once per state; 'recorded': the future of the episode.",
        choices=("redrawn", "recorded"),
        common=SHARED_COPIES,
    )
    teacher: str = setting(
        "",
        "Teacher that plays first: a reference team or player such as overflow, or a run (RUN, "
        "RUN@best).",
        common=SHARED_COPIES,
    )
    taught: float = setting(
        0.15,
        "Share of the env steps that the teacher plays, at the start of training.",
        least=0,
        most=1,
        common=SHARED_COPIES,
    )

    unused: ClassVar[tuple[str, ...]] = (*UNUSED_OF_PPO, "memory", "action_std")
    unset_by_presets: ClassVar[tuple[str, ...]] = UNSET_BY_PRESETS

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in UNUSED_OF_PPO and value != field.default:
                raise ValueError(
                    f"{field.name}={value}: policy iteration does not use this setting; omit it"
                )
        if self.memory:
            raise ValueError(
                f"memory={self.memory}: policy iteration does not copy hidden states; omit it, or "
                "use mappo"
            )


FAR = 20.0
"""Bound on the differences of the initial policy's logits."""

# --- The record ----------------------------------------------------------------------------------


def values_for_others(trajectories: Trajectories, settings: Any) -> Advantages:
    """Return ``gae`` with a discount factor of at most 0.99, because values of endless games would
    be unbounded otherwise."""
    return gae(trajectories, dataclasses.replace(settings, gamma=min(settings.gamma, 0.99)))


def comparison_loss(minibatch: Minibatch, outputs: Outputs, settings: Any) -> Losses:
    """Return the regression error of logit differences against gains, and the value loss.

    A Huber loss limits the influence of large gains. With ``bootstrap``, the policy learns the
    softmax of the gains instead, so that sampled play explores without many blunders. With
    ``stay_coef``, the target also contains the logit differences of the initial policy, times
    ``stay_coef``. This prior prevents changes for small gains.
    """
    distribution = outputs.distribution
    assert isinstance(distribution, MaskedCategorical)  # guaranteed by ``check``
    tried, target = minibatch.extras[TRIED], minibatch.extras[GAIN]  # [R, C]
    start = minibatch.extras.get(f"{START}logits")
    if start is not None:
        target = target + minibatch.stay_coef * _differences(start, tried).clamp(-FAR, FAR)
    if settings.bootstrap:
        error = _divergence(distribution.logits, tried, target)
    else:
        expected = _differences(distribution.logits, tried)
        error = nn.functional.huber_loss(expected, target, delta=settings.gain_delta)
    terms = {"gain_error": error, **entropy_bonus(minibatch, outputs, settings)}
    return Losses({**terms, "value_loss": value_loss(minibatch, outputs, settings)})


def _differences(logits: torch.Tensor, tried: torch.Tensor) -> torch.Tensor:
    """Return the ``logits`` of the tried actions [R, C], minus that of the first."""
    selected = logits.gather(1, tried)
    return selected - selected[:, :1]


def _divergence(logits: torch.Tensor, tried: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the mean KL(softmax of the ``target`` [R, C] || policy) over the distinct actions
    tried."""
    repeated = (tried[:, :, None] == tried[:, None, :]).sum(dim=2).log()  # [R, C]
    learned, expected = (
        (values - repeated).log_softmax(dim=1) for values in (logits.gather(1, tried), target)
    )
    return nn.functional.kl_div(learned, expected, log_target=True, reduction="batchmean")


def comparison_metrics(
    minibatch: Minibatch, outputs: Outputs, losses: Losses, settings: Any
) -> dict[str, torch.Tensor]:
    """Return the loss terms, the entropy, and the share of decisions without a better action."""
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
"""Learn to choose the action with the best simulated outcome."""
