"""A survey as a page: the peaks of all ranks as one picture, and the words below it.

Owns the picture, and where a rank's own page is.  The page needs no other file and no script.
"""

from __future__ import annotations

import os
from html import escape

from memlab._compare import survey
from memlab._files import download, names
from memlab._text import plain_page, wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["beside", "page"]

_WIDTH, _HEIGHT = 1200, 240
# Okabe and Ito's colours, which colour-blind people tell apart; further kinds share the last.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")

_STYLE = """\
svg { background: color-mix(in srgb, CanvasText 5%, Canvas); }
svg a:focus rect, svg a:hover rect { stroke: CanvasText; stroke-width: 1; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.1em 0.8em; }
th:last-child, td:last-child { text-align: left; }
"""


def beside(path: str) -> Callable[[Any], str]:
    """A function that gives the address of a rank's page from the page at PATH; "" if neither
    `memlab run` nor `memlab view` has written one beside the rank's file.
    """
    folder = os.path.dirname(os.path.abspath(path))

    def page_of(rank):
        file = rank["file"]
        if download.is_uri(file):
            return ""
        there = names.without_ending(file) + ".html"
        return os.path.relpath(there, folder) if os.path.exists(there) else ""

    return page_of


def _groups(answer):
    """(name, colour index, ranks) of each group of ranks, as the words have them."""
    for i, kind in enumerate(answer["kinds"]):
        yield f"alike: {survey.ranges(kind['ranks'])}", min(i, len(_COLOURS) - 2), kind["ranks"]
    for item in answer["unlike"]:
        yield f"unlike the others: {survey.ranges(item['ranks'])}", len(_COLOURS) - 1, item["ranks"]


def _said(rank):
    return (
        f"rank {rank['rank']}: peak {wording.size(rank['peak_allocated_bytes'])}, reserved "
        f"{wording.size(rank['peak_reserved_bytes'])}"
        + (f", on {rank['host']}" if rank["host"] else "")
        + (", ran out of memory" if rank["ooms"] else "")
    )


def _picture(answer, colours, page_of):
    ranks = answer["ranks"]
    top = max(rank["peak_reserved_bytes"] for rank in ranks) or 1
    wide = _WIDTH / len(ranks)
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="The peak of each '
        'rank">\n'
    )
    for i, rank in enumerate(ranks):
        title = f"<title>{escape(_said(rank))}</title>"
        bars = ""
        for key, opacity in (("peak_reserved_bytes", 0.3), ("peak_allocated_bytes", 1)):
            tall = rank[key] / top * _HEIGHT
            bars += (
                f'<rect x="{i * wide:.2f}" y="{_HEIGHT - tall:.1f}" '
                f'width="{max(wide * 0.9, 0.3):.2f}" height="{tall:.1f}" '
                f'fill="{_COLOURS[colours[rank["rank"]]]}" fill-opacity="{opacity}"/>'
            )
        there = page_of(rank)
        if there:
            yield f'<a href="{escape(there)}">{title}{bars}</a>\n'
        else:
            yield f"<g>{title}{bars}</g>\n"
    yield "</svg>\n"


def _rows(answer, page_of):
    yield "<details><summary>All ranks</summary><table>\n"
    yield "<tr><th>rank<th>peak<th>reserved<th>step<th>page</tr>\n"
    for rank in answer["ranks"]:
        there = page_of(rank)
        file = rank["file"]
        view = f"memlab view --rank {rank['rank']} {os.path.dirname(file) or '.'}"
        link = f'<a href="{escape(there)}">{escape(there)}</a>' if there else escape(view)
        step = "-" if rank["peak_step"] is None else rank["peak_step"]
        yield (
            f"<tr><td>{rank['rank']}<td>{wording.size(rank['peak_allocated_bytes'])}"
            f"<td>{wording.size(rank['peak_reserved_bytes'])}<td>{step}<td>{link}</tr>\n"
        )
    yield "</table></details>\n"


def page(answer: Any, page_of: Callable[[Any], str]) -> Iterator[bytes]:
    """The page of ANSWER, of survey(), piece by piece.  A bar leads to PAGE_OF(rank), the
    address of the rank's own page, "" for none.
    """
    yield plain_page.head(f"Memory of {len(answer['ranks'])} ranks", _STYLE).encode()
    if answer["ranks"]:
        groups = list(_groups(answer))
        colours = {rank: colour for _, colour, ranks in groups for rank in ranks}
        yield "".join(_picture(answer, colours, page_of)).encode()
        key = [
            f'<span style="background: {_COLOURS[colour]}"></span>{escape(name)}'
            for name, colour, _ in groups[:12]
        ]
        yield f'<p class="key">{"".join(key)}</p>\n'.encode()
    yield f"<pre>{escape(survey.text(answer))}</pre>\n".encode()
    if answer["ranks"]:
        yield "".join(_rows(answer, page_of)).encode()
    yield b"</body>\n</html>\n"
