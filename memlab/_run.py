"""`memlab run`: a program as it would run alone, with its memory recorded."""

import fcntl
import linecache
import os
import runpy
import signal
import sys
import threading
import traceback

from memlab import _core, _page, _report, _sources, phantom
from memlab._errors import Error
from memlab._memory_snapshot import MemorySnapshot


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    if not options.module and not os.path.isfile(options.program):
        raise Error(f"{options.program}: no such program")
    if options.phantom and not _sources.under_phantom():
        _restart_on_phantom(options.phantom)
    outputs = _Outputs(options.out)
    source = _source(options)
    snapshot = MemorySnapshot(
        max_entries=options.max_entries, source=source, stacks=options.stacks
    )
    snapshot.start()
    if source == "cuda":
        _watch_out_of_memory(snapshot, outputs)
    print(f"memlab: recording {_described(source)}", file=sys.stderr)
    status, interrupted = _execute(options)
    _finish(snapshot, outputs, options)
    if interrupted:
        # Ends as the program alone would have, so that a shell sees the interrupt.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status


class _Outputs:
    """The folder of the results, held by one process at a time for each rank."""

    def __init__(self, folder):
        self.folder = folder
        self.rank = os.environ.get("RANK", "0")
        if not self.rank.isdigit():
            raise Error(f"RANK={self.rank!r} is no number")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f".rank{self.rank}.lock")
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Error(
                f"{folder} is being written by another memlab run; choose another --out"
            ) from None
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder}: no permission to write; choose another --out")

    def path(self, ending):
        return os.path.join(self.folder, f"rank{self.rank}{ending}")

    def report_path(self, ending=".txt"):
        name = "report" if self.rank == "0" else f"report_rank{self.rank}"
        return os.path.join(self.folder, name + ending)


def _restart_on_phantom(gpu):
    """Replaces this process by one on the phantom device, where that is wanted."""
    import importlib.util

    if gpu == "auto":
        if _sources.gpu_present():
            return
        gpu = "h200"
    if importlib.util.find_spec("torch") is None:
        raise Error("--phantom needs a CUDA build of torch; pip install torch")
    environment = {**os.environ, **phantom.environment(gpu)}
    command = [sys.executable, "-m", "memlab", *sys.argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)


def _source(options):
    if options.device == "auto":
        source = _sources.default()
    else:
        source = options.device
    if source == "cuda" and not _sources.gpu_present():
        raise Error("no GPU here; add --phantom for a stand-in, or --device cpu")
    return source


def _described(source):
    if source == "cpu":
        return "the memory of the CPU"
    if _sources.under_phantom():
        name = os.environ.get("MEMLAB_PHANTOM_GPU", "")
        return f"the phantom device ({name}): results are not computed"
    return "the GPU"


def _execute(options):
    """Runs the program in this process: (exit status, whether it was interrupted)."""
    arguments, path = sys.argv, sys.path[0]
    sys.argv = [options.program, *options.arguments]
    try:
        if options.module:
            sys.path[0] = os.getcwd()
            runpy.run_module(options.program, run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = os.path.dirname(os.path.abspath(options.program))
            runpy.run_path(options.program, run_name="__main__")
    except SystemExit as exit:
        return _exit_status(exit.code), False
    except KeyboardInterrupt:
        _print_traceback()
        return 130, True
    except BaseException:
        _print_traceback()
        return 1, False
    finally:
        sys.argv, sys.path[0] = arguments, path
        _wait_for_threads()
    return 0, False


def _exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _print_traceback():
    """The program's own traceback: without the frames that ran it."""
    kind, error, tb = sys.exc_info()
    runners = (__file__, runpy.__file__, "<frozen runpy>")
    while tb is not None and tb.tb_frame.f_code.co_filename in runners:
        tb = tb.tb_next
    traceback.print_exception(kind, error, tb)


def _wait_for_threads():
    """As the interpreter does at its end: what they allocate belongs to the run."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _watch_out_of_memory(snapshot, outputs):
    """At the first CUDA out of memory, writes what led to it, before torch raises."""
    from memlab import _bridge

    written = []

    def on_out_of_memory(device, wanted, total, free):
        if written:
            return
        written.append(True)
        recording = snapshot.data()
        path = outputs.path("_oom.pickle")
        recording.write_pickle(path, True)
        text = (
            f"cuda:{device} ran out of memory: {_report.size(wanted)} were asked for, "
            f"{_report.size(free)} of {_report.size(total)} were free.\n\n"
            + _report.text(recording)
        )
        report = outputs.report_path("_oom.txt")
        _core.write_file(report, text.encode("utf-8", "backslashreplace"))
        print(f"memlab: out of memory; wrote {path} and {report}", file=sys.stderr)

    _bridge.load().set_oom_callback(on_out_of_memory)


def _finish(snapshot, outputs, options):
    """Writes the results; what cannot be written is said, and the program's status
    stands."""
    try:
        snapshot.stop()
        recording = snapshot.data()
        pickle_path, page_path = outputs.path(".pickle"), outputs.path(".html")
        recording.write_pickle(pickle_path, True)
        text = _report.text(recording, code=linecache.getline)
        _core.write_file(
            outputs.report_path(), text.encode("utf-8", "backslashreplace")
        )
        page = _page.assemble(
            recording.page_data(), title=os.path.basename(options.program)
        )
        _core.write_file(page_path, page)
    except (Error, OSError, MemoryError) as error:
        print(f"memlab: the recording could not be written: {error}", file=sys.stderr)
        return
    print()
    print(text)
    print(f"Snapshot: {pickle_path}")
    print(f"Page:     {page_path}")
    print(f"Report:   {outputs.report_path()}")
    sys.stdout.flush()
