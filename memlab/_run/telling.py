"""What `memlab run` says at the end: the first screen, on stderr."""

from __future__ import annotations

import os
import shlex
import sys

from memlab import _core
from memlab._compare import merge
from memlab._errors import Error
from memlab._report import first_screen, peaks, report
from memlab._run import ranks as _ranks
from memlab._text import terminal, wording

# In the order in which people look into them.
_FILES = (
    ("Report", "the full report"),
    ("Page", "the page"),
    ("Snapshot", ""),
    ("Events", ""),
)


class Telling:
    """Says it on the stderr that the program began with; nothing where quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._stderr = sys.stderr

    def say(self, text: str) -> None:
        """TEXT in lines that the terminal has room for."""
        if not self._quiet:
            terminal.show(text, self._stderr)

    def result(self, result, outputs) -> bool:
        """What RESULT, of results.write_results(), says; of several ranks the first says it of
        all, and one that ran out of memory of itself. Whether there is a recording."""
        recording, written = result
        if recording is None:
            return False
        paths = dict(written)
        if outputs.events is not None:
            paths["Events"] = outputs.events
        others = _ranks.others()
        if not others:
            self.recording(recording, outputs, paths)
        elif outputs.rank == "0":
            self._ranks(recording, outputs, paths, others)
        elif any(recording.oom(i) is not None for i in peaks.devices(recording)):
            self.recording(recording, outputs, paths)
        return True

    def _ranks(self, recording, outputs, paths, others):
        if self._quiet:
            return
        missing = _ranks.wait(outputs, others)
        found = [_recording_of(outputs, r) for r in others if r not in missing]
        notes = []
        if missing:
            said = ", ".join(map(str, missing))
            notes = [f"No recording yet of {wording.plural(len(missing), 'rank')}: {said}."]
        try:
            recording = _core.merge(merge._each([path for path in found if path]))
        except (Error, OSError, ValueError) as error:
            notes.append(f"The ranks could not be read together: {error}.")
        self.recording(recording, outputs, paths, notes)

    def recording(self, recording, outputs, paths, missing=()) -> None:
        """The first screen of RECORDING, of which PATHS, by label, lie where OUTPUTS says;
        MISSING are sentences about what is not in it."""
        if self._quiet:
            return
        notes = [*report.file_notes(recording.file), *missing]
        last = [*files(outputs, paths), *_next(outputs, paths)]
        devices = peaks.devices(recording)
        if devices:
            parts = first_screen.parts(
                recording, devices, notes=notes, last=last, start=outputs.start
            )
            text = first_screen.text(notes, parts)
        else:
            text = "\n".join([*notes, report.NOTHING, *last])
        self.say("\n" + text.rstrip("\n"))


def _recording_of(outputs, rank):
    """The file of RANK with most events; None where it has left none."""
    names = (f"rank{rank}.mlab", f"rank{rank}.pickle")
    paths = [os.path.join(outputs.folder, name) for name in names]
    return next(filter(os.path.exists, paths), None)


def files(outputs, paths) -> list[str]:
    """Where PATHS, by label, lie."""
    named = [(paths[label], words) for label, words in _FILES if label in paths]
    if not named:
        return []
    folder = outputs.shown(outputs.folder)
    names = [
        os.path.basename(path) + (f" ({words})" if words else "") for path, words in named
    ]
    return [f"Files in {wording.escape(folder)}: {', '.join(names)}"]


def _next(outputs, paths):
    folder = shlex.quote(outputs.shown(outputs.folder))
    if "Events" in paths or "Snapshot" in paths:
        yield f"Next: memlab report --full {folder}"
