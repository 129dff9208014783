def shaped_rewards(rewards, potentials, terminated, gamma):
    shaped = []
    for t, reward in enumerate(rewards):
        over = terminated and t == len(rewards) - 1
        after = 0.0 if over else potentials[t + 1]
        shaped.append(reward + gamma * after - potentials[t])
    return shaped
