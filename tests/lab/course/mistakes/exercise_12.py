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
