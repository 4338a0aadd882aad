"""`memlab run`'s output at the end: the first screen, on stderr."""

from __future__ import annotations

import os
import shlex
import sys

from memlab._errors import Error
from memlab._files import merged
from memlab._report import first_screen, peaks, report
from memlab._run import outside
from memlab._run import ranks as _ranks
from memlab._text import terminal, wording
from memlab._text.progress import Progress

# In the order of their use.
_FILES = (
    ("Report", "the full report"),
    ("Page", "the page"),
    ("Snapshot", ""),
    ("Events", ""),
)


class Telling:
    """Writes to the stderr that the program began with; nothing if quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._stderr = sys.stderr

    def say(self, text: str) -> None:
        """Writes TEXT in lines of the terminal's width."""
        if not self._quiet:
            terminal.show(text, self._stderr)

    def progress(self, what: str) -> Progress:
        """A line that says that WHAT is in progress, where that takes long."""
        return Progress(what, None if self._quiet else self._stderr)

    def result(self, result, outputs) -> bool:
        """Reports RESULT, from results.write_results().  Of several ranks, the first
        reports for all, and a rank that ran out of memory for itself if that ended it: then
        the launcher may end the first before it has reported.  Returns whether there is a
        recording.
        """
        recording, written = result
        if recording is None:
            return False
        labels = [label for label, _ in written]
        if outputs.events is not None:
            labels.append("Events")
        others = _ranks.others()
        if not others:
            self.recording(recording, outputs, files(outputs, labels))
        elif outputs.rank == "0":
            self._ranks(recording, outputs, labels, others)
        elif _ran_out(recording):
            self.recording(recording, outputs, files(outputs, labels))
        return True

    def _ranks(self, recording, outputs, labels, others):
        if self._quiet:
            return
        missing = _ranks.wait(outputs, others)
        there = [rank for rank in others if rank not in missing]
        # Of one that still runs the state so far.
        found = {rank: _recording_of(outputs, rank) for rank in others}
        notes = []
        for words, ranks in (
            ("not ended, told as it is so far", [r for r in missing if found[r]]),
            ("no recording", [r for r in missing if not found[r]]),
        ):
            if ranks:
                name = f"rank{'s' * (len(ranks) > 1)} {wording.numbers(ranks)}"
                notes.append(f"After {_ranks.SECONDS:.0f} s of waiting, {name}: {words}.")
        try:
            recording = merged.read_all(
                [path for path in found.values() if path], quiet=True
            )
        except (Error, OSError, ValueError) as error:
            notes.append(f"The ranks could not be read together: {error}.")
        self.recording(recording, outputs, files_of_ranks(outputs, labels, there), notes)

    def recording(self, recording, outputs, lines, missing=()) -> None:
        """Writes the first screen of RECORDING with LINES on its files, in OUTPUTS'
        folder; MISSING: sentences about missing data.
        """
        if self._quiet:
            return
        notes = [*report.file_notes(recording.file), *missing]

        def last(explain):
            return [*lines, *_next(recording, outputs, explain)]

        devices = peaks.devices(recording)
        if devices:
            parts = first_screen.parts(
                recording, devices, notes=notes, last=last, start=outputs.start
            )
            text = first_screen.text(notes, parts)
        else:
            lines = [*notes, peaks.nothing(recording), *_hint(recording), *last(False)]
            text = terminal.fit("\n".join(lines), first_screen.COLUMNS)
        self.say("\n" + text.rstrip("\n"))


def _ran_out(recording):
    """Whether an out of memory ended this process's program."""
    error = getattr(sys, "last_value", None)
    failed = any(recording.oom(i) is not None for i in peaks.devices(recording))
    return error is not None and (failed or outside.ran_out(error))


def _hint(recording):
    """What to do where a recording of GPUs has nothing."""
    if recording.source == "cuda":
        yield "For memory on the CPU: memlab run --device cpu"


def _recording_of(outputs, rank):
    """RANK's file with the most events; None if it left none."""
    names = (f"rank{rank}.mlab", f"rank{rank}.pickle")
    paths = [os.path.join(outputs.folder, name) for name in names]
    return next(filter(os.path.exists, paths), None)


def _names(outputs, labels):
    """The names of OUTPUTS' files of LABELS, with their meaning."""
    paths = outputs.by_label()
    return [
        os.path.basename(paths[label]) + (f" ({words})" if words else "")
        for label, words in _FILES
        if label in labels
    ]


def files(outputs, labels) -> list[str]:
    """The paths of the files of LABELS."""
    names = ", ".join(_names(outputs, labels))
    folder = wording.escape(outputs.shown(outputs.folder))
    return [f"Files in {folder}: {names}"] if names else []


def files_of_ranks(outputs, labels, ranks) -> list[str]:
    """Likewise of each of RANKS, whose files are named as those of OUTPUTS."""
    if list(ranks) == [int(outputs.rank)]:
        return files(outputs, labels)
    names = _names(outputs.of_rank("N"), labels)
    if 0 in ranks and "Report" in labels:
        names.insert(0, os.path.basename(outputs.of_rank("0").report_path()))
    folder = wording.escape(outputs.shown(outputs.folder))
    who = f"Files in {folder}, for N = {wording.numbers(ranks)}: "
    return [who + ", ".join(names)] if names else []


def _next(recording, outputs, explain):
    if _recording_of(outputs, outputs.rank) is None:
        # The disk was full, say: a report alone takes little room.
        path = outputs.report_path()
        if os.path.exists(path):
            yield f"Next: less {shlex.quote(outputs.shown(path))}"
        return
    folder = shlex.quote(outputs.shown(outputs.folder))
    yield f"Next: memlab {'explain' if explain else 'report --full'} {folder}"
    if len(recording.ranks()) > 1:
        yield f"      memlab merge {folder}  (compares the ranks)"
