def play_episode(env, choose, seed):
    observations, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0.0)
    while env.agents:
        actions = {}
        for agent in env.agents:
            actions[agent] = choose(agent, observations[agent])
        observations, rewards, *_ = env.step(actions)
        for agent in rewards:
            returns[agent] += rewards[agent]
    return returns
