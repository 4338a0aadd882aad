"""A small chart under a cell that runs: the allocated memory of each GPU so far.

A thread of its own draws it anew, a few times a second at first and more seldom later, until
the cell ends.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

from IPython.display import HTML, display, update_display

from memlab._text import wording

# Seconds to the first chart, and between charts.
FIRST, EVERY = 1.0, 0.5
# Most points of a line; with more, every other one is left out.
_POINTS = 240
_WIDTH, _HEIGHT = 480, 60

_STYLE = (
    "font: 12px system-ui, sans-serif; display: grid; grid-template-columns: max-content "
    "max-content; column-gap: 1em; align-items: center"
)


class Chart:
    """Samples and draws until end().

    read: a function without arguments that gives the bytes of each device that has any, by
    its name, and is called on the chart's thread.
    """

    def __init__(self, read, first: float = FIRST, every: float = EVERY) -> None:
        self._read = read
        self._waits = first, every
        self._lines: dict[str, list[tuple[float, int]]] = {}
        self._began = time.monotonic()
        self._id: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self):
        wait, every = self._waits
        try:
            while not self._ended.wait(wait):
                # As far apart as the points that are left.
                every *= 2 if self._sample() else 1
                self._show(HTML(self.html()))
                wait = every
        except Exception:
            # The cell is what matters; without a chart it runs on.
            pass

    def _sample(self):
        """Adds a point to each line; returns whether points were left out."""
        now, full = time.monotonic() - self._began, False
        for name, count in self._read().items():
            line = self._lines.setdefault(name, [])
            line.append((now, count))
            if len(line) > _POINTS:
                del line[1::2]
                full = True
        return full

    def _show(self, shown):
        if self._id is None:
            self._id = uuid.uuid4().hex
            display(shown, display_id=self._id)
        else:
            update_display(shown, display_id=self._id)

    def html(self) -> str:
        """The chart as HTML: a line of each device over its name and bytes."""
        rows = "".join(self._rows())
        return f'<div style="{_STYLE}">{rows}</div>'

    def _rows(self) -> Iterator[str]:
        for name, line in sorted(self._lines.items()):
            most = max(count for _, count in line) or 1
            # From its first sample: before that there is nothing to show.
            begin = line[0][0]
            span = line[-1][0] - begin or 1.0
            points = " ".join(
                f"{_WIDTH * (at - begin) / span:.1f},{_HEIGHT - (_HEIGHT - 2) * count / most:.1f}"
                for at, count in line
            )
            yield (
                f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
                f'aria-label="{name}: allocated memory over time">'
                f'<polyline points="{points}" fill="none" stroke="currentColor"/></svg>'
                f"<span>{name}: {wording.size(line[-1][1])} allocated,<br>"
                f"at most {wording.size(most)}</span>"
            )

    def end(self) -> None:
        """Takes the chart away."""
        self._ended.set()
        self._thread.join()
        if self._id is not None:
            self._show(HTML(""))
