"""The layers of trained networks as arrays, for all trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from corral.adapters.networks import Network
from corral.envs.core import Array
from corral.envs.masks import OBSERVATION
from corral.errors import RunError
from corral.trainers.policies import NetworkPolicy

__all__ = ["Layers", "layers_of"]


@dataclass(frozen=True, eq=False)
class Layers:
    """The network that plays a node, in the form for ``NetworkActor``."""

    network: nn.Module  # the same object for nodes that share it
    about: dict[str, Any]
    arrays: dict[str, Array]
    input: Array  # float32 [inputs]: 0 at the features; the rest identifies the node


def layers_of(agent: str, policy: Any, features: int) -> Layers:
    """Return the layers of the policy of ``agent``, which observes ``features`` numbers.

    Raises RunError for policies without a trained network, and for networks with other layers.
    """
    if not isinstance(policy, NetworkPolicy):
        raise RunError(
            f"{agent} is played by {type(policy).__name__}, which is not a trained network, so "
            "NumPy cannot play it; use run.decide"
        )
    forward: Any = policy.forward
    room = np.zeros(features, dtype=np.float32)
    if hasattr(forward, "columns"):
        return _of_sb3(agent, forward, room)
    if hasattr(forward, "networks"):  # of RLlib
        identity = room[:0] if forward.identity is None else forward.identity
        entries = {path[0]: room for path, _ in forward.networks.actor.entries}
        entries |= {"agent": identity} if "agent" in entries else {}
        return _of_network(agent, forward.networks.actor, entries)
    identity = np.zeros(forward.group.identities, dtype=np.float32)
    if len(identity):
        identity[forward.group.agents.index(agent)] = 1.0
    entries = {OBSERVATION: room, "agent": identity}
    if hasattr(forward, "actor"):
        return _of_network(agent, forward.actor, entries)
    return _layers(agent, forward.network, list(forward.network), entries)


def _of_network(agent: str, network: Network, entries: dict[str, Array]) -> Layers:
    if network.encoder is not None or len(network.cnns):
        raise _refusal(agent, network.encoder or network.cnns)
    gru = network.gru if network.memory else None
    return _layers(agent, network, [*network.layers, network.head], entries, gru)


def _of_sb3(agent: str, forward: Any, room: Array) -> Layers:
    """Return the layers of a policy of Stable-Baselines3, or of the values of its DQN."""
    policy, columns = forward.policy, forward.columns
    entries = {OBSERVATION: room}
    if columns.identities is not None:
        entries["agent"] = columns.identities[columns.agents.index(agent)]
    if "q_net" in policy._modules:
        extractor, modules = policy.q_net.features_extractor, list(policy.q_net.q_net)
    else:
        extractor = policy.pi_features_extractor
        modules = [*policy.mlp_extractor.policy_net, policy.action_net]
    extractors = getattr(extractor, "extractors", None)
    if extractors is None or not all(isinstance(e, nn.Flatten) for e in extractors.values()):
        raise _refusal(agent, extractor)
    return _layers(agent, policy, modules, {key: entries[key] for key in extractors})


def _layers(
    agent: str,
    network: nn.Module,
    modules: Sequence[nn.Module],
    entries: dict[str, Array],
    gru: nn.GRU | None = None,
) -> Layers:
    """Return the layers of ``modules``; the last module is the head. ``entries`` are the parts of
    the input, in order."""
    keys = list(entries)
    about: dict[str, Any] = {
        "at": sum(len(entries[key]) for key in keys[: keys.index(OBSERVATION)]),
        "activation": "relu",
        "inputs": sum(map(len, entries.values())),
        "units": [],
        "memory": 0 if gru is None else gru.hidden_size,
    }
    arrays: dict[str, Array] = {}
    *hidden, head = modules
    activations = set()
    for linear, activation in zip(hidden[::2], hidden[1::2], strict=False):
        if not isinstance(linear, nn.Linear) or not isinstance(activation, nn.ReLU | nn.Tanh):
            raise _refusal(agent, network)
        activations.add(type(activation).__name__.lower())
        number = len(about["units"])
        arrays |= _of_linear(linear, f"weight{number}", f"bias{number}")
        about["units"].append(linear.out_features)
    if len(hidden) % 2 or len(activations) > 1 or not isinstance(head, nn.Linear):
        raise _refusal(agent, network)
    about["activation"] = next(iter(activations), "relu")
    about["actions"] = head.out_features
    arrays |= _of_linear(head, "head", "head_bias")
    if gru is not None:
        for name, torch_name in (("input", "ih"), ("state", "hh")):
            arrays[f"gru_{name}"] = _array(getattr(gru, f"weight_{torch_name}_l0")).T
            arrays[f"gru_{name}_bias"] = _array(getattr(gru, f"bias_{torch_name}_l0"))
    return Layers(network, about, arrays, np.concatenate(list(entries.values())))


def _of_linear(linear: nn.Linear, weight: str, bias: str) -> dict[str, Array]:
    return {weight: _array(linear.weight).T, bias: _array(linear.bias)}


def _array(values: Any) -> Array:
    array: Array = values.detach().cpu().numpy().astype(np.float32)
    return array


def _refusal(agent: str, network: Any) -> RunError:
    return RunError(
        f"{agent}: {type(network).__name__} cannot be played by NumPy, which supports layers of "
        "Linear with ReLU or Tanh, and a GRU; use run.decide"
    )
