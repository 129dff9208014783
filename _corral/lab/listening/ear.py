"""An ear on a training: it records the data of its listener, and reports faults.

    ear = listen(policy=net, optimizer=opt)
    ear.rollout(obs=..., actions=..., rewards=..., terminated=..., values=..., advantages=...)
    ear.batch(new_log_probs=..., log_probs=..., advantages=..., values=..., returns=...)
    print(ear.report())

Listeners of frameworks (``listening.frameworks``) call the same methods.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.frameworks.calls import on_call, on_call_of_any
from corral.lab.listening.heard import Heard, Minibatch, Place, Rollout, as_array
from corral.lab.listening.layers import Layers
from corral.lab.listening.outputs import watch_outputs
from corral.lab.listening.report import Report, report_of
from corral.lab.listening.rules import findings_of
from corral.lab.listening.steps import Steps

__all__ = ["Ear"]

CLOSE = 4
"""Updates from the beginning in which everything is recorded; later ones: each power of two."""

LAST = 512
"""The last update in which everything is recorded; after it only episodes are counted."""

NEXT = 4
"""Minibatches from the beginning of an update that are recorded; later ones: powers of two."""

BATCHES = 32
"""Minibatches that count as an update if no rollout is heard."""

COLUMNS = 64
"""Recorded columns of a rollout."""

SHARE = 0.03
"""Share of the CPU time that is spent on findings while training; the report comes on top."""

GRACE = 0.1
"""CPU seconds that are spent on the first updates of any training."""

BOOLEAN = ("mask", "terminated", "truncated", "valid")


class Ear:
    """Records a training, without changing it, and reports its faults.

    ``policies`` maps the name of each policy to its records.
    """

    def __init__(
        self,
        framework: str = "",
        *,
        out: str | Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.framework = framework
        self.out = None if out is None else Path(out)
        self.policies: dict[str, Heard] = {}
        self.listening = True
        self.cpu = 0.0  # CPU seconds spent on listening
        self.error = ""  # exception that ended the listening
        self._say = say if say is not None else _to_stderr
        self._hooks: dict[str, tuple[Steps, Layers]] = {}
        self._undo: list[Callable[[], None]] = []
        self._printed: set[tuple[str, str]] = set()
        self._began = time.process_time()
        self._rules_cpu = 0.0  # CPU seconds of the last look for findings
        self._batches: dict[str, int] = {}  # policy -> minibatches since its update began
        self._played: set[str] = set()  # policies with rollouts
        self._running: dict[str, tuple[Array, Array]] = {}  # policy -> return, length of columns
        self._elsewhere: Callable[[], Report] | None = None  # report of an ear in another process

    # --- What a listener gives -------------------------------------------------------------------

    def policy(
        self,
        name: str = "policy",
        network: torch.nn.Module | None = None,
        *,
        gamma: float | None = None,
        gae_lambda: float | None = None,
    ) -> Heard:
        """Return the records of a policy; the first call adds it."""
        if name not in self.policies:
            heard = Heard(name, self.framework, network, gamma, gae_lambda)
            self.policies[name] = heard
            if network is not None:
                attends = functools.partial(self.attends, name)
                self._hooks[name] = Steps(heard, attends), Layers(heard, attends)
                for hooks in self._hooks[name]:
                    hooks.start()
        return self.policies[name]

    def attends(self, policy: str = "policy") -> bool:
        """Return True if the current update of a policy is recorded."""
        updates = self.policies[policy].updates
        return self.listening and updates <= LAST and (updates <= CLOSE or _power_of_two(updates))

    def begin_update(self, policy: str = "policy") -> None:
        """Count an update: call it between play and the first minibatch."""
        heard = self.policies[policy]
        if heard.updates:
            self._tell(heard)
        heard.updates += 1
        self._batches[policy] = 0
        for hooks in self._hooks.get(policy, ()):
            hooks.begin_update()

    def rollout(self, *, policy: str = "policy", **data: Any) -> None:
        """Record a rollout: decisions in order of time, [T, B, ...] each; it begins an update.

        Args:
            policy: its name, if several policies learn.
            **data: fields of ``heard.Rollout``, and ``dones`` for terminated or truncated. Values
                are copied. A rollout of one environment may leave out B.

        Raises ValueError for an unknown name or for lengths that differ.
        """
        began = time.process_time()
        heard = self.policy(policy)
        heard.places.setdefault("rollout", _caller())
        self.begin_update(policy)
        self._played.add(policy)
        attends = self.attends(policy)
        arrays = _arrays(data, Rollout, None if attends else COUNTED)
        shapes = {name: values.shape for name, values in arrays.items() if _timed(name, values)}
        if len({shape[0] for shape in shapes.values()}) > 1:
            raise ValueError(f"rollout: lengths differ: {shapes}")
        flat = all(len(shape) == 1 for name, shape in shapes.items() if name in FLAT)
        if flat:  # one environment
            arrays = {
                name: values[:, None] if _timed(name, values) else values.reshape(-1)
                for name, values in arrays.items()
            }
        self._count_episodes(heard, arrays)
        if attends:
            obs = _tree(data.get("obs"), lambda part: part[:, None] if flat else part[:, :COLUMNS])
            heard.rollouts.append(Rollout(**_cropped(arrays), obs=obs, update=heard.updates))
        self.cpu += time.process_time() - began

    def batch(self, *, policy: str = "policy", **data: Any) -> None:
        """Record a minibatch of R decisions, [R, ...] each, between the forward pass and
        ``backward()``.

        Args:
            policy: its name, if several policies learn.
            **data: fields of ``heard.Minibatch``. ``loss`` and other numbers are terms of the loss.
                Tensors in the graph of the loss (``new_log_probs``, ``values``, ``entropy``,
                ``logits``) also tell their gradients. Values are copied.

        Raises ValueError for an array with an unknown name.
        """
        began = time.process_time()
        heard = self.policy(policy)
        heard.places.setdefault("batch", _caller())
        first_ever = not heard.updates
        alone = heard.counted = heard.policy not in self._played
        if first_ever or (alone and self._batches.get(policy, 0) >= BATCHES):
            self.begin_update(policy)
        count = self._batches[policy] = self._batches.get(policy, 0) + 1
        if alone and data.get("rewards") is not None:
            heard.batch_rewards.append(float(as_array(data["rewards"]).mean()))
        if self.attends(policy) and (count <= NEXT or _power_of_two(count)):
            names = {entry.name for entry in fields(Minibatch)}
            terms = {
                name: float(_plain(values))
                for name, values in data.items()
                if name not in names and np.ndim(_plain(values)) == 0
            }
            arrays = _arrays({k: v for k, v in data.items() if k not in terms}, Minibatch)
            values, outputs = arrays.get("values"), heard.output
            if values is not None and outputs is not None and values.size == len(outputs):
                arrays.setdefault("action_values", as_array(outputs))
            minibatch = Minibatch(
                **arrays,
                obs=_tree(data.get("obs")),
                next_obs=_tree(data.get("next_obs")),
                losses=terms,
                first=first_ever if alone else count == 1,
                update=heard.updates,
                step=len(heard.steps),
                gradients=None,
            )
            heard.minibatches.append(minibatch)
            watch_outputs(minibatch, data)
        heard.output = None
        self.cpu += time.process_time() - began

    def episode(self, total: float, length: int, *, policy: str = "policy") -> None:
        """Record the return and the length of an ended episode."""
        heard = self.policy(policy)
        heard.returns.append(float(total))
        heard.lengths.append(int(length))

    def on_stop(self, undo: Callable[[], None]) -> None:
        """Call a function when listening ends, to remove a hook."""
        self._undo.append(undo)

    def on_call(
        self,
        instance: Any,
        name: str,
        heard: Callable[..., None],
        before: Callable[..., None] | None = None,
    ) -> None:
        """Call ``heard(args, kwargs, result)`` after each call of a method of ``instance``.

        ``before(args, kwargs)`` is called before it. An exception of one of them ends the
        listening, not the training.
        """
        first = None if before is None else self._guarded(before)
        self.on_stop(on_call(instance, name, self._guarded(heard), first))

    def on_call_of_any(self, kind: type, name: str, heard: Callable[..., None]) -> None:
        """Call ``heard`` likewise, after each call of a method of any instance of a class."""
        self.on_stop(on_call_of_any(kind, name, self._guarded(heard)))

    def _guarded(self, heard: Callable[..., None]) -> Callable[..., None]:
        def guarded(*call: Any) -> None:
            if self.listening:
                try:
                    heard(*call)
                except Exception as error:  # such as a buffer or batch of an unknown form
                    self.fail(error)

        return guarded

    def hear_elsewhere(self, report: Callable[[], Report]) -> None:
        """Take the report of an ear in another process in place of this one's."""
        self._elsewhere = report

    def fail(self, error: Exception) -> None:
        """End the listening, because of an exception of a listener; the report says so."""
        self.error = f"{type(error).__name__}: {error}"
        self.stop()

    # --- What it says ----------------------------------------------------------------------------

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings so far, the most certain and the nearest to the root first."""
        return self._report().findings

    def report(self) -> Report:
        """Return the report so far; ``print`` it. With ``out`` its files are written there."""
        report = self._report()
        if self.out is not None:
            report.write(self.out)
        return report

    def _report(self) -> Report:
        if self._elsewhere is not None:
            return self._elsewhere()
        return report_of(self.policies, findings_of(list(self.policies.values())), self.error)

    def tell(self, report: Report) -> None:
        """Say what became certain in another process, once for each cause."""
        for finding in report.findings:
            self._tell_finding(finding, finding.policy, max(report.updates.values(), default=0))

    def tell_traps(self) -> None:
        """Say the certain traps found so far at once: some of them end a training with an error."""
        for heard in self.policies.values():
            for finding in heard.traps:
                self._tell_finding(finding, self._shown(heard), heard.updates)

    def stop(self) -> None:
        """Remove all hooks. The records stay."""
        self.listening = False
        for hooks in [item for pair in self._hooks.values() for item in pair]:
            hooks.stop()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _tell(self, heard: Heard) -> None:
        """Say what became certain, once for each cause, while that costs little."""
        began = time.process_time()
        allowed = max(GRACE, SHARE * (began - self._began))
        spent = self.cpu + sum(steps.cpu for steps, _ in self._hooks.values())
        if not self.attends(heard.policy) or spent + self._rules_cpu > allowed:
            return
        for finding in findings_of([heard]):
            self._tell_finding(finding, self._shown(heard), heard.updates)
        self._rules_cpu = time.process_time() - began
        self.cpu += self._rules_cpu

    def _shown(self, heard: Heard) -> str:
        """Return the name of a policy, or "" if it is the only one."""
        return heard.policy if len(self.policies) > 1 else ""

    def _tell_finding(self, finding: Finding, policy: str, updates: int) -> None:
        key = finding.cause, policy
        if finding.certainty < 3 or finding.follows or key in self._printed:
            return
        self._printed.add(key)
        of = f", policy {policy}" if policy else ""
        when = f"update {updates}" if updates else "before training"
        self._say(
            f"corral hears, {when}{of}: {finding.title} "
            f"Measured: {finding.measured}. To do: {finding.todo}"
        )

    def _count_episodes(self, heard: Heard, arrays: Mapping[str, Array]) -> None:
        """Add up rewards until episodes end. The first episode of a column may lack its begin."""
        rewards = arrays.get("rewards")
        ends = [arrays[name] for name in ("terminated", "truncated") if name in arrays]
        if rewards is None or rewards.ndim != 2 or not ends:
            return
        over = np.logical_or.reduce(ends)
        totals, lengths = self._running.get(heard.policy, (np.zeros(0), np.zeros(0)))
        if len(totals) != rewards.shape[1]:
            totals, lengths = np.zeros(rewards.shape[1]), np.zeros(rewards.shape[1])
        for now, ended in zip(rewards, over, strict=True):
            totals, lengths = totals + now, lengths + 1
            heard.returns += totals[ended].tolist()
            heard.lengths += lengths[ended].astype(int).tolist()
            totals[ended], lengths[ended] = 0.0, 0
        self._running[heard.policy] = totals, lengths


FLAT = ("rewards", "terminated", "truncated", "values", "advantages", "returns", "log_probs")
"""Fields with one number for each decision."""

COUNTED = ("rewards", "terminated", "truncated")
"""Fields that are heard in every update, to count episodes."""


def _arrays(
    data: Mapping[str, Any], kind: type, only: tuple[str, ...] | None = None
) -> dict[str, Array]:
    """Return copies of fields, but not of observations. Raises ValueError for unknown names."""
    names = {entry.name for entry in fields(kind)}
    data = dict(data)
    if data.get("dones") is not None:
        data.setdefault("terminated", data["dones"])
    data.pop("dones", None)
    if unknown := sorted(set(data) - names):
        raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(sorted(names))}")
    return {
        name: as_array(values, bool if name in BOOLEAN else None)
        for name, values in data.items()
        if values is not None and name not in ("obs", "next_obs") and (only is None or name in only)
    }


def _plain(values: Any) -> Any:
    return values.detach() if isinstance(values, torch.Tensor) else values


def _timed(name: str, values: Array) -> bool:
    """Return True for a field with one entry for each step."""
    return name != "last_values" and values.ndim > 0


def _cropped(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Keep the first columns."""
    return {
        name: values[:, :COLUMNS] if _timed(name, values) else values[:COLUMNS]
        for name, values in arrays.items()
    }


def _tree(values: Any, cut: Callable[[Any], Any] = lambda part: part) -> Any:
    """Return a copy of observations, as arrays, of which only ``cut`` is kept."""
    if values is None:
        return None
    if isinstance(values, Mapping):
        return {name: _tree(part, cut) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(_tree(part, cut) for part in values)
    return as_array(cut(values if hasattr(values, "shape") else np.asarray(values)))


def _caller() -> Place:
    """Return the line of the user's code that led here; an empty place in a framework's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("corral."):
        frame = frame.f_back
    if frame is None or "site-packages" in frame.f_code.co_filename:
        return Place()
    file = frame.f_code.co_filename
    if file.startswith(os.getcwd()):
        file = os.path.relpath(file)
    name = frame.f_code.co_name
    return Place(name="" if name == "<module>" else name, file=file, line=frame.f_lineno)


def _power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)
