"""Wrong answers to exercise 4, each named after its mistake."""

import numpy as np


def deltas(rewards, values, ended, end_values, gamma):
    after = [end_values[t] if ended[t] else values[t + 1] for t in range(len(rewards))]
    return [
        r + gamma * v - before for r, v, before in zip(rewards, after, values[:-1], strict=True)
    ]


def trace_not_cut(rewards, values, ended, end_values, gamma, gae_lambda):
    result, last = [], 0
    for delta in reversed(deltas(rewards, values, ended, end_values, gamma)):
        last = delta + gamma * gae_lambda * last
        result.append(last)
    return np.array(result[::-1])


def lambda_ignored(rewards, values, ended, end_values, gamma, gae_lambda):
    result, last = [], 0
    for t, delta in reversed([*enumerate(deltas(rewards, values, ended, end_values, gamma))]):
        last = delta if ended[t] else delta + gamma * last
        result.append(last)
    return np.array(result[::-1])


def no_trace(rewards, values, ended, end_values, gamma, gae_lambda):
    return deltas(rewards, values, ended, end_values, gamma)


def value_of_next_episode(rewards, values, ended, end_values, gamma, gae_lambda):
    advantage, last = np.zeros(len(rewards)), 0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * values[t + 1] - values[t]
        last = delta + gamma * gae_lambda * (not ended[t]) * last
        advantage[t] = last
    return advantage


def truncation_as_termination(rewards, values, ended, end_values, gamma, gae_lambda):
    advantage, last = np.zeros(len(rewards)), 0
    for t in reversed(range(len(rewards))):
        alive = 1.0 - ended[t]
        delta = rewards[t] + gamma * values[t + 1] * alive - values[t]
        last = delta + gamma * gae_lambda * alive * last
        advantage[t] = last
    return advantage
