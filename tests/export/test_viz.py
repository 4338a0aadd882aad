"""memlab.viz: what torch.cuda._memory_viz does, where it is right and where it is not."""

import copy
import gzip
import html
import json
import pickle
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from segments import (
    BASE,
    HOSTILE,
    MAIN,
    MIB,
    STEP,
    block,
    changed,
    event,
    frame,
    recording,
    segment,
    snapshot,
    two_segments,
)

import memlab
from memlab import _core, viz

DATA = Path(__file__).parents[1] / "data"
PAGE = 20 * MIB
SVG = "{http://www.w3.org/2000/svg}"


def real(name):
    return pickle.loads(gzip.decompress((DATA / name).read_bytes()))


@pytest.fixture
def memory_viz(torch):
    from torch.cuda import _memory_viz

    return _memory_viz


# ---- segsum ----


@pytest.mark.parametrize("name", ["gpt2_oom.pickle.gz", "streams_expandable.pickle.gz"])
def test_segsum_is_torchs(memory_viz, name):
    data = real(name)
    assert viz.segsum(data) == memory_viz.segsum(data)


def test_segsum_of_small_segments_is_torchs(memory_viz):
    data = snapshot(two_segments())
    assert viz.segsum(data) == memory_viz.segsum(data)


def pages():
    """A block of one page, ten blocks that fill the second, a half of the third in two
    blocks, the fourth free; then 40 MiB of another stream and device."""
    tenth = PAGE // 10
    sizes = [PAGE, *[tenth] * 10, PAGE // 4, PAGE // 4]
    blocks = []
    at = BASE
    for size in sizes:
        blocks.append(block(at, size, size))
        at += size
    blocks.append(block(at, PAGE // 2 + PAGE, 0, "inactive"))
    other = [
        block(BASE, PAGE, PAGE - 4 * MIB),
        block(BASE + PAGE, PAGE, PAGE, "active_pending_free"),
    ]
    return snapshot(
        [segment(BASE, blocks), segment(BASE, other, stream=7, device=1)], ([], [])
    )


def test_segsum_by_hand():
    lines = viz.segsum(pages()).split("\n")
    assert lines[:7] == [
        "Summary of segments >= 20.0MiB in size",
        # 4 MiB are internal of 24 MiB free: what waits for its stream counts as free.
        "[a ] 40.0MiB allocated, 24.0MiB (16.7% internal) free stream_7 device_1",
        "[a*5 ] 80.0MiB allocated, 30.0MiB (0.0% internal) free",
        "segments: 2",
        "total_reserved: 120.0MiB",
        "total_allocated: 66.0MiB",
        "total_free: 54.0MiB (7.4% internal)",
    ]


def test_segsum_totals_are_the_allocators():
    data = real("streams_expandable.pickle.gz")
    reserved = sum(s["total_size"] for s in data["segments"])
    assert f"total_reserved: {reserved / MIB / 1024:.1f}GiB" in viz.segsum(data)
    assert viz.segsum(data["segments"]) == viz.segsum(data)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0.0B"),
        (1023, "1023.0B"),
        (1536, "1.5KiB"),
        (1024 + 256, "1.2KiB"),  # a tie goes to the even digit
        (1024 + 768, "1.8KiB"),
        (MIB - 1, "1024.0KiB"),
        (1 << 60, "1.0EiB"),
    ],
)
def test_sizes(size, text):
    data = snapshot([], [[event("alloc", BASE, size)]])
    assert viz.trace(data).endswith(f"TOTAL MEM: {text}")


# ---- trace ----


def test_trace_lines_are_torchs(memory_viz):
    data = snapshot(
        two_segments(),
        [
            [
                event("segment_alloc", BASE + 8 * MIB, 2 * MIB),
                event("alloc", BASE + 8 * MIB, 1000),
                event("alloc", BASE + 8 * MIB + 1024, 512),
                event("alloc", BASE + 1024, 512),
                event("alloc", BASE + 64 * MIB, 512),
                event("free_requested", BASE + 512, 512),
                event("free_requested", BASE + 8 * MIB, 1000),
                event("free_completed", BASE + 8 * MIB, 1000),
                event("oom", 3 * MIB, 4 << 40),
            ]
        ],
    )
    mine = viz.trace(data).split("\n")
    assert mine[:-1] == memory_viz.trace(data).split("\n")[:-1]
    # Its last event's index and the bytes that went to it are torch's total.
    assert mine[-1] == "TOTAL MEM: 1.5KiB"


def test_trace_by_hand():
    small = BASE + 8 * MIB
    first = [
        event("alloc", BASE + 1024, 512),  # a
        event("segment_alloc", small, 2 * MIB),  # b
        event("alloc", small + 512, 1024),  # c
        event("free_requested", small + 512, 1024),
        event("free_completed", small + 512, 1024),
        event("alloc", small, 2048),  # c again
        event("free_requested", small, 2048),
        event("free_completed", small, 2048),
        event("segment_free", small, 2 * MIB),
        event("alloc", small + 512, 512),  # in a segment that is no more
        event("segment_map", BASE + 32 * MIB, 4 * MIB),
        event("alloc", BASE + 33 * MIB, 100),
        event("segment_unmap", BASE + 32 * MIB, 2 * MIB),
        event("segment_unmap", BASE + 34 * MIB, 2 * MIB),
        event("free_completed", BASE, 5),
        event("snapshot", 0, 0),
        event("oom", 512, 1536),
    ]
    # Beyond what is allocated at the end of it, and of the other device.
    second = [event("alloc", BASE + MIB, 512)]
    data = snapshot(
        [*two_segments(), segment(BASE, two_segments()[0]["blocks"], device=1)],
        [first, second],
    )
    # b is given back last and taken first, and gone with the segment.
    assert viz.trace(data) == (
        "Device 0 ----------------\n"
        "17 entries\n"
        "a = seg_0[1024:512.0B]\n"
        f"b = cudaMalloc({small}, 2.0MiB)\n"
        "c = b[512:1.0KiB]\n"
        "del c # 1.0KiB\n"
        "# free completed for c 1.0KiB\n"
        "c = b[0:2.0KiB]\n"
        "del c # 2.0KiB\n"
        "# free completed for c 2.0KiB\n"
        "cudaFree(b) # 2.0MiB\n"
        f"b = MEM[{small + 512}:512.0B]\n"
        f"c = cuMemMap({BASE + 32 * MIB}, 4.0MiB)\n"
        f"d = c[{MIB}:100.0B]\n"
        "cuMemUnmap(c) # 2.0MiB\n"
        "cuMemUnmap(c) # 2.0MiB\n"
        f"# free completed for {BASE} 5.0B\n"
        "# snapshot\n"
        "raise OutOfMemoryError # 1.5KiB requested, 512.0B free in CUDA\n"
        "TOTAL MEM: 1.1KiB\n"
        "Device 1 ----------------\n"
        "1 entries\n"
        f"a = seg_2[{MIB}:512.0B]\n"
        "TOTAL MEM: 512.0B"
    )


def test_names_after_z():
    allocs = [event("alloc", BASE + 512 * i, 512) for i in range(54)]
    lines = viz.trace(snapshot([], [allocs])).split("\n")
    assert [line.split(" ")[0] for line in (lines[27], lines[28], lines[54])] == [
        "z",
        "a1",
        "a2",
    ]


def test_total_is_what_is_left():
    data = real("streams_expandable.pickle.gz")
    live = {}
    for entry in data["device_traces"][0]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
        elif entry["action"] == "free_completed":
            live.pop(entry["addr"], None)
    total = f"{sum(live.values()) / MIB:.1f}MiB"
    assert viz.trace(data).endswith(f"TOTAL MEM: {total}")


# ---- flame graphs ----


def titles(svg):
    root = ElementTree.fromstring(svg)
    return [g.find(f"{SVG}title").text.split("\n") for g in root.iter(f"{SVG}g")]


def test_flame_graphs():
    data = snapshot(two_segments())
    assert viz.memory(data) == recording(data).flame_svg("memory").decode()
    assert viz.segments(data) == recording(data).flame_svg("segments").decode()


@pytest.mark.parametrize("what", ["segments", "memory"])
def test_folded_lines_for_another_drawer(memory_viz, what):
    data = snapshot(two_segments())
    mine = getattr(viz, what)(data, str.upper)
    assert mine == getattr(memory_viz, what)(data, str.upper)


def test_compare():
    before, after = snapshot(two_segments()), changed()
    boxes = {lines[0]: lines[1:] for lines in titles(viz.compare(before, after))}
    assert boxes["all memory, ±0 B"] == [
        "before: 4.00 MiB (4,194,304 bytes)",
        "after: 4.00 MiB (4,194,304 bytes)",
        "difference: ±0 B",
    ]
    # 1000 as allocated, 512 of MAIN's own; 300 that waited.
    assert boxes["main /u/train.py:3, +2.45 KiB"] == [
        "before: 1.48 KiB (1,512 bytes)",
        "after: 3.93 KiB (4,024 bytes)",
        "difference: +2.45 KiB (2,512 bytes)",
    ]
    assert boxes["step /u/lib/model.py:7, +1.95 KiB"][2] == (
        "difference: +1.95 KiB (2,000 bytes)"
    )
    assert boxes["grow /u/lib/model.py:9, +1.00 KiB"][0] == "before: 0 B"
    # What is gone shows as well.
    assert boxes["freed, awaiting its streams, −512 B"][1] == "after: 0 B"


def test_compare_turned_round():
    before, after = snapshot(two_segments()), changed()
    there = {(b[0].split(", ")[0], *b[1:3]) for b in titles(viz.compare(before, after))}
    back = titles(viz.compare(after, before))
    assert there == {
        (
            b[0].split(", ")[0],
            b[2].replace("after", "before"),
            b[1].replace("before", "after"),
        )
        for b in back
    }


def test_compare_takes_segments():
    before, after = snapshot(two_segments()), changed()
    whole = viz.compare(before, after)
    assert viz.compare(before["segments"], after["segments"]) == whole
    assert "+" not in "".join(b[0] for b in titles(viz.compare(before, before)))


def test_folded_lines_of_compare_are_torchs(memory_viz):
    before, after = snapshot(two_segments()), changed()
    # One that stays, of another device than the one that goes.
    for data in (before, after):
        data["segments"].append(segment(BASE + 4 * MIB, [block(BASE + 4 * MIB, 512, 512)], 0, 1))
    before["device_traces"] = after["device_traces"] = [[], []]
    mine = viz.compare(before, after, str.upper)
    theirs = memory_viz.compare(before["segments"], after["segments"], str.upper)
    assert mine == theirs and "ONLY_BEFORE;STREAM_7;SEG_" in mine
    assert viz.compare(before, before, str) == ""


def test_compare_boxes_nest():
    svg = viz.compare(real("gpt2_oom.pickle.gz"), real("streams_expandable.pickle.gz"))
    rows = {}
    for g in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        box = g.find(f"{SVG}rect")
        x, y, width = (float(box.get(name)) for name in ("x", "y", "width"))
        rows.setdefault(y, []).append((x, x + width))
    assert len(rows) > 5
    for y, boxes in rows.items():
        boxes.sort()
        for (_, end), (start, _) in zip(boxes, boxes[1:]):
            assert start >= end - 0.02
        above = rows.get(y - 17, [(0, 1220)])
        for start, end in boxes:
            assert any(a <= start + 0.02 and end <= b + 0.02 for a, b in above)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name):
    def data(function, file):
        blocks = [block(BASE, 512, 512, frames=[frame(function, file)])]
        events = [event("alloc", BASE, 512, [frame(function, file)])]
        return snapshot([segment(BASE, blocks)], [events])

    tame, wild = data("f", "g.py"), data(name, name)

    def tags(svg):
        return [e.tag for e in ElementTree.fromstring(svg).iter()]

    assert tags(viz.compare(tame, wild)) == tags(viz.compare(tame, data("h", "i.py")))
    assert tags(viz.memory(wild)) == tags(viz.memory(tame))
    for plot in (viz.trace_plot, viz.segment_plot):
        assert plot(wild).count("<script") == plot(tame).count("<script")
        assert "alert(1)<" not in plot(wild)
    assert viz.trace(wild) == viz.trace(tame)


# ---- pages ----


def about(page):
    text = re.search(r'id="memlab-about">(.*?)</script>', page, re.S).group(1)
    return json.loads(html.unescape(text))


@pytest.mark.parametrize(
    ("plot", "words", "view"),
    [
        (viz.trace_plot, "Active Memory Timeline", "timeline"),
        (
            lambda data, device=None: viz.trace_plot(data, device, True),
            "Active Cached Memory Timeline",
            "timeline",
        ),
        (viz.segment_plot, "Allocator State History", "segments"),
    ],
)
def test_pages(plot, words, view):
    data = snapshot(
        [segment(BASE, [block(BASE, 512, 512)], device=1)],
        ([], [event("alloc", BASE, 512)]),
    )
    page = plot(data)
    assert page.startswith("<!DOCTYPE html>")
    assert "cdn.jsdelivr" not in page and "http-equiv" in page
    assert about(page)["title"] == words
    # The first device has no events.
    assert about(page)["state"] == {"view": view, "device": 1}
    for device in (0, "cuda:0", "cuda"):
        assert about(plot(data, device))["state"]["device"] == 0
    with pytest.raises(ValueError, match="devices 0 to 1, no 2"):
        plot(data, 2)


def test_pages_open_at_what_was_asked_for(open_page):
    trace = [event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 512)]
    blocks = [block(BASE, 512, 512), block(BASE + 512, 2 * MIB - 512, 0, "inactive")]
    data = snapshot([segment(BASE, blocks, device=1)], ([], trace))
    shown = "(() => { const {model, state} = memlabViewer.shown();"
    shown += " return [state.view, state.device, model.devices[state.device].peak] })()"
    for page, view, most in (
        (viz.trace_plot(data), "timeline", 512),
        (viz.trace_plot(data, plot_segments=True), "timeline", 2 * MIB),
        (viz.segment_plot(data), "segments", 512),
    ):
        found, device, peak = open_page(page.encode()).evaluate(shown)
        assert (found, device, peak["allocated"]) == (view, 1, most)


def test_device_of_torch(torch):
    data = snapshot([], ([], [event("alloc", BASE, 512)]))
    page = viz.trace_plot(data, torch.device("cuda", 0))
    assert about(page)["state"]["device"] == 0


def test_filter_freed_leaves_what_is_there():
    kept = [
        event("free_requested", BASE + 9 * 512, 512),  # there before
        event("free_completed", BASE + 9 * 512, 512),
        event("alloc", BASE, 500),
        event("alloc", BASE + 512, 512),
        event("free_requested", BASE + 512, 512),  # waits for its stream
    ]
    gone = [
        event("alloc", BASE + 1024, 512),
        event("free_requested", BASE + 1024, 512),
        event("free_completed", BASE + 1024, 512),
    ]
    blocks = [
        block(BASE, 512, 500),
        block(BASE + 512, 512, 512, "active_pending_free"),
        block(BASE + 1024, 2 * MIB - 1024, 0, "inactive"),
    ]
    trace = [*gone, *kept[:3], gone[0], *kept[3:], *gone[1:], *gone]
    data = snapshot([segment(BASE, blocks)], [trace])
    before = copy.deepcopy(data)
    left = recording(data).excerpt("unfreed").to_dict()
    entries = left["device_traces"][0]
    assert [(e["action"], e["addr"]) for e in entries] == [
        (e["action"], e["addr"]) for e in kept
    ]
    assert left["segments"][0]["blocks"] == data["segments"][0]["blocks"]
    viz.trace_plot(data, filter_freed=True)
    assert data == before


@pytest.mark.parametrize("name", ["gpt2_oom.pickle.gz", "streams_expandable.pickle.gz"])
def test_filter_freed_is_exact(name):
    data = _core.Recording.from_bytes(pickle.dumps(real(name)))
    left = data.excerpt("unfreed")
    entries = left.to_dict()["device_traces"][0]
    sizes = {
        b["address"]: b["size"]
        for s in left.to_dict()["segments"]
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    now = most = sum(sizes.values())
    assert {e["action"] for e in entries} & {"free_requested", "free_completed"} == set()
    for entry in reversed(entries):
        now -= sizes[entry["addr"]] if entry["action"] == "alloc" else 0
        most = max(most, now)
    assert left.peak(0)["peak"]["allocated_bytes"] == most


@pytest.mark.parametrize("name", ["gpt2_oom.pickle.gz", "streams_expandable.pickle.gz"])
def test_segments_as_blocks(name):
    data = _core.Recording.from_bytes(pickle.dumps(real(name)))
    as_blocks = data.excerpt("segments")
    peak = as_blocks.peak(0)
    assert peak["mismatches"] == 0
    assert (
        peak["peak"]["allocated_bytes"] == data.peak(0)["whole_peak"]["reserved_bytes"]
    )


def test_pages_of_memory_are_cut_where_they_go():
    trace = [
        event("segment_map", BASE, 8 * MIB, [MAIN]),
        event("segment_unmap", BASE + 2 * MIB, 4 * MIB),
        event("segment_map", BASE + 2 * MIB, 2 * MIB, [STEP]),
        event("alloc", BASE, 512),
    ]
    at_end = [
        segment(BASE, [block(BASE, 4 * MIB, 0, "inactive")]),
        segment(BASE + 6 * MIB, [block(BASE + 6 * MIB, 2 * MIB, 0, "inactive")]),
    ]
    for s in at_end:
        s["is_expandable"] = True
    left = recording(snapshot(at_end, [trace])).excerpt("segments")
    entries = left.to_dict()["device_traces"][0]
    assert [(e["action"], (e["addr"] - BASE) // MIB, e["size"] // MIB) for e in entries] == [
        ("alloc", 0, 2),
        ("alloc", 2, 2),
        ("alloc", 4, 2),
        ("alloc", 6, 2),
        ("free_requested", 2, 2),
        ("free_completed", 2, 2),
        ("free_requested", 4, 2),
        ("free_completed", 4, 2),
        ("alloc", 2, 2),
    ]
    assert left.peak(0)["peak"]["allocated_bytes"] == 8 * MIB
    assert left.peak(0)["mismatches"] == 0
    assert entries[-1]["frames"] == [STEP]


@pytest.mark.parametrize(
    ("device", "index"),
    [(None, 0), (1, 1), ("1", 1), ("cuda:1", 1), ("cuda", 0), ("cpu", 0)],
)
def test_devices(device, index):
    data = snapshot([segment(BASE, [block(BASE, 512, 512)], device=1)], ([], []))
    assert viz._index(viz._recording(data), device) == index


@pytest.mark.parametrize("device", [2, -1, "cuda:2", "cuda:x", "cuda:-1", "", ":1", "1 "])
def test_no_such_device(device):
    with pytest.raises(ValueError, match="has devices 0 to 1, no "):
        viz.segment_plot(snapshot([], ([], [])), device)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="str; memlab.load"):
        viz.segsum("run.pickle")
    with pytest.raises(memlab.SnapshotError):
        viz.memory({"segments": 3})
    with pytest.raises(memlab.SnapshotError, match="not a snapshot"):
        viz.trace({"segments": [], "device_traces": [], "x": lambda: 0})
    with pytest.raises(ValueError, match="unfreed"):
        recording(snapshot([])).excerpt("freed")
