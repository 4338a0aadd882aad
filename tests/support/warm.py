"""Processes that have imported torch, of which programs are forked: most of what a short
program costs is that import.

A child stands for a new process because its parent has done nothing but import:

- It was started for the child's environment and options of Python, so what torch reads when
  it is loaded is as it would be.  What the phantom device reads at the initialisation of
  CUDA, LATE, is the child's own.
- It has not imported memlab, initialised CUDA or started a thread; OpenBLAS, which numpy
  loads, ends its own before a fork.
- The program is __main__, with its arguments, folder, standard streams and sys.path, and
  the interpreter ends after it as it does after any: threads joined, atexit called,
  everything finalised.  What kills the child is told as subprocess tells it.

What differs: `import torch` does nothing, torch._dynamo is there before the first
optimizer imports it, the outermost frame of every stack is one of this file, the garbage
collector passes over the objects of the import, and all children have one address layout
and one seed of hashes.  Where that matters to a test it starts a new process.  Triton, which
torch._dynamo imports from torch 2.15 on, complains at exit of what the collector passed
over: that is left out of the output.
"""

import atexit
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from pathlib import Path

MOST = 2  # parents of a thread at a time: each holds some 300 MiB
LATE = {f"MEMLAB_PHANTOM_{name}" for name in ("BACKED", "DEVICES", "GPU", "MEMORY", "QUIET")}
_mine = threading.local()  # .parents: (options, environment) -> Parent, the last used last
_UNCOLLECTED = re.compile(r"^nanobind: leaked .*?^See \S+?/refleaks\.html\n?", re.M | re.S)


def run(program, *arguments, env=None, cwd=None, options=(), timeout=300):
    """What subprocess.run(capture_output=True, text=True) gives for this Python with
    OPTIONS on PROGRAM, a path or the source itself, as after -c."""
    env = {k: v for k, v in (env or os.environ).items() if k != "PYTEST_CURRENT_TEST"}
    late = {name: env.pop(name) for name in LATE & env.keys()}
    key = (*options, *sorted(env.items()))
    parents = _of_thread()
    parent = parents.pop(key, None) or Parent(options, env)
    parents[key] = parent
    while len(parents) > MOST:
        parents.pop(next(iter(parents))).end()
    return parent.run(program, arguments, cwd or os.getcwd(), late, timeout)


def end():
    """Ends every parent of this thread; those of others end with the process."""
    parents = _of_thread()
    while parents:
        parents.popitem()[1].end()


def _of_thread():
    # A parent runs one program at a time.
    if not hasattr(_mine, "parents"):
        _mine.parents = {}
    return _mine.parents


class Parent:
    """A process that forks one program at a time."""

    def __init__(self, options, env):
        self.door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, *options, __file__, str(theirs.fileno())],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def run(self, program, arguments, cwd, late, timeout):
        is_file = isinstance(program, Path)
        words = [str(program), *map(str, arguments)]
        order = json.dumps([is_file, words, str(cwd), late]).encode()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self.door, [order], [out.fileno(), err.fileno()])
            child = self.told(None)
            try:
                status = self.told(timeout)
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                self.told(None)
                raise subprocess.TimeoutExpired(words, timeout) from None
            texts = []
            for file in out, err:
                file.seek(0)
                texts.append(_UNCOLLECTED.sub("", file.read().decode()))
        return subprocess.CompletedProcess(words, status, *texts)

    def told(self, timeout):
        """The next number that the process tells."""
        self.door.settimeout(timeout)
        number = self.door.recv(64)
        if not number:
            raise RuntimeError(f"the process that forks ended: {self.process.wait()}")
        return int(number)

    def end(self):
        self.door.close()
        self.process.wait()


def serve(door):
    """Forks a child for every order; returns in the child, with its code and globals."""
    before = set(os.environ)
    import torch
    import torch._dynamo

    # With tabulate installed its table, at exit, has the interpreter forget that Ctrl-C
    # ended the program.
    atexit.unregister(torch._dynamo.utils.dump_compile_times)
    for name in set(os.environ) - before:  # the folder for what is compiled
        del os.environ[name]
    assert not torch.cuda.is_initialized() and "memlab" not in sys.modules
    gc.freeze()
    while True:
        order, streams, _, _ = socket.recv_fds(door, 1 << 20, 2)
        if not order:
            os._exit(0)
        child = os.fork()
        if child == 0:
            door.close()
            return prepare(*json.loads(order), streams)
        for stream in streams:
            os.close(stream)
        door.send(str(child).encode())
        _, status = os.waitpid(child, 0)
        door.send(str(os.waitstatus_to_exitcode(status)).encode())


def prepare(is_file, words, cwd, late, streams):
    """Makes this process the program's; returns its code and globals."""
    os.environ.update(late)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    source, name = words[0], "<string>"
    if is_file:
        source, name = Path(source).read_bytes(), source
        module.__file__ = name
        sys.argv[:], sys.path[0] = words, str(Path(name).resolve().parent)
    else:
        sys.argv[:], sys.path[0] = ["-c", *words[1:]], ""
    return compile(source, name, "exec", dont_inherit=True), module.__dict__


if __name__ == "__main__":
    exec(*serve(socket.socket(fileno=int(sys.argv[1]))))
