"""How much of a thing a test does: little by default, much in `make test-nightly`."""

import os
import random


def amount(name, default):
    """MEMLAB_NAME of the environment as a number, or DEFAULT; printed, so that a report
    says what was done."""
    value = int(os.environ.get(f"MEMLAB_{name}") or default)
    print(f"{name.lower()}: {value}")
    return value


def seed(name, night):
    """MEMLAB_NAME_SEED of the environment as a number, or what to begin random programs with:
    a change that lands is tried on the same ones every time, a NIGHT on others."""
    return amount(f"{name}_SEED", random.SystemRandom().randrange(1 << 32) if night else 1)
