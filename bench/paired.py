"""Comparing recorders on the same work, so that a drift of the machine meets all alike.

Owns the order of repeats and the figures made of them; knows nothing of what is measured.
"""

import gc
import random
import statistics

RESAMPLES = 4000


def interleave(names, repeats, measure, seed=0):
    """{name: [measure(name) of each repeat]}, in a new random order in each repeat; one
    more repeat goes before, to warm up, and is not kept."""
    values = {name: [] for name in names}
    order = list(names)
    shuffle = random.Random(seed).shuffle
    for repeat in range(repeats + 1):
        shuffle(order)
        for name in order:
            gc.collect()
            value = measure(name)
            if repeat > 0:
                values[name].append(value)
    return values


def spread(values):
    """Median, quartiles, lowest and highest of VALUES, and the values."""
    first, middle, third = quartiles(values)
    return {
        "median": middle,
        "quartiles": [first, third],
        "lowest": min(values),
        "highest": max(values),
        "values": list(values),
    }


def over(values, base):
    """How far VALUES lie over BASE: the spread of the differences within each repeat,
    and the interval that holds their median with 95 % confidence."""
    differences = [value - other for value, other in zip(values, base, strict=True)]
    result = spread(differences)
    del result["values"]  # they follow from the values of both
    result["interval_95"] = interval(differences)
    return result


def quartiles(values):
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def interval(values, seed=0):
    """The 95 % percentile bootstrap interval of the median of VALUES; seeded, so that
    the same values give the same interval."""
    choices = random.Random(seed).choices
    count = len(values)
    medians = sorted(
        statistics.median(choices(values, k=count)) for _ in range(RESAMPLES)
    )
    return [medians[int(RESAMPLES * share)] for share in (0.025, 0.975)]
