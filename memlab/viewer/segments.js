/* The Allocator state view: device memory after the chosen event, segment by segment.
 *
 * Owns pan, zoom, hover and keys, and what an event changed in words; memory.js makes the
 * state, lanes.js draws it.  What is chosen or pointed at goes out through the
 * callbacks. */
"use strict";

const memlabSegments = (() => {
  const DRAG_SLACK = 3;
  const NARROWEST = 1e-6;

  const { formatBytes, exactBytes, formatCount, allocationName, plural } = memlabNames;
  const { make } = memlabDescribe;
  const { stateAt, largestHole } = memlabMemory;

  /* ---- what an event did, in words ---- */

  function changeText(model, chunk, i) {
    const { events, rows } = chunk;
    const row = events.row[i];
    const action = model.actions[events.action[i]];
    const bytes = formatBytes(row >= 0 ? rows.bytes[row] : events.size[i]);
    const name = memlabNames.eventName(model, chunk, i);
    const words = { alloc: "allocated", free_requested: "free asked for",
                    free_completed: "freed", segment_alloc: "new segment",
                    segment_free: "segment given back", segment_map: "mapped",
                    segment_unmap: "unmapped", oom: "out of memory: asked for" };
    return `${words[action] ?? action} ${name} ${name === "" && row < 0
      && action !== "oom" ? "" : bytes}`.replace(/\s+/g, " ").trim();
  }

  /* ---- the request that failed ---- */

  function oomBar(text, bytes, most, kind) {
    const bar = make("span", { class: `bar ${kind}` });
    bar.style.width = `${Math.max(0.5, bytes / most * 100).toFixed(2)}%`;
    return make("div", { class: "oom-row" }, make("span", { class: "label" }, text),
                make("span", { class: "track" }, bar));
  }

  /* The request beside the largest hole: of its stream, or of all where that is larger. */
  function oomParts(model, chunk, i, segments) {
    const asked = chunk.events.size[i];
    const stream = chunk.events.stream[i];
    const own = largestHole(segments, chunk.rows,
                            (s) => s.stream === stream && !s.isPrivate && s.name !== "");
    const any = largestHole(segments, chunk.rows, (s) => s.name !== "");
    const ownBytes = own === null ? 0 : own.bytes;
    const most = Math.max(1, asked, any === null ? 0 : any.bytes);
    const place = own === null ? "" : ` in ${own.segment.name}`;
    const parts = [
      make("strong", {}, "Out of memory. "), memlabDescribe.oomText(chunk, i),
      oomBar(`asked for ${formatBytes(asked)}`, asked, most, "asked"),
      oomBar(`largest hole ${formatBytes(ownBytes)}${place}`, ownBytes, most, "hole"),
    ];
    if (any !== null && any.bytes > ownBytes) {
      parts.push(oomBar(`${formatBytes(any.bytes)} in ${any.segment.name}, of another `
        + "stream or a private pool", any.bytes, most, "hole"));
    }
    return { parts, hole: own };
  }

  /* ---- the view ---- */

  function create(element, callbacks) {
    const summary = make("output", {});
    const changed = make("output", { class: "changed", "aria-live": "polite" });
    const order = make("select", { "aria-label": "Order of segments" },
                       make("option", { value: "address" }, "by address"),
                       make("option", { value: "size" }, "by size"));
    const scale = make("select", {},
                       make("option", { value: "" }, "to scale"),
                       make("option", { value: "each" }, "each all of it"));
    const cursorText = make("p", { class: "unseen", "aria-live": "polite" });
    const oom = make("div", { class: "oom" });
    const canvas = make("canvas", {
      tabindex: "0", role: "application",
      "aria-label": "Segments and their blocks after the chosen event. Up and down: "
        + "segment; left and right: block; Enter: pin; plus and minus: zoom." });
    const spacer = make("div", {});
    const stage = make("div", { class: "stage" }, canvas, spacer);
    const events = make("div", { class: "event-pane" });
    element.append(events, make("div", { class: "segment-pane" },
      make("div", { class: "toolbar" }, summary, changed,
           make("label", {}, "Segments ", order), make("label", {}, "Width ", scale)),
      oom, stage, cursorText));
    const list = memlabEvents.create(events, callbacks, { compact: true });
    const self = { model: null, d: 0, state: null, chunk: null, segments: [],
                   pieces: null, hole: null, focus: -1, x0: 0, x1: 1, lane: 1,
                   scaled: true, most: 1,
                   cursor: { s: 0, k: -1 } };
    const { draw, isAbout, laneX, laneWidth, probe, ...lanes } = memlabLanes.create(
      self, canvas, stage);
    let raf = 0;
    let drag = null;
    let shows = 0;

    function redraw() {
      if (raf === 0) {
        raf = requestAnimationFrame(() => {
          raf = 0;
          draw();
        });
      }
    }

    function layout() {
      lanes.layout();
      spacer.style.height = `${Math.max(0, self.lane * self.segments.length
        - stage.clientHeight)}px`;
    }

    /* The pinned allocation, or that of the event, stands out. */
    function focusOf(chunk, state) {
      if (state.pinned !== null) {
        const row = memlabQuery.rowOf(chunk, state.pinned.id);
        if (row >= 0) {
          return row;
        }
      }
      return state.event < 0 ? -1 : chunk.events.row[state.event - chunk.first];
    }

    async function show(model, d, state) {
      shows += 1;
      const mine = shows;
      list.show(model, d, state);
      const device = model.devices[d];
      if (device.chunkCount === 0) {
        Object.assign(self, { model, d, state, chunk: null, segments: [] });
        summary.textContent = "This device has no events: nothing was allocated on it.";
        redraw();
        return;
      }
      const event = state.event;
      const [pieces, chunk] = await Promise.all(
        [model.segments(d), model.chunk(d, model.chunkOf(d, event))]);
      if (mine !== shows) {
        return;
      }
      const sameMoment = self.chunk === chunk && self.state.event === event
        && self.model === model && self.d === d;
      const jumped = self.model !== model || self.d !== d;
      Object.assign(self, { model, d, state, chunk, pieces, focus: focusOf(chunk, state) });
      order.value = state.order === "size" ? "size" : "address";
      scale.value = state.scale;
      self.scaled = state.scale === "";
      if (!sameMoment || jumped || self.order !== order.value) {
        self.order = order.value;
        self.segments = stateAt(pieces, chunk, event);
        if (self.order === "size") {
          self.segments.sort((a, b) => b.bytes - a.bytes);
        }
        self.most = self.segments.reduce((most, { bytes }) => Math.max(most, bytes), 1);
        self.cursor = { s: 0, k: -1 };
        tell();
        layout();
        reveal();
      }
      redraw();
    }

    /* What there is after the event and what it changed. */
    function tell() {
      const { model, chunk, state, segments } = self;
      const i = state.event - chunk.first;
      const totals = i < 0 ? chunk.before
        : { allocated: chunk.totals.allocated[i], active: chunk.totals.active[i],
            reserved: chunk.totals.reserved[i] };
      const present = segments.filter((s) => !s.gone && s.name !== "").length;
      const words = memlabDescribe.totalsText(totals.allocated, totals.active,
                                              totals.reserved);
      summary.textContent = `${state.event < 0 ? "Before the first event"
        : `After event ${formatCount(state.event)}`}: ${words} in `
        + plural(present, "segment");
      summary.title = ["allocated", "active", "reserved"]
        .map((name) => `${formatCount(totals[name])} B ${name}`).join(", ");
      changed.textContent = i < 0 ? "" : changeText(model, chunk, i);
      self.hole = null;
      const isOom = i >= 0 && model.actions[chunk.events.action[i]] === "oom";
      oom.hidden = !isOom;
      if (isOom) {
        const { parts, hole } = oomParts(model, chunk, i, segments);
        oom.replaceChildren(...parts);
        self.hole = hole;
      }
    }

    function reveal() {
      const s = self.segments.findIndex(isAbout);
      const top = s * self.lane;
      if (s >= 0 && (top < stage.scrollTop
                     || top + self.lane > stage.scrollTop + stage.clientHeight)) {
        stage.scrollTop = top - stage.clientHeight / 2;
      }
    }

    /* ---- pointer ---- */

    function tellHover(found, x, y) {
      if (found === null) {
        callbacks.hover(null);
      }
      else if (found.row >= 0) {
        callbacks.hover({ x, y, event: self.state.event, chunk: self.chunk,
                          row: found.row });
      }
      else {
        callbacks.hover({ x, y, parts: memlabDescribe.segmentTip(
          self.model, found.segment, found.free) });
      }
    }

    function pick(row) {
      callbacks.change({ pinned: row < 0 ? null
        : { chunk: self.chunk.index, id: self.chunk.rows.id[row] } });
    }

    function setRange(x0, x1) {
      const span = Math.min(1, Math.max(NARROWEST, x1 - x0));
      self.x0 = Math.max(0, Math.min(1 - span, x0));
      self.x1 = self.x0 + span;
      redraw();
    }

    function zoom(factor, share) {
      const at = self.x0 + (self.x1 - self.x0) * share;
      setRange(at - (at - self.x0) * factor, at + (self.x1 - at) * factor);
    }

    canvas.addEventListener("wheel", (wheel) => {
      if (!wheel.shiftKey && !wheel.ctrlKey) {
        return;
      }
      wheel.preventDefault();
      const box = stage.getBoundingClientRect();
      const share = (wheel.clientX - box.left - lanes.left()) / laneWidth();
      const delta = wheel.deltaY || wheel.deltaX;
      zoom(Math.exp(Math.max(-1, Math.min(1, delta / 250))),
           Math.max(0, Math.min(1, share)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (pointer) => {
      canvas.setPointerCapture(pointer.pointerId);
      drag = { x: pointer.clientX, x0: self.x0, x1: self.x1, moved: false };
    });
    canvas.addEventListener("pointermove", (pointer) => {
      if (self.chunk === null) {
        return;
      }
      if (drag === null) {
        tellHover(probe(pointer), pointer.clientX, pointer.clientY);
        return;
      }
      const shift = (pointer.clientX - drag.x) / laneWidth() * (drag.x1 - drag.x0);
      drag.moved ||= Math.abs(pointer.clientX - drag.x) > DRAG_SLACK;
      setRange(drag.x0 - shift, drag.x1 - shift);
    });
    canvas.addEventListener("pointerup", (pointer) => {
      if (drag !== null && !drag.moved && self.chunk !== null) {
        const found = probe(pointer);
        pick(found === null ? -1 : found.row);
      }
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => {
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => callbacks.hover(null));

    /* ---- keys ---- */

    function moveCursor(ds, dk) {
      const { cursor, segments } = self;
      cursor.s = Math.max(0, Math.min(segments.length - 1, cursor.s + ds));
      const segment = segments[cursor.s];
      if (segment === undefined) {
        return;
      }
      cursor.k = ds !== 0 ? -1
        : Math.max(-1, Math.min(segment.rows.length - 1, cursor.k + dk));
      const top = cursor.s * self.lane;
      if (top < stage.scrollTop || top + self.lane > stage.scrollTop + stage.clientHeight) {
        stage.scrollTop = top - stage.clientHeight / 2;
      }
      redraw();
      sayCursor(segment);
    }

    function sayCursor(segment) {
      const { k } = self.cursor;
      const { rows } = self.chunk;
      const box = stage.getBoundingClientRect();
      const offset = k < 0 ? 0 : segment.offsets[k];
      const x = Math.max(lanes.left(), Math.min(stage.clientWidth, laneX(segment, offset)));
      const found = { segment, row: k < 0 ? -1 : segment.rows[k], free: 0 };
      tellHover(found, box.left + x,
                box.top + (self.cursor.s + 1) * self.lane - stage.scrollTop);
      cursorText.textContent = k < 0
        ? `${segment.name || "blocks, end to end"}, ${formatBytes(segment.bytes)}, `
          + plural(segment.rows.length, "block")
        : `${allocationName(rows, found.row)}, ${exactBytes(rows.bytes[found.row])}, `
          + memlabNames.kindPlace(self.model, rows.kind[found.row]);
    }

    canvas.addEventListener("keydown", (key) => {
      const { cursor, segments } = self;
      const step = (self.x1 - self.x0) / 10;
      const actions = {
        ArrowUp: () => moveCursor(-1, 0),
        ArrowDown: () => moveCursor(1, 0),
        ArrowLeft: () => key.shiftKey
          ? setRange(self.x0 - step, self.x1 - step) : moveCursor(0, -1),
        ArrowRight: () => key.shiftKey
          ? setRange(self.x0 + step, self.x1 + step) : moveCursor(0, 1),
        Enter: () => pick(cursor.k < 0 ? -1 : segments[cursor.s].rows[cursor.k]),
        "+": () => zoom(0.7, 0.5),
        "=": () => zoom(0.7, 0.5),
        "-": () => zoom(1 / 0.7, 0.5),
        0: () => setRange(0, 1),
      };
      if (Object.hasOwn(actions, key.key) && !key.ctrlKey && !key.metaKey
          && self.chunk !== null) {
        key.preventDefault();
        key.stopPropagation();
        actions[key.key]();
      }
    });
    for (const kind of ["focus", "blur"]) {
      canvas.addEventListener(kind, redraw);
    }
    order.addEventListener("change", () => callbacks.change({ order: order.value }));
    scale.addEventListener("change", () => callbacks.change({ scale: scale.value }));
    stage.addEventListener("scroll", redraw);
    new ResizeObserver(() => {
      layout();
      redraw();
    }).observe(stage);
    return { show, self };
  }

  return { create };
})();
