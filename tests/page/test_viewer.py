"""The viewer's page: its shell, allocator state, events and search, in Chromium.

What the page shows is compared with a model of the allocator (viewer_pages.py), with the
snapshot itself, and, for recorded snapshots, with torch's own counters.
"""

import base64
import collections
import hashlib
import json
import pickle
import re
import shutil
import subprocess

import pytest
from viewer_pages import (
    MIB,
    ROOT,
    Allocator,
    Toy,
    Tree,
    dumped,
    frame,
    page_of,
    recorded,
    toy_steps,
)
from viewer_state import VIEWS, chosen_event, go, state_of, summary_totals

from memlab import _core
from memlab._page import page as _page
from memlab._text import wording

# ---- without a browser ----


def test_pure_functions_under_node():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    result = subprocess.run(
        [node, "--test", str(ROOT / "tests" / "viewer")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"^# pass (\d+)", result.stdout, re.M)[1]) >= 50


def test_policy_allows_the_page_its_own_script_and_style_only():
    tree = Tree(_page.assemble(b'{"format":5}'))
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
    assets = (ROOT / "memlab" / "viewer").iterdir()
    for path in sorted(p for p in assets if p.suffix in (".js", ".css", ".html")):
        text = path.read_text("utf-8")
        assert not re.search(r"https?:|url\(|@import|innerHTML|outerHTML|insertAdjacent"
                             r"|document\.write|eval\(", text), path.name  # fmt: skip


@pytest.mark.parametrize("name", _page._STYLES)
def test_no_rule_of_style_is_there_twice(name):
    plain = _page._asset(name).split("@media")[0]
    rules = re.findall(r"^[^{}]+\{[^}]*\}$", plain, re.MULTILINE)
    assert len(rules) > 10
    assert [rule for rule, n in collections.Counter(rules).items() if n > 1] == []


def test_unescaped_data_is_refused():
    with pytest.raises(ValueError, match="escaped"):
        _page.assemble(b'{"strings":["</script><script>alert(1)"]}')


# ---- in Chromium ----

# Peaks of allocated and reserved bytes that torch's memory_stats() gave on the machine
# where the snapshot was recorded.
RECORDED = [
    ("gpt2_oom", 3_133_694_464, 3_193_962_496),
    ("streams_expandable", 983_655_936, 1_287_651_328),
]


@pytest.mark.parametrize(("name", "peak", "reserved_peak"), RECORDED)
def test_the_state_after_any_event_is_the_allocators(show, name, peak, reserved_peak):
    data = recorded(name)
    snapshot = pickle.loads(data)
    page = show(data, {"view": "segments"})
    facts = page.locator("#facts dd").evaluate_all("(all) => all.map((dd) => dd.title)")
    assert facts[:2] == [f"{peak:,} B", f"{reserved_peak:,} B"]
    model = Allocator(snapshot["allocator_settings"])
    trace = snapshot["device_traces"][0]
    wanted = {0, 1, 7, len(trace) - 1}
    wanted |= {len(trace) * k // 10 for k in range(1, 10)}
    wanted |= {e for e, entry in enumerate(trace) if entry["action"] == "oom"}
    pending = set()
    for event, entry in enumerate(trace):
        totals = model.step(entry)
        if entry["action"] == "free_requested":
            pending.add(entry["addr"])
        elif entry["action"] == "free_completed":
            pending.discard(entry["addr"])
        if event not in wanted:
            continue
        state = state_of(page, event)
        assert tuple(state["totals"]) == totals
        blocks = [tuple(b) for segment in state["segments"] for b in segment["blocks"]]
        assert sorted(blocks) == sorted(
            (start, size, start in pending)
            for start, (size, used) in model.blocks.items()
            if used
        )
        plain = {
            s["address"]: s["size"] for s in state["segments"] if not s["expandable"]
        }
        assert plain == {a: model.sizes[a] for a in model.plain}
        holes = sorted(h for segment in state["segments"] for h in segment["holes"])
        assert holes == sorted(s for s, used in model.blocks.values() if not used)


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_the_last_state_is_the_snapshots_own(show, name):
    data = recorded(name)
    snapshot = pickle.loads(data)
    page = show(data, {"view": "segments"})
    last = len(snapshot["device_traces"][0]) - 1
    states = {"active_allocated": False, "active_pending_free": True}
    expected = [
        {
            "address": s["address"],
            "size": s["total_size"],
            "stream": s["stream"],
            "expandable": s["is_expandable"],
            "small": s["segment_type"] == "small",
            "isPrivate": s["segment_pool_id"] != (0, 0),
            "holes": [b["size"] for b in s["blocks"] if b["state"] == "inactive"],
            "blocks": [
                [b["address"], b["size"], states[b["state"]]]
                for b in s["blocks"]
                if b["state"] != "inactive"
            ],
        }
        for s in sorted(snapshot["segments"], key=lambda s: s["address"])
    ]
    assert state_of(page, last)["segments"] == expected


def test_each_view_opens_at_any_event_with_the_toys_totals(show):
    toy = toy_steps()
    page = show(dumped(toy.snapshot()))
    for key, view in enumerate(VIEWS, 1):
        page.keyboard.press(str(key))
        page.locator(f"#view-{view}").wait_for()
        assert page.get_attribute(f"#tab-{view}", "aria-selected") == "true"
        go(page)
        assert page.locator("#view-" + view).inner_text().strip() != ""
    for event in (0, 1, 7, 20, len(toy.events) - 1):
        go(page, view="segments", event=event)
        assert summary_totals(page) == toy.totals[event]
        assert chosen_event(page) == event
    go(page, event=-1)
    assert summary_totals(page) == (0, 0, 0)


def test_steps_go_to_the_next_event_allocation_out_of_memory_and_peak(show):
    snapshot = pickle.loads(recorded("gpt2_oom"))
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    page = show(recorded("gpt2_oom"), {"view": "segments", "event": 0})

    def step(label, event):
        page.get_by_role("button", name=label, exact=True).click()
        page.wait_for_function(
            "(event) => memlabViewer.shown().state.event === event", arg=event
        )

    first = actions.index("alloc")
    step("Next event", 1)
    step("Event before", 0)
    step("Next allocation", first)
    step("Next allocation", actions.index("alloc", first + 1))
    step("Allocation before", first)
    oom = actions.index("oom")
    step("Next out of memory", oom)
    page.locator(
        ".segment-pane .oom", has_text="Out of memory. Asked for 393 MiB"
    ).wait_for()
    # As the allocator's own model has it: see the test of states.
    model = Allocator(snapshot["allocator_settings"])
    for entry in snapshot["device_traces"][0][: oom + 1]:
        model.step(entry)
    hole = max(size for size, used in model.blocks.values() if not used)
    assert f"largest hole {wording.size(hole)} in s" in page.inner_text(
        ".segment-pane .oom"
    )
    step("The event of the peak", 1120)
    page.keyboard.press("o")
    page.wait_for_function("() => memlabViewer.shown().state.event === " + str(oom))
    page.fill("#instant-event", "1,000")
    page.keyboard.press("Enter")
    page.wait_for_function("() => memlabViewer.shown().state.event === 1000")
    page.get_by_role("button", name="Next step").click()
    page.locator("#instant-text", has_text="The recording has no steps.").wait_for()


def test_a_link_brings_the_state_back_and_a_wrong_one_does_no_harm(show):
    toy = toy_steps()
    page = show(dumped(toy.snapshot()))
    state = {"view": "segments", "event": 7, "theme": "dark", "order": "size",
             "search": "layer_3", "color": "size", "pairs": False}  # fmt: skip
    go(page, **state)
    page.wait_for_url(re.compile("layer_3"))
    page.reload()
    page.wait_for_selector("html[data-ready][data-theme=dark]")
    shown = page.evaluate("memlabViewer.shown().state")
    assert {key: shown[key] for key in state} == state
    assert page.input_value("#search") == "layer_3"
    address = page.url.split("#")[0]
    for text in (
        "#", "#%", "#null", "#&&=&", "#=", "#view", "#7", '#{"view":"events"}',
        "#__proto__&device=9e9&event=1e99&x=-5~7&y=7~", "#search=%E0%A4%A",
        "#pinned=99~-4&brush=9~2&other=99999", "#x=NaN~Infinity&y=1~1e999",
        "#pinned=0~99999&color=constructor&axis=x&scale=x&memory=y",
        "#device=-1&event=1.5&brush=0~1~2&action=<b>&order=x",
        "#events&event=40&by=toString&fold=x+y&weight=?&zoom=[[[&sort=__proto__"
        "&drawn=-1&y=0~-1&theme=red&pairs=2&table=x",
    ):  # fmt: skip
        for view in VIEWS:
            page.evaluate("(text) => { location.hash = text; }", text)
            go(page, view=view)
    page.goto(address + "#segments&event=7")
    page.locator("#view-segments output", has_text="After event 7:").wait_for()


def test_an_address_that_a_saved_state_replaces_is_still_followed(show):
    """The page saves its state into the address a moment after each change."""
    page = show(dumped(toy_steps().snapshot()))
    page.evaluate(
        """address => {
            const before = location.hash;
            location.hash = address;
            history.replaceState(null, "", before || "#");
        }""",
        "#segments&event=7",
    )
    page.locator("#view-segments output", has_text="After event 7:").wait_for()


def test_the_list_of_events_is_walked_by_keys_and_filtered(show):
    toy = toy_steps(3000)
    toy.event("oom", 5 * MIB, 7 * MIB)
    actions = [event["action"] for event in toy.events]
    page = show(dumped(toy.snapshot()), {"view": "events", "event": 2, "pairs": False})
    rows = page.locator("#view-events .row")
    chosen = page.locator("#view-events .row[aria-selected=true] .number")
    said = page.locator("#view-events output")
    box = page.locator("#view-events .rows")
    said.filter(has_text=f"{len(actions):,} of {len(actions):,} events").wait_for()
    box.focus()
    for key, event in (("ArrowDown", 3), ("End", len(actions) - 1), ("ArrowUp", None)):
        page.keyboard.press(key)
        event = len(actions) - 2 if event is None else event
        chosen.filter(has_text=re.compile(rf"^{event:,}$")).wait_for()
        assert rows.count() < 60
        active = box.get_attribute("aria-activedescendant")
        assert active == f"events-{event}"
    last = page.locator("#view-events .row").filter(has_text="out of memory")
    assert last.locator(".size").text_content() == "7.00 MiB"
    page.select_option("#view-events select", "alloc")
    wanted = actions.count("alloc")
    said.filter(has_text=f"{wanted:,} of {len(actions):,} events").wait_for()
    assert set(rows.locator(".action").all_text_contents()) == {"alloc"}
    go(page, action="", pairs=True)
    pairs = actions.count("free_completed")
    said.filter(has_text=f"{len(actions) - pairs:,} of").wait_for()
    go(page, event=actions.index("free_completed"))
    chosen.filter(has_text=str(actions.index("free_completed"))).wait_for()
    row = page.locator("#view-events .row[aria-selected=true]")
    assert row.locator(".action").text_content() == "free"


def test_an_event_links_to_the_others_of_its_allocation(show):
    toy = Toy()
    toy.segment(0x7F0000000000, 2 * MIB)
    toy.alloc(0x7F0000000000, 1000, [frame("forward", "/u/net.py", 12), frame("main")])
    toy.event("snapshot", 0, 0)
    toy.free(0x7F0000000000)
    toy.events[-2]["frames"] = [frame("drop", "/u/gc.py", 3)]
    page = show(dumped(toy.snapshot()), {"view": "events", "event": 3})
    inspector = page.locator("#inspector")
    inspector.filter(has_text="free_requested b7f0000000000_0").wait_for()
    text = inspector.inner_text()
    assert text.index("/u/gc.py:3") < text.index("/u/net.py:12")
    assert "1.00 KiB (1,024 B)" in text
    assert "1000 B (1,000 B)" in text
    assert "24 B more than asked for" in text
    assert "0x7f0000000000" in text
    assert "14 µs, 2 events" not in text  # the time is told of what is pinned
    for name, event in ("alloc", 1), ("free_completed", 4), ("free_requested", 3):
        inspector.get_by_role("button", name=f"{name} {event}").click()
        inspector.filter(has_text=f"event {event},").wait_for()
    go(page, pinned={"chunk": 0, "id": 0})
    assert "14 µs, 2 events" in inspector.inner_text()
    page.keyboard.press("Escape")
    inspector.filter(has_text="The event's own stack").wait_for()


def found(page, text):
    page.fill("#search", text)
    page.wait_for_function(
        "(text) => memlabViewer.shown().state.search === text", arg=text
    )
    count = page.locator(
        "#search-count", has_text=re.compile(r"^nothing found|^[\d,]+ found, [^%]* in all$")
    )
    count.wait_for()
    return int(count.text_content().split()[0].replace(",", "").replace("nothing", "0"))


def test_search_finds_words_names_addresses_and_sizes_in_every_view(show):
    toy = toy_steps(300)
    allocs = [e for e in toy.events if e["action"] == "alloc"]
    page = show(dumped(toy.snapshot()))
    named = [e for e in allocs if e["frames"][0]["name"] == "layer_3"]
    assert found(page, "layer_3") == len(named) > 0
    assert found(page, "net.py:13") == len(named)
    assert found(page, "LAYER_3 net.py") == len(named)
    assert found(page, "layer_3 layer_4") == 0
    assert found(page, ">64KiB") == 0
    assert found(page, ">=64KiB") == len(allocs)
    assert found(page, "=64KiB layer_3") == len(named)
    assert found(page, "<64KiB") == 0
    addr = named[0]["addr"]
    same = [e for e in allocs if e["addr"] == addr]
    assert found(page, f"b{addr:x}_0") == 1
    assert found(page, f"b{addr:x}_") == len(same)
    assert found(page, hex(addr)) == len(same)
    assert found(page, hex(addr + 65535)) == len(same)
    assert found(page, f"unknown b{addr:x}_0") == 1
    # The one allocation with that name, in the timeline, the state and the list.
    at = next(e for e, event in enumerate(toy.events) if event is same[0])
    go(page, event=0)
    found(page, f"b{addr:x}_0")
    for view in "timeline", "segments":
        go(page, view=view, event=0)
        page.click("#search-next")
        page.wait_for_function(
            "(event) => memlabViewer.shown().state.event === event", arg=at
        )
        page.locator("#inspector h2", has_text=f"b{addr:x}_0").wait_for()
    go(page, view="events", pinned=None)
    names = page.locator("#view-events .row .name")
    names.first.wait_for()
    assert set(names.all_text_contents()) == {f"b{addr:x}_0"}
    page.click("#search-next")
    page.wait_for_function(
        "(event) => memlabViewer.shown().state.event > event", arg=at
    )
    page.click("#search-previous")
    page.wait_for_function(
        "(event) => memlabViewer.shown().state.event === event", arg=at
    )
    page.keyboard.press("Escape")
    page.wait_for_function("() => memlabViewer.shown().state.search === ''")
    assert page.input_value("#search") == ""


def pixel_colours(page, selector):
    """How many colours the canvas has."""
    return page.evaluate(
        """(selector) => {
             const canvas = document.querySelector(selector);
             const { data } = canvas.getContext("2d")
               .getImageData(0, 0, canvas.width, canvas.height);
             return new Set(new Uint32Array(data.buffer)).size;
           }""",
        selector,
    )


def test_a_block_is_pointed_at_pinned_and_reached_by_keys(show):
    toy = Toy()
    toy.segment(0x7F0000000000, 2 * MIB)
    toy.alloc(0x7F0000000000, MIB, [frame("forward", "/u/net.py", 12), frame("main")])
    page = show(dumped(toy.snapshot()), {"view": "segments", "event": 1})
    canvas = page.locator("#view-segments canvas")
    box = canvas.bounding_box()
    left = 212  # the names of segments stand before the lanes
    x = box["x"] + left + (box["width"] - left) / 4
    page.mouse.move(x, box["y"] + 20)
    page.wait_for_selector("#tooltip", state="visible")
    tip = page.inner_text("#tooltip")
    assert "1.00 MiB b7f0000000000_0" in tip
    assert tip.index("net.py:12 forward") < tip.index("train.py:1 main")
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 20)
    page.locator("#tooltip", has_text="1.00 MiB free segment s7f0000000000").wait_for()
    assert "stream 0, small pool" in page.inner_text("#tooltip")
    page.mouse.click(x, box["y"] + 20)
    inspector = page.locator("#inspector")
    inspector.filter(has_text="Unpin").wait_for()
    assert "/u/net.py:12" in inspector.inner_text()
    page.keyboard.press("Escape")
    inspector.filter(has_text="The event's own stack").wait_for()
    canvas.focus()
    page.keyboard.press("ArrowRight")
    said = page.locator("#view-segments .unseen")
    said.filter(
        has_text="b7f0000000000_0, 1.00 MiB (1,048,576 B), net.py:12"
    ).wait_for()
    page.keyboard.press("Enter")
    inspector.filter(has_text="Unpin").wait_for()
    assert pixel_colours(page, "#view-segments canvas") > 5


def test_losses_and_notes_stand_above_the_views(show):
    toy = toy_steps()
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
    ]


def test_settings_that_torch_has_at_first_are_called_its_defaults(show):
    page = show(recorded("torch_snapshots/out_of_memory-torch2.15.0"))
    summary = page.locator("#machine summary")
    assert summary.text_content().endswith("allocator settings: torch's defaults")
    snapshot = pickle.loads(recorded("torch_snapshots/out_of_memory-torch2.15.0"))
    snapshot["allocator_settings"]["max_cached_size"] = 64 * MIB
    page = show(pickle.dumps(snapshot))
    summary = page.locator("#machine summary")
    assert summary.text_content().endswith("allocator settings: max_cached_size=67108864")


def two_devices():
    first, second = toy_steps(40, 1), toy_steps(30, 2)
    snapshot, other = first.snapshot(), second.snapshot()
    for segment in other["segments"]:
        segment["device"] = 1
    snapshot["segments"] += other["segments"]
    snapshot["device_traces"] += other["device_traces"]
    return snapshot, (first, second)


def test_each_device_can_be_chosen_and_compared(open_page):
    snapshot, toys = two_devices()
    first = {"view": "segments", "device": 1}
    recording = _core.Recording.from_bytes(dumped(snapshot))
    page = open_page(b"".join(_page.of(recording, state=first)))
    shown = page.evaluate("memlabViewer.shown().state")
    assert {key: shown[key] for key in first} == first
    peaks = [max(allocated for allocated, _, _ in toy.totals) for toy in toys]
    strip = page.locator("#strip button")
    assert strip.evaluate_all("(all) => all.map((b) => b.title)") == [
        f"cuda:{number}, peak {peak:,} B" for number, peak in enumerate(peaks)
    ]
    for choice, toy in (0, toys[0]), (1, toys[1]), (0, toys[0]):
        page.select_option("#device", str(choice))
        page.locator(
            f'#strip li:nth-child({choice + 1}) [aria-pressed="true"]'
        ).wait_for()
        go(page, event=5)
        assert summary_totals(page) == toy.totals[5]
    strip.nth(1).click()
    page.wait_for_function("() => memlabViewer.shown().state.device === 1")
    assert page.locator("#facts dd").first.get_attribute("title") == f"{peaks[1]:,} B"


def test_a_recording_of_nothing_says_so(chromium, tmp_path, open_page):
    nothing = {"segments": [], "device_traces": [[]]}
    page = open_page(page_of(dumped(nothing)))
    for view in VIEWS:
        go(page, view=view)
    assert "no events" in page.inner_text("#instant-text")
    path = tmp_path / "none.html"
    path.write_bytes(page_of(dumped({"segments": [], "device_traces": []})))
    page = chromium.new_page()
    page.goto(path.as_uri())
    page.locator("#warnings", has_text="has no device").wait_for()
    page.close()


def test_a_fault_in_one_view_leaves_the_others_at_work(chromium, tmp_path):
    path = tmp_path / "fault.html"
    path.write_bytes(page_of(dumped(toy_steps().snapshot())))
    page = chromium.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    page.evaluate(
        """() => { memlabTreemap.create = () => { throw new Error("<b>broken</b>"); }; }"""
    )
    page.click("#tab-breakdown")
    page.locator("#view-breakdown .fault", has_text="<b>broken</b>").wait_for()
    assert page.locator("#view-breakdown b").count() == 0
    page.click("#tab-segments")
    page.locator("#view-segments output", has_text="After event").wait_for()
    assert page.locator(".fault:visible").count() == 0
    page.close()


ENCODED = """
const { encode, randomRecording } = require("./encode.js");
const recording = randomRecording(9, 4000);
const { head, blobs } = encode({ ...recording, chunk: 128 });
console.log(JSON.stringify({ head, events: recording.events,
  blobs: blobs.map((blob) => Buffer.from(blob).toString("base64")) }));
"""


def test_a_list_over_many_chunks_stays_where_it_is_scrolled_to(open_page):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    run = subprocess.run(
        [node, "-e", ENCODED],
        cwd=ROOT / "tests" / "viewer",
        capture_output=True,
        check=True,
    )
    made = json.loads(run.stdout)
    device = made["head"]["devices"][0]
    device["ooms"] = []
    device["peak"]["by_category"] = {"bytes": [0] * 11}
    blobs = [base64.b64decode(blob) for blob in made["blobs"]]
    page = open_page(
        _page.assemble(json.dumps(made["head"]).encode(), blobs),
        {"view": "events", "event": 0, "action": "alloc"},
    )
    allocs = [e for e, event in enumerate(made["events"]) if event[0] == "alloc"]
    page.locator(
        "#view-events output", has_text=f"{len(allocs):,} of 4,000 events"
    ).wait_for()
    go(page, action="", pairs=True, event=2000)
    for share, low, high in (
        (0, 0, 0),
        (0.5, 1700, 2300),
        (1, 3900, 3999),
        (0.1, 200, 600),
    ):
        page.evaluate(
            """(share) => {
                 const box = document.querySelector("#view-events .rows");
                 box.scrollTop = share * (box.scrollHeight - box.clientHeight);
               }""",
            share,
        )
        page.wait_for_function(
            """([low, high]) => {
                 const rows = [...document.querySelectorAll("#view-events .row .number")];
                 const events = rows.map((row) => Number(row.textContent.replace(",", "")));
                 return events.length > 10
                   && events.length === document.querySelectorAll("#view-events .row").length
                   && events.every((e, i) => i === 0 || e > events[i - 1])
                   && events[0] >= low && events[0] <= high;
               }""",
            arg=[low, high],
        )
