"""What memlab.Recording and memlab.MemorySnapshot have in common, and their words."""

import copy
import json
import pickle
import re
import xml.etree.ElementTree as ElementTree

import pytest
from exports import small
from rank_files import MIB, SECOND
from segments import BASE, block, event, frame, segment

import memlab
from memlab import _core
from memlab._recording.answers import Answers

METHODS = [name for name in vars(Answers) if not name.startswith("_")]
HOSTILE = "<script>alert(1)</script>&\"'"


def trained(folder, extra=0):
    """A MemorySnapshot of two steps that peak at 4 MiB, and EXTRA MiB in the second."""
    script = _core.Script()
    script.reset()
    path = folder / f"run{extra}.mlab"
    with memlab.MemorySnapshot(source="script", file=path) as recorded:
        time = iter(range(SECOND, 2 * SECOND, 1000))
        script.emit("segment_alloc", BASE, 16 * MIB, time=next(time))
        for step in range(2):
            for i in range(4 + step * extra):
                script.emit("alloc", BASE + i * MIB, MIB, time=next(time))
            for i in range(4 + step * extra):
                script.emit("free_requested", BASE + i * MIB, MIB, time=next(time))
                script.emit("free_completed", BASE + i * MIB, MIB, time=next(time))
            memlab.step()
    script.reset()
    return recorded


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("recorded"))


def test_a_memory_snapshot_has_the_methods_of_a_recording():
    for name in METHODS:
        if name not in ("data", "path"):
            assert getattr(memlab.MemorySnapshot, name) is getattr(memlab.Recording, name)


def test_and_the_same_answers(recorded):
    read = memlab.open(recorded.path)
    assert recorded.peak(0)["by_line"] == read.peak(0)["by_line"]
    assert recorded.at("step:1")["peak"] == read.at("step:1")["peak"]
    # The last of the file's events is its end's.
    events = list(recorded.events()["action"])
    assert read.events(0)["action"] == [*events, "snapshot"] and len(events) == 25
    for ask in ("replay", "explain", "tune"):
        mine, theirs = (getattr(r, ask)(device=0)["devices"][0] for r in (recorded, read))
        assert mine.keys() == theirs.keys()
    assert recorded.tune(device=0)["devices"][0]["best"] == read.tune(device=0)["devices"][0]["best"]
    assert recorded.explain(device=0)["devices"][0]["peak"] == read.explain()["devices"][0]["peak"]
    assert recorded.modules() == read.modules() == []
    assert recorded.oom() is read.oom() is None
    assert "<memlab.MemorySnapshot " in repr(recorded)
    assert repr(recorded).endswith(
        "script:0 peaks at 4.00 MiB allocated, 16.0 MiB reserved, in 25 events>"
    )


def test_before_and_after_a_recording(tmp_path):
    recorded = memlab.MemorySnapshot(source="script")
    assert repr(recorded) == "<memlab.MemorySnapshot: nothing was recorded; call start() first>"
    assert recorded._repr_html_() is None and recorded.path is None
    with pytest.raises(memlab.Error, match="nothing was recorded"):
        recorded.events()
    with pytest.raises(memlab.Error, match="nothing was recorded"):
        memlab.explain(recorded)


def test_a_difference_of_recordings_wherever_they_are(tmp_path, recorded):
    """The later run has 2 MiB more in its second step, and there its peak."""
    later = trained(tmp_path, extra=2)
    opened = memlab.open(later.path)
    for before, after in ((recorded, later), (recorded.path, opened), (opened, recorded)):
        answer = memlab.diff(before, after, device=0)
        sign = -1 if before is opened else 1
        assert answer["difference"]["difference_bytes"] == sign * 2 * MIB
    answer = recorded.diff(later, device=0)
    assert str(answer).startswith("+2.00 MiB at the peak: ")
    assert answer["before"]["file"] == recorded.path
    steps = later.diff(at=("step:0", "step:1"), device=0)
    assert steps["difference"]["difference_bytes"] == 2 * MIB
    assert steps["before"]["at"] == "step:0"
    page = tmp_path / "diff.html"
    recorded.diff(later, device=0, html=page)
    assert "2.00 MiB" in page.read_text()
    with pytest.raises(ValueError, match="name a second, or two instants or ranks"):
        recorded.diff()
    with pytest.raises(ValueError, match="'never' is not an instant"):
        recorded.diff(later, at="never")


def test_an_answer_is_a_dict_and_a_text(recorded):
    answer = recorded.replay(device=0)
    assert str(answer).startswith("script:0\n")
    assert "The model replays the 25 events of the recording" in str(answer)
    assert "<td" in answer._repr_html_()
    plain = dict(answer)
    assert json.loads(json.dumps(answer)) == plain
    for again in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert type(again) is dict and again == plain


def test_a_core_recording_is_taken_too():
    assert memlab.replay(small())["devices"][0]["name"] == "cuda:0"
    with pytest.raises(memlab.Error, match="^the recording: the recording has no memory of"):
        memlab.replay(small(), device=9)


# ---- Tables ----


def test_events_as_columns():
    """Of two devices, one after the other; what is known of them by hand."""
    table = memlab.Recording(small()).events()
    assert repr(table).startswith("<memlab.Table events: 6 rows of device, event, time_ns, ")
    assert len(table) == 6
    assert table["device"].tolist() == [0, 0, 0, 0, 1, 1]
    assert table["event"].tolist() == [0, 1, 2, 3, 0, 1]
    assert table["action"] == [
        "alloc", "alloc", "free_requested", "free_completed", "alloc", "oom"
    ]
    assert table["bytes"].tolist() == [500, 1000, 500, 500, 512, 4 << 40]
    assert table["backward"].tolist() == [False] * 6
    assert table["metadata"] == [""] * 6
    only = memlab.Recording(small()).events(1)
    assert only["event"] == range(2) and only["allocated"].tolist() == [512, 512]


def test_other_tables():
    recording = memlab.Recording(small())
    allocations = recording.table()
    assert allocations["function"] == ["grow", "step", ""]
    assert recording.table("frames").columns[0] == "frame"
    assert "device" not in recording.table("stacks").columns


def test_a_table_that_there_is_not():
    recording = memlab.Recording(small())
    with pytest.raises(ValueError, match="no table 'rows': there are allocations, events"):
        recording.table("rows")
    with pytest.raises(IndexError, match="2 devices, no 2"):
        recording.events(2)
    with pytest.raises(KeyError, match="events has device, event, .*; no 'size'"):
        recording.events()["size"]
    with pytest.raises(TypeError, match="a Table is columns, by their names, not rows"):
        next(iter(recording.events()))


def test_an_argument_of_another_kind_is_named():
    recording = memlab.Recording(small())
    for instant in (3, 1.5, None):
        with pytest.raises(TypeError, match=f"an instant is a str, not {instant}: peak, "):
            recording.at(instant)
    for ask in (recording.peak, recording.modules, recording.events, recording.oom):
        with pytest.raises(TypeError, match="a device is its index .*, not 'cuda:1'"):
            ask("cuda:1")
    with pytest.raises(TypeError, match="not a recording: 3; give a path"):
        recording.diff(3)
    with pytest.raises(ValueError, match="24 bytes of memory: did you mean '24GiB'"):
        recording.replay(memory=24)


def test_one_name_needs_no_list():
    recording = memlab.Recording(small())
    assert recording.summary(by="size") == recording.summary(by=["size"])
    text = str(memlab.report(recording, by="size"))
    assert text == str(memlab.report(recording, by=("size",)))
    with pytest.raises(memlab.Error, match="no function train allocates"):
        recording.lines(functions="train")


def test_tables_of_other_tools():
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    recording = memlab.Recording(small())
    events = recording.events()
    arrow = recording.to_arrow("events")
    assert arrow.column_names == events.columns
    for name in events.columns:
        assert arrow[name].to_pylist() == list(events[name]), name
    # What reads Arrow's stream needs no method of ours.
    assert pyarrow.table(events).equals(arrow)
    assert recording.to_arrow(device=1).num_rows == 1


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_frames_of_other_tools(name):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip(name, reason=f"{name} is not installed")
    recording = memlab.Recording(small())
    frame = getattr(recording, f"to_{name}")("events")
    assert list(frame.columns) == recording.events().columns
    assert frame["bytes"].sum() == 500 * 3 + 1000 + 512 + (4 << 40)
    assert list(frame["action"])[-1] == "oom"


@pytest.mark.parametrize(("name", "what"), [("pyarrow", "arrow"), ("pandas", "pandas"), ("polars", "polars")])
def test_without_a_package(monkeypatch, name, what):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(memlab.Error, match=f"needs {name} .*: pip install "):
        getattr(memlab.Recording(small()), f"to_{what}")()


# ---- A notebook ----


def test_a_notebook_shows_the_first_screen_and_a_picture(recorded):
    shown = memlab.open(recorded.path)._repr_html_()
    assert "<h4>Peak on script:0: 4.00 MiB allocated" in shown
    svg = ElementTree.fromstring(shown[shown.index("<svg") :])
    texts = [text.text for text in svg.iter("text")]
    # 25 events, one a microsecond: the fourth block is the fifth.
    assert "peak 4.00 MiB at 0.004 ms" in texts
    assert "0.024 ms" in texts and "reserved" in texts


def test_the_picture_is_of_the_device_that_the_screen_shows():
    shown = memlab.Recording(small())._repr_html_()
    # The second ran out of memory; the first has more.
    assert "<h4>Peak on cuda:1: 512 B allocated" in shown
    assert "peak 512 B at" in shown


def test_names_of_a_recording_are_no_markup(tmp_path):
    stack = [frame(HOSTILE, HOSTILE, 9)]
    data = {
        "segments": [segment(BASE, [block(BASE, 2 * MIB, 2 * MIB, frames=stack)])],
        "device_traces": [[event("alloc", BASE, 2 * MIB, stack, time_us=SECOND)]],
    }
    recording = memlab.Recording(_core.Recording.from_bytes(pickle.dumps(data, 4)))
    shown = recording._repr_html_()
    assert "&lt;script&gt;" in shown and "<script" not in shown
    said = re.sub(r"<[^>]*>", "", shown)
    assert "<" not in said
