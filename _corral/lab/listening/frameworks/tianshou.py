"""Listen to an algorithm of Tianshou 2.

On-policy algorithms (PPO, A2C, ...) are heard in full: the batch with returns and advantages, and
each minibatch before ``optim.step``. Of off-policy algorithms, the transitions added to the buffer
and the losses are heard. The algorithms of a multi-agent algorithm are policies of their own.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.algorithm_base import Algorithm, OnPolicyAlgorithm
from tianshou.algorithm.multiagent.marl import (
    MultiAgentOffPolicyAlgorithm,
    MultiAgentOnPolicyAlgorithm,
)
from tianshou.data import Batch, ReplayBufferManager

from corral.envs.core import Array
from corral.lab.listening.ear import Ear
from corral.lab.listening.frameworks.masks import mask_in
from corral.lab.listening.frameworks.traps import place_of, sprung, trap
from corral.lab.listening.heard import Minibatch

__all__ = ["listen_tianshou"]

STEPS = 512
"""Env steps of an off-policy algorithm that are heard as one rollout."""

NEVER = 1e-6
"""A smaller probability of an illegal action is none."""


def listen_tianshou(algorithm: Algorithm, ear: Ear) -> None:
    """Let ``ear`` hear an algorithm; call it before training."""
    if isinstance(algorithm, MultiAgentOnPolicyAlgorithm | MultiAgentOffPolicyAlgorithm):
        for agent, policy in algorithm.policy.policies.items():
            inner = algorithm.get_algorithm(agent)
            if inner.policy is policy:
                _Listener(inner, ear, str(agent))
        return
    listener = _Listener(algorithm, ear, "policy")
    if not isinstance(algorithm, OnPolicyAlgorithm):
        ear.on_call(algorithm, "update", listener.updated)


class _Listener:
    """Hears one algorithm."""

    def __init__(self, algorithm: Any, ear: Ear, name: str) -> None:
        self.algorithm, self.ear, self.name = algorithm, ear, name
        self.actions = int(getattr(algorithm.policy.action_space, "n", 0)) or None
        self.on_policy = isinstance(algorithm, OnPolicyAlgorithm)
        self.computes = False  # returns and advantages
        self.learns = False  # from a batch
        self.scale = 1.0  # of values, with return_scaling
        self.critic_outputs: list[torch.Tensor] = []
        self.minibatch: Any = None
        self.outputs: dict[str, torch.Tensor] = {}
        self.kinds: set[type] = set()
        self.running: dict[int, tuple[float, int]] = {}  # env -> return and length so far
        self.read: dict[int, int] = {}  # sub-buffer -> next index to read
        self.added: dict[int, list[Batch]] = defaultdict(list)  # sub-buffer -> new transitions
        self.fresh: list[Minibatch] = []  # whose backward() runs next
        critics = {
            key: module
            for key in ("critic", "critic2")
            if isinstance(module := getattr(algorithm, key, None), torch.nn.Module)
        }
        self.settings = vars(algorithm)
        returns = self.settings.get("discounted_return_computation")
        self.heard = ear.policy(
            name,
            torch.nn.ModuleDict({"policy": algorithm.policy, **critics}),
            gamma=getattr(algorithm, "gamma", getattr(returns, "gamma", None)),
            gae_lambda=self.settings.get("gae_lambda"),
        )
        policy = algorithm.policy
        parts = vars(policy) | dict(policy.named_children())
        actor = parts.get("actor", parts.get("model", policy))
        self.heard.places["network"] = place_of(type(actor), "forward")
        self.heard.places["batch"] = place_of(type(algorithm), "_update_with_batch")
        self.heard.places["rollout"] = place_of(type(algorithm), "_preprocess_batch")
        for instance, method, heard, before in (
            (algorithm, "_preprocess_batch", self.preprocessed, self.preprocesses),
            (algorithm, "_update_with_batch", self.learned, self.begins),
            (policy, "forward", self.forward, None),
            (critics.get("critic"), "forward", self.valued, None),
        ):
            if instance is not None:
                ear.on_call(instance, method, heard, before)
        for optimizer in algorithm._optimizers:
            ear.on_call(optimizer, "step", self.stepped, self.steps)

    # --- Before the update -----------------------------------------------------------------------

    def preprocesses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.computes, self.critic_outputs = True, []
        if self.settings.get("return_scaling"):
            self.scale = float(np.sqrt(self.algorithm.ret_rms.var + self.algorithm._eps))

    def preprocessed(self, args: tuple[Any, ...], kwargs: dict[str, Any], batch: Any) -> None:
        """Hear the batch of an update; that of an off-policy algorithm is no rollout."""
        self.computes = False
        if not self.on_policy:
            return
        with self._costs():
            _, buffer, indices = _arguments(args, kwargs, "batch", "buffer", "indices")
            cut = np.isin(indices, buffer.unfinished_index())
            ends = {name: np.asarray(batch[name], bool) for name in ("terminated", "truncated")}
            obs = _plain(batch.obs)
            before, after = self._values()
            heard = self.heard
            returns, lengths = len(heard.returns), len(heard.lengths)
            done = ends["terminated"] | ends["truncated"]
            truncated = ends["truncated"] | (cut & ~done)
            self.ear.rollout(
                policy=self.name,
                obs=obs,
                actions=batch.act,
                mask=mask_in(obs, self.actions),
                rewards=np.asarray(batch.rew, np.float64),
                terminated=ends["terminated"],
                truncated=truncated,
                values=before,
                final_values=None if after is None else np.where(truncated, after, 0.0),
                last_values=None if after is None else np.zeros(1),
                log_probs=batch.get("logp_old"),
                advantages=batch.get("adv"),
                returns=None if (part := batch.get("returns")) is None else part * self.scale,
            )
            # A cut episode goes on in the next update.
            del heard.returns[returns:], heard.lengths[lengths:]
            self._count(_columns(buffer, indices), np.asarray(batch.rew), done)

    def _values(self) -> tuple[Array | None, Array | None]:
        """Return V(obs) and V(next obs) [T]: the critic was called for both in turns."""
        outputs, self.critic_outputs = self.critic_outputs, []
        if not outputs or len(outputs) % 2:
            return None, None
        both = (torch.cat(outputs[side::2]).flatten().cpu().numpy() for side in (0, 1))
        before, after = (values.astype(np.float64) * self.scale for values in both)
        return before, after

    def _count(self, columns: Array, rewards: Array, done: Array) -> None:
        """Count the episodes that ended, in order of time for each environment."""
        if rewards.ndim != 1:
            return
        for column, reward, over in zip(columns.tolist(), rewards.tolist(), done, strict=True):
            total, length = self.running.pop(column, (0.0, 0))
            total, length = total + reward, length + 1
            if over:
                self.ear.episode(total, length, policy=self.name)
            else:
                self.running[column] = total, length

    def updated(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Hear the transitions that were added to the buffer of an off-policy algorithm."""
        buffer = _arguments(args, kwargs, "buffer")[0]
        if buffer is None:
            return
        with self._costs():
            several = isinstance(buffer, ReplayBufferManager)
            for column, part in enumerate(buffer.buffers if several else [buffer]):
                end, begin = part._insertion_idx, self.read.get(column, 0)
                if new := (end - begin) % part.maxsize:
                    rows = part[np.arange(begin, begin + new) % part.maxsize]
                    done = np.asarray(rows.terminated | rows.truncated, bool)
                    self._count(np.full(new, column), np.asarray(rows.rew), done)
                    self.added[column].append(rows)
                self.read[column] = end
            if sum(len(rows) for parts in self.added.values() for rows in parts) >= STEPS:
                self._added()

    def _added(self) -> None:
        """Hear the added transitions as one rollout: environments one after the other."""
        columns = [Batch.cat(parts) for parts in self.added.values()]
        self.added.clear()
        rows = Batch.cat(columns)
        terminated, truncated = np.asarray(rows.terminated), np.asarray(rows.truncated).copy()
        ends = np.cumsum([len(column) for column in columns]) - 1
        truncated[ends] |= ~terminated[ends]  # cut
        obs, heard = _plain(rows.obs), self.heard
        returns, lengths = len(heard.returns), len(heard.lengths)
        self.ear.rollout(
            policy=self.name,
            obs=obs,
            actions=rows.act,
            mask=mask_in(obs, self.actions),
            rewards=np.asarray(rows.rew, np.float64),
            terminated=terminated,
            truncated=truncated,
        )
        del heard.returns[returns:], heard.lengths[lengths:]

    # --- In the update ---------------------------------------------------------------------------

    def begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.learns = True

    def learned(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        self.learns, self.minibatch = False, None

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note the minibatch of the loss that is computed next."""
        if not self.learns or not self.ear.attends(self.name):
            return
        self.minibatch = _arguments(args, kwargs, "batch")[0]
        self.outputs.clear()
        logits = result.get("logits")
        if isinstance(logits, torch.Tensor) and self.actions == logits.shape[-1]:
            self.outputs["logits"] = logits
        kind = type(result.get("dist"))
        if kind not in self.kinds and hasattr(kind, "log_prob"):
            self.kinds.add(kind)
            for method, name in (("log_prob", "new_log_probs"), ("entropy", "entropy")):
                self.ear.on_call_of_any(kind, method, partial(self.distributed, name))

    def distributed(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        if self.minibatch is not None and output.requires_grad:
            self.outputs[name] = output

    def valued(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self.computes:
            self.critic_outputs.append(output)
        elif self.minibatch is not None and output.requires_grad:
            self.outputs["values"] = output

    def steps(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Hear a minibatch: the optimizer's step runs backward() next."""
        minibatch, self.minibatch = self.minibatch, None
        if minibatch is None or not self.on_policy:
            return
        with self._costs():
            obs, before = _plain(minibatch.obs), len(self.heard.minibatches)
            advantages = minibatch.get("adv")
            if advantages is not None and self.settings.get("advantage_normalization"):
                spread = advantages.std() + self.algorithm._eps
                advantages = (advantages - advantages.mean()) / spread
            self.ear.batch(
                policy=self.name,
                obs=obs,
                actions=minibatch.act,
                mask=mask_in(obs, self.actions),
                rewards=minibatch.rew,
                log_probs=minibatch.get("logp_old"),
                advantages=advantages,
                returns=minibatch.get("returns"),
                loss=_arguments(args, kwargs, "loss")[0].detach(),
                new_log_probs=self.outputs.get("new_log_probs"),
                logits=self.outputs.get("logits"),
                entropy=self.outputs.get("entropy"),
                values=self.outputs.get("values"),
            )
            self.outputs.clear()
            self.fresh = self.heard.minibatches[before:]

    def stepped(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Check the minibatch whose backward() ran; the critic's outputs [R, 1] become [R]."""
        for minibatch in self.fresh:
            for item in (minibatch, minibatch.gradients):
                if item is not None and item.values is not None:
                    item.values = item.values.reshape(-1)
            self._check(minibatch)
        self.fresh = []

    def _check(self, minibatch: Minibatch) -> None:
        """Check for known traps of Tianshou."""
        logits = minibatch.logits
        if logits is None or minibatch.mask is None:
            return
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chances = odds / odds.sum(axis=-1, keepdims=True)
        illegal = np.where(minibatch.mask, 0.0, chances).sum(axis=-1)
        if illegal.max() > NEVER:
            entry, place = trap("tianshou", "mask-ignored-in-play"), self.heard.places["network"]
            measured = f"illegal actions have a probability of {illegal.mean():.3g} on average"
            sprung(entry, measured, self.heard, place)

    @contextmanager
    def _costs(self) -> Iterator[None]:
        """Add the CPU seconds of a block to those of the ear, which adds some of them itself."""
        began, before = time.process_time(), self.ear.cpu
        yield
        self.ear.cpu = before + time.process_time() - began


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any], *names: str) -> list[Any]:
    """Return arguments by position or name."""
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


def _plain(values: Any) -> Any:
    """Return a Batch as nested dicts of arrays."""
    if isinstance(values, Batch):
        return {name: _plain(values[name]) for name in values.get_keys()}
    return values


def _columns(buffer: Any, indices: Array) -> Array:
    """Return the number of the sub-buffer, one for each environment, of each index."""
    edges = np.asarray(buffer.subbuffer_edges if isinstance(buffer, ReplayBufferManager) else [0])
    return np.searchsorted(edges, indices, side="right")
