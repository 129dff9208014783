import numpy as np


def normalize(advantage, acting):
    chosen = [a for a, acts in zip(advantage.flat, acting.flat, strict=True) if acts]
    mean = sum(chosen) / len(chosen)
    deviation = (sum((a - mean) ** 2 for a in chosen) / len(chosen)) ** 0.5
    return np.where(acting, (advantage - mean) / deviation, 0)
