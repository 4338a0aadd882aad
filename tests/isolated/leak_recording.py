"""memlab._core.Recording: taken, read from bytes, and turned into a dict."""

import os

import leaks

from memlab import _core

script = _core.Script()
script.emit("segment_alloc", 1 << 30, 1 << 21)
snapshot = _core.MemorySnapshot()
snapshot._begin(
    "script", max_entries=8, context="all", native=False, events=True, device=-1
)
for i in range(5):
    script.emit("alloc", (1 << 30) + 4096 * i, 1000 + i, metadata=f"text {i}")

path = "leak.pickle"
snapshot._freeze(31).write_pickle(path, False)
data = open(path, "rb").read()


def damaged():
    try:
        _core.Recording.from_bytes(data[:-40])
    except ValueError:
        return
    raise AssertionError("half a snapshot was read")


leaks.check(_core.Recording, lambda: snapshot._freeze(31), (1_000, 5_000))
# Names that a dict has and nobody else are interned and forgotten with it: at some number
# of them Python makes its table of names anew, larger, once.
for _ in range(2_000):
    snapshot._freeze(31).to_dict()
leaks.check(_core.Recording, lambda: snapshot._freeze(31).to_dict(), (1_000,))
leaks.check(_core.Recording, lambda: snapshot._freeze(31).lines(0), (1_000,))
leaks.check(_core.Recording, lambda: _core.Recording.from_bytes(data), (1_000,))
leaks.check(_core.Recording, damaged, (2_000,))
merged = _core.merge([(snapshot._freeze(31), "a", 0), (snapshot._freeze(31), "b", 1)])
leaks.check(_core.Recording, lambda: _core.merge([(merged, "both", -1)]), (1_000,))
leaks.check(_core.Recording, lambda: merged.difference(0, merged, 1), (1_000,))
leaks.check(_core.Recording, lambda: merged.ranks() + merged.notes(), (1_000,))
leaks.check(
    _core.Recording, lambda: snapshot._freeze(31).write_pickle(path, True), (300,)
)
recording, other = snapshot._freeze(31), snapshot._freeze(31)
forms = {
    "peak": lambda: recording.peak(0, 2),
    "instants": lambda: recording.find_event(0, time_us=0),
    "page": recording.page_data,
    "timeline": lambda: recording.timeline_page(0, "title") + recording.timeline_svg(0),
    "segments": lambda: recording.segments_page(0),
    "flames": lambda: recording.flame_svg("memory", 0) + recording.flame_folded("segments", 0),
    "two flames": lambda: (
        recording.flame_difference(other) + recording.flame_folded_difference(other)
    ),
    "stacks": lambda: recording.stacks_folded(None) + recording.stacks_speedscope(None),
    "texts": lambda: recording.segsum() + recording.trace_text(),
    "excerpts": lambda: [recording.excerpt(what) for what in ("unfreed", "segments")],
    "difference": lambda: recording.difference_page(0, other, 0, phases=True),
    "trace": lambda: recording.write_perfetto(path),
    "tables": lambda: [
        recording.columns(table)
        for table in ("events", "allocations", "segments", "blocks", "notes", "stacks",
                      "frames", "strings")
    ],
}  # fmt: skip


def refuses():
    for wrong in (
        lambda: recording.columns("none"),
        lambda: recording.find_event(0, step=7),
        lambda: recording.excerpt("none"),
        lambda: recording.peak(0, 1 << 40),
        lambda: recording.write_perfetto("nowhere/at/all"),
        lambda: _core.write_file(path, iter([b"a", "no bytes"])),
    ):
        try:
            wrong()
        except (IndexError, OSError, TypeError, ValueError):
            continue
        raise AssertionError("what makes no sense was answered")


for form in forms.values():
    leaks.check(_core.Recording, form, (300,))
leaks.check(_core.Recording, refuses, (300,))
assert os.listdir(".") == [path], "no temporary file stays"
snapshot._end()
