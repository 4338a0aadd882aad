/* Allocations, events and segments in words: what tooltips and the inspector say.
 *
 * Owns the wording and the elements that carry it; text from the recording enters them
 * through textContent only.  Knows no state; what a button does is told by the caller. */
"use strict";

const memlabDescribe = (() => {
  const TOOLTIP_FRAMES = 10;
  /* A deeper stack would take seconds to lay out, and nobody reads it. */
  const STACK_FRAMES = 500;
  const CUT_TAIL = 18;
  /* A shorter beginning is not cut off: it takes no more room than what stands for it. */
  const CUT_HEAD = 3;

  const { formatBytes, exactBytes, formatCount, formatTime, allocationName, plural,
          kindCategory, kindPlace, kindModule } = memlabNames;

  /* A new element; the content is text or elements, never markup. */
  function make(tag, options, ...content) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(options ?? {})) {
      if (key === "class") {
        element.className = value;
      }
      else if (key === "click") {
        element.addEventListener("click", value);
      }
      else {
        element.setAttribute(key, value);
      }
    }
    element.append(...content);
    return element;
  }

  /* TEXT that is cut in the middle where there is no room: its end has the function.  Its
   * letters must have one width, which the style sheet counts on. */
  function cut(text) {
    const tail = text.length > CUT_TAIL + CUT_HEAD ? text.length - CUT_TAIL : 0;
    return make("span", { class: "cut" }, make("span", {}, text.slice(0, tail)),
                text.slice(tail));
  }

  function swatch(color) {
    const box = make("span", { class: "swatch", "aria-hidden": "true" });
    box.style.background = color;
    return box;
  }

  function button(text, click) {
    return make("button", { type: "button", click }, text);
  }

  /* ---- stacks ---- */

  function stackList(model, stack) {
    const frames = memlabNames.stackFrames(model, stack);
    if (frames.length === 0) {
      return make("p", {}, "No stack was recorded.");
    }
    const items = frames.slice(0, STACK_FRAMES).map((frame) => {
      const { name, file, line } = memlabNames.frameText(model, frame);
      return make("li", {}, make("span", { class: "function" }, name), " ",
                  make("span", { class: "file" }, line > 0 ? `${file}:${line}` : file));
    });
    if (frames.length > STACK_FRAMES) {
      items.push(make("li", {}, `and ${plural(frames.length - STACK_FRAMES,
                                              "outer frame")}`));
    }
    return make("ol", { class: "stack" }, ...items);
  }

  function tipStack(model, stack) {
    const frames = memlabNames.stackFrames(model, stack);
    return frames.slice(0, TOOLTIP_FRAMES).map((frame) => make(
      "div", { class: "mono" },
      memlabNames.placeText(memlabNames.frameText(model, frame))));
  }

  /* ---- lists of facts ---- */

  function facts(rows) {
    const list = make("dl");
    for (const [name, value] of rows) {
      list.append(make("dt", {}, name), make("dd", {}, value));
    }
    return list;
  }

  /* ---- allocations ---- */

  /* When an event was, in words; its time where CHUNK has the event. */
  function when(model, d, chunk, event) {
    if (event < 0) {
      return "before the recording";
    }
    if (event >= model.devices[d].events) {
      return "not within the recording";
    }
    const i = event - chunk.first;
    const at = i >= 0 && i < chunk.count ? `, ${formatTime(chunk.events.time[i])}` : "";
    return `event ${formatCount(event)}${at}`;
  }

  function rounding(rows, row) {
    const extra = rows.bytes[row] - rows.size[row];
    return extra > 0 ? `${formatBytes(extra)} more than asked for` : "none";
  }

  /* TIMES, where known, are of its start and its end in microseconds. */
  function lifetime(model, d, rows, row, times) {
    if (rows.start[row] < 0 || rows.requested[row] >= model.devices[d].events) {
      return "not known: it reaches beyond the recording";
    }
    const events = plural(rows.requested[row] - rows.start[row], "event");
    return times === null ? events
      : `${formatTime(times.requested - times.start)}, ${events}`;
  }

  function allocationFacts(model, d, chunk, row, times = null) {
    const { rows } = chunk;
    const kind = rows.kind[row];
    const list = [
      ["Block", exactBytes(rows.bytes[row])],
      ["Requested", exactBytes(rows.size[row])],
      ["Rounding", rounding(rows, row)],
      ["Category", kindCategory(model, kind)],
      ["Module", kindModule(model, kind)],
      ["Line", kindPlace(model, kind)],
      ["Address", `0x${memlabNames.hex(rows.hi[row], rows.lo[row])}`],
      ["Stream", formatCount(model.streams[model.kinds.stream[kind]])],
      ["Allocated", when(model, d, chunk, rows.start[row])],
      ["Freed", when(model, d, chunk, rows.requested[row])],
    ];
    if (rows.end[row] > rows.requested[row] + 1) {
      list.push(["Free completed", when(model, d, chunk, rows.end[row])]);
    }
    list.push(["Lifetime", lifetime(model, d, rows, row, times)]);
    return facts(list);
  }

  /* In words after its size: how long it was there, as far as CHUNK knows. */
  function lifetimeShort(model, d, chunk, row) {
    const { start, requested } = chunk.rows;
    if (requested[row] >= model.devices[d].events) {
      return "never freed";
    }
    if (start[row] < 0) {
      return "from before the recording";
    }
    const [from, to] = [start[row] - chunk.first, requested[row] - chunk.first];
    const { time } = chunk.events;
    return from >= 0 && to < chunk.count ? `lived ${formatTime(time[to] - time[from])}`
      : `lived ${plural(requested[row] - start[row], "event")}`;
  }

  function allocationTip(model, d, chunk, row, color) {
    const { rows } = chunk;
    const kind = rows.kind[row];
    const stack = tipStack(model, model.kinds.stack[kind]);
    return [
      make("div", {}, swatch(color), make("strong", {}, formatBytes(rows.bytes[row])),
           ` ${allocationName(rows, row)}`),
      make("div", {}, `${kindCategory(model, kind)} · `
        + lifetimeShort(model, d, chunk, row)),
      make("div", {}, `in ${kindModule(model, kind)}`),
      make("div", { class: "mono" }, kindPlace(model, kind)),
      ...(stack.length === 0 ? [make("div", { class: "mono" }, "no stack of its own")]
        : stack),
    ];
  }

  /* ---- events ---- */

  function totalsText(allocated, active, reserved) {
    return `${formatBytes(allocated)} allocated, ${formatBytes(active)} active, `
      + `${formatBytes(reserved)} reserved`;
  }

  function oomText(chunk, i) {
    const { size, hi, lo } = chunk.events;
    return `Asked for ${exactBytes(size[i])}; the device had `
      + `${exactBytes(memlabNames.addressNumber(hi[i], lo[i]))} free.`;
  }

  /* Event I of CHUNK for the inspector; GO(event) shows another one. */
  function eventParts(model, d, chunk, i, go) {
    const { events, rows, totals } = chunk;
    const action = model.actions[events.action[i]];
    const row = events.row[i];
    const parts = [
      make("h2", {}, `${action} ${memlabNames.eventName(model, chunk, i)}`.trimEnd()),
      make("p", {}, `event ${formatCount(chunk.first + i)}, `
        + `${formatTime(events.time[i])}`),
      make("p", {}, `After it: ${totalsText(totals.allocated[i], totals.active[i],
                                            totals.reserved[i])}.`)];
    if (action === "oom") {
      parts.push(make("p", {}, oomText(chunk, i)));
    }
    else if (row < 0) {
      parts.push(make("p", {}, exactBytes(events.size[i])));
    }
    parts.push(make("h3", {}, "The event's own stack, innermost first"),
               stackList(model, events.stack[i]));
    if (row >= 0) {
      const stack = model.kinds.stack[rows.kind[row]];
      parts.push(make("h3", {}, "Allocation"), eventLinks(model, d, rows, row, go),
                 allocationFacts(model, d, chunk, row));
      if (stack !== events.stack[i]) {
        parts.push(make("h3", {}, "Allocated at, innermost first"),
                   stackList(model, stack));
      }
    }
    return parts;
  }

  /* Buttons for the events of an allocation's life. */
  function eventLinks(model, d, rows, row, go) {
    const { events } = model.devices[d];
    const box = make("div", { class: "actions" });
    const link = (text, event) => {
      if (event >= 0 && event < events) {
        box.append(button(`${text} ${formatCount(event)}`, () => go(event)));
      }
    };
    link("alloc", rows.start[row]);
    link("free_requested", rows.requested[row]);
    link("free_completed", rows.end[row]);
    return box;
  }

  /* ---- device memory ---- */

  function segmentWords(segment) {
    return [segment.small ? "small pool" : "large pool",
            ...(segment.isPrivate ? ["private pool"] : []),
            ...(segment.expandable ? ["expandable"] : [])].join(", ");
  }

  /* SEGMENT as memlabSegments makes it; FREE bytes of the hole pointed at, or 0. */
  function segmentTip(model, segment, free) {
    const title = segment.name === "" ? "blocks, end to end" : `segment ${segment.name}`;
    return [
      make("div", {}, make("strong", {}, free > 0
        ? `${formatBytes(free)} free` : formatBytes(segment.bytes)), ` ${title}`),
      make("div", {}, `${formatBytes(segment.bytes)}, ${formatBytes(segment.used)} in `
        + `${plural(segment.rows.length, "block")}`),
      ...(segment.name === "" ? [] : [make("div", {}, `stream ${
        formatCount(model.streams[segment.stream])}, ${segmentWords(segment)}`)]),
      ...tipStack(model, segment.stack),
    ];
  }

  return { make, cut, swatch, button, stackList, allocationFacts, allocationTip, eventParts,
           eventLinks, totalsText, oomText, segmentTip, segmentWords };
})();
