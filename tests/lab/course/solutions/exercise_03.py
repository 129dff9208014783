import numpy as np


def discounted_returns(rewards, terminated, truncated, values, final_values, gamma):
    returns = np.zeros(len(rewards))
    following = values[-1]
    for t in range(len(rewards) - 1, -1, -1):
        if terminated[t]:
            following = 0.0
        elif truncated[t]:
            following = final_values[t]
        following = rewards[t] + gamma * following
        returns[t] = following
    return returns
