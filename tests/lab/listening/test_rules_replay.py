"""Rules about minibatches of transitions: faulty Q-learning is named, sound one is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from corral.lab.listening.ear import Ear
from corral.lab.listening.rules import findings_of
from corral.lab.listening.rules_replay import other_next_values

ACTIONS, FEATURES, STATES, GAMMA = 3, 4, 40, 0.9

Columns = dict[str, torch.Tensor]


class QLearning:
    """Q-learning on a table of random transitions. Tests replace its parts."""

    def __init__(self, steps: int = 400) -> None:
        torch.manual_seed(0)
        self.draws = np.random.default_rng(0)
        self.net = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, ACTIONS))
        self.target = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, ACTIONS))
        self.steps, self.ear = steps, Ear()
        self.states = torch.from_numpy(self.draws.normal(size=(STATES, FEATURES))).float()
        self.next = self.draws.integers(STATES, size=(STATES, ACTIONS))
        self.ends = self.draws.random((STATES, ACTIONS)) < 0.2

    def sample(self, step: int) -> Columns:
        at = self.draws.integers(STATES, size=64)
        with torch.no_grad():
            best = self.net(self.states[at]).argmax(dim=1).numpy()
        actions = np.where(
            self.draws.random(64) < self.epsilon(step), self.draws.integers(ACTIONS, size=64), best
        )
        ends = self.ends[at, actions]
        obs = self.states[at]
        return {
            "obs": obs,
            "actions": torch.from_numpy(actions),
            "next_obs": self.states[self.next[at, actions]],
            "rewards": torch.from_numpy(np.sign(obs[:, 0].numpy()) * ends).float(),
            "terminated": torch.from_numpy(ends),
        }

    def epsilon(self, step: int) -> float:
        return max(0.1, 1 - 4 * step / self.steps)

    def best(self, mb: Columns) -> torch.Tensor:
        return self.target(mb["next_obs"]).max(dim=1).values

    def targets(self, mb: Columns) -> torch.Tensor:
        with torch.no_grad():
            return mb["rewards"] + GAMMA * ~mb["terminated"] * self.best(mb)

    def values(self, mb: Columns) -> torch.Tensor:
        return self.net(mb["obs"]).gather(1, mb["actions"][:, None])[:, 0]

    def stored(self, mb: Columns) -> Columns:
        return mb

    def synchronize(self) -> None:
        self.target.load_state_dict(self.net.state_dict())

    def run(self, *without: str) -> dict[str, int]:
        """Train, and return the certainty of each cause."""
        self.ear.policy("policy", self.net)
        optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        for step in range(self.steps):
            mb = self.stored(self.sample(step))
            targets, values = self.targets(mb), self.values(mb)
            loss = (values - targets).square().mean()
            given = {name: part for name, part in mb.items() if name not in without}
            self.ear.batch(**given, values=values, returns=targets, loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                self.synchronize()
        self.ear.stop()
        return {item.cause: item.certainty for item in findings_of(self.ear.policies.values())}


class Goes(QLearning):
    """Targets go on after a termination."""

    def targets(self, mb: Columns) -> torch.Tensor:
        with torch.no_grad():
            return mb["rewards"] + GAMMA * self.best(mb)


class Global(QLearning):
    """The maximum is over all rows."""

    def best(self, mb: Columns) -> torch.Tensor:
        return self.target(mb["next_obs"]).max()


class Fixed(QLearning):
    """The target network keeps its first weights."""

    def __init__(self) -> None:
        super().__init__(1400)

    def synchronize(self) -> None:
        pass


class Highest(QLearning):
    """The loss has the highest value."""

    def values(self, mb: Columns) -> torch.Tensor:
        return self.net(mb["obs"]).max(dim=1).values


class Unfilled(QLearning):
    """Half of the rows were never written."""

    def stored(self, mb: Columns) -> Columns:
        written = torch.from_numpy(self.draws.random(64) < 0.5)
        return {
            name: part * written.reshape(-1, *[1] * (part.ndim - 1)) for name, part in mb.items()
        }


class Later(QLearning):
    """The later observation is stored twice."""

    def stored(self, mb: Columns) -> Columns:
        return {**mb, "obs": mb["next_obs"]}


class Random(QLearning):
    """Exploration never ends."""

    def __init__(self) -> None:
        super().__init__(1400)

    def epsilon(self, step: int) -> float:
        return 1.0


class Positive(QLearning):
    """The network ends in a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.net.append(nn.ReLU())
        self.target.append(nn.ReLU())


@pytest.mark.parametrize(
    ("learning", "cause", "certainty"),
    [
        (Goes, "end-taken-for-limit", 2),
        (Global, "targets-shuffled", 3),
        pytest.param(Fixed, "target-network-fixed", 2, marks=pytest.mark.slow),
        (Highest, "values-of-another-action", 3),
        (Unfilled, "rows-unfilled", 2),
        (Later, "observation-late", 3),
        pytest.param(Random, "play-random", 1, marks=pytest.mark.slow),
        (Positive, "values-one-sided", 3),
    ],
)
def test_faulty_loops_are_named_first(
    learning: Callable[[], QLearning], cause: str, certainty: int
) -> None:
    findings = learning().run()
    assert next(iter(findings.items())) == (cause, certainty)


@pytest.mark.slow
def test_a_sound_loop_is_silent() -> None:
    learning = QLearning(1400)
    assert learning.run() == {}
    assert not {"next_obs", "action_values"} & set(learning.ear.policies["policy"].missing)


def test_next_values_of_other_rows_are_named() -> None:
    ear = Ear()
    draws = np.random.default_rng(0)
    after, rewards = draws.normal(size=64), draws.normal(size=64)
    ends = draws.random(64) < 0.1
    given: dict[str, Any] = {"values": draws.normal(size=64), "rewards": rewards}
    given |= {"terminated": ends, "next_values": after}
    ear.batch(returns=rewards + GAMMA * ~ends * after, **given)
    assert other_next_values(ear.policies["policy"]) is None
    moved = after.copy()
    moved[~ends] = np.roll(after[~ends], 1)
    ear.batch(returns=rewards + GAMMA * ~ends * moved, **given)
    finding = other_next_values(ear.policies["policy"])
    assert finding is not None
    assert (finding.cause, finding.certainty) == ("targets-shuffled", 3)


def test_missing_columns_are_asked_for_by_name() -> None:
    learning = QLearning(40)
    learning.run("next_obs")
    assert "next_obs" in learning.ear.policies["policy"].missing
    ear = Ear()
    ear.batch(advantages=np.arange(8.0), log_probs=np.arange(8.0))
    assert not {"next_obs", "next_values"} & set(ear.policies["policy"].missing)


def test_batches_without_all_columns_are_left_out() -> None:
    learning = Later(200)
    learning.ear.batch(rewards=np.zeros(64))
    assert learning.run()["observation-late"] == 3


def test_equal_rewards_of_minibatches_tell_nothing() -> None:
    ear = Ear()
    for _ in range(400):
        ear.batch(rewards=np.ones(8), values=np.arange(8.0))
    assert ear.report().verdict == "too early"
