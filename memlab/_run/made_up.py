"""What a program on the phantom device read that is not real, in words.

Owns the steps of its optimizers that are told where it fails.
"""

import ctypes
import os
import sys

from memlab._native import devices, sources
from memlab._record import optimizers
from memlab._run import outside
from memlab._text import wording

_PLACES = 3


class _Steps:
    """Counts the steps of the program's optimizers, those at once as one."""

    def __init__(self):
        self.count = 0
        self._taken = {}  # id of an optimizer -> its steps

    def before_step(self, optimizer):
        """Does nothing: only the end of a step counts."""

    def after_step(self, optimizer):
        taken = self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        self.count = max(self.count, taken)


_steps = _Steps()


def watch() -> None:
    """Counts steps from now on.  torch is imported."""
    optimizers.watch(_steps)


def read() -> tuple:
    """(number, [(file, line, number), ...]) of the values that the program read so far
    and that are made up."""
    bridge = sys.modules.get("memlab._torch")
    return (0, []) if bridge is None else bridge.made_up_values()


def sentence(made_up, start=None) -> str | None:
    """MADE_UP, as read() gives it, in a sentence with the lines that read most; None: there
    are none.  Paths are relative to the folder START."""
    count, places = made_up
    if not count:
        return None
    places = sorted(places, key=lambda place: -place[2])
    shown = [
        f"{wording.escape(wording.shorten(file, start))}:{line} ({number})"
        for file, line, number in places[:_PLACES]
    ]
    if len(places) > _PLACES:
        shown.append(f"{len(places) - _PLACES} more lines")
    values = "1 value that was" if count == 1 else f"{count:,} values that were"
    return (
        f"the program read {values} made up, for the phantom device computes only small "
        f"tensors: {', '.join(shown)}"
    )


def failed(error) -> str | None:
    """What to say below the traceback of ERROR; None: this is no phantom, memory ran out,
    which is real, or nothing was on it that could have been read."""
    if not devices.under_phantom() or outside.is_of_torch(error):
        return None
    peak = _peak()
    reached = f"{_steps.count} step{'s' * (_steps.count != 1)} of the optimizer"
    fit = "; memlab fit answers from these" if _steps.count else ""
    why = "values read back from the phantom device are not real, which may be the cause"
    ask = ctypes.CDLL(None).memlab_phantom_lacked
    ask.restype = ctypes.c_char_p
    call = ask()
    if call is None and peak == 0:
        return None
    if call is not None:
        why = (
            f"{call.decode()} fails on the phantom device, as said above, and values read "
            "back from it are not real: either may be the cause"
        )
    return (
        f"memlab: {why}; up to there {reached}, peak {wording.size(peak)} allocated{fit}"
    )


def _peak():
    """Of all GPUs the highest, in bytes: as recorded, or else as torch counts."""
    recorded = sources.stats_of_all("cuda").values()
    if recorded:
        return max(each["allocated_bytes_peak"] for each in recorded)
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return max(map(torch.cuda.max_memory_allocated, range(torch.cuda.device_count())))


def tell(say) -> None:
    """Calls SAY(text) if the program read something that is made up."""
    text = sentence(read(), os.getcwd())
    if text is not None:
        say(f"memlab: {text}")


def tell_at_exit(say) -> None:
    """As tell(), at the end of a process that Python alone started; before it, the cause if
    an error ended the program, or what may have been."""
    # The interpreter puts it there before it shows the traceback.
    error = getattr(sys, "last_value", None)
    full = outside.sentences(error)
    text = outside.line(" ".join(full)) if full else error and failed(error)
    if text is not None:
        say(text)
    tell(say)
