"""Line tables as HTML: what the text shows, with bars, also in a browser."""

import html
import html.parser
import re
import shutil

import pytest
from shown_tables import DEFAULT, KIB, MIB, TIB, codes, golden, table, tables

# ---- HTML ----


class Page(html.parser.HTMLParser):
    """What HTML shows: titles, and for every row of every table its cells, each with its
    text and its bar, (colour, per cent); fails where elements do not nest."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.titles, self.rows, self.style = [], [], [], {}
        self.styles, self.cell = [], None
        for rule, body in re.findall(r"([^{}>]+)\{([^}]*)\}", text):
            for selector in rule.split(","):
                self.style[selector.strip().lstrip("#")] = body
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.stack.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            style = attributes.get("style") or self.style.get(attributes.get("id"), "")
            bar = re.search(r"linear-gradient\(90deg, ?(#\w{6}) ([\d.]+)%", style)
            self.cell = [tag, "", bar and (bar[1], float(bar[2]))]
            self.styles.append(style)
        elif tag == "h3":
            self.titles.append("")

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag
        if tag in ("td", "th"):
            kind, text, bar = self.cell
            self.rows[-1].append((kind, text.rstrip(), bar))
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[1] += data
        elif "h3" in self.stack:
            self.titles[-1] += data
        elif "style" not in self.stack:
            assert data.strip() == ""


def test_html_shows_what_that_of_the_demo_notebook_shows(demo):
    """Titles, headers, cells, colours and lengths of bars; pandas said it in classes."""
    theirs, ours = Page(golden("demo_xy.html")), Page(demo._repr_html_())
    assert ours.titles == theirs.titles == ["x", "y"]
    assert ours.rows == theirs.rows
    assert ("td", "40.00K", ("#4878d0", 10.1)) in ours.rows[4]


def test_html_shows_what_pytorch_memlab_makes_of_odd_functions(odd):
    # It writes code as it is, and a browser takes what is in it for markup.
    code = golden("odd.html")
    for markup in " & ", "<b>", "<i>", "x < 2":
        assert markup in code
        code = code.replace(markup, html.escape(markup))
    theirs, ours = Page(code), Page(odd._repr_html_())
    assert ours.titles == theirs.titles == ["Net.forward", "one"]
    assert ours.rows == theirs.rows
    assert ("td", '            return "<i>"', None) in ours.rows[8]


def test_a_bar_for_every_figure_up_to_the_most_of_all_functions(odd):
    """The third column goes up to 1 TiB, which is in the table of the other function."""
    rows = Page(odd._repr_html_()).rows
    bars = [[bar for _, _, bar in row] for row in rows if row[0][0] == "td"]
    colours = ["#4878d0", "#ee854a", "#6acc64"]
    assert bars[-1] == [(colour, 99.0) for colour in colours] + [None, None]
    # 12,345,678 of 24 MiB, 24 MiB of 48 and 1,048,575 of 1 TiB, each 99 % at most.
    assert bars[6] == [*zip(colours, (48.6, 49.5, 0.0)), None, None]
    assert bars[0] == [
        None,
        (colours[1], 4.1),
        None,
        None,
        None,
    ]  # 0 B, 2 of 48 MiB, 0 B


def test_ten_colours_come_round():
    code = codes("def f(): pass\n", "f.py")["f"]
    columns = tuple(
        f"{count}.{pool}.peak"
        for count in ("active_bytes", "allocated_bytes", "requested_bytes", "segment")
        for pool in ("all", "large_pool", "small_pool")
    )
    shown = tables(table(code, {1: range(1, 13)}, columns), columns=columns)
    bars = [bar for _, _, bar in Page(shown._repr_html_()).rows[-1]][:12]
    assert len({colour for colour, _ in bars}) == 10
    assert bars[10:] == bars[:2]


# ---- In a browser ----

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# JupyterLab's colours of page and text.
THEMES = {"light": ("#ffffff", "rgba(0, 0, 0, 0.87)"), "dark": ("#111111", "rgba(255, 255, 255, 0.87)")}  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@pytest.mark.parametrize("theme", THEMES)
def test_text_stands_above_the_bars_and_wide_code_scrolls(browser, odd, theme):
    wide = codes(f"def f():\n    return {' + '.join(['1'] * 200)}\n", "wide.py")["f"]
    columns = (*DEFAULT, "active_bytes.all.allocated")
    wide = table(wide, {1: (0, 0, 0), 2: (KIB, MIB, TIB)}, columns)
    shown = tables(*odd._tables, wide, columns=columns)
    ground, ink = THEMES[theme]
    page = browser.new_page(viewport={"width": 800, "height": 600})
    page.set_content(
        f"<body style='background: {ground}; color: {ink}'>{shown._repr_html_()}</body>"
    )
    seen = page.evaluate("""() => {
        const width = document.documentElement
        const cells = [...document.querySelectorAll("td")].map((cell) => {
            const style = getComputedStyle(cell), range = document.createRange()
            range.selectNodeContents(cell)
            const box = cell.getBoundingClientRect(), text = range.getBoundingClientRect()
            return {bar: style.backgroundImage, size: style.backgroundSize,
                    colour: style.color, below: box.bottom - text.bottom,
                    lines: Math.round(text.height / 16)}
        })
        return {fits: width.scrollWidth <= width.clientWidth, cells}
    }""")
    page.close()
    assert seen["fits"]
    bars = [cell for cell in seen["cells"] if "gradient" in cell["bar"]]
    assert len(bars) == 1 + 3 + 3 + 2 + 3 + 3
    for cell in bars:
        # Nothing is painted behind the text, which has the theme's own colour.
        assert cell["size"] == "100% 4px" and cell["below"] >= 4
        assert cell["colour"] == ink
    assert {cell["lines"] for cell in seen["cells"]} <= {0, 1}
