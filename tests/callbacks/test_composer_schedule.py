"""When Composer's profiler by memlab records: the schedule, and the profiler around it."""

import enum
import itertools
import types
from pathlib import Path

import pytest

from memlab.callbacks._composer.profiler import Marker
from memlab.callbacks.composer import (
    Profiler,
    ProfilerAction,
    TorchProfiler,
    cyclic_schedule,
)


def state_at(batch, batches=None, resumed=0):
    return types.SimpleNamespace(
        timestamp=types.SimpleNamespace(batch_in_epoch=batch),
        dataloader_len=batches,
        profiler=types.SimpleNamespace(resumption_batch_idx=resumed),
    )


def letters(schedule, count, **state):
    """S, W, A or ! for each batch of an epoch."""
    shown = {"skip": "S", "warmup": "W", "active": "A", "active_and_save": "!"}
    actions = [schedule(state_at(batch, **state)) for batch in range(count)]
    return "".join(shown[action.value] for action in actions)


@pytest.mark.parametrize(
    ("arguments", "state", "expected"),
    [
        ({"skip_first": 1, "wait": 2, "warmup": 3, "active": 4}, {}, "SSSWWWAAA!SSS"),
        ({}, {}, "WAAA!SSSSSSSS"),
        ({"repeat": 2}, {}, "WAAA!WAAA!SSS"),
        ({"repeat": 0, "active": 2}, {}, "WA!WA!WA!WA!W"),
        # The last batch of an epoch saves, where it is recorded.
        ({"repeat": 0}, {"batches": 13}, "WAAA!WAAA!WA!"),
        ({"repeat": 0}, {"batches": 11}, "WAAA!WAAA!WAA"),
        ({"warmup": 0, "active": 1, "repeat": 0, "wait": 1}, {}, "S!S!S!S!S!S!S"),
        ({"skip_first": 2, "active": 1}, {"resumed": 3}, "SSSSSW!SSSSSS"),
    ],
)
def test_the_schedule(arguments, state, expected):
    assert letters(cyclic_schedule(**arguments), 13, **state) == expected


def test_a_schedule_needs_no_profiler():
    state = state_at(0)
    state.profiler = None
    assert cyclic_schedule(warmup=0)(state) == ProfilerAction.ACTIVE


class ComposersAction(enum.Enum):
    SKIP = "skip"
    WARMUP = "warmup"
    ACTIVE = "active"
    ACTIVE_AND_SAVE = "active_and_save"


def test_actions_are_equal_to_composers():
    for ours, theirs in itertools.product(ProfilerAction, ComposersAction):
        same = ours.name == theirs.name
        assert (ours == theirs) is (theirs == ours) is same
        assert (ours != theirs) is (theirs != ours) is not same
        assert (theirs in [ours]) is (ours in [theirs]) is same


def test_actions_for_torch(torch):
    from memlab.callbacks._composer.torch_profiler import torch_action

    expected = ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
    assert [torch_action(action).name for action in ProfilerAction] == expected
    assert [torch_action(action).name for action in ComposersAction] == expected
    for wrong in (None, "record", 3):
        with pytest.raises(ValueError, match="unexpected action"):
            torch_action(wrong)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)))
def test_composers_rule_for_timelines(flags):
    names = ("with_stack", "record_shapes", "profile_memory")
    given = {f"torch_prof_{name}": flag for name, flag in zip(names, flags, strict=True)}
    make = {"schedule": cyclic_schedule(), "torch_prof_memory_filename": "m.html", **given}
    if all(flags):
        assert Profiler(**make)._callbacks[0].memory_filename == "m.html"
        return
    with pytest.raises(ValueError) as caught:
        Profiler(**make)
    for name, flag in given.items():
        assert f"{name}={flag}" in str(caught.value)


@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=4)))
def test_the_profiler_makes_a_torch_profiler_where_it_records_something(flags):
    names = ("record_shapes", "profile_memory", "with_stack", "with_flops")
    given = {f"torch_prof_{name}": flag for name, flag in zip(names, flags, strict=True)}
    state = types.SimpleNamespace(callbacks=[])
    profiler = Profiler(
        cyclic_schedule(),
        torch_prof_remote_file_name="s3://bucket/{run_name}/trace.json",
        torch_prof_num_traces_to_keep=3,
        **given,
    )
    profiler.bind_to_state(state)
    made = [c for c in state.callbacks if isinstance(c, TorchProfiler)]
    assert state.callbacks == [profiler, *made]
    assert len(made) == any(flags)
    if made:
        assert tuple(getattr(made[0], name) for name in names) == flags
        assert made[0].remote_file_name == "{run_name}/trace.json"
        assert made[0].num_traces_to_keep == 3
    # Of these Composer makes uploaders.
    assert profiler.remote_filenames[0] == "s3://bucket/{run_name}/trace.json"


class Handler:
    """A trace handler that keeps what it is told."""

    remote_file_name = "gs://bucket/traces/x.json"
    merged_trace_remote_file_name = None

    def __init__(self):
        self.told = []

    def process_duration_event(
        self, name, categories, is_start, timestamp, wall_clock_time_ns
    ):
        self.told.append((name, "start" if is_start else "finish", *categories))

    def process_instant_event(self, name, categories, timestamp, wall_clock_time_ns):
        self.told.append((name, "instant", *categories))

    def process_counter_event(
        self, name, categories, timestamp, wall_clock_time_ns, values
    ):
        self.told.append((name, values, *categories))

    def process_chrome_json_trace_file(self, filepath):
        assert isinstance(filepath, Path)
        self.told.append(filepath.name)


def test_markers_tell_handlers_what_the_schedule_records():
    handler = Handler()
    action = ProfilerAction.SKIP
    profiler = Profiler(lambda state: action, handler)
    assert handler.remote_file_name == "traces/x.json"
    assert "gs://bucket/traces/x.json" in profiler.remote_filenames
    with pytest.raises(RuntimeError, match="Trainer"):
        profiler.marker("early")
    state = types.SimpleNamespace(callbacks=[], timestamp=None)
    profiler.bind_to_state(state)
    assert state.callbacks[-1] is handler

    # As the engine gives them: Composer's own actions.
    marker = profiler.marker("m", actions=[ComposersAction.ACTIVE], categories=["c"])
    assert isinstance(marker, Marker) and profiler.marker("m", categories=["d"]) is marker
    with marker:
        marker.instant()
    assert handler.told == []
    action = ProfilerAction.ACTIVE
    with marker:
        action = ProfilerAction.SKIP  # what began is also ended
    action = ProfilerAction.ACTIVE
    marker(lambda: marker.counter({"n": 1}))()
    marker()(lambda: None)()
    marker.start()  # an exception came: it never finishes
    marker.start()
    marker.finish()
    marker.finish()
    assert handler.told == [
        ("m", "start", "d"), ("m", "finish", "d"),
        ("m", "start", "d"), ("m", {"n": 1}, "d"), ("m", "finish", "d"),
        ("m", "start", "d"), ("m", "finish", "d"),
        ("m", "start", "d"), ("m", "start", "d"), ("m", "finish", "d"),
    ]  # fmt: skip
    del handler.told[:]
    twice = profiler.marker("i", [ProfilerAction.ACTIVE], True, True)
    with twice:
        pass
    kinds = [told[1] for told in handler.told]
    assert kinds == ["start", "instant", "finish", "instant"]
    profiler.record_chrome_json_trace_file("folder/trace.json")
    assert handler.told[-1] == "trace.json"


def test_no_schedule_is_asked_for_nobody():
    """Composer wraps every callback of every event in a marker."""
    calls = []
    profiler = Profiler(calls.append)
    profiler.bind_to_state(types.SimpleNamespace(callbacks=[]))
    with profiler.marker("m"):
        pass
    assert calls == []


def test_a_resumed_run_skips_what_it_had_trained():
    profiler = Profiler(cyclic_schedule(active=1))
    state = state_at(7)
    profiler.after_load(state, None)
    assert profiler.resumption_batch_idx == 7
    state.profiler = profiler
    assert profiler.schedule(state) == ProfilerAction.WARMUP


def test_torch_profiler_needs_a_profiler(tmp_path):
    state = types.SimpleNamespace(profiler=None, run_name="r")
    with pytest.raises(RuntimeError, match="TorchProfiler. To enable, set the `profiler`"):
        TorchProfiler(folder=str(tmp_path)).init(state, None)
