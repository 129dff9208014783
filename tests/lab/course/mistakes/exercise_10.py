"""Wrong answers to exercise 10, each named after its mistake."""

import statistics


def unpaired(mine, theirs):
    difference = statistics.mean(mine) - statistics.mean(theirs)
    variances = statistics.variance(mine) / len(mine) + statistics.variance(theirs) / len(theirs)
    return difference, variances**0.5


def deviation(mine, theirs):
    differences = list(mine - theirs)
    return statistics.mean(differences), statistics.stdev(differences)


def population_deviation(mine, theirs):
    differences = list(mine - theirs)
    error = statistics.pstdev(differences) / len(differences) ** 0.5
    return statistics.mean(differences), error


def best_seed(mine, theirs):
    differences = list(mine - theirs)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return sorted(mine)[-1] - sorted(theirs)[-1], error


def sign(mine, theirs):
    differences = list(theirs - mine)
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5


def absolute_differences(mine, theirs):
    differences = list(abs(mine - theirs))
    return statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
