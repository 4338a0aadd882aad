"""The process in which `memlab fit` runs a program: `python -m memlab._fit.program`.

Owns when the program has shown enough, and the files for the parent process: a
recording, and figures that a recording does not have.  Takes Python's arguments for a
program, and the rest from the environment: VARIABLE.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
import types

from memlab import _core
from memlab._errors import Error
from memlab._fit import alone, layout
from memlab._native import sources
from memlab._record import optimizers
from memlab._record.memory_snapshot import MemorySnapshot
from memlab._run import made_up, outside
from memlab._run import program as _program

# JSON: folder, steps (a number or None), settled (steps without a new peak); alone, for
# one rank of many: what alone.World takes.
VARIABLE = "MEMLAB_FIT"
# In the folder: why the program was not started.
REFUSED = "refused"
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
# Options whose value may be the next argument.
_WITH_VALUE = ("-W", "-X")
MAX_ENTRIES = 2_000_000
# torch's NCCL watchdog releases finished work every 100 ms.  A step takes longer on a
# GPU, but no time here.
_WATCHDOG_SECONDS = 0.15
_PR_SET_PDEATHSIG = 1
_MOST_SIZES = 8  # as many are kept in csrc/phantom/libraries/nccl_parts.c
_TEXT = 1000  # characters of an error


def split(words):
    """The arguments of a Python: (its own options, whether a module follows, the rest,
    starting with the program).

    Raises ValueError if the program is no file or module.
    """
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word == "-m":
            return words[:at], True, words[at + 1 :]
        if word == "-" or word.startswith("-c"):
            raise ValueError(f"python {word}: give a program as a file, or a module with -m")
        at += 2 if word in _WITH_VALUE else 1
    return words[:at], False, words[at:]


class _Run:
    """The program's recording, and the program's progress."""

    def __init__(self, folder, steps, settled, world):
        self._folder, self._most, self._settled = folder, steps, settled
        self._world = world  # of a rank that is alone; else None
        self._rank = _program.rank()
        self._process = os.getpid()
        self._snapshot = MemorySnapshot(
            source="cuda", max_entries=MAX_ENTRIES, source_lines=False
        ).start()
        self._taken = {}  # id of an optimizer -> its steps
        self._steps = 0
        self._rose = 0  # the step of a peak's last rise
        self._peaks = {}  # device -> (allocated, reserved) bytes
        self._outside = {}  # device -> most bytes of the process outside torch
        self._rebuilt = 0  # bytes
        self._layout = None
        self._written = False
        optimizers.watch(self)

    def before_step(self, optimizer):
        """Does nothing: only the end of a step counts."""

    def after_step(self, optimizer):
        """Ends the process if the program has shown enough."""
        if os.getpid() != self._process:
            return
        taken = self._taken[id(optimizer)] = self._taken.get(id(optimizer), 0) + 1
        if taken <= self._steps:
            # Another optimizer of the same training step.
            return
        self._steps = taken
        if taken == 1:
            self._rebuilt = _rebuilt_bytes()
            if self._world is not None:
                # At its end a program may have destroyed the groups.
                self._layout = layout.told(self._world.size)
        self._look()
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_initialized():
            time.sleep(_WATCHDOG_SECONDS)
        if self._has_shown_enough() and self._others_have_too():
            self.write("stopped")
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (AttributeError, OSError, ValueError):
                    pass
            # The rest, including handlers at exit, is not needed.
            os._exit(0)

    def _has_shown_enough(self):
        if self._most is not None:
            return self._steps >= self._most
        return self._steps - self._rose >= self._settled

    def _others_have_too(self):
        """Whether all ranks on this machine have shown enough: until then they may wait
        for this one.
        """
        ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if ranks == "1" or self._world is not None:
            return True
        _core.write_file(os.path.join(self._folder, f"enough{self._rank}"), b"")
        told = [name for name in os.listdir(self._folder) if name.startswith("enough")]
        return len(told) >= int(ranks)

    def _look(self):
        torch = sys.modules["torch"]
        if not torch.cuda.is_initialized():
            return
        for device in range(torch.cuda.device_count()):
            try:
                stats = _core.stats("cuda", device)
            except ValueError:
                continue
            now = stats["allocated_bytes_peak"], stats["reserved_bytes_peak"]
            if now > (before := self._peaks.get(device, (0, 0))) or now[1] > before[1]:
                self._rose = self._steps
            self._peaks[device] = now
            own = _core.gpu_memory(device, 0)["own_bytes"]
            if own:
                outside = max(0, own - stats["reserved_bytes"])
                self._outside[device] = max(outside, self._outside.get(device, 0))

    def write(self, ended):
        """Writes the files, once.  ENDED: how the program ended: "end", "stopped" or
        "time".
        """
        if self._written or os.getpid() != self._process:
            return
        self._written = True
        torch = sys.modules["torch"]
        rose = self._rose
        self._look()
        self._snapshot.stop()
        recording = self._snapshot.data()
        error = getattr(sys, "last_value", None)
        path = os.path.join(self._folder, f"rank{self._rank}.pickle")
        recording.write_pickle(path, True)
        answer = {
            "ended": ended,
            "steps": self._steps,
            "rose": rose,
            "torch": torch.__version__,
            "error": None if error is None else f"{type(error).__name__}: {error}"[:_TEXT],
            "out_of_memory": _is_out_of_memory(error),
            "rebuilt_bytes": self._rebuilt,
            "made_up": made_up.read(),
            "joined": self._world is None or self._world.joined,
            "layout": self._layout,
            "unequal": bool(ctypes.CDLL(None).memlab_phantom_unequal_exchange()),
            "told_parts": _told_parts(),
            "estimated": bool(ctypes.CDLL(None).memlab_phantom_estimated_convolutions()),
            "devices": [
                self._device(torch, i)
                for i, (_, reserved) in sorted(self._peaks.items())
                if reserved or self._outside.get(i)
            ],
        }
        # Written after the recording: if this file exists, the recording exists.
        text = json.dumps(answer).encode()
        _core.write_file(os.path.join(self._folder, f"rank{self._rank}.json"), text)

    def _device(self, torch, device):
        allocated, reserved = self._peaks[device]
        stats = torch.cuda.memory_stats_as_nested_dict(device)
        return {
            "device": device,
            "allocated_peak_bytes": allocated,
            "reserved_peak_bytes": reserved,
            "outside_bytes": self._outside.get(device, 0),
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }


def _told_parts():
    """Of the ways in which ranks told each other how many rows they send: how many integers
    for each rank, less than 0 where they were gathered.
    """
    sizes = (ctypes.c_longlong * _MOST_SIZES)()
    count = ctypes.CDLL(None).memlab_phantom_told_parts(sizes, _MOST_SIZES)
    return sizes[:count]


def _rebuilt_bytes():
    """Bytes of the buckets that DistributedDataParallel remakes in the second step."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None:
        return 0
    return sum(
        parameter.numel() * parameter.element_size()
        for found in gc.get_objects()
        if issubclass(type(found), module.DistributedDataParallel)
        and (found.static_graph or not found.find_unused_parameters)
        for parameter in found.parameters()
        if parameter.requires_grad
    )


def _is_out_of_memory(error):
    """Whether ERROR, or a cause of it, is an out of memory of the GPU."""
    return any(map(outside.is_of_torch, outside.chain(error))) or outside.ran_out(error)


def main() -> int:
    """Runs the program; returns its exit status."""
    # torchrun's ranks have sessions of their own, so only this signal ends them.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    how = json.loads(os.environ[VARIABLE])
    _, module, words = split(sys.argv[1:])
    world = alone.World(*how["alone"]) if "alone" in how else None
    if world is not None and os.path.basename(words[0]) in LAUNCHERS:
        module, words = alone.launched(words[1:])
    options = types.SimpleNamespace(
        module=module, program=words[0], arguments=words[1:], phantom=None, device="cuda",
        python=False,
    )
    try:
        _program.prepare(options)
    except Error as error:
        path = os.path.join(how["folder"], REFUSED)
        _core.write_file(path, str(error).encode())
        raise
    # A program of several processes starts them by itself.
    sources.ensure("cuda")
    if world is not None:
        world.install()
    run = _Run(how["folder"], how["steps"], how["settled"], world)
    _program.when_terminated(lambda: run.write("time"), "what it took")
    return _program.run(options, lambda: run.write("end"))


if __name__ == "__main__":
    # As the module that others import; __main__ is the program's.
    from memlab import _guard
    from memlab._fit import program as _fit_program

    sys.exit(_guard.guarded(_fit_program.main))
