"""Contrast, keyboard and screen-reader rules, by axe-core, in each view and in the help."""

import importlib.util
from pathlib import Path

import pytest
from amounts import amount
from viewer_pages import dumped, recorded, toy_steps
from viewer_state import VIEWS, go

WIDTHS = {"phone": (390, 844), "window": (1280, 720)}
# Each width and each theme are among the first two; some twenty seconds each.
LOOKS = [("window", "light"), ("phone", "dark"), ("phone", "light"), ("window", "dark")]
# Where nothing is there, or nothing is found, there are other words.
STATES = {
    "": {},
    "table": {"table": True},
    "nothing found": {"search": "no such function"},
    "segments": {"memory": "segments", "scale": "each"},
}


@pytest.fixture(scope="module")
def axe():
    """The source of axe-core, as axe-playwright-python has it."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        pytest.skip("axe-playwright-python is not installed")
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


def violations(page, **options):
    """What is wrong, as text: the rule and the elements."""
    options = {"resultTypes": ["violations"], **options}
    result = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in result["violations"]
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "theme"), LOOKS[: amount("PAGE_LOOKS", 2)])
def test_each_view_keeps_the_rules(show, axe, theme, width):
    page = show(recorded("gpt2_oom"), theme=theme)
    page.set_viewport_size(dict(zip(("width", "height"), WIDTHS[width])))
    page.evaluate(axe)
    page.click("#machine summary")
    # These rules are on what a theme changes: the others hold in both or in none.
    rules = {} if theme == "light" else {"runOnly": ["color-contrast", "link-in-text-block"]}
    found = []
    for view in VIEWS:
        for name, state in STATES.items():
            reset = {"table": False, "search": "", "memory": "", "scale": "", "event": 1120}
            go(page, **{**reset, **state, "view": view})
            found += [f"{view} {name}: {text}" for text in violations(page, **rules)]
    page.keyboard.press("?")
    found += [f"help: {text}" for text in violations(page, **rules)]
    assert found == []


def test_a_recording_of_several_devices_and_one_of_steps_keep_them(show, axe):
    toy = toy_steps()
    for snapshot in dumped(toy.snapshot()), recorded("streams_expandable"):
        page = show(snapshot)
        page.evaluate(axe)
        for view in VIEWS:
            go(page, view=view)
            assert violations(page) == []


def test_what_is_wrong_is_found(show, axe):
    page = show(dumped(toy_steps().snapshot()))
    page.evaluate(axe)
    page.evaluate("document.getElementById('link').style.color = '#dddddd'")
    assert [text for text in violations(page) if text.startswith("color-contrast")]
