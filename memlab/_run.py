"""`memlab run`: a program as it would run alone, with its memory recorded."""

import builtins
import fcntl
import importlib.machinery
import importlib.util
import linecache
import os
import runpy
import signal
import sys
import threading
import traceback
import types

from memlab import _core, _oom, _page, _report, _sources, _terminal, phantom
from memlab._errors import Error
from memlab._memory_snapshot import MemorySnapshot


def run(options) -> int:
    """Runs options.program and returns its exit status."""
    if not options.module and not os.path.isfile(options.program):
        raise Error(f"{options.program}: no such program; give the file of a script")
    if options.module and not _module_exists(options.program):
        raise Error(f"no module named {options.program}")
    if options.phantom is not None and not _sources.under_phantom():
        _restart_on_phantom(options.phantom)
    outputs = _Outputs(options)
    source = _source(options)
    snapshot = _start(options, source, outputs)
    watch = None
    if source == "cuda":
        watch = _oom.Watch(
            snapshot, outputs.oom_paths, linecache.getline, outputs.start
        )
        watch.begin()
    print(f"memlab: recording {_described(source)}", file=sys.stderr)
    stdout = sys.stdout
    _write_when_terminated(snapshot, outputs, watch)
    status, interrupted = _execute(options)
    try:
        text = _write(snapshot, outputs, watch)
    except KeyboardInterrupt:
        interrupted = True
        print(
            "memlab: interrupted again: not all results were written", file=sys.stderr
        )
    else:
        _tell(text, outputs, stdout)
    if interrupted:
        # Ends as the program alone would have, so that a shell sees the interrupt.
        _die_of(signal.SIGINT)
    return status


def _start(options, source, outputs):
    """A recording under way; without its file where that cannot be had."""
    how = {"max_entries": options.max_entries, "source": source, "stacks": options.stacks}
    path = outputs.path(".mlab")
    try:
        snapshot = MemorySnapshot(
            **how, file=path, max_file_bytes=options.max_file_bytes
        ).start()
        outputs.events = path
        return snapshot
    except (Error, ValueError) as error:
        snapshot = MemorySnapshot(**how).start()
        _terminal.say(f"memlab: recording without {path}: {error}", sys.stderr)
        return snapshot


def _module_exists(name):
    """Whether the package that the module NAME lies in can be found; imports nothing."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
    finally:
        del sys.path[0]


class _Outputs:
    """The folder of the results, held by one process at a time for each rank."""

    def __init__(self, options):
        folder = options.out
        self.program = os.path.basename(options.program)
        self.start = os.getcwd()
        self.events = None  # path of the file of all events, where there is one
        # The program may go to another folder; the results stay where they were asked.
        self.folder = os.path.abspath(folder)
        self.rank = os.environ.get("RANK", "0")
        if not self.rank.isdigit():
            raise Error(f"RANK={self.rank!r} is no number")
        try:
            os.makedirs(self.folder, exist_ok=True)
            path = os.path.join(self.folder, f".rank{self.rank}.lock")
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Error(
                f"cannot write results to {folder!r}: {error.strerror}; choose another "
                "--out"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Error(
                f"{folder} is being written by another memlab run; choose another --out"
            ) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise Error(f"{folder}: no permission to write; choose another --out")

    def shown(self, path):
        """PATH for people, who stand in the folder where memlab was started."""
        return _report.shorten(path, self.start)

    def path(self, ending):
        return os.path.join(self.folder, f"rank{self.rank}{ending}")

    def report_path(self, ending=".txt"):
        name = "report" if self.rank == "0" else f"report_rank{self.rank}"
        return os.path.join(self.folder, name + ending)

    def oom_paths(self, last):
        ending = "_oom_last" if last else "_oom"
        return self.path(ending + ".pickle"), self.report_path(ending + ".txt")


def _restart_on_phantom(gpu):
    """Replaces this process by one on the phantom device, where that is wanted; GPU ""
    names none."""
    if gpu == "auto":
        if _sources.gpu_present():
            return
        gpu = ""
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
    sys.argv = [options.program, *options.arguments]
    # The program's module stays __main__ after its end, as it does without memlab: for
    # its threads and exit handlers, and so that the last look finds what it holds.
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    interrupted = False
    try:
        if options.module:
            sys.path[0] = os.getcwd()
            runpy._run_module_as_main(options.program)
        else:
            _run_script(os.path.abspath(options.program), main)
        status = 0
    except SystemExit as exit:
        status = _exit_status(exit.code)
    except KeyboardInterrupt as error:
        _show(error)
        status, interrupted = 130, True
    except BaseException as error:
        _show(error)
        status = 1
    try:
        _wait_for_threads()
    except KeyboardInterrupt:
        interrupted = True
    return status, interrupted


def _run_script(path, main):
    """Runs the script at the absolute PATH in the module MAIN, as python PATH does."""
    main.__file__ = path
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.path[0] = os.path.dirname(path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show(error):
    """Shows what ended the program as the interpreter does, without the frames that ran
    it."""
    runners = (__file__, runpy.__file__, "<frozen runpy>")
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename in runners:
        tb = tb.tb_next
    error.__traceback__ = tb
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, tb
    try:
        sys.excepthook(type(error), error, tb)
    except BaseException:
        traceback.print_exc()
        traceback.print_exception(type(error), error, tb)


def _wait_for_threads():
    """As the interpreter does at its end: what they allocate belongs to the run."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _write_when_terminated(snapshot, outputs, watch):
    """Where SIGTERM would end the program, writes the results before it does."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def on_terminate(number, frame):
        # Not by print: the signal may have come in the middle of one.
        os.write(2, b"memlab: terminated; writing the recording\n")
        _write(snapshot, outputs, watch)
        _die_of(number)

    def in_child():
        if signal.getsignal(signal.SIGTERM) is on_terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        let_in()

    def hold():
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def let_in():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    signal.signal(signal.SIGTERM, on_terminate)
    # A forked child has nothing to write and dies at once, as it would alone. A signal
    # that came before the child has its own handler would be lost: it waits that long.
    os.register_at_fork(before=hold, after_in_child=in_child, after_in_parent=let_in)


def _die_of(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _text(recording, outputs):
    return _report.text(recording, code=linecache.getline, start=outputs.start)


def _say_not_written(error):
    _terminal.say(f"memlab: the recording could not be written: {error}", sys.stderr)


def _write(snapshot, outputs, watch):
    """Writes the results and returns the report; what cannot be written is said, the
    program's status stands, and the result is None."""
    try:
        snapshot.stop()
        recording = snapshot.data()
        if watch is not None:
            watch.end(recording)
        recording.write_pickle(outputs.path(".pickle"), True)
        text = _text(recording, outputs)
        _core.write_file(
            outputs.report_path(), text.encode("utf-8", "backslashreplace")
        )
        page = _page.assemble(recording.page_data(), title=outputs.program)
        _core.write_file(outputs.path(".html"), page)
    except (Error, OSError, MemoryError) as error:
        _say_not_written(error)
        return None
    return text


def _tell(text, outputs, stdout):
    """Shows the report on the program's first stdout, whatever became of that."""
    if text is None:
        return
    if sys.stdout is not stdout:
        try:
            sys.stdout.flush()
        except (AttributeError, OSError, ValueError):
            pass
    lines = [
        f"\n{text}",
        f"Snapshot: {outputs.shown(outputs.path('.pickle'))}",
        f"Page:     {outputs.shown(outputs.path('.html'))}",
        f"Report:   {outputs.shown(outputs.report_path())}",
    ]
    if outputs.events is not None:
        lines.append(f"Events:   {outputs.shown(outputs.events)}")
    _terminal.show("\n".join(lines), stdout)
