"""Gradients of the user's loss with regard to the network's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from corral.lab.listening.heard import Minibatch, as_array
from corral.lab.listening.outputs import watch_outputs
from support.updates import Listener, network


def watched(**data: Any) -> Minibatch:
    minibatch = Minibatch(first=True)
    watch_outputs(minibatch, data)
    return minibatch


def test_gradients_of_a_loss() -> None:
    net = network()
    logits, values = net(torch.randn(5, 6))
    new, entropy = logits[:, 0], logits.square().mean(dim=1)
    minibatch = watched(new_log_probs=new, values=values, entropy=entropy, logits=logits)
    assert minibatch.gradients is not None
    assert not minibatch.gradients.done
    (2.0 * new.sum() + values.square().sum() - 0.5 * entropy.mean()).backward()
    gradients = minibatch.gradients
    assert gradients.done
    assert gradients.log_probs == pytest.approx(np.full(5, 2.0))
    assert gradients.values == pytest.approx(2 * values.detach().numpy())
    assert gradients.entropy == pytest.approx(np.full(5, -0.1))
    assert gradients.logits is not None
    assert gradients.logits.shape == (5, 4)


def test_several_backward_calls_add_up() -> None:
    _, values = network()(torch.randn(5, 6))
    minibatch = watched(values=values)
    values.sum().backward(retain_graph=True)
    (3 * values).sum().backward()
    assert minibatch.gradients is not None
    assert minibatch.gradients.values == pytest.approx(np.full(5, 4.0))


@pytest.mark.parametrize("shape", [(5,), (5, 1), (1, 5)])
def test_another_shape_of_the_tensor_in_the_loss(shape: tuple[int, ...]) -> None:
    values = network().critic(torch.randn(5, 6))  # [5, 1]
    minibatch = watched(values=values.reshape(shape))
    values.sum().backward()
    assert minibatch.gradients is not None
    assert minibatch.gradients.values == pytest.approx(np.ones(shape))


def test_an_output_that_the_loss_does_not_use() -> None:
    logits, values = network()(torch.randn(5, 6))
    minibatch = watched(new_log_probs=logits[:, 0], values=values)
    values.sum().backward()
    gradients = minibatch.gradients
    assert gradients is not None
    assert gradients.log_probs is None
    assert gradients.watched == ["log_probs", "values"]
    assert not gradients.reach["log_probs"] & gradients.reach["values"]


def test_tensors_without_a_graph() -> None:
    logits, values = network()(torch.randn(5, 6))
    assert watched(new_log_probs=logits[:, 0].detach()).gradients is None
    gradients = watched(new_log_probs=logits[:, 0].detach(), values=values).gradients
    assert gradients is not None
    assert gradients.cut == ["log_probs"]
    assert watched(values=np.zeros(3)).gradients is None


def test_a_parameter_keeps_no_hook() -> None:
    logits = nn.Parameter(torch.zeros(2, 3))
    minibatch = watched(logits=logits)
    logits.sum().backward()
    assert minibatch.gradients is not None
    assert minibatch.gradients.logits is not None
    assert not logits._backward_hooks


def test_half_precision() -> None:
    values = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
    minibatch = watched(values=values * 1.0)
    (values * 2.0).sum().backward()
    assert minibatch.gradients is not None
    assert as_array(values).dtype == np.float32


def test_a_minibatch_is_complete_when_the_optimizer_steps() -> None:
    """Also if backward() reaches no tensor that was given."""
    net = network()
    listener = Listener(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    listener.begin_update()
    logits, values = net(torch.randn(5, 6))
    listener.batch(new_log_probs=torch.log_softmax(logits, dim=1)[:, 0])
    values.sum().backward()
    optimizer.step()
    listener.stop()
    gradients = listener.heard.minibatches[0].gradients
    assert gradients is not None
    assert gradients.done
    assert gradients.log_probs is None
