"""memlab.fit: does a training program fit on a GPU that is not here?

Owns the arguments.  answer.py answers, and is imported only then.
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
    world_size: int | None = None,
    nodes: int | None = None,
    ranks: Iterable[int] | None = None,
    vary: str | None = None,
    steps: int | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> FitAnswer:
    """Whether a training program fits on a GPU, which need not be here.

    The program runs unchanged on memlab's phantom device, in a process of its own,
    until its optimizer has made 10 steps without a new peak, or to its end.

    script: path of the program; or "torchrun", followed by its arguments.  args: its
    arguments. gpu: a name from `memlab phantom --list`; None: MEMLAB_PHANTOM_GPU, else
    "h200".  devices: number of GPUs; None: 1, or for torchrun the number of ranks.
    memory: bytes of each, or a size such as "24GiB"; None: the GPU's.  vary:
    "batch_size=1..64" finds the largest of these values that fits. The value is passed
    as {batch_size} in an argument, as --batch-size or batch_size=, or, with a name in
    capitals, as an environment variable.  world_size: number of all ranks of a program of
    many; nodes: the machines they are on, None: by torchrun's arguments, else 8 a machine;
    ranks: those to run, each alone in its process, None: one of each kind.  steps:
    optimizer steps after which the program ends; None: as above.  timeout: seconds for one
    run of the program.

    Returns a dict, described in docs/LABORATORY.md: fits is a bool, and each of devices
    has allocated_peak_bytes, reserved_peak_bytes, total_bytes (comparable with
    nvidia-smi) and capacity_bytes.  If the program does not fit, the bytes are those of
    a run with unlimited memory.

    Raises memlab.Error if the program fails for another reason, with its last lines of
    output, or does not reach a step in time; ValueError for an invalid argument;
    FileNotFoundError if the phantom device was not built.
    """
    from memlab._fit import world
    from memlab._fit.answer import answer_of

    words = [os.fspath(script), *args]
    around = world.of(world_size, nodes, ranks, words, devices)
    return answer_of(words, gpu, devices, memory, vary, steps, timeout, world=around)
