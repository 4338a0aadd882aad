"""A recording at a glance: in a line, and in a cell of a notebook.

The core draws the picture (csrc/core/show/draw/timeline_svg.h).
"""

from __future__ import annotations

from memlab._files import load
from memlab._report import first_screen, peaks, report
from memlab._report.html import html as _html
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._core import Recording


def line(recording: Recording) -> str:
    """RECORDING in a line: the highest peak, and how much else there is."""
    found = peaks.devices(recording)
    if not found:
        return "no memory was allocated"
    peaks_of = {i: recording.verdict(i)["peak"] for i in found}
    most = max(found, key=lambda i: peaks_of[i]["allocated_bytes"])
    said = (
        f"{wording.escape(recording.device_name(most))} peaks at "
        f"{wording.size(peaks_of[most]['allocated_bytes'])} allocated, "
        f"{wording.size(peaks_of[most]['reserved_bytes'])} reserved, "
        f"in {recording.counts(most)['events']:,} events"
    )
    if any(recording.oom(i) is not None for i in range(recording.device_count)):
        said += "; ran out of memory"
    others = sum(peak["allocated_bytes"] > 0 for peak in peaks_of.values()) - 1
    return said + (f"; {wording.plural(others, 'more device')}" if others > 0 else "")


def html(recording: Recording) -> str:
    """The first screen of RECORDING as HTML, with a picture of the device that it shows.
    """
    found = peaks.devices(recording)
    notes = [*report.file_notes(recording.file), *load.unread_notes(recording)]
    if not found:
        return _html([*notes, peaks.nothing(recording)], [])
    shown = first_screen.shown(recording, found)
    svg = recording.timeline_svg(shown).decode()
    return _html(notes, [first_screen.parts(recording, found, notes=notes)]) + "\n" + svg
