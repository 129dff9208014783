"""Listen to a loss module of TorchRL.

    ear = listen(loss_module)

Minibatches are heard from the loss, its networks and its distribution; rollouts from the value
estimator (``GAE`` and the like) that fills in the advantages, wherever it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from torch.nn.modules.module import register_module_forward_hook
from torchrl.objectives.common import LossModule
from torchrl.objectives.value import ValueEstimatorBase

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks import torchrl_traps as traps
from corral.lab.listening.frameworks.calls import has_method
from corral.lab.listening.heard import as_array

__all__ = ["listen_torchrl"]


def listen_torchrl(
    loss_module: LossModule, ear: Ear, estimator: ValueEstimatorBase | None = None
) -> None:
    """Let ``ear`` hear a loss module; call it before the training loop.

    Args:
        loss_module: such as ClipPPOLoss, A2CLoss, ReinforceLoss, DQNLoss or SACLoss.
        ear: records the training.
        estimator: fills in the advantages; None: the first one that is called.
    """
    if not isinstance(loss_module, LossModule):
        raise TypeError(f"{type(loss_module).__name__}: not a LossModule of TorchRL")
    ear.policy("policy", loss_module)
    _Rollouts(loss_module, ear, estimator)
    _Losses(loss_module, ear)


def _guarded(ear: Ear, heard: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that ends the listening, not the training, if it raises."""

    def hook(*args: Any) -> None:
        if ear.listening:
            try:
                heard(*args)
            except Exception as error:  # such as a tensordict of an unknown form
                ear.fail(error)

    return hook


def _note(ear: Ear, findings: Iterable[Finding]) -> None:
    """Keep findings of new causes."""
    heard = ear.policy("policy")
    for item in findings:
        if item.cause not in {earlier.cause for earlier in heard.traps}:
            heard.traps.append(item)


# --- Rollouts ------------------------------------------------------------------------------------


class _Rollouts:
    """Hears the calls of a value estimator."""

    def __init__(self, loss: LossModule, ear: Ear, estimator: ValueEstimatorBase | None) -> None:
        self.loss, self.ear = loss, ear
        self.last: tuple[Array, Array] | None = None  # rewards and actions: the loop may repeat
        if estimator is not None:
            self._attach(estimator)
            return
        # The user's estimator is not part of the loss. Its first call shows it.
        self.search = register_module_forward_hook(self._any_called)
        ear.on_stop(self.search.remove)

    def _attach(self, estimator: ValueEstimatorBase) -> None:
        handle = estimator.register_forward_hook(_guarded(self.ear, self._called))
        self.ear.on_stop(handle.remove)

    def _any_called(self, module: Any, args: Any, result: Any) -> None:
        if isinstance(module, ValueEstimatorBase):
            self.search.remove()
            self._attach(module)
            _guarded(self.ear, self._called)(module, args, result)

    def _called(self, estimator: ValueEstimatorBase, args: Any, result: Any) -> None:
        """Hear the tensordict [..., T] that the estimator completed."""
        if not args or not isinstance(args[0], TensorDictBase):
            return
        data, keys = args[0], estimator.tensor_keys
        reward = data.get(("next", keys.reward), None)
        if reward is None or not data.batch_dims:
            return
        heard = self.ear.policy("policy")
        heard.gamma, heard.gae_lambda = _settings(estimator)
        axes = _Axes(data, estimator)
        rewards = axes.numbers(reward)
        actions = _actions(data, self.loss)
        played = rewards if actions is None else as_array(actions)
        if self.last is not None and _same(self.last, (rewards, played)):
            return  # advantages of the same rollout, estimated again in the next epoch
        self.last = rewards, played
        obs_key = _obs_key(self.loss)
        _note(self.ear, traps.of_rollout(data, estimator, axes.time, obs_key, "policy"))
        done = data.get(("next", keys.done))
        terminated = data.get(("next", keys.terminated), None)
        truncated = data.get(("next", "truncated"), None)
        if terminated is None:
            # The estimator counts every end as a termination, see ``traps.of_rollout``.
            terminated = done if truncated is None else done & ~truncated
        elif truncated is None:
            truncated = done & ~terminated
        after = data.get(("next", keys.value), None)
        after = None if after is None else axes.numbers(after)
        log_probs = data.get(keys.sample_log_prob, None)
        advantage, target = data.get(keys.advantage, None), data.get(keys.value_target, None)
        mask = data.get(("collector", "mask"), None)
        self.ear.rollout(
            rewards=rewards,
            terminated=axes.flags(terminated),
            truncated=None if truncated is None else axes.flags(truncated),
            values=axes.optional(data.get(keys.value, None)),
            final_values=after,
            last_values=None if after is None else after[-1],
            advantages=axes.optional(advantage),
            returns=axes.optional(target),
            log_probs=axes.optional(log_probs),
            actions=axes.per_column(actions),
            mask=axes.per_column(data.get("action_mask", None)),
            valid=None if mask is None else axes.flags(mask),
            obs=axes.per_column(data.get(obs_key, None)),
        )


class _Axes:
    """Brings tensors [..., T, *agents, F] to [T, B, ...]: a column for each copy and agent."""

    def __init__(self, data: TensorDictBase, estimator: ValueEstimatorBase) -> None:
        self.dims = data.batch_dims
        self.time = time_dim(data, estimator)
        self.batch = tuple(data.batch_size)
        reward = data.get(("next", estimator.tensor_keys.reward))
        self.agents = int(np.prod(reward.shape[self.dims :]))  # without agents, the last axis is 1

    def _leading(self, values: torch.Tensor) -> Array:
        array = as_array(values.detach().float() if values.is_floating_point() else values)
        return np.moveaxis(array, self.time, 0)

    def numbers(self, values: torch.Tensor) -> Array:
        """Return one number for each decision: [T, B]."""
        array = self._leading(values)
        array = array.reshape(*array.shape[: self.dims], -1)
        if array.shape[-1] == 1 and self.agents > 1:
            array = np.repeat(array, self.agents, axis=-1)
        return array.reshape(len(array), -1)

    def optional(self, values: torch.Tensor | None) -> Array | None:
        """Return one number for each decision; None for another number of agents."""
        if not isinstance(values, torch.Tensor):
            return None
        array = self.numbers(values)
        columns = int(np.prod(self.batch)) // self.batch[self.time] * self.agents
        return array if array.shape[1] == columns else None

    def flags(self, values: torch.Tensor) -> Array:
        return self.numbers(values).astype(bool)

    def per_column(self, values: torch.Tensor | None) -> Array | None:
        """Return arrays [T, B, ...]; None if an axis of agents is missing."""
        if not isinstance(values, torch.Tensor):
            return None
        array = self._leading(values)
        extra = array.shape[self.dims :]
        if self.agents > 1:
            if not extra or extra[0] != self.agents:
                return None
            extra = extra[1:]
        return array.reshape(len(array), -1, *extra)


def time_dim(data: TensorDictBase, estimator: ValueEstimatorBase) -> int:
    """Return the axis of time that the estimator uses: the named one, or the last one."""
    chosen = vars(estimator).get("time_dim")
    if chosen is not None:
        return int(chosen % data.batch_dims)
    names = list(data.names) if data.names else []
    return names.index("time") if "time" in names else int(data.batch_dims) - 1


def _settings(estimator: ValueEstimatorBase) -> tuple[float | None, float | None]:
    """Return gamma and lambda of an estimator."""
    buffers = dict(estimator.named_buffers(recurse=False)) | vars(estimator)
    gamma, trace = buffers.get("gamma"), buffers.get("lmbda")
    kind = type(estimator).__name__
    usual = {"TD0Estimator": 0.0, "TD1Estimator": 1.0}.get(kind)
    return _number(gamma), _number(trace) if trace is not None else usual


def _number(value: Any) -> float | None:
    if value is None or (isinstance(value, torch.Tensor) and value.numel() > 1):
        return None
    return float(value)


def _same(first: tuple[Array, Array], second: tuple[Array, Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _networks(loss: LossModule) -> Mapping[str, Any]:
    """Return the networks of a loss by name."""
    names = ("actor_network", "critic_network", "value_network", "qvalue_network")
    return {name: part for name in names if (part := loss.__dict__.get(name)) is not None} | {
        name: part for name, part in loss.named_children() if name in names
    }


def _obs_key(loss: LossModule) -> Any:
    """Return the first input of the acting network."""
    networks = _networks(loss)
    for name in ("actor_network", "value_network"):
        if name in networks and len(networks[name].in_keys):
            return networks[name].in_keys[0]
    return "observation"


def _actions(data: TensorDictBase, loss: LossModule) -> torch.Tensor | None:
    """Return actions, one-hot ones as numbers."""
    key = vars(loss.tensor_keys).get("action", "action")
    if isinstance(key, list):
        return None
    actions = data.get(key, None)
    if not isinstance(actions, torch.Tensor):
        return None
    if actions.is_floating_point() or actions.ndim <= data.batch_dims or actions.shape[-1] < 2:
        return actions
    one_hot = bool(((actions == 0) | (actions == 1)).all() and (actions.sum(dim=-1) == 1).all())
    return actions.long().argmax(dim=-1) if one_hot else actions


# --- Minibatches ---------------------------------------------------------------------------------


class _Losses:
    """Hears the calls of a loss: its distribution, its values and its terms."""

    def __init__(self, loss: LossModule, ear: Ear) -> None:
        self.loss, self.ear = loss, ear
        self.inside = False
        self.parts: dict[str, Any] = {}
        self.targets = traps.Targets(loss)
        handles = [
            loss.register_forward_pre_hook(_guarded(ear, self.begins)),
            loss.register_forward_hook(_guarded(ear, self.ends)),
        ]
        networks = _networks(loss)
        for name in ("critic_network", "value_network"):
            if name in networks:
                hook = _guarded(ear, self.valued)
                handles.append(networks[name].register_forward_hook(hook))
        for handle in handles:
            ear.on_stop(handle.remove)
        actor = networks.get("actor_network")
        if actor is not None and has_method(actor, "get_dist"):
            ear.on_call(actor, "get_dist", self.distributed)

    def begins(self, loss: Any, args: Any) -> None:
        self.inside = self.ear.attends()
        self.parts = {}
        if args and isinstance(args[0], TensorDictBase):
            if self.inside and "actor_network" in _networks(loss):  # others need no advantage
                self.note(traps.of_batch(args[0], loss, _obs_key(loss), "policy"))
            self.note(self.targets.seen(loss, "policy"))

    def note(self, findings: Iterable[Finding]) -> None:
        _note(self.ear, findings)

    def distributed(self, args: Any, kwargs: Any, result: Any) -> None:
        """Watch the distribution in the loss: it is used once, and for its own tensors."""
        if not self.inside:
            return
        self.parts["distribution"] = result
        for name in ("log_prob", "entropy"):
            if callable(method := getattr(result, name, None)):
                setattr(result, name, self._kept(name, method))

    def _kept(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            output = method(*args, **kwargs)
            if self.inside and isinstance(output, torch.Tensor):
                self.parts.setdefault(name, output)
            return output

        return call

    def valued(self, network: Any, args: Any, result: Any) -> None:
        if not self.inside or not isinstance(result, TensorDictBase):
            return
        values = result.get(vars(self.loss.tensor_keys).get("value", "state_value"), None)
        if isinstance(values, torch.Tensor) and values.requires_grad:
            self.parts["values"] = values

    def ends(self, loss: LossModule, args: Any, result: Any) -> None:
        inside, self.inside = self.inside, False
        parts, self.parts = self.parts, {}
        if not args or not isinstance(args[0], TensorDictBase):
            return
        data, keys = args[0], vars(loss.tensor_keys)
        count = int(np.prod(data.batch_size)) if data.batch_dims else 1

        def rows(values: Any) -> torch.Tensor | None:
            """Return one number for each decision, [R]; None for other shapes."""
            if not isinstance(values, torch.Tensor) or values.numel() != count:
                return None
            return values.reshape(count)

        reward_key = keys.get("reward", "reward")
        several = isinstance(reward_key, list)
        rewards = None if several else rows(data.get(("next", reward_key), None))
        if not inside:
            self.ear.batch(rewards=rewards)  # counted: without rollouts they make the updates
            return
        log_prob_key = keys.get("sample_log_prob", "action_log_prob")
        log_probs = None if isinstance(log_prob_key, list) else data.get(log_prob_key, None)
        actions = _actions(data, loss)
        obs_key = _obs_key(loss)
        nested = obs_key if isinstance(obs_key, tuple) else (obs_key,)
        obs, after = data.get(obs_key, None), data.get(("next", *nested), None)
        terms = {
            name: value.detach()
            for name, value in _items(result)
            if isinstance(value, torch.Tensor) and value.numel() == 1
        }
        losses = [value for name, value in terms.items() if name.startswith("loss_")]
        batch = {
            "obs": obs.reshape(count, *obs.shape[data.batch_dims :])
            if isinstance(obs, torch.Tensor)
            else None,
            "actions": None
            if actions is None
            else actions.reshape(count, *actions.shape[data.batch_dims :]),
            "log_probs": rows(log_probs),
            "new_log_probs": rows(parts.get("log_prob")),
            "entropy": rows(parts.get("entropy")),
            "logits": _logits(parts.get("distribution"), count),
            "values": rows(parts.get("values")),
            "advantages": rows(data.get(keys.get("advantage", "advantage"), None)),
            "returns": rows(data.get(keys.get("value_target", "value_target"), None)),
            "next_obs": after.reshape(count, *after.shape[data.batch_dims :])
            if isinstance(after, torch.Tensor)
            else None,
            "rewards": rewards,
            "terminated": rows(data.get(("next", "terminated"), None)),
            "truncated": rows(data.get(("next", "truncated"), None)),
            "loss": sum(losses) if losses else None,
        }
        self.note(traps.plays_mode(actions, parts.get("distribution"), "policy"))
        taken: dict[str, Any] = {
            name: float(part) for name, part in terms.items() if name not in batch
        }
        taken |= {name: part for name, part in batch.items() if part is not None}
        self.ear.batch(**taken)


def _items(result: Any) -> list[tuple[str, Any]]:
    return [(str(name), value) for name, value in result.items()] if result is not None else []


def _logits(distribution: Any, count: int) -> torch.Tensor | None:
    """Return the logits of a categorical distribution, [R, A]."""
    try:
        logits = distribution.logits
    except AttributeError:  # of another kind
        return None
    if not isinstance(logits, torch.Tensor) or logits.ndim < 2:
        return None
    return logits.reshape(count, -1) if logits.numel() == count * logits.shape[-1] else None
