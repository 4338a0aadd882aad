"""How much of a thing a test does: little by default, much in `make test-nightly`."""

import os
import random


def amount(name, default):
    """The environment's MEMLAB_NAME as a number, or DEFAULT; printed, so that a report
    tells the amount.
    """
    value = int(os.environ.get(f"MEMLAB_{name}") or default)
    print(f"{name.lower()}: {value}")
    return value


def seed(name, night):
    """The environment's MEMLAB_NAME_SEED as a number, or else a seed for random
    programs: the same for every change, another each NIGHT.
    """
    return amount(f"{name}_SEED", random.SystemRandom().randrange(1 << 32) if night else 1)
