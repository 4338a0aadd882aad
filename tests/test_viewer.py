"""The viewer's page: its shell, allocator state, events and search, in Chromium.

What the page shows is compared with a model of the allocator (viewer_pages.py), with the
snapshot itself, and, for recorded snapshots, with torch's own counters.
"""

import base64
import hashlib
import json
import pickle
import random
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

from memlab import _page

VIEWS = ("timeline", "breakdown", "flame", "segments", "events", "growth")


# ---- without a browser ----


def test_pure_functions_under_node():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    result = subprocess.run(
        [node, "--test", str(ROOT / "tests" / "viewer")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
    assert int(re.search(r"^# pass (\d+)", result.stdout, re.M)[1]) >= 20


def test_policy_allows_the_page_its_own_script_and_style_only():
    tree = Tree(_page.assemble(b'{"format":2}'))
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
    for path in sorted((ROOT / "memlab" / "viewer").glob("*.[jch]*s*")):
        text = path.read_text("utf-8")
        assert not re.search(r"https?:|url\(|@import|innerHTML|outerHTML|insertAdjacent"
                             r"|document\.write|eval\(", text), path.name  # fmt: skip


def test_unescaped_data_is_refused():
    with pytest.raises(ValueError, match="escaped"):
        _page.assemble(b'{"strings":["</script><script>alert(1)"]}')


# Without white space, which decides whether a search can be made of a name.
PIECES = (
    *("</script>", "<script>", "<!--", "-->", "]]>", "<img/src=x/onerror=alert(1)>"),
    *("&lt;", "&#60;", '"', "'", "`", "\\", "\\u003c", "\u2028", "\u2029", "\0", "%00"),
    *("\x1b[31m", "\x7f", "\x85", "\ud800", "\udfff", "\U0001f600", "\u202e", "\ufeff"),
    *("javascript:", "//evil/x", "http://evil.example/x.js", "__proto__", "{{7*7}}"),
    *("constructor", "${alert(1)}", "<style>@import'//evil'</style>", "a"),
    *("<base/href=//evil>", "<svg/onload=alert(1)>", "</dialog><iframe/src=//evil>"),
)


def hostile_names(count, seed=1):
    rng = random.Random(seed)
    names = (
        "".join(rng.choices(PIECES, k=rng.randrange(1, 6))) + f"<{i}>"
        for i in range(count)
    )
    # JSON and JavaScript see two surrogates that happen to match as one character.
    return [
        name.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        for name in names
    ]


def names_snapshot(names, depth=200):
    """Allocations with stacks of DEPTH frames, of NAMES as functions and as files."""
    toy = Toy()
    toy.segment(0x7F0000000000, 512 * MIB)
    for i in range(0, len(names), depth):
        frames = [
            frame(name, names[-1 - i - k], k + 1)
            for k, name in enumerate(names[i : i + depth])
        ]
        toy.alloc(0x7F0000000000 + i // depth * 4096, 4096, frames)
    return dumped(toy.snapshot())


def test_hostile_names_change_no_element_of_the_file():
    plain = page_of(names_snapshot(["a"] * 10_000))
    hostile = hostile_names(10_000)
    page = page_of(names_snapshot(hostile), title=hostile[0], notes=hostile[:100])
    assert Tree(page).tags == Tree(plain).tags
    text = page.split(b'id="memlab-data">')[1].split(b"</script>")[0]
    assert not re.search(rb"[<>&]|\xe2\x80[\xa8\xa9]|[\x00-\x1f\x7f]", text)
    assert set(hostile) <= set(json.loads(text)["strings"])


# ---- in Chromium ----


OUTLINE = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const text = (e) => [e.tagName, ...e.getAttributeNames().sort()].join(" ");
  const listed = ".rows .row, .rows .row *";
  const take = () => [
    ...Array.from(document.querySelectorAll(`*:not(${listed})`), text).sort(),
    ...new Set(Array.from(document.querySelectorAll(listed), text))];
  let [before, now] = [[], take()];
  while (before.join() !== now.join()) {
    await frame();
    await frame();
    [before, now] = [now, take()];
  }
  return now;
}"""


def outline(page):
    """Every element's tag and the names of its attributes, sorted, once all is drawn.

    Rows of the list of events count once: how many are in sight is the layout's.
    """
    return page.evaluate(OUTLINE)


def go(page, **state):
    """Changes the page's state, as its views do, and waits until it is shown."""
    page.evaluate("(state) => memlabViewer.go(state)", state)
    assert page.locator(".fault:visible").all_text_contents() == []


def named_everywhere(names, title):
    """A recording's page with NAMES in every field: through the core as functions and
    files, and in place of all that is text in what the core wrote."""
    from memlab import _core

    recording = _core.Recording.from_bytes(names_snapshot(names))
    data, blobs = recording.page_data()
    head = json.loads(data)
    kinds = len(head["kinds"]["stack"])
    head["kinds"]["module"] = [1 + i % 50 for i in range(kinds)]
    head["kinds"]["name"] = [60 + i for i in range(kinds)]
    head["strings"] = [head["strings"][0], *names[: len(head["strings"]) - 1]]
    notes = [
        *({"kind": kind, "time": 7 * i, "end": 7 * i + 50, "name": 1 + i, "value": i}
          for i, kind in enumerate(["step", "phase", "region", "mark", "oom"] * 5)),
    ]  # fmt: skip
    for key, fill in ("device", -1), ("rank", 0):
        for note in notes:
            note[key] = fill
    head["notes"] = {key: [note[key] for note in notes] for key in notes[0]}
    head["ranks"] = [{"rank": 0, "host": names[3], "name": names[4]}]
    head["source"] = names[5]
    head["devices"] = [{**head["devices"][0], "name": names[6 + i]} for i in range(8)]
    text = _page._escaped(json.dumps(head)).encode()
    return _page.assemble(text, blobs, title=title, notes=names[:5])


def test_hostile_names_change_no_element_of_the_page(open_page):
    count = 100_000
    outlines = []
    for names in [f"f{i}" for i in range(count)], hostile_names(count):
        page = open_page(named_everywhere(names, names[7]))
        found = []
        for view in VIEWS:
            go(page, view=view)
            found.append(outline(page))
        go(page, view="events", search=">1", event=3, pinned={"chunk": 0, "id": 4})
        found.append(outline(page))
        outlines.append(found)
    tame, hostile = outlines
    for view, (one, other) in enumerate(zip(tame, hostile)):
        assert one == other, view
        assert one == other, view


def state_of(page, event):
    """What the page has in memory after EVENT: segments with their blocks, and totals."""
    return page.evaluate(
        """async (event) => {
          const { model } = memlabViewer.shown();
          const [pieces, chunk] = [await model.segments(0),
                                   await model.chunk(0, model.chunkOf(0, event))];
          const { rows, totals } = chunk;
          const segments = memlabMemory.stateAt(pieces, chunk, event)
            .filter((s) => !s.gone).map((s) => ({
              address: memlabNames.addressNumber(s.hi, s.lo), size: s.bytes,
              stream: model.streams[s.stream], expandable: s.expandable,
              small: s.small, isPrivate: s.isPrivate,
              holes: memlabMemory.holesOf(s, rows).map((h) => h.bytes),
              blocks: s.rows.map((r) => [
                memlabNames.addressNumber(rows.hi[r], rows.lo[r]), rows.bytes[r],
                rows.requested[r] <= event]) }));
          const i = event - chunk.first;
          return { segments, totals: ["allocated", "active", "reserved"].map(
            (name) => totals[name][i]) };
        }""",
        event,
    )


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
