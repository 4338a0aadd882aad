"""Runs programs on the phantom device: CUDA builds of torch, no GPU, only small results.

The device is a C library that is preloaded into the program (csrc/phantom).  This
module finds it, lists its GPUs, and starts programs under it.  It imports nothing of
torch or of the rest of memlab.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import sys
import tempfile
from typing import NamedTuple

DEFAULT_GPU = "h200"
LIBRARY = pathlib.Path(__file__).resolve().parent / "libmemlab_phantom.so"
MAX_DEVICES = 16
_TABLE = b"memlab-phantom-gpus 1\n"
# Where Triton finds a driver to link with: files that name the library.
_DRIVER = LIBRARY.parent / "phantom_driver"
# torch.compile's timings on the phantom must not be used for a GPU.
_CACHE = "memlab-phantom"
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class GPU(NamedTuple):
    """A GPU that the phantom device can represent."""

    name: str
    full_name: str
    capability: str
    multiprocessors: int
    total_bytes: int
    source: str


def available() -> bool:
    """Whether the phantom device's library was built and lies beside this file."""
    return LIBRARY.is_file()


def gpus() -> dict[str, GPU]:
    """The GPUs that the phantom device can represent, by name.

    Raises FileNotFoundError if the library was not built.
    """
    # The table is read from the file: loading the library into this process would
    # replace a real driver.
    if not available():
        raise FileNotFoundError(_missing())
    content = LIBRARY.read_bytes()
    start = content.index(_TABLE) + len(_TABLE)
    table = content[start : content.index(b"\0", start)].decode()
    rows = (line.split("\t") for line in table.splitlines())
    return {
        name: GPU(name, full, capability, int(processors), int(mib) << 20, source)
        for name, full, capability, processors, mib, source in rows
    }


def find_gpu(text: str) -> str:
    """The name of one of gpus() that TEXT means: rtx4090, "RTX 4090", 4090, a100-80gb, or
    a100, of which the one with 80 GB is meant.

    Raises ValueError for another, FileNotFoundError where the library was not built.
    """
    known = gpus()
    plain = {_plain(gpu.full_name): name for name, gpu in known.items()}
    plain |= {_plain(name): name for name in known}
    wanted = _plain(text)
    for name in (wanted, f"rtx{wanted}", f"{wanted}80"):
        if name in plain:
            return plain[name]
    if re.match(r"(amd)?(instinct)?mi\d", wanted):
        raise ValueError(f"{text!r} is a GPU of AMD's, and memlab knows NVIDIA's alone")
    near = difflib.get_close_matches(wanted, plain, 1, 0.8)
    meant = f"; did you mean {plain[near[0]]}" if near else ""
    raise ValueError(f"unknown GPU {text!r}{meant}; known are {', '.join(known)}")


def _plain(name: str) -> str:
    """NAME without what people write in several ways."""
    return re.sub(r"[\s_-]|nvidia|geforce|tesla|gi?b$", "", name.lower())


def parse_memory(text: str) -> int:
    """Bytes from a size such as 24GiB, 24G, 512MiB, or a number of bytes from 1 MiB up.

    Units are binary.  Raises ValueError for anything else, less than 1 MiB without a unit
    too: that was meant in another.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.I)
    if not match:
        raise ValueError(f"{text!r} is not a memory size; write for example 24GiB")
    number, unit = match.groups()
    if not unit and 0 < float(number) < 1 << 20 and text.strip()[-1] not in "bB":
        raise ValueError(f"{text!r} has no unit; did you mean {number}GiB?")
    size = float(number) * (1 << _UNITS[unit.upper()])
    if not 1 <= size < 1 << 62:
        raise ValueError(f"{text!r} is not a memory size; write for example 24GiB")
    return int(size)


def environment(
    gpu: str | None = None,
    devices: int | None = None,
    memory: int | str | None = None,
    backed: bool | None = None,
) -> dict[str, str]:
    """The environment variables that put a program on the phantom device.

    gpu: as find_gpu() takes it.  devices: how many of them.  memory: bytes of each device, or
    a size such as "24GiB".  backed: device memory has pages, so that copies, fills and
    memsets carry data.  What is None is what MEMLAB_PHANTOM_GPU, _DEVICES, _MEMORY or
    _BACKED says in the environment of this process, else: an h200, one of it, as much
    memory as the GPU has, no pages.

    LD_PRELOAD keeps what this process preloads.  TORCHINDUCTOR_CACHE_DIR becomes a
    folder of the phantom's own inside this process's.  Raises ValueError for invalid
    arguments and variables, FileNotFoundError if the library is not built.
    """
    gpu = find_gpu(gpu or _variable("GPU") or DEFAULT_GPU)
    if devices is None:
        devices = _variable("DEVICES") or "1"
        if not devices.isdecimal():
            raise ValueError(f"MEMLAB_PHANTOM_DEVICES={devices} is not a number")
        devices = int(devices)
    if not 1 <= devices <= MAX_DEVICES:
        raise ValueError(f"{devices} devices: from 1 to {MAX_DEVICES} are possible")
    if memory is None:
        memory = _variable("MEMORY") or None
    if isinstance(memory, str):
        memory = parse_memory(memory)
    if memory is not None and memory <= 0:
        raise ValueError(f"{memory} bytes of memory: it must be more than 0")
    if backed is None:
        backed = _variable("BACKED") == "1"
    preload = [str(LIBRARY)]
    preload += [
        other
        for other in re.split("[ :]", os.environ.get("LD_PRELOAD", ""))
        if other and other != str(LIBRARY)
    ]
    return {
        "LD_PRELOAD": ":".join(preload),
        "MEMLAB_PHANTOM_GPU": gpu,
        "MEMLAB_PHANTOM_DEVICES": str(devices),
        "MEMLAB_PHANTOM_MEMORY": "" if memory is None else str(memory),
        "MEMLAB_PHANTOM_BACKED": "1" if backed else "0",
        "TRITON_LIBCUDA_PATH": str(_DRIVER),
        "TORCHINDUCTOR_CACHE_DIR": _cache_folder(),
    }


def _cache_folder() -> str:
    """torch.compile's cache on the phantom: beside its usual place."""
    chosen = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not chosen:
        return os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}_{_CACHE}")
    if os.path.basename(chosen) == _CACHE or chosen.endswith(f"_{_CACHE}"):
        return chosen
    return os.path.join(chosen, _CACHE)


def _variable(name: str) -> str:
    return os.environ.get(f"MEMLAB_PHANTOM_{name}", "")


def _missing() -> str:
    return (
        f"{LIBRARY} is not there: the phantom device was not built; "
        "install memlab with a C compiler, on Linux"
    )


def _list() -> str:
    table = gpus().values()
    name = max(len(gpu.name) for gpu in table)
    full = max(len(gpu.full_name) for gpu in table)
    lines = [
        f"{'name':{name}} {'GPU':{full}} {'cc':4} {'SMs':>4} {'memory':>11}  its source"
    ]
    for gpu in table:
        lines.append(
            f"{gpu.name:{name}} {gpu.full_name:{full}} {gpu.capability:4} "
            f"{gpu.multiprocessors:>4} {gpu.total_bytes / 2**30:>7.2f} GiB  {gpu.source}"
        )
    return "\n".join(lines)


def main(argv=None) -> int:
    """The command `memlab phantom`: starts a program on the phantom device, with small values
    unless MEMLAB_PHANTOM_VALUES is 0.

    Does not return if the program starts; else returns the exit status.
    """
    from memlab._text.arguments import Parser

    parser = Parser(
        prog="memlab phantom",
        usage="memlab phantom [options] program arguments...",
        description="Run a program of a CUDA build of torch on a phantom GPU: the real "
        "caching allocator, no kernels, and of the results only small ones.",
        epilog="An option that is not given is what the environment variable "
        "MEMLAB_PHANTOM_GPU, _DEVICES, _MEMORY or _BACKED says, where it is set. "
        "With MEMLAB_PHANTOM_VALUES=0 no value is computed.",
    )
    parser.add_argument(
        "--gpu", help=f"the GPU to stand for, see --list (default: {DEFAULT_GPU})"
    )
    parser.add_argument("--devices", type=int, help="how many GPUs (default: 1)")
    parser.add_argument(
        "--memory",
        help="memory of each GPU, for example 24GiB (default: what the GPU has)",
    )
    parser.add_argument(
        "--backed",
        action="store_true",
        default=None,
        help="give device memory pages, so that copies and memsets carry data",
    )
    parser.add_argument("--list", action="store_true", help="list the known GPUs")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, help="a program and its arguments"
    )
    options = parser.parse_args(argv)
    program = options.program
    if program[:1] == ["--"]:
        program = program[1:]
    try:
        if options.list:
            from memlab._text import terminal

            terminal.answer(_list())
            return 0
        variables = environment(
            options.gpu, options.devices, options.memory, options.backed
        )
    except (FileNotFoundError, ValueError) as error:
        print(f"memlab phantom: {error}", file=sys.stderr)
        return 2
    if not program:
        print(
            "memlab phantom: no program given; for example: "
            "memlab phantom python train.py",
            file=sys.stderr,
        )
        return 2
    if program[0].endswith(".py") and shutil.which(program[0]) is None:
        program = [sys.executable, *program]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    try:
        # Small values in each of its Python processes: memlab/_run/values.py.  Memory with
        # pages holds what is written.
        backed = variables["MEMLAB_PHANTOM_BACKED"] == "1"
        values = {"MEMLAB_PHANTOM_VALUES": "0" if backed else "1"}
        os.execvpe(program[0], program, {**values, **os.environ, **variables})
    except OSError as error:
        print(f"memlab phantom: {program[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    from memlab import _guard

    sys.exit(_guard.guarded(main))
