"""Builds memlab's native parts; what the package is stands in pyproject.toml.

memlab._core                 the C files of csrc/core and csrc/py, always
memlab/libmemlab_phantom.so  those of csrc/phantom and PHANTOM_CORE, on Linux x86-64
memlab._torch                the C++ files of csrc/torch, where torch can be imported

Read from the environment:
MEMLAB_TORCH=auto|0|1        build memlab._torch: where torch is found, never, or fail
MEMLAB_WERROR=1              warnings are errors
MEMLAB_DEBUG=1               no optimisation, all assertions
MEMLAB_SANITIZE=address,undefined
MEMLAB_COVERAGE=1            instrument for gcov
CC, CFLAGS, LDFLAGS          as everywhere
"""

import fcntl
import functools
import glob
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CORE = "memlab._core"
PHANTOM = "memlab.libmemlab_phantom"
TORCH = "memlab._torch"
# What the phantom shares with the core: the rule by which the driver places memory.
PHANTOM_CORE = ["csrc/core/base/base.c", "csrc/core/gpu/placement.c"]


def flag(name):
    """Whether the environment variable NAME is set to something else than 0."""
    return os.environ.get(name, "0") not in ("", "0")


def sources(suffix, *folders):
    """The files that end in SUFFIX anywhere in the FOLDERS of csrc."""
    return [
        file
        for folder in folders
        for file in sorted(glob.glob(f"csrc/{folder}/**/*{suffix}", recursive=True))
    ]


def mode_flags():
    """Flags that every C file takes, from the MEMLAB_* variables."""
    if flag("MEMLAB_DEBUG"):
        flags = ["-O0", "-g3", "-UNDEBUG", "-DML_DEBUG=3"]
    else:
        flags = ["-O2", "-DNDEBUG"]
    if flag("MEMLAB_WERROR"):
        flags.append("-Werror")
    return flags


def instrument_flags():
    """Flags of the core that compiling and linking share."""
    flags = []
    if os.environ.get("MEMLAB_SANITIZE"):
        flags.append("-fsanitize=" + os.environ["MEMLAB_SANITIZE"])
        flags.append("-fno-omit-frame-pointer")
    if flag("MEMLAB_COVERAGE"):
        flags.append("--coverage")
    return flags


def torch_extension():
    """[the memlab._torch extension], or [] with one printed line that says why."""
    wanted = os.environ.get("MEMLAB_TORCH", "auto")
    if wanted not in ("auto", "0", "1"):
        raise SystemExit(f"memlab: MEMLAB_TORCH={wanted}: expected auto, 0 or 1")
    if wanted == "0":
        return []
    if bridge_module().find_torch() is None:
        if wanted == "1":
            raise SystemExit(
                "memlab: MEMLAB_TORCH=1, but torch cannot be imported by "
                f"{sys.executable}: install torch there, and pass "
                "--no-build-isolation to pip"
            )
        print("memlab: no torch here, memlab._torch is built at first use instead")
        return []
    return [Extension(TORCH, sources(".cpp", "torch"))]


def extensions():
    found = [Extension(CORE, sources(".c", "core", "py"))]
    if sys.platform == "linux" and platform.machine() == "x86_64":
        if phantom := sources(".c", "phantom"):
            found.append(Extension(PHANTOM, phantom + PHANTOM_CORE))
    return found + torch_extension()


@functools.cache
def bridge_module():
    """_native/bridge.py by its path, without importing memlab, which is not built."""
    spec = importlib.util.spec_from_file_location(
        "memlab_build_bridge", ROOT / "memlab" / "_native" / "bridge.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bridge_file_name():
    """The name of a bridge for the torch that is here; it stands for torch, Python and
    the bridge's sources."""
    return bridge_module().file_name(bridge_module().bridge_key())


def copy_bridge_sources(package):
    """Ships in PACKAGE what a bridge for another torch is compiled from."""
    shipped = Path(package, "_bridge_src")
    for source in ["csrc/core/memlab.h", *sources(".cpp", "torch"), *sources(".h", "torch")]:
        target = shipped / Path(source).relative_to("csrc")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


class BuildPackage(build_py):
    def run(self):
        if getattr(self, "editable_mode", False):
            super().run()
            return
        # What an earlier build left there, perhaps with torch, would be packed too.
        package = Path(self.build_lib, "memlab")
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        copy_bridge_sources(package)
        # Read by Python at its start: see memlab/_cli/variable.py.
        shutil.copy("memlab.pth", self.build_lib)


class BuildNative(build_ext):
    """Compiles file by file, into a folder of our own that outlives pip's temporary
    ones, and only what changed since the last time."""

    def run(self):
        compiler = self.find_tools()
        # What is up to date is judged here: setuptools goes by whole seconds, and would
        # neither link again nor copy what was made in the same one.
        self.force = True
        self.objects_dir = Path(
            "build",
            f"native-{sysconfig.get_platform()}-{sys.implementation.cache_tag}-{compiler}",
        )
        self.objects_dir.mkdir(parents=True, exist_ok=True)
        with open(self.objects_dir / "lock", "w") as lock:
            # Another build may be under way: its objects are not to be linked half made.
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.run_alone()

    def run_alone(self):
        bridges = [ext for ext in self.extensions if ext.name == TORCH]
        for ext in bridges:
            try:
                self.build_bridge()
            except Exception as error:
                if os.environ.get("MEMLAB_TORCH") == "1":
                    raise SystemExit(f"memlab: {error}") from error
                print(f"memlab: memlab._torch is not built: {error}")
                self.extensions.remove(ext)
        super().run()
        if bridges and (self.inplace or getattr(self, "editable_mode", False)):
            self.remove_old_bridges()

    def find_tools(self):
        """The name of the C compiler, which is there and so are Python's headers."""
        command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC"))
        if shutil.which(command[0]) is None:
            raise SystemExit(
                f"memlab: no C compiler: {command[0]!r} not found; install gcc "
                "(Debian: apt-get install gcc libc6-dev) or set CC"
            )
        include = sysconfig.get_path("include")
        if not Path(include, "Python.h").exists():
            raise SystemExit(
                f"memlab: Python.h not found in {include}; install Python's headers "
                "(Debian: apt-get install python3-dev)"
            )
        return Path(command[0]).name

    def get_ext_filename(self, fullname):
        # Without the package's name where setuptools asks for files in the checkout.
        folder, name = os.path.split(os.path.join(*fullname.split(".")))
        if name == "libmemlab_phantom":
            return os.path.join(folder, name + ".so")
        if name == "_torch":
            return os.path.join(folder, bridge_file_name())
        return super().get_ext_filename(fullname)

    def build_extension(self, ext):
        build = {
            CORE: self.build_core,
            PHANTOM: self.build_phantom,
            TORCH: lambda ext: self.build_bridge(),
        }
        product = build[ext.name](ext)
        target = Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        # A new file, not new bytes in the old one: a process may have it mapped.
        temporary = target.with_name(target.name + ".new")
        shutil.copy(product, temporary)
        os.replace(temporary, target)

    def build_core(self, ext):
        # As a system folder, so that our warnings do not judge Python's headers.
        common = ["-fvisibility=hidden", "-fno-plt"]
        common += ["-isystem", sysconfig.get_path("include")]
        common += ["@tools/warnings.flags", *mode_flags(), *instrument_flags()]
        common += ["-Icsrc", "-Icsrc/core", "-Icsrc/py"]

        def flags_of(source):
            of_core = source.startswith("csrc/core/")
            return [*common, *(["@tools/warnings-core.flags"] if of_core else [])]

        return self.build_shared(ext, flags_of, ["-pthread", "-ldl", *instrument_flags()])

    def build_phantom(self, ext):
        common = ["-fvisibility=hidden", "@tools/warnings.flags", *mode_flags()]
        return self.build_shared(
            ext,
            lambda source: [*common, "-Icsrc", "-Icsrc/phantom", "-Icsrc/core"],
            ["-pthread", "-Wl,-soname,libcuda.so.1", "-ldl"],
        )

    def build_shared(self, ext, flags_of, link_flags):
        """Objects of EXT.sources, each with FLAGS_OF(source), linked; the product."""
        folder = self.objects_dir / ext.name
        folder.mkdir(parents=True, exist_ok=True)
        product = folder / Path(self.get_ext_filename(ext.name)).name
        headers = [
            found
            for pattern in ("csrc/**/*.h", "csrc/**/*.def", "tools/*.flags")
            for found in glob.glob(pattern, recursive=True)
        ]
        newest_header = max((os.path.getmtime(h) for h in headers), default=0)

        def compile_one(source):
            flags = flags_of(source)
            (made,) = self.compiler.object_filenames([source], output_dir=str(folder))
            key = Path(made + ".flags")
            wanted = digest(self.compiler.compiler_so, flags)
            needed = max(newest_header, os.path.getmtime(source))
            if not (is_newer(made, needed) and read(key) == wanted):
                self.compiler.compile(
                    [source], output_dir=str(folder), extra_postargs=flags
                )
                key.write_text(wanted)
            return made, wanted

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            compiled = list(pool.map(compile_one, ext.sources))
        objects = [made for made, _ in compiled]
        key = folder / "link.flags"
        wanted = digest(self.compiler.linker_so, [*link_flags, *compiled])
        if read(key) != wanted or not is_newer(
            product, max(map(os.path.getmtime, objects))
        ):
            self.compiler.link_shared_object(
                objects, str(product), extra_postargs=link_flags
            )
            key.write_text(wanted)
        return product

    def build_bridge(self):
        """The bridge for the torch that is here, built unless that was done."""
        product = self.objects_dir / TORCH / bridge_file_name()
        product.parent.mkdir(parents=True, exist_ok=True)
        if not product.exists():
            bridge_module().build(product, bridge_module().find_torch())
        return product

    def remove_old_bridges(self):
        """Removes bridges from sources that are no more, for this torch."""
        name = bridge_file_name()
        for other in Path("memlab").glob(name.rpartition("-")[0] + "-*.so"):
            if other.name != name:
                other.unlink()


def digest(command, flags):
    return hashlib.sha256(repr([*command, *flags]).encode()).hexdigest()


def read(path):
    return path.read_text() if path.exists() else None


def is_newer(path, time):
    return os.path.exists(path) and os.path.getmtime(path) > time


if "t" in sys.abiflags:
    raise SystemExit(
        f"memlab: {sys.executable} is a free-threaded CPython, and memlab needs one with "
        "the GIL, which keeps stacks and objects still while memlab reads them: install "
        "it there, as in: uv venv --python 3.14"
    )
os.chdir(ROOT)
setup(
    license="MIT",
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildNative, "build_py": BuildPackage},
)
