"""Finds, builds and loads memlab._torch, the bridge to torch's allocators.

The bridge uses C++ classes whose layout changes with every minor release of torch, so a
built bridge fits exactly one build of torch.  Its file name has a key of that build,
the Python ABI and the bridge's sources; a file with another key is never loaded.  This
module imports neither torch nor the rest of memlab, because setup.py uses it too.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import threading
from pathlib import Path

__all__ = ["TorchBuild", "build", "bridge_key", "compile_command", "file_name", "load"]

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCES = (
    "module.cpp",
    "objects/graph.cpp",
    "objects/objects.cpp",
    "objects/tensors.cpp",
    "sources/autograd.cpp",
    "sources/callbacks.cpp",
    "sources/clock.cpp",
    "sources/cpu.cpp",
    "sources/cpu_table.cpp",
    "sources/native.cpp",
    "sources/regions.cpp",
    "sources/torchscript.cpp",
)
_CUDA_SOURCES = (
    "objects/reach.cpp",
    "objects/saved.cpp",
    "objects/storages.cpp",
    "objects/transfer.cpp",
    "sources/arrival.cpp",
    "sources/compiled.cpp",
    "sources/cuda.cpp",
    "sources/host.cpp",
    "sources/pinned.cpp",
    "sources/tracker.cpp",
    "sources/uses.cpp",
    "values/value_contents.cpp",
    "values/value_operators.cpp",
    "values/value_places.cpp",
    "values/value_tensors.cpp",
    "values/values.cpp",
)
# The allocator's callback: what it calls is read from its object's symbols.
_OWN_OBJECT = "tracker.cpp"
_HEADERS = (
    "bridge.h",
    "objects/graph.h",
    "objects/objects.h",
    "objects/reach.h",
    "objects/saved.h",
    "objects/tensor_fields.h",
    "objects/transfer.h",
    "sources/callbacks.h",
    "sources/cpu_table.h",
    "sources/cuda_settings.h",
    "sources/host_allocator.h",
    "values/values.h",
)
_loading = threading.Lock()
_loaded = None


def _error(text):
    """memlab.Error(text), imported late so that setup.py can use this file alone."""
    try:
        from memlab._errors import Error
    except ImportError:
        Error = RuntimeError
    return Error(text)


# ---------------------------------------------------------------- what there is


class TorchBuild:
    """A torch package on disk, read without importing it."""

    def __init__(self, root):
        self.root = Path(root)
        found = {"cuda": None, "git_version": None}
        try:
            text = (self.root / "version.py").read_text(encoding="utf-8")
        except OSError:
            text = ""
        for name, value in re.findall(
            r"^(__version__|cuda|git_version)\b[^=]*=\s*(.*?)\s*$",
            text,
            re.MULTILINE,
        ):
            found[name] = None if value == "None" else value.strip("'\"")
        self.version = found.get("__version__")
        self.cuda = found["cuda"]
        self.git_version = found["git_version"]

    @property
    def release(self):
        """(major, minor) of the version."""
        numbers = re.findall(r"\d+", self.version or "0.0")
        return int(numbers[0]), int(numbers[1])

    @property
    def new_strings(self):
        """Whether it was compiled with the std::string of GCC 5 and later, as
        torch.compiled_with_cxx11_abi() says: by the name of a function of c10 that gives
        one.  Names of the library's own do not tell: torch 2.6 has both of them inside.
        """
        library = (self.root / "lib/libc10.so").read_bytes()
        return b"_ZN3c1014DeviceTypeNameB5cxx11E" in library


def find_torch():
    """The TorchBuild that `import torch` gives, or None; imports nothing."""
    module = sys.modules.get("torch")
    origin = getattr(module, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec("torch")
        except (ImportError, ValueError):
            spec = None
        origin = spec.origin if spec is not None else None
    if origin is None:
        return None
    build = TorchBuild(Path(origin).parent)
    return build if build.version else None


def _source_dirs():
    """The folders of the bridge's sources and of memlab.h: the repository's csrc, or
    its copy in the installed package.
    """
    for base in (_PACKAGE.parent / "csrc", _PACKAGE / "_bridge_src"):
        if (base / "torch" / "bridge.h").is_file():
            return base / "torch", base / "core"
    raise _error(
        f"memlab's package lacks the sources of its bridge ({base}): reinstall memlab"
    )


def sources(torch_build):
    """The paths of the C++ files that make the bridge for this torch."""
    names = _SOURCES + (_CUDA_SOURCES if torch_build.cuda else ())
    return [_source_dirs()[0] / name for name in names]


def _write_units(torch_build, folder):
    """The files that the compiler is given, Paths, of which all but the tracker's is one
    that FOLDER gets: torch's headers take several times as long as memlab's sources, and
    are read once.
    """
    files = sources(torch_build)
    own = [path for path in files if path.name == _OWN_OBJECT]
    unit = Path(folder, "bridge.cpp")
    base = _source_dirs()[0]
    lines = [
        f'#include "{path.relative_to(base)}"\n' for path in files if path not in own
    ]
    unit.write_text("".join(lines), encoding="utf-8")
    return [unit, *own]


def bridge_key(torch_build=None):
    """The key of the bridge for this Python, this torch and these sources, a str."""
    torch_build = torch_build or find_torch()
    digest = hashlib.sha256()
    for part in (
        torch_build.version,
        torch_build.cuda,
        torch_build.git_version,
        sysconfig.get_config_var("SOABI"),
    ):
        digest.update(repr(part).encode())
    folder, core = _source_dirs()
    paths = sources(torch_build) + [folder / name for name in _HEADERS]
    for path in paths + [core / "memlab.h", Path(__file__)]:
        digest.update(path.read_bytes())
    tag = sysconfig.get_config_var("SOABI").split("-")[1]
    return f"cp{tag}-torch{torch_build.version}-{digest.hexdigest()[:12]}"


def file_name(key):
    """The file name of a built bridge in the package folder."""
    return f"_torch.{key}.so"


def cache_dir():
    """The folder of bridges built at first use, a Path."""
    # Here: setup.py reads this file alone, where memlab is not built.
    from memlab._native import cache

    return Path(cache.folder()) / "bridge"


def built_paths(key):
    return _PACKAGE / file_name(key), cache_dir() / key / "_torch.so"


# ---------------------------------------------------------------- building


def find_compiler():
    """The C++ compiler as a list of arguments, or None."""
    if os.environ.get("CXX"):
        command = shlex.split(os.environ["CXX"])
        return command if command and shutil.which(command[0]) else None
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    return None


def cuda_include_dirs(torch_root):
    """Folders with CUDA's headers, best first: those of PyPI packages beside torch,
    then CUDA_HOME. Empty if there are none.
    """
    site = Path(torch_root).parent
    candidates = [
        site / "triton" / "backends" / "nvidia" / "include",
        site / "nvidia" / "cu13" / "include",
        site / "nvidia" / "cuda_runtime" / "include",
    ]
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home:
            candidates.append(Path(home) / "include")
    candidates.append(Path("/usr/local/cuda/include"))
    found = [path for path in candidates if (path / "cuda_runtime_api.h").is_file()]
    return found


def compile_command(sources, output, build):
    """The command that compiles one or more C++ files of the bridge, a list of str.

    sources: paths; output: an object file for one source (ends in ".o"), else the shared
    object of all of them; build: the TorchBuild.  The one place that knows the flags.
    Raises memlab.Error where a compiler or headers are missing.
    """
    compiler = find_compiler()
    if compiler is None:
        raise _error(
            "memlab needs a C++ compiler to build its bridge to torch "
            f"{build.version}: install g++ or clang++ (Debian, Ubuntu: apt-get install "
            "g++), or set CXX to one"
        )
    python_include = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(python_include, "Python.h")):
        raise _error(
            f"memlab needs Python's headers to build its bridge, and {python_include} "
            "has no Python.h: install them (Debian, Ubuntu: apt-get install python3-dev)"
        )
    include = build.root / "include"
    systems = [include, include / "torch" / "csrc" / "api" / "include"]
    defines = [
        f'-DMEMLAB_BUILT_FOR="{build.version}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={int(build.new_strings)}",
    ]
    if (include / "ATen" / "ops").is_dir():
        # Otherwise torch's headers include those of all its operators, which takes
        # seconds per file.
        defines.append("-DAT_PER_OPERATOR_HEADERS")
    if build.cuda:
        cuda = cuda_include_dirs(build.root)
        if not cuda:
            raise _error(
                f"memlab needs CUDA's headers to build its bridge to torch "
                f"{build.version} and found none: pip install "
                + (
                    "nvidia-cuda-runtime"
                    if not build.cuda.startswith("12")
                    else "nvidia-cuda-runtime-cu12"
                )
                + ", or set CUDA_HOME"
            )
        systems += cuda
        defines.append("-DMEMLAB_WITH_CUDA")
        # As torch's own libraries: without it, a function in the header of its settings
        # says that there are no expandable segments.
        defines.append("-DPYTORCH_C10_DRIVER_API_SUPPORTED")
    # From 2.12 on, torch's headers use C++20.
    standard = "c++20" if build.release >= (2, 12) else "c++17"
    command = compiler + [
        f"-std={standard}",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        # A call through the table itself: the stub between takes a cache line more.
        "-fno-plt",
        # As torch's own libraries: without it, torch's headers check what these leave out.
        "-DNDEBUG",
        "-Wall",
        "-Wextra",
        *defines,
        *(f"-I{folder}" for folder in _source_dirs()),
        "-isystem",
        python_include,
    ]
    for path in systems:
        command += ["-isystem", str(path)]
    command += [str(path) for path in sources]
    if str(output).endswith(".o"):
        return command + ["-c", "-o", str(output)]
    return command + _link_arguments(build) + ["-o", str(output)]


def _link_arguments(build):
    # No rpath: torch is imported first, and its libraries are found by their names.
    libraries = ["-lc10", "-ltorch_cpu"] + (["-lc10_cuda"] if build.cuda else [])
    return ["-shared", "-L", str(build.root / "lib"), "-Wl,--no-as-needed", *libraries]


def link_command(objects, output, build):
    """The command that links objects of compile_command() into the bridge."""
    compiler = find_compiler() or ["c++"]
    return (
        compiler
        + [str(path) for path in objects]
        + _link_arguments(build)
        + ["-o", str(output)]
    )


def _run_all(commands, log):
    """Runs compiler commands in parallel, one for each processor.  False on a failure,
    with their output in the file log.
    """
    workers = max(1, os.cpu_count() or 1)
    ok = True
    waiting = list(commands)
    running = []
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(
                subprocess.Popen(waiting.pop(0), stdout=log, stderr=subprocess.STDOUT)
            )
        ok = running.pop(0).wait() == 0 and ok
    return ok


def build(output, torch_build):
    """Build the bridge for a TorchBuild and put it at the path output, atomically.

    Raises memlab.Error on failure.
    """
    output = Path(output)
    try:
        work = tempfile.mkdtemp(prefix=".build-", dir=output.parent)
    except OSError as error:
        raise _error(
            f"memlab cannot write its bridge to {output.parent}: {error.strerror}; set "
            "MEMLAB_CACHE to a folder that can be written"
        ) from error
    try:
        files = _write_units(torch_build, work)
        objects = [os.path.join(work, path.stem + ".o") for path in files]
        commands = [
            compile_command([path], target, torch_build)
            for path, target in zip(files, objects)
        ]
        product = os.path.join(work, "_torch.so")
        log_path = os.path.join(work, "log")
        with open(log_path, "wb") as log:
            ok = _run_all(commands, log) and _run_all(
                [link_command(objects, product, torch_build)], log
            )
        if not ok:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                said = log.read()
            lines = [line for line in said.splitlines() if "error" in line] or [said]
            raise _error(
                f"memlab's bridge to torch {torch_build.version} does not compile with "
                f"{commands[0][0]}: {lines[0][:500]}"
            )
        # Whatever the umask allows others.
        os.chmod(product, 0o755)
        os.replace(product, output)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _locked(path):
    """Holds an exclusive lock on the file path; reports it if it has to wait."""
    import fcntl

    with open(path, "ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                "memlab: waiting for another process that builds the bridge to torch",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_in_cache(path, torch):
    """Builds the bridge at PATH in the user's cache, if it is missing."""
    with _locked(path.parent / "lock"):
        if not path.exists():
            found = find_torch()
            # What is missing is an error before anything is said of building.
            compile_command(sources(found), path, found)
            print(
                f"memlab: building its bridge to torch {torch.__version__} in "
                f"{path.parent} (once, up to a minute)",
                file=sys.stderr,
                flush=True,
            )
            build(path, found)


def _cached(path, torch):
    """PATH without links, after checking that the bridge exists and that no other user
    could have put it there or can change it.
    """
    try:
        _make_folders(path.parent)
        path = Path(os.path.realpath(path.parent)) / path.name
        # Checked before anything in it is opened.
        for part in reversed(path.parent.parents):
            _check_trusted(part, above=True)
        _check_trusted(path.parent)
        if not path.exists():
            _build_in_cache(path, torch)
    except OSError as error:
        raise _error(
            f"memlab cannot write its bridge to {path.parent}: "
            f"{error.strerror or error}; set MEMLAB_CACHE to a folder that can be written"
        ) from error
    _check_trusted(path)
    return path


def _make_folders(folder):
    """Makes FOLDER and its missing parents, accessible only to this user."""
    for part in (*reversed(folder.parents), folder):
        if not part.exists():
            part.mkdir(mode=0o700, exist_ok=True)


# ---------------------------------------------------------------- loading


def _check_trusted(path, above=False):
    """Refuses machine code that another user could have put there: PATH, its folder, or
    one ABOVE it.
    """
    status = os.lstat(path)
    # The owner of this container's root, or of its user namespace, controls all of it.
    owners = (os.getuid(), 0, os.stat("/").st_uid)
    others = status.st_mode & 0o022
    if above and status.st_mode & stat.S_ISVTX:
        # Only owners can rename entries there, as in /tmp.
        others = 0
    if status.st_gid == os.getgid() == os.getuid():
        # A group of this user alone, which umask 002 assumes.
        others &= ~0o020
    known = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    if status.st_uid not in owners or others or not known:
        raise _error(
            f"{path} can be written by another user, so memlab does not load its bridge "
            "from there: set MEMLAB_CACHE to a folder of your own, or chmod go-w it"
        )


def _torches_of_bridges():
    """The versions of torch that the package's bridges were built for, a sorted list."""
    names = (path.name for path in _PACKAGE.glob("_torch.*.so"))
    found = (re.match(r"_torch\.cp\w+-torch(.+)-[0-9a-f]{12}\.so$", name) for name in names)
    versions = {match.group(1) for match in found if match}
    return sorted(versions, key=lambda text: [int(n) for n in re.findall(r"\d+", text)])


def bridge_path(torch):
    """The file of the bridge for the imported torch, built now if needed.

    Raises memlab.Error, with what to do, if it cannot be built.
    """
    key = bridge_key()
    installed, cached = built_paths(key)
    if installed.exists():
        return installed
    try:
        return _cached(cached, torch)
    except Exception as error:
        others = _torches_of_bridges()
        if not others:
            raise
        raise _error(
            f"memlab has bridges to torch {', '.join(others)}, none to torch "
            f"{torch.__version__} that is running, and could not build one ({error})"
        ) from error


def import_bridge(torch, path):
    """The module memlab._torch from a file of bridge_path(); its sources are not
    registered yet. Raises memlab.Error if the file is for another torch.
    """
    name = "memlab._torch"
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise _error(
            f"memlab cannot load its bridge ({error}): remove {path}"
        ) from error
    if module.built_for() != torch.__version__:
        raise _error(
            f"{path} was built for torch {module.built_for()} and torch "
            f"{torch.__version__} is running: remove that file"
        )
    sys.modules[name] = module
    return module


def load():
    """Loads the bridge for the running torch, builds it if needed, and registers its
    sources with memlab._core.

    Returns the module memlab._torch, the same at every call.  Raises memlab.Error, with
    what to do, if there is no torch, no compiler or no folder to build in.  Imports
    torch; does not initialise CUDA.
    """
    global _loaded
    with _loading:
        if _loaded is None:
            _loaded = _load()
    return _loaded


def _load():
    if os.environ.get("MEMLAB_TORCH") == "0":
        raise _error("memlab's bridge to torch is switched off by MEMLAB_TORCH=0")
    try:
        import torch
    except ImportError as error:
        raise _error(
            f"memlab cannot import torch ({error}): pip install torch"
        ) from error
    from memlab import _core

    module = import_bridge(torch, bridge_path(torch))
    module.register(_core._api)
    return module
