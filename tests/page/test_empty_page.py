"""The page without a file: one is chosen or dropped, and read there by the core itself."""

import base64
import gzip
import pickle

import pytest
from viewer_pages import PATIENCE_MS, ROOT

from memlab._files import load
from memlab._page import page as _page

DATA = ROOT / "tests" / "data"


@pytest.fixture
def empty(chromium, tmp_path):
    """The empty page, opened from a file with the network off; it asks for nothing and
    reports no error."""
    path = tmp_path / "memlab.html"
    path.write_bytes(_page.assemble_empty())
    context = chromium.new_context(offline=True)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    requests, errors = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert requests == [path.as_uri()]
    assert errors == []


def told(page, state):
    """What the panel says once it is in STATE."""
    page.wait_for_selector(f"#drop[data-state={state}]")
    return page.text_content("#drop-status")


def drop(page, name, content):
    page.evaluate(
        """([name, text]) => {
             const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
             const transfer = new DataTransfer();
             transfer.items.add(new File([bytes], name));
             document.body.dispatchEvent(new DragEvent(
               "drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
           }""",
        [name, base64.b64encode(content).decode()],
    )


def shown_peaks(page):
    return page.evaluate(
        "() => memlabViewer.shown().model.devices.map((d) => d.peak.allocated)"
    )


def peaks(path):
    recording = load.read_recording(path)
    return [
        recording.peak(device)["peak"]["allocated_bytes"]
        for device in range(recording.device_count)
    ]


def verdict(path):
    [lines] = _page.verdicts_on(load.read_recording(path))
    assert lines
    return lines


def test_a_chosen_file_is_shown_and_another_one_dropped_after_it(empty):
    packed = DATA / "streams_expandable.pickle.gz"
    empty.set_input_files("#drop-file", packed)
    assert told(empty, "shown") == "Shown: streams_expandable.pickle.gz"
    assert empty.text_content("#verdict") == "".join(verdict(packed))
    assert shown_peaks(empty) == peaks(packed)
    assert "streams_expandable.pickle.gz" in empty.text_content("#title")
    other = DATA / "gpt2_oom.pickle.gz"
    drop(empty, "plain.pickle", gzip.decompress(other.read_bytes()))
    empty.locator("#drop-status", has_text="Shown: plain.pickle").wait_for()
    assert shown_peaks(empty) == peaks(other)
    assert empty.text_content("#verdict") == "".join(verdict(other))
    empty.wait_for_selector("html[data-ready]")


def test_another_file_is_not_shown_at_an_event_of_the_one_before(empty):
    empty.set_input_files("#drop-file", DATA / "gpt2_oom.pickle.gz")
    told(empty, "shown")
    empty.evaluate(
        """() => memlabViewer.go({ view: "events", theme: "dark", event: 7, x0: 2, x1: 90,
                                    search: "alloc", pinned: { chunk: 0, id: 3 } })"""
    )
    other = DATA / "streams_expandable.pickle.gz"
    drop(empty, "other.gz", other.read_bytes())
    empty.locator("#drop-status", has_text="Shown: other.gz").wait_for()
    state = empty.evaluate("() => memlabViewer.shown().state")
    assert (state["view"], state["theme"]) == ("events", "dark")
    peak = load.read_recording(other).peak(0)["peak"]["event"] - 1
    assert state["event"] == peak
    assert (state["x0"], state["search"], state["pinned"]) == (0, "", None)
    assert empty.input_value("#search") == ""


def test_a_file_without_devices_is_not_shown_as_the_one_before(empty):
    empty.set_input_files("#drop-file", DATA / "gpt2_oom.pickle.gz")
    told(empty, "shown")
    none = {"segments": [], "device_traces": []}
    drop(empty, "none.pickle", pickle.dumps(none))
    empty.locator("#drop-status", has_text="Shown: none.pickle").wait_for()
    assert not empty.is_visible("#page")
    assert "has no device" in empty.text_content("#warnings")


def test_a_damaged_file_says_why_and_leaves_what_was_shown(empty):
    drop(empty, "cut.gz", (DATA / "gpt2_oom.pickle.gz").read_bytes()[:5000])
    assert told(empty, "failed").startswith("cut.gz: the file is damaged or incomplete")
    drop(empty, "<b>.pickle", b"")
    empty.locator("#drop-status", has_text="<b>.pickle: the file is empty").wait_for()
    assert not empty.is_visible("#page")
    empty.set_input_files("#drop-file", DATA / "gpt2_oom.pickle.gz")
    told(empty, "shown")
    drop(empty, "code.pickle", b"\x80\x04cos\nsystem\n(S'x'\ntR.")
    assert "code.pickle: " in told(empty, "failed")
    assert empty.is_visible("#page")
    assert shown_peaks(empty) == peaks(DATA / "gpt2_oom.pickle.gz")


def test_the_page_is_for_keyboards_and_screen_readers_too(empty):
    assert empty.evaluate("document.activeElement.id") == "drop-file"
    assert empty.get_by_label("File", exact=True).count() == 1
    assert empty.get_by_role("region", name="Open a recording").count() == 1
    assert empty.get_attribute("#drop-status", "role") == "status"


def test_the_page_may_run_webassembly_and_reach_nothing(empty):
    policy = empty.get_attribute("meta[http-equiv]", "content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert rules["script-src"].endswith("'wasm-unsafe-eval'")
    refused = empty.evaluate(
        """() => fetch("https://example.com").then(() => "", (error) => error.name)"""
    )
    assert refused == "TypeError"
