"""Listen to an Algorithm of RLlib (ray[rllib] 2.58 or newer, new API stack).

A learner is heard in its own process: the episodes that it gets, the advantages and value targets
that its connectors compute, and each minibatch between the forward pass and ``backward()``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.training_data import TrainingData
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.policy.sample_batch import MultiAgentBatch

from corral.envs.core import Array
from corral.lab.listening.ear import CLOSE, Ear
from corral.lab.listening.frameworks.calls import has_method
from corral.lab.listening.frameworks.masks import mask_in
from corral.lab.listening.frameworks.rllib_agents import Agents
from corral.lab.listening.frameworks.rllib_traps import (
    Module,
    Played,
    check_actions,
    check_batch,
    check_episodes,
    check_module,
    check_rewards,
    environment,
    played_of,
)
from corral.lab.listening.frameworks.traps import sprung, trap
from corral.lab.listening.heard import Minibatch
from corral.lab.listening.report import Report

__all__ = ["listen_rllib"]

DECISIONS = 4096
"""Recorded decisions of a rollout, in whole fragments of episodes."""

PLAYS = 64
"""Steps of all environment copies in which actions are compared."""


def listen_rllib(algo: Algorithm, ear: Ear) -> None:
    """Let ``ear`` hear an Algorithm; call it before ``algo.train()``.

    Each RLModule that learns is a policy. Of learners in other processes the first one is heard.
    """
    if not algo.config.enable_rl_module_and_learner:
        measured = "enable_rl_module_and_learner=False"
        sprung(trap("rllib", "old-stack"), measured, ear.policy("default_policy"))
    elif algo.learner_group.is_remote:
        _Remote(algo, ear).begin()
    else:
        for result in algo.learner_group.foreach_learner(lambda learner: learner):
            listener = _Listener(played_of(algo), result.get(), ear)
            runner = {} if algo.env_runner is None else vars(algo.env_runner)
            if "_module_to_env" in runner:
                ear.on_call(runner["_module_to_env"], "__call__", listener.acted)
            env = environment(algo)
            if isinstance(env, MultiAgentEnv):
                ear.on_call(env, "step", listener.agents.stepped)
    ear.tell_traps()


# --- Learners in other processes -----------------------------------------------------------------

PACKAGE = "corral"
"""Needed in the process of a remote learner."""

_EARS: WeakKeyDictionary[Learner, Ear] = WeakKeyDictionary()
"""The ears in the process of a remote learner."""


def _begin(learner: Learner, played: Played, count: int) -> str:
    """Listen to a learner in its own process. Return the exception, which would end the process."""
    try:
        _EARS[learner] = ear = Ear("rllib", say=lambda line: None)
        _Listener(played, learner, ear)
        if count > 1:
            measured = f"num_learners={count}: the first is heard, with its share of each batch"
            first = next(iter(ear.policies.values()))
            sprung(trap("rllib", "remote-learners"), measured, first)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _report(learner: Learner) -> Report | None:
    """Return the report of a learner's ear; None if its process was restarted."""
    return _EARS[learner].report() if learner in _EARS else None


def _end(learner: Learner) -> None:
    if learner in _EARS:
        _EARS.pop(learner).stop()


class _Remote:
    """Hears the first remote learner: an ear in its process applies the rules there."""

    def __init__(self, algo: Algorithm, ear: Ear) -> None:
        self.algo, self.ear = algo, ear
        self.latest: Report | None = None
        self.iterations = 0
        self.over = False  # the learners are stopped

    def begin(self) -> None:
        count, package = len(self.algo.learner_group), PACKAGE

        def importable(learner: Learner) -> bool:  # Ray sends a nested function by value
            from importlib.util import find_spec

            return find_spec(package) is not None

        if self.ask(importable) is True:
            error = self.ask(_begin, played=played_of(self.algo), count=count)
        else:  # a function of a missing package would end the learner's process
            error = f"their process has no package {package}"
        if error or self.fetched() is None:
            measured = f"num_learners={count}; {error}"
            sprung(trap("rllib", "remote-learners"), measured, self.ear.policy("learners"))
            return
        self.ear.hear_elsewhere(self.report)
        self.ear.on_call(self.algo, "step", self.stepped)
        self.ear.on_call(self.algo, "cleanup", lambda *call: None, self.ends)
        self.ear.on_stop(lambda: self.ask(_end))

    def ask(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Call a function with the first learner, in its process; return its result."""
        if self.over:
            return None
        group = self.algo.learner_group
        for result in group.foreach_learner(function, remote_actor_ids=[0], **arguments):
            return result.get() if result.ok else f"{type(result.get()).__name__}: {result.get()}"
        return "the learner does not answer"

    def fetched(self) -> Report | None:
        """Return the report of now, or the last one."""
        report = self.ask(_report)
        if isinstance(report, Report):
            self.latest = report
        return self.latest

    def report(self) -> Report:
        report = self.fetched()
        assert report is not None
        return report

    def stepped(self, args: Any, kwargs: Any, result: Any) -> None:
        """Say what became certain in an iteration: the first ones, then each power of two."""
        self.iterations += 1
        if self.iterations <= CLOSE or not self.iterations & (self.iterations - 1):
            self.ear.tell(self.report())

    def ends(self, args: Any, kwargs: Any) -> None:
        """Fetch the report before the learners are stopped."""
        self.fetched()
        self.over = True


@dataclass(frozen=True)
class _Fragment:
    """Steps of one agent in one episode, as the learner gets them."""

    module_id: str
    episode: tuple[Any, Any]  # id, agent
    first: bool  # begins with the episode's first step
    rewards: Array
    terminated: bool
    truncated: bool  # by the environment

    @property
    def length(self) -> int:
        return len(self.rewards)

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class _Listener:
    """Hears one learner."""

    def __init__(self, played: Played, learner: Learner, ear: Ear) -> None:
        self.played, self.learner, self.ear = played, learner, ear
        self.modules: dict[str, Module] = {}
        self.fragments: list[_Fragment] = []
        self.running: dict[tuple[str, Any], tuple[float, int]] = {}  # of episodes not yet ended
        self.values: dict[str, torch.Tensor] = {}  # module -> last result of compute_values
        self.current: str | None = None  # module whose loss is computed
        self.outputs: dict[str, torch.Tensor] = {}  # of the distribution in that loss
        self.padded: list[tuple[Module, Minibatch, Array]] = []  # with the mask of valid rows
        self.kinds: set[type] = set()
        self.agents = Agents()
        self.plays = 0  # calls of the connectors that give actions to the environment
        self.actions: list[tuple[Array, Array]] = []  # sampled and played ones
        for module_id in tuple(learner.module.keys()):
            self._add(module_id)
        self.ear.on_call(learner, "_make_batch_if_necessary", self.batched, self.collected)
        self.ear.on_call(learner, "compute_loss_for_module", self.loss_ends, self.loss_begins)
        self.ear.on_call(learner, "compute_gradients", self.backward_ends)

    def _add(self, module_id: str) -> None:
        """Listen to one RLModule."""
        rl_module = self.learner.module[module_id].unwrapped()
        config = self.learner.config.get_config_for_module(module_id)
        trained = _is_trained(self.learner, module_id)
        heard = self.ear.policy(
            module_id,
            rl_module if trained and isinstance(rl_module, torch.nn.Module) else None,
            gamma=self.learner.config.gamma,  # RLlib ignores that of a module
            gae_lambda=vars(self.learner.config).get("lambda_"),
        )
        module = Module(module_id, rl_module, config, self.played, self.learner, heard, trained)
        self.modules[module_id] = module
        check_module(module)
        if not trained:
            return
        if has_method(rl_module, "compute_values"):
            self.ear.on_call(rl_module, "compute_values", partial(self.valued, module_id))
        try:
            kind = rl_module.get_train_action_dist_cls()
        except (AttributeError, NotImplementedError, ValueError):  # it has no distribution
            return
        if kind not in self.kinds:
            self.kinds.add(kind)
            for name in ("logp", "entropy"):
                self.ear.on_call_of_any(kind, name, partial(self.distributed, name))

    # --- Play ------------------------------------------------------------------------------------

    def acted(self, args: Any, kwargs: Any, batch: Any) -> None:
        """Compare the actions that connectors give to the environment with the sampled ones."""
        self.plays += 1
        if self.plays > PLAYS or not {Columns.ACTIONS, Columns.ACTIONS_FOR_ENV} <= batch.keys():
            return
        # Of each environment copy: an action, or a dict of those of its agents.
        for both in zip(batch[Columns.ACTIONS], batch[Columns.ACTIONS_FOR_ENV], strict=False):
            sampled, played = (item if isinstance(item, Mapping) else {"": item} for item in both)
            for agent in sampled.keys() & played.keys():
                self.actions.append((np.ravel(sampled[agent]), np.ravel(played[agent])))
        module = next((item for item in self.modules.values() if item.trained), None)
        if self.plays == PLAYS and module is not None and module.choices:
            check_actions(module, self.actions)

    # --- Before the update -----------------------------------------------------------------------

    def collected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the episodes before the learner's connectors change them."""
        with self._costs():
            data = kwargs.get("training_data", args[0] if args else None)
            episodes = data.episodes if isinstance(data, TrainingData) else None
            self.fragments = [
                _Fragment(
                    episode.module_id or DEFAULT_MODULE_ID,
                    (episode.multi_agent_episode_id or episode.id_, episode.agent_id),
                    episode.t_started == 0,
                    np.array(episode.get_rewards(), dtype=np.float64),
                    bool(episode.is_terminated),
                    bool(episode.is_truncated),
                )
                for episode in ConnectorV2.single_agent_episode_iterator(
                    episodes or [], agents_that_stepped_only=False
                )
            ]

    def batched(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Hear the episodes, and the batch that the learner's connectors made of them."""
        with self._costs():
            for module_id in tuple(self.learner.module.keys()):
                if module_id not in self.modules:  # added while training
                    self._add(module_id)
            batches = result.policy_batches if isinstance(result, MultiAgentBatch) else {}
            for module_id, module in self.modules.items():
                fragments = [item for item in self.fragments if item.module_id == module_id]
                if module.trained:
                    self._rollout(module, fragments, batches.get(module_id, {}))
                self._count(module_id, fragments)
                check_episodes(module, [(item.terminated, item.truncated) for item in fragments])
                self.agents.modules |= {item.episode[1]: module_id for item in fragments}
            self.agents.check(self.modules)
            self.values.clear()

    def _rollout(
        self, module: Module, fragments: list[_Fragment], batch: Mapping[str, Any]
    ) -> None:
        rows = _Rows(batch, [fragment.length for fragment in fragments])
        if not rows.matches:
            self.ear.begin_update(module.module_id)
            return
        fragments = fragments[: rows.fragments]
        ends = np.cumsum([fragment.length for fragment in fragments]) - 1
        terminated, truncated = np.zeros((2, ends[-1] + 1), dtype=bool)
        terminated[ends] = [fragment.terminated for fragment in fragments]
        # A cut fragment is a truncated one for the learner.
        truncated[ends] = [item.truncated or not item.terminated for item in fragments]
        values = self.values.get(module.module_id)
        final = rows.after(values)
        if final is not None:
            final_values = np.zeros(len(truncated))
            final_values[ends] = np.where(truncated[ends], final, 0.0)
        obs = rows.steps(batch.get(Columns.OBS))
        rewards = rows.steps(batch[Columns.REWARDS])
        if rewards is not None and module.on_policy:
            check_rewards(
                module, [item.rewards for item in fragments], np.split(rewards, ends[:-1] + 1)
            )
        heard = module.heard
        returns, lengths = len(heard.returns), len(heard.lengths)
        self.ear.rollout(
            policy=module.module_id,
            obs=obs,
            actions=rows.steps(batch.get(Columns.ACTIONS)),
            mask=mask_in(obs, module.actions),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            values=rows.steps(values),
            final_values=None if final is None else final_values,
            last_values=None if final is None else np.zeros(1),
            log_probs=rows.steps(batch.get(Columns.ACTION_LOGP)),
            advantages=rows.steps(batch.get(Columns.ADVANTAGES)),
            returns=rows.steps(batch.get(Columns.VALUE_TARGETS)),
        )
        # A cut fragment is no episode: ``_count`` counts those that ended.
        del heard.returns[returns:], heard.lengths[lengths:]

    def _count(self, module_id: str, fragments: list[_Fragment]) -> None:
        """Add up the fragments of each episode, and count it when it ends."""
        for fragment in fragments:
            key = module_id, fragment.episode
            earlier = self.running.pop(key, (0.0, 0) if fragment.first else None)
            if earlier is None:  # it began before listening
                continue
            total = earlier[0] + float(fragment.rewards.sum())
            length = earlier[1] + fragment.length
            if fragment.done:
                self.ear.episode(total, length, policy=module_id)
            else:
                self.running[key] = total, length

    # --- In the update ---------------------------------------------------------------------------

    def valued(self, module_id: str, args: Any, kwargs: Any, values: Any) -> None:
        if isinstance(values, torch.Tensor):
            self.values[module_id] = values

    def distributed(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        if self.current is not None and isinstance(output, torch.Tensor) and output.requires_grad:
            self.outputs[name] = output

    def loss_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        module_id = kwargs["module_id"]
        if module_id in self.modules and self.ear.attends(module_id):
            self.current = module_id
            self.outputs.clear()
            self.values.pop(module_id, None)

    def loss_ends(self, args: tuple[Any, ...], kwargs: dict[str, Any], loss: Any) -> None:
        """Hear a minibatch: the graph of its loss is complete, and backward() has not run."""
        module_id, self.current = self.current, None
        if module_id is None:
            return
        with self._costs():
            module, batch, outputs = self.modules[module_id], kwargs["batch"], kwargs["fwd_out"]
            logits = outputs.get(Columns.ACTION_DIST_INPUTS)
            before = len(module.heard.minibatches)
            self.ear.batch(
                policy=module_id,
                obs=_plain(batch.get(Columns.OBS)),
                actions=batch.get(Columns.ACTIONS),
                mask=mask_in(batch.get(Columns.OBS), module.actions),
                rewards=batch.get(Columns.REWARDS),
                # V-trace corrects for a policy that differs from the one that played.
                log_probs=batch.get(Columns.ACTION_LOGP) if module.on_policy else None,
                new_log_probs=self.outputs.get("logp"),
                logits=logits if module.actions is not None else None,
                entropy=self.outputs.get("entropy"),
                values=self.values.pop(module_id, outputs.get(Columns.VF_PREDS)),
                advantages=batch.get(Columns.ADVANTAGES),
                returns=batch.get(Columns.VALUE_TARGETS),
                loss=loss.detach(),
            )
            self.outputs.clear()
            for minibatch in module.heard.minibatches[before:]:
                mask = batch.get(Columns.LOSS_MASK)
                if mask is not None:
                    self.padded.append((module, minibatch, mask.cpu().numpy().astype(bool)))
                else:
                    check_batch(module, minibatch)

    def backward_ends(self, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Drop the rows that are in no loss: padding, and the step added after each fragment."""
        if not self.padded:
            return
        with self._costs():
            for module, minibatch, mask in self.padded:
                for item in (minibatch, minibatch.gradients):
                    for name, values in vars(item).items() if item is not None else ():
                        setattr(item, name, _kept(values, mask))
                check_batch(module, minibatch)
            self.padded.clear()

    @contextmanager
    def _costs(self) -> Iterator[None]:
        """Add the CPU seconds of a block to those of the ear, which adds some of them itself."""
        began, before = time.process_time(), self.ear.cpu
        yield
        self.ear.cpu = before + time.process_time() - began


class _Rows:
    """Rows of a learner's batch: the steps of fragments, and often one more after each of them.

    Columns are [N, ...], or [B, T, ...] with padding for a stateful module: an episode begins a
    row there.
    """

    def __init__(self, batch: Mapping[str, Any], lengths: list[int]) -> None:
        rewards = batch.get(Columns.REWARDS)
        self.matches = False
        if rewards is None or not lengths or min(lengths) == 0:
            return
        self.time = rewards.ndim == 2
        span = rewards.shape[1] if self.time else 1
        for added in (1, 0):
            widths = [-(-(length + added) // span) * span for length in lengths]
            if sum(widths) == rewards.shape[0] * span:
                self.matches = True
                break
        self._count = sum(widths)
        total = np.cumsum(lengths)
        self.fragments = max(1, int(np.sum(total <= DECISIONS)))
        starts = np.cumsum([0, *widths[:-1]])[: self.fragments]
        lengths = lengths[: self.fragments]
        self._steps = np.concatenate(
            [
                np.arange(start, start + length)
                for start, length in zip(starts, lengths, strict=True)
            ]
        )
        self._after = starts + np.array(lengths) if added else None

    def steps(self, values: Any) -> Any:
        """Return the entries of the steps, in order of time."""
        return self._at(values, self._steps)

    def after(self, values: Any) -> Array | None:
        """Return the entry after the last step of each fragment."""
        if values is None or self._after is None:
            return None
        entries = self._at(values, self._after)
        return None if entries is None else np.asarray(entries, dtype=np.float64)

    def _at(self, values: Any, index: Array) -> Any:
        if values is None:
            return None
        if isinstance(values, Mapping):
            return {name: self._at(part, index) for name, part in values.items()}
        if isinstance(values, tuple | list):
            return tuple(self._at(part, index) for part in values)
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu().numpy()
        if self.time:
            values = values.reshape(-1, *values.shape[2:])
        # IMPALA cuts some columns in another way: they are not heard.
        return values[index] if len(values) == self._count else None


def _is_trained(learner: Learner, module_id: str) -> bool:
    """Return False if policies_to_train leaves out a module."""
    try:
        return bool(learner.should_module_be_updated(module_id))
    except (AttributeError, TypeError, KeyError):  # a function of the user that needs a batch
        return True


def _plain(values: Any) -> Any:
    """Return nested observations as dicts and tuples."""
    if isinstance(values, Mapping):
        return {name: _plain(part) for name, part in values.items()}
    return tuple(map(_plain, values)) if isinstance(values, tuple | list) else values


def _kept(values: Any, mask: Array) -> Any:
    """Return the valid rows of an array [R, ...] or [B, T, ...], or of nested ones."""
    if isinstance(values, dict):
        return {name: _kept(part, mask) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_kept(part, mask) for part in values)
    if isinstance(values, np.ndarray) and values.shape[: mask.ndim] == mask.shape:
        return values[mask]
    return values
