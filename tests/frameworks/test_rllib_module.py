"""The masked RLModule, in RLlib's own distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("ray")

from gymnasium import spaces
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical

from corral.adapters.masked_distribution import masked_logits
from corral.adapters.rllib.env import RLlibEnv
from corral.adapters.rllib.module import MaskedRLModule
from corral.errors import UnsupportedSpaceError

pytestmark = pytest.mark.filterwarnings("default")


def made(name: str, **options: Any) -> RLlibEnv:
    return RLlibEnv({"env": name, "env_kwargs": {"illegal": "raise"}, **options})


def module_of(env: RLlibEnv, agent: str, **config: Any) -> MaskedRLModule:
    torch.manual_seed(0)
    return MaskedRLModule(
        observation_space=env.observation_spaces[agent],
        action_space=env.action_spaces[agent],
        model_config={"net_arch": (16,), **config},
    )


def batched(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: batched(value) for key, value in observation.items()}
    return torch.as_tensor(np.asarray(observation))[None]


@pytest.mark.parametrize("name", ["dfaas_v0", "tictactoe_v0", "tiles_v0", "probe_p10_v0"])
def test_the_module_agrees_with_itself(name: str) -> None:
    env = made(name, state=True, agent_id=True)
    seen, _ = env.reset(seed=0)
    for agent, observation in seen.items():
        module = module_of(env, agent)
        batch = {Columns.OBS: batched(observation)}
        each = [
            call(batch)[Columns.ACTION_DIST_INPUTS]
            for call in (module.forward_inference, module.forward_exploration, module.forward_train)
        ]
        assert torch.equal(each[0], each[1])
        assert torch.equal(each[0], each[2])
        legal = batch[Columns.OBS]["action_mask"].bool()
        choice = TorchCategorical.from_logits(each[2])
        chances = choice._dist.probs
        assert (chances[~legal] == 0).all()
        assert chances.sum().item() == pytest.approx(1)
        assert legal[0, choice.to_deterministic().sample()].all()
        own = TorchCategorical.from_logits(each[2][legal])
        assert choice.entropy().item() == pytest.approx(own.entropy().item(), abs=1e-6)
        assert module.compute_values(batch).shape == (1,)


def test_masked_numbers_are_finite_and_their_gradients_too() -> None:
    mask = torch.tensor([[1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1]])
    before = torch.tensor([[0.5, 9.0, -1.0, 3.0]] * 3)
    logits = (before * 2).requires_grad_()
    old = TorchCategorical.from_logits(masked_logits(before, mask, finite=True))
    new = TorchCategorical.from_logits(masked_logits(logits, mask, finite=True))
    expected = []
    for row in range(3):
        legal = mask[row].bool()
        p = before[row][legal].double().softmax(0)
        q = logits.detach()[row][legal].double().softmax(0)
        expected.append(((p * (p / q).log()).sum().item(), -(q * q.log()).sum().item()))
    divergence, entropy = old.kl(new), new.entropy()
    assert divergence.tolist() == pytest.approx([kl for kl, _ in expected], abs=1e-6)
    assert entropy.tolist() == pytest.approx([h for _, h in expected], abs=1e-6)
    assert entropy[1] == 0  # one legal action
    log_prob = new.logp(torch.tensor([0, 2, 1]))
    assert log_prob[1] == 0
    (divergence + entropy + log_prob).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[mask == 0] == 0).all()
    drawn = new.sample(sample_shape=(2000,))
    assert mask.bool().gather(1, drawn.T).all()


def test_minus_infinity_would_not_do() -> None:
    """Why masked logits are the least float: the divergence's gradient is NaN otherwise."""
    mask = torch.tensor([[True, False, True]])
    logits = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    hard = TorchCategorical.from_logits(logits.masked_fill(~mask, -math.inf))
    soft = TorchCategorical.from_logits(masked_logits(logits, mask, finite=True))
    assert soft._dist.probs.tolist() == hard._dist.probs.tolist()
    difference = hard._dist.logits - hard._dist.logits
    assert difference.isnan().any()
    assert torch.isfinite(soft._dist.logits - soft._dist.logits).all()


def test_rows_in_which_nobody_acts_stay_finite() -> None:
    """RLlib appends an observation to each episode, and leaves it out of its loss."""
    logits = torch.tensor([[1.0, 2.0]])
    assert torch.equal(masked_logits(logits, torch.tensor([[0, 0]]), finite=True), logits)


def test_only_the_critic_sees_the_state() -> None:
    env = made("dfaas_v0", state=True)
    seen, _ = env.reset(seed=0)
    module = module_of(env, "node_0")
    batch = {Columns.OBS: batched(seen["node_0"])}
    other = {Columns.OBS: {**batch[Columns.OBS], "state": batch[Columns.OBS]["state"] + 1}}
    first, second = (
        module.forward_train(each)[Columns.ACTION_DIST_INPUTS] for each in (batch, other)
    )
    assert torch.equal(first, second)
    assert module.compute_values(batch) != module.compute_values(other)
    own = module_of(made("dfaas_v0"), "node_0")
    size = len(seen["node_0"]["state"])
    assert module.critic.layers[0].in_features == own.critic.layers[0].in_features + size


def test_images_matter() -> None:
    env = made("tiles_v0")
    seen, _ = env.reset(seed=0)
    module = module_of(env, "tile_0", cnn_arch=(4, 8))
    batch = batched(seen["tile_0"])
    key = next(k for k, v in batch["observation"].items() if v.ndim == 4)
    white = {**batch, "observation": {**batch["observation"]}}
    white["observation"][key] = torch.full_like(batch["observation"][key], 255)
    values = [module.compute_values({Columns.OBS: each}) for each in (batch, white)]
    assert values[0] != values[1]


def test_what_has_no_masks_is_refused() -> None:
    with pytest.raises(UnsupportedSpaceError, match="Discrete"):
        MaskedRLModule(
            observation_space=made("dfaas_v0").observation_spaces["node_0"],
            action_space=spaces.Box(-1, 1, (2,)),
            model_config={},
        )
