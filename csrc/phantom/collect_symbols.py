"""Collects the symbols that torch asks of the CUDA libraries into symbols.def.

    python collect_symbols.py TORCH_DIRECTORY... > symbols.def

Each argument is the directory of an installed CUDA build of torch; all the versions
that the phantom device is to serve belong in one call.  Three kinds of symbols count:
those its libraries import (`nm -D --undefined-only`), the names of calls of the driver
and of NVML that they look up while running, which stand in them as strings, and the
driver's calls in the sources that the Triton beside torch compiles when it is used.

The result is checked in, so that building memlab needs no torch.
"""

import pathlib
import re
import subprocess
import sys

LIBRARIES = (
    "cublas|cuda|cudnn|cufft|cuFile|cupti|curand|cusolver|cusparse|nccl|nvJitLink"
    "|nvml|nvrtc|nvshmem|nvtx|__cuda|__nv"
)
IMPORTED = re.compile(rf"^(?:{LIBRARIES}|cu[A-Z])\w*$")
LOOKED_UP = re.compile(
    rb"\0(nvml[A-Z]\w*|cu(?:Ctx|Dev|Device|Driver|Func|Get|Green|Init|Launch|Link|Mem"
    rb"|Memset|Module|Multicast|Occupancy|Pointer|Stream|TensorMap)[A-Z]\w*)(?=\0)"
)


def imported(library):
    table = subprocess.run(
        ["nm", "-D", "--undefined-only", library],
        check=True, capture_output=True, text=True,
    ).stdout
    names = (line.split()[-1].partition("@")[0] for line in table.splitlines())
    return {name for name in names if IMPORTED.match(name)}


def looked_up(library):
    return {name.decode() for name in LOOKED_UP.findall(library.read_bytes())}


def compiled(triton):
    names = set()
    for source in triton.glob("backends/nvidia/driver.*"):
        names |= set(re.findall(r"\bcu[A-Z]\w*(?=\()", source.read_text()))
    # Looked-up functions are kept in variables with these suffixes.
    return {name for name in names if not name.endswith("Handle")}


def version(directory):
    text = (directory / "version.py").read_text()
    return re.search(r"__version__ = '([^']+)'", text).group(1)


def main(arguments):
    directories = [pathlib.Path(argument) for argument in arguments]
    if not directories:
        sys.exit("usage: collect_symbols.py TORCH_DIRECTORY... > symbols.def")
    names = set()
    for directory in directories:
        for library in sorted((directory / "lib").glob("*.so*")):
            names |= imported(library)
        names |= looked_up(directory / "lib" / "libc10_cuda.so")
        names |= compiled(directory.parent / "triton")
    versions = ", ".join(version(directory) for directory in directories)
    print("/* The symbols of the CUDA libraries that torch imports or looks up.")
    print(f" * torch {versions}.")
    print(" * Made by collect_symbols.py. */")
    for name in sorted(names):
        print(f"XX({name})")


if __name__ == "__main__":
    main(sys.argv[1:])
