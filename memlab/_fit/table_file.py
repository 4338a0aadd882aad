"""The table of a sweep as a file: `memlab fit --out`, a page with a picture, or Parquet.

Owns the picture and the columns.  The page needs no other file and no script.
"""

from __future__ import annotations

from html import escape

from memlab._errors import Error
from memlab._export import export
from memlab._export.recording_tables import package
from memlab._fit import text
from memlab._text import plain_page, wording

_WIDTH, _BAR, _LINE, _LEFT = 1200, 18, 26, 420
# Okabe and Ito's blue and green, which colour-blind people tell apart.
_BLUE, _GREEN = "#0072b2", "#009e73"

_STYLE = """\
svg text { fill: CanvasText; font-size: 13px; }
.gpu { fill: CanvasText; fill-opacity: 0.12; }
"""


def check(path):
    """Raises ValueError if no file of the name PATH is written."""
    if not path.lower().endswith((".html", ".parquet")):
        raise ValueError(f"{path}: the table is written to a name that ends in .html or .parquet")


def write(answer, path):
    """Writes ANSWER of memlab.sweep as the file at PATH, by its ending.  Raises OSError, or
    memlab.Error without pyarrow.
    """
    if path.lower().endswith(".html"):
        export.write_by_name(path, "".join(page(answer)).encode())
        return
    pa = package("pyarrow", f"{path}: writing it")
    import pyarrow.parquet

    table = _arrow(pa, answer)
    try:
        export.write_by_name(path, lambda there: pyarrow.parquet.write_table(table, there))
    except pa.ArrowException as error:
        raise Error(f"{path}: {error}") from None


def _arrow(pa, answer):
    count = pa.int64()
    columns = {
        "program": pa.string(),
        "gpu": pa.string(),
        "settings": pa.map_(pa.string(), pa.string()),
        "vary": pa.string(),
        "largest": count,
        "highest": count,
        "fits": pa.bool_(),
        "allocated_peak_bytes": count,
        "reserved_peak_bytes": count,
        "total_bytes": count,
        "total_range_bytes": pa.list_(count),
        "rank": pa.int32(),
        "capacity_bytes": count,
        "headroom_bytes": count,
        "price": pa.float64(),
        "cheapest": pa.bool_(),
        "error": pa.string(),
    }
    rows = [
        {
            **row,
            "program": answer["program"],
            "settings": list(row["settings"].items()),
            "cheapest": i == answer["cheapest"],
        }
        for i, row in enumerate(answer["rows"])
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))


def _said(row):
    """What stands behind the bar of ROW."""
    if row["fits"]:
        price = "" if row["price"] is None else f", {row['price']:,.2f} an hour"
        return f"leaves {wording.size(row['headroom_bytes'])}{price}"
    return "failed" if row["error"] else "does not fit"


def _picture(answer):
    rows = answer["rows"]
    most = max(row["capacity_bytes"] for row in rows)
    scale = (_WIDTH - _LEFT - 260) / most
    yield (
        f'<svg viewBox="0 0 {_WIDTH} {_LINE * len(rows)}" role="img" '
        'aria-label="What each row takes of its GPU">\n'
    )
    for i, row in enumerate(rows):
        top, whole = i * _LINE, row["capacity_bytes"] * scale
        name, said = escape(text.row_name(row)), escape(_said(row))
        yield f"<g><title>{name}: {said}</title>"
        yield f'<text x="0" y="{top + 14}">{name}</text>'
        bars = [(whole, 'class="gpu"')]
        if row["fits"]:
            colour = _GREEN if i == answer["cheapest"] else _BLUE
            bars.append((row["total_bytes"] * scale, f'fill="{colour}" fill-opacity="0.4"'))
            bars.append((row["allocated_peak_bytes"] * scale, f'fill="{colour}"'))
        for wide, how in bars:
            yield f'<rect x="{_LEFT}" y="{top}" width="{wide:.1f}" height="{_BAR}" {how}/>'
        yield f'<text x="{_LEFT + whole + 8:.1f}" y="{top + 14}">{said}</text></g>\n'
    yield "</svg>\n"


def page(answer):
    """The page of ANSWER of memlab.sweep, piece by piece."""
    yield plain_page.head(f"Where {answer['program']} fits", _STYLE)
    yield from _picture(answer)
    yield (
        f'<p class="key"><span style="background: {_BLUE}"></span>allocated at the peak; '
        "paler: in all; grey: the GPU's memory"
    )
    if answer["cheapest"] is not None:
        yield f'<span style="background: {_GREEN}"></span>the cheapest that fits'
    yield f"</p>\n<pre>{escape(chr(10).join(text.table(answer)))}</pre>\n</body>\n</html>\n"
