"""The page's breakdowns: what it sums of its data is what the core answers.

All sums are made under node by the page's own scripts, and compared group by group; some
of them again in Chromium, with keys and clicks.  tests/viewer/breakdown.test.js checks the
rest of the functions.
"""

import base64
import gzip
import json
import pickle
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from viewer_pages import model_totals
from viewer_state import address_of

from memlab import _core
from memlab._text import wording

ROOT = Path(__file__).resolve().parents[2]
TRAINING = """
import sys
import torch
import memlab

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []
with memlab.MemorySnapshot() as snapshot:
    for step in range(4):
        batch = torch.randn(64, 256, device="cuda")
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        kept.append(torch.empty(step + 1, 1000, device="cuda"))
snapshot.save(sys.argv[1])
"""


@pytest.fixture(scope="session")
def node():
    path = shutil.which("node")
    if path is None:
        pytest.skip("node is not installed")
    return path


def stored(name):
    """The bytes of a recorded snapshot: tests/data."""
    path = ROOT / "tests" / "data" / f"{name}.pickle.gz"
    return gzip.decompress(path.read_bytes())


def recorded(name):
    return _core.Recording.from_bytes(stored(name))


_trained = []


@pytest.fixture
def training(phantom_run, tmp_path):
    """Four steps of a little model; one recording for all tests."""
    if not _trained:
        path = tmp_path / "training.pickle"
        phantom_run(TRAINING, str(path))
        _trained.append(_core.Recording.from_bytes(path.read_bytes()))
    return _trained[0]


def sums(node, recording, asked):
    """What the page sums of RECORDING, by each of its ways, for each (device, event)."""
    head, blobs = recording.page_data()
    told = {
        "head": json.loads(head),
        "blobs": [base64.b64encode(blob).decode() for blob in blobs],
        "asked": asked,
    }
    script = ROOT / "tests" / "viewer" / "breakdown_of.js"
    run = subprocess.run(
        [node, script], input=json.dumps(told).encode(), capture_output=True, check=True
    )
    return json.loads(run.stdout)


def counted(groups, *keys):
    """Bytes and blocks of GROUPS by what they are of."""
    out = {}
    for group in groups:
        key = json.dumps([group[name] for name in keys])
        assert key not in out, "two groups of one thing"
        out[key] = (group["bytes"], group["blocks"])
    return out


PLACE = ("phase", "how", "reason")
LINE = ("file", "line", "until_line", "function", "module", *PLACE)


def by_stack(groups):
    """Those with frames of their own; of the others, which the core tells by the stack of
    their forward, the sums."""
    own, others = {}, Counter()
    for group in groups:
        if group["how"] == "frames":
            key = json.dumps([group["frames"], *(group[name] for name in PLACE)])
            own[key] = (group["bytes"], group["blocks"])
        else:
            key = tuple(group[name] for name in PLACE)
            others[(*key, "bytes")] += group["bytes"]
            others[(*key, "blocks")] += group["blocks"]
    return own, others


def assert_same(shown, answer):
    """SHOWN by the page is ANSWER, of Recording.peak."""
    assert shown["total"] == answer["peak"]["allocated_bytes"]
    assert counted(shown["line"], *LINE) == counted(answer["by_line"], *LINE)
    kinds = {
        json.dumps([g[name] for name in LINE]): g["by_category"]
        for g in answer["by_line"]
    }
    for group in shown["line"]:
        assert group["by_category"] == kinds[json.dumps([group[k] for k in LINE])]
    modules = counted(shown["module"], "module", "reason")
    assert modules == counted(answer["by_module"], "module", "reason")
    assert counted(shown["size"], "least_bytes") == counted(
        answer["by_size"], "least_bytes"
    )
    assert by_stack(shown["stack"]) == by_stack(answer["by_stack"])
    categories, whys = Counter(), Counter()
    for group in shown["category"]:
        categories[group["category"]] += group["bytes"]
        if group["category"] == "unknown":
            whys[group["why"]] += group["bytes"]
    assert categories == Counter(answer["by_category"])
    assert +Counter({why: n for why, n in whys.items() if why}) == Counter(
        answer["unknown_because"]
    )
    inexact = sum(group["inexact"] for group in shown["category"])
    assert inexact == answer["inexact_category_bytes"]


def some_events(recording, count):
    """The peak, both ends, before the first, and COUNT in between."""
    events = recording.peak(0)["events"]
    peak = recording.peak(0)["peak"]["event"] - 1
    between = [events * i // (count + 1) for i in range(1, count + 1)]
    return [-1, 0, peak, events - 1, *between]


@pytest.mark.parametrize("name", ["gpt2_oom", "streams_expandable"])
def test_a_recorded_snapshot_sums_up_as_the_core_says(node, name):
    recording = recorded(name)
    events = some_events(recording, 6)
    for event, shown in zip(events, sums(node, recording, [(0, e) for e in events])):
        assert_same(shown, recording.peak(0, event))


@pytest.mark.cuda
def test_training_sums_up_as_the_core_says_after_each_event(node, training):
    """With lines of the backward pass, modules and categories."""
    events = range(-1, training.peak(0)["events"], 3)
    hows, categories = set(), set()
    for event, shown in zip(events, sums(node, training, [(0, e) for e in events])):
        answer = training.peak(0, event)
        assert_same(shown, answer)
        hows |= {group["how"] for group in answer["by_line"]}
        categories |= {name for name, n in answer["by_category"].items() if n}
    assert hows >= {"frames", "node"}
    assert categories >= {"parameter", "gradient", "optimizer_state", "activation"}


# ---- in Chromium ----


def go(page, state):
    """Shows another state of the same page."""
    page.goto(page.url.split("#")[0] + address_of(state))


def heading(page, view, text):
    """Waits until VIEW says TEXT in its first line."""
    page.locator(f"#view-{view} .instant", has_text=text).wait_for()


def bytes_of(page, table):
    rows = page.locator(table).locator("tbody tr")
    return rows.evaluate_all("rows => rows.map((row) => Number(row.dataset.bytes))")


def searched(page, word):
    """Waits until the page searches for WORD."""
    page.wait_for_function(
        "word => document.getElementById('search').value === word", arg=word
    )


def exact(count):
    return f"({count:,} B)"


@pytest.mark.cuda
def test_breakdown_shows_each_instants_own_figures(show, training):
    page = show(training, {"view": "breakdown"})
    peak = training.peak(0)
    at_peak = peak["peak"]["event"] - 1
    for event in (at_peak, 0, at_peak // 2, peak["events"] - 1):
        answer = training.peak(0, event)
        go(page, {"view": "breakdown", "event": event})
        heading(page, "breakdown", f"After event {event:,}, ")
        at = answer["peak"]
        heading(page, "breakdown", f"{exact(at['allocated_bytes'])} allocated")
        said = page.text_content("#view-breakdown .instant-room p")
        assert f"{exact(at['reserved_bytes'])} reserved" in said
        assert f"{exact(at['active_bytes'])} active" in said
        for by in ("line", "module", "stack", "size"):
            page.select_option("#view-breakdown .toolbar select", by)
            page.locator("caption", has_text=f"Allocated memory by {by}").wait_for()
            groups = sorted((g["bytes"] for g in answer[f"by_{by}"]), reverse=True)
            shown = bytes_of(page, "#view-breakdown .sums-room")
            # Backward blocks are of their forward's stack there, of their line here.
            assert sum(shown) == sum(groups)
            assert by == "stack" or shown == groups
        page.select_option("#view-breakdown .toolbar select", "category")
        page.locator("caption", has_text="Allocated memory by category").wait_for()
        kinds = {name: n for name, n in answer["by_category"].items() if n}
        assert sum(bytes_of(page, "#view-breakdown .sums-room")) == sum(kinds.values())
    overhead = peak["overhead"]
    kinds = peak["by_category"]
    go(page, {"view": "breakdown", "by": "category"})
    heading(page, "breakdown", ", the peak: ")
    said = page.text_content("#view-breakdown .instant-room p")
    assert f"in {overhead['free_blocks']} free block" in said
    page.click("#view-breakdown .sums-room tbody button >> nth=0")
    searched(page, max(kinds, key=kinds.get))


def test_rows_are_sorted_by_their_headings_and_searched_by_a_click(show):
    recording = recorded("gpt2_oom")
    page = show(recording, {"view": "breakdown", "by": "line"})
    lines = recording.peak(0)["by_line"]
    table = "#view-breakdown .sums-room"
    page.locator(f"{table} tbody tr").first.wait_for()
    assert bytes_of(page, table) == [line["bytes"] for line in lines][:100]
    page.click(f"{table} th >> text=Blocks")
    blocks = page.locator(f"{table} tbody tr td:last-child").all_text_contents()
    numbers = [int(text.replace(",", "")) for text in blocks]
    assert numbers == sorted((line["blocks"] for line in lines), reverse=True)[:100]
    assert page.get_attribute(f"{table} th >> nth=-1", "aria-sort") == "descending"
    page.keyboard.press("Enter")
    assert page.get_attribute(f"{table} th >> nth=-1", "aria-sort") == "ascending"
    page.click(f"{table} th >> text=Bytes")
    page.click(f"{table} tbody tr >> nth=0")
    name = Path(lines[0]["file"]).name
    searched(page, f"{name}:{lines[0]['line']}")


def said(page, view):
    return page.text_content(f"#view-{view} .tree-said")


def crumbs(page, view):
    return page.locator(f"#view-{view} .crumb").all_text_contents()


@pytest.mark.cuda
def test_tree_map_is_walked_with_keys_and_zoomed_by_a_click(show, training):
    kinds = training.peak(0)["by_category"]
    largest = max(kinds, key=kinds.get)
    page = show(training, {"view": "breakdown"})
    heading(page, "breakdown", "the peak")
    page.focus("#view-breakdown canvas")
    page.keyboard.press("ArrowDown")
    words = largest.replace("_", " ")
    assert said(page, "breakdown").startswith(f"{words}: ")
    assert exact(kinds[largest]) in said(page, "breakdown")
    page.keyboard.press("Enter")
    assert crumbs(page, "breakdown") == ["all memory", words]
    page.wait_for_url(re.compile("zoom"))
    page.reload()
    page.locator("#view-breakdown .crumb", has_text=words).wait_for()
    page.click("#view-breakdown .crumb >> nth=0")
    assert crumbs(page, "breakdown") == ["all memory"]
    # The picture follows in the next frame.
    page.evaluate(
        "() => new Promise((done) => "
        "requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    box = page.locator("#view-breakdown canvas").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + 8)
    tip = page.inner_text("#view-breakdown .tree-tip")
    assert tip.startswith(words)
    assert exact(kinds[largest]) in tip
    page.mouse.click(box["x"] + 3, box["y"] + 8)
    assert crumbs(page, "breakdown") == ["all memory", words]
    page.focus("#view-breakdown canvas")
    page.keyboard.press("Escape")
    assert crumbs(page, "breakdown") == ["all memory"]
    page.click("#view-breakdown .tree-head button >> text=As a table")
    page.locator("#view-breakdown .tree-table tbody tr").first.wait_for()
    sums = bytes_of(page, "#view-breakdown .tree-table")
    assert sums[:2] == [sum(kinds.values()), kinds[largest]]


def test_flame_graph_finds_the_share_of_a_function(show):
    recording = recorded("gpt2_oom")
    answer = recording.peak(0)
    whole = answer["peak"]["allocated_bytes"]
    page = show(recording, {"view": "flame"})
    heading(page, "flame", exact(whole))
    names = Counter(f["name"] for s in answer["by_stack"] for f in s["frames"])
    for name in ("forward", "step", min(names)):
        has = sum(
            stack["bytes"]
            for stack in answer["by_stack"]
            if any(
                name in f"{f['filename']}:{f['line']} {f['name']}".lower()
                for f in stack["frames"]
            )
        )
        go(page, {"view": "flame", "search": name, "fold": "noise"})
        page.locator(
            "#view-flame .tree-found", has_text=f"{100 * has / whole:.1f} % found"
        ).wait_for()


def test_flame_graph_weighs_a_range_by_time(show):
    snapshot = stored("gpt2_oom")
    trace = pickle.loads(snapshot)["device_traces"][0]
    totals = model_totals(pickle.loads(snapshot))
    first, last = 300, 1500
    allocated = [total for total, _, _ in totals]
    times = [event["time_us"] for event in trace]
    expected = sum(
        allocated[e] * (times[e + 1] - times[e]) for e in range(first, last)
    )
    page = show(recorded("gpt2_oom"), {"view": "flame", "brush": [first, last]})
    top = max(range(first, last + 1), key=lambda e: (allocated[e], -e))
    heading(page, "flame", f"After event {top:,}, ")
    page.select_option("#view-flame .toolbar select >> nth=0", "time")
    heading(page, "flame", f"Events {first:,} to {last:,}, ")
    title = page.get_attribute("#view-flame .instant", "title")
    assert int(title.removesuffix(" B·µs").replace(",", "")) == expected
    page.wait_for_url(re.compile("weight"))


@pytest.mark.cuda
def test_flame_graph_says_whose_gradient_the_backward_pass_makes(show, training):
    """Its threads have no frames."""
    page = show(training, {"view": "flame", "table": True})
    heading(page, "flame", "the peak")
    rows = page.locator("#view-flame .tree-table .level")
    rows.first.wait_for()
    texts = rows.all_text_contents()
    assert any(re.match(r"backward of program\.py:\d+ ", text) for text in texts)
    assert not any("no stack" in text for text in texts)
    page.check("#view-flame .toolbar input >> nth=0")
    kinds = training.peak(0)["by_category"]
    largest = max(kinds, key=kinds.get).replace("_", " ")
    page.locator("#view-flame .tree-table .level", has_text=largest).first.wait_for()


def by_line(answer):
    """Bytes by line and phase, however the line is known."""
    out = Counter()
    for group in answer["by_line"]:
        key = [group[name] for name in ("file", "line", "function", "phase", "reason")]
        out[tuple(key)] += group["bytes"]
    return out


@pytest.mark.cuda
def test_growth_is_the_difference_of_two_instants(show, training):
    events = training.peak(0)["events"]
    page = show(training, {"view": "growth", "by": "line"})
    for first, last in ((events // 3, events - 1), (0, events // 2)):
        go(page, {"view": "growth", "event": last, "other": first})
        before, after = training.peak(0, first), training.peak(0, last)
        sizes = [answer["peak"]["allocated_bytes"] for answer in (before, after)]
        heading(page, "growth", f"{exact(sizes[0])} before, ")
        heading(page, "growth", f"{exact(sizes[1])} after: ")
        table = "#view-growth .sums-room >> nth=0"
        old, now = by_line(before), by_line(after)
        expected = [now[key] - old[key] for key in {*old, *now}]
        assert sorted(filter(None, bytes_of(page, table))) == sorted(
            filter(None, expected)
        )


def test_memory_of_no_known_category_is_not_called_exact(show):
    recording = recorded("h200/streams.default")
    unknown = recording.peak(0)["by_category"]["unknown"]
    assert unknown == recording.peak(0)["peak"]["allocated_bytes"]
    page = show(recording, {"view": "breakdown"})
    page.get_by_text(
        f"{wording.size(unknown)} {exact(unknown)} of no known category; "
        "all other categories are exact."
    ).wait_for()


def test_growth_says_why_a_category_is_unknown_beside_the_table_only(show):
    page = show(recorded("h200/streams.default"), {"view": "growth"})
    rows = page.locator("#view-growth .sums-room >> nth=1").locator("tbody tr")
    cell = rows.first.locator("td").nth(3)
    assert cell.text_content() == "unknown"
    assert cell.get_attribute("title").startswith("unknown: ")


@pytest.mark.cuda
def test_growth_lists_what_is_new_and_still_live(show, training):
    """By default between the ends of the first and of the last step: what the program
    keeps of each step, and what the last one left."""
    page = show(training, {"view": "growth"})
    heading(page, "growth", " after: ")
    options = page.locator("#view-growth select >> nth=0").locator("option")
    assert "the end of step 2" in options.all_text_contents()
    rows = page.locator("#view-growth .sums-room >> nth=1").locator("tbody tr")
    line = TRAINING[: TRAINING.index("kept.append")].count("\n") + 1
    assert rows.filter(has_text=f"program.py:{line} ").count() >= 3
    name = rows.first.locator("td").first.text_content()
    assert re.fullmatch(r"b[0-9a-f]+_\d+", name)
    rows.first.click()
    page.locator("#inspector", has_text=name).wait_for()
