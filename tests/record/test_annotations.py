"""Phases, marks and steps: what a program tells of itself while it is recorded.

On the scripted source, whose clock stands at its newest event, every time is written down
here.
"""

import asyncio
import gc
import json
import os
import threading
from pathlib import Path

import pytest

import memlab
from memlab import _core

ISOLATED = Path(__file__).parents[1] / "isolated"


@pytest.fixture
def script():
    script = _core.Script()
    script.reset()
    return script


@pytest.fixture
def snapshot(script):
    snapshot = memlab.MemorySnapshot(source="script")
    snapshot.start()
    yield snapshot
    snapshot.stop()


def set_clock(script, ns):
    script.emit("other", 0, 0, time=ns)


def told(snapshot):
    """(kind, name) of the notes, in order, but for the samples."""
    return [(n["kind"], n["name"]) for n in notes(snapshot)]


def notes(snapshot):
    kinds = ("host", "gpu")
    return [n for n in snapshot.data().notes() if n["kind"] not in kinds]


def test_times_to_the_nanosecond(script, snapshot):
    set_clock(script, 5_000_000_001)
    with memlab.phase("train"):
        set_clock(script, 5_000_000_002)
        memlab.mark("half")
        set_clock(script, 5_000_000_004)
    memlab.step()
    begin, mark, end, step = notes(snapshot)
    assert begin["time_ns"] == 5_000_000_001
    assert (mark["time_ns"], mark["kind"], mark["name"]) == (
        5_000_000_002,
        "mark",
        "half",
    )
    assert end["time_ns"] == 5_000_000_004
    assert (step["kind"], step["values"][0]) == ("step", 0)
    assert (begin["kind"], end["kind"]) == ("phase_begin", "phase_end")
    assert begin["values"][0] == end["values"][0] != 0
    assert begin["thread"] == mark["thread"] == end["thread"]


def test_nothing_while_nothing_is_recorded(script):
    assert not _core.noting()
    with memlab.phase("before"):
        memlab.mark("before")
        memlab.step()
        snapshot = memlab.MemorySnapshot(source="script").start()
    assert told(snapshot) == []
    snapshot.stop()
    assert not _core.noting()


def test_a_phase_that_outlives_the_recording(snapshot):
    with memlab.phase("long"):
        snapshot.stop()
    assert told(snapshot) == [("phase_begin", "long")]


def test_phases_across_a_reading(snapshot):
    with memlab.phase("whole"):
        assert told(snapshot) == [("phase_begin", "whole")]
    assert told(snapshot) == [("phase_begin", "whole"), ("phase_end", "whole")]


def test_nested_phases_and_exceptions(snapshot):
    with pytest.raises(ZeroDivisionError):
        with memlab.phase("outer"), memlab.phase("inner"):
            raise ZeroDivisionError
    assert told(snapshot) == [
        ("phase_begin", "outer"),
        ("phase_begin", "inner"),
        ("phase_end", "inner"),
        ("phase_end", "outer"),
    ]
    numbers = [n["values"][0] for n in notes(snapshot)]
    assert numbers == [numbers[0], numbers[1], numbers[1], numbers[0]]
    assert numbers[0] != numbers[1]


def test_a_decorated_function(snapshot):
    @memlab.phase("call")
    def count_down(n):
        """Counts."""
        return count_down(n - 1) + 1 if n else 0

    assert count_down(2) == 2
    assert count_down.__doc__ == "Counts."
    assert [kind for kind, _ in told(snapshot)] == ["phase_begin"] * 3 + [
        "phase_end"
    ] * 3


def test_a_decorated_generator_is_in_its_phase_while_it_runs(snapshot):
    @memlab.phase("load")
    def batches():
        got = yield 1
        try:
            yield got
        except KeyError:
            memlab.mark("caught")
            yield 3
        return 4

    generator = batches()
    assert told(snapshot) == []
    assert next(generator) == 1
    memlab.mark("consumer")
    assert generator.send(2) == 2
    assert generator.throw(KeyError) == 3
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == 4
    begin, end = ("phase_begin", "load"), ("phase_end", "load")
    assert told(snapshot) == [
        *(begin, end, ("mark", "consumer"), begin, end),
        *(begin, ("mark", "caught"), end, begin, end),
    ]


def test_a_decorated_generator_that_is_closed(snapshot):
    @memlab.phase("load")
    def batches():
        try:
            yield 1
        finally:
            memlab.mark("closed")

    generator = batches()
    next(generator)
    generator.close()
    begin, end = ("phase_begin", "load"), ("phase_end", "load")
    assert told(snapshot) == [begin, end, begin, ("mark", "closed"), end]


def test_a_decorated_coroutine(snapshot):
    @memlab.phase("serve")
    async def answer():
        memlab.mark("inside")
        return 42

    assert asyncio.run(answer()) == 42
    assert told(snapshot) == [
        ("phase_begin", "serve"),
        ("mark", "inside"),
        ("phase_end", "serve"),
    ]
    with pytest.raises(TypeError, match="asynchronous generator"):

        @memlab.phase("serve")
        async def answers():
            yield 1


def test_threads_share_a_phase_object(snapshot):
    shared = memlab.phase("shared")
    inside = threading.Barrier(2)

    def work():
        with shared:
            inside.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = notes(snapshot)
    assert [n["kind"] for n in got] == ["phase_begin"] * 2 + ["phase_end"] * 2
    assert len({n["thread"] for n in got[:2]}) == 2
    assert {n["values"][0] for n in got[:2]} == {n["values"][0] for n in got[2:]}


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("", ""),
        ("a\0b\n\x1b[31m", "a\0b\n\x1b[31m"),
        ("\ud800 alone", "\ud800 alone"),
        ("\U0001f600", "\U0001f600"),
        ("x" * 1_000_000, "x" * 1024),
        # Three bytes a character: 341 of them are 1023 bytes.
        ("€" * 1_000_000, "€" * 341),
    ],
)
def test_hostile_names(snapshot, tmp_path, name, kept):
    memlab.mark(name)
    with memlab.phase(name):
        pass
    want = [("mark", kept), ("phase_begin", kept), ("phase_end", kept)]
    assert told(snapshot) == want
    path = tmp_path / "run.pickle"
    snapshot.save(path)
    assert [(n["kind"], n["name"]) for n in _saved(path) if n["kind"] != "host"] == want


def _saved(path):
    return _core.Recording.from_bytes(path.read_bytes()).notes()


@pytest.mark.parametrize("name", [b"bytes", None, 3, ["x"]])
def test_names_are_text(name):
    """Whether or not anything is recorded: a mistake shows at its first run."""
    with pytest.raises(TypeError, match="name must be a str"):
        memlab.phase(name)
    with pytest.raises(TypeError, match="name must be a str"):
        memlab.mark(name)


def test_saved_and_read_back(script, snapshot, tmp_path):
    set_clock(script, 7_000_000_001)
    with memlab.phase("eval"):
        memlab.step()
    path = tmp_path / "run.pickle"
    snapshot.save(path)
    assert _saved(path) == snapshot.data().notes()


def test_a_forked_child_tells_nothing(snapshot):
    with memlab.phase("parent"):
        child = os.fork()
        if child == 0:
            memlab.mark("child")
            memlab.step()
            with memlab.phase("child"):
                pass
            os._exit(1 if _core.noting() else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told(snapshot) == [("phase_begin", "parent"), ("phase_end", "parent")]


def test_a_forked_child_reads_nothing(snapshot):
    """The source's locks may be held by threads that it does not have."""
    child = os.fork()
    if child == 0:
        try:
            snapshot._freeze(0)
        except memlab.Error as error:
            os._exit(0 if "forked child" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_recordings_see_what_came_since_they_began(script, snapshot):
    memlab.step()
    with memlab.phase("shared"):
        second = memlab.MemorySnapshot(source="script").start()
        memlab.step()
    second.stop()
    assert [n["values"][0] for n in notes(snapshot) if n["kind"] == "step"] == [0, 1]
    assert told(second) == [("step", ""), ("phase_end", "shared")]
    assert notes(second)[0]["values"][0] == 0


# ---- Steps of optimizers ----


def optimizers(torch, count):
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(count)]
    for weight in weights:
        weight.grad = torch.ones(2)
    return [torch.optim.SGD([weight], lr=0.1) for weight in weights]


def steps(snapshot):
    return [n["values"][0] for n in notes(snapshot) if n["kind"] == "step"]


@pytest.fixture
def cpu_snapshot(torch):
    snapshot = memlab.MemorySnapshot(source="cpu")
    snapshot.start()
    yield snapshot
    snapshot.stop()


def test_a_step_of_an_optimizer(torch, cpu_snapshot):
    (optimizer,) = optimizers(torch, 1)
    for _ in range(3):
        optimizer.step()
    assert steps(cpu_snapshot) == [0, 1, 2]


def test_optimizers_of_one_iteration_make_one_step(torch, cpu_snapshot):
    """A GAN: the first that stepped counts."""
    first, second = optimizers(torch, 2)
    for _ in range(3):
        memlab.mark("first")
        first.step()
        memlab.mark("second")
        second.step()
    told = [n for n in notes(cpu_snapshot) if n["kind"] in ("mark", "step")]
    assert [n["name"] or n["kind"] for n in told] == [*("first", "step", "second") * 3]
    # Two of the first to one of the second.
    first.step()
    second.step()
    first.step()
    assert steps(cpu_snapshot) == [0, 1, 2, 3, 4]


def test_an_explicit_step_counts_as_one_more_optimizer(torch, cpu_snapshot):
    (optimizer,) = optimizers(torch, 1)
    for _ in range(3):
        optimizer.step()
        memlab.step()
    assert steps(cpu_snapshot) == [0, 1, 2]


def test_recordings_side_by_side_count_a_step_once(torch, cpu_snapshot):
    (optimizer,) = optimizers(torch, 1)
    with memlab.MemorySnapshot(source="cpu") as second:
        optimizer.step()
    optimizer.step()
    assert steps(cpu_snapshot) == [0, 1]
    assert steps(second) == [0]


def test_a_forgotten_recording_leaves_steps_unharmed(torch):
    (optimizer,) = optimizers(torch, 1)
    snapshot = memlab.MemorySnapshot(source="cpu").start()
    del snapshot
    gc.collect()
    assert not _core.noting()
    optimizer.step()
    with memlab.MemorySnapshot(source="cpu") as again:
        optimizer.step()
    assert steps(again) == [0]


def test_recordings_begin_and_end_in_hooks_of_a_step(torch):
    """torch goes through its hooks meanwhile, and raises where they change."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    (optimizer,) = optimizers(torch, 1)
    first = memlab.MemorySnapshot(source="cpu")
    forgotten = [memlab.MemorySnapshot(source="cpu")]
    second = memlab.MemorySnapshot(source="cpu")

    def before(*_):
        first.stop()
        forgotten.clear()
        gc.collect()

    handles = [
        register_optimizer_step_pre_hook(before),
        register_optimizer_step_post_hook(lambda *_: second.start()),
    ]
    first.start()
    forgotten[0].start()
    try:
        optimizer.step()
    finally:
        for handle in handles:
            handle.remove()
    optimizer.step()
    second.stop()
    assert steps(first) == []
    # Whether the step in which it began is one of its own is torch's order of hooks.
    assert steps(second) in ([0], [0, 1])


# ---- Regions of torch.profiler.record_function, and torch's own annotations ----


def regions(snapshot):
    kinds = {"region_begin": "+", "region_end": "-"}
    return [
        kinds[n["kind"]] + n["name"]
        for n in snapshot.data().notes()
        if n["kind"] in kinds
    ]


def test_regions_and_nothing_of_operators(torch, cpu_snapshot):
    with torch.profiler.record_function("outer"):
        with pytest.raises(KeyError), torch.profiler.record_function("inner"):
            torch.ones(3) + 1
            raise KeyError
    assert regions(cpu_snapshot) == ["+outer", "+inner", "-inner", "-outer"]


def test_regions_under_torchs_profiler(torch, cpu_snapshot):
    with torch.profiler.record_function("outer"):
        with torch.autograd.profiler.profile() as profile:
            with torch.profiler.record_function("inner"):
                torch.ones(3)
    assert regions(cpu_snapshot) == ["+outer", "+inner", "-inner", "-outer"]
    assert "inner" in {event.name for event in profile.function_events}


def test_regions_of_threads_pair_by_their_numbers(torch, cpu_snapshot):
    inside = threading.Barrier(2)

    def work():
        with torch.profiler.record_function("same"):
            inside.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = [n for n in notes(cpu_snapshot) if n["name"] == "same"]
    by_number = {}
    for note in got:
        by_number.setdefault(note["values"][0], []).append(
            (note["kind"], note["thread"])
        )
    assert len(by_number) == 2
    for begin, end in by_number.values():
        assert (begin[0], end[0]) == ("region_begin", "region_end")
        assert begin[1] == end[1]


def test_no_region_outside_a_recording(torch):
    with torch.profiler.record_function("before"):
        snapshot = memlab.MemorySnapshot(source="cpu").start()
    with torch.profiler.record_function("across"):
        with memlab.MemorySnapshot(source="cpu") as second:
            snapshot.stop()
    second.stop()
    with torch.profiler.record_function("after"):
        pass
    assert regions(snapshot) == ["+across"]
    assert regions(second) == []


def test_annotations_of_a_snapshot(script, snapshot):
    set_clock(script, 1_000_000)
    with memlab.phase("eval"):
        set_clock(script, 2_000_999)
        memlab.mark("half")
        set_clock(script, 3_000_000)
        memlab.step()
    assert snapshot.data().to_dict()["external_annotations"] == [
        {"stage": "START", "name": "eval", "device": 0, "time_us": 1000},
        {"stage": "START", "name": "half", "device": 0, "time_us": 2000},
        {"stage": "END", "name": "half", "device": 0, "time_us": 2000},
        {"stage": "END", "name": "eval", "device": 0, "time_us": 3000},
    ]


def test_annotations_survive_a_file(script, snapshot, tmp_path):
    with memlab.phase("eval"):
        memlab.mark("half")
    first, second = tmp_path / "first", tmp_path / "second"
    snapshot.save(first)
    _core.Recording.from_bytes(first.read_bytes()).write_pickle(second, True)
    assert memlab.load(first) == memlab.load(second)
    assert len(memlab.load(second)["external_annotations"]) == 4


def test_annotations_survive_a_file_of_all_events(script, tmp_path):
    path = tmp_path / "run.mlab"
    with memlab.MemorySnapshot(source="script", file=path) as snapshot:
        with memlab.phase("eval"):
            memlab.mark("half")
    annotations = snapshot.data().to_dict()["external_annotations"]
    assert [note["name"] for note in annotations] == ["eval", "half", "half", "eval"]
    assert memlab.load(path)["external_annotations"] == annotations


@pytest.mark.cuda
def test_regions_of_collectives(phantom_run):
    phantom_run(ISOLATED / "collectives.py")


@pytest.mark.cuda
def test_annotations_beside_torchs_own(phantom_run):
    program = ISOLATED / "annotations.py"
    said = json.loads(phantom_run(program).stdout)

    def flat(annotations):
        sign = {"START": "+", "END": "-"}
        return [sign[a["stage"]] + a["name"] for a in annotations]

    step = "Optimizer.step#SGD.step"
    train = ["+train", "+forward", "+" + step, "-" + step, "-forward", "-train"]
    assert flat(said["alone"]) == train
    # Where torch records as well, each region stands there once, as torch has it.
    assert flat(said["theirs"]) == ["+forward", "+" + step, "-" + step, "-forward"]
    assert flat(said["ours"]) == train + train
    assert [a for a in said["ours"] if a in said["theirs"]] == said["theirs"]
    assert flat(said["last"])[-2:] == ["+of a thread", "-of a thread"]
    assert "after" not in json.dumps(said)
    for annotation in said["ours"]:
        assert set(annotation) == set(said["theirs"][0])
    times = [a["time_us"] for a in said["ours"]]
    assert times == sorted(times)
    assert said["child"] == 0
    assert said["our_metadata"] == said["their_metadata"]
    if said["their_metadata"]:
        assert ["alloc", 4 << 20, "batch 7"] in said["our_metadata"]


def test_the_report_says_step_and_phase_at_the_peak(script, snapshot):
    """The third of four phases has the peak, in the step after the first that ended."""
    segment = 0x700000000000
    script.emit("segment_alloc", segment, 20 << 20, time=1_000)
    for number, size in enumerate([1 << 20, 2 << 20, 9 << 20, 3 << 20]):
        with memlab.phase(f"part\x1b{number}"):
            script.emit("alloc", segment, size, time=10_000 * number + 2_000)
            script.emit("free_requested", segment, size, time=10_000 * number + 3_000)
            script.emit("free_completed", segment, size, time=10_000 * number + 4_000)
        if number == 1:
            memlab.step()
    assert snapshot.peak()["moment"] == {"step": 1, "phase": "part\x1b2"}
    assert "At the peak: step 1, phase part\\x1b2\n" in snapshot.summary()
