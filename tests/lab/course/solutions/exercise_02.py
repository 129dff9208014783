import numpy as np


def masked_probabilities(logits, mask):
    probabilities = np.zeros_like(logits)
    for row, legal in enumerate(mask.astype(bool)):
        weights = np.exp(logits[row, legal] - logits[row, legal].max())
        probabilities[row, legal] = weights / weights.sum()
    return probabilities
