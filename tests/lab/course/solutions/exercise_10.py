import statistics


def paired_comparison(mine, theirs):
    differences = [a - b for a, b in zip(mine, theirs, strict=True)]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return statistics.mean(differences), error
