"""Pictures of a recording: flame graphs, the page of segments, the timeline.

What torch writes of the same snapshot, and models written here, say what must be in them.
"""

import base64
import hashlib
import html.parser
import pickle
import re
import xml.etree.ElementTree as ElementTree

import pytest

from memlab import _core

SVG = "{http://www.w3.org/2000/svg}"
BASE = 0x7F0000000000
MIB = 1 << 20


def frame(name, filename="/u/train.py", line=1):
    return {"name": name, "filename": filename, "line": line}


def block(address, size, requested, state="active_allocated", frames=()):
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": list(frames),
    }


def segment(address, blocks, stream=0, device=0):
    used = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": sum(
            b["size"] for b in used if b["state"] == "active_allocated"
        ),
        "active_size": sum(b["size"] for b in used),
        "requested_size": sum(b["requested_size"] for b in used),
        "stream": stream,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def snapshot(segments, traces=((),)):
    return {
        "segments": segments,
        "device_traces": [list(trace) for trace in traces],
        "allocator_settings": {},
        "external_annotations": [],
    }


def recording(data):
    return _core.Recording.from_bytes(pickle.dumps(data))


MAIN = frame("main", "/u/train.py", 3)
STEP = frame("step", "/u/lib/model.py", 7)


def two_segments():
    """Two stacks and one block without; a block that waits for its stream."""
    return [
        segment(
            BASE,
            [
                block(BASE, 1024, 1000, frames=[STEP, MAIN]),
                block(BASE + 1024, 512, 512, frames=[MAIN]),
                block(BASE + 1536, 512, 300, "active_pending_free", [STEP, MAIN]),
                block(BASE + 2048, 2 * MIB - 2048, 0, "inactive"),
            ],
        ),
        segment(
            BASE + 4 * MIB,
            [
                block(BASE + 4 * MIB, MIB, MIB - 100),
                block(BASE + 5 * MIB, MIB, 0, "inactive"),
            ],
            stream=7,
        ),
    ]


FOLDED = f"""\
stream_0;seg_{BASE};active_allocated;train.py:3:main;model.py:7:step 1000
stream_0;seg_{BASE};active_allocated;<gaps> 24
stream_0;seg_{BASE};active_allocated;train.py:3:main 512
stream_0;seg_{BASE};active_pending_free;train.py:3:main;model.py:7:step 300
stream_0;seg_{BASE};active_pending_free;<gaps> 212
stream_0;seg_{BASE};inactive;<non-python> 0
stream_0;seg_{BASE};inactive;<gaps> {2 * MIB - 2048}
stream_7;seg_{BASE + 4 * MIB};active_allocated;<non-python> {MIB - 100}
stream_7;seg_{BASE + 4 * MIB};active_allocated;<gaps> 100
stream_7;seg_{BASE + 4 * MIB};inactive;<non-python> 0
stream_7;seg_{BASE + 4 * MIB};inactive;<gaps> {MIB}
"""


def test_folded_lines():
    data = recording(snapshot(two_segments()))
    assert data.flame_folded("segments").decode() == FOLDED
    memory = FOLDED.replace(f"seg_{BASE + 4 * MIB};", "").replace(f"seg_{BASE};", "")
    assert data.flame_folded("memory", 0).decode() == memory


@pytest.mark.parametrize("what", ["segments", "memory"])
def test_folded_lines_are_torchs(torch, what):
    from torch.cuda import _memory_viz

    native = [
        frame("at::native::add", "/src/Add.cpp", 12),
        frame("PyObject_Call", "Objects/call.c", 3),
        frame("call", "/src/core/boxing/impl.h", 1),
    ]
    segments = two_segments()
    segments[0]["blocks"][1]["frames"] = [*native, STEP, MAIN]
    segments[1]["blocks"][0]["frames"] = native[1:]
    data = snapshot(segments)
    # An inactive block says what it was last asked for, be it more than it has now.
    segments[0]["blocks"][3]["requested_size"] = 3 * MIB
    expected = getattr(_memory_viz, what)(data, lambda text: text)
    assert recording(data).flame_folded(what).decode() == expected


def boxes(svg):
    """Of each box its title's first line and its bytes, in the order of the file."""
    root = ElementTree.fromstring(svg)
    return [
        tuple(g.find(f"{SVG}title").text.split("\n")) for g in root.iter(f"{SVG}g")
    ]


def test_flame_svg():
    data = recording(snapshot(two_segments()))
    titles = dict(boxes(data.flame_svg("memory")))
    assert titles["all memory"] == "4.00 MiB (4,194,304 bytes), 100.0 %, 6 blocks"
    assert titles["stream 7"] == "2.00 MiB (2,097,152 bytes), 50.0 %, 2 blocks"
    assert titles["no stack recorded"] == (
        "1023.90 KiB (1,048,476 bytes), 25.0 %, 1 block"
    )


def test_wrong_arguments():
    data = recording(snapshot(two_segments()))
    with pytest.raises(ValueError, match="memory"):
        data.flame_svg("lines")
    with pytest.raises(IndexError):
        data.flame_svg("memory", 1)
    with pytest.raises(TypeError):
        data.flame_svg("memory", "0")


# ---- pages ----


class Page(html.parser.HTMLParser):
    """What an HTML page has: its elements with their attributes, and their text."""

    def __init__(self, data):
        super().__init__()
        self.open = []
        self.elements = []  # [tag, attributes, text]
        self.feed(data.decode())
        self.close()
        assert self.open == [], "elements that are not closed"

    def handle_starttag(self, tag, attrs):
        element = [tag, dict(attrs), ""]
        self.elements.append(element)
        if tag != "meta":
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.elements.append([tag, dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][2] += data

    def texts(self, tag):
        return [text for name, _, text in self.elements if name == tag]

    def table(self):
        """Rows of the tables: [header, cell, ...]."""
        rows = []
        for name, _, text in self.elements:
            if name == "tr":
                rows.append([])
            elif name in ("th", "td"):
                rows[-1].append(text)
        return rows


def exact_bytes(text):
    """The bytes that "1.50 KiB (1,536 bytes)" or "12 B" says."""
    found = re.search(r"\(([\d,]+) bytes\)|\b(\d+) B\b", text)
    return int((found[1] or found[2]).replace(",", ""))


def pages(data):
    return [data.segments_page(), data.timeline_page(None, "a run")]


def test_pages_load_nothing():
    for page in pages(recording(snapshot(two_segments()))):
        parsed = Page(page)
        style = parsed.texts("style")[0]
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        policy = next(
            a["content"]
            for _, a, _ in parsed.elements
            if a.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy == (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; "
            "form-action 'none'"
        )
        assert {tag for tag, _, _ in parsed.elements}.isdisjoint(
            {"script", "link", "img", "iframe", "a", "object", "use", "image"}
        )
        for _, attributes, _ in parsed.elements:
            assert not any(n.startswith("on") or n == "style" for n in attributes)
            assert {"href", "src", "xlink:href"}.isdisjoint(attributes)
