"""Frozen actors: many at once play what each plays by itself, wherever they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from corral.errors import ModelError
from corral.trainers.on_policy.frozen import FrozenActors
from corral.trainers.on_policy.trainer import IPPO
from support.mappo_teams import ManyRules
from support.messages import refused
from support.turn_rules import MortalRules


class Locked(nn.Module):
    """A network that cannot be copied."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.size = 8
        self.layer = nn.Linear(space["observation"].shape[0], 8)

    def forward(self, observation: Any) -> torch.Tensor:
        return torch.relu(self.layer(observation["observation"]))

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot pickle '_thread.lock' object")


def frozen(rules: Any = None, names: Any = None, count: int = 5, **settings: Any) -> FrozenActors:
    """Snapshots of one policy, with weights of their own."""
    rules = rules or MortalRules((4, 4))
    names = names or dict.fromkeys(rules.agents, "p")
    given = {"num_envs": 2, "n_steps": 4, "net_arch": (8, 8), **settings}
    trainer = IPPO(
        rules,
        IPPO.Settings(**given),
        seed=0,
        policies=names,
        policies_to_train=list(dict.fromkeys(names.values())),
        steps=8,
    )
    found = FrozenActors(next(iter(trainer.learners.values())))
    torch.manual_seed(0)
    for k in range(count):
        with torch.no_grad():
            for values in found.learner.actor.parameters():
                values.copy_(torch.randn(values.shape))
            if found.learner.log_std is not None:
                found.learner.log_std.fill_(-k)
        found.add(k)
    return found


@pytest.mark.parametrize("memory", [0, 6])
@pytest.mark.parametrize("order", ["mixed", "some", "one"])
def test_many_at_once_put_out_what_each_puts_out(order: str, memory: int) -> None:
    actors = frozen(memory=memory)
    rng = np.random.default_rng(0)
    numbers = {
        "mixed": rng.permutation(np.repeat(np.arange(5), [1, 7, 2, 3, 9])),
        "some": np.array([4, 1, 4, 4, 1, 4]),
        "one": np.full(4, 3),
    }[order]
    parts = [torch.randn(len(numbers), 4)]
    hidden = rng.normal(size=(len(numbers), memory)).astype(np.float32)
    with torch.inference_mode():
        outputs, after = actors._outputs(parts, numbers, hidden)
        for row, number in enumerate(numbers):
            alone, state = actors.snapshots[number].actor.step(
                [parts[0][row : row + 1]], torch.from_numpy(hidden[row : row + 1])
            )
            np.testing.assert_allclose(outputs[row], alone[0], atol=1e-5)
            np.testing.assert_allclose(after[row], state[0], atol=1e-5)


def test_actions_are_legal_and_drawn_as_often_as_the_snapshot_says() -> None:
    actors = frozen(count=2)
    rows = 4_000
    parts = [torch.tensor([[0.1, 0.2, 1.0, 0.0]]).repeat(rows, 1)]
    mask = torch.tensor([[True, False, True, True]]).repeat(rows, 1)
    numbers = np.arange(rows) % 2
    sampled, _ = actors.sample(
        parts, mask, numbers, np.zeros((rows, 0), np.float32), torch.Generator().manual_seed(3)
    )
    for number in (0, 1):
        logits = actors.snapshots[number].actor(parts)[0].detach()
        logits[1] = -torch.inf
        counts = np.bincount(sampled.numpy()[numbers == number], minlength=4) / (rows / 2)
        assert counts[1] == 0
        np.testing.assert_allclose(counts, logits.softmax(dim=0).numpy(), atol=0.04)


def test_a_snapshot_keeps_the_spread_of_its_own_continuous_actions() -> None:
    actors = frozen(ManyRules(), {"agent_0": "a", "agent_1": "b"}, count=4)
    rows = 2_000
    numbers = np.arange(rows) % 4
    parts = [torch.ones(rows, 1)]
    sampled, _ = actors.sample(
        parts,
        torch.ones(rows, 0, dtype=torch.bool),
        numbers,
        np.zeros((rows, 0), np.float32),
        torch.Generator().manual_seed(0),
    )
    spread = [float(sampled[numbers == k].std()) for k in range(4)]
    np.testing.assert_allclose(spread, np.exp([0.0, -1.0, -2.0, -3.0]), rtol=0.15)


def test_a_network_that_cannot_be_copied_is_told() -> None:
    actors = frozen(count=1)
    actors.learner.actor.encoder = Locked({"observation": np.zeros(4)})
    with refused(ModelError, "p@7", "copy.deepcopy", "_thread.lock"):
        actors.add(7)
