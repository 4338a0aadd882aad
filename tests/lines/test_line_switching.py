"""Line profilers enabled, disabled, cleared, aimed and dropped at any moment, and threads."""

import contextlib
import gc
import threading
import weakref

import pytest
from scripted_lines import (
    MIB,
    memory,
    profiler_of,
    rows_of,
    run_in_thread,
    script,
    table,
)

import memlab


@pytest.fixture
def m():
    with memory() as blocks:
        yield blocks


# ---- Life ----


def test_a_function_is_registered_once(m):
    def work():  # def
        m.spike(3)  # spike

    profiler = profiler_of(work, work)
    profiler.add_function(work)
    with profiler:
        profiler.enable()
        work()
    profiler.disable()
    work()
    assert table(profiler, work, "calls") == {"def": 1, "spike": 1}
    assert len(profiler._functions) == 1


def test_two_profilers_of_one_function(m):
    def work(size):  # def
        m.spike(size)  # spike

    first, second = profiler_of(work), profiler_of(work)
    with first:
        work(1)
        with second:
            work(2)
        work(3)
        with second:
            work(1)
    assert table(first, work) == {"def": 0, "spike": 3}
    assert table(second, work) == {"def": 0, "spike": 2}
    assert table(second, work, "calls") == {"def": 2, "spike": 2}


def test_more_profilers_than_there_may_be_recordings(m):
    profilers = []
    for size in range(1, 41):
        space = {"m": m}
        exec(f"def work():\n    m.spike({size})\n", space)
        profilers.append((profiler_of(space["work"]), space["work"]))
    snapshot = memlab.MemorySnapshot(source="script")
    with contextlib.ExitStack() as enabled:
        for profiler, _ in profilers:
            enabled.enter_context(profiler)
        enabled.enter_context(snapshot)
        for _, work in profilers:
            work()
    peaks = [rows_of(profiler)[1][3][0] for profiler, _ in profilers]
    assert peaks == [size * MIB for size in range(1, 41)]
    assert sum(profiler.lost_lines for profiler, _ in profilers) == 0


def test_enabled_and_disabled_within_the_function(m):
    def work():  # def
        m.spike(9)  # before
        profiler.enable()  # enable
        m.spike(2)  # two
        m.spike(3)  # three
        profiler.disable()  # disable
        m.spike(9)  # after
        profiler.enable()  # on
        m.spike(5)  # five
        profiler.disable()  # off
        return 1  # return

    profiler = profiler_of(work)
    work()
    assert table(profiler, work) == {
        "two": 2, "three": 3, "disable": 0, "five": 5, "off": 0,
    }  # fmt: skip


def test_enabled_in_a_loop_that_runs(m):
    def work():  # def
        for i in range(3):  # for
            if i == 1:  # if
                profiler.enable()  # enable
            m.spike(i + 1)  # spike
        profiler.disable()  # disable

    profiler = profiler_of(work)
    work()
    assert table(profiler, work) == {"for": 0, "if": 0, "spike": 3, "disable": 0}
    assert table(profiler, work, "calls") == {
        "for": 2,
        "if": 1,
        "spike": 2,
        "disable": 1,
    }


def test_a_function_added_while_it_runs(m):
    def inner():  # def
        m.spike(4)  # spike

    def work():  # def
        inner()  # not yet
        profiler.add_function(work)  # add
        profiler.add_function(inner)  # inner
        inner()  # call

    profiler = profiler_of()
    with profiler:
        work()
    assert table(profiler, work) == {"inner": 0, "call": 4}
    assert table(profiler, inner) == {"def": 0, "spike": 4}


def test_cleared_while_calls_are_under_way(m):
    def inner():  # def
        m.spike(8)  # eight
        profiler.forget()  # forget
        m.spike(2)  # two

    def outer():  # def
        m.spike(7)  # seven
        inner()  # call
        m.spike(1)  # one

    profiler = profiler_of(inner, outer)
    with profiler:
        outer()
    assert table(profiler, inner) == {"two": 2}
    assert table(profiler, outer) == {"one": 1}


def test_all_forgotten_while_a_call_is_under_way(m):
    def work():  # def
        profiler.clear()  # clear
        m.spike(2)  # two
        profiler.add_function(work)  # add
        m.spike(3)  # three

    profiler = profiler_of(work)
    with profiler:
        work()
        assert table(profiler, work) == {"three": 3}
        work()
        profiler.clear()
    assert str(profiler.display()) == "No data collected\n"


def test_the_target_changes_in_profiled_code(m):
    def other(mib):
        other.at += mib * MIB
        script.emit("alloc", other.at - mib * MIB, mib * MIB, device=1)

    other.at = 1 << 50
    script.emit("segment_alloc", other.at, 1 << 30, device=1)

    def work():  # def
        m.alloc(1)  # one
        other(20)  # twenty
        profiler.target_gpu = "script:1"  # change
        m.alloc(2)  # two
        other(30)  # thirty
        profiler.target_gpu = "script:0"  # back
        m.spike(4)  # four
        other(5)  # five

    profiler = profiler_of(work)
    with profiler:
        work()
    assert table(profiler, work) == {
        "def": 0, "one": 1, "twenty": 1, "change": 20, "two": 20, "thirty": 50, "back": 3,
        "four": 7, "five": 3,
    }  # fmt: skip


def test_a_profiler_that_dies_while_its_function_runs(m):
    def work():  # def
        nonlocal profiler
        m.spike(1)  # one
        profiler = None  # drop
        gc.collect()  # collect
        m.spike(2)  # two

    profiler = profiler_of(work)
    profiler.itself = profiler
    dead = weakref.ref(profiler)
    profiler.enable()
    work()
    assert dead() is None


def test_a_watched_function_that_dies(m):
    space = {"m": m}
    exec(compile("def work():\n    m.spike(2)\n", "<dies>", "exec"), space)
    with profiler_of(space["work"]) as profiler:
        space["work"]()
        del space["work"]
        gc.collect()
    assert [row[3][0] for row in rows_of(profiler)] == [0, 2 * MIB]


def test_many_functions(m):
    functions = []
    for i in range(500):
        space = {"m": m, "size": i + 1}
        exec("def work():\n    m.spike(size)\n", space)
        functions.append(space["work"])
    with profiler_of(*functions) as profiler:
        for function in functions:
            function()
        profiler.clear()
        for function in reversed(functions):
            profiler.add_function(function)
        for function in functions:
            function()
    peaks = [profiler._rows(i, ("active_bytes.all.peak",))[1][3][0] for i in range(500)]
    assert peaks == [i * MIB for i in range(500, 0, -1)]


# ---- Threads ----


class Turns:
    """Lets threads go on one at a time, in the order in which they are named."""

    def __init__(self, *order):
        self.order = list(order)
        self.changed = threading.Condition()

    def take(self, who):
        with self.changed:
            assert self.changed.wait_for(lambda: self.order[0] == who, 60)

    def give(self):
        with self.changed:
            self.order.pop(0)
            self.changed.notify_all()


def test_two_threads_in_one_function(m):
    turns = Turns(*"ababab")

    def work(who, size):  # def
        turns.take(who)  # one
        kept = m.alloc(size)  # alloc
        turns.give()  # end of one
        turns.take(who)  # two
        x = 1  # nothing
        turns.give()  # end of two
        turns.take(who)  # three
        m.free(kept)  # free
        turns.give()  # end of three
        return x  # return

    with profiler_of(work) as profiler:
        threads = [
            threading.Thread(target=work, args=args) for args in (("a", 2), ("b", 3))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    calls = table(profiler, work, "calls")
    assert {calls[name] for name in ("def", "alloc", "nothing", "free")} == {2}
    peaks = table(profiler, work)
    # All of the device's memory counts, whoever has it: b allocates 3 above the 2 of a.
    assert (peaks["alloc"], peaks["nothing"], peaks["free"]) == (5, 5, 5)
    # While it waits for its second turn a sees b allocate; nobody does once both have.
    assert table(profiler, work, "active_bytes.all.allocated")["nothing"] == 0


def test_a_thread_that_ran_before(m):
    ready, go = threading.Event(), threading.Event()

    def work():  # def
        ready.set()  # ready
        go.wait()  # wait
        m.spike(4)  # spike

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    with profiler_of(work) as profiler:
        go.set()
        thread.join()
    assert table(profiler, work)["spike"] == 4


def test_a_thread_started_by_a_thread_without_threading(m):
    import _thread

    def work():  # def
        go.acquire()  # go
        m.spike(4)  # spike
        done.release()  # done

    go, done = _thread.allocate_lock(), _thread.allocate_lock()
    go.acquire()
    done.acquire()
    with profiler_of(work) as profiler:
        _thread.start_new_thread(work, ())
        # Before 3.12 such a thread is found when another one begins a line: this one.
        go.release()
        done.acquire()
    assert table(profiler, work)["spike"] == 4


def test_disabled_by_another_thread(m):
    def work():  # def
        m.spike(4)  # four
        run_in_thread(profiler.disable)  # disable
        m.spike(5)  # five

    profiler = profiler_of(work)
    profiler.enable()
    work()
    peaks = table(profiler, work)
    assert peaks["four"] == 4
    assert "five" not in peaks


def test_more_threads_than_there_is_room_for_are_counted(m):
    barrier = threading.Barrier(20)

    def work():  # def
        barrier.wait()  # wait
        barrier.wait()  # again

    with profiler_of(work) as profiler:
        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert profiler.lost_lines > 0
    assert f"{profiler.lost_lines} runs of lines" in str(profiler.display())
    with profiler:
        m.spike(1)
        barrier = threading.Barrier(1)
        work()
    assert table(profiler, work, "calls")["wait"] == 21


def test_enabled_and_disabled_by_threads_at_once(m):
    def work():  # def
        m.spike(1)  # spike

    def switch():
        for _ in range(200):
            with profiler_of(work):
                work()

    threads = [threading.Thread(target=switch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
