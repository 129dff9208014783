"""Wrong answers to exercise 7, each named after its mistake."""

from collections import defaultdict


def team_return(rewards, policies, frozen):
    total = 0
    for step in rewards:
        total += sum(step.values())
    return dict.fromkeys(policies.values(), total)


def mean_over_agents(rewards, policies, frozen):
    found = defaultdict(list)
    for agent, policy in policies.items():
        own = [step[agent] for step in rewards]
        found[policy].append(0 if agent in frozen else sum(own))
    return {policy: sum(values) / len(values) for policy, values in found.items()}


def frozen_counted(rewards, policies, frozen):
    returns = defaultdict(float)
    for step in rewards:
        for agent, reward in step.items():
            returns[policies[agent]] += reward
    return returns


def last_agent(rewards, policies, frozen):
    returns = dict.fromkeys(policies.values(), 0)
    for agent, policy in policies.items():
        if agent in frozen:
            continue
        returns[policy] = 0
        for step in rewards:
            returns[policy] += step[agent]
    return returns
