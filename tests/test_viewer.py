"""The HTML viewer: its pure functions under node, the page in Chromium.

Every page here is made as users make theirs: a snapshot's bytes go through the core's
reader and page writer.  What the page shows is compared with a model of the allocator
written here, and, for recorded snapshots, with torch's own counters.

MEMLAB_IMAGES=docs/images keeps the screenshots that the last test makes.
"""

import base64
import bisect
import gzip
import hashlib
import html.parser
import json
import os
import pickle
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from memlab import _core, _page

ROOT = Path(__file__).resolve().parent.parent
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


# ---- from snapshot to page ----


@pytest.fixture(scope="session")
def page_json():
    """A function from a snapshot's bytes to the page's data, through the core."""
    return lambda snapshot: _core.Recording.from_bytes(snapshot).page_json()


def tagged(toy, seed):
    """The toy's snapshot with backward passes and owners as memlab records them."""
    rng = random.Random(seed)
    backward, flags, tags = False, [], []
    for position, event in enumerate(toy.events):
        backward ^= rng.random() < 0.1
        flags.append("A" if backward else "@")
        if rng.random() < 0.15:
            kind = rng.choice(["parameter", "gradient", "optimizer_state"])
            inside = rng.choice([0, 512, 60_000])
            tags.append((position, event["addr"] + inside, kind, "weight"))
    columns = zip(*tags)
    names = ("position", "addr", "category", "name")
    device = {"flags": "".join(flags), "tags": dict(zip(names, map(list, columns)))}
    extras = {"version": 1, "source": "cuda", "devices": [device]}
    return {**toy.snapshot(), "memlab": extras}


def dumped(snapshot):
    return pickle.dumps(snapshot, protocol=4)


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.fixture
def show(browser, page_json, tmp_path):
    """A function that opens a snapshot's page, which must ask for nothing else."""
    requests, errors, contexts, pages = [], [], [], []

    def show(snapshot, state=None, theme="light", **about):
        path = tmp_path / f"{len(contexts)}.html"
        path.write_bytes(_page.assemble(page_json(snapshot), **about))
        context = browser.new_context(
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
        hash_text = "" if state is None else "#" + json.dumps(state)
        page.goto(path.as_uri() + hash_text)
        page.wait_for_selector("html[data-ready]")
        return page

    yield show
    for context in contexts:
        context.close()
    assert errors == []
    assert {url.split("#")[0] for url in requests} == set(pages)


def shown_totals(page, event):
    """The exact totals that the allocator view gives after EVENT."""
    address = json.dumps({"view": "state", "event": event})
    page.goto(page.url.split("#")[0] + "#" + address)
    page.locator("#state-summary", has_text=f"After event {event:,}:").wait_for()
    text = page.get_attribute("#state-summary", "title")
    numbers = re.findall(r"([\d,]+) B (\w+)", text)
    return {name: int(number.replace(",", "")) for number, name in numbers}


# ---- without a browser ----


def test_pure_functions_under_node():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    result = subprocess.run(
        [node, "--test", str(ROOT / "tests" / "viewer")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"^# pass (\d+)", result.stdout, re.M)[1]) >= 27


def test_categories_of_the_page_and_of_the_core_agree(page_json):
    """The timeline colours every allocation as the core's peak counts it."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = ROOT / "tests" / "viewer" / "categories.js"
    seen = set()
    for seed in range(12):
        data = page_json(dumped(tagged(toy_steps(200, seed), seed)))
        core = json.loads(data)
        sums = core["devices"][0]["peak"]["by_category"]["bytes"]
        expected = {n: b for n, b in zip(core["categories"], sums) if b > 0}
        run = subprocess.run([node, script], input=data, capture_output=True, check=True)
        assert json.loads(run.stdout) == expected, f"seed {seed}"
        seen |= set(expected)
    assert seen >= {"parameter", "gradient", "activation", "temporary", "unknown"}


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


def test_policy_allows_the_page_its_own_script_and_style_only():
    tree = Tree(_page.assemble(b'{"format":1}'))
    allowed = {"script": [], "style": []}
    for tag, kind, text in tree.raw:
        if kind is None:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            allowed[tag].append(f"'sha256-{digest}'")
    assert tree.policy.split("; ") == [
        "default-src 'none'",
        f"script-src {allowed['script'][0]}",
        f"style-src {allowed['style'][0]}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert [len(hashes) for hashes in allowed.values()] == [1, 1]


def test_assets_name_no_other_place():
    for path in sorted((ROOT / "memlab" / "viewer").iterdir()):
        text = path.read_text("utf-8")
        assert not re.search(r"https?:|url\(|@import|innerHTML|outerHTML|insertAdjacent"
                             r"|document\.write|eval\(", text), path.name  # fmt: skip


def test_unescaped_data_is_refused():
    with pytest.raises(ValueError, match="escaped"):
        _page.assemble(b'{"strings":["</script><script>alert(1)"]}')


PIECES = (
    *("</script>", "<script>", "<!--", "-->", "]]>", "<img src=x onerror=alert(1)>"),
    *("&lt;", "&#60;", '"', "'", "`", "\\", "\\u003c", "\u2028", "\u2029", "\0", "%00"),
    *("\x1b[31m", "\x7f", "\x85", "\ud800", "\udfff", "\U0001f600", "\u202e", "\ufeff"),
    *("javascript:", "//evil/x", "http://evil.example/x.js", "__proto__", "{{7*7}}"),
    *("constructor", "${alert(1)}", "<style>@import url(//evil)</style>", "a"),
    *("<base href=//evil>", "<svg/onload=alert(1)>"),
)


def hostile_names(count, seed=1):
    rng = random.Random(seed)
    names = ("".join(rng.choices(PIECES, k=rng.randrange(1, 6))) for _ in range(count))
    # JSON and JavaScript see two surrogates that happen to match as one character.
    return [
        name.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        for name in names
    ]


def names_snapshot(names):
    """One allocation with a stack of all NAMES, as functions and as files."""
    toy = Toy()
    toy.segment(0x7F0000000000, 2 * MIB)
    frames = [frame(name, names[-i], i) for i, name in enumerate(names)]
    toy.alloc(0x7F0000000000, 2 * MIB, frames)
    return dumped(toy.snapshot())


def test_hostile_names_change_no_element_of_the_file(page_json):
    plain = _page.assemble(page_json(names_snapshot(["a"] * 10_000)))
    hostile = hostile_names(10_000)
    data = page_json(names_snapshot(hostile))
    page = _page.assemble(data, title=hostile[0], notes=hostile[:100])
    assert not re.search(rb"[<>&]|\xe2\x80[\xa8\xa9]|[\x00-\x1f\x7f]", data)
    assert Tree(page).tags == Tree(plain).tags
    assert set(hostile) <= set(json.loads(data)["strings"])


# ---- in Chromium ----


def outline(page):
    """Every element's tag and the names of its attributes."""
    return page.evaluate(
        """() => Array.from(document.querySelectorAll("*"),
             (e) => [e.tagName, ...e.getAttributeNames().sort()].join(" "))
             .join("; ")"""
    )


def test_hostile_names_change_no_element_of_the_page(show):
    names = hostile_names(10_000)
    state = {"pinned": 0, "search": ">1"}
    tame = [f"f{i}" for i in range(10_000)]
    plain = show(names_snapshot(tame), state, title=tame[0], notes=tame[:1])
    hostile = show(names_snapshot(names), state, title=names[0], notes=names[:1])
    assert hostile.locator("#inspector ol li").count() == 10_000
    for view in "timeline", "peak", "state":
        for page in plain, hostile:
            page.click(f"#tab-{view}")
        assert outline(hostile) == outline(plain)


def test_totals_of_every_event_are_the_toys(show):
    toy = toy_steps()
    page = show(dumped(toy.snapshot()))
    for event in (0, 1, 7, 20, len(toy.events) - 1):
        allocated, active, reserved = toy.totals[event]
        assert shown_totals(page, event) == {
            "allocated": allocated,
            "active": active,
            "reserved": reserved,
        }
    peak = max(allocated for allocated, _, _ in toy.totals)
    page.click("#tab-peak")
    assert f"({peak:,} B)" in page.text_content("#view-peak h2")


def test_an_address_that_a_saved_state_replaces_is_still_followed(show):
    """The page saves its state into the address a moment after each change."""
    page = show(dumped(toy_steps().snapshot()))
    page.evaluate(
        """address => {
            const before = location.hash;
            location.hash = address;
            history.replaceState(null, "", before || "#{}");
        }""",
        json.dumps({"view": "state", "event": 7}),
    )
    page.locator("#state-summary", has_text="After event 7:").wait_for()


# Peaks of allocated and reserved bytes that torch's memory_stats() gave on the machine
# where the snapshot was recorded.
RECORDED = [
    ("gpt2_oom", 3_133_694_464, 3_193_962_496),
    ("streams_expandable", 983_655_936, 1_287_651_328),
]


@pytest.mark.parametrize(("name", "peak", "reserved_peak"), RECORDED)
def test_a_recorded_snapshot_shows_what_torch_counted(show, name, peak, reserved_peak):
    snapshot = recorded(name)
    page = show(snapshot)
    page.click("#tab-peak")
    heading = page.text_content("#view-peak h2")
    assert f"({peak:,} B)" in heading
    facts = page.locator("#facts dd").evaluate_all("(all) => all.map((dd) => dd.title)")
    assert facts[:2] == [f"{peak:,} B", f"{reserved_peak:,} B"]
    rows = page.locator("#peak-lines tbody tr").evaluate_all(
        "(rows) => rows.map((row) => Number(row.dataset.bytes))"
    )
    assert sum(rows) == peak
    totals = model_totals(pickle.loads(snapshot))
    assert max(allocated for allocated, _, _ in totals) == peak
    for event in (0, len(totals) // 3, len(totals) // 2, len(totals) - 1):
        allocated, active, reserved = totals[event]
        assert shown_totals(page, event) == {
            "allocated": allocated,
            "active": active,
            "reserved": reserved,
        }


def test_detail_slider_changes_how_many_are_drawn(show):
    page = show(dumped(toy_steps().snapshot()))
    count = page.text_content("#facts").split("Allocations")[1].split("Duration")[0]
    assert page.text_content("#detail-count") == f"{count} of {count} drawn"
    page.evaluate(
        """() => { const slider = document.getElementById("detail");
                   slider.value = 0; slider.dispatchEvent(new Event("input")); }"""
    )
    assert page.text_content("#detail-count") == f"10 of {count} drawn"


def test_hover_shows_the_stack_and_a_click_pins_it(show):
    toy = Toy()
    toy.segment(0x7F0000000000, 2 * MIB)
    frames = [frame("forward", "/u/net.py", 12), frame("main")]
    toy.alloc(0x7F0000000000, 2 * MIB, frames)
    page = show(dumped(toy.snapshot()))
    box = page.locator("#timeline").bounding_box()
    x, y = box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.6
    page.mouse.move(x, y)
    page.wait_for_selector("#tooltip", state="visible")
    tip = page.inner_text("#tooltip")
    assert "2.00 MiB b7f0000000000_0" in tip
    assert tip.index("net.py:12 forward") < tip.index("train.py:1 main")
    page.mouse.click(x, y)
    text = page.inner_text("#inspector")
    assert "b7f0000000000_0" in text
    assert "2.00 MiB (2,097,152 B)" in text
    assert "/u/net.py:12" in text
    page.keyboard.press("Escape")
    assert "/u/net.py:12" not in page.inner_text("#inspector")


def test_search_filters_events_and_survives_a_reload(show):
    toy = toy_steps()
    page = show(dumped(toy.snapshot()))
    page.fill("#search", "layer_3 >1KiB")
    wanted = [e for e in toy.events if e["action"] == "alloc" and e["frames"]]
    wanted = [e for e in wanted if e["frames"][0]["name"] == "layer_3"]
    assert page.text_content("#search-count") == f"{len(wanted)} found"
    page.wait_for_url(re.compile("layer_3"))
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.input_value("#search") == "layer_3 >1KiB"
    assert page.text_content("#search-count") == f"{len(wanted)} found"


def test_events_are_chosen_with_the_keys(show):
    toy = toy_steps()
    page = show(dumped(toy.snapshot()), {"view": "state", "event": 2, "pairs": False})
    page.focus("#event-list")
    page.keyboard.press("ArrowDown")
    assert page.text_content("#state-summary").startswith("After event 3:")
    page.keyboard.press("End")
    last = len(toy.events) - 1
    assert page.text_content("#state-summary").startswith(f"After event {last}:")
    chosen = page.locator("#event-list .row[aria-selected=true]")
    assert chosen.locator(".number").text_content() == str(last)


def test_a_list_of_events_holds_only_the_rows_in_sight(show):
    page = show(dumped(toy_steps(2000).snapshot()), {"view": "state"})
    assert page.locator("#event-list .row").count() < 60


def test_losses_and_notes_stand_above_the_views(show):
    toy = toy_steps()
    toy.event("oom", 5 * MIB, 7 * MIB)
    lost = {
        "overwritten_events": 1234,
        "dropped_events": 2,
        "lost_stacks": 1,
        "lost_names": 3,
    }
    extras = {"version": 1, "source": "cuda", "devices": [lost]}
    snapshot = {**toy.snapshot(), "memlab": extras}
    page = show(dumped(snapshot), notes=["Run on the phantom device."])
    assert page.locator("#warnings p").all_text_contents() == [
        "Run on the phantom device.",
        "2 events never recorded: totals may be wrong from there on.",
        "1,234 older events overwritten by newer ones: the page starts after them.",
        "1 event without its stack: the table of stacks was full.",
        "3 names lost, shown as <lost>: the table of names was full.",
        "The device ran out of memory: 1 time.",
    ]


def test_each_device_can_be_chosen(show):
    first, second = toy_steps(40, 1), toy_steps(30, 2)
    snapshot = first.snapshot()
    other = second.snapshot()
    for segment in other["segments"]:
        segment["device"] = 1
    snapshot["segments"] += other["segments"]
    snapshot["device_traces"] += other["device_traces"]
    page = show(dumped(snapshot), {"view": "peak"})
    for choice, toy in ("1", second), ("0", first):
        page.select_option("#device", choice)
        peak = max(allocated for allocated, _, _ in toy.totals)
        assert f"({peak:,} B)" in page.text_content("#view-peak h2")


def test_a_recording_of_nothing_says_so(browser, page_json, tmp_path):
    for traces, text in ([], "holds no device"), ([[]], "0 events"):
        snapshot = {"segments": [], "device_traces": traces}
        path = tmp_path / "empty.html"
        path.write_bytes(_page.assemble(page_json(dumped(snapshot))))
        page = browser.new_page()
        page.goto(path.as_uri() + '#{"view":"state"}')
        page.locator("body", has_text=text).wait_for()
        page.close()


def test_controls_have_names(show):
    page = show(dumped(toy_steps().snapshot()))
    unnamed = page.evaluate(
        """() => Array.from(document.querySelectorAll(
               "button, select, input, canvas, [role=listbox]"))
             .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim()
                              || e.labels?.length))
             .map((e) => e.id)"""
    )
    assert unnamed == []
    assert page.get_attribute("#tab-timeline", "aria-selected") == "true"


def colours(page, canvas):
    return page.evaluate(
        """(id) => {
             const canvas = document.getElementById(id);
             const { data } = canvas.getContext("2d")
               .getImageData(0, 0, canvas.width, canvas.height);
             return new Set(new Uint32Array(data.buffer)).size;
           }""",
        canvas,
    )


CHOSEN = "[255, 59, 212]"


def test_the_chosen_events_block_is_brought_into_sight(show):
    """Of 117 segments a few fit the pane; the one with the block stands out in it."""
    page = show(recorded("gpt2_oom"), {"view": "state"})
    for event in (1114, 20, 1118):
        shown_totals(page, event)
        page.wait_for_function(
            f"""() => {{
                  const canvas = document.getElementById("segments");
                  const {{ data }} = canvas.getContext("2d")
                    .getImageData(0, 0, canvas.width, canvas.height);
                  for (let i = 0; i < data.length; i += 4) {{
                    if ({CHOSEN}.every((v, k) => data[i + k] === v)) {{
                      return true;
                    }}
                  }}
                  return false;
                }}"""
        )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_screenshots(show, tmp_path, theme):
    folder = Path(os.environ.get("MEMLAB_IMAGES") or tmp_path)
    page = show(recorded("gpt2_oom"), theme=theme, title="gpt2_oom.pickle")
    for key, view in ("1", "timeline"), ("2", "peak"), ("3", "state"):
        page.keyboard.press(key)
        page.evaluate("() => new Promise((r) => requestAnimationFrame(() => "
                      "requestAnimationFrame(r)))")  # fmt: skip
        page.screenshot(path=folder / f"viewer-{view}-{theme}.png")
        if view != "peak":
            canvas = "timeline" if view == "timeline" else "segments"
            assert colours(page, canvas) > 10
