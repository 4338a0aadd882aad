"""The questions that a recording answers, in Python.

memlab.Recording has them of a file, memlab.MemorySnapshot of what it recorded itself.  The
core has the figures, and other rooms the words: nothing here computes.  What most programs
do not ask is imported where it is asked.
"""

from __future__ import annotations

import os

from memlab._errors import Error
from memlab._export.table import Table
from memlab._report import modules as _modules
from memlab._report import oom as _oom
from memlab._report import peaks, report
from memlab._report import verdict as _verdict
from memlab._report.answer import Answer, listed
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas
    import polars
    import pyarrow

    from memlab import _core
    from memlab._answers import (
        Diff,
        Explanation,
        LineTable,
        MergedRanks,
        ModuleRow,
        Oom,
        Peak,
        Replay,
        Tune,
        Verdict,
    )
    from memlab._core import _Path
    from memlab._files.merged import AnyRecording


class Answers:
    """What can be asked of a recording.

    Sizes are in bytes and times in what their key says, _us or _ns, as ints; summary() and
    str() of what diff(), oom(), ranks(), replay(), explain() and tune() return are text for
    people.
    device is an index of the recording, a key of devices, except for diff(), replay(),
    explain() and tune(), where it is the number in its process, as in cuda:1, of all ranks.
    """

    def data(self) -> _core.Recording:
        """The recording of the core, immutable."""
        raise NotImplementedError

    @property
    def path(self) -> str | None:
        """The path or URI of the recording; None if it is of no file."""
        return None

    @property
    def devices(self) -> dict[int, str]:
        """The devices with events or memory: index and name, as {0: "cuda:0"}.  Raises the
        errors of data().
        """
        recording = self.data()
        return {i: recording.device_name(i) for i in peaks.devices(recording)}

    def summary(
        self,
        device: int | None = None,
        *,
        at: str = "peak",
        by: Iterable[str] = (),
    ) -> str:
        """The answer of peak() as text for people, sizes in binary units.

        device: an index; None for all that have events or memory.  at: the instant, as
        for at().  by: the table or tables to show and nothing else, of "line", "module",
        "category", "stack" and "size"; without any, the usual ones.  Raises ValueError for
        a table that there is not, and what at() raises.
        """
        return report.text(self.data(), device, at=at, by=by)

    def peak(self, device: int | None = None, *, at: str = "peak") -> Peak:
        """Live memory at the peak of allocated bytes, or at another instant, as for at().

        device: an index; None: the device with the most allocated bytes then.  Returns a
        dict, described in docs/REPORT.md: by line, module, category, stack and size.
        Raises IndexError for a device that the recording lacks, and what at() raises.
        """
        return peaks.peak(self.data(), device, at)  # type: ignore[return-value]

    def at(self, instant: str, device: int | None = None) -> Peak:
        """Live memory at an instant; the same dict as that of peak().

        instant: "peak", "start", "end", "step:12" for the peak within that step, "1.5s",
        "350ms" or "20us" from the first event, or "event:123".  device: as for peak().
        Raises ValueError for an invalid instant, TypeError for what is no str, memlab.Error
        for an instant and IndexError for a device that the recording lacks, and the errors
        of data().
        """
        return self.peak(device, at=instant)

    def lines(
        self, device: int | None = None, functions: Iterable[str] = ()
    ) -> list[LineTable]:
        """Memory while each line of some functions ran.

        device: an index; None: the device with the largest peak.  functions: a name or
        names, as for `memlab report -f`; without any, the three functions of your files
        whose own lines hold most at the peak. Returns one dict per function, described in
        docs/REPORT.md.  Raises memlab.Error for a name that the recording lacks, and
        the errors of peak().
        """
        return peaks.lines(self.data(), device, wording.names(functions))  # type: ignore[return-value]

    def modules(self, device: int | None = None, *, at: str = "peak") -> list[ModuleRow]:
        """Live memory by module in at most ten rows, repeated modules in one.

        device, at: as for peak().  The rows add up to all allocated bytes; none if the
        recording names no module.  Each module alone is in peak()["by_module"], their tree
        in peak()["module_tree"].  Raises what peak() raises.
        """
        return list(_modules.of_answer(self.peak(device, at=at)))

    def events(self, device: int | None = None) -> Table:
        """Every event of the allocator, as a table of columns.

        device: an index; None: all.  Raises IndexError for a device that the recording
        lacks, and the errors of data().
        """
        return self.table("events", device)

    def table(self, name: str = "allocations", device: int | None = None) -> Table:
        """A table of the recording: its columns, and its rows for other tools.

        name: "allocations", "events", "segments", "blocks", "steps", "notes", "stacks" or
        "frames", which docs/VIEWING.md describes.  device: an index; None: all.  Raises ValueError
        for another name, IndexError for a device that the recording lacks, and the errors
        of data().
        """
        return Table(self.data(), name, device)

    def to_arrow(
        self, table: str = "allocations", device: int | None = None
    ) -> pyarrow.Table:
        """A table() as pyarrow's.  Raises memlab.Error without pyarrow."""
        return self.table(table, device).to_arrow()

    def to_pandas(
        self, table: str = "allocations", device: int | None = None
    ) -> pandas.DataFrame:
        """A table() as pandas's.  Raises memlab.Error without pandas or pyarrow."""
        return self.table(table, device).to_pandas()

    def to_polars(
        self, table: str = "allocations", device: int | None = None
    ) -> polars.DataFrame:
        """A table() as polars's.  Raises memlab.Error without polars or pyarrow."""
        return self.table(table, device).to_polars()

    def oom(self, device: int | None = None) -> Oom | None:
        """Why a request for memory failed, the last one; None: none did.

        device: an index; None: the device of the last one of all.  Returns a dict,
        described in docs/REPORT.md.  Raises IndexError for a device that the recording
        lacks, and the errors of data().
        """
        recording = self.data()
        found = peaks.devices(recording) if device is None else [device]
        answers = [answer for i in found if (answer := recording.oom(i)) is not None]
        if not answers:
            return None
        last = max(answers, key=lambda answer: answer["time_us"])
        return Answer(  # type: ignore[return-value]
            last, lambda answer: listed(_oom.text(recording, answer["device"]))
        )

    def verdict(self, device: int | None = None) -> Verdict:
        """What happened, why, and what to change: the words of the first screen.

        device: an index; None: the device with the most allocated bytes at its peak.
        Returns a dict, described in docs/REPORT.md; paths in its words are relative to the
        current folder.  Changes are tried, each by a replay of the whole run, if the
        recording has up to 200,000 events; explain() tries them for a longer one.  Raises
        IndexError for a device that the recording lacks, memlab.Error if it has none, and
        the errors of data().
        """
        recording = self.data()
        if device is None:
            device = peaks.peak(recording)["device"]
        return _verdict.of_device(recording, device)

    def ranks(self) -> MergedRanks:
        """The ranks of the recording by peak, and why the highest is higher.

        Returns a dict, described in docs/REPORT.md.  Empty if the recording does not say
        of which processes it is.  Raises the errors of data().
        """
        from memlab._compare import merge

        return merge.ranks(self.data())

    def diff(
        self,
        other: AnyRecording | None = None,
        *,
        at: str | tuple[str, str] = "peak",
        ranks: tuple[int, int] | None = None,
        device: int | None = None,
        lines: int = 15,
        html: _Path | None = None,
    ) -> Diff:
        """How the memory of another run, the later one, differs: memlab.diff(self, other).
        """
        from memlab._compare import diff

        return diff.diff(
            self, other, at=at, ranks=ranks, device=device, lines=lines, html=html
        )

    def replay(
        self,
        conf: str | None = None,
        memory: int | str | None = None,
        *,
        memory_fraction: float | None = None,
        device: int | None = None,
        rank: int | None = None,
    ) -> Replay:
        """What the run would need under other allocator settings: memlab.replay(self)."""
        from memlab._lab import replay

        return replay.replay(
            self, conf, memory, memory_fraction=memory_fraction, device=device, rank=rank
        )

    def explain(
        self,
        memory: int | str | None = None,
        *,
        device: int | None = None,
        rank: int | None = None,
    ) -> Explanation:
        """Why the peak is what it is, and what to change: memlab.explain(self)."""
        from memlab._lab import explain

        return explain.explain(self, memory, device=device, rank=rank)

    def tune(
        self,
        memory: int | str | None = None,
        *,
        device: int | None = None,
        rank: int | None = None,
    ) -> Tune:
        """The allocator settings that reserve least: memlab.tune(self)."""
        from memlab._lab import tune

        return tune.tune(self, memory, device=device, rank=rank)

    def view(self, out: _Path | None = None) -> str:
        """Writes the page of the recording, and returns its path: memlab.view(self)."""
        from memlab._recording import view

        return view.view(self, out)

    def html(self) -> str:
        """The recording as one self-contained HTML page that needs no network.

        Raises the errors of data().
        """
        from memlab._recording import view

        return b"".join(view.page_of(self.data())).decode()

    def save(self, path: _Path) -> None:
        """Writes the recording to PATH as a pickle that torch's viewer reads too.

        The file appears whole or not at all, with the mode of the file it replaces, or
        by the umask. Raises OSError, and the errors of data().
        """
        self.data().write_pickle(os.fspath(path), True)

    def __repr__(self) -> str:
        from memlab._recording import picture

        name = f"memlab.{type(self).__name__}"
        of = "" if self.path is None else f" {self.path!r}"
        try:
            return f"<{name}{of}: {picture.line(self.data())}>"
        except Error as error:
            return f"<{name}{of}: {error}>"

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the first screen and a picture; None if nothing is
        recorded.
        """
        from memlab._recording import picture

        try:
            return picture.html(self.data())
        except Error:
            return None
