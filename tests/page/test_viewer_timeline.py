"""The viewer's timeline in Chromium: pixels, sums, moves, the number drawn.

Which instant and which bands a column shows is compared with brute force under node
(tests/viewer/columns.test.js, bands.test.js); here is what reaches the screen.
"""

import random
import re

import pytest
from viewer_pages import MIB, Toy, dumped, frame, recorded, toy_steps

from memlab import _core

NEWEST = "memlabTimeline.newest()"
# The colours of a position (event, bytes) on the canvas, and of a group, as numbers.
PIXEL = """([event, bytes]) => {
  const { plot, port: { range, view } } = memlabTimeline.newest().self;
  const x = plot.left + (event + 0.25 - range.x0) / (range.x1 - range.x0) * plot.width;
  const y = plot.top + plot.height
    - (bytes - view.y0) / (view.y1 - view.y0) * plot.height;
  const { data } = document.getElementById("timeline").getContext("2d")
    .getImageData(Math.round(x), Math.round(y), 1, 1);
  return [...data.slice(0, 3)];
}"""
GROUP = """([scheme, text]) => {
  const { self: { model, d } } = memlabTimeline.newest();
  const g = model.devices[d].groups[scheme].findIndex(
    (_, i) => memlabNames.groupText(model, d, scheme, i).includes(text));
  const hex = memlabColors.group(model, d, scheme, g);
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}"""
COLUMNS = """(scheme) => {
  const { self } = memlabTimeline.newest();
  const { width, groups, event, sums, allocated, active } = self.columns;
  return Array.from({ length: width }, (_, p) => ({
    event: event[p], allocated: allocated[p], active: active[p],
    groups: Object.fromEntries(self.model.devices[self.d].groups[scheme].map(
      (group, g) => [group, sums[p * groups + g]])),
  }));
}"""


@pytest.fixture
def timeline(show):
    """A function that opens a page at its timeline, which has all that it asked for:
    timeline(snapshot, color="line", ...)."""

    def timeline(snapshot, **state):
        page = show(snapshot, {"view": "timeline", **state})
        settle(page)
        return page

    return timeline


def settle(page):
    """Until the timeline has drawn what it is asked for."""
    page.wait_for_function(
        f"() => {{ const {{ self }} = {NEWEST}; return self.frames > 0"
        f" && self.complete && self.idle(); }}"
    )


def three_blocks():
    """4, 3 and 2 MiB of three lines; the first is freed, then what is left too."""
    toy = Toy()
    toy.segment(0x7F0000000000, 20 * MIB)
    places = [0x7F0000000000, 0x7F0000400000, 0x7F0000700000]
    for i, (place, mib) in enumerate(zip(places, (4, 3, 2), strict=True)):
        toy.alloc(place, mib * MIB, [frame(f"layer_{i}", "net.py", 10 + i)])
    toy.free(places[0])
    toy.free(places[2])
    return toy


def close(colour, other, by=24):
    """The same hue but for the shades that tell neighbours apart."""
    return all(abs(a - b) <= by for a, b in zip(colour, other, strict=True))


def test_bands_have_the_colour_of_their_group_where_they_are(timeline):
    page = timeline(dumped(three_blocks().snapshot()), color="line", event=0)
    # Groups stand by bytes x events from the bottom, whatever that order is.
    order = page.evaluate(
        """() => { const { self: { model, d } } = memlabTimeline.newest();
             return model.devices[d].groups.line.map(
               (_, g) => memlabNames.groupText(model, d, "line", g)); }"""
    )
    # After event 3 all three are there; after event 4 the first is not allocated.
    live = {"layer_0": 4 * MIB, "layer_1": 3 * MIB, "layer_2": 2 * MIB}
    for event, gone in ((3, ()), (4, ("layer_0",))):
        below = 0
        for text in order:
            names = [name for name in live if name in text and name not in gone]
            for name in names:
                colour = page.evaluate(PIXEL, [event, below + live[name] / 2])
                assert close(colour, page.evaluate(GROUP, ["line", name])), name
                below += live[name]
        assert below == (9 if event == 3 else 5) * MIB
        # Above is nothing, or what waits to be freed.
        canvas = page.evaluate(PIXEL, [event, 9.3 * MIB])
        assert canvas == [255, 255, 255]


def test_freed_but_not_completed_is_hatched_on_top(timeline):
    snapshot = three_blocks().snapshot()
    page = timeline(dumped(snapshot), color="line", event=0)
    # Event 4 asks for the 4 MiB to be freed, event 5 does it: 5 to 9 MiB wait between.
    hatched = {
        tuple(page.evaluate(PIXEL, [4, (5.1 + i / 40) * MIB])) for i in range(120)
    }
    assert len(hatched) >= 2
    assert (255, 255, 255) not in hatched


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_the_sums_of_an_instant_are_those_of_the_peak_there(timeline, name):
    snapshot = recorded(name)
    recording = _core.Recording.from_bytes(snapshot)
    rng = random.Random(name)
    page = timeline(snapshot, color="category")
    categories = page.evaluate(f"() => {NEWEST}.self.model.categories")
    for scheme in ("category", "size"):
        page.select_option("#color", scheme)
        settle(page)
        columns = page.evaluate(COLUMNS, scheme)
        highest = max(columns, key=lambda column: column["allocated"])
        assert highest["event"] == recording.peak(0)["peak"]["event"] - 1
        for column in [highest, *rng.sample(columns, 6)]:
            peak = recording.peak(0, column["event"])
            assert column["allocated"] == peak["peak"]["allocated_bytes"]
            assert column["active"] == peak["peak"]["active_bytes"]
            groups = {int(k): v for k, v in column["groups"].items() if v > 0}
            if scheme == "category":
                expected = {
                    categories.index(k): v for k, v in peak["by_category"].items() if v
                }
            else:
                expected = {r["least_bytes"]: r["bytes"] for r in peak["by_size"]}
                least = min(groups)
                small = [k for k in expected if k <= least]
                expected[least] = sum(expected.pop(k) for k in small)
            assert groups == expected


def test_the_slider_changes_how_many_allocations_are_drawn(timeline):
    page = timeline(recorded("gpt2_oom"))
    counts = []
    for position in (100, 30, 0):
        page.locator("#timeline-detail").fill(str(position))
        settle(page)
        bands = page.evaluate(f"() => {NEWEST}.self.bands.count")
        text = page.inner_text("#timeline-drawn")
        assert f"{bands:,}" in text
        counts.append(bands)
    assert counts[0] > counts[1] > counts[2] == 10
    # The rest of each group is still there: no column is lower than before.
    columns = page.evaluate(COLUMNS, "line")
    assert max(c["allocated"] for c in columns) == 3133694464


def shown_range(page):
    return page.evaluate(
        f"() => {{ const {{ range }} = {NEWEST}.self.port;"
        f" return [range.x0, range.x1]; }}"
    )


def at(page, x, y):
    """A place of the plot by shares from its left and bottom, on the screen."""
    return page.evaluate(
        """([x, y]) => { const { plot } = memlabTimeline.newest().self;
             const box = document.getElementById("timeline").getBoundingClientRect();
             return [box.left + plot.left + x * plot.width,
                     box.top + plot.top + (1 - y) * plot.height]; }""",
        [x, y],
    )


def drag(page, start, end, key=None):
    if key:
        page.keyboard.down(key)
    page.mouse.move(*at(page, *start))
    page.mouse.down()
    page.mouse.move(*at(page, *end), steps=4)
    page.mouse.up()
    if key:
        page.keyboard.up(key)
    settle(page)


def state(page):
    return page.evaluate("() => memlabViewer.shown().state")


def test_zoom_pan_box_brush_and_keys_move_the_range(timeline):
    page = timeline(dumped(toy_steps(400).snapshot()))
    events = page.evaluate(f"() => {NEWEST}.device().events")
    assert shown_range(page) == [0, events]
    page.mouse.move(*at(page, 0.5, 0.5))
    page.mouse.wheel(0, -250)
    settle(page)
    x0, x1 = shown_range(page)
    assert x1 - x0 == pytest.approx(events / 2.718, rel=0.01)
    # What is under the pointer stays there.
    assert (x0 + x1) / 2 == pytest.approx(events / 2, abs=events / 100)
    drag(page, (0.5, 0.5), (0.75, 0.5))
    moved = shown_range(page)
    assert moved[0] == pytest.approx(x0 - (x1 - x0) / 4, abs=events / 200)
    page.locator("#timeline").focus()
    page.keyboard.press("0")
    settle(page)
    assert shown_range(page) == [0, events]
    drag(page, (0.25, 0.1), (0.5, 0.9), key="Control")
    assert shown_range(page) == pytest.approx(
        [events / 4, events / 2], abs=events / 100
    )
    assert page.evaluate(f"() => {NEWEST}.self.port.view.y0") > 0
    page.keyboard.press("0")
    settle(page)
    drag(page, (0.25, 0.5), (0.5, 0.5), key="Shift")
    brush = state(page)["brush"]
    assert brush == pytest.approx([events / 4, events / 2], abs=events / 100)
    assert shown_range(page) == [0, events]
    page.click("#timeline-brush")
    settle(page)
    assert shown_range(page) == pytest.approx(
        [brush[0], brush[1] + 1], abs=events / 500
    )
    # The rest of the page, and its address, know the range.
    page.wait_for_function("() => memlabViewer.shown().state.x0 > 0")
    said = page.locator("#view-timeline .unseen")
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowRight")
    said.filter(has_text=f"of {events:,}; most allocated").wait_for()
    page.click("#timeline-peak")
    settle(page)
    peak = page.evaluate(f"() => {NEWEST}.device().peak.event")
    x0, x1 = shown_range(page)
    assert x0 <= peak < x1 < events


def test_a_click_chooses_the_instant_and_pins_what_is_there(timeline):
    page = timeline(dumped(three_blocks().snapshot()), color="line")
    page.mouse.move(*at(page, 3.5 / 8, 0.02))
    tip = page.locator("#tooltip")
    tip.filter(has_text="net.py").wait_for()
    assert "b7f00" in tip.inner_text()
    page.mouse.click(*at(page, 3.5 / 8, 0.02))
    page.wait_for_function("() => memlabViewer.shown().state.pinned !== null")
    shown = state(page)
    assert shown["event"] == 3
    assert shown["pinned"]["id"] in (0, 1, 2)
    # Above all bands: the instant alone.
    page.mouse.click(*at(page, 1.5 / 8, 0.99))
    page.wait_for_function("() => memlabViewer.shown().state.pinned === null")
    assert state(page)["event"] == 1


def test_the_axis_of_time_shows_the_same_events(timeline):
    page = timeline(dumped(toy_steps(400).snapshot()), x0=100, x1=200)
    page.select_option("#timeline-axis", "time")
    page.wait_for_function(f"() => {NEWEST}.self.port.range.axis === 'time'")
    settle(page)
    # Events of the toy are 7 microseconds apart.
    first = page.evaluate(f"() => {NEWEST}.device().first_us")
    x0, x1 = shown_range(page)
    assert [x0 - first, x1 - first] == pytest.approx([700, 1393 + 1], abs=4)
    page.wait_for_function(
        "() => memlabViewer.shown().state.axis === 'time'"
        " && memlabViewer.shown().state.x0 === 100"
    )


def drawn_texts(page):
    return page.evaluate(
        """() => {
          const { self, device } = memlabTimeline.newest();
          const canvas = document.createElement("canvas").getContext("2d");
          const texts = [];
          const spy = new Proxy(canvas, {
            get: (to, key) => key === "fillText"
              ? (text) => texts.push(text)
              : typeof to[key] === "function" ? to[key].bind(to) : to[key],
            set: (to, key, value) => { to[key] = value; return true; },
          });
          memlabMarks.draw(spy, self.plot, { peak: device().peak, event: 5,
                                             other: 9, brush: null });
          return texts;
        }"""
    )


def test_times_of_all_devices_count_from_the_recordings_first_event(timeline):
    early, late = toy_steps(20), toy_steps(20)
    for event in late.events:
        event["time_us"] += 5_000_000
    snapshot = early.snapshot()
    snapshot["device_traces"].append(late.events)
    page = timeline(dumped(snapshot), device=1, axis="time")
    page.wait_for_function(f"() => {NEWEST}.self.port.range.axis === 'time'")
    settle(page)
    times = [text for text in drawn_texts(page) if re.fullmatch(r"[\d.]+ (s|ms|µs)", text)]
    assert len(times) > 3
    assert len(set(times)) == len(times)
    assert all(re.fullmatch(r"5\.000\d+ s", text) for text in times)
    page.mouse.move(*at(page, 0.01, 0.999))
    page.wait_for_function("() => !document.getElementById('tooltip').hidden")
    page.mouse.move(*at(page, 0.5, 0.99))
    page.locator("#tooltip", has_text=", 5.000 s").wait_for()


def test_out_of_memory_and_the_peak_are_labelled(timeline):
    page = timeline(recorded("gpt2_oom"))
    texts = drawn_texts(page)
    assert any(text.startswith("out of memory: ") for text in texts)
    assert "peak 2.92 GiB allocated" in texts
    assert "event 5" in texts
    assert "compared: 9" in texts
    assert any(text.startswith("reserved ") or "reserved" in text for text in texts)


def test_a_device_without_events_says_so(timeline, show):
    page = show(dumped({"segments": [], "device_traces": [[]]}), {"view": "timeline"})
    assert page.evaluate("() => memlabViewer.shown().model.devices.length") <= 1
