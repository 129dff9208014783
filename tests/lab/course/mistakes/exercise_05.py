"""Wrong answers to exercise 5, each named after its mistake."""

import numpy as np


def terms(log_prob, old_log_prob, advantage, clip_range):
    ratio = np.exp(log_prob - old_log_prob)
    return ratio * advantage, np.clip(ratio, 1 - clip_range, 1 + clip_range) * advantage


def max_for_min(log_prob, old_log_prob, advantage, clip_range):
    return -np.maximum(*terms(log_prob, old_log_prob, advantage, clip_range))


def not_clipped(log_prob, old_log_prob, advantage, clip_range):
    return -terms(log_prob, old_log_prob, advantage, clip_range)[0]


def always_clipped(log_prob, old_log_prob, advantage, clip_range):
    return -terms(log_prob, old_log_prob, advantage, clip_range)[1]


def sign(log_prob, old_log_prob, advantage, clip_range):
    return np.minimum(*terms(log_prob, old_log_prob, advantage, clip_range))


def ratio_inverted(log_prob, old_log_prob, advantage, clip_range):
    return -np.minimum(*terms(old_log_prob, log_prob, advantage, clip_range))


def ratio_of_logarithms(log_prob, old_log_prob, advantage, clip_range):
    ratio = log_prob / old_log_prob
    result = []
    for r, a in zip(ratio, advantage, strict=True):
        clipped = min(max(r, 1 - clip_range), 1 + clip_range)
        result.append(-min(r * a, clipped * a))
    return result


def lesser_ratio(log_prob, old_log_prob, advantage, clip_range):
    ratio = np.exp(log_prob - old_log_prob)
    return -np.minimum(ratio, np.clip(ratio, 1 - clip_range, 1 + clip_range)) * advantage
