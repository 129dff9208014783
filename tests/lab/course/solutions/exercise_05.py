import numpy as np


def clipped_surrogate(log_prob, old_log_prob, advantage, clip_range):
    losses = []
    for new, old, a in zip(log_prob, old_log_prob, advantage, strict=True):
        ratio = np.exp(new) / np.exp(old)
        bounded = min(max(ratio, 1 - clip_range), 1 + clip_range)
        losses.append(-min(ratio * a, bounded * a))
    return losses
