"""Pages of the viewer in Chromium, and snapshots to show there, for tests.

Every page is made as users make theirs: a snapshot's bytes go through the core's reader
and page writer.  One browser serves all tests of a session.
"""

import bisect
import gzip
import html.parser
import pickle
import random
import shutil
from pathlib import Path

import pytest
from viewer_state import address_of

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
MIB = 1 << 20
# A machine may be busy: only a page that never comes is wrong.
PATIENCE_MS = 120_000


# ---- snapshots ----


class Toy:
    """Writes snapshots: an allocator that knows what it did."""

    def __init__(self):
        self.events = []
        self.segments = []  # [address, size]
        self.live = {}  # address -> (block bytes, requested bytes, frames)
        self.totals = []  # (allocated, active, reserved) after each event
        self.allocated = self.active = self.reserved = 0

    def event(self, action, addr, size, frames=()):
        key = "device_free" if action == "oom" else "addr"
        self.events.append(
            {
                "action": action,
                key: addr,
                "size": size,
                "stream": 0,
                "time_us": 1_700_000_000_000_000 + 7 * len(self.events),
                "frames": list(frames),
            }
        )
        self.totals.append((self.allocated, self.active, self.reserved))

    def segment(self, address, size):
        self.segments.append([address, size])
        self.reserved += size
        self.event("segment_alloc", address, size)

    def alloc(self, address, size, frames):
        block = -(-size // 512) * 512
        self.live[address] = (block, size, frames)
        self.allocated += block
        self.active += block
        self.event("alloc", address, size, frames)

    def free(self, address):
        block, size, _ = self.live.pop(address)
        self.allocated -= block
        self.event("free_requested", address, size)
        self.active -= block
        self.event("free_completed", address, size)

    def snapshot(self):
        segments = []
        for address, size in sorted(self.segments):
            inside = sorted(a for a in self.live if address <= a < address + size)
            blocks, at = [], address
            for start in [*inside, address + size]:
                if start > at:
                    blocks.append(block_entry(at, start - at, 0, "inactive", []))
                if start < address + size:
                    block, asked, frames = self.live[start]
                    blocks.append(
                        block_entry(start, block, asked, "active_allocated", frames)
                    )
                    at = start + block
            used = sum(self.live[a][0] for a in inside)
            segments.append(
                {
                    "device": 0,
                    "address": address,
                    "total_size": size,
                    "allocated_size": used,
                    "active_size": used,
                    "requested_size": sum(self.live[a][1] for a in inside),
                    "stream": 0,
                    "segment_type": "small" if size == 2 * MIB else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": blocks,
                }
            )
        return {
            "segments": segments,
            "device_traces": [self.events],
            "allocator_settings": {},
            "external_annotations": [],
        }


def block_entry(address, size, requested, state, frames):
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": list(frames),
    }


def frame(name, filename="train.py", line=1):
    return {"name": name, "filename": filename, "line": line}


def toy_steps(count=40, seed=0):
    """Small allocations that come and go in two segments; every block is exact."""
    rng = random.Random(seed)
    toy = Toy()
    toy.segment(0x7F0000000000, 2 * MIB)
    toy.segment(0x7F0000200000, 2 * MIB)
    slots = [0x7F0000000000 + 65536 * i for i in range(64)]
    for _ in range(count):
        # As the real allocator, only at the start of a free block.
        free = [
            slot
            for i, slot in enumerate(slots)
            if slot not in toy.live and (i % 32 == 0 or slots[i - 1] in toy.live)
        ]
        if free and (len(toy.live) < 8 or rng.random() < 0.6):
            line = rng.randrange(5)
            # Rounded to multiples of 512 bytes, each fills its slot.
            toy.alloc(
                rng.choice(free),
                65536 - rng.randrange(512),
                [frame(f"layer_{line}", "net.py", 10 + line), frame("step", line=3)],
            )
        else:
            toy.free(rng.choice(sorted(toy.live)))
    return toy


def recorded(name):
    """A recorded snapshot's bytes: tests/data."""
    return gzip.decompress((ROOT / "tests" / "data" / f"{name}.pickle.gz").read_bytes())


class Allocator:
    """The block structure behind a trace that starts with the process.

    Follows the recorded addresses, so it needs only the rules for rounding, splitting
    and merging.
    """

    def __init__(self, settings):
        self.divisions = list(settings["roundup_power2_divisions"].values())
        limit = settings["max_split_size"]
        self.max_split = limit if limit >= 0 else 1 << 64
        self.blocks = {}  # start -> [size, in use]
        self.starts = {}  # end -> start
        self.plain = []  # starts of segments that are not expandable, sorted
        self.sizes = {}  # of those segments, by start
        self.allocated = self.active = self.reserved = 0

    def rounded(self, size):
        size = max(size, 512)
        power = size.bit_length() - 1
        divisions = self.divisions[max(0, min(15, power - 20))]
        step = 512
        if divisions > 1 and size > 512 * divisions:
            step = (1 << power) // divisions
        return -(-size // step) * step

    def put(self, start, size, used):
        self.blocks[start] = [size, used]
        self.starts[start + size] = start

    def take(self, start):
        size, _ = self.blocks.pop(start)
        del self.starts[start + size]
        return size

    def is_edge(self, address):
        at = bisect.bisect_left(self.plain, address)
        return at < len(self.plain) and self.plain[at] == address

    def is_plain(self, address):
        at = bisect.bisect_right(self.plain, address) - 1
        return at >= 0 and address < self.plain[at] + self.sizes[self.plain[at]]

    def release(self, start, size):
        left = self.starts.get(start)
        if left is not None and not self.blocks[left][1] and not self.is_edge(start):
            size += self.take(left)
            start = left
        right = start + size
        if right in self.blocks and not self.blocks[right][1]:
            if not self.is_edge(right):
                size += self.take(right)
        self.put(start, size, False)

    def step(self, event):
        action, size, addr = event["action"], event["size"], event.get("addr")
        if action == "segment_alloc":
            bisect.insort(self.plain, addr)
            self.sizes[addr] = size
            self.put(addr, size, False)
            self.reserved += size
        elif action == "segment_free":
            assert self.take(addr) == size
            self.plain.remove(addr)
            self.reserved -= size
        elif action == "segment_map":
            self.release(addr, size)
            self.reserved += size
        elif action == "segment_unmap":
            start = max(a for a in self.blocks if a <= addr)
            whole = self.take(start)
            if start < addr:
                self.put(start, addr - start, False)
            if addr + size < start + whole:
                self.put(addr + size, start + whole - addr - size, False)
            self.reserved -= size
        elif action == "alloc":
            rounded, whole = self.rounded(size), self.take(addr)
            rest = whole - rounded
            if rounded <= MIB or not self.is_plain(addr):
                split = rest >= 512
            else:
                split = rounded < self.max_split and rest > MIB
            self.put(addr, rounded if split else whole, True)
            if split:
                self.put(addr + rounded, rest, False)
            self.allocated += self.blocks[addr][0]
            self.active += self.blocks[addr][0]
        elif action == "free_requested":
            self.allocated -= self.blocks[addr][0]
        elif action == "free_completed":
            block = self.take(addr)
            self.active -= block
            self.release(addr, block)
        return self.allocated, self.active, self.reserved


def model_totals(snapshot):
    model = Allocator(snapshot["allocator_settings"])
    return [model.step(event) for event in snapshot["device_traces"][0]]


def dumped(snapshot):
    return pickle.dumps(snapshot, protocol=4)


# ---- pages ----


class Tree(html.parser.HTMLParser):
    """Start tags with their attributes' names, and the text of scripts and styles."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.raw, self.policy = [], [], ""
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, [name for name, _ in attributes]))
        if ("http-equiv", "Content-Security-Policy") in attributes:
            self.policy = dict(attributes)["content"]
        if tag in ("script", "style"):
            self.raw.append((tag, dict(attributes).get("type"), ""))

    def handle_data(self, data):
        if self.raw and self.cdata_elem is not None:
            tag, kind, text = self.raw[-1]
            self.raw[-1] = (tag, kind, text + data)


def page_of(snapshot, **about):
    """The page of a snapshot's bytes, or of a recording."""
    from memlab import _core
    from memlab._page import page as _page

    recording = snapshot
    if isinstance(snapshot, bytes):
        recording = _core.Recording.from_bytes(snapshot)
    return _page.assemble(*recording.page_data(), **about)


@pytest.fixture(scope="module")
def chromium():
    """A browser, as users have one but for the sandbox, which needs rights of its own.
    Playwright's loop counts as running while there is one: a browser for the whole run would
    keep other tests from asyncio.run()."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--use-angle=swiftshader"]
        )
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, tmp_path):
    """A function that opens a page's bytes, which must ask for nothing else and report no
    error: open_page(page, state={...})."""
    requests, errors, contexts, pages = [], [], [], []

    def open_page(content, state=None, theme="light"):
        path = tmp_path / f"{len(contexts)}.html"
        path.write_bytes(content)
        context = chromium.new_context(
            viewport={"width": 1280, "height": 720}, color_scheme=theme, offline=True
        )
        contexts.append(context)
        pages.append(path.as_uri())
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text)
            if message.type == "error"
            else None,
        )
        hash_text = "" if state is None else address_of(state)
        page.goto(path.as_uri() + hash_text)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
    assert {url.split("#")[0] for url in requests} <= set(pages)


@pytest.fixture
def show(open_page):
    """A function that opens the page of a snapshot's bytes or of a recording:
    show(snapshot, state={...}, title=...)."""

    def show(snapshot, state=None, theme="light", **about):
        return open_page(page_of(snapshot, **about), state, theme)

    return show
