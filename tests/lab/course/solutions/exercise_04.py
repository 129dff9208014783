import numpy as np


def advantages(rewards, values, ended, end_values, gamma, gae_lambda):
    advantage = np.zeros(len(rewards))
    trace = 0.0
    for t in reversed(range(len(rewards))):
        after = end_values[t] if ended[t] else values[t + 1]
        if ended[t]:
            trace = 0.0
        trace = rewards[t] + gamma * after - values[t] + gamma * gae_lambda * trace
        advantage[t] = trace
    return advantage
