"""Optimizer steps are heard with any optimizer, and training is bit-identical."""

from __future__ import annotations

import copy
import io
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer

from corral.lab.listening.heard import Heard
from corral.lab.listening.steps import STEPS, Steps
from support.updates import ActorCritic, Listener, Loop, network


def heard_of(net: nn.Module) -> tuple[Heard, Steps]:
    heard = Heard("policy", network=net)
    steps = Steps(heard, lambda: True)
    steps.start()
    return heard, steps


def learn(net: nn.Module, optimizer: torch.optim.Optimizer, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    (factor * net(torch.ones(4, 3)).square().mean()).backward()
    optimizer.step()


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


# --- Training is the same ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_weights_are_bit_identical_with_and_without_listening(kind: Any) -> None:
    runs = []
    for listen in (True, False):
        net = network()
        Loop(net, listen=listen, optimizer=lambda p: kind(p, lr=1e-3)).run()
        runs.append((net.state_dict(), torch.rand(1)))
    for name, weights in runs[0][0].items():
        assert torch.equal(weights, runs[1][0][name])
    assert torch.equal(runs[0][1], runs[1][1])  # the same random numbers were drawn


def test_copies_and_files_carry_no_hooks() -> None:
    net = linear()
    optimizer = torch.optim.Adam(net.parameters())
    heard, steps = heard_of(net)
    listener = Listener(net)
    learn(net, optimizer)
    twin = copy.deepcopy(net)
    files = []
    for item in (net, optimizer, net.state_dict(), optimizer.state_dict()):
        file = io.BytesIO()
        torch.save(item, file)
        file.seek(0)
        files.append(torch.load(file, weights_only=False))
    copy.deepcopy(optimizer)
    count = len(heard.steps)
    for other in (twin, files[0]):
        assert not other._forward_hooks
        assert not other.weight._backward_hooks
        learn(other, torch.optim.SGD(other.parameters(), lr=0.1))
    assert len(heard.steps) == count
    assert heard.outside == []
    steps.stop()
    listener.stop()


def test_stop_removes_all_hooks() -> None:
    net = linear()
    heard, steps = heard_of(net)
    listener = Listener(net)
    steps.stop()
    listener.stop()
    learn(net, torch.optim.SGD(net.parameters(), lr=0.1))
    assert heard.steps == []
    assert not net.weight._backward_hooks
    assert not net.weight._post_accumulate_grad_hooks
    assert not nn.modules.module._global_forward_hooks
    assert not optimizer._global_optimizer_pre_hooks


def test_updates_that_are_not_recorded_have_no_hooks() -> None:
    net = linear()
    heard = Heard("policy", network=net)
    steps = Steps(heard, lambda: False)
    steps.start()
    learn(net, torch.optim.SGD(net.parameters(), lr=0.1))
    assert heard.steps == []
    assert not net.weight._backward_hooks
    steps.stop()


# --- What is heard -------------------------------------------------------------------------------


def test_a_step_of_gradient_descent() -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.25)
    net(torch.ones(4, 3)).sum().backward()
    before = net.weight.grad.norm().item(), net.bias.grad.norm().item()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    steps.stop()
    (step,) = heard.steps
    assert step.learning_rate == 0.25
    assert step.norm == pytest.approx(1.0, rel=1e-4)
    assert step.fresh_norm == pytest.approx((before[0] ** 2 + before[1] ** 2) ** 0.5)
    assert step.kept_norm == 0.0
    assert step.gradients["weight"] == pytest.approx(4 / step.fresh_norm, rel=1e-4)
    assert step.changes["weight"] == pytest.approx(0.25 * 4 / step.fresh_norm, rel=1e-4)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_cleared_gradients_leave_nothing_over(set_to_none: bool) -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        for _ in range(2):  # accumulation on purpose
            net(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    steps.stop()
    assert [step.kept_norm for step in heard.steps] == [0.0, 0.0, 0.0]


def test_gradients_of_earlier_steps_are_left_over() -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for _ in range(3):
        net(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    steps.stop()
    norm = heard.steps[0].norm
    assert [step.kept_norm for step in heard.steps] == pytest.approx([0.0, norm, 2 * norm])


def test_gradients_that_another_loss_left_are_cleared_in_time() -> None:
    """The loss of an actor sends gradients to the critic, which are cleared before its step."""
    actor, critic = nn.Linear(3, 2), nn.Linear(2, 1)
    heard, steps = heard_of(nn.ModuleList([actor, critic]))
    of_actor = torch.optim.Adam(actor.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    for _ in range(4):
        of_critic.zero_grad()
        critic(actor(torch.ones(4, 3)).detach()).square().mean().backward()
        of_critic.step()
        of_actor.zero_grad()
        critic(actor(torch.ones(4, 3))).mean().backward()
        of_actor.step()
    steps.begin_update()
    steps.stop()
    assert [step.kept_norm for step in heard.steps] == [0.0] * 8
    assert heard.outside == []


def test_parameters_outside_of_all_optimizers() -> None:
    net = network()
    heard, steps = heard_of(net)
    optimizer = torch.optim.Adam(net.actor.parameters())
    logits, values = net(torch.ones(4, 6))
    (logits.square().mean() + values.mean()).backward()
    optimizer.step()
    steps.begin_update()
    assert {name.partition(".")[0] for name in heard.outside} == {"critic"}
    later = torch.optim.Adam(net.critic.parameters())
    later.step()
    steps.begin_update()
    steps.stop()
    assert heard.outside == []


def test_weights_changed_without_an_optimizer_are_not_outside() -> None:
    net = linear()
    heard, steps = heard_of(net)
    net(torch.ones(4, 3)).mean().backward()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter -= 0.1 * parameter.grad
    steps.begin_update()
    steps.stop()
    assert heard.outside == []


def test_each_policy_hears_its_own_steps() -> None:
    nets = [linear(), linear()]
    both = [heard_of(net) for net in nets]
    learn(nets[0], torch.optim.SGD(nets[0].parameters(), lr=0.1))
    learn(nets[1], torch.optim.SGD(nets[1].parameters(), lr=0.2))
    one = torch.optim.SGD(itertools.chain(*(net.parameters() for net in nets)), lr=0.3)
    one.step()
    for _, steps in both:
        steps.stop()
    assert [step.learning_rate for step in both[0][0].steps] == [0.1, 0.3]
    assert [step.learning_rate for step in both[1][0].steps] == [0.2, 0.3]


def test_a_new_optimizer_and_a_new_layer_are_heard() -> None:
    net = nn.Sequential(linear())
    heard, steps = heard_of(net)
    learn(net, torch.optim.SGD(net.parameters(), lr=0.1))
    net.append(nn.Linear(2, 2))
    steps.begin_update()
    learn(net, torch.optim.Adam(net.parameters(), lr=0.2))
    steps.stop()
    assert [step.learning_rate for step in heard.steps] == [0.1, 0.2]
    assert "1.weight" in heard.steps[1].changes


def test_steps_with_a_closure() -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(torch.ones(4, 3)).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    steps.stop()
    assert heard.steps[0].norm > 0


def test_sparse_and_half_precision_gradients() -> None:
    net = nn.ModuleList([nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1)])
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net[1](net[0](torch.tensor([1, 1, 3]))).sum().backward()
    optimizer.step()
    steps.stop()
    assert heard.steps[0].gradients["0.weight"] > 0
    half = linear().to(torch.bfloat16)
    heard, steps = heard_of(half)
    half(torch.full((4, 3), 3e18, dtype=torch.bfloat16)).sum().backward()
    torch.optim.SGD(half.parameters(), lr=0.0).step()
    steps.stop()
    assert heard.steps[0].gradients["weight"] > 1e18


def test_weights_that_are_put_back_before_the_next_update() -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = copy.deepcopy(net.state_dict())
    for put_back in (True, True, False, False):
        steps.begin_update()
        learn(net, optimizer)
        if put_back:
            net.load_state_dict(kept)
    steps.stop()
    assert heard.restored == 2
    assert heard.places["weights-put-back"].module == "Linear"


def test_the_first_steps_of_an_update_are_recorded() -> None:
    net = linear()
    heard, steps = heard_of(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(STEPS + 5):
        learn(net, optimizer)
    assert len(heard.steps) == STEPS
    assert not net.weight._backward_hooks
    steps.begin_update()
    learn(net, optimizer)
    steps.stop()
    assert len(heard.steps) == STEPS + 1


# --- Other algorithms are silent -----------------------------------------------------------------


def test_a_q_network_with_a_target_copy() -> None:
    torch.manual_seed(0)
    net = nn.ModuleDict({"online": ActorCritic().actor, "target": ActorCritic().actor})
    listener = Listener(net)
    optimizer = torch.optim.Adam(net["online"].parameters(), lr=1e-3)
    for update in range(12):
        listener.begin_update()
        obs, later = torch.randn(32, 6), torch.randn(32, 6)
        with torch.no_grad():
            target = obs[:, 0] + 0.9 * net["target"](later).amax(dim=1)
        loss = (net["online"](obs).amax(dim=1) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 3 == 0:
            net["target"].load_state_dict(net["online"].state_dict())
    listener.stop()
    assert listener.findings() == {}


def test_a_soft_actor_critic() -> None:
    torch.manual_seed(0)
    widths = {"actor": 5, "critic": 6, "target_critic": 6}
    net = nn.ModuleDict(
        {
            name: nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
            for name, width in widths.items()
        }
    )
    listener = Listener(net)
    optimizers = [torch.optim.Adam(net[name].parameters(), lr=1e-3) for name in ("actor", "critic")]
    for _ in range(12):
        listener.begin_update()
        obs = torch.randn(32, 5)
        action = torch.tanh(net["actor"](obs))
        both = torch.cat([obs, action], dim=1)
        with torch.no_grad():
            target = obs[:, :1] + 0.9 * net["target_critic"](both)
        optimizers[1].zero_grad()
        (net["critic"](both.detach()) - target).square().mean().backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-net["critic"](both)).mean().backward()
        optimizers[0].step()
        with torch.no_grad():
            for slow, fast in zip(
                net["target_critic"].parameters(), net["critic"].parameters(), strict=True
            ):
                slow.lerp_(fast, 0.01)
    listener.stop()
    assert listener.findings() == {}
