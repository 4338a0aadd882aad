"""The state of the viewer's page: to change it, and what the page then shows."""

import re
from urllib.parse import quote

VIEWS = ("timeline", "breakdown", "flame", "segments", "events", "growth")


def address_of(state):
    """The address's part that shows STATE, as the page itself writes it."""
    state = dict(state)
    parts = [state.pop("view")] if "view" in state else []
    for short, keys in ("x", ("x0", "x1")), ("y", ("y0", "y1")):
        if keys[1] in state:
            parts.append(f"{short}={state.pop(keys[0], 0)}~{state.pop(keys[1])}")
    for key, value in state.items():
        if value is None:
            continue
        if key == "brush":
            value = f"{value[0]}~{value[1]}"
        elif key == "pinned":
            value = f"{value['chunk']}~{value['id']}"
        elif isinstance(value, bool):
            value = int(value)
        parts.append(f"{key}={quote(str(value), safe='~')}")
    return "#" + "&".join(parts)


def go(page, **state):
    """Changes the page's state, as its views do, and waits until it is shown."""
    page.evaluate("(state) => memlabViewer.go(state)", state)
    assert page.locator(".fault:visible").all_text_contents() == []


def state_of(page, event):
    """What the page has in memory after EVENT: segments with their blocks, and totals."""
    return page.evaluate(
        """async (event) => {
          const { model } = memlabViewer.shown();
          const [pieces, chunk] = [await model.segments(0),
                                   await model.chunk(0, model.chunkOf(0, event))];
          const { rows, totals } = chunk;
          const segments = memlabMemory.stateAt(pieces, chunk, event)
            .filter((s) => !s.gone).map((s) => ({
              address: memlabNames.addressNumber(s.hi, s.lo), size: s.bytes,
              stream: model.streams[s.stream], expandable: s.expandable,
              small: s.small, isPrivate: s.isPrivate,
              holes: memlabMemory.holesOf(s, rows).map((h) => h.bytes),
              blocks: s.rows.map((r) => [
                memlabNames.addressNumber(rows.hi[r], rows.lo[r]), rows.bytes[r],
                rows.requested[r] <= event]) }));
          const i = event - chunk.first;
          return { segments, totals: ["allocated", "active", "reserved"].map(
            (name) => totals[name][i]) };
        }""",
        event,
    )


def summary_totals(page):
    """The exact totals that the allocator state view gives."""
    text = page.locator("#view-segments .segment-pane output").first.get_attribute(
        "title"
    )
    numbers = re.findall(r"([\d,]+) B (\w+)", text)
    return tuple(int(number.replace(",", "")) for number, _ in numbers)


def chosen_event(page):
    return int(page.input_value("#instant-event").replace(",", ""))
