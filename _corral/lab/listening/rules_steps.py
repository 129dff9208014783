"""Rules about optimizer steps: gradients, learning rates and weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings import steps, updates
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.steps import some
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch, Step
from corral.lab.listening.steps import place_of

__all__ = [
    "NOTHING",
    "STEPS",
    "clipped_away",
    "frozen",
    "kept_gradients",
    "larger_gradients",
    "largest",
    "no_gradient",
    "not_finite",
    "not_moved",
    "put_back",
    "still_policy",
    "weights_decay",
    "without_rate",
]

STEPS = 3
"""Recorded steps from which a rule speaks."""

NOTHING = Evidence(trainer=None, policies={}, returns=[])
"""The rules of the doctor that are used here read the record of a policy only."""


def not_finite(heard: Heard) -> Finding | None:
    """Report the first number that is not finite."""
    measured = next(_not_finite(heard), None)
    if measured is None:
        return None
    return finding_of("diverged", measured, 3, heard.policy)


def _not_finite(heard: Heard) -> Iterator[str]:
    """Yield descriptions of numbers that are not finite, in order of time."""
    at = 0
    for minibatch in heard.minibatches:
        yield from _bad_steps(heard, heard.steps[at : minibatch.step], at)
        at = max(at, minibatch.step)
        for name in ("log_probs", "new_log_probs", "values", "entropy", "advantages", "returns"):
            numbers = getattr(minibatch, name)
            if numbers is not None and not math.isfinite(float(np.sum(numbers, dtype=np.float64))):
                share = float(np.mean(~np.isfinite(numbers.astype(np.float64))))
                yield f"{share:.0%} of {name} in a minibatch of update {minibatch.update}"
        for name, loss in minibatch.losses.items():
            if "loss" in name and not np.isfinite(loss):  # others may be undefined
                yield f"{name} = {loss:g} in update {minibatch.update}"
    yield from _bad_steps(heard, heard.steps[at:], at)


def _bad_steps(heard: Heard, recorded: list[Step], first: int) -> Iterator[str]:
    for number, step in enumerate(recorded, first + 1):
        bad = [name for name, size in step.gradients.items() if not math.isfinite(size)]
        moved = [name for name, size in step.changes.items() if not math.isfinite(size)]
        if bad or moved:
            heard.places["diverged"] = place_of(heard, (bad or moved)[0])
            kind = "gradients of" if bad else "weights after"
            yield f"{kind} recorded step {number}: {some(bad or moved)}"


# --- Gradients that do not arrive ----------------------------------------------------------------


def no_gradient(heard: Heard) -> Finding | None:
    """Report parameters of the optimizer without a gradient in any step."""
    recorded = heard.steps
    if len(recorded) < STEPS or not _learnable(heard.minibatches):
        return None
    if heard.framework and not heard.minibatches and not heard.rollouts:
        return None  # the policy gets no data
    sizes = largest(step.gradients for step in recorded)
    named = dict(heard.network.named_parameters()) if heard.network is not None else {}
    idle = [
        name
        for name, size in sizes.items()
        if size == 0
        and "weight_hh" not in name  # multiplies the initial hidden state 0
        and not _copy(name)
        and (name not in named or named[name].requires_grad)
    ]
    if not idle:
        return None
    measured = (
        f"the gradient is 0 or None in all {len(recorded)} recorded steps, for {len(idle)} of "
        f"{len(sizes)} parameters: {some(idle)}"
    )
    heard.places["no-gradient"] = place_of(heard, idle[0])
    layers = {name.rpartition(".")[0] for name in idle}
    uncalled = sorted(name for name in layers if (to := heard.layers.get(name)) and not to.calls)
    if uncalled:
        measured += f"; never called: {some(uncalled)}"
    # A pretrained part has no graph on purpose, and an auxiliary head is called in other phases.
    called = [heard.layers[name] for name in layers if name in heard.layers]
    fixed = called and not any(layer.graph for layer in called)
    # A vector without a matrix, such as the deviation of an unused action head, learns little.
    vectors = all(name in named and named[name].ndim < 2 for name in idle)
    certainty = 3 if len(idle) == len(sizes) else 1 if fixed or vectors else 2
    return finding_of("no-gradient", measured, certainty, heard.policy)


def _learnable(minibatches: list[Minibatch]) -> bool:
    """Return False if advantages were heard and are all equal."""
    advantages = [item.advantages for item in minibatches if item.advantages is not None]
    return not advantages or any(np.ptp(item) > 1e-9 for item in advantages if item.size)


def frozen(heard: Heard) -> Finding | None:
    """Report parameters that are frozen, but for copies such as a target network."""
    if heard.network is None or not heard.steps:
        return None
    names = [
        name
        for name, parameter in heard.network.named_parameters()
        if not parameter.requires_grad and not _copy(name)
    ]
    if not names:
        return None
    heard.places["frozen-weights"] = place_of(heard, names[0])
    measured = f"requires_grad is False: {some(names)}"
    return finding_of("frozen-weights", measured, 1, heard.policy)


def clipped_away(heard: Heard) -> Finding | None:
    """Report gradients that almost vanish between backward() and step()."""
    norms = [(s.fresh_norm, s.norm) for s in heard.steps if s.fresh_norm and np.isfinite(s.norm)]
    if len(norms) < STEPS:
        return None
    before, after = np.median(norms, axis=0)
    scale = np.log2(before / after) if after > 0 else 0.5
    if abs(scale - round(scale)) < 1e-4 and scale >= 1:
        return None  # a loss scaled for mixed precision
    if not after < 1e-2 * before or not after < 1e-4:
        return None
    measured = f"norm of the gradients {before:.2g} after backward(), {after:.2g} in step()"
    return finding_of("gradient-clipped-away", measured, 3 if after < 1e-6 else 2, heard.policy)


def kept_gradients(heard: Heard) -> Finding | None:
    """Report gradients of earlier steps that are added to those of the next ones."""
    after_backward = [step for step in heard.steps if step.kept_norm is not None]
    later = [step for step in after_backward[1:] if step.norm > 0]
    kept = [step for step in later if (step.kept_norm or 0.0) > 0]
    if len(kept) < STEPS or len(kept) < 0.5 * len(later):
        return None
    share = float(np.median([(step.kept_norm or 0.0) / step.norm for step in kept]))
    return Finding(
        "gradients-kept",
        "Gradients of earlier steps are added to the new ones.",
        f"in {len(kept)} of {len(later)} steps, backward() added to gradients that an earlier step "
        f"had used; their norm is {share:.2g} times that of the sum",
        "gradients of 0 or None before the first backward() of each step",
        "call optimizer.zero_grad() before backward(), for the optimizer of these parameters",
        3,
        heard.policy,
    )


def larger_gradients(heard: Heard) -> Finding | None:
    """Report gradients that grow between backward() and step()."""
    record = PolicyEvidence(heard.policy, ())
    record.learning.norms = [
        (step.fresh_norm, step.norm, 0.0, 0.0) for step in heard.steps if step.fresh_norm
    ]
    return steps.larger_gradients(record, NOTHING)


def _copy(name: str) -> bool:
    """Return True for the parameter of a copy that is not trained on purpose."""
    return "target" in name.lower() or "ema" in name.lower().split(".")


# --- Weights that do not move --------------------------------------------------------------------


def without_rate(heard: Heard) -> Finding | None:
    """Report a learning rate of 0."""
    rates = np.array([step.learning_rate for step in heard.steps])
    if len(rates) >= STEPS:
        rates[np.abs(rates) <= 1e-6 * np.abs(rates).max()] = 0.0  # schedules of products end near 0
    if len(rates) < STEPS or rates[-1] != 0:
        return None
    zero = int((rates == 0).sum())
    last = np.array([step.update == heard.steps[-1].update for step in heard.steps])
    if zero < len(rates) and (zero < STEPS or rates[last].any()):
        return None
    measured = f"it is 0 in {zero} of {len(rates)} recorded steps, also in the last one"
    certainty = 3 if zero == len(rates) else 2  # a schedule may end at 0
    return finding_of("learning-rate-zero", measured, certainty, heard.policy)


def not_moved(heard: Heard) -> Finding | None:
    """Report weights that no step changes: no optimizer has them, or its steps are too small."""
    if heard.outside:
        return _outside(heard)
    if len(heard.steps) < STEPS or next(_not_finite(heard), None) is not None:
        return None
    record = PolicyEvidence(heard.policy, ())
    record.moved = largest(step.changes for step in heard.steps)
    record.gradients = largest(step.gradients for step in heard.steps)
    record.learning_rates = [step.learning_rate for step in heard.steps]
    if (finding := updates.not_moved(record, NOTHING)) is not None:
        return finding
    still = [
        name
        for name, change in record.moved.items()
        if change == 0 and record.gradients.get(name, 0.0) > updates.NOTHING
    ]
    if not still:
        return None
    heard.places["weights-fixed"] = place_of(heard, still[0])
    measured = (
        f"{len(still)} of {len(record.moved)} parameters get gradients and never change: "
        f"{some(still)}"
    )
    return finding_of("weights-fixed", measured, 2, heard.policy)


def _outside(heard: Heard) -> Finding:
    """Report parameters that get gradients and are in no optimizer that stepped."""
    names = heard.outside
    optimized = {name for step in heard.steps for name in step.gradients}
    heard.places["weights-fixed"] = place_of(heard, names[0])
    measured = (
        f"{len(names)} of {len(names) + len(optimized - set(names))} parameters get gradients and "
        f"are in no optimizer that made a step: {some(names)}"
    )
    # Another optimizer may step rarely, and the critic's gradients may come from the actor's loss.
    seen = heard.updates >= 3
    whole = not optimized or bool(_alone(heard) & set(names))
    return finding_of("weights-fixed", measured, 3 if seen and whole else 2, heard.policy)


def _alone(heard: Heard) -> set[str]:
    """Return the parameters that the values, or the log-probabilities, alone depend on."""
    if heard.network is None:
        return set()
    ids: set[int] = set()
    for minibatch in heard.minibatches:
        if minibatch.gradients is None:
            continue
        reach = minibatch.gradients.reach
        ids |= reach.get("log_probs", frozenset()) ^ reach.get("values", frozenset())
    return {name for name, p in heard.network.named_parameters() if id(p) in ids}


def still_policy(heard: Heard) -> Finding | None:
    """Report steps that change weights, but no probability."""
    far: list[float] = []
    for minibatch in heard.minibatches:
        new, old = minibatch.new_log_probs, minibatch.log_probs
        before = [s for s in heard.steps[: minibatch.step] if s.update == minibatch.update]
        if new is None or old is None or new.size != old.size or len(before) < STEPS:
            continue
        change = max((max(s.changes.values(), default=0.0) for s in before), default=0.0)
        if updates.STILL < change <= 1e-4 and max(s.learning_rate for s in before) > 0:
            far.append(float(np.abs(new.reshape(-1) - old.reshape(-1)).max(initial=0.0)))
    if len(far) < STEPS or max(far) > 1e-5 or not _learnable(heard.minibatches):
        return None
    rate = max(step.learning_rate for step in heard.steps)
    measured = (
        f"after up to 8 steps of an update no log-probability changed by more than {max(far):.1g}; "
        f"learning rate {rate:g}"
    )
    return finding_of("policy-unchanged", measured, 2, heard.policy)


def put_back(heard: Heard) -> Finding | None:
    """Report weights that are those from before the update, at the next one."""
    seen = len({step.update for step in heard.steps if step.update})
    if heard.restored < 2 or heard.restored < 0.5 * (seen - 1):
        return None
    measured = (
        f"before {heard.restored} updates, weights that the last update had changed were exactly "
        "those from before it"
    )
    return finding_of("weights-put-back", measured, 3, heard.policy)


def weights_decay(heard: Heard) -> Finding | None:
    """Report weight decay that removes the weights."""
    by_set: dict[frozenset[str], list[Step]] = {}
    for step in heard.steps:
        by_set.setdefault(frozenset(step.gradients), []).append(step)
    for recorded in by_set.values():
        first, last = recorded[0], recorded[-1]
        if not last.weight_decay > 0 or not first.weights or last.weights is None:
            continue
        kept = last.weights / first.weights
        if kept < 0.5:
            return Finding(
                "weights-decay",
                "Weight decay removes the weights faster than the loss builds them.",
                f"weight_decay {last.weight_decay:g}: the norm of the weights fell to {kept:.0%} "
                f"by update {last.update}",
                "a norm that stays or grows",
                "use a weight_decay of 0, or at most 0.01",
                2,
                heard.policy,
            )
    return None


def largest(items: Any) -> dict[str, float]:
    """Return the largest number of each name."""
    sizes: dict[str, float] = {}
    for item in items:
        for name, size in item.items():
            sizes[name] = max(size, sizes.get(name, 0.0))
    return sizes
