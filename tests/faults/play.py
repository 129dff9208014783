"""Mistakes of a rollout and of its reports: rewards, returns, actions, hidden states."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from corral import algorithms as alg
from corral.trainers.on_policy.buffer import RolloutBuffer
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from corral.trainers.runs.run import Run
from faults.fault import fault, trained
from faults.sound import depots


def with_rollout(kind: type[RolloutBuffer], base: type[MAPPO] = MAPPO) -> type[MAPPO]:
    """A trainer with another rollout buffer."""

    def begin(self: Any) -> None:
        base.begin(self)
        self.rollout.__class__ = kind

    return type("With" + kind.__name__, (base,), {"begin": begin})


# --- Rewards -------------------------------------------------------------------------------------


class RollsRewards(RolloutBuffer):
    def store_step(self, t: int, step: Any) -> None:
        super().store_step(t, dataclasses.replace(step, reward=np.roll(step.reward, 1, axis=1)))


@fault("reward-of-another")
def reward_of_another_agent(folder: Path) -> Run:
    """The buffer stores each agent's reward one column further."""
    return trained(folder, depots(), trainer=with_rollout(RollsRewards))


class FirstOnly(RolloutBuffer):
    def store_step(self, t: int, step: Any) -> None:
        reward = np.repeat(step.reward[:, :1], step.reward.shape[1], axis=1)
        super().store_step(t, dataclasses.replace(step, reward=reward))


@fault("reward-of-another")
def reward_of_the_first_agent(folder: Path) -> Run:
    """A loop variable is not used: every agent gets the first one's reward."""
    kind = with_rollout(FirstOnly, IPPO)
    return trained(folder, "arena_v0", trainer=kind, policies="separate")


class LateRewards(RolloutBuffer):
    def store_step(self, t: int, step: Any) -> None:
        super().store_step(t, step)
        fresh = self.reward[t].copy()
        self.reward[t] = getattr(self, "before", fresh)
        self.before = fresh


@fault("reward-changed", "reward-late")
def reward_one_step_late(folder: Path) -> Run:
    """Rewards are stored with the decision after the one that earned them."""
    return trained(folder, depots(), trainer=with_rollout(LateRewards))


def swapped(trajectories: Any, settings: Any) -> Any:
    reward = np.roll(trajectories.reward, 1, axis=1)
    return alg.gae(dataclasses.replace(trajectories, reward=reward), settings)


@fault("advantage-elsewhere", "reward-of-another")
def reward_of_another_column(folder: Path) -> Run:
    """An advantage function of one's own takes rewards one column further."""
    own = alg.ippo.but(name="swapped", advantages=swapped)
    return trained(folder, "dfaas_v0", trainer=own)


class LearnsFromOthers(MAPPO):
    def update_policy(self, i: int, learner: Any) -> dict[str, float]:
        kept = self.rollout.reward.copy()
        self.rollout.reward[...] = kept[:, :, ::-1]
        try:
            return super().update_policy(i, learner)
        finally:
            self.rollout.reward[...] = kept


@fault("reward-of-another")
def reward_of_another_in_the_update(folder: Path) -> Run:
    """The rollout is right; the update reads agents in the reverse order."""
    return trained(folder, depots(), trainer=LearnsFromOthers, policies="separate")


# --- Reports -------------------------------------------------------------------------------------


class ReportsSums(MAPPO):
    def learn_from(self, episodes: Any, seconds: Any) -> Any:
        update = super().learn_from(episodes, seconds)
        told = [
            dataclasses.replace(e, returns=dict.fromkeys(e.returns, sum(e.returns.values())))
            for e in update.episodes
        ]
        return dataclasses.replace(update, episodes=told)


@fault("returns-leak")
def returns_of_all_reported_for_each(folder: Path) -> Run:
    """Every policy is reported with the return of the whole team."""
    return trained(folder, depots(), trainer=ReportsSums)


class ReportsOthers(IPPO):
    def collect(self) -> Any:
        episodes, seconds = super().collect()
        told = []
        for e in episodes:
            values = list(e.returns.values())
            leaked = dict(zip(e.returns, values[1:] + values[:1], strict=True))
            told.append(dataclasses.replace(e, returns=leaked))
        return told, seconds


@fault("returns-leak")
def returns_of_another_policy(folder: Path) -> Run:
    """Returns are reported under the next policy's name."""
    return trained(folder, depots(), trainer=ReportsOthers, policies="separate")


class NeverResets(MAPPO):
    carried: Any = None

    def collect(self) -> Any:
        episodes, seconds = super().collect()
        told = []
        for e in episodes:
            self.carried = {
                agent: value + (self.carried or {}).get(agent, 0.0)
                for agent, value in e.returns.items()
            }
            told.append(dataclasses.replace(e, returns=dict(self.carried)))
        return told, seconds


@fault("returns-leak")
def returns_not_reset_at_ends(folder: Path) -> Run:
    """The sum of rewards goes on over the ends of episodes."""
    return trained(folder, depots(), trainer=NeverResets)


class ReportsFirst(MAPPO):
    def learn_from(self, episodes: Any, seconds: Any) -> Any:
        update = super().learn_from(episodes, seconds)
        first = next(iter(update.rewards.values()))
        return dataclasses.replace(update, rewards=dict.fromkeys(update.rewards, first))


@fault("returns-leak")
def mean_reward_of_the_first_agent(folder: Path) -> Run:
    """The mean reward that is reported is the first agent's, for all."""
    return trained(folder, depots(), trainer=ReportsFirst)


# --- Actions -------------------------------------------------------------------------------------


class HandsOverWrong(RolloutBuffer):
    def actions(self, t: int) -> Any:
        return np.roll(super().actions(t), 1, axis=1)


@fault("actions-permuted")
def actions_handed_to_the_next_agent(folder: Path) -> Run:
    """Actions reach the environment one column further."""
    return trained(folder, "rps_v0", trainer=with_rollout(HandsOverWrong))


class OtherRows(RolloutBuffer):
    def actions(self, t: int) -> Any:
        return super().actions(t)[::-1].copy()


@fault("actions-changed", "actions-permuted")
def actions_of_another_environment(folder: Path) -> Run:
    """Actions are handed over in the reverse order of environments."""
    return trained(folder, "rps_v0", trainer=with_rollout(OtherRows))


class StoresWrong(MAPPO):
    def collect(self) -> Any:
        for player in self.players:
            player.act = self.swapping(type(player).act.__get__(player))
        try:
            return super().collect()
        finally:
            for player in self.players:
                del player.act

    @staticmethod
    def swapping(act: Any) -> Any:
        def swapped(buffer: Any, t: int, observations: Any) -> None:
            act(buffer, t, observations)
            buffer.action[t] = np.roll(buffer.action[t], 1, axis=1)

        return swapped


@fault("actions-permuted", "probability-of-another")
def actions_stored_for_the_next_agent(folder: Path) -> Run:
    """Each agent is given, and is stored with, the action that another one drew."""
    return trained(folder, "arena_v0", trainer=StoresWrong)


class PlaysAnother(IPPO):
    def begin(self) -> None:
        super().begin()
        learners = list(self.learners.values())
        for player, learner in zip(self.players, learners[1:] + learners[:1], strict=True):
            player.learner = learner


@fault("probability-of-another", "ratio-not-one")
def played_by_another_policy(folder: Path) -> Run:
    """Agents are played by the networks of the next policy."""
    return trained(folder, depots(), trainer=PlaysAnother, policies="separate")


# --- Hidden states -------------------------------------------------------------------------------


class KeepsHidden(IPPO):
    def begin(self) -> None:
        super().begin()
        for player in self.players:
            player.reset = lambda rows: None


@fault("ratio-not-one")
def hidden_state_kept_over_ends(folder: Path) -> Run:
    """The hidden state is not reset where an episode ends."""
    return trained(folder, depots(), trainer=KeepsHidden, memory=8)


class ForgetsStart(IPPO):
    def update(self) -> dict[str, float]:
        for hidden in self.hidden.values():
            hidden.actor_before[...] = 0.0
        return super().update()


@fault("ratio-not-one")
def hidden_state_zero_in_the_update(folder: Path) -> Run:
    """Sequences are unrolled from 0, where they were played on from the rollout before."""
    return trained(folder, depots(), trainer=ForgetsStart, memory=8, n_steps=30)


# --- Deployment ----------------------------------------------------------------------------------


class Scaled:
    """A policy that is shown observations by another scale than in training."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.policy, name)

    def act(self, observation: Any, *given: Any, **named: Any) -> Any:
        shown = {**observation, "observation": observation["observation"] * 100}
        return self.policy.act(shown, *given, **named)


class PlaysScaled(MAPPO):
    @property
    def policies(self) -> Any:
        return {agent: Scaled(policy) for agent, policy in super().policies.items()}


@fault("play-differs")
def observations_scaled_in_play_alone(folder: Path) -> Run:
    """What plays scales observations, what learns does not."""
    return trained(folder, depots(), trainer=PlaysScaled)


class PlaysFirst(MAPPO):
    @property
    def policies(self) -> Any:
        found = super().policies
        first = next(iter(found.values()))
        return dict.fromkeys(found, first)


@fault("play-differs")
def every_agent_played_as_the_first(folder: Path) -> Run:
    """The shared policy plays every agent as if it were the first one."""
    return trained(folder, depots(), trainer=PlaysFirst)
