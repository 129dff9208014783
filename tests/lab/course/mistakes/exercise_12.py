"""Wrong answers to exercise 12, each named after its mistake."""


def bonus_per_step(rewards, potentials, terminated, gamma):
    return [reward + potentials[t + 1] for t, reward in enumerate(rewards)]


def without_gamma(rewards, potentials, terminated, gamma):
    after = list(potentials[1:])
    if terminated:
        after[-1] = 0
    return [r + a - b for r, a, b in zip(rewards, after, potentials[:-1], strict=True)]


def reversed_(rewards, potentials, terminated, gamma):
    after = list(potentials[1:])
    if terminated:
        after[-1] = 0
    return [r + b - gamma * a for r, a, b in zip(rewards, after, potentials[:-1], strict=True)]


def potential_after_termination(rewards, potentials, terminated, gamma):
    bonus = gamma * potentials[1:] - potentials[: len(rewards)]
    return rewards + bonus


def without_gamma_2(rewards, potentials, terminated, gamma):
    return [r + potentials[t + 1] - potentials[t] for t, r in enumerate(rewards)]


def rewards_not_added(rewards, potentials, terminated, gamma):
    if terminated:
        potentials[-1] = 0
    return [gamma * potentials[t + 1] - potentials[t] for t in range(len(rewards))]


def truncation_as_termination(rewards, potentials, terminated, gamma):
    after = [*potentials[1:-1], 0]
    return [r + gamma * a - b for r, a, b in zip(rewards, after, potentials[:-1], strict=True)]


def every_step_terminated(rewards, potentials, terminated, gamma):
    shaped = []
    for t, reward in enumerate(rewards):
        after = 0 if terminated else gamma * potentials[t + 1]
        shaped.append(reward + after - potentials[t])
    return shaped


def last_step_not_shaped(rewards, potentials, terminated, gamma):
    shaped = list(rewards)
    for t in range(len(rewards)):
        if terminated and t == len(rewards) - 1:
            break
        shaped[t] += gamma * potentials[t + 1] - potentials[t]
    return shaped


def last_step_not_shaped_2(rewards, potentials, terminated, gamma):
    shaped = list(rewards)
    for t in range(len(rewards) - 1):
        shaped[t] += gamma * potentials[t + 1] - potentials[t]
    return shaped
