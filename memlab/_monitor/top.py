"""memlab top: the allocated memory of running jobs now, read from their .mlab files.

Owns which files belong to a job, and one look at a file as a dict and as text;
top_screen.py shows looks on a terminal.  The job is not affected: only its files are
read.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from typing import NamedTuple

from memlab import _core
from memlab._errors import Error, SnapshotError
from memlab._files import load
from memlab._report import peaks, report
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

# Events read at once, which takes some hundredths of a second; the screen responds in
# between.
SLICE = 200_000
_BLOCKS = "▁▂▃▄▅▆▇█"
TABLES = ("line", "module", "category", "stack")
_FRAMES_SHOWN = 4


# ---- Whose files ----


class Found(NamedTuple):
    """A file that process pid writes; open: the path to open, name: its name."""

    pid: int
    name: str
    open: str


def written_by(pid: int) -> Iterator[Found]:
    """The .mlab files that process PID writes.  Raises OSError if the process is
    missing or another user's.
    """
    folder = f"/proc/{pid}/fd"
    seen = set()
    for number in sorted(os.listdir(folder), key=int):
        path = os.path.join(folder, number)
        try:
            status = os.stat(path)
            key = (status.st_dev, status.st_ino)
            if not stat.S_ISREG(status.st_mode) or key in seen or not _writes(pid, number):
                continue
            if not load.is_mlab(path):
                continue
            name = os.readlink(path)
        except OSError:
            # Closed meanwhile.
            continue
        seen.add(key)
        # A removed file has no other name.
        yield Found(pid, name, name if _is(name, key) else path)


def _writes(pid, number):
    with open(f"/proc/{pid}/fdinfo/{number}") as file:
        flags = re.search(r"^flags:\s*([0-7]+)$", file.read(), re.MULTILINE)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _is(path, key):
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == key


def _processes() -> dict[int, int]:
    """The parent of each process of this user."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                with open(f"/proc/{name}/stat", "rb") as file:
                    # The name in brackets may contain anything.
                    parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
    return parents


def _with_children(pid, parents):
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _of_processes(pids):
    for pid in pids:
        try:
            yield from written_by(pid)
        except OSError:
            # It ended meanwhile, or access is denied.
            continue


def find(what: str | None) -> list[tuple[str, str]]:
    """The files of WHAT: a process with its children, a file or a folder; None: the
    only running job.  As (name, path to open).

    Raises memlab.Error if there is none, or more than one job.
    """
    if what is None:
        return _names(_only_job())
    if what.isdecimal():
        pid = int(what)
        if not os.path.exists(f"/proc/{pid}"):
            raise Error(f"there is no process {pid}; for a file of that name: ./{what}")
        try:
            list(written_by(pid))
        except PermissionError:
            raise Error(
                f"process {pid} is another user's: name its .mlab file instead"
            ) from None
        except OSError:
            raise Error(
                f"process {pid} has ended: name its .mlab file instead"
            ) from None
        found = list(_of_processes(_with_children(pid, _processes())))
        if not found:
            raise Error(
                f"process {pid} and its children write no .mlab file: start it with "
                "memlab run, or MemorySnapshot(file=...)"
            )
        return _names(found)
    if os.path.isdir(what):
        names = sorted(n for n in os.listdir(what) if n.endswith(".mlab"))
        if not names:
            raise Error(
                f"{what}: no file in it ends in .mlab; start the job with memlab run, "
                "or name another folder"
            )
        return [(path, path) for path in (os.path.join(what, n) for n in names)]
    return [(what, what)]


def _only_job():
    parents = _processes()
    jobs = {}
    for found in _of_processes(sorted(parents)):
        # The ranks of one launcher are one job.
        jobs.setdefault(parents[found.pid], []).append(found)
    if not jobs:
        raise Error(
            "no process of yours writes a .mlab file: start one with memlab run, or with "
            "MemorySnapshot(file=...), or name a file"
        )
    if len(jobs) > 1:
        rows = [f"\n  {f.pid}  {wording.escape(f.name)}" for job in jobs.values() for f in job]
        raise Error("several jobs run: memlab top PID, of one of" + "".join(rows))
    return next(iter(jobs.values()))


def _names(found):
    return [(f.name, f.open) for f in found]


# ---- A look ----


class Followed:
    """A file that is read on at each look.

    name: its name.  peaks: the answers of each device at its last event.
    """

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.recording: Any = None
        self.news: Any = None
        self.answers: list[dict] = []
        with self._named():
            self._live = _core.Follower(path)

    def read(self) -> bool:
        """Reads some more; returns whether there is still more."""
        with self._named():
            self.news = self._live.poll(SLICE)
        return self.news["more"]

    @contextlib.contextmanager
    def _named(self):
        """An error of the file names it: there may be several."""
        try:
            yield
        except SnapshotError as error:
            raise SnapshotError(f"{self.name}: {error}") from None

    def look(self) -> None:
        """Computes the figures of the part read so far."""
        self.recording = self._live.recording()
        self.answers = [self._answer(i) for i in peaks.devices(self.recording)]

    def close(self) -> None:
        self._live.close()

    def _answer(self, device):
        last = self.recording.counts(device)["events"] - 1
        return {
            **self.recording.peak(device, last),
            "name": self.recording.device_name(device),
            "history": self._live.history(device),
        }

    @property
    def state(self) -> str:
        """The state of the file and its process."""
        if self.news["cut"]:
            return "cut"
        if os.fstat(self._live.fileno()).st_nlink == 0:
            return "removed"
        return self.recording.file["state"]

    @property
    def over(self) -> bool:
        """Whether nothing more is to come."""
        return self.news["cut"] or self.recording.file["state"] != "recording"

    def answer(self) -> dict:
        """The look as a dict."""
        ranks = self.recording.ranks()
        return {
            "file": self.name,
            "state": self.state,
            "rank": ranks[0]["rank"] if ranks else None,
            **{key: self.news[key] for key in ("bytes", "read_bytes", "events")},
            "gone_events": self.news["gone_events"],
            "recording": self.recording.file,
            "devices": self.answers,
        }

    def title(self) -> str:
        """The job, in one line."""
        file = self.recording.file
        said = [f"process {file['pid']} on {file['host']}"]
        ranks = self.recording.ranks()
        if ranks and ranks[0]["rank"] is not None:
            said.append(f"rank {ranks[0]['rank']} of {ranks[0]['world_size']}")
        said.append(_STATES[self.state])
        return wording.escape(f"{self.name}: " + ", ".join(said))

    def notes(self) -> list[str]:
        """Sentences about what is missing from the figures."""
        said = [
            line
            for line in report.file_notes(self.recording.file)
            if not line.startswith(("Still being recorded", "The recording was not ended"))
        ]
        gone = self.news["gone_events"]
        if gone:
            said.append(
                f"Categories of memory from before the newest "
                f"{self.news['events'] - gone} events are as they were then."
            )
        return said


_STATES = {
    "recording": "running",
    "ended": "ended",
    "cut off": "killed or lost: the last state",
    "cut": "the file was cut by another process: the last state",
    "removed": "the file was removed: nothing more is stored there",
}


# ---- Tables ----


class Row(NamedTuple):
    """A row of a table; key identifies it, also in other looks."""

    key: tuple
    bytes: int
    name: str


def rows(answer: dict, by: str, start: str | None = None) -> list[Row]:
    """Allocated memory by BY, most bytes first; names are safe for a terminal."""
    found: dict[tuple, Row] = {}
    for key, count, name in _ROWS[by](answer, start):
        count += found[key].bytes if key in found else 0
        found[key] = Row(key, count, wording.escape(name))
    return sorted(found.values(), key=lambda row: -row.bytes)


def _lines(answer, start):
    for group in answer["by_line"]:
        key = [group[k] for k in ("file", "line", "until_line", "function", "reason")]
        yield (*key, group["backward"]), group["bytes"], wording.place(group, start)


def _modules(answer, start):
    for group in answer["by_module"]:
        name = group["module"] or f"({group['reason']})"
        yield (group["module"], group["reason"]), group["bytes"], name


def _categories(answer, start):
    for name, count in answer["by_category"].items():
        if count:
            yield (name,), count, name.replace("_", " ")


def _stacks(answer, start):
    for group in answer["by_stack"]:
        frames = group["frames"]
        key = tuple((f["filename"], f["line"], f["name"]) for f in frames)
        places = [
            f"{wording.shorten(f['filename'], start)}:{f['line']} {f['name']}"
            for f in frames[:_FRAMES_SHOWN]
        ]
        more = [f"{len(frames) - len(places)} more"] if len(frames) > len(places) else []
        name = " < ".join(places + more) or f"({group['reason']})"
        yield (*key, group["reason"]), group["bytes"], name


_ROWS = {"line": _lines, "module": _modules, "category": _categories, "stack": _stacks}


# ---- Text ----


def spark(history: dict, width: int) -> str:
    """The allocated bytes over time, in at most WIDTH characters; "" before any event."""
    values = history["allocated_bytes"]
    if not values:
        return ""
    width = min(width, len(values))
    edges = [len(values) * i // width for i in range(width + 1)]
    most = max(values) or 1
    tops = [max(values[a:b]) for a, b in itertools.pairwise(edges)]
    return "".join(_BLOCKS[top * (len(_BLOCKS) - 1) // most] for top in tops)


def figures(answer: dict) -> list[str]:
    """A device's totals now and at their peaks, its step and phase."""
    now, most = answer["peak"], answer["whole_peak"]
    rows = [("", "now", "peak", "")]
    for name in ("allocated", "active", "reserved"):
        key = f"{name}_bytes"
        rows.append(
            (name, wording.size(now[key]), wording.size(most[key]), f"({now[key]} bytes)")
        )
    step, phase = answer["moment"]["step"], answer["moment"]["phase"]
    said = [f"step {step}"] if step is not None else []
    said += [f"phase {wording.escape(phase)}"] if phase is not None else []
    return [wording.escape(answer["name"]), *wording.aligned(rows), *["  " + s for s in said]]


def _used(followed):
    """The answers of the devices that have or had memory; of none, the first."""
    answers = followed.answers
    used = [answer for answer in answers if answer["whole_peak"]["reserved_bytes"]]
    return used or answers[:1]


def ranks(followed: Sequence[Followed]) -> list[str]:
    """A table of FOLLOWED, several files: a row for each device in use."""
    table = [("rank", "device", "now", "peak", "reserved", "step", "")]
    for one in followed:
        known = one.recording.ranks()
        rank = known[0]["rank"] if known else None
        name = os.path.basename(one.name) if rank is None else str(rank)
        for answer in _used(one):
            step = answer["moment"]["step"]
            table.append(
                (
                    wording.escape(name),
                    wording.escape(answer["name"]),
                    wording.size(answer["peak"]["allocated_bytes"]),
                    wording.size(answer["whole_peak"]["allocated_bytes"]),
                    wording.size(answer["whole_peak"]["reserved_bytes"]),
                    "-" if step is None else str(step),
                    _STATES[one.state].partition(":")[0],
                )
            )
    return wording.aligned(table)


def highest(followed: Sequence[Followed]) -> Followed:
    """Of FOLLOWED, the file whose device has most allocated now."""
    return max(
        followed,
        key=lambda one: max((a["peak"]["allocated_bytes"] for a in one.answers), default=0),
    )


def text(followed: Followed, by: tuple[str, ...], lines: int, blocks: bool) -> str:
    """One look as text; without BLOCKS in ASCII."""
    out = [followed.title(), *followed.notes()]
    used = _used(followed)
    for answer in used:
        out += ["", *figures(answer)]
        drawn = spark(answer["history"], 60) if blocks else ""
        if drawn:
            history = answer["history"]
            span = history["column_us"] * len(history["allocated_bytes"])
            out.append(f"  {drawn} {wording.duration(int(span))}")
        whole = answer["peak"]["allocated_bytes"]
        for table in by:
            shown = rows(answer, table)
            out += ["", f"By {table}"]
            out += wording.aligned(
                [
                    (wording.size(row.bytes), wording.share(row.bytes, whole), row.name)
                    for row in shown[:lines]
                ]
                or [("nothing is allocated",)]
            )
            rest = shown[lines:]
            if rest:
                left = wording.size(sum(row.bytes for row in rest))
                out.append(f"  ... and {len(rest)} more with {left}")
    if len(followed.answers) > len(used):
        out += ["", f"Without memory: {wording.plural(len(followed.answers) - len(used), 'device')}"]
    return "\n".join(out)


def draws(stream) -> bool:
    """Whether STREAM can show block characters."""
    try:
        _BLOCKS.encode(stream.encoding)
    except (AttributeError, LookupError, TypeError, UnicodeEncodeError):
        return False
    return True
