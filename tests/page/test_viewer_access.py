"""The viewer's page for everyone: as a table, by keys alone, in both themes, in small windows."""

import re

import pytest
from viewer_pages import ROOT, dumped, recorded, toy_steps
from viewer_state import VIEWS, go


def test_the_timeline_is_told_as_a_table_too(show):
    data = recorded("gpt2_oom")
    page = show(data)
    assert page.locator("#timeline-table table").count() == 0
    page.click("#table-open")
    rows = page.locator("#timeline-table tbody tr")
    rows.first.wait_for()
    assert rows.count() == 20
    cells = [row.split("\t") for row in rows.all_inner_texts()]
    events = [int(row[0].replace(",", "")) for row in cells]
    assert events == sorted(events)
    assert ["1,120", "2.92 GiB"] in [[row[0], row[2]] for row in cells]


def test_controls_have_names_and_the_page_works_by_keys_alone(show):
    page = show(dumped(toy_steps().snapshot()))
    for view in VIEWS:
        go(page, view=view)
        unnamed = page.evaluate(
            """() => Array.from(document.querySelectorAll(
                   "button, select, input, canvas, [role=listbox], [role=tabpanel]"))
                 .filter((e) => e.checkVisibility()
                                && !(e.getAttribute("aria-label") || e.textContent.trim()
                                  || e.labels?.length
                                  || e.getAttribute("aria-labelledby")))
                 .map((e) => e.outerHTML)"""
        )
        assert unnamed == []
    page.focus("#tab-growth")
    page.keyboard.press("ArrowRight")
    page.locator("#view-timeline").wait_for()
    assert page.evaluate("document.activeElement.id") == "tab-timeline"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    # A ring shows where the keyboard is.
    page.keyboard.press("Tab")
    assert page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle") == "solid"  # fmt: skip


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(p * weight for p, weight in zip(parts, (0.2126, 0.7152, 0.0722)))


def contrast(one, other):
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def test_text_and_edges_stand_out_in_both_themes():
    """WCAG's AA: 4.5 for text, 3 for the edges of controls and for focus."""
    css = (ROOT / "memlab/viewer/viewer.css").read_text("utf-8")
    light = dict(
        re.findall(r"--([\w-]+): (#\w{6})", css.split('[data-theme="dark"]')[0])
    )
    dark = dict(
        re.findall(r"--([\w-]+): (#\w{6})", css.split('[data-theme="dark"]')[1])
    )
    for theme in light, dark:
        for text in "text", "quiet", "accent", "bad":
            for back in "page", "panel", "canvas":
                assert contrast(theme[text], theme[back]) >= 4.5, (text, back)
        for text in "text", "quiet", "accent":
            assert contrast(theme[text], theme["select"]) >= 4.5, text
        for text in "text", "quiet":
            assert contrast(theme[text], theme["free"]) >= 4.5, text
        assert contrast(theme["warn"], theme["warn-back"]) >= 4.5
        for back in "page", "panel":
            assert contrast(theme["edge"], theme[back]) >= 3


CUT = """(selectors) => selectors.flatMap((selector) =>
  [...document.querySelectorAll(selector)].filter((element) => {
    const box = element.getBoundingClientRect();
    const place = element.closest(".table, #inspector, header").getBoundingClientRect();
    return element.scrollWidth > element.clientWidth + 1 || box.right > place.right
      || box.height > 30;
  }).map((element) => `${selector}: ${element.textContent}`))"""


@pytest.mark.parametrize("size", [(1280, 720), (800, 600)])
def test_what_matters_is_in_sight_in_small_windows_too(show, size):
    page = show(recorded("gpt2_oom"), {"view": "timeline", "event": 1120})
    page.set_viewport_size({"width": size[0], "height": size[1]})
    assert "0.984 GiB" in page.text_content("#inspector")
    assert page.evaluate(CUT, [".digest strong"]) == []
    hint = page.evaluate(
        """() => {
             const field = document.getElementById("search");
             const pen = document.createElement("canvas").getContext("2d");
             pen.font = getComputedStyle(field).font;
             return { room: field.clientWidth - 14,
                      text: pen.measureText(field.placeholder).width };
           }"""
    )
    assert hint["text"] <= hint["room"]
    cut = page.evaluate(
        """() => {
             const legend = document.getElementById("legend").getBoundingClientRect();
             return [...document.querySelectorAll("#legend li")]
               .map((item) => item.getBoundingClientRect())
               .filter((box) => box.top < legend.bottom && box.bottom > legend.bottom)
               .length;
           }"""
    )
    assert cut == 0
    go(page, view="events")
    page.wait_for_selector("#view-events .row")
    assert page.evaluate(CUT, ["#view-events .row .size"]) == []
    go(page, view="segments")
    page.wait_for_selector("#view-segments .row")
    assert page.evaluate(CUT, ["#view-segments .row .size"]) == []
    # A segment's name and figures take 195 pixels; its blocks need some beside them.
    assert page.evaluate(
        "document.querySelector('#view-segments .stage').clientWidth"
    ) >= 195 + 120


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_each_view_without_scrolling_sideways(show, view):
    page = show(recorded("gpt2_oom"), {"view": view, "event": 1120})
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, search="forward")
    page.locator("#search-count", has_text="in all").wait_for()
    # Canvases follow the width of the window in a later frame.
    page.wait_for_function(
        """() => [...document.querySelectorAll("canvas")]
             .every((e) => e.getBoundingClientRect().right <= 391)"""
    )
    wide = page.evaluate(
        """() => [...document.querySelectorAll(
               "header *, #verdict *, #machine *, #bar *, .toolbar *, canvas")]
             .filter((e) => e.checkVisibility() && e.tagName !== "OPTION"
                            && e.getBoundingClientRect().right > 391)
             .map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390
