"""What the allocator's callback can reach, read from the relocations of object files.

The callback runs under torch's device lock, with or without the GIL: it may take no lock,
memory, GIL or I/O.  Every function that ml_recorder_record can call, directly or through
the stack walker, is followed through the compiled objects; what they refer to outside
memlab must be on the short list below.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The one question to CPython (DESIGN: which thread state is this thread's), the function of
# bytes that its hashes are, and plain copies and comparisons of memory.
ALLOWED = {
    "PyGILState_GetThisThreadState",
    "_Py_HashBytes",
    "Py_HashBuffer",
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "strlen",
    # Reads the entries of a dict, with no use of the thread's state.
    "PyDict_Next",
    # Where these types are, to tell that an object is one of them.
    "PyDict_Type",
    "PyTuple_Type",
}

# Entered through pointers, which relocations do not follow.
ROOTS = [
    "ml_recorder_record",
    "ml_recorder_used",
    "ml_frames_capture",
    "ml_forward_traceback",
]

# Where the walk over frames failed its check at import: public API instead, and only for a
# thread that holds the GIL already.
FALLBACK = {"ml_frames_public_walk", "ml_frames_holds_gil"}


class Objects:
    """csrc/core and, of csrc/py, what captures stacks, one section a function, as released.
    A file is compiled when a search comes to a name of it."""

    def __init__(self, compiler, folder):
        self.compiler = compiler
        self.folder = folder
        files = sorted((ROOT / "csrc" / "core").rglob("*.c"))
        names = ("codes.c", "forward.c", "frames.c", "frames_public.c")
        files += [ROOT / "csrc/py/frames" / name for name in names]
        self.left = {file: file.read_text() for file in files}  # not compiled yet
        self.edges = collections.defaultdict(set)  # (file, function): names it refers to
        self.defined = collections.defaultdict(set)  # name: files that define it

    def homes(self, name):
        """The files that define NAME, by lines outside of functions that may do so."""
        begins = re.compile(rf"^(?:\w.*\b)?{re.escape(name)} *[\[(=;]", re.M)
        for file in [file for file, text in self.left.items() if begins.search(text)]:
            del self.left[file]
            self.compile(file)
        return self.defined.get(name, set())

    def compile(self, file):
        made = self.folder / f"{file.stem}.o"
        subprocess.run(
            [self.compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fno-inline",
             "-ffunction-sections", "-fno-stack-protector", "-DNDEBUG",
             f"-I{sysconfig.get_path('include')}",
             *(f"-I{ROOT}/{folder}" for folder in ("csrc", "csrc/core", "csrc/py")),
             "-c", str(file), "-o", str(made)],
            check=True,
        )
        text = subprocess.run(["objdump", "-tr", str(made)], capture_output=True,
                              text=True, check=True).stdout
        function = None
        for line in text.splitlines():
            symbol = re.match(r"^[0-9a-f]+ .{7} (\S+)\s+[0-9a-f]+\s+(?:\.\w+ )?(\S+)$", line)
            if symbol and symbol[1] != "*UND*":
                self.defined[symbol[2]].add(file)
            section = re.match(r"^RELOCATION RECORDS FOR \[(\S+)\]", line)
            if section:
                function = function_in(section[1])
            relocation = re.match(r"^[0-9a-f]+ R_\S+\s+(\S+)", line)
            if relocation and function:
                name = re.sub(r"[+-]0x[0-9a-f]+$", "", relocation[1])
                self.edges[file, function].add(function_in(name) or name)


def function_in(section):
    """The function whose code a section has, be it the part that is rarely run."""
    name = re.match(r"\.text\.(?:unlikely\.)?(.+)$", section)
    return name and name[1].removesuffix(".cold")


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or shutil.which("objdump") is None:
        pytest.skip("needs a C compiler and objdump (Debian: gcc, binutils)")
    return Objects(compiler, tmp_path_factory.mktemp("objects"))


def reached(objects, root):
    """{foreign name: the chain of functions that leads to it}, names that are reached"""
    start = [(file, root) for file in objects.homes(root)]
    assert start, f"{root} is defined nowhere"
    chains = {node: [node[1]] for node in start}
    foreign = {}
    queue = collections.deque(start)
    while queue:
        file, function = node = queue.popleft()
        for name in objects.edges.get(node, ()):
            if name in FALLBACK or name.startswith("."):
                continue
            here = file in objects.defined.get(name, ())
            home = file if here else next(iter(objects.homes(name)), None)
            if home is None:
                foreign.setdefault(name, chains[node])
            elif (home, name) not in chains:
                chains[home, name] = [*chains[node], name]
                queue.append((home, name))
    return foreign, {name for _, name in chains}


@pytest.mark.parametrize("root", ROOTS)
def test_the_callback_reaches_nothing_foreign(objects, root):
    foreign, _ = reached(objects, root)
    forbidden = {
        name: " > ".join(chain) for name, chain in foreign.items() if name not in ALLOWED
    }
    assert not forbidden


def test_the_proof_would_notice(objects):
    """The same search finds system calls where they are, and the parts of the hot path."""
    foreign, _ = reached(objects, "ml_lane_reserve")
    assert "mmap" in foreign
    _, functions = reached(objects, "ml_recorder_record")
    assert {"ml_feed_record", "ml_ledger_apply", "ml_lane_push"} <= functions
