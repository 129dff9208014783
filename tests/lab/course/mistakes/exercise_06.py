"""Wrong answers to exercise 6, each named after its mistake."""

import statistics

import numpy as np


def over_all_entries(advantage, acting):
    everything = list(advantage.ravel())
    mean, deviation = statistics.mean(everything), statistics.pstdev(everything)
    return np.where(acting, (advantage - mean) / deviation, 0)


def idle_entries_shifted(advantage, acting):
    own = advantage[acting].tolist()
    return (advantage - statistics.mean(own)) / statistics.pstdev(own)


def per_agent(advantage, acting):
    result = np.zeros_like(advantage)
    for agent in range(advantage.shape[1]):
        own = advantage[acting[:, agent], agent]
        result[acting[:, agent], agent] = (own - own.mean()) / own.std()
    return result


def mean_kept(advantage, acting):
    return advantage / statistics.pstdev(advantage[acting].tolist())


def sample_deviation(advantage, acting):
    own = advantage[acting].tolist()
    result = (advantage - statistics.mean(own)) / statistics.stdev(own)
    result[~acting] = 0
    return result
