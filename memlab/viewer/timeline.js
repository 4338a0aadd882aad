/* The timeline: live memory over events or time, stacked by group, with its toolbar.
 *
 * Owns what has to be computed again when: columns and bands where the range or the
 * data changed, pixels where a colour did, the rest of the canvas always.  What is
 * chosen goes out through callbacks.change. */
"use strict";

const memlabTimeline = (() => {
  const LEFT = 74;
  const BOTTOM = 24;
  const TOP = 6;
  const TELL_MS = 150;
  const SIZED_OOMS = 8;
  const LEAST_AROUND = 8; /* events shown beside the peak */
  /* Allocations drawn one by one: at first, at least, at most. */
  const DRAWN = { first: 4000, least: 10, most: 20000 };

  const { formatBytes, formatCount, formatTime } = memlabNames;
  const { make } = memlabDescribe;

  let newest = null;

  /* ---- the slider: from least to most by equal ratios ---- */

  function drawnAt(position) {
    return Math.round(DRAWN.least * (DRAWN.most / DRAWN.least) ** (position / 100));
  }

  function positionOf(drawn) {
    const limit = Math.max(DRAWN.least, Math.min(DRAWN.most, drawn));
    return Math.round(100 * Math.log(limit / DRAWN.least)
      / Math.log(DRAWN.most / DRAWN.least));
  }

  function create(element, callbacks) {
    const canvas = make("canvas", { id: "timeline", tabindex: "0", role: "img",
                                    "aria-label": "Live memory over time, stacked" });
    /* Drawn by the processor: most of a frame is pixels that it made. */
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const spoken = make("output", { class: "unseen", "aria-live": "polite" });
    const tools = makeTools();
    element.replaceChildren(tools.bar, make("div", { class: "stage" }, canvas), spoken);

    const self = {
      model: null, d: -1, state: null, port: null, columns: null, bands: null,
      plot: null, notes: null, hits: null, hover: -1, brush: null, limit: DRAWN.first,
      pieces: null, frames: 0, drawMs: 0, complete: false,
    };
    /* What was last computed from what. */
    const made = { columns: "", bands: "", pixels: "", palette: "", stale: false };
    let colors = null;
    let image = null;
    let columnPixels = null; /* of the image, column after column */
    let raf = 0;
    let asked = 0; /* the newest change of the range that waits for a time */
    let told = { x0: -1, x1: -1, y0: -1, y1: -1 };
    let tellTimer = 0;
    let countTimer = 0;
    let grabbed = null; /* where a drag began */
    let offLoad = null;
    let pointed = null;

    /* ---- toolbar ---- */

    function makeTools() {
      const memory = memlabTables.choice(
        "Show", [["", "allocations"], ["segments", "cached segments"]], "",
        (value) => callbacks.change({ memory: value, y0: 0, y1: 0 }));
      const axis = make("select", { id: "timeline-axis" },
                        make("option", { value: "events" }, "events"),
                        make("option", { value: "time" }, "time"));
      const detail = make("input", { id: "timeline-detail", type: "range", min: "0",
                                     max: "100", "aria-label":
                                       "Most allocations drawn one by one" });
      const drawn = make("output", {
        id: "timeline-drawn", for: "timeline-detail",
        title: "Allocations of the visible range that are large enough to be seen; the "
          + "rest of each group is one paler area on top of it" });
      const button = (id, text, click) => make("button", { id, type: "button", click }, text);
      const selection = button("timeline-brush", "Zoom to selection", zoomToBrush);
      axis.addEventListener("change", () => callbacks.change({ axis: axis.value }));
      detail.addEventListener("input", () => {
        self.limit = drawnAt(Number(detail.value));
        redraw();
      });
      detail.addEventListener("change", () => callbacks.change({ drawn: self.limit }));
      const bar = make("div", { class: "toolbar" }, memory.element,
                       make("label", {}, "Axis ", axis),
                       make("label", {}, "Detail ", detail), drawn,
                       button("timeline-peak", "Zoom to peak", zoomToPeak), selection,
                       button("timeline-all", "Show all", () => self.port.showAll()));
      return { bar, memory: memory.select, axis, detail, drawn, selection };
    }

    /* ---- range and heights ---- */

    function device() {
      return self.model.devices[self.d];
    }

    function columnCount() {
      return Math.max(1, Math.round((canvas.clientWidth - LEFT) * ratio()));
    }

    function ratio() {
      return Math.min(2, window.devicePixelRatio || 1);
    }

    function changed() {
      asked += 1;
      redraw();
      clearTimeout(tellTimer);
      tellTimer = setTimeout(tell, TELL_MS);
    }

    /* The range in events, as the rest of the page counts it; 0 to 0 is all. */
    function tell() {
      const { port, columns } = self;
      if (columns === null) {
        return;
      }
      const { y0, y1 } = port.fits() ? { y0: 0, y1: 0 } : port.view;
      if (port.isWhole()) {
        told = { x0: 0, x1: device().events, y0, y1 };
        callbacks.change({ x0: 0, x1: 0, y0, y1 });
        return;
      }
      const { axis, x0, x1 } = port.range;
      const [first, last] = memlabColumns.eventsOf(columns, device(), 0, 1);
      told = axis === "time" ? { x0: first, x1: last + 1, y0, y1 } : { x0, x1, y0, y1 };
      callbacks.change(told);
    }

    async function showEvents(x0, x1) {
      const { port } = self;
      if (port.range.axis !== "time") {
        port.setRange(x0, x1);
        return;
      }
      asked += 1;
      const mine = asked;
      const from = x0 <= 0 ? port.extent.from
        : await self.model.timeOf(self.d, Math.floor(x0));
      const to = x1 >= device().events ? port.extent.to
        : await self.model.timeOf(self.d, Math.ceil(x1) - 1) + 1;
      if (mine === asked) {
        port.setRange(from, to);
      }
    }

    function zoomToPeak() {
      const { events, peak } = device();
      const half = Math.max(LEAST_AROUND, events / 20);
      showEvents(Math.max(0, peak.event - half), Math.min(events, peak.event + half))
        .catch(callbacks.error);
    }

    function zoomToBrush() {
      if (self.state.brush !== null) {
        const [from, to] = self.state.brush;
        showEvents(from, to + 1).catch(callbacks.error);
      }
    }

    /* ---- drawing ---- */

    function redraw() {
      if (raf === 0) {
        raf = requestAnimationFrame(() => {
          raf = 0;
          try {
            draw();
          }
          catch (error) {
            callbacks.error(error);
          }
        });
      }
    }

    function resize() {
      const scale = ratio();
      const width = Math.round(canvas.clientWidth * scale);
      const height = Math.round(canvas.clientHeight * scale);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
      }
      context.setTransform(scale, 0, 0, scale, 0, 0);
      return scale;
    }

    function draw() {
      if (self.port === null || canvas.clientWidth <= LEFT + 10
          || canvas.clientHeight < 60) {
        return;
      }
      const started = performance.now();
      const scale = resize();
      const page = memlabColors.page();
      context.fillStyle = page.canvas;
      context.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
      if (device().events === 0) {
        context.fillStyle = page.quiet;
        context.fillText("This device has no events: nothing was allocated on it.", LEFT,
                         40);
        return;
      }
      const top = TOP + memlabMarks.laneHeight(self.notes);
      const plot = { left: LEFT, top, width: canvas.clientWidth - LEFT,
                     height: canvas.clientHeight - BOTTOM - top, range: self.port.range,
                     view: self.port.view, extent: self.port.extent, page,
                     notes: self.notes, columns: null };
      self.plot = plot;
      const columns = Math.round(plot.width * scale);
      const rows = Math.round(plot.height * scale);
      compute(columns, rows, page);
      plot.columns = self.columns;
      plot.ooms = oomsInRange();
      plot.lastEvent = device().events - 1;
      context.putImageData(image, Math.round(LEFT * scale), Math.round(top * scale));
      const { event, other } = self.state;
      memlabMarks.draw(context, plot, { peak: device().peak, event, other,
                                        brush: self.brush ?? self.state.brush,
                                        hits: self.pieces === null
                                          ? self.state.hits?.starts ?? null : null });
      self.frames += 1;
      self.drawMs = performance.now() - started;
      if (self.frames === 1) {
        performance.mark("memlab-timeline");
      }
    }

    function compute(width, rows, page) {
      const { model, d, port: { view } } = self;
      const scheme = self.state.color;
      const range = { ...self.port.range, width };
      const { pieces } = self;
      const wanted = [d, scheme, range.axis, range.x0, range.x1, width,
                      pieces === null].join(" ");
      if (made.columns !== wanted || made.stale) {
        const columns = memlabColumns.sample(model, d, scheme, range);
        self.columns = pieces === null ? columns
          : memlabCached.columnsOf(pieces, columns, device().events);
        made.columns = wanted;
        made.bands = "";
      }
      const rowsAByte = rows / (view.y1 - view.y0);
      const chosen = [rowsAByte, self.limit].join(" ");
      if (made.bands !== chosen) {
        self.bands = pieces !== null
          ? memlabCached.bandsOf(pieces, self.columns, rowsAByte, self.limit)
          : memlabBands.select(model, d, scheme, range, self.columns, rowsAByte, self.limit);
        made.bands = chosen;
        made.pixels = "";
        /* Each change of it lays the toolbar out anew, which takes as long as a frame. */
        clearTimeout(countTimer);
        countTimer = setTimeout(countDrawn, tools.drawn.textContent === "" ? 0 : TELL_MS);
      }
      made.stale = false;
      self.complete = self.columns.complete && self.bands.whole;
      const palette = [scheme, d, memlabColors.isDark(), pieces === null].join(" ");
      if (made.palette !== palette) {
        colors = memlabBands.palette(pieces !== null ? memlabCached.colors()
          : device().groups[scheme].map((_, g) => memlabColors.group(model, d, scheme, g)),
                                     page);
        made.palette = palette;
        made.pixels = "";
      }
      const pinned = pieces === null ? self.state.pinned?.id ?? -1 : -1;
      const look = [view.y0, view.y1, rows, self.hover, pinned].join(" ");
      const hits = pieces === null ? self.state.hits ?? null : null;
      if (made.pixels !== look || hits !== self.hits) {
        self.hits = hits;
        made.pixels = look;
        if (image === null || image.width !== width || image.height !== rows) {
          image = context.createImageData(width, rows);
          columnPixels = new Uint32Array(width * rows);
        }
        memlabBands.raster(
          self.columns, self.bands, view, rows,
          memlabBands.look(self.bands, colors, self.hits, [self.hover, pinned]),
          columnPixels);
        memlabBands.transpose(columnPixels, new Uint32Array(image.data.buffer), width,
                              rows);
      }
    }

    /* Of few of them what was asked for, which their chunks tell. */
    function oomsInRange() {
      const { model, d, columns } = self;
      const [first, last] = memlabColumns.eventsOf(columns, device(), 0, 1);
      const ooms = device().ooms.filter((event) => event >= first && event <= last);
      return ooms.map((event) => {
        const chunk = ooms.length > SIZED_OOMS ? null
          : model.chunkNow(d, model.chunkOf(d, event));
        return { event, bytes: chunk?.events.size[event - chunk.first] ?? null };
      });
    }

    function countDrawn() {
      countTimer = 0;
      if (self.bands === null) {
        return; /* another recording is about to be drawn */
      }
      const { count, of } = self.bands;
      const text = count === of ? `all ${formatCount(count)} drawn`
        : `${formatCount(count)} of ${formatCount(of)} drawn`;
      if (tools.drawn.textContent !== text) {
        tools.drawn.textContent = text;
      }
    }

    /* ---- pointing ---- */

    function probe(at) {
      if (self.columns === null || !at.inside) {
        return null;
      }
      const { columns, port: { view } } = self;
      const p = Math.min(columns.width - 1, Math.floor(at.x * columns.width));
      if (columns.source[p] < 0) {
        return null;
      }
      const bytes = view.y0 + at.y * (view.y1 - view.y0);
      return { p, event: columns.event[p],
               what: memlabBands.hit(columns, self.bands, p, bytes) };
    }

    /* The chunk that an event is in, with the row of an allocation; row -1: not
     * there. */
    function rowOf(event, id) {
      const chunk = self.model.chunkNow(self.d, self.model.chunkOf(self.d, event));
      return { chunk, row: chunk === null ? -1 : chunk.rows.id.indexOf(id) };
    }

    function totalsText(p) {
      const { event, allocated, active, time } = self.columns;
      return [`event ${formatCount(event[p])}, ${formatTime(time[p])}`,
              `${formatBytes(allocated[p])} allocated (${formatCount(allocated[p])} B)`,
              `${formatBytes(active[p])} active (${formatCount(active[p])} B)`];
    }

    function tellHover(found, pointer) {
      const place = { x: pointer.clientX, y: pointer.clientY, event: found.event };
      const { what, p } = found;
      if (self.pieces !== null) {
        callbacks.hover({ ...place, lines: segmentLines(what, p) });
        return;
      }
      if (what !== null && what.waiting) {
        const { allocated, active } = self.columns;
        const waits = active[p] - allocated[p];
        callbacks.hover({ ...place, lines: [
          `${formatBytes(waits)} freed, waiting for another stream`, ...totalsText(p)] });
      }
      else if (what !== null && what.band >= 0) {
        const { chunk, row } = rowOf(found.event, self.bands.id[what.band]);
        callbacks.hover(row >= 0 ? { ...place, chunk, row }
          : { ...place, group: what.group });
      }
      else if (what !== null) {
        callbacks.hover({ ...place, group: what.group });
      }
      else {
        callbacks.hover({ ...place, lines: totalsText(p) });
      }
    }

    function segmentLines(what, p) {
      const { event, time, reserved } = self.columns;
      const { model, d, pieces, bands } = self;
      const of = (what?.band ?? -1) < 0 ? []
        : memlabCached.tipLines(model, d, pieces, bands.id[what.band]);
      return [...of, `event ${formatCount(event[p])}, ${formatTime(time[p])}`,
              `${formatBytes(reserved[p])} reserved (${formatCount(reserved[p])} B)`];
    }

    function hoverAt(at, pointer) {
      const found = at === null ? null : probe(at);
      const band = found?.what?.band ?? -1;
      const id = band >= 0 ? self.bands.id[band] : -1;
      if (id !== self.hover) {
        self.hover = id;
        redraw();
      }
      pointed = found === null ? null : { at, pointer };
      if (found === null) {
        callbacks.hover(null);
      }
      else {
        tellHover(found, pointer);
      }
    }

    async function pick(at) {
      const found = probe(at);
      if (found === null) {
        return;
      }
      const { event, what } = found;
      const band = self.pieces === null ? what?.band ?? -1 : -1;
      if (band < 0) {
        callbacks.change({ event, pinned: null });
        return;
      }
      const id = self.bands.id[band];
      const chunk = self.model.chunkOf(self.d, event);
      await self.model.chunk(self.d, chunk);
      callbacks.change({ event, pinned: { chunk, id } });
    }

    function eventsBetween(from, to) {
      return memlabColumns.eventsOf(self.columns, device(), Math.min(from.x, to.x),
                                    Math.max(from.x, to.x));
    }

    function zoomToBox(from, to) {
      const { range: { x0, x1 }, view: { y0, y1 } } = self.port;
      const [a, b] = [Math.min(from.x, to.x), Math.max(from.x, to.x)];
      const [low, high] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
      if (b > a && high > low) {
        self.port.setHeights(y0 + (y1 - y0) * low, y0 + (y1 - y0) * high);
        self.port.setRange(x0 + (x1 - x0) * a, x0 + (x1 - x0) * b);
      }
    }

    const panBy = (x, y) => () => self.port.pan(x, y);
    const zoomBy = (factor) => () => self.port.zoom(factor, 0.5);
    const toEnd = (x) => () => {
      const { range: { x0, x1 }, extent } = self.port;
      self.port.setRange(x < 0 ? extent.from : extent.to - (x1 - x0),
                         x < 0 ? extent.from + x1 - x0 : extent.to);
    };
    memlabGestures.attach(canvas, {
      area: () => self.plot ?? { left: LEFT, top: TOP, width: 1, height: 1 },
      begin: () => { grabbed = self.port.copy(); },
      end: () => { grabbed = null; },
      pan: (x, y) => self.port.pan(x, y, grabbed),
      zoom: (factor, at) => self.port.zoom(factor, at),
      stretch: (factor, at) => self.port.stretch(factor, at),
      brush: (from, to, done) => {
        self.brush = done ? null : eventsBetween(from, to);
        if (done) {
          callbacks.change({ brush: eventsBetween(from, to) });
        }
        redraw();
      },
      box: (from, to) => {
        self.brush = null;
        zoomToBox(from, to);
        redraw();
      },
      click: (at) => pick(at).catch(callbacks.error),
      hover: hoverAt,
      moved: speak,
      keys: {
        ArrowLeft: panBy(-0.1, 0), ArrowRight: panBy(0.1, 0), ArrowUp: panBy(0, 0.1),
        ArrowDown: panBy(0, -0.1), "+": zoomBy(0.7), "=": zoomBy(0.7),
        "-": zoomBy(1 / 0.7), "]": () => self.port.stretch(0.7, 0),
        "[": () => self.port.stretch(1 / 0.7, 0), 0: () => self.port.showAll(),
        z: zoomToBrush, Home: toEnd(-1), End: toEnd(1),
      },
    });
    new ResizeObserver(redraw).observe(canvas);

    /* For who moves by keys and does not see the picture. */
    function speak() {
      requestAnimationFrame(() => {
        const { allocated, event, width } = self.columns;
        const [first, last] = memlabColumns.eventsOf(self.columns, device(), 0, 1);
        let best = 0;
        for (let p = 1; p < width; p++) {
          best = allocated[p] > allocated[best] ? p : best;
        }
        spoken.textContent = `Events ${formatCount(first)} to `
          + `${formatCount(last)} of ${formatCount(device().events)}; most `
          + `allocated ${formatBytes(allocated[best])} at event ${formatCount(event[best])}`;
      });
    }

    /* ---- what the page shows ---- */

    function open(model, d) {
      if (self.model !== model) {
        offLoad?.();
        offLoad = model.onLoad(() => {
          made.stale = true;
          redraw();
          if (pointed !== null) {
            hoverAt(pointed.at, pointed.pointer);
          }
        });
      }
      Object.assign(self, { model, d, notes: memlabMarks.sortNotes(model, d), hover: -1,
                            columns: null, bands: null, brush: null, port: null,
                            pieces: null });
      made.columns = "";
      made.palette = "";
      told = { x0: -1, x1: -1, y0: -1, y1: -1 };
    }

    function takeAxis(axis) {
      tools.axis.value = axis;
      const all = self.pieces !== null;
      if (self.port === null || self.port.range.axis !== axis || self.port.all !== all) {
        const view = self.port?.all === all ? self.port.view : {};
        self.port = memlabViewport.create(self.model, self.d, axis, columnCount, changed,
                                          all);
        Object.assign(self.port.view, view);
        told.x0 = -1;
      }
    }

    async function takeRange({ x0, x1, y0, y1 }) {
      if (told.x0 !== x0 || told.x1 !== x1) {
        told = { ...told, x0, x1 };
        await showEvents(x0, x1);
      }
      if (told.y0 !== y0 || told.y1 !== y1) {
        told = { ...told, y0, y1 };
        if (y1 > y0) {
          self.port.setHeights(y0, y1);
        }
        else {
          self.port.fit();
        }
      }
    }

    async function show(model, d, state) {
      if (self.model !== model || self.d !== d) {
        open(model, d);
      }
      self.state = state;
      self.limit = state.drawn > 0 ? state.drawn : DRAWN.first;
      tools.detail.value = String(positionOf(self.limit));
      tools.selection.disabled = state.brush === null;
      tools.memory.value = state.memory;
      const pieces = state.memory === "segments" ? await model.segments(d) : null;
      if (self.state !== state) {
        return; /* a newer one is shown */
      }
      if (pieces !== self.pieces) {
        Object.assign(self, { pieces, hover: -1 });
      }
      takeAxis(state.axis);
      if (device().events > 0) {
        await takeRange({ x0: state.x0, x1: state.x1, y0: state.y0 ?? 0,
                          y1: state.y1 ?? 0 });
      }
      redraw();
    }

    /* Whether what is shown is what was asked for. */
    self.idle = () => raf === 0 && !made.stale && countTimer === 0;
    newest = { self, device };
    return { show, redraw };
  }

  /* The view made last, as it stands: for tests, and for measuring frames. */
  return { create, drawnAt, positionOf, newest: () => newest };
})();
