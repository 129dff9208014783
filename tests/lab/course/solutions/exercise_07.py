def policy_returns(rewards, policies, frozen):
    returns = {}
    for agent, policy in policies.items():
        own = 0 if agent in frozen else sum(step[agent] for step in rewards)
        returns[policy] = returns.get(policy, 0) + own
    return returns
