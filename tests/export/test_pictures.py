"""Pictures of a recording: flame graphs, the page of segments, the timeline.

What torch writes of the same snapshot, and models written here, say what must be in them.
"""

import base64
import bisect
import hashlib
import html.parser
import itertools
import json
import random
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from segments import (
    BASE,
    MAIN,
    MIB,
    STEP,
    block,
    frame,
    recording,
    segment,
    snapshot,
    two_segments,
)

import memlab
from memlab import _core

SVG = "{http://www.w3.org/2000/svg}"
VIEWER = Path(memlab.__file__).parent / "viewer"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# A machine may be busy: only a page that never comes is wrong.
PATIENCE_MS = 120_000

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
        "1.00 MiB (1,048,476 bytes), 25.0 %, 1 block"
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


HOSTILE = (
    "</title></script>]]><b>&\"'\x00\x01\x1b\x7f\x85\u2028\u202e\u2066\ud800\ufffe\U0001f600"
)


def shown(text):
    """TEXT as a picture shows it: what cannot be shown, or turns text around, is not."""
    steering = {0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)}
    replaced = []
    for character in text:
        c = ord(character)
        if c < 0x20 or c == 0x7F:
            replaced.append(chr(0x2421 if c == 0x7F else 0x2400 + c))
        elif (
            0x80 <= c < 0xA0
            or 0xD800 <= c < 0xE000
            or c & 0xFFFE == 0xFFFE
            or c in steering
        ):
            replaced.append("\ufffd")
        else:
            replaced.append(character)
    return "".join(replaced)


def test_names_stay_inside_their_elements():
    """A hostile file's names are text, wherever they stand."""
    bad = frame(HOSTILE, f"/u/{HOSTILE}.py", 5)
    blocks = [
        block(BASE, MIB, MIB, frames=[bad]),
        block(BASE + MIB, MIB, 0, "inactive"),
    ]
    whole = segment(BASE, blocks)
    whole["frames"] = [bad]
    data = recording(snapshot([whole]))
    name = f"{shown(HOSTILE)} /u/{shown(HOSTILE)}.py:5"
    for what in ("segments", "memory"):
        titles = [title[0] for title in boxes(data.flame_svg(what))]
        assert titles.count(name) == 1
    page = Page(data.segments_page())
    assert [name in text for text in page.texts("title")].count(True) == 2
    assert {"b", "script"}.isdisjoint({tag for tag, _, _ in page.elements})
    page = Page(data.timeline_page(title=HOSTILE))
    assert page.texts("title")[0] == page.texts("h1")[0] == shown(HOSTILE)


# ---- the timeline against a model ----


class Model:
    """Allocated bytes after each event: blocks in multiples of 512."""

    def __init__(self, events):
        self.times, self.totals = [], []
        live, now = {}, 0
        for event in events:
            if event["action"] == "alloc":
                live[event["addr"]] = -(-event["size"] // 512) * 512
                now += live[event["addr"]]
            elif event["action"] == "free_requested":
                now -= live.pop(event["addr"])
            self.times.append(event["time_us"])
            self.totals.append(now)

    def at(self, time_us):
        """After the events of that time."""
        index = bisect.bisect_right(self.times, time_us)
        return self.totals[index - 1] if index else 0

    def most(self, first_us, last_us):
        low = bisect.bisect_left(self.times, first_us)
        high = bisect.bisect_right(self.times, last_us)
        return max(self.totals[low:high], default=0)


def emit_random(script, count, seed):
    """COUNT events a millisecond apart, in 32 places that stay apart."""
    rng = random.Random(seed)
    script.reset()
    clock = itertools.count(1, 1_000_000)

    def emit(action, addr, size):
        script.emit(action, addr, size, time=1_700_000_000 * 10**9 + next(clock))

    emit("segment_alloc", BASE, 2 * MIB)
    places = [BASE + 32768 * i for i in range(64)]
    for place in places:
        emit("alloc", place, 32768)
    live = set()
    for place in places[::2]:
        emit("free_requested", place, 32768)
        emit("free_completed", place, 32768)
    for _ in range(count):
        place = rng.choice(places[::2])
        if place in live:
            emit("free_requested", place, 32768)
            emit("free_completed", place, 32768)
        else:
            emit("alloc", place, 32768)
        live ^= {place}


def hits(page):
    """Of each part of the chart that a pointer finds: milliseconds, allocated bytes."""
    for tag, _, text in page.elements:
        if tag == "title" and " ms\n" in text:
            time, allocated, *_ = text.split("\n")
            yield float(time.removesuffix(" ms").replace(",", "")), exact_bytes(allocated)


@pytest.mark.parametrize("count", [300, 20_000])
def test_the_timeline_agrees_with_a_model(count):
    script = _core.Script()
    with memlab.MemorySnapshot(source="script", max_entries=100_000) as taken:
        emit_random(script, count, seed=count)
    script.reset()
    data = taken.data()
    written = data.timeline_page(0)
    assert len(written) < 500_000
    page = Page(written)
    events = data.to_dict()["device_traces"][0]
    model = Model(events)
    said = page.texts("h2")[0]
    assert said.startswith("Device 0: max allocated ")
    allocated, reserved = said.split(", max reserved ")
    assert exact_bytes(allocated) == max(model.totals)
    assert exact_bytes(reserved) == 2 * MIB
    start = model.times[0]
    found = list(hits(page))
    assert max(most for _, most in found) == max(model.totals)
    for time_ms, most in found:
        # An instant is one of an event, or where a column begins.
        assert most == model.at(start + time_ms * 1000), (count, time_ms)
    ends = [start + time_ms * 1000 for time_ms, _ in found[1:]] + [model.times[-1]]
    span = model.times[-1] - start
    for (time_ms, most), end in zip(found, ends):
        # Nothing that is more lies between it and the next, a column's width aside.
        begin = start + time_ms * 1000
        assert model.most(begin, max(begin, end - span / 500)) <= most, (count, time_ms)


@pytest.mark.cuda
def test_categories_at_the_peak_are_the_peaks(phantom_run):
    """Of a training run: the page's figures are torch's counters and the core's peak."""
    done = phantom_run(TRAINING)
    said = json.loads(done.stdout)
    timeline = Page(said["timeline"].encode())
    heading = timeline.texts("h2")
    assert len(heading) == 1
    allocated, reserved = heading[0].split(", max reserved ")
    assert exact_bytes(allocated) == said["max_allocated"]
    assert exact_bytes(reserved) == said["max_reserved"]
    rows = {row[0]: int(row[2].replace(",", "")) for row in timeline.table()[1:]}
    assert rows.pop("allocated") == said["max_allocated"]
    categories = {k.replace("_", " "): v for k, v in said["by_category"].items() if v}
    assert {name: size for name, size in rows.items() if size} == categories
    assert {"parameter", "gradient", "optimizer state"} <= set(categories)
    colors = dict(re.findall(r'\["(\w+)", "(#\w+)"\]', (VIEWER / "colors.js").read_text()))
    keys = re.findall(r'fill="(#\w+)"/></svg>([a-z ]+)</th>', said["timeline"])
    assert len(keys) == len(rows)
    assert all(colors[name.replace(" ", "_")] == color for color, name in keys)

    segments = {row[0]: row for row in Page(said["segments"].encode()).table()}
    assert exact_bytes(f"({segments['reserved'][2]})") == said["reserved"]
    assert exact_bytes(f"({segments['allocated'][2]})") == said["allocated"]
    titles = Page(said["segments"].encode()).texts("title")
    assert any("\nparameter\n" in title and "program.py" in title for title in titles)

    for svg in said["svg"]:
        title, figures = boxes(svg.encode())[0]
        assert (title, exact_bytes(figures)) == ("all memory", said["reserved"])
    assert said["folded"] == said["torch_folded"]


TRAINING = """
import json

import torch
from torch.cuda import _memory_viz

import memlab

with memlab.MemorySnapshot() as snapshot:
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        model(torch.zeros(64, 256, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
data = snapshot.data()
whats = ("segments", "memory")
print(json.dumps({
    "timeline": data.timeline_page(0, "run").decode(),
    "segments": data.segments_page(0).decode(),
    "svg": [data.flame_svg(what).decode() for what in whats],
    "folded": [data.flame_folded(what).decode() for what in whats],
    "torch_folded": [
        getattr(_memory_viz, what)(data.to_dict(), lambda text: text) for what in whats
    ],
    "by_category": data.peak(0)["by_category"],
    "max_allocated": torch.cuda.max_memory_allocated(),
    "max_reserved": torch.cuda.max_memory_reserved(),
    "allocated": torch.cuda.memory_allocated(),
    "reserved": torch.cuda.memory_reserved(),
}))
"""


# ---- in a browser ----


def test_a_browser_shows_them_and_a_click_zooms(tmp_path):
    """Nothing is fetched or refused, in light and dark; the boxes of a flame graph grow."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    data = recording(snapshot(two_segments()))
    files = {
        "memory.svg": data.flame_svg("memory"),
        "segments.html": data.segments_page(),
        "timeline.html": data.timeline_page(),
    }
    requests, errors = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        backs = set()
        for theme in ("light", "dark"):
            page = browser.new_page(color_scheme=theme)
            page.set_default_timeout(PATIENCE_MS)
            page.on("request", lambda request: requests.append(request.url))
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: errors.append(message.text))
            for name, written in files.items():
                (tmp_path / name).write_bytes(written)
                page.goto((tmp_path / name).as_uri())
                backs.add((name, page.evaluate(BACKGROUND)))
        assert len(backs) == 6, "each file has a light and a dark background"
        page.goto((tmp_path / "memory.svg").as_uri())
        before = page.evaluate(DRAWN)
        assert before["all memory"] == before["stream 0"] * 2
        page.evaluate(CLICK, "main /u/train.py:3")
        zoomed = page.evaluate(DRAWN)
        assert zoomed["main /u/train.py:3"] == zoomed["all memory"] == 1200
        assert "stream 7" not in zoomed
        # Of main's 1512 bytes 1000 are step's.
        assert zoomed["step /u/lib/model.py:7"] == pytest.approx(1200 * 1000 / 1512, rel=0.02)
        assert "step model.py:7" in page.evaluate(TEXTS)
        page.keyboard.press("Escape")
        assert page.evaluate(DRAWN) == pytest.approx(before)
        browser.close()
    assert errors == []
    assert {url.rsplit("/", 1)[1] for url in requests} == set(files)


BACKGROUND = """() => {
  const back = document.querySelector("rect.back");
  return back === null ? getComputedStyle(document.body).backgroundColor
    : getComputedStyle(back).fill;
}"""
# Of the boxes that are to be seen, by the first line of their title: their width.
DRAWN = """() => Object.fromEntries([...document.querySelectorAll("g")]
  .filter((g) => g.getAttribute("display") !== "none")
  .map((g) => [g.querySelector("title").textContent.split("\\n")[0],
               Number(g.querySelector("rect").getAttribute("width"))]))"""
CLICK = """(name) => [...document.querySelectorAll("g")]
  .find((g) => g.querySelector("title").textContent.startsWith(name + "\\n"))
  .dispatchEvent(new MouseEvent("click"))"""
TEXTS = """() => [...document.querySelectorAll("g text")].map((text) => text.textContent)"""
