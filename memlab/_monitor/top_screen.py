"""memlab top on a terminal: looks at files repeatedly, with keys.

Owns the keys, the layout, and the time of the next look; needs Textual, the extra
[tui]. top.py has the data.
"""

from __future__ import annotations

import asyncio
import time

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Input, Static

from memlab._errors import Error
from memlab._monitor import top
from memlab._text import wording

# Seconds between two looks, and the most share of the time spent on looks.
_INTERVAL = 1.0
_SHARE = 0.1
_ROWS_SHOWN = 500
_SORTS = ("now", "peak", "growth")


class Screen(App):
    """Shows FOLLOWED, the files of one job, until q.

    followed: the key d changes between their devices.
    """

    CSS = """
    #title, #notes, #figures, #spark, #state { height: auto; padding: 0 1; }
    #notes { color: $warning; }
    #spark { color: $accent; }
    #rows { height: 1fr; }
    #filter { display: none; }
    .-short #title, .-short #state { max-height: 1; }
    .-short #figures { max-height: 3; }
    .-short #rows { scrollbar-size-horizontal: 0; }
    .-short #notes, .-short #spark { height: 0; }
    """
    # Lines of the terminal: with fewer, the table has the remaining room.
    VERTICAL_BREAKPOINTS = [(0, "-short"), (16, "-tall")]
    TITLE = "memlab top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        Binding("l", "by('line')", "line"),
        Binding("m", "by('module')", "module"),
        Binding("c", "by('category')", "category"),
        Binding("s", "by('stack')", "stack"),
        Binding("n", "sort('now')", "now"),
        Binding("p", "sort('peak')", "peak"),
        Binding("g", "sort('growth')", "growth"),
        Binding("z", "zero", "from here"),
        Binding("space", "freeze", "freeze"),
        Binding("d", "device", "device"),
        Binding("slash", "filter", "filter"),
        Binding("escape", "unfilter", "all", show=False),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, followed: list[top.Followed]) -> None:
        super().__init__()
        self._followed = followed
        self._by = "line"
        self._sort = "now"
        self._wanted = ""
        self._frozen = False
        self._chosen = 0  # among all devices of all files
        self._seen: dict = {}  # by file, device, table and row: first bytes, most bytes
        self._wait = _INTERVAL
        self._failure = ""
        self._looking = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield Static(id="notes", markup=False)
        yield Static(id="figures", markup=False)
        yield Static(id="spark", markup=False)
        yield Input(id="filter", placeholder="part of a name; Enter keeps it, Esc all")
        yield DataTable(id="rows", cursor_type="row", zebra_stripes=True)
        yield Static(id="state", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#rows", DataTable).focus()
        self.run_worker(self._follow(), exclusive=True)

    # ---- Looking ----

    async def _follow(self):
        while True:
            await self.look()
            if all(one.over for one in self._followed) or self._failure:
                return
            await asyncio.sleep(self._wait)

    async def look(self) -> None:
        """One look at all files, and its picture."""
        async with self._looking:
            if not self._frozen:
                await self._look()

    async def _look(self):
        started = time.monotonic()
        try:
            for one in self._followed:
                while await asyncio.to_thread(one.read):
                    news = one.news
                    part = wording.share(news["read_bytes"], news["bytes"]).strip()
                    self._say(f"reading: {part} of {wording.size(news['bytes'])}")
                await asyncio.to_thread(one.look)
        except (Error, OSError, MemoryError) as error:
            self._failure = wording.escape(f"the last state; no more can be read: {error}")
        took = time.monotonic() - started
        self._wait = max(_INTERVAL, took / _SHARE)
        self._note()
        self.show()

    def _note(self):
        """Keeps the first and the most bytes of each row of each table."""
        for one in self._followed:
            for answer in one.answers:
                for by in top.TABLES:
                    seen = self._seen.setdefault((one.name, answer["device"], by), None)
                    self._seen[one.name, answer["device"], by] = _remember(
                        seen, top.rows(answer, by)
                    )

    # ---- Showing ----

    def _devices(self):
        return [(one, answer) for one in self._followed for answer in one.answers]

    def show(self) -> None:
        """Draws the last look."""
        devices = self._devices()
        if not devices:
            titles = [one.title() for one in self._followed if one.recording is not None]
            self._put("title", "\n".join(titles))
            self._say(self._failure or "no memory was allocated yet")
            return
        one, answer = devices[self._chosen % len(devices)]
        self._put("title", one.title())
        self._put("notes", "\n".join(one.notes()))
        self._put("figures", "\n".join(top.figures(answer)))
        drawn = top.spark(answer["history"], max(self.size.width - 2, 10))
        self._put("spark", drawn)
        self._fill(one, answer)
        self._say(self._failure or self._state_line(one, len(devices)))

    def _state_line(self, one, devices):
        said = [f"by {self._by}, the largest {self._sort} first"]
        if devices > 1:
            said.append(f"device {self._chosen % devices + 1} of {devices}")
        if self._wanted:
            said.append(f"rows with {wording.escape(self._wanted)!r}")
        if one.over:
            said.append("nothing more is to come")
        elif self._frozen:
            said.append("frozen")
        elif self._wait > _INTERVAL:
            said.append(f"a look is slow: the next in {self._wait:.0f} s")
        return "; ".join(said)

    def _fill(self, one, answer):
        table = self.query_one("#rows", DataTable)
        place = table.cursor_row
        table.clear(columns=True)
        table.add_columns("now", "share", "peak", "growth", self._by)
        whole = answer["peak"]["allocated_bytes"]
        for row, most, growth in self._sorted(one, answer)[:_ROWS_SHOWN]:
            sign = "+" if growth > 0 else ""
            cells = (
                wording.size(row.bytes),
                wording.share(row.bytes, whole),
                wording.size(most),
                f"{sign}{wording.size(growth)}" if growth else "",
            )
            table.add_row(*(Text(c, justify="right") for c in cells), Text(row.name))
        table.move_cursor(row=place)

    def _sorted(self, one, answer):
        first, most, names = self._seen[one.name, answer["device"], self._by]
        now = {row.key: row for row in top.rows(answer, self._by)}
        if self._sort != "now":
            # Rows that have vanished count for these.
            for key in first.keys() - now.keys():
                now[key] = top.Row(key, 0, names[key])
        found = [
            (row, most[key], row.bytes - first[key])
            for key, row in now.items()
            if self._wanted.lower() in row.name.lower()
        ]
        order = {"now": lambda r: r[0].bytes, "peak": lambda r: r[1], "growth": lambda r: r[2]}
        return sorted(found, key=lambda row: (-order[self._sort](row), row[0].name))

    def _put(self, name, text):
        shown = self.query_one(f"#{name}", Static)
        shown.display = bool(text)
        shown.update(Text(text))

    def _say(self, text):
        self._put("state", text)

    # ---- Keys ----

    def action_by(self, by: str) -> None:
        self._by = by
        self.show()

    def action_sort(self, sort: str) -> None:
        self._sort = sort
        self.show()

    def action_zero(self) -> None:
        """Growth and peak of rows count from the last look on."""
        self._seen.clear()
        self._note()
        self.show()

    def action_freeze(self) -> None:
        self._frozen = not self._frozen
        self.show()

    def action_device(self) -> None:
        self._chosen += 1
        self.show()

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def action_unfilter(self) -> None:
        self.query_one("#filter", Input).value = ""
        self._end_filter()

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = event.value
        self.show()

    def on_input_submitted(self) -> None:
        self._end_filter()

    def _end_filter(self):
        self.query_one("#filter", Input).display = False
        self.query_one("#rows", DataTable).focus()


def _remember(seen, rows):
    """By row the first bytes, the most bytes, and its name; a row that appears later
    began with 0.
    """
    if seen is None:
        return (
            {row.key: row.bytes for row in rows},
            {row.key: row.bytes for row in rows},
            {row.key: row.name for row in rows},
        )
    first, most, names = seen
    for row in rows:
        first.setdefault(row.key, 0)
        most[row.key] = max(most.get(row.key, 0), row.bytes)
        names[row.key] = row.name
    return seen
