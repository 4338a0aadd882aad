"""The page's address: Back and Forward, short links, Copy link."""

import re

from viewer_pages import dumped, recorded, toy_steps
from viewer_state import go


def view_of(page):
    return page.evaluate("memlabViewer.shown().state.view")


def until(page, test, arg):
    """Waits until TEST, a function in JavaScript, is true of the page's state and ARG."""
    page.evaluate(
        f"""async (arg) => {{
              while (!({test})(memlabViewer.shown().state, arg)) {{
                await new Promise((done) => requestAnimationFrame(done));
              }}
            }}""",
        arg,
    )


def shown_range(page):
    return page.evaluate(
        "(() => { const { x0, x1 } = memlabViewer.shown().state; return [x0, x1]; })()"
    )


def test_back_and_forward_move_through_views(show):
    page = show(dumped(toy_steps().snapshot()))
    for view in "flame", "events":
        page.click(f"#tab-{view}")
        page.locator(f"#view-{view}").wait_for()
    # What is typed and chosen within a view is no entry of its own.
    page.keyboard.press(".")
    page.wait_for_url(re.compile("event="))
    page.go_back()
    page.locator("#view-flame").wait_for()
    page.go_back()
    page.locator("#view-timeline").wait_for()
    page.go_forward()
    page.locator("#view-flame").wait_for()
    page.go_forward()
    page.locator("#view-events").wait_for()
    assert "event=" in page.url


def test_back_undoes_a_zoom_of_the_timeline(show):
    page = show(recorded("gpt2_oom"))
    whole = shown_range(page)
    page.focus("#timeline")
    page.keyboard.press("+")
    page.wait_for_url(re.compile("#x=[^&]+$"))
    once = shown_range(page)
    assert once != whole
    page.keyboard.press("+")
    first = page.url
    until(page, "(s, [x0]) => s.x0 !== x0", once)
    until(page, "(s, first) => location.href !== first", first)
    page.go_back()
    until(page, "(s, [x0, x1]) => Math.abs(s.x0 - x0) + Math.abs(s.x1 - x1) < 1", once)
    page.go_back()
    until(page, "(s, [, x1]) => s.x0 === 0 && s.x1 === x1", whole)


def test_back_undoes_a_zoom_of_the_flame_graph_and_a_link_has_it(show, open_page):
    page = show(recorded("gpt2_oom"), {"view": "flame"})
    crumbs = page.locator("#view-flame .crumb")
    page.focus("#view-flame canvas")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("zoom="))
    deep = crumbs.all_inner_texts()
    assert len(deep) == 2
    address = page.url
    assert len(address.split("#")[1]) < 40
    page.go_back()
    page.wait_for_url(re.compile("#flame$"))
    assert len(crumbs.all_inner_texts()) == 1
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    crumbs.nth(1).wait_for()
    assert crumbs.all_inner_texts() == deep


def test_what_the_page_does_by_itself_is_no_entry(show):
    page = show(dumped(toy_steps().snapshot()))
    before = page.evaluate("history.length")
    go(page, view="events")
    go(page, view="timeline", x0=3, x1=9)
    go(page, event=5, search="layer")
    assert page.evaluate("history.length") == before


def test_copy_link_copies_the_address_of_what_is_shown(show):
    page = show(dumped(toy_steps().snapshot()), {"view": "segments"})
    page.evaluate(
        """() => {
             window.copied = "";
             Object.defineProperty(navigator, "clipboard", { value: {
               writeText: async (text) => { window.copied = text; } } });
           }"""
    )
    page.keyboard.press(".")
    page.click("#link")
    page.locator("#link", has_text="Copied").wait_for()
    assert page.evaluate("copied") == page.url
    assert re.search(r"#segments&event=\d+$", page.url)


def test_where_a_page_may_not_write_to_the_clipboard_it_copies_another_way(show):
    page = show(dumped(toy_steps().snapshot()))
    page.evaluate(
        """() => {
             Object.defineProperty(navigator, "clipboard", { value: undefined });
             document.execCommand = () => {
               window.copied = document.activeElement.value;
               return window.copied !== "refused";
             };
           }"""
    )
    page.keyboard.press("c")
    page.locator("#link", has_text="Copied").wait_for()
    assert page.evaluate("copied") == page.url
    page.evaluate("document.execCommand = () => false")
    page.keyboard.press("c")
    page.locator("#link", has_text="Not copied").wait_for()
