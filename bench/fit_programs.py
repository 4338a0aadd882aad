"""Training programs whose memory `memlab fit` is compared with a GPU's.

    python bench/fit_programs.py --list
    python bench/fit_programs.py NAME               # one line of JSON
    python bench/fit_programs.py --all > FILE       # one line a program, on this GPU

A line has the peaks of torch's allocator, and used_outside, the bytes of the device that
are used beside what torch reserves.  --all runs each in a process of its own, in turn; the
programs that need torchvision are left out where that is not installed.

Nothing depends on values, so that a program takes the same memory wherever it runs.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import sys
import traceback
import warnings

import fit_torch
import fit_transformers
import fit_vision
import torch

STATS = (
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "active_bytes.all.peak",
    "requested_bytes.all.peak",
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "num_alloc_retries",
    "num_ooms",
    "segment.all.peak",
    "allocation.all.allocated",
    "inactive_split_bytes.all.peak",
)
PROGRAMS = fit_transformers.PROGRAMS | fit_torch.PROGRAMS | fit_vision.PROGRAMS


def run(name):
    """Runs a program; what it took, as a dict."""
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    torch.backends.cuda.enable_cudnn_sdp(False)
    error = None
    try:
        PROGRAMS[name]()
    except torch.OutOfMemoryError:
        # memlab fit is to see it.
        if "MEMLAB_FIT" in os.environ:
            raise
        error = "out of memory"
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    return {
        "name": name,
        "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "error": error,
        "used_outside": total - free - stats["reserved_bytes.all.current"],
        "stats": {key: stats[key] for key in STATS},
    }


def run_apart(name):
    """Prints the line of a program, run in a forked child; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    with contextlib.suppress(BaseException):
        signal.alarm(300)
        try:
            print(json.dumps(run(name)), flush=True)
            status = 0
        except BaseException:
            traceback.print_exc()
    os._exit(status)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", nargs="*", help="programs")
    parser.add_argument("--list", action="store_true", help="their names")
    parser.add_argument("--all", action="store_true", help="all, each in its own process")
    options = parser.parse_args()
    if options.list:
        print(*PROGRAMS)
        return 0
    names = list(PROGRAMS) if options.all else options.name
    if unknown := [name for name in names if name not in PROGRAMS]:
        parser.error(f"no such programs: {', '.join(unknown)}")
    if importlib.util.find_spec("torchvision") is None and options.all:
        names = [name for name in names if not name.startswith("tv_")]
        print("left out, as torchvision is not installed: tv_*", file=sys.stderr)
    if len(names) == 1:
        print(json.dumps(run(names[0])))
        return 0
    if importlib.util.find_spec("transformers"):
        import transformers.initialization  # noqa: F401  # once, for all children
    failed = [name for name in names if run_apart(name)]
    if failed:
        print(f"failed: {' '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
