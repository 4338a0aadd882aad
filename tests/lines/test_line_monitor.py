"""Line profilers beside debuggers, coverage, profilers, forks and the interpreter's end."""

import bdb
import contextlib
import cProfile
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import scripted_lines
from scripted_lines import memory, profiler_of, run_in_thread, table

import memlab

monitors = sys.version_info >= (3, 12)
traces = pytest.mark.skipif(monitors, reason="from 3.12 on no trace function is used")
on_monitoring = pytest.mark.skipif(not monitors, reason="sys.monitoring is new in 3.12")


@pytest.fixture
def m():
    with memory() as blocks:
        yield blocks


class Tracer:
    """A trace function as users write them; notes (event, line) of one function."""

    def __init__(self, function):
        self.code = function.__code__
        self.seen = []

    def __call__(self, frame, event, arg):
        if frame.f_code is self.code:
            self.seen.append((event, frame.f_lineno - self.code.co_firstlineno))
            return self
        return None


def traced(tracer, function, *args):
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(*args)
    finally:
        sys.settrace(before)


# ---- Trace functions of the program ----


def test_a_trace_function_gets_every_event_and_is_what_gettrace_says(m):
    def work():  # def
        m.spike(2)  # spike
        yield sys.gettrace()  # yield
        m.spike(3)  # more

    def both():
        for seen in work():
            answers.append(seen)
        answers.append(sys.gettrace())

    answers = []
    alone = Tracer(work)
    traced(alone, both)
    beside = Tracer(work)
    with profiler_of(work) as profiler:
        # It is there first, then it comes and goes while lines are profiled.
        pass
    sys.settrace(beside)
    try:
        with profiler:
            both()
        answers.append(sys.gettrace())
    finally:
        sys.settrace(None)
    assert answers == [alone, alone, beside, beside, beside]
    assert beside.seen == alone.seen
    assert table(profiler, work) == {"def": 0, "spike": 2, "yield": 0, "more": 3}


def test_trace_functions_that_raise_or_leave(m):
    def work():  # def
        m.spike(1)  # one
        m.spike(2)  # two
        m.spike(3)  # three

    def raising(frame, event, arg):
        if frame.f_code is work.__code__ and frame.f_lineno == second:
            raise KeyError("mine")
        return raising

    def leaving(frame, event, arg):
        if frame.f_code is work.__code__ and frame.f_lineno == second:
            sys.settrace(None)
            return None
        return leaving

    second = work.__code__.co_firstlineno + 2
    sys.settrace(raising)
    with profiler_of(work) as profiler:
        with pytest.raises(KeyError, match="mine"):
            work()
        # As without memlab: a trace function that raised is gone.
        assert sys.gettrace() is None
        work()
    assert table(profiler, work)["three"] == 3
    sys.settrace(leaving)
    with profiler_of(work) as profiler:
        work()
        assert sys.gettrace() is None
        work()
    assert table(profiler, work, "calls")["three"] == 2


def test_a_trace_function_changed_by_another(m):
    def work():  # def
        m.spike(1)  # one
        m.spike(2)  # two

    second = Tracer(work)

    def first(frame, event, arg):
        if frame.f_code is work.__code__ and event == "call":
            sys.settrace(second)
            return second
        return first

    sys.settrace(first)
    try:
        with profiler_of(work) as profiler:
            work()
            assert sys.gettrace() is second
            work()
    finally:
        sys.settrace(None)
    assert table(profiler, work, "calls") == {"def": 2, "one": 2, "two": 2}
    assert second.seen == [
        ("line", 1), ("line", 2), ("return", 2),
        ("call", 0), ("line", 1), ("line", 2), ("return", 2),
    ]  # fmt: skip


def test_a_frames_own_trace_function(m):
    def work():  # def
        m.spike(1)  # one
        sys._getframe().f_trace = note  # set
        m.spike(2)  # two

    def note(frame, event, arg):
        noted.append(frame.f_lineno - work.__code__.co_firstlineno)
        return note

    noted = []
    sys.settrace(lambda *_: None)
    try:
        with profiler_of(work) as profiler:
            work()
    finally:
        sys.settrace(None)
    assert noted == [3, 3]
    assert table(profiler, work) == {"def": 0, "one": 1, "set": 0, "two": 2}


@traces
def test_a_program_that_takes_the_trace_function_away_is_told(m):
    def work():  # def
        m.spike(1)  # one
        sys.settrace(None)  # settrace
        m.spike(2)  # two

    profiler = profiler_of(work)
    profiler.enable()
    work()
    with pytest.warns(RuntimeWarning, match=r"sys.settrace\(\) was called"):
        profiler.disable()
    assert table(profiler, work) == {"def": 0, "one": 1, "settrace": 2}
    assert sys.gettrace() is None


@traces
def test_a_profiler_that_comes_after_a_debugger_sees_lines(m):
    """One that is enabled already, as by @profile, was left without its trace function."""

    def work():  # def
        m.spike(1)  # one

    def later():  # def
        m.spike(2)  # two

    first, second = profiler_of(work), profiler_of(later)
    first.enable()
    debugger = Tracer(later)
    sys.settrace(debugger)
    try:
        work()
        with second:
            later()
            work()
            assert sys.gettrace() is debugger
    finally:
        sys.settrace(None)
    with pytest.warns(RuntimeWarning, match=r"sys.settrace\(\) was called"):
        first.disable()
    assert table(second, later) == {"def": 0, "two": 2}
    assert table(first, work) == {"def": 0, "one": 1}
    assert debugger.seen == [("call", 0), ("line", 1), ("return", 1)]


@on_monitoring
def test_a_program_may_take_its_trace_function_away(m):
    def work():  # def
        m.spike(1)  # one
        sys.settrace(None)  # settrace
        m.spike(2)  # two

    sys.settrace(lambda *_: None)
    with profiler_of(work) as profiler:
        work()
    assert table(profiler, work) == {"def": 0, "one": 1, "settrace": 0, "two": 2}


def test_threadings_trace_function(m):
    def work():  # def
        m.spike(4)  # spike

    alone, beside = Tracer(work), Tracer(work)
    threading.settrace(alone)
    run_in_thread(work)
    threading.settrace(beside)
    try:
        with profiler_of(work) as profiler:
            run_in_thread(work)
    finally:
        assert threading.gettrace() is beside
        threading.settrace(None)
    assert beside.seen == alone.seen != []
    assert table(profiler, work) == {"def": 0, "spike": 4}


def test_a_thread_whose_run_is_profiled(m):
    class Thread(threading.Thread):
        def run(self):  # def
            m.spike(4)  # spike

    with profiler_of(Thread.run) as profiler:
        thread = Thread()
        thread.start()
        thread.join()
    assert table(profiler, Thread.run) == {"def": 0, "spike": 4}
    assert table(profiler, Thread.run, "calls") == {"def": 1, "spike": 1}


def test_a_debugger_stops_at_its_breakpoint(m):
    def work():  # def
        m.spike(1)  # one
        m.spike(2)  # two

    class Debugger(bdb.Bdb):
        stops = []

        def user_line(self, frame):
            self.stops.append(frame.f_lineno - work.__code__.co_firstlineno)
            self.set_continue()

    debugger = Debugger()
    path, line = work.__code__.co_filename, work.__code__.co_firstlineno + 2
    assert debugger.set_break(path, line) is None
    try:
        profiler = profiler_of(work)
        profiler.enable()
        debugger.runcall(work)
    finally:
        debugger.clear_all_breaks()
    with contextlib.nullcontext() if monitors else pytest.warns(RuntimeWarning):
        profiler.disable()
    # A debugger that begins stops at the next line, whichever that is.
    assert debugger.stops[1:] == [2]
    if monitors:
        assert table(profiler, work) == {"def": 0, "one": 1, "two": 2}


def test_a_debugger_that_was_there_first(m):
    def work():  # def
        m.spike(1)  # one
        m.spike(2)  # two

    class Debugger(bdb.Bdb):
        stops = []

        def user_line(self, frame):
            self.stops.append(frame.f_lineno - work.__code__.co_firstlineno)
            self.set_continue()

    def profiled():
        with profiler:
            work()

    debugger, profiler = Debugger(), profiler_of(work)
    path, line = work.__code__.co_filename, work.__code__.co_firstlineno + 2
    debugger.set_break(path, line)
    debugger.reset()
    try:
        sys.settrace(debugger.trace_dispatch)
        profiled()
        assert sys.gettrace() == debugger.trace_dispatch
    finally:
        sys.settrace(None)
        debugger.clear_all_breaks()
    # A debugger that begins stops at the next line, whichever that is.
    assert debugger.stops[1:] == [2]
    assert table(profiler, work) == {"def": 0, "one": 1, "two": 2}


def test_cprofile_beside(m):
    def work():  # def
        m.spike(2)  # spike

    def calls_of(profile):
        stats = {entry.code: entry.callcount for entry in profile.getstats()}
        return stats[work.__code__]

    first = cProfile.Profile()
    with first, profiler_of(work) as profiler:
        work()
    second = cProfile.Profile()
    with profiler, second:
        work()
    assert calls_of(first) == calls_of(second) == 1
    assert table(profiler, work, "calls") == {"def": 2, "spike": 2}


def test_coverage_beside(m, tmp_path):
    coverage = pytest.importorskip("coverage", reason="coverage is not installed")

    def work(flag):  # def
        if flag:  # if
            m.spike(2)  # spike
        else:
            m.spike(3)  # other

    for core in ("ctrace", "pytrace", *(["sysmon"] * monitors)):
        measured = coverage.Coverage(data_file=None, config_file=False)
        measured.set_option("run:core", core)
        measured.start()
        try:
            with profiler_of(work) as profiler:
                work(True)
        finally:
            measured.stop()
        first = work.__code__.co_firstlineno
        lines = measured.get_data().lines(work.__code__.co_filename)
        assert {first + 1, first + 2} <= set(lines) and first + 4 not in lines
        assert table(profiler, work) == {"def": 0, "if": 0, "spike": 2}


# ---- sys.monitoring ----


@on_monitoring
def test_only_watched_functions_have_events(m):
    def watched():
        pass

    def other():
        pass

    events = sys.monitoring.events
    everywhere = events.PY_UNWIND | events.PY_THROW
    with profiler_of(watched):
        watched(), other()
        (tool,) = [i for i in range(6) if sys.monitoring.get_tool(i) == "memlab"]
        assert sys.monitoring.get_events(tool) == everywhere
        assert sys.monitoring.get_local_events(tool, other.__code__) == 0
        assert sys.monitoring.get_local_events(tool, watched.__code__) & events.LINE
        # Neither what cProfile takes nor what coverage and debuggers do.
        assert tool not in (
            sys.monitoring.PROFILER_ID,
            sys.monitoring.COVERAGE_ID,
            sys.monitoring.DEBUGGER_ID,
        )
        with profiler_of(other):
            pass
        assert sys.monitoring.get_local_events(tool, other.__code__) == 0
        assert sys.monitoring.get_local_events(tool, watched.__code__) != 0
    assert sys.monitoring.get_tool(tool) is None


@on_monitoring
def test_when_every_tool_id_is_taken(m):
    def work():
        m.spike(1)

    for i in range(6):
        sys.monitoring.use_tool_id(i, f"tool {i}")
    try:
        profiler = profiler_of(work)
        for _ in range(2):
            with pytest.raises(
                memlab.Error, match="all six tool ids .* are taken: end"
            ):
                profiler.enable()
            assert not profiler.enabled
        sys.monitoring.free_tool_id(0)
        with profiler:
            assert sys.monitoring.get_tool(0) == "memlab"
            work()
        sys.monitoring.use_tool_id(0, "tool 0")
    finally:
        for i in range(6):
            sys.monitoring.free_tool_id(i)
    assert profiler._rows(0, ())[1][1] == 1


@on_monitoring
def test_other_tools_may_raise_in_a_profiled_function(m):
    def work():  # def
        m.spike(1)  # one
        m.spike(2)  # two

    def after():  # def
        m.spike(3)  # three

    def callback(code, line):
        raise KeyError("theirs")

    monitoring = sys.monitoring
    monitoring.use_tool_id(0, "theirs")
    monitoring.register_callback(0, monitoring.events.LINE, callback)
    monitoring.set_local_events(0, work.__code__, monitoring.events.LINE)
    try:
        with profiler_of(work, after) as profiler:
            with pytest.raises(KeyError, match="theirs"):
                work()
            m.spike(50)
            after()
    finally:
        monitoring.set_local_events(0, work.__code__, 0)
        monitoring.register_callback(0, monitoring.events.LINE, None)
        monitoring.free_tool_id(0)
    assert max(table(profiler, work).values()) <= 1
    assert table(profiler, after) == {"def": 0, "three": 3}


# ---- Forks and ends ----


def run_program(source, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import gc, os, sys, threading\nimport memlab\n"
        "from scripted_lines import Memory, profiler_of\nm = Memory()\n" + source
    )
    roots = [str(Path(memlab.__file__).parents[1]), str(Path(scripted_lines.__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore::ResourceWarning", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


WORK = """
def work(size=1):
    m.spike(size)
profiler = profiler_of(work)
profiler.enable()
work()
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "del profiler",
        "sys.modules['kept'] = profiler",
        "import builtins; builtins.kept = profiler",
        "import atexit; atexit.register(work); atexit.register(profiler.enable)",
        "profiler.itself = profiler; profiler.work = work; del profiler, work",
        "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        """
def forever():
    while True:
        work()
threading.Thread(target=forever, daemon=True).start()
""",
        """
class AtEnd:
    def __del__(self, work=work):
        work()
kept = AtEnd()
""",
        """
def items():
    try:
        yield
    finally:
        m.spike(1)
profiler.add_function(items)
kept = items()
next(kept)
""",
    ],
)
def test_the_interpreter_ends_while_lines_are_profiled(end, tmp_path):
    assert run_program(WORK + end, tmp_path) == ""


def test_a_forked_child_runs_on(tmp_path):
    out = run_program(
        WORK
        + """
for stop in (True, False):
    child = os.fork()
    if child == 0:
        for _ in range(3):
            work(7)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        other = memlab.LineProfiler(work, target_gpu="script")
        if stop:
            profiler.disable()
            other = profiler
        try:
            other.enable()
        except memlab.Error as error:
            assert "a forked child" in str(error)
        else:
            sys.exit("enabled")
        print("child", flush=True)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
work(2)
profiler.disable()
print([row[3][0] >> 20 for row in profiler._rows(0, ("active_bytes.all.peak",))])
""",
        tmp_path,
    )
    assert out == "child\nchild\n[0, 2]\n"
