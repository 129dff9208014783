"""Wrong answers to exercise 2, each named after its mistake."""

import math

import numpy as np


def row_softmax(row):
    weights = [math.exp(x - max(row)) for x in row]
    return [w / sum(weights) for w in weights]


def not_normalized(logits, mask):
    probs = np.array([row_softmax(row) for row in logits])
    probs[mask == 0] = 0
    return probs


def logits_times_mask(logits, mask):
    return np.array([row_softmax(row * legal) for row, legal in zip(logits, mask, strict=True)])


def mask_inverted(logits, mask):
    masked = logits.copy()
    masked[mask.astype(bool)] = float("-inf")
    return np.exp(masked) / np.exp(masked).sum(1, keepdims=True)


def mask_ignored(logits, mask):
    return [row_softmax(row) for row in logits]


def wrong_axis(logits, mask):
    weights = np.exp(logits) * mask
    return weights / weights.sum(axis=0)


def wrong_axis_2(logits, mask):
    weights = np.exp(np.where(mask, logits, -100))
    return weights / weights.sum(0)


def wrong_axis_3(logits, mask):
    return np.exp(logits) * mask / np.sum(np.exp(logits) * mask)


def no_softmax(logits, mask):
    return logits * mask / (logits * mask).sum(1, keepdims=True)
