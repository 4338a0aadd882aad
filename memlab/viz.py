"""The functions of torch.cuda._memory_viz, without its downloads and its faults.

    import memlab
    from memlab import viz

    snapshot = memlab.snapshot()            # or torch.cuda.memory._snapshot()
    print(viz.segsum(snapshot))
    html = viz.trace_plot(snapshot)

Arguments and the layout of texts are torch's.  Nothing is fetched, run or unpickled, and
no snapshot is changed.  `python -m memlab.viz --help` does the same with files.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memlab import _core
from memlab._errors import Error, SnapshotError
from memlab._page import page as _page
from memlab._record import history

if TYPE_CHECKING:
    from typing import TypeAlias

    import torch

    from memlab._core import _Path

    _Snapshot: TypeAlias = dict[str, Any] | list[dict[str, Any]]
    _Device: TypeAlias = int | str | torch.device | None

__all__ = [
    "compare",
    "memory",
    "profile_plot",
    "save_memory_usage",
    "save_segment_usage",
    "segment_plot",
    "segments",
    "segsum",
    "trace",
    "trace_plot",
]

# torch's names of its pictures, by what the page shows first.
_TIMELINE = "Active Memory Timeline"
_RESERVED = "Active Cached Memory Timeline"
_STATE = "Allocator State History"


def trace_plot(
    data: _Snapshot,
    device: _Device = None,
    plot_segments: bool = False,
    filter_freed: bool = False,
) -> str:
    """The memory of a snapshot over time, as the text of an HTML page.

    data: the result of memlab.snapshot() or torch.cuda.memory._snapshot(), or the list
    of its segments.  device: an int, "cuda:1" or a torch.device whose memory the page
    shows first; None: the first with events.  plot_segments: the driver's memory, from
    cudaMalloc to cudaFree or from map to unmap, instead of allocations.  filter_freed:
    without the allocations whose free completed while recording.

    torch's page loads its script from a server.  Its filter_freed changes the caller's
    snapshot, leaves out memory whose free is not completed, and prints.  This function
    does none of that.

    Raises ValueError for a device that the snapshot lacks, memlab.SnapshotError for
    data that are no snapshot.
    """
    return _trace_page(_recording(data), device, plot_segments, filter_freed)


def segment_plot(data: _Snapshot, device: _Device = None) -> str:
    """The segments of a snapshot and their blocks after any event, as the text of an
    HTML page.

    Arguments and errors are those of trace_plot().
    """
    return _state_page(_recording(data), device)


def segments(
    snapshot: _Snapshot, format_flamegraph: Callable[[str], str] | None = None
) -> str:
    """The memory at a snapshot's end by stream, segment, state and stack: a flame
    graph, as the text of an SVG file.

    format_flamegraph: called with the folded lines ("stream_0;seg_1024;inactive;<gaps>
    512") instead of drawing them; its result is the answer.  torch's own fetches a Perl
    script and runs it.

    Raises memlab.SnapshotError for data that are no snapshot.
    """
    return _flame(_recording(snapshot), "segments", format_flamegraph)


def memory(
    snapshot: _Snapshot, format_flamegraph: Callable[[str], str] | None = None
) -> str:
    """As segments(), with the segments of a stream as one."""
    return _flame(_recording(snapshot), "memory", format_flamegraph)


def profile_plot(profile: torch.profiler.profile, device: _Device = None) -> str:
    """The memory over time of a profile, as the text of an HTML page.

    profile: a torch.profiler.profile with profile_memory, record_shapes and with_stack,
    which torch makes a snapshot of.  device: as of trace_plot().  Raises ValueError for a
    profile without these, and the errors of trace_plot().
    """
    from torch.cuda import _memory_viz

    return trace_plot(_memory_viz._profile_to_snapshot(profile), device)


def save_segment_usage(
    filename: _Path = "output.svg", snapshot: _Snapshot | None = None
) -> None:
    """Writes segments() of SNAPSHOT, or of memlab.snapshot(), as
    torch.cuda.memory._save_segment_usage().  Raises OSError, and the errors of both."""
    _save(filename, snapshot, segments)


def save_memory_usage(
    filename: _Path = "output.svg", snapshot: _Snapshot | None = None
) -> None:
    """As save_segment_usage(), of memory()."""
    _save(filename, snapshot, memory)


# torch's own names.
_save_segment_usage = save_segment_usage
_save_memory_usage = save_memory_usage


def _save(filename, snapshot, draw):
    taken = history.snapshot() if snapshot is None else snapshot
    _core.write_file(os.fspath(filename), draw(taken).encode())


def compare(
    before: _Snapshot,
    after: _Snapshot,
    format_flamegraph: Callable[[str], str] | None = None,
) -> str:
    """Memory gained and lost between two snapshots, by stream, state and stack: a flame
    graph coloured by growth, as the text of an SVG file.

    before, after: whole snapshots, or lists of segments, the only form that torch's
    takes. format_flamegraph: called with torch's folded lines instead of drawing.  They
    have the segments of one side only, and nothing of memory inside those that stayed.

    Raises memlab.SnapshotError for data that are no snapshot.
    """
    first, second = _recording(before), _recording(after)
    if format_flamegraph is None:
        return first.flame_difference(second).decode()
    return format_flamegraph(
        first.flame_folded_difference(second).decode(errors="replace")
    )


def segsum(data: _Snapshot) -> str:
    """How full the segments of a snapshot are, a line for each of 20 MiB or more.

    A page of 20 MiB is a letter if one block fills its used part, a digit or `*` if
    several do. torch adds up floating-point shares, so that a full page may show as
    `9`.  It also fails if blocks do not cover their segment, which here is free memory.
    Blocks of other devices than the first have `device_1`.

    Raises memlab.SnapshotError for data that are no snapshot.
    """
    return _recording(data).segsum()


def trace(data: _Snapshot) -> str:
    """The events of a snapshot as text that reads like a program.

    `a = seg_0[512:1.0KiB]` is an allocation at byte 512 of a segment from before the
    first event, `b = cudaMalloc(1024, 2.0MiB)` a new segment, and `del a # 1.0KiB` a
    free.  `TOTAL MEM` is the memory that the events allocated and did not free.

    torch's version has faults: the total is off by the number of the last event; names
    are never reused; an address is looked up in freed segments, in those of other
    devices, and only in the part of a segment that is allocated at its end; mapped and
    unmapped pages show as dicts; the next device begins on the line of the total.

    Raises memlab.SnapshotError for data that are no snapshot.
    """
    return _recording(data).trace_text()


def _recording(data):
    """The recording of the caller's own DATA: written as a file, then read like any
    other.
    """
    if not isinstance(data, (dict, list)):
        raise TypeError(
            f"expected the dict of a snapshot or the list of its segments, not "
            f"{type(data).__name__}; memlab.load() reads a file"
        )
    try:
        return _core.Recording.from_bytes(pickle.dumps(data, 4))
    except (pickle.PicklingError, AttributeError, RecursionError) as error:
        raise SnapshotError(f"not a snapshot: {error}") from None


def _flame(recording, what, draw):
    if draw is None:
        return recording.flame_svg(what).decode()
    return draw(recording.flame_folded(what).decode(errors="replace"))


def _index(recording, device):
    """The index of DEVICE; None: the first with events."""
    count = recording.device_count
    if device is None:
        busy = (d for d in range(count) if recording.counts(d)["events"] > 0)
        return next(busy, 0)
    index = getattr(device, "index", device)
    if isinstance(device, str):
        match = re.fullmatch(r"(?:[a-z]+(?::|$)|)(\d{0,9})", device, re.ASCII)
        index = -1 if match is None or not device else int(match[1] or 0)
    if index is None:
        index = 0
    if not 0 <= index < count:
        raise ValueError(f"the snapshot has devices 0 to {count - 1}, no {device}")
    return index


def _trace_page(recording, device, plot_segments, filter_freed):
    notes = []
    # Leaving out events must not change the chosen device.
    index = _index(recording, device)
    if filter_freed:
        recording = recording.excerpt("unfreed")
        notes.append(
            "Allocations that were freed while recording are left out: others now seem to "
            "lie in the middle of free memory, and count as events in conflict with it; "
            "the totals are right all the same."
        )
    if plot_segments:
        recording = recording.excerpt("segments")
        notes.append("Each block is a segment, or pages mapped, that the driver gave.")
    words = _RESERVED if plot_segments else _TIMELINE
    return _page_of(recording, words, notes, index, "timeline")


def _state_page(recording, device):
    return _page_of(recording, _STATE, (), _index(recording, device), "segments")


def _page_of(recording, words, notes, index, view):
    state = {"view": view, "device": index}
    pieces = _page.of(recording, title=words, notes=notes, state=state)
    return b"".join(pieces).decode()


# ---- The command line ----


def _parser():
    from memlab._text.arguments import Parser

    parser = Parser(
        prog="python -m memlab.viz",
        description="Shows what a memory snapshot holds, as torch.cuda._memory_viz does.",
    )
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    snapshot = "a snapshot pickle, gzip too, or a .mlab file; - is stdin"

    def add(name, text, function, inputs=("input",), output=None):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(function=function)
        for name in inputs:
            command.add_argument(name, help=snapshot)
        if output is not None:
            command.add_argument(
                "-o",
                "--output",
                default=output,
                metavar="FILE",
                help="file to write (default: %(default)s)",
            )
        return command

    add("stats", "print how full the segments are", _print_stats)
    add("trace", "print the events as text that reads like a program", _print_trace)
    svg = "output.svg"
    add(
        "segments", "draw a flame graph of each segment", _write_segments, output=svg
    )
    add("memory", "draw a flame graph by stack", _write_memory, output=svg)
    add(
        "compare",
        "draw what came and what went between two snapshots",
        _write_compare,
        inputs=("before", "after"),
        output=svg,
    )
    page = "output.html"
    plot = add("trace_plot", "write the page of memory over time", _write_trace, output=page)
    state = add(
        "segment_plot",
        "write the page of segments and blocks at each event",
        _write_state,
        output=page,
    )
    for command in (plot, state):
        command.add_argument(
            "-d",
            "--device",
            type=int,
            metavar="N",
            help="device that the page shows first (default: the first with events)",
        )
    plot.add_argument(
        "-s",
        "--segments",
        action="store_true",
        help="memory that the driver gave, in place of allocations",
    )
    plot.add_argument(
        "-f",
        "--filter_freed",
        action="store_true",
        help="without allocations that were freed while recording",
    )
    return parser


def _read(name):
    from memlab._files import load

    return load.read_stdin() if name == "-" else load.read_recording(name)


def _write(options, text):
    _core.write_file(options.output, text.encode())


def _say(text):
    from memlab._text import terminal

    terminal.answer(text)


def _print_stats(options):
    _say(_read(options.input).segsum())


def _print_trace(options):
    _say(_read(options.input).trace_text())


def _write_segments(options):
    _write(options, _flame(_read(options.input), "segments", None))


def _write_memory(options):
    _write(options, _flame(_read(options.input), "memory", None))


def _write_compare(options):
    if options.before == options.after == "-":
        raise Error("only one of the two snapshots can come from stdin")
    before = _read(options.before)
    _write(options, before.flame_difference(_read(options.after)).decode())


def _write_trace(options):
    page = _trace_page(
        _read(options.input), options.device, options.segments, options.filter_freed
    )
    _write(options, page)


def _write_state(options):
    _write(options, _state_page(_read(options.input), options.device))


def main(argv: list[str] | None = None) -> int:
    """Runs one action; returns the exit status: 0: success, 1: failure, 2: wrong usage.
    """
    from memlab import _guard

    def command():
        options = _parser().parse_args(argv)
        options.function(options)
        return 0

    return _guard.guarded(command)


if __name__ == "__main__":
    sys.exit(main())
