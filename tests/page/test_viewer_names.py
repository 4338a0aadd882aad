"""Hostile names in the viewer's page: none changes an element of it."""

import json
import random
import re

from viewer_pages import MIB, Toy, Tree, dumped, frame, page_of
from viewer_state import VIEWS, go

from memlab import _core
from memlab._page import page as _page

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


OUTLINE = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const fixed = (name) => name !== "aria-activedescendant";
  const text = (e) => [
    e.tagName, ...e.getAttributeNames().filter(fixed).sort()].join(" ");
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

    Rows of the list of events count once: how many are in sight is the layout's, and so
    is whether the chosen one is, which aria-activedescendant tells.
    """
    return page.evaluate(OUTLINE)


def named_everywhere(names, title):
    """A recording's page with NAMES in every field: through the core as functions and
    files, and in place of all that is text in what the core wrote."""
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
    own = [{"device": head["devices"][0]["index"], "number": 0}]
    head["ranks"] = [{"rank": 0, "host": names[3], "file": names[4], "devices": own}]
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
