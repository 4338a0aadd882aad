"""Runs a program in this process as Python alone would: for `memlab run` and `memlab
lines`.

Owns how it starts (__main__, sys.argv, sys.path, on which device) and how its end is
reported.
"""

import atexit
import builtins
import ctypes
import importlib.machinery
import importlib.util
import os
import re
import runpy
import shlex
import signal
import sys
import threading
import traceback
import types

from memlab import phantom
from memlab._errors import Error
from memlab._files import names
from memlab._native import devices, sources
from memlab._run import commands, made_up, outside, splits, values
from memlab._text import terminal, wording

# What torch says where a program wants a GPU and there is none.
_NO_GPU = ("Found no NVIDIA driver", "No CUDA GPUs are available")


def prepare(options) -> str:
    """The source of memory events: "cuda" or "cpu".

    Raises memlab.Error where the program or the source is not there, or torch has no code
    for the GPU.  It does not return where it starts this process anew: with --phantom on the
    phantom device; for a launcher, as torchrun, as one that records each process.
    """
    if not options.module and not os.path.isfile(options.program):
        launched = commands.recording(words(options)[1:], own_words(options))
        if launched:
            _become(launched)
        raise Error(f"{options.program}: no such program; {_instead(options)}")
    if options.module and not _module_exists(options.program):
        raise Error(f"no module named {options.program}")
    if options.phantom is not None and not devices.under_phantom():
        _restart_on_phantom(options.phantom)
    if devices.under_phantom():
        values.for_children()
    source = sources.default() if options.device == "auto" else options.device
    if source == "cuda" and not devices.gpu_present():
        raise Error("no GPU here; add --phantom for a stand-in, or --device cpu")
    if source == "cuda" and devices.under_phantom():
        os.environ[values.TOLD] = "1"
        _refuse_without_code()
        made_up.watch()
        splits.watch()
    return source


def _refuse_without_code():
    """Raises memlab.Error if torch has no code for the GPU of the phantom."""
    importlib.import_module("torch")  # which registers its code
    ask = ctypes.CDLL(None).memlab_phantom_refusal
    ask.restype = ctypes.c_char_p
    refusal = ask()
    if refusal is not None:
        raise Error(refusal.decode())


def words(options) -> list[str]:
    """The program and its arguments, as words for python."""
    module = ["-m"] if options.module else []
    return ["python", *module, options.program, *options.arguments]


def own_words(options) -> list[str]:
    """memlab's command and options as given, before the program runs."""
    # The program and what stands right before it: python, -m.
    others = len(options.arguments) + 1 + options.module + options.python
    return sys.argv[1 : len(sys.argv) - others]


def described(source) -> str:
    """SOURCE for people."""
    if source == "cpu":
        return "the memory of the CPU"
    if devices.under_phantom():
        return f"the phantom device ({_phantom()}): only small results are computed"
    return "the GPU"


def _phantom():
    """The phantom's GPUs, for people: their number, their name, the memory of one."""
    variables = phantom.environment()
    name, count = variables["MEMLAB_PHANTOM_GPU"], int(variables["MEMLAB_PHANTOM_DEVICES"])
    memory = variables["MEMLAB_PHANTOM_MEMORY"] or phantom.gpus()[name].total_bytes
    each = wording.size(int(memory))
    return f"{count} x {name}, {each} each" if count > 1 else f"{name}, {each}"


def rank() -> str:
    """The number of this process in a distributed run; "0" if there is one process."""
    text = os.environ.get("RANK")
    if text is None:
        return str(names.ranks()["rank"])
    if not text.isdigit():
        raise Error(f"RANK={text!r} is not a number: set it to the rank, or unset it")
    return text


def _instead(options):
    """What to do about a program that is not there.  Behind --phantom it may be a GPU's name."""
    name = options.program
    if options.phantom == "" and re.fullmatch(r"[\w-]*\d[\w-]*", name):
        try:
            phantom.find_gpu(name)
        except ValueError as error:
            return f"as a GPU: {error}"
        except FileNotFoundError:
            pass
    return "give the file of a script"


def _module_exists(name):
    """Whether the package of the module NAME can be found; imports nothing."""
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False
    finally:
        del sys.path[0]


def _become(command):
    """Replaces this process by that of COMMAND, a list of words."""
    terminal.say(f"memlab: {shlex.join(command)}", sys.stderr)
    try:
        os.execv(commands.find(command[0]) or command[0], command)
    except OSError as error:
        raise Error(f"{command[0]}: {error.strerror}") from None


def _restart_on_phantom(gpu):
    """Replaces this process by one on the phantom device, if requested; GPU "": the
    default.
    """
    if gpu == "auto":
        if devices.gpu_present():
            return
        gpu = ""
    if importlib.util.find_spec("torch") is None:
        raise Error("--phantom needs a CUDA build of torch; pip install torch")
    environment = {**os.environ, **phantom.environment(gpu)}
    command = [sys.executable, "-m", "memlab", *sys.argv[1:]]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os.execve(sys.executable, command, environment)


def run(options, finish, compiled=None) -> int:
    """Runs the program, then calls FINISH(), and returns the program's exit status.
    The status is 1 instead of 0 if FINISH returns False: the answer was not written.

    COMPILED(code) is called with a script's code before it runs.  A child forked by the
    program returns too, without FINISH.  After Ctrl-C the process ends as the program
    alone would, so that a shell sees the interrupt.
    """
    process = os.getpid()
    status, interrupted = _execute(options, compiled)
    if os.getpid() == process:
        try:
            if finish() is False:
                status = status or 1
        except KeyboardInterrupt:
            interrupted = True
            terminal.say("memlab: interrupted again: not all results were written", sys.stderr)
    if interrupted:
        # As the interpreter does before it dies of the signal.
        atexit._run_exitfuncs()
        _die_of(signal.SIGINT)
    return status


def _execute(options, compiled):
    """(exit status, whether it was interrupted)"""
    sys.argv = [options.program, *options.arguments]
    # The program's module stays __main__ after its end, as without memlab: for its
    # threads and exit handlers, and so that the last search finds its objects.
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    sys.modules["__main__"] = main
    interrupted = False
    try:
        if options.module:
            sys.path[0] = os.getcwd()
            runpy._run_module_as_main(options.program)
        else:
            _run_script(os.path.abspath(options.program), main, compiled)
        status = 0
    except SystemExit as exit:
        status = _exit_status(exit.code)
    except KeyboardInterrupt as error:
        _show(error)
        status, interrupted = 130, True
    except BaseException as error:
        _show(error)
        outside.note(error)
        _name_the_phantom(error)
        _say_the_cause(error)
        status = 1
    try:
        _wait_for_threads()
    except KeyboardInterrupt:
        interrupted = True
    return status, interrupted


def _run_script(path, main, compiled):
    """Runs the script at the absolute PATH in the module MAIN, as python PATH does."""
    main.__file__ = path
    main.__cached__ = None
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    sys.path[0] = os.path.dirname(path)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    if compiled is not None:
        compiled(code)
    exec(code, main.__dict__)


def _exit_status(code):
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show(error):
    """Shows the program's exception as the interpreter does, without the frames that
    ran it.
    """
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


def _name_the_phantom(error):
    """Where the program ended by ERROR because there is no GPU, says how it would run."""
    if not any(words in str(error) for words in _NO_GPU) or devices.gpu_present():
        return
    terminal.say(
        "memlab: no GPU here; memlab run --phantom runs the program on a stand-in for one",
        sys.stderr,
    )


def _say_the_cause(error):
    """That memory outside torch's allocator ended the program by ERROR; else, on the phantom,
    what it may have looked at."""
    full = outside.sentences(error)
    text = outside.line(full[0]) if full else made_up.failed(error)
    if text is not None:
        terminal.show(text, sys.stderr)


def _wait_for_threads():
    """As the interpreter does at its end: these threads' allocations belong to the run.
    """
    # This asks workers of executors to end; it can be repeated.
    for ask in reversed(getattr(threading, "_threading_atexits", ())):
        ask()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def when_terminated(write, what) -> None:
    """If SIGTERM would end the program, calls WRITE() first; WHAT names the output."""
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def on_terminate(number, frame):
        # print is unsafe: the signal may have come in the middle of one.
        os.write(2, f"memlab: terminated; writing {what}\n".encode())
        try:
            write()
        finally:
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
    # A forked child has nothing to write and dies at once, as without memlab.  A signal
    # before the child has its own handler would be lost, so it is held until then.
    os.register_at_fork(before=hold, after_in_child=in_child, after_in_parent=let_in)


def _die_of(number):
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def flush(stdout) -> None:
    """If the program replaced its first stdout, STDOUT, flushes the other one first."""
    if sys.stdout is not stdout:
        try:
            sys.stdout.flush()
        except (AttributeError, OSError, ValueError):
            pass
