"""Wrong answers to exercise 3, each named after its mistake."""

import numpy as np


def truncation_as_termination(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = np.zeros(len(rewards)), values[-1]
    for t in reversed(range(len(rewards))):
        if terminated[t] or truncated[t]:
            g = 0
        g = returns[t] = rewards[t] + gamma * g
    return returns


def bootstrap_at_termination(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = np.zeros(len(rewards)), values[-1]
    for t in reversed(range(len(rewards))):
        if terminated[t] or truncated[t]:
            g = final_values[t]
        g = returns[t] = rewards[t] + gamma * g
    return returns


def value_after_reset(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = np.zeros(len(rewards)), values[-1]
    for t in reversed(range(len(rewards))):
        if truncated[t]:
            g = values[t + 1]
        g = returns[t] = rewards[t] + gamma * g * (1 - terminated[t])
    return returns


def ends_ignored(rewards, terminated, truncated, values, final_values, gamma):
    steps = len(rewards)
    returns = []
    for t in range(steps):
        later = sum(gamma ** (k - t) * rewards[k] for k in range(t, steps))
        returns.append(later + gamma ** (steps - t) * values[steps])
    return returns


def rollout_end_as_termination(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = [], 0
    for r, term, trunc, value in zip(
        rewards[::-1], terminated[::-1], truncated[::-1], final_values[::-1], strict=True
    ):
        g = r + gamma * (0 if term else value if trunc else g)
        returns.insert(0, g)
    return returns


def values_ignored(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = np.zeros(len(rewards)), 0
    for t in reversed(range(len(rewards))):
        if terminated[t] or truncated[t]:
            g = 0
        g = returns[t] = rewards[t] + gamma * g
    return returns


def final_values_alone(rewards, terminated, truncated, values, final_values, gamma):
    returns, g = np.zeros(len(rewards)), 0
    for t in reversed(range(len(rewards))):
        if terminated[t] or truncated[t]:
            g = final_values[t]
        g = returns[t] = rewards[t] + gamma * g
    return returns


def one_step_targets(rewards, terminated, truncated, values, final_values, gamma):
    returns = []
    for t, reward in enumerate(rewards):
        after = final_values[t] if truncated[t] else values[t + 1]
        returns.append(reward + gamma * (0 if terminated[t] else after))
    return returns
