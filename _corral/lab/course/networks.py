"""Exercises on networks: 8, an actor with masks; 11, a snapshot for self-play.

Answers are judged by facts about the network that they return: each is True or False.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from corral.envs.masks import MASK, OBSERVATION
from corral.envs.registry import make
from corral.lab.course.exercise import Answer, Probe, Unusable, exercise

if TYPE_CHECKING:
    import torch

    Masking = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

__all__ = ["frozen_snapshot", "masked_network"]

ALIVE = 1e-5
"""Gradients and differences of logits below this are rounding errors."""

NONLINEAR = 1e-3
"""The same for sums of four logits."""

# --- 8: a masked network -------------------------------------------------------------------------


def _decisions(p: Probe) -> tuple[torch.Tensor, torch.Tensor]:
    """Return observations [R, F] and masks [R, A] of an episode of random legal actions."""
    import torch

    arguments: dict[str, Any] = {"walls": "mask", **p}
    env, rng = make("arena_v0", **arguments), np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    rows, masks = [], []
    while env.agents:
        rows += [each[OBSERVATION] for each in observations.values()]
        masks += [each[MASK] != 0 for each in observations.values()]
        actions = {a: rng.choice(np.flatnonzero(o[MASK])) for a, o in observations.items()}
        observations = env.step(actions)[0]
    return torch.from_numpy(np.stack(rows)), torch.from_numpy(np.stack(masks))


def _facts_of_actor(make_actor: Answer, p: Probe) -> dict[str, bool]:
    import torch

    rows, mask = _decisions(p)
    actor = _required_module(make_actor(rows.shape[1], mask.shape[1]))
    logits = actor(rows, mask)
    if not isinstance(logits, torch.Tensor) or logits.shape != mask.shape:
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else str(logits)
        raise Unusable("wrong-shape", f"forward returned {found}; return {tuple(mask.shape)}")

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # the facts depend on the layers, not on their first weights
        for values in actor.parameters():
            values.copy_(0.3 * torch.randn(values.shape, generator=generator))
    logits = actor(rows, mask)
    log_probs = torch.log_softmax(logits, dim=1)
    loss = (torch.randn(mask.shape, generator=generator) * log_probs)[mask].sum()
    weights = _weights_in(loss)
    if weights:
        loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        legal = torch.ones_like(mask)
        free = actor(rows, legal)  # all actions legal
        # f(x + y) + f(0) = f(x) + f(y) for an affine f
        bend = actor(rows + rows[:1], legal) + actor(0 * rows, legal) - free - free[:1]
    parameters = list(actor.parameters())
    gradients = [values.grad for values in parameters]
    numbers = [each for each in gradients if each is not None]
    sums = free.sum(dim=1)
    return {
        "all weights are parameters of the module": bool(parameters) and weights <= set(parameters),
        "logits are not probabilities": not (
            bool((free >= 0).all()) and bool(torch.allclose(sums, torch.ones_like(sums)))
        ),
        "legal actions have a probability above 0": bool((log_probs[mask].exp() > 0).all()),
        "illegal actions have probability 0": not log_probs[~mask].exp().any(),
        "illegal actions have a logit other than 0": bool((logits[~mask] != 0).all()),
        "all gradients are finite": all(bool(each.isfinite().all()) for each in numbers),
        "all parameters have gradients": len(numbers) == len(gradients)
        and not any(bool((each.abs() < ALIVE).all()) for each in numbers),
        "logits depend on the action": bool(((free - free[:, :1]).abs() > ALIVE).any()),
        "logits depend on the observation": bool(((free - free[:1]).abs() > ALIVE).any()),
        "logits are nonlinear in the observation": bool((bend.abs() > NONLINEAR).any()),
    }


def _weights_in(loss: torch.Tensor) -> set[torch.Tensor]:
    """Return the tensors that a loss has gradients for."""
    nodes: list[Any] = [loss.grad_fn]
    weights, seen = set(), set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        if type(node).__name__ == "AccumulateGrad":  # the node of a leaf, such as a parameter
            weights.add(node.variable)
    return weights


def _shown_of_actor(make_actor: Answer, p: Probe) -> Probe:
    """Return masks [3, A] that forbid an action, and the actor's probabilities."""
    rows, mask = _decisions(p)
    chosen = (~mask).any(dim=1)
    rows, mask = rows[chosen][:3], mask[chosen][:3]
    logits = make_actor(rows.shape[1], mask.shape[1])(rows, mask)
    return {"mask": mask.int().numpy(), "probabilities": logits.softmax(dim=1).detach().numpy()}


def _required_module(found: Any) -> torch.nn.Module:
    import torch

    if not isinstance(found, torch.nn.Module):
        raise Unusable("wrong-type", f"returned {type(found).__name__}; return a torch.nn.Module")
    return found


def _masked(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    from corral.adapters.masked_distribution import masked_logits  # imports torch

    return masked_logits(logits, mask)


def _facts_with(p: Probe, mistake: str = "", masked: Masking = _masked) -> dict[str, bool]:
    """Return the facts about an actor that has a mistake in its layers, or masks differently."""
    from torch import nn

    class Actor(nn.Module):
        def __init__(self, features: int, actions: int) -> None:
            super().__init__()
            between = nn.Identity() if mistake == "no-hidden-layer" else nn.Tanh()
            encoder = [nn.Sequential(nn.Linear(features, 16), between)]
            self.encoder = encoder if mistake == "layers-not-registered" else nn.ModuleList(encoder)
            self.head = nn.Linear(16, 1 if mistake == "one-output-for-all" else actions)

        def forward(self, observation: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            hidden = self.encoder[0](observation)
            logits = self.head(hidden.detach() if mistake == "dead-encoder" else hidden)
            return masked(logits.expand(mask.shape), mask)

    return _facts_of_actor(Actor, p)


masked_network = exercise(
    8,
    lambda: [{"width": 4, "height": 3, "max_cycles": 30}],
    _facts_with,
    {
        "mask-forgotten": lambda p: _facts_with(p, masked=lambda logits, mask: logits),
        "logits-times-mask": lambda p: _facts_with(p, masked=lambda logits, mask: logits * mask),
        "mask-inverted": (
            lambda p: _facts_with(p, masked=lambda logits, mask: _masked(logits, ~mask)),
            lambda p: _facts_with(p, masked=lambda logits, mask: logits.masked_fill(mask, -1e9)),
            lambda p: _facts_with(
                p, masked=lambda logits, mask: logits.masked_fill(mask, -math.inf)
            ),
        ),
        "probabilities-not-logits": (
            lambda p: _facts_with(
                p, masked=lambda logits, mask: _masked(logits, mask).softmax(dim=1)
            ),
            lambda p: _facts_with(
                p, masked=lambda logits, mask: _masked(logits.softmax(dim=1), mask)
            ),
        ),
        "logarithm-of-zero": lambda p: _facts_with(
            p, masked=lambda logits, mask: (logits.softmax(dim=1) * mask).log()
        ),
        "dead-encoder": lambda p: _facts_with(p, "dead-encoder"),
        "one-output-for-all": lambda p: _facts_with(p, "one-output-for-all"),
        "no-hidden-layer": lambda p: _facts_with(p, "no-hidden-layer"),
        "layers-not-registered": lambda p: _facts_with(p, "layers-not-registered"),
    },
    _facts_of_actor,
    _shown_of_actor,
)

# --- 11: a frozen snapshot -----------------------------------------------------------------------


def _policy() -> torch.nn.Module:
    """Return a policy with a buffer; its class takes no arguments."""
    import torch
    from torch import nn

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    policy = Policy()
    policy.load_state_dict({"mean": torch.full((3,), 0.5)}, strict=False)
    return policy


def _facts_of_snapshot(take: Answer, p: Probe) -> dict[str, bool]:
    import torch

    policy = _policy()
    before = {name: values.clone() for name, values in policy.state_dict().items()}
    weights, buffers = dict(policy.named_parameters()), dict(policy.named_buffers())
    frozen = _required_module(take(policy))

    def equal(names: Iterable[str]) -> bool:
        now = frozen.state_dict()
        return all(name in now and bool(torch.equal(now[name], before[name])) for name in names)

    copied = {"weights are copied": equal(weights), "buffers are copied": equal(buffers)}
    for values in policy.state_dict().values():
        values.add_(p["update"])
    return copied | {
        "weights stay after an update": equal(weights),
        "buffers stay after an update": equal(buffers),
        "the snapshot is not trainable": not any(v.requires_grad for v in frozen.parameters()),
        "the policy is trainable": all(v.requires_grad for v in policy.parameters()),
    }


def _snapshot(policy: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(policy).requires_grad_(False)


def _weights_alone(policy: torch.nn.Module) -> torch.nn.Module:
    frozen = type(policy)()
    frozen.load_state_dict(dict(policy.named_parameters()), strict=False)
    return frozen.requires_grad_(False)


def _shared_buffers(policy: torch.nn.Module) -> torch.nn.Module:
    frozen = _snapshot(policy)
    frozen._buffers = policy._buffers
    return frozen


frozen_snapshot = exercise(
    11,
    lambda: [{"update": 1.0}],
    lambda p: _facts_of_snapshot(_snapshot, p),
    {
        "reference": (
            lambda p: _facts_of_snapshot(copy.copy, p),
            lambda p: _facts_of_snapshot(lambda policy: policy.requires_grad_(False), p),
        ),
        "buffers-not-copied": lambda p: _facts_of_snapshot(_weights_alone, p),
        "buffers-shared": lambda p: _facts_of_snapshot(_shared_buffers, p),
        "trainable": lambda p: _facts_of_snapshot(copy.deepcopy, p),
        "policy-frozen": lambda p: _facts_of_snapshot(
            lambda policy: _snapshot(policy.requires_grad_(False)), p
        ),
    },
    _facts_of_snapshot,
)
