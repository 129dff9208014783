"""MaskedActorCritic without RLlib: any tree of entries, masked, played by a NetworkPolicy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

from corral.adapters.networks import MaskedActorCritic, tensors
from corral.adapters.spaces import ActionCodec, ObservationCodec
from corral.envs.masks import masked_space
from corral.errors import MaskError, UnsupportedSpaceError
from corral.trainers.policies import rllib_policy
from support.messages import refused

INNER = spaces.Dict(
    {
        "picture": spaces.Box(0, 255, (9, 9, 3), np.uint8),
        "level": spaces.Box(0, 200, (2,), np.uint8),
        "which": spaces.Discrete(3, start=5),
        "both": spaces.MultiDiscrete([2, 3]),
    }
)
SPACE = spaces.Dict({**masked_space(INNER, 4).spaces, "state": spaces.Box(-1, 1, (2,), np.float32)})


def made(seed: int = 0) -> MaskedActorCritic:
    torch.manual_seed(seed)
    return MaskedActorCritic(SPACE, spaces.Discrete(4), net_arch=(8,), cnn_arch=(3, 5, 6))


def batch(rows: int) -> Any:
    SPACE.seed(0)
    each = [SPACE.sample() for _ in range(rows)]

    def stack(trees: list[Any]) -> Any:
        if isinstance(trees[0], dict):
            return {key: stack([tree[key] for tree in trees]) for key in trees[0]}
        return np.stack(trees)

    observation = stack(each)
    observation["action_mask"] = np.array([[0, 1, 0, 1]] * rows, np.int8)
    return observation


def test_each_entry_reaches_the_networks_that_may_see_it() -> None:
    networks, observation = made(), tensors(batch(3))
    logits, values = networks.actor(observation), networks.critic(observation)
    assert logits.shape == (3, 4)
    assert values.shape == (3, 1)
    inner = observation["observation"]
    changes = {
        "picture": 255 - inner["picture"],
        "level": 200 - inner["level"],
        "which": 5 + (inner["which"] - 4) % 3,
        "both": torch.stack([1 - inner["both"][:, 0], inner["both"][:, 1]], dim=1),
    }
    assert changes.keys() == INNER.spaces.keys()
    for key, value in changes.items():
        changed = {**observation, "observation": {**inner, key: value}}
        assert not torch.equal(networks.actor(changed), logits), key
        assert not torch.equal(networks.critic(changed), values), key
    changed = {**observation, "state": observation["state"] + 1}
    assert torch.equal(networks.actor(changed), logits)
    assert not torch.equal(networks.critic(changed), values)


def test_weights_come_from_torchs_generator_and_begin_orthogonal() -> None:
    first, again, other = made().state_dict(), made().state_dict(), made(1).state_dict()
    assert all(torch.equal(values, again[name]) for name, values in first.items())
    assert not torch.equal(first["actor.head.weight"], other["actor.head.weight"])
    head = first["actor.head.weight"]
    assert torch.allclose(head @ head.T, 1e-4 * torch.eye(4), atol=1e-8)


def test_the_distribution_and_the_policy_play_legal_actions() -> None:
    networks, observation = made(), batch(50)
    choice = networks.distribution(tensors(observation))
    assert (choice.probs[:, [0, 2]] == 0).all()
    group = SimpleNamespace(
        layout=ObservationCodec.of("a", masked_space(spaces.Discrete(2), 4)),
        actions=ActionCodec("a", spaces.Discrete(4)),
    )
    policy = rllib_policy(networks, group, "a", None)
    decision = policy.act(observation, rng=np.random.default_rng(0))
    assert set(decision.action.tolist()) == {1, 3}
    greedy = policy.act(observation, deterministic=True).action
    assert greedy.tolist() == choice.mode.tolist()
    single = {**{key: value[0] for key, value in observation.items() if key != "observation"}}
    single["observation"] = {k: v[0] for k, v in observation["observation"].items()}
    one = policy.act(single, deterministic=True)
    assert one.action == greedy[0]
    # Sums of one row and of many differ in the last bits.
    assert one.extra["probabilities"] == pytest.approx(
        policy.act(observation, deterministic=True).extra["probabilities"][0], abs=1e-6
    )
    with refused(MaskError, "a: action_mask", 2, "0 and 1"):
        policy.act({**observation, "action_mask": np.full((50, 4), 2, np.int8)}, None, None, True)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Discrete"):
        MaskedActorCritic(SPACE, spaces.Box(-1, 1, (2,)))
    with refused(UnsupportedSpaceError, "(4,)", "3 actions"):
        MaskedActorCritic(SPACE, spaces.Discrete(3))
    with refused(UnsupportedSpaceError, "observation", "Text(1, 3"):
        MaskedActorCritic(masked_space(spaces.Text(3), 2), spaces.Discrete(2))
