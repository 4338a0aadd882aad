"""memlab.MemorySnapshot on the scripted source: windows, limits, threads, interrupts.

The script delivers events as an allocator would, so every expected value below can be
read off the test itself.
"""

import gc
import signal
import threading
import warnings
import weakref
from pathlib import Path

import pytest
import warm

import memlab
from memlab import _core
from memlab._record import owners as _owners

MIB = 1 << 20
SEGMENT = 0x7F0000000000


@pytest.fixture
def script():
    """The scripted source with one empty segment of 20 MiB on device 0."""
    source = _core.Script()
    source.reset()
    source.emit("segment_alloc", SEGMENT, 20 * MIB)
    return source


def recorder(**options):
    return memlab.MemorySnapshot(source="script", **options)


def trace(snapshot, device=0):
    events = snapshot.data().to_dict()["device_traces"][device]
    return [event for event in events if event["action"] != "snapshot"]


def pair(script, size=512, addr=SEGMENT):
    script.emit("alloc", addr, size)
    script.emit("free_requested", addr, size)
    script.emit("free_completed", addr, size)


def test_a_window_holds_what_came_between_start_and_stop(script):
    pair(script, 1)
    with recorder() as snapshot:
        pair(script, 2)
        seen = trace(snapshot)
        pair(script, 3)
    pair(script, 4)
    assert [event["size"] for event in seen] == [2, 2, 2]
    assert [event["size"] for event in trace(snapshot)] == [2, 2, 2, 3, 3, 3]
    assert snapshot.data() is snapshot.data(), "a finished recording is one object"


def test_starting_again_forgets(script):
    snapshot = recorder()
    for size in (5, 6):
        snapshot.start()
        pair(script, size)
        snapshot.stop()
        assert [event["size"] for event in trace(snapshot)] == [size] * 3


def test_a_recording_taken_earlier_does_not_change(script):
    with recorder() as snapshot:
        pair(script, 1)
        early = snapshot.data()
        pair(script, 2)
    before = early.to_dict()
    assert [event["size"] for event in before["device_traces"][0]] == [1, 1, 1]
    pair(script, 3)
    assert early.to_dict() == before


def test_the_newest_entries_are_kept_and_the_others_counted(script):
    with recorder(max_entries=100) as snapshot:
        for size in range(1, 5001):
            pair(script, size)
    data = snapshot.data()
    kept = data.to_dict()["device_traces"][0]
    assert len(kept) == 100
    # 99 events of 33 pairs and one of the pair before; newest last.
    assert [event["size"] for event in kept] == [4967] + [
        size for size in range(4968, 5001) for _ in range(3)
    ]
    counts = data.counts(0)
    assert counts["events"] == 100 and counts["overwritten_events"] == 15000 - 100
    assert counts["dropped_events"] == 0


def test_devices_are_recorded_apart_and_device_chooses_one(script):
    everything, second = recorder().start(), recorder(device=1).start()
    script.emit("segment_alloc", SEGMENT, 2 * MIB, device=1)
    script.emit("alloc", SEGMENT, 700, device=1)
    script.emit("alloc", SEGMENT, 600, device=0)
    everything.stop()
    second.stop()
    assert [event["size"] for event in trace(everything, 0)] == [600]
    assert [event["size"] for event in trace(everything, 1)] == [2 * MIB, 700]
    assert [event["size"] for event in trace(second, 1)] == [2 * MIB, 700]
    assert trace(second, 0) == []
    # Neither has it the other's memory, as the highest of which its report would begin.
    assert {s["device"] for s in everything.data().to_dict()["segments"]} == {0, 1}
    assert {s["device"] for s in second.data().to_dict()["segments"]} == {1}
    assert second.peak()["device"] == 1


def test_totals_follow_the_script(script):
    script.emit("alloc", SEGMENT, 1000)
    with recorder():
        # Counters go on from recording to recording.
        before = memlab.stats("script:0")
        script.emit("alloc", SEGMENT + 1024, 3 * MIB)
        script.emit("free_requested", SEGMENT + 1024, 3 * MIB)
        pending = memlab.stats("script:0")
        script.emit("free_completed", SEGMENT + 1024, 3 * MIB)
        done = memlab.stats("script:0")
    assert pending["allocated_bytes"] == 1024
    assert pending["active_bytes"] == 1024 + 3 * MIB
    assert pending["requested_bytes"] == 1000 + 3 * MIB
    assert done["active_bytes"] == done["allocated_bytes"] == 1024
    assert done["allocated_bytes_peak"] == 1024 + 3 * MIB
    assert done["reserved_bytes"] == done["reserved_bytes_peak"] == 20 * MIB
    counted = {key: done[key] - before[key] for key in before}
    assert counted["events"] == 3
    assert counted["inconsistencies"] == counted["dropped_events"] == 0


def test_events_that_do_not_fit_are_counted_for_the_process(script):
    def count():
        return memlab.stats("script:0")["inconsistencies"]

    with recorder():
        before = count()
        script.emit("alloc", SEGMENT + 20 * MIB, 512)  # behind the only segment
        script.emit("free_requested", SEGMENT, 512)  # of nothing
        assert count() == before + 2
    with recorder():
        pair(script)
        assert count() == before + 2, "the first recording's still count"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"stacks": "c"}, memlab.Error, "expected stacks to be 'python', or 'all'"),
        ({"context": "x"}, memlab.Error, "expected context to be 'state', 'alloc'"),
        ({"max_entries": 0}, ValueError, "max_entries must be at least 1, not 0"),
        ({"max_entries": -5}, ValueError, "max_entries must be at least 1, not -5"),
        ({"max_entries": True}, ValueError, "max_entries must be an integer of at least 1, not True"),
        ({"max_entries": "5"}, ValueError, "max_entries must be an integer of at least 1, not '5'"),
        ({"device": -1}, ValueError, "-1 is not a device; write for example"),
        ({"device": "tpu"}, ValueError, "'tpu' is not a device; write for example"),
    ],
)
def test_bad_arguments_are_named(options, error, words):
    with pytest.raises(error, match=words.replace("(", r"\(")):
        memlab.MemorySnapshot(**options)


def test_misuse_is_named(script):
    snapshot = recorder()
    with pytest.raises(memlab.Error, match="nothing was recorded; call start"):
        snapshot.data()
    assert snapshot.stop() is snapshot, "stop() without start() is nothing"
    snapshot.start()
    with pytest.raises(memlab.Error, match="recording already; stop"):
        snapshot.start()
    snapshot.stop()
    with pytest.raises(memlab.Error, match="unknown source 'disk'"):
        memlab.MemorySnapshot(source="disk").start()
    with pytest.raises(ValueError, match="nothing was recorded on script:77"):
        memlab.stats("script:77")


def test_an_exception_in_the_block_is_not_swallowed(script):
    snapshot = recorder()
    with pytest.raises(KeyError), snapshot:
        pair(script, 9)
        raise KeyError("program's own")
    assert not snapshot.recording
    assert [event["size"] for event in trace(snapshot)] == [9] * 3


def test_a_recording_that_is_dropped_ends(script, torch):
    """torch's optimizer hooks must not keep it alive; 20 are more than there may be."""
    for _ in range(20):
        snapshot = memlab.MemorySnapshot(source="cpu").start()
        gone = weakref.ref(snapshot)
        del snapshot
        gc.collect()
        assert gone() is None


def test_ten_thousand_starts_and_stops(script):
    snapshot = _core.MemorySnapshot()
    options = {
        "max_entries": 1000,
        "context": "all",
        "native": False,
        "events": True,
        "device": -1,
    }
    for size in range(1, 10_001):
        snapshot._begin("script", **options)
        script.emit("alloc", SEGMENT, size)
        if size % 100 == 0:
            recording = snapshot._freeze(0)
            events = recording.to_dict()["device_traces"][0]
            assert [event["size"] for event in events] == [size]
        snapshot._end()
        script.emit("free_requested", SEGMENT, size)
        script.emit("free_completed", SEGMENT, size)
    snapshot._begin("script", **options)
    stats = memlab.stats("script:0")
    snapshot._end()
    assert stats["allocated_bytes"] == 0 and stats["reserved_bytes"] == 20 * MIB


def run_threads(*functions):
    """Runs the functions at once; re-raises what the first failing one raised."""
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_stop_may_come_while_another_thread_reads(script):
    snapshot = recorder(max_entries=5000)
    done = threading.Event()
    reads = []

    def read():
        while not done.is_set():
            try:
                data = snapshot.data()
            except memlab.Error as error:
                assert "not recording" in str(error) or "nothing was" in str(error)
                continue
            sizes = [e["size"] for e in data.to_dict()["device_traces"][0]]
            assert set(sizes) <= {0, 512}
            reads.append(len(sizes))

    def tag():
        while not done.is_set():
            try:
                snapshot._configure(
                    "script", 5000, context="all", native=False, events=True, device=-1
                )
            except memlab.Error as error:
                assert "not recording" in str(error)

    def start_and_stop():
        try:
            for _ in range(60):
                snapshot.start()
                for _ in range(20):
                    pair(script)
                snapshot.stop()
        finally:
            done.set()

    run_threads(start_and_stop, read, read, tag)
    assert reads


def test_reading_does_not_upset_tuples_in_the_making(script, torch):
    """Looking at all objects for modules must not touch what other threads build."""
    snapshot = recorder().start()
    done = threading.Event()

    def build():
        while not done.is_set():
            assert len(tuple(i for i in range(100))) == 100

    def read():
        try:
            for _ in range(50):
                snapshot.data()
        finally:
            done.set()

    run_threads(read, build, build)
    snapshot.stop()


def test_stop_by_two_threads_is_one_stop(script):
    for _ in range(40):
        snapshot = recorder().start()
        pair(script, 7)
        run_threads(snapshot.stop, snapshot.stop)
        assert not snapshot.recording
        assert [event["size"] for event in trace(snapshot)] == [7] * 3


def test_only_one_of_two_threads_starts(script):
    for _ in range(40):
        snapshot = recorder()
        outcomes = []

        def start(snapshot=snapshot, outcomes=outcomes):
            try:
                snapshot.start()
                outcomes.append("started")
            except memlab.Error as error:
                outcomes.append(str(error))

        run_threads(start, start)
        assert sorted(outcomes) == ["recording already; stop() first", "started"]
        snapshot.stop()


def test_ctrl_c_at_any_moment_leaves_the_recorder_usable(script):
    """A signal handler that raises, hit wherever it falls; then all windows are free."""
    caught = 0

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for microseconds in range(20, 1520, 20):
            snapshot = None
            try:
                signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
                snapshot = recorder(max_entries=1000).start()
                for _ in range(100_000):
                    pair(script)
                    snapshot.data()
                pytest.fail("the interrupt was lost")
            except KeyboardInterrupt:
                caught += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if snapshot is not None:
                snapshot.stop()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == len(range(20, 1520, 20))
    del snapshot
    gc.collect()
    at_once = [recorder().start() for _ in range(16)]
    for snapshot in at_once:
        snapshot.stop()


def test_a_training_on_the_cpu(torch):
    """Events in order, live blocks exact, results unchanged, threads, late frees."""
    program = Path(__file__).resolve().parents[1] / "isolated" / "cpu.py"
    done = warm.run(program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failure_to_follow_owners_never_reaches_an_optimizers_step(
    torch, monkeypatch, caplog
):
    """Also where warnings are errors."""
    owner = memlab.MemorySnapshot()
    owners = _owners.Owners(owner)
    monkeypatch.setattr(_core, "tag_step", lambda *args: 1 / 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        owners.before_step(None)
        owners.after_step(None)
    assert caplog.text.count("owners of memory are no longer followed") == 1
