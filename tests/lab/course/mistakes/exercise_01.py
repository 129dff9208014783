"""Wrong answers to exercise 1, each named after its mistake."""


def last_reward(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = {}
    while env.agents:
        obs, rewards, _, _, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        returns.update(rewards)
    return returns


def one_reward_for_both(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    total = 0
    while env.agents:
        obs, rewards, _, _, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        total += next(iter(rewards.values()))
    return dict.fromkeys(env.possible_agents, total)


def team_return(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0)
    while env.agents:
        obs, rewards, _, _, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        for agent in returns:
            returns[agent] += sum(rewards.values())
    return returns


def last_step_lost(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0)
    while True:
        obs, rewards, _, truncations, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        if all(truncations.values()):
            return returns
        for agent, reward in rewards.items():
            returns[agent] += reward


def first_observation(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0)
    while env.agents:
        _, rewards, _, _, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        for agent, reward in rewards.items():
            returns[agent] += reward
    return returns


def one_action_for_both(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0)
    while env.agents:
        action = choose("agent_1", obs["agent_1"])
        obs, rewards, _, _, _ = env.step(dict.fromkeys(env.agents, action))
        for agent, reward in rewards.items():
            returns[agent] += reward
    return returns


def agents_that_leave(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0)
    while env.agents:
        obs, rewards, _, _, _ = env.step({a: choose(a, obs[a]) for a in env.agents})
        for agent in env.agents:
            returns[agent] += rewards[agent]
    return returns


def first_end(env, choose, seed):
    obs, _ = env.reset(seed=seed)
    returns, done = dict.fromkeys(env.agents, 0), False
    while not done:
        obs, rewards, terminations, truncations, _ = env.step({a: choose(a, obs[a]) for a in obs})
        for agent, reward in rewards.items():
            returns[agent] += reward
        done = any(terminations.values()) or any(truncations.values())
    return returns
