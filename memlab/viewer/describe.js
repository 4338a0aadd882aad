/* Allocations, events, segments and the peak in words: what tooltips, the inspector and
 * the peak's tables say.
 *
 * Owns the wording and the elements that carry it; text from the recording enters them
 * through textContent only.  SHOWN is { model, device, look }.  Knows no state. */
"use strict";

const memlabDescribe = (() => {
  const TOOLTIP_FRAMES = 10;
  const PEAK_LINES = 100;
  const DIGEST_LINES = 10;

  const { formatBytes, formatCount, formatTime, allocationName } = memlabModel;

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

  function swatch(color) {
    const box = make("span", { class: "swatch" });
    box.style.background = color;
    return box;
  }

  function exactBytes(bytes) {
    return `${formatBytes(bytes)} (${formatCount(bytes)} B)`;
  }

  function stackList({ model }, stack) {
    const frames = memlabModel.stackFrames(model, stack);
    const items = frames.map((frame) => {
      const { name, file, line } = memlabModel.frameText(model, frame);
      const at = line > 0 ? `${file}:${line}` : file;
      return make("li", {}, make("span", { class: "function" }, name), " ",
                  make("span", { class: "file" }, at));
    });
    return frames.length === 0
      ? make("p", {}, "No stack was recorded.")
      : make("ol", { class: "stack" }, ...items);
  }

  function when({ device }, event) {
    if (event < 0) {
      return "before the recording";
    }
    if (event >= device.events.count) {
      return "not within the recording";
    }
    return `event ${formatCount(event)}, ${formatTime(device.events.time[event])}`;
  }

  function lifetime({ device }, id) {
    const { start, end } = device.allocs;
    const { time, count } = device.events;
    if (start[id] < 0 || end[id] >= count) {
      return "not known: it reaches beyond the recording";
    }
    return `${formatTime(time[end[id]] - time[start[id]])}, `
      + `${formatCount(end[id] - start[id])} events`;
  }

  function categoryText({ model, device }, id) {
    const { category, name } = device.allocs;
    const text = (model.categories[category[id]] ?? "unknown").replace(/_/g, " ");
    const owner = model.strings[name[id]];
    return owner === "" ? text : `${text} ${owner}`;
  }

  function allocationFacts(shown, id) {
    const { allocs, events: all } = shown.device;
    const rows = [
      ["Block", exactBytes(allocs.exactBytes[id])],
      ["Requested", exactBytes(allocs.size[id])],
      ["Category", categoryText(shown, id)],
      ["Allocated", when(shown, allocs.start[id])],
      ["Freed", when(shown, allocs.end[id])],
      ["Lifetime", lifetime(shown, id)],
      ["Stream", formatCount(allocs.stream[id])],
    ];
    if (allocs.requestedAt[id] < allocs.end[id] - 1
        || (allocs.requestedAt[id] < all.count && allocs.end[id] >= all.count)) {
      rows.splice(4, 0, ["Free asked for", when(shown, allocs.requestedAt[id])]);
    }
    const list = make("dl");
    for (const [name, value] of rows) {
      list.append(make("dt", {}, name), make("dd", {}, value));
    }
    return list;
  }

  function eventParts(shown, event) {
    const { model, device } = shown;
    const { events: all, allocs, code } = device;
    const action = all.action[event];
    const id = allocs.ofEvent[event];
    const name = memlabModel.eventName(device, event);
    const parts = [
      make("h2", {}, `${model.actions[action]} ${name}`),
      make("p", {}, `event ${formatCount(event)}, ${formatTime(all.time[event])}`)];
    if (action === code.get("oom")) {
      parts.push(make("p", {}, `Asked for ${exactBytes(all.size[event])}; the device had `
        + `${exactBytes(all.addr[event])} free.`));
    }
    else if (id < 0) {
      parts.push(make("p", {}, exactBytes(all.size[event])));
    }
    parts.push(make("h3", {}, "Event's stack, innermost first"),
               stackList(shown, all.stack[event]));
    if (id >= 0) {
      parts.push(make("h3", {}, "Allocation"), allocationFacts(shown, id));
      if (allocs.stack[id] !== all.stack[event]) {
        parts.push(make("h3", {}, "Allocated at, innermost first"),
                   stackList(shown, allocs.stack[id]));
      }
    }
    return parts;
  }

  function placeOfFrame(model, frame) {
    return memlabModel.placeText(memlabModel.frameText(model, frame));
  }

  function allocationTip(shown, id) {
    const { model, device, look } = shown;
    const { allocs } = device;
    const frames = memlabModel.stackFrames(model, allocs.stack[id]);
    const lines = frames.slice(0, TOOLTIP_FRAMES).map(
      (frame) => make("div", { class: "mono" }, placeOfFrame(model, frame)));
    return [
      make("div", {}, swatch(look.text(id)), make("strong", {},
        formatBytes(allocs.bytes[id])), ` ${allocationName(allocs, id)}`),
      make("div", {}, `${categoryText(shown, id)} · ${lifetimeShort(device, id)}`),
      ...lines,
      ...(frames.length === 0 ? [make("div", { class: "mono" }, "no stack")] : []),
    ];
  }

  function lifetimeShort(device, id) {
    const { start, end } = device.allocs;
    const { time, count } = device.events;
    if (end[id] >= count) {
      return "never freed";
    }
    return start[id] < 0 ? "from before the recording"
      : `lived ${formatTime(time[end[id]] - time[start[id]])}`;
  }

  function totalsTip(shown, event) {
    const { totals } = shown.device;
    return [
      make("div", {}, when(shown, event)),
      make("div", {}, `active ${formatBytes(totals.active[event])}, allocated `
        + formatBytes(totals.allocated[event])),
      make("div", {}, `reserved ${formatBytes(totals.reserved[event])}`),
    ];
  }

  function segmentTip({ model }, { segment, free }) {
    const lines = memlabModel.stackFrames(model, segment.stack).slice(0, TOOLTIP_FRAMES)
      .map((frame) => make("div", { class: "mono" }, placeOfFrame(model, frame)));
    const title = segment.addr === null ? "blocks, end to end"
      : `segment s${memlabModel.hex(segment.addr)}`;
    return [
      make("div", {}, make("strong", {}, free > 0
        ? `${formatBytes(free)} free` : formatBytes(segment.bytes)), ` ${title}`),
      make("div", {}, `${formatBytes(segment.bytes)}, ${formatBytes(segment.used)} used `
        + `by ${formatCount(segment.blocks.length)} blocks, stream ${segment.stream}`
        + (segment.expandable ? ", expandable" : "")),
      ...lines,
    ];
  }

  /* A search that finds the allocations of a line. */
  function lineWord(model, index) {
    if (memlabModel.isNoLine(model, index)) {
      return "";
    }
    const { name, file, line } = memlabModel.lineParts(model, index);
    const short = memlabModel.shortFile(file);
    return short === "" || /\s/.test(short) ? name.split(/\s/)[0] : `${short}:${line}`;
  }

  function peakDigest({ model, device }, search) {
    const { by_line: lines } = device.peak;
    return lines.line.slice(0, DIGEST_LINES).map((line, i) => make(
      "button", { type: "button", class: "digest",
                  click: () => search(lineWord(model, line)) },
      make("strong", {}, formatBytes(Number(lines.bytes[i]))),
      make("span", { class: "mono" }, peakLineText(model, device, i))));
  }

  function peakTable(id, heading, rows, total, search) {
    const most = rows.reduce((m, row) => Math.max(m, row.bytes), 1);
    const body = rows.map((row) => {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${(row.bytes / most * 100).toFixed(2)}%`;
      bar.style.background = row.color;
      const line = make(
        "tr", { tabindex: "0", click: () => search(row.word) },
        make("td", { class: row.mono ? "mono" : "", title: row.title }, row.text),
        make("td", { class: "number" }, formatBytes(row.bytes)),
        make("td", { class: "number" }, `${(100 * row.bytes / total).toFixed(1)}%`),
        make("td", { class: "share" }, bar),
        make("td", { class: "number" }, formatCount(row.blocks)));
      line.dataset.bytes = String(row.bytes);
      line.addEventListener("keydown", (key) => {
        if (key.key === "Enter") {
          search(row.word);
        }
      });
      return line;
    });
    const head = make("tr", {}, make("th", {}, heading),
                      make("th", { class: "number" }, "Bytes"),
                      make("th", { class: "number" }, "Share"),
                      make("th", { class: "share" }, ""),
                      make("th", { class: "number" }, "Blocks"));
    return make("table", { id }, make("thead", {}, head), make("tbody", {}, ...body));
  }

  /* A row's line, or why it has none; the phase where it is not plain forward. */
  function peakLineText(model, device, row) {
    const { line, phase, why_no_line: why } = device.peak.by_line;
    const text = why[row] === ""
      ? memlabModel.placeText(memlabModel.lineParts(model, line[row])) : why[row];
    return phase[row] === "backward" && why[row] === "" ? `${text} (backward)` : text;
  }

  /* The content of the peak's view; SEARCH takes the words of the row that was chosen. */
  function peakParts(shown, search) {
    const { model, device, look } = shown;
    const { peak } = device;
    const total = Math.max(1, Number(peak.allocated));
    const lines = peak.by_line.line.map((index, i) => {
      const { name, file, line } = memlabModel.lineParts(model, index);
      return { text: peakLineText(model, device, i), title: `${file}:${line} ${name}`,
               bytes: Number(peak.by_line.bytes[i]), blocks: peak.by_line.blocks[i],
               word: lineWord(model, index), mono: true,
               color: look.colors.accent };
    });
    const categories = model.categories.map((name, i) => (
      { text: name.replace(/_/g, " "), title: name, word: name, mono: false,
        bytes: Number(peak.by_category.bytes[i]), blocks: peak.by_category.blocks[i],
        color: memlabColors.ofCategory(name) }));
    const present = categories.filter((row) => row.blocks > 0)
      .sort((a, b) => b.bytes - a.bytes);
    const { overhead } = peak;
    return [
      make("h2", {}, `Peak of allocated memory: ${exactBytes(peak.allocated)}`),
      make("p", {}, `Reached: ${when(shown, peak.event)}. Reserved then `
        + `${exactBytes(peak.reserved)}, active ${exactBytes(peak.active)}.`),
      make("p", {}, `Overhead: ${formatBytes(overhead.inactive)} reserved but free in `
        + `${formatCount(overhead.free_blocks)} blocks, the largest `
        + `${formatBytes(overhead.largest_free)}; ${formatBytes(overhead.slack)} lost to `
        + "rounding."),
      make("h2", {}, "By category"),
      peakTable("peak-categories", "Category", present, total, search),
      make("h2", {}, "By line"),
      peakTable("peak-lines", "Line that allocated", lines.slice(0, PEAK_LINES), total,
                search),
      make("p", {}, lines.length > PEAK_LINES
        ? `and ${formatCount(lines.length - PEAK_LINES)} lines with fewer bytes` : ""),
    ];
  }

  return { make, swatch, stackList, allocationFacts, eventParts, allocationTip,
           totalsTip, segmentTip, lineWord, peakDigest, peakParts };
})();
