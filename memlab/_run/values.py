"""MEMLAB_PHANTOM_VALUES=1: small values in the processes of a program that `memlab phantom`
started, which nothing records, and in those that a recorded program starts.

memlab.pth calls begin() in every Python process that has the variable.  Values are kept from
the process's initialisation of CUDA on.  Without a bridge to its torch the program runs all
the same, and the device's memory reads as zeros.
"""

import os
import sys

NAME = "MEMLAB_PHANTOM_VALUES"
# The command has said that the device is a phantom: the phantom does not.
TOLD = "MEMLAB_PHANTOM_TOLD"

_begun = False
_records = False  # this process records: then that keeps values, and tells


def begin():
    """From now on this process, and one forked from it, has values once it has initialised
    CUDA.
    """
    global _begun
    # In a virtual environment Python reads .pth files twice.
    if _begun:
        return
    _begun = True
    from memlab._native.importing import when_imported

    when_imported("torch.cuda", lambda cuda: cuda._lazy_call(_cuda_ready))


def for_children():
    """This process, on the phantom device, keeps values by itself; the Python processes that
    it starts have them too, unless memory has pages.
    """
    global _records
    _records = True
    if os.environ.get("MEMLAB_PHANTOM_BACKED") != "1":
        os.environ[NAME] = "1"


def _cuda_ready():
    """Runs inside torch's own initialisation, which no failure here may reach."""
    if _records:
        return
    try:
        from memlab._native import bridge
        from memlab._run import children, made_up

        if bridge.load().watch_values():
            made_up.watch()
            children.at_end(_end)
    except Exception as error:
        _say(f"memlab: values on the phantom device are not computed: {error}")


def _end():
    """Tells what the program read that is not real, and that this may have ended it."""
    from memlab._run import made_up

    try:
        made_up.tell_at_exit(_say)
    except Exception as error:
        _say(f"memlab: values that were made up are not told: {error}")


def _say(text):
    """Prints TEXT in lines of the terminal's width, unless the phantom is to be quiet."""
    from memlab._text import terminal

    if os.environ.get("MEMLAB_PHANTOM_QUIET") != "1":
        terminal.show(text, sys.stderr)
