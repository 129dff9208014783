"""Exercises on the loss of PPO: 2, masked probabilities; 5, the clipped surrogate."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.course.exercise import Probe, exercise

__all__ = ["action_masks", "clipped_surrogate"]

# --- 2: action masks -----------------------------------------------------------------------------


def _masked_rows() -> list[Probe]:
    rng = np.random.default_rng(2)
    masks = ([[1, 1, 1, 1]], [[1, 0, 1, 1], [0, 1, 1, 0]], [[0, 0, 1, 0], [1, 1, 0, 0]])
    return [
        {"logits": rng.normal(1, 1, np.shape(mask)).round(1), "mask": np.array(mask, np.int8)}
        for mask in masks
    ]


def _softmax(logits: Array, axis: int | None = 1) -> Array:
    powers = np.exp(logits)
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def _masked(p: Probe, fill: float = -np.inf) -> Array:
    """Return the logits [R, A], with ``fill`` for illegal actions."""
    return np.where(p["mask"], p["logits"], fill)


def _logits_for_powers(p: Probe) -> Array:
    legal = p["logits"] * p["mask"]
    return np.asarray(legal / legal.sum(axis=1, keepdims=True))


action_masks = exercise(
    2,
    _masked_rows,
    lambda p: _softmax(_masked(p)),
    {
        "not-normalized": lambda p: _softmax(p["logits"]) * p["mask"],
        "logits-times-mask": lambda p: _softmax(p["logits"] * p["mask"]),
        "mask-inverted": lambda p: _softmax(np.where(p["mask"], -np.inf, p["logits"])),
        "mask-ignored": lambda p: _softmax(p["logits"]),
        "wrong-axis": (
            lambda p: _softmax(_masked(p), axis=0),
            lambda p: _softmax(_masked(p, fill=-100.0), axis=0),
            lambda p: _softmax(_masked(p), axis=None),
        ),
        "no-softmax": _logits_for_powers,
    },
)

# --- 5: the clipped surrogate --------------------------------------------------------------------


def _minibatches() -> list[Probe]:
    probes = []
    for sign, scale, clip_range in ((1, 1, 0.2), (-1, 1, 0.2), (1, 2, 0.1), (-1, 2, 0.1)):
        old = np.log([0.2, 0.5, 0.4, 0.3]).round(2)
        new = old + scale * np.array([-0.5, -0.03, 0.4, 0.6])
        given = {"log_prob": new, "old_log_prob": old}
        advantage = sign * np.array([1.5, 0.5, 1.0, -2.0])
        probes.append(given | {"advantage": advantage, "clip_range": clip_range})
    return probes


def _products(p: Probe, ratio: Array) -> Array:
    """Return ratio times advantage, and the same of the clipped ratio: [2, R]."""
    clipped = np.clip(ratio, 1 - p["clip_range"], 1 + p["clip_range"])
    return np.stack([ratio * p["advantage"], clipped * p["advantage"]])


def _ratio(p: Probe) -> Array:
    return np.asarray(np.exp(p["log_prob"] - p["old_log_prob"]))


def _loss(p: Probe, ratio: Array) -> Array:
    return np.asarray(-_products(p, ratio).min(axis=0))


clipped_surrogate = exercise(
    5,
    _minibatches,
    lambda p: _loss(p, _ratio(p)),
    {
        "max-for-min": lambda p: -_products(p, _ratio(p)).max(axis=0),
        "not-clipped": lambda p: -_products(p, _ratio(p))[0],
        "always-clipped": lambda p: -_products(p, _ratio(p))[1],
        "lesser-ratio": lambda p: np.where(
            p["advantage"] < 0, -_products(p, _ratio(p)).max(axis=0), _loss(p, _ratio(p))
        ),
        "sign": lambda p: -_loss(p, _ratio(p)),
        "ratio-inverted": lambda p: _loss(p, 1 / _ratio(p)),
        "ratio-of-logarithms": (
            lambda p: _loss(p, p["log_prob"] - p["old_log_prob"]),
            lambda p: _loss(p, p["log_prob"] / p["old_log_prob"]),
        ),
    },
)
