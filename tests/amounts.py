"""How much of a thing a test does: little by default, much in `make test-nightly`."""

import os


def amount(name, default):
    """MEMLAB_NAME of the environment as a number, or DEFAULT; printed, so that a report
    says what was done."""
    value = int(os.environ.get(f"MEMLAB_{name}") or default)
    print(f"{name.lower()}: {value}")
    return value
