/* The list of events: of any length, of which only the rows in sight exist.
 *
 * Owns the list, its filters and how a row of it is found in the chunks; what is chosen
 * goes out through the callbacks. */
"use strict";

const memlabEvents = (() => {
  const ROW = 21;
  /* Browsers cap the height of an element; beyond this the scroll bar is scaled. */
  const TALLEST = 8e6;

  const { formatBytes, formatCount, formatTime, eventName } = memlabNames;
  const { make } = memlabDescribe;

  /* ---- which events are rows ---- */

  /* The rows of a list whose FILTER is { action, pairs, hits }.  How many rows a chunk
   * has that was not read yet is estimated; `whole` says whether all were. */
  function createIndex(model, d, filter) {
    const device = model.devices[d];
    const size = device.chunks.events;
    const lists = new Array(device.chunkCount).fill(null);
    const action = model.actions.indexOf(filter.action);
    const requested = model.actions.indexOf("free_requested");
    const completed = model.actions.indexOf("free_completed");
    const isPlain = filter.action === "" && filter.hits === null && !filter.pairs;
    let known = 0;
    let knownEvents = 0;
    let taken = 0;

    function eventsOf(i) {
      return Math.min(size, device.events - i * size);
    }

    function count(i) {
      if (isPlain) {
        return eventsOf(i);
      }
      return lists[i] === null
        ? Math.round(eventsOf(i) * (knownEvents === 0 ? 1 : known / knownEvents))
        : lists[i].length;
    }

    /* A free completed right after it was requested is one step for the reader. */
    function isFirstHalf({ events, count: n }, i) {
      return events.action[i] === requested && i + 1 < n
        && events.action[i + 1] === completed && events.row[i] >= 0
        && events.row[i + 1] === events.row[i];
    }

    function isSecondHalf(chunk, i) {
      return i > 0 && isFirstHalf(chunk, i - 1);
    }

    /* A pair that is one row counts as both its actions. */
    function hasAction(chunk, i) {
      return chunk.events.action[i] === action
        || (filter.pairs && action === requested && isSecondHalf(chunk, i));
    }

    /* Reads which events of a chunk are rows; false where that was known. */
    function take(chunk) {
      if (isPlain || lists[chunk.index] !== null) {
        return false;
      }
      const out = new Int32Array(chunk.count);
      let n = 0;
      for (let i = 0; i < chunk.count; i++) {
        if ((filter.pairs && isFirstHalf(chunk, i))
            || (filter.action !== "" && !hasAction(chunk, i))
            || (filter.hits !== null && !filter.hits.ofEvent(chunk, i))) {
          continue;
        }
        out[n] = i;
        n += 1;
      }
      lists[chunk.index] = out.slice(0, n);
      known += n;
      knownEvents += chunk.count;
      taken += 1;
      return true;
    }

    function total() {
      let sum = 0;
      for (let i = 0; i < lists.length; i++) {
        sum += count(i);
      }
      return sum;
    }

    /* The chunk of a row and the row's place among those of the chunk. */
    function locate(row) {
      let first = 0;
      for (let i = 0; i < lists.length; i++) {
        const rows = count(i);
        if (row < first + rows) {
          return { chunk: i, k: row - first };
        }
        first += rows;
      }
      return null;
    }

    /* The event of the K-th row of chunk I; -1 where that is not known yet. */
    function eventAt(i, k) {
      if (isPlain) {
        return i * size + k;
      }
      return lists[i] === null || k >= lists[i].length ? -1 : i * size + lists[i][k];
    }

    /* The first row of chunk I. */
    function startOf(i) {
      let first = 0;
      for (let c = 0; c < i; c++) {
        first += count(c);
      }
      return first;
    }

    /* The row of EVENT or of the nearest row before it, so that hidden events land near;
     * -1 before the first. */
    function rowOf(event) {
      if (isPlain) {
        return event;
      }
      const i = Math.max(0, Math.min(lists.length - 1, Math.floor(event / size)));
      const first = startOf(i);
      const local = event - i * size;
      if (lists[i] === null) {
        return first + Math.floor(count(i) * local / Math.max(1, eventsOf(i)));
      }
      let lo = 0;
      let hi = lists[i].length;
      while (lo < hi) {
        const mid = (lo + hi) >>> 1;
        if (lists[i][mid] <= local) {
          lo = mid + 1;
        }
        else {
          hi = mid;
        }
      }
      return first + lo - 1;
    }

    return { take, count, total, startOf, locate, eventAt, rowOf, isSecondHalf,
             filtered: filter.action !== "" || filter.hits !== null,
             get whole() { return isPlain || taken === lists.length; },
             has: (i) => isPlain || lists[i] !== null };
  }

  /* ---- the list ---- */

  function cell(kind, text) {
    return make("span", { class: kind }, text);
  }

  function lineOf(model, chunk, i) {
    const { row, stack } = chunk.events;
    if (row[i] >= 0) {
      return memlabNames.kindPlace(model, chunk.rows.kind[row[i]]);
    }
    const [frame] = memlabNames.stackFrames(model, stack[i]);
    return frame === undefined ? ""
      : memlabNames.placeText(memlabNames.frameText(model, frame));
  }

  function cellsOf(model, chunk, i, isPair) {
    const { events, rows } = chunk;
    const action = model.actions[events.action[i]];
    const row = events.row[i];
    const bytes = row >= 0 ? rows.bytes[row] : events.size[i];
    const kind = action === "alloc" ? "action alloc" : action === "oom" ? "action oom"
      : action.startsWith("segment") ? "action segment" : "action";
    const text = action === "oom" ? "out of memory" : isPair ? "free" : action;
    return [
      cell("number", formatCount(chunk.first + i)),
      cell("time", formatTime(events.time[i])),
      cell(kind, text),
      cell("name", eventName(model, chunk, i)),
      cell("size", formatBytes(bytes)),
      cell("stream", formatCount(model.streams[events.stream[i]] ?? 0)),
      cell("line", memlabDescribe.cut(lineOf(model, chunk, i))),
    ];
  }

  /* OPTIONS.compact leaves out time, stream and line, for a narrow place. */
  function create(element, callbacks, options = {}) {
    const prefix = options.compact ? "state" : "events";
    const action = make("select", { "aria-label": "Show only one action" });
    const pairs = make("input", { type: "checkbox" });
    const output = make("output", {});
    const spacer = make("div", { role: "presentation" });
    const box = make("div", { class: options.compact ? "rows compact" : "rows",
                              tabindex: "0", role: "listbox",
                              "aria-label": "Allocator events" }, spacer);
    const head = make("div", { class: "head", "aria-hidden": "true" },
                      ...["number", "time", "action", "name", "size", "stream", "line"]
                        .map((kind) => cell(kind, kind === "number" ? "event" : kind)));
    element.append(
      make("div", { class: "toolbar" }, output, make("label", {}, "Action ", action),
           make("label", {}, pairs, " one row a free")),
      make("div", { class: options.compact ? "table compact" : "table" }, head, box));

    let model = null;
    let d = 0;
    let state = null;
    let index = null;
    let shown = null;
    let off = null;
    let scan = 0;
    let raf = 0;

    function tall() {
      return Math.min(TALLEST, index.total() * ROW);
    }

    function room() {
      return Math.max(1, tall() - box.clientHeight);
    }

    /* The row at the top of the box, with its fraction. */
    function firstRow() {
      const rows = index.total() - box.clientHeight / ROW;
      return Math.max(0, box.scrollTop / room() * rows);
    }

    function scrollTo(row) {
      const rows = Math.max(1, index.total() - box.clientHeight / ROW);
      box.scrollTop = Math.max(0, row) / rows * room();
    }

    function makeRow(chunk, i) {
      const event = chunk.first + i;
      const chosen = event === state.event;
      const row = make("div", { class: "row", role: "option", id: `${prefix}-${event}`,
                                "aria-selected": String(chosen),
                                click: () => choose(event) },
                       ...cellsOf(model, chunk, i,
                                  state.pairs && index.isSecondHalf(chunk, i)));
      if (chosen) {
        box.setAttribute("aria-activedescendant", row.id);
      }
      return row;
    }

    function render() {
      raf = 0;
      if (index === null || box.clientHeight === 0) {
        return;
      }
      const first = firstRow();
      const from = Math.floor(first);
      const stop = Math.min(index.total(), from + Math.ceil(box.clientHeight / ROW) + 1);
      const rows = [];
      let missing = false;
      box.removeAttribute("aria-activedescendant");
      for (let at = from; at < stop; at++) {
        const { chunk: c, k } = index.locate(at);
        const chunk = model.chunkNow(d, c);
        const event = chunk === null ? -1 : index.eventAt(c, k);
        missing ||= event < 0;
        const row = event < 0 ? make("div", { class: "row quiet" }, "loading …")
          : makeRow(chunk, event - chunk.first);
        row.setAttribute("aria-setsize", String(index.total()));
        row.setAttribute("aria-posinset", String(at + 1));
        row.style.top = `${box.scrollTop + (at - first) * ROW}px`;
        rows.push(row);
      }
      const none = index.whole && index.total() === 0;
      if (none) {
        rows.push(make("div", { class: "row none", role: "option", "aria-selected": "false" },
                       "No event matches. Esc clears the search; Action: all shows every "
                       + "kind."));
      }
      spacer.style.height = `${none ? ROW : tall()}px`;
      spacer.replaceChildren(...rows);
      const about = index.whole ? "" : "about ";
      output.textContent = `${about}${formatCount(index.total())} of `
        + `${formatCount(model.devices[d].events)} events`;
      if (missing) {
        takeLoaded();
      }
    }

    function redraw() {
      if (raf === 0) {
        raf = requestAnimationFrame(render);
      }
    }

    /* Counts the rows of chunks that have come; what is in sight stays in sight, or what
     * it was estimated to be. */
    function takeLoaded() {
      const first = firstRow();
      const top = index.locate(Math.floor(first));
      if (top === null) {
        return;
      }
      const event = index.eventAt(top.chunk, top.k);
      const share = top.k / index.count(top.chunk);
      const stop = index.locate(Math.floor(first + box.clientHeight / ROW));
      let changed = false;
      for (let c = top.chunk; c <= (stop ?? top).chunk; c++) {
        const chunk = model.chunkNow(d, c);
        changed = (chunk !== null && index.take(chunk)) || changed;
      }
      if (changed) {
        spacer.style.height = `${tall()}px`;
        scrollTo(first % 1 + (event >= 0 ? index.rowOf(event)
          : Math.floor(index.startOf(top.chunk) + share * index.count(top.chunk))));
        redraw();
      }
    }

    /* Brings the chosen event into sight. */
    async function reveal() {
      const mine = index;
      const chunk = await model.chunk(d, model.chunkOf(d, Math.max(0, state.event)));
      if (mine !== index) {
        return;
      }
      index.take(chunk);
      spacer.style.height = `${tall()}px`;
      const row = index.rowOf(state.event);
      const first = firstRow();
      const rows = box.clientHeight / ROW;
      if (row < first || row > first + rows - 1) {
        scrollTo(row - rows / 2);
      }
      redraw();
    }

    /* Where few events are rows, how many there are is worth reading all chunks. */
    async function scanAll() {
      scan += 1;
      const mine = scan;
      const { chunkCount } = model.devices[d];
      for (let c = 0; c < chunkCount && index.filtered; c++) {
        if (!index.has(c)) {
          const chunk = await model.chunk(d, c);
          if (mine !== scan) {
            return;
          }
          index.take(chunk);
          redraw();
        }
      }
    }

    function choose(event) {
      callbacks.change({ event, pinned: null });
    }

    async function step(by) {
      const total = index.total();
      if (total === 0) {
        return;
      }
      const row = Math.max(0, Math.min(total - 1, index.rowOf(state.event) + by));
      const { chunk: c } = index.locate(row);
      const mine = index;
      const chunk = await model.chunk(d, c);
      if (mine !== index) {
        return;
      }
      index.take(chunk);
      const last = index.total() - 1;
      const place = index.locate(Math.max(0, Math.min(last, by < -total ? 0
        : by > total ? last : row)));
      await model.chunk(d, place.chunk).then((there) => index.take(there));
      const event = index.eventAt(place.chunk, place.k);
      if (event >= 0) {
        choose(event);
      }
    }

    function show(newModel, newD, newState) {
      const filter = { action: newState.action, pairs: newState.pairs,
                       hits: newState.hits };
      const fresh = model !== newModel || d !== newD || shown === null
        || Object.keys(filter).some((key) => filter[key] !== shown[key]);
      const moved = fresh || state.event !== newState.event;
      if (model !== newModel) {
        off?.();
        off = newModel.onLoad(redraw);
        action.replaceChildren(make("option", { value: "" }, "all"),
                               ...newModel.actions.map((name) => make(
                                 "option", { value: name }, name)));
      }
      [model, d, state] = [newModel, newD, newState];
      action.value = state.action;
      pairs.checked = state.pairs;
      if (fresh) {
        shown = filter;
        index = createIndex(model, d, filter);
        scanAll().catch(callbacks.error);
      }
      if (model.devices[d].events === 0) {
        output.textContent = "This device has no events: nothing was allocated on it.";
        spacer.replaceChildren();
        return;
      }
      if (moved) {
        reveal().catch(callbacks.error);
      }
      redraw();
    }

    box.addEventListener("scroll", redraw);
    box.addEventListener("keydown", (key) => {
      const page = Math.max(1, Math.floor(box.clientHeight / ROW) - 1);
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
                      Home: -Infinity, End: Infinity };
      if (Object.hasOwn(steps, key.key) && index !== null) {
        key.preventDefault();
        key.stopPropagation();
        step(steps[key.key]).catch(callbacks.error);
      }
    });
    action.addEventListener("change",
                            () => callbacks.change({ action: action.value }));
    pairs.addEventListener("change", () => callbacks.change({ pairs: pairs.checked }));
    new ResizeObserver(redraw).observe(box);
    return { show };
  }

  return { create, createIndex };
})();
