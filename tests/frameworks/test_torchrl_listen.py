"""TorchRL: what is heard of a loss module and a value estimator, and its traps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrl")

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import ProbabilisticActor, QValueActor, ValueOperator
from torchrl.modules.distributions import TanhNormal
from torchrl.objectives import (
    A2CLoss,
    ClipPPOLoss,
    DQNLoss,
    HardUpdate,
    KLPENPPOLoss,
    ReinforceLoss,
    SoftUpdate,
)
from torchrl.objectives.value import GAE

from corral.lab.listening.driver import listen
from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks.torchrl import listen_torchrl
from support.listening import block
from support.messages import refused, shown

pytestmark = pytest.mark.filterwarnings("default")

COPIES, STEPS = 4, 64


def networks(continuous: bool = False, seed: int = 0) -> tuple[ProbabilisticActor, ValueOperator]:
    torch.manual_seed(seed)
    body: list[nn.Module] = [nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)]
    if continuous:
        body.append(NormalParamExtractor())
    keys = ["loc", "scale"] if continuous else ["logits"]
    actor = ProbabilisticActor(
        TensorDictModule(nn.Sequential(*body), ["observation"], keys),
        in_keys=keys,
        out_keys=["action"],
        distribution_class=TanhNormal if continuous else torch.distributions.Categorical,
        return_log_prob=True,
    )
    value = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    return actor, ValueOperator(value, in_keys=["observation"])


def played(
    act: Any, seed: int = 0, exploration: ExplorationType = ExplorationType.RANDOM
) -> TensorDict:
    """Walk on a line; episodes end at the goals -1 and 1, or after 15 steps. [copies, time]."""
    rng = np.random.default_rng(seed)
    spot, age = rng.uniform(-0.5, 0.5, COPIES), np.zeros(COPIES)
    steps = []
    for _ in range(STEPS):
        obs = torch.tensor(np.stack([spot, age / 15], 1), dtype=torch.float32)
        step = TensorDict({"observation": obs}, [COPIES])
        with torch.no_grad(), set_exploration_type(exploration):
            act(step)
        chosen = step["action"].numpy().reshape(COPIES)
        move = chosen - 0.5 if chosen.dtype.kind in "iu" else chosen
        spot, age = spot + 0.3 * move + rng.normal(0, 0.02, COPIES), age + 1
        terminated = np.abs(spot) > 1
        truncated = ~terminated & (age >= 15)
        after = torch.tensor(np.stack([spot, age / 15], 1), dtype=torch.float32)
        ends = {
            "terminated": terminated,
            "truncated": truncated,
            "done": terminated | truncated,
        }
        step["next"] = TensorDict(
            {
                "observation": after,
                "reward": torch.tensor(spot[:, None] - 0.1, dtype=torch.float32),
                **{name: torch.tensor(item[:, None]) for name, item in ends.items()},
            },
            [COPIES],
        )
        steps.append(step)
        over = ends["done"]
        spot, age = np.where(over, rng.uniform(-0.5, 0.5, COPIES), spot), np.where(over, 0, age)
    return torch.stack(steps, dim=1)


def trained(
    loss: Any,
    actor: Any,
    estimator: Any,
    *,
    updates: int = 3,
    change: Callable[[TensorDict], TensorDict] = lambda data: data,
    estimate: bool = True,
    exploration: ExplorationType = ExplorationType.RANDOM,
) -> None:
    """Train as TorchRL's tutorial does: advantages again in each epoch."""
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    for update in range(updates):
        data = change(played(actor, update, exploration))
        for _ in range(2):
            if estimate:
                with torch.no_grad():
                    estimator(data)
            flat = data.reshape(-1)
            for rows in torch.randperm(len(flat)).split(64):
                terms = loss(flat[rows])
                total = sum(item for name, item in terms.items() if name.startswith("loss_"))
                optimizer.zero_grad()
                total.backward()
                optimizer.step()


def alarms(ear: Any) -> set[str]:
    return {item.cause for item in ear.findings() if item.certainty >= 2}


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("kind", [ClipPPOLoss, KLPENPPOLoss, A2CLoss, ReinforceLoss])
def test_sound(kind: type, continuous: bool) -> None:
    actor, critic = networks(continuous)
    loss = kind(actor, critic)
    ear = listen(loss)
    trained(loss, actor, GAE(gamma=0.97, lmbda=0.9, value_network=critic))
    heard = ear.policies["policy"]
    assert alarms(ear) == set()
    assert heard.updates == 3  # not one for each epoch
    assert heard.gamma == pytest.approx(0.97)
    assert heard.gae_lambda == pytest.approx(0.9)
    rollout = heard.rollouts[0]
    for name in ("rewards", "values", "advantages", "returns", "terminated", "log_probs"):
        assert getattr(rollout, name).shape == (STEPS, COPIES)
    assert rollout.obs.shape == (STEPS, COPIES, 2)
    first = heard.minibatches[0]
    assert first.new_log_probs is not None
    assert first.log_probs is not None
    assert first.first
    np.testing.assert_allclose(first.new_log_probs, first.log_probs, atol=1e-5)
    assert first.gradients is not None
    assert first.gradients.log_probs is not None
    assert np.abs(first.gradients.log_probs).max() > 0
    assert (first.logits is None) == continuous
    assert len(heard.steps) > 0


def test_training_is_the_same_with_and_without_listening() -> None:
    results = []
    for hears in (False, True):
        actor, critic = networks()
        loss = ClipPPOLoss(actor, critic)
        ear = listen(loss) if hears else None
        torch.manual_seed(1)
        trained(loss, actor, GAE(gamma=0.97, lmbda=0.9, value_network=critic))
        results.append([item.detach().clone() for item in loss.parameters()])
        if ear is not None:
            before = len(loss._forward_pre_hooks)
            ear.stop()
            assert not loss._forward_hooks
            assert len(loss._forward_pre_hooks) == before - 1
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_estimator_can_be_given() -> None:
    actor, critic = networks()
    loss = ClipPPOLoss(actor, critic)
    ear, estimator = Ear("torchrl"), GAE(gamma=0.97, lmbda=0.9, value_network=critic)
    listen_torchrl(loss, ear, estimator)
    trained(loss, actor, estimator, updates=1)
    assert len(ear.policies["policy"].rollouts) == 1


def test_only_loss_modules() -> None:
    with refused(TypeError, "Linear"):
        listen_torchrl(nn.Linear(1, 1), Ear("torchrl"))


# --- Traps ---------------------------------------------------------------------------------------


def heard_with(change: Callable[[TensorDict], TensorDict], estimate: bool = True) -> set[str]:
    actor, critic = networks()
    loss = ClipPPOLoss(actor, critic)
    loss.make_value_estimator(gamma=0.97, lmbda=0.9)
    ear = listen(loss)
    estimator = GAE(gamma=0.97, lmbda=0.9, value_network=critic)
    trained(loss, actor, estimator, change=change, estimate=estimate)
    return {item.cause for item in ear.findings() if item.certainty == 3}


def test_time_on_the_first_axis() -> None:
    assert "advantage-elsewhere" in heard_with(lambda data: data.transpose(0, 1).contiguous())


def test_shuffled_rows() -> None:
    assert "advantage-elsewhere" in heard_with(
        lambda data: data.reshape(-1)[torch.randperm(data.numel())]
    )


def test_advantage_missing_in_the_loss() -> None:
    assert "advantage-elsewhere" in heard_with(lambda data: data, estimate=False)


def test_without_terminated() -> None:
    assert "limit-taken-for-end" in heard_with(
        lambda data: data.exclude(("next", "terminated"), inplace=False)
    )


@pytest.mark.parametrize("key", ["reward", "episode_reward"])
def test_running_sums_as_rewards(key: str) -> None:
    actor, critic = networks()
    data = played(actor)
    total, sums = torch.zeros(COPIES, 1), []
    for t in range(STEPS):
        total = total + data["next", "reward"][:, t]
        sums.append(total)
        total = total * ~data["next", "done"][:, t]
    data["next", "episode_reward"] = torch.stack(sums, 1)
    ear = listen(ClipPPOLoss(actor, critic))
    gae = GAE(gamma=0.9, lmbda=0.9, value_network=critic)
    gae.set_keys(reward=key)
    gae(data)
    found = {item.cause for item in ear.findings() if item.certainty == 3}
    assert ("reward-running-total" in found) == (key != "reward")
    ear.stop()


@pytest.mark.parametrize("continuous", [False, True])
def test_play_of_the_mode(continuous: bool) -> None:
    actor, critic = networks(continuous)
    loss = ClipPPOLoss(actor, critic)
    ear = listen(loss)
    estimator = GAE(gamma=0.97, lmbda=0.9, value_network=critic)
    # Outside of a collector, TorchRL's actors play the mode.
    trained(loss, actor, estimator, exploration=ExplorationType.DETERMINISTIC)
    assert "play-greedy" in alarms(ear)


def test_rare_copies_of_the_network_are_sound() -> None:
    q_values = QValueActor(nn.Linear(2, 2), in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(q_values, action_space="categorical", delay_value=True)
    HardUpdate(loss, value_network_update_interval=300)
    ear = listen(loss)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    flat = played(q_values).reshape(-1)[:8]
    for _ in range(220):
        optimizer.zero_grad()
        loss(flat)["loss"].backward()
        optimizer.step()
    assert {item.cause for item in ear.findings() if item.certainty >= 2} == set()


@pytest.mark.parametrize("follows", [False, True])
def test_target_network(follows: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    q_values = QValueActor(net, in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(q_values, action_space="categorical", delay_value=True)
    updater = SoftUpdate(loss, eps=0.9) if follows else None
    ear = listen(loss)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    flat = played(q_values).reshape(-1)
    for _ in range(220):
        terms = loss(flat[torch.randint(len(flat), (32,))])
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        if updater is not None:
            updater.step()
    found = {item.cause for item in ear.findings() if item.certainty == 3}
    assert ("target-network-fixed" in found) != follows
    heard = ear.policies["policy"]
    assert "advantage-elsewhere" not in found
    assert heard.updates == 7  # of 32 minibatches
    assert len(heard.batch_rewards) == 220
    assert heard.heard("next_obs")


def test_next_observations_stored_twice() -> None:
    q_values = QValueActor(nn.Linear(2, 2), in_keys=["observation"], action_space="categorical")
    loss = DQNLoss(q_values, action_space="categorical", delay_value=True)
    ear = listen(loss)
    flat = played(q_values).reshape(-1)
    flat["observation"] = flat["next", "observation"]
    for rows in flat.split(64):
        loss(rows)
    found = {item.cause: item.certainty for item in ear.findings()}
    assert found.get("observation-late") == 3


def test_the_block_of_the_docs_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(
        compile(block("listen_torchrl.py"), "listen_torchrl.py", "exec"),
        {"__name__": "listen_torchrl"},
    )
    shown(capsys.readouterr().out, "Measurements")
