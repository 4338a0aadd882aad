"""memlab.fit: does a training program fit on a GPU that is not here?

Owns what is asked; answer.py has how it is answered, and is not imported before.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab._answers import FitAnswer
    from memlab._core import _Path

# For one run of the program.
TIMEOUT_SECONDS = 900.0


def fit(
    script: _Path,
    args: Iterable[str] = (),
    *,
    gpu: str | None = None,
    devices: int | None = None,
    memory: int | str | None = None,
    vary: str | None = None,
    steps: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> FitAnswer:
    """Whether a training program fits on a GPU, which need not be here.

    The program runs unchanged on memlab's phantom device, in a process of its own, until
    its optimizer has made 10 steps without a new peak, or to its end.

    script: path of the program; or "torchrun", whose arguments follow.  args: its
    arguments.  gpu: a name of `memlab phantom --list`; None for what MEMLAB_PHANTOM_GPU
    says, else "h200".  devices: how many of it; None for 1, and for torchrun for as many
    as the ranks that it starts.  memory: bytes of each, or a size such as "24GiB"; None
    for what the GPU has.  vary: "batch_size=1..64" finds the largest of these values that
    fits; it is given as {batch_size} in an argument, as the argument --batch-size or
    batch_size=, or, named in capitals, as an environment variable.  steps: of the
    optimizer, after which the program ends; None for as above.  timeout: seconds that one
    run of the program may take.

    Returns a dict, described in docs/LABORATORY.md: fits is a bool, and each of devices has
    allocated_peak_bytes, reserved_peak_bytes, total_bytes (as nvidia-smi would count) and
    capacity_bytes.  Where it does not fit, they are of a run with unlimited memory.

    Raises memlab.Error where the program fails for another reason, with the last lines of
    what it printed, or does not come to a step in time; ValueError for an argument that
    makes no sense; FileNotFoundError where the phantom device was not built.
    """
    from memlab._fit.answer import answer_of

    words = [os.fspath(script), *args]
    return answer_of(words, gpu, devices, memory, vary, steps, timeout)
