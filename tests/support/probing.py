"""Learning a probe with the in-house trainers, and telling whether its answer came out.

``learn`` trains, ``misses`` lists what is not as it must be; the planted bugs below are what must
be missed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from corral.algorithms import Advantages, Trajectories, gae, normalize
from corral.envs.core import Array, Rules
from corral.envs.probes.base import Probe
from corral.trainers.base import Update
from corral.trainers.on_policy import maths
from corral.trainers.on_policy.buffer import RolloutBuffer
from corral.trainers.on_policy.learner import HiddenState, Learner
from corral.trainers.on_policy.trainer import IPPO, MAPPO, OnPolicyTrainer

GAMMA = 0.9

SMALL: dict[str, Any] = {
    "num_envs": 64,
    "n_steps": 8,
    "n_minibatches": 1,
    "n_epochs": 8,
    "learning_rate": 5e-3,
    "gamma": GAMMA,
    "gae_lambda": 0.95,
    "net_arch": (32,),
    "device": "cpu",
}


@dataclass
class Learned:
    """A trainer that has learned, and what it told meanwhile."""

    trainer: Any
    updates: list[Update]

    @property
    def returns(self) -> dict[str, float]:
        """Means over the episodes of the last fifth of the updates."""
        late = self.updates[-max(1, len(self.updates) // 5) :]
        episodes = [episode.returns for update in late for episode in update.episodes]
        return {agent: float(np.mean([e[agent] for e in episodes])) for agent in episodes[0]}


def make_trainer(
    rules: Rules[Any],
    trainer: type[OnPolicyTrainer] = IPPO,
    *,
    seed: int = 0,
    steps: int = 1,
    policies: Mapping[str, str] | None = None,
    to_train: Sequence[str] | None = None,
    **settings: Any,
) -> Any:
    """A trainer with small networks; by default all agents share a policy, which learns."""
    known = trainer.Settings.__dataclass_fields__
    small = {name: value for name, value in SMALL.items() if name in known}
    named = dict(policies or dict.fromkeys(rules.agents, "shared"))
    return trainer(
        rules,
        trainer.Settings(**{**small, **settings}),
        seed=seed,
        policies=named,
        policies_to_train=list(dict.fromkeys(named.values())) if to_train is None else to_train,
        steps=steps,
    )


def learn(rules: Probe, trainer: type[OnPolicyTrainer] = IPPO, **given: Any) -> Learned:
    """Train for the probe's budget, or ``steps``; see ``make_trainer``."""
    learner = make_trainer(rules, trainer, **{"steps": rules.budget, **given})
    updates = list(learner.learn())
    assert updates[-1].env_steps <= rules.budget
    return Learned(learner, updates)


def values(trainer: Any, rules: Probe) -> Array:
    """What the critic says of the situations of the answer: [K, N]."""
    state = rules.answer(GAMMA).state
    central = trainer.critic_input.kind == "state"
    found = trainer.values(rules.observe(state), rules.global_state(state) if central else None)
    return np.stack([found[agent] for agent in rules.agents], axis=1)


def chances(trainer: Any, rules: Probe, agent: str) -> Array:
    """The probabilities of an agent's actions in the situations of the answer: [K, A].

    NaN where it does not act.
    """
    answer = rules.answer(GAMMA)
    i = rules.agents.index(agent)
    seen = rules.observe(answer.state)[agent]
    acts = np.flatnonzero(rules.acting(answer.state)[:, i])
    policy = trainer.policies[agent]
    told = policy.act(
        {key: part[acts] for key, part in seen.items()},
        policy.initial_state(len(acts)),
        deterministic=True,
    )
    found = np.full((len(answer.state.t), rules.actions[i]), np.nan)
    found[acts] = told.extra["probabilities"]
    return found


def misses(trainer: Any, rules: Probe) -> list[str]:
    """What is not as it must be, in words; nothing where the answer came out.

    Values are within the probe's tolerance, best actions have a probability of 0.9 or more.
    """
    answer = rules.answer(GAMMA)
    found = values(trainer, rules)
    told = []
    for k, i in np.argwhere(~np.isnan(answer.value)):
        if not abs(found[k, i] - answer.value[k, i]) <= rules.tolerance[i]:
            told.append(f"V of {rules.agents[i]}, {k}: {found[k, i]:.3f}, {answer.value[k, i]:.3f}")
    for i, agent in enumerate(rules.agents):
        for k in np.flatnonzero(answer.best[:, i] >= 0):
            chance = chances(trainer, rules, agent)[k, answer.best[k, i]]
            if not chance >= 0.9:
                told.append(f"action of {agent}, {k}: {chance:.3f}")
    return told


# --- Planted bugs --------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def zeroed_advantages(patch: pytest.MonkeyPatch) -> None:
    """The actor learns nothing, the critic all."""
    patch.setattr(maths, "normalized", np.zeros_like)


def mixed_rewards(patch: pytest.MonkeyPatch) -> None:
    """Each agent learns from the mean of all agents' rewards."""
    store = RolloutBuffer.store_step

    def mixed(self: RolloutBuffer, t: int, step: Any) -> None:
        store(self, t, step)
        self.reward[t] = self.reward[t].mean(axis=-1, keepdims=True)

    patch.setattr(RolloutBuffer, "store_step", mixed)


def ignored_mask(patch: pytest.MonkeyPatch) -> None:
    """Actions are drawn as if all were legal."""
    distribution = Learner.distribution

    def blind(self: Learner, outputs: torch.Tensor, mask: torch.Tensor) -> Any:
        return distribution(self, outputs, torch.ones_like(mask))

    patch.setattr(Learner, "distribution", blind)


def mask_lost_in_training(patch: pytest.MonkeyPatch) -> None:
    """Play knows the mask, the update does not."""
    distribution = Learner.distribution

    def blind(self: Learner, outputs: torch.Tensor, mask: torch.Tensor) -> Any:
        learns = torch.is_grad_enabled()
        return distribution(self, outputs, torch.ones_like(mask) if learns else mask)

    patch.setattr(Learner, "distribution", blind)


def other_algorithm(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Both trainers learn by their algorithm with some functions replaced."""
    for trainer in (IPPO, MAPPO):
        patch.setattr(trainer, "algorithm", trainer.algorithm.but(**changes))


def _other_gae(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Array]], Any]) -> None:
    """Advantages of the trajectories as ``change`` leaves them."""

    def changed(trajectories: Trajectories, settings: Any) -> Advantages:
        given = dict(vars(trajectories))
        change(given)
        return gae(Trajectories(**given), settings)

    other_algorithm(patch, advantages=normalize(changed))


def cut_taken_for_an_end(patch: pytest.MonkeyPatch) -> None:
    def change(given: dict[str, Array]) -> None:
        given["final_obs_value"] = np.zeros_like(given["final_obs_value"])

    _other_gae(patch, change)


def end_taken_for_a_cut(patch: pytest.MonkeyPatch) -> None:
    """Episodes never end: the next one's values and advantages go on from theirs."""

    def change(given: dict[str, Array]) -> None:
        given["ended"] = np.zeros_like(given["ended"])

    _other_gae(patch, change)


def value_after_the_reset(patch: pytest.MonkeyPatch) -> None:
    """A cut is worth what the next episode's first observation is, not its own last."""

    def change(given: dict[str, Array]) -> None:
        following = np.concatenate([given["value"][1:], given["bootstrap_value"][None]])
        given["final_obs_value"] = np.where(given["final_obs_value"] != 0, following, 0)

    _other_gae(patch, change)


def rewards_between_moves_lost(patch: pytest.MonkeyPatch) -> None:
    def change(given: dict[str, Array]) -> None:
        given["reward"] = given["reward"] * given["acted"]

    _other_gae(patch, change)


def rewards_between_moves_discounted(patch: pytest.MonkeyPatch) -> None:
    """Once per step of the game, as if the agent acted in all of them."""

    def change(given: dict[str, Array]) -> None:
        since = np.zeros(given["acted"].shape[1])
        reward = given["reward"].copy()
        for t, acted in enumerate(given["acted"]):
            since = np.where(acted, 0, since + 1)
            reward[t] *= GAMMA**since
        given["reward"] = reward

    _other_gae(patch, change)


def early_rewards_credited(patch: pytest.MonkeyPatch) -> None:
    """What came while an agent did not act is added to the move that follows."""

    def change(given: dict[str, Array]) -> None:
        reward = given["reward"].copy()
        for t in range(len(reward) - 1):
            moved = np.where(given["acted"][t], 0, reward[t])
            reward[t] -= moved
            reward[t + 1] += moved
        given["reward"] = reward

    _other_gae(patch, change)


def memory_outlives_episodes(patch: pytest.MonkeyPatch) -> None:
    """Recurrent state is not reset, in play nor in training."""

    def never(self: RolloutBuffer, group: Any) -> Array:
        return np.zeros((len(self.over), self.over.shape[1] * len(group.agents)), dtype=bool)

    patch.setattr(HiddenState, "reset", lambda self, env_rows: None)
    patch.setattr(RolloutBuffer, "begins", never)


def returns_cut_with_the_rollout(patch: pytest.MonkeyPatch) -> None:
    """Returns forget the rewards from before the rollout's beginning."""
    collect = OnPolicyTrainer.collect

    def forgetful(self: Any) -> Any:
        self.batch._returns[...] = 0
        return collect(self)

    patch.setattr(OnPolicyTrainer, "collect", forgetful)


def plain_normalization(patch: pytest.MonkeyPatch) -> None:
    """Advantages are divided by their standard deviation, whatever that is."""

    def plain(advantage: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray((advantage - advantage.mean()) / advantage.std())

    patch.setattr(maths, "normalized", plain)
