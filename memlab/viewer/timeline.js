/* The Active Memory Timeline: one canvas, its axes, pan, zoom, hover and keys.
 *
 * Owns the canvas and the visible range; what is drawn comes from memlabBands, what is
 * chosen goes out through the callbacks.  Knows nothing of the rest of the page. */
"use strict";

const memlabTimeline = (() => {
  const LEFT = 74;
  const BOTTOM = 24;
  const TOP = 18;
  const HEADROOM = 1.04;
  const MOST_RESERVED = 2.5;
  const MIN_EVENTS = 8;
  const FLAG_ROWS = 4;
  const DRAG_SLACK = 3;

  const { formatBytes, formatTime, formatCount } = memlabModel;
  const { axisOf, eventAt, positionOf, sampleColumns, raster, hit } = memlabBands;

  /* STEP of the form 1, 2 or 5 times a power of ten (of two for bytes). */
  function niceStep(span, ticks, binary) {
    const raw = span / ticks;
    if (binary) {
      return 2 ** Math.ceil(Math.log2(Math.max(raw, 1)));
    }
    const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)));
    const factor = [1, 2, 5, 10].find((f) => f * power >= raw);
    return Math.max(1, factor * power);
  }

  function create(canvas, callbacks) {
    const context = canvas.getContext("2d");
    const image = document.createElement("canvas");
    const imageContext = image.getContext("2d");
    const self = {
      device: null, selection: null, look: null, axis: null, index: null,
      view: { x0: 0, x1: 1, y0: 0, y1: 1 }, samples: null, hover: null, pinned: -1,
      marked: -1, width: 0, height: 0, frames: 0, drawMs: 0,
    };
    let raf = 0;
    let drag = null;

    /* Heights in bytes: all there is, and what is shown first.  Far more reserved than
     * ever active would leave the bands no room, so the line then starts out of sight. */
    function heights() {
      const { totals, events } = self.device;
      let active = 1;
      let reserved = 1;
      for (let e = 0; e < events.count; e++) {
        active = Math.max(active, totals.active[e]);
        reserved = Math.max(reserved, totals.reserved[e]);
      }
      self.full = Math.max(active, reserved) * HEADROOM;
      self.fit = reserved > active * MOST_RESERVED ? active * 1.15 : self.full;
    }

    function setDevice(device, kind) {
      self.device = device;
      self.index = memlabBands.peakIndex(device.totals.active);
      self.axis = axisOf(device, kind);
      heights();
      self.view = { x0: 0, x1: self.axis.length, y0: 0, y1: self.fit };
      self.hover = null;
      self.pinned = -1;
      self.marked = -1;
    }

    /* Keeps the same events in view when the axis changes. */
    function setAxis(kind) {
      const { count } = self.device.events;
      const from = Math.max(0, eventAt(self.axis, self.view.x0, count));
      const to = eventAt(self.axis, self.view.x1, count);
      self.axis = axisOf(self.device, kind);
      const x1 = to >= count - 1 ? self.axis.length : positionOf(self.axis, to);
      setRange(positionOf(self.axis, from), x1);
    }

    function narrowest() {
      return self.axis.kind === "events"
        ? Math.min(MIN_EVENTS, self.axis.length) : Math.min(10, self.axis.length);
    }

    function setRange(x0, x1) {
      const span = Math.min(self.axis.length, Math.max(narrowest(), x1 - x0));
      const from = Math.max(0, Math.min(self.axis.length - span, x0));
      self.view.x0 = from;
      self.view.x1 = from + span;
      changed();
    }

    function setHeights(y0, y1) {
      const span = Math.min(self.full, Math.max(1024, y1 - y0));
      self.view.y0 = Math.max(0, Math.min(self.full - span, y0));
      self.view.y1 = self.view.y0 + span;
      changed();
    }

    function changed() {
      callbacks.range(self.view);
      redraw();
    }

    function zoom(factor, at, vertical) {
      const { x0, x1, y0, y1 } = self.view;
      if (vertical) {
        const y = y0 + (y1 - y0) * at;
        setHeights(y - (y - y0) * factor, y + (y1 - y) * factor);
      }
      else {
        const x = x0 + (x1 - x0) * at;
        const least = narrowest() / (x1 - x0);
        const f = Math.max(factor, least);
        setRange(x - (x - x0) * f, x + (x1 - x) * f);
      }
    }

    function redraw() {
      if (raf === 0) {
        raf = requestAnimationFrame(() => {
          raf = 0;
          draw();
        });
      }
    }

    function resize() {
      const ratio = Math.min(2, window.devicePixelRatio || 1);
      const width = Math.round(canvas.clientWidth * ratio);
      const height = Math.round(canvas.clientHeight * ratio);
      if (canvas.width !== width || canvas.height !== height) {
        canvas.width = width;
        canvas.height = height;
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      self.ratio = ratio;
      self.width = canvas.clientWidth - LEFT;
      self.height = canvas.clientHeight - BOTTOM - TOP;
    }

    function draw() {
      if (self.device === null || canvas.clientWidth === 0) {
        return;
      }
      const started = performance.now();
      resize();
      const { colors } = self.look;
      context.fillStyle = colors.canvas;
      context.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
      if (self.device.events.count === 0 || self.width < 10 || self.height < 10) {
        context.fillStyle = colors.quiet;
        context.fillText("This device has no events.", LEFT, 40);
        return;
      }
      drawBands();
      drawAxes();
      drawReserved();
      drawMarks();
      self.frames += 1;
      self.drawMs = performance.now() - started;
    }

    /* The raster's columns are contiguous, so the picture is made lying on its side and
     * turned while it is copied to the canvas. */
    function drawBands() {
      const columns = Math.round(self.width * self.ratio);
      const rows = Math.round(self.height * self.ratio);
      if (self.pixels === undefined || image.width !== rows
          || image.height !== columns) {
        image.width = rows;
        image.height = columns;
        self.pixels = imageContext.createImageData(rows, columns);
      }
      self.samples = sampleColumns(self.axis, self.index, self.device.events.count,
                                   self.view.x0, self.view.x1, columns);
      const look = highlighted();
      raster(self.device, self.selection, self.samples, self.view, rows, look,
             new Uint32Array(self.pixels.data.buffer));
      restore(look);
      imageContext.putImageData(self.pixels, 0, 0);
      context.save();
      context.imageSmoothingEnabled = false;
      context.setTransform(0, 1, 1, 0, LEFT * self.ratio, TOP * self.ratio);
      context.drawImage(image, 0, 0);
      context.restore();
    }

    function highlighted() {
      const { fill, chosen } = self.look;
      self.saved = [self.hover, self.pinned]
        .filter((id) => typeof id === "number" && id >= 0)
        .map((id) => [id, fill[id]]);
      for (const [id] of self.saved) {
        fill[id] = chosen;
      }
      return self.look;
    }

    function restore(look) {
      for (const [id, color] of self.saved.reverse()) {
        look.fill[id] = color;
      }
    }

    function screenX(position) {
      const { x0, x1 } = self.view;
      return LEFT + (position - x0) / (x1 - x0) * self.width;
    }

    function screenY(bytes) {
      const { y0, y1 } = self.view;
      return TOP + self.height - (bytes - y0) / (y1 - y0) * self.height;
    }

    function drawAxes() {
      const { colors } = self.look;
      const { x0, x1, y0, y1 } = self.view;
      context.font = "11px system-ui, sans-serif";
      context.lineWidth = 1;
      context.textBaseline = "middle";
      context.textAlign = "right";
      const stepY = niceStep(y1 - y0, self.height / 60, true);
      for (let y = Math.ceil(y0 / stepY) * stepY; y <= y1; y += stepY) {
        const py = Math.round(screenY(y)) + 0.5;
        context.strokeStyle = colors.gridOver;
        line(LEFT, py, LEFT + self.width, py);
        context.fillStyle = colors.quiet;
        context.fillText(formatBytes(y), LEFT - 6, py);
      }
      context.textAlign = "center";
      context.textBaseline = "top";
      const stepX = niceStep(x1 - x0, self.width / 110, false);
      for (let x = Math.ceil(x0 / stepX) * stepX; x <= x1; x += stepX) {
        const px = Math.round(screenX(x)) + 0.5;
        context.strokeStyle = colors.grid;
        line(px, TOP + self.height, px, TOP + self.height + 4);
        context.fillStyle = colors.quiet;
        context.fillText(
          self.axis.kind === "time" ? formatTime(x) : formatCount(x), px,
          TOP + self.height + 7);
      }
      context.strokeStyle = colors.grid;
      line(LEFT + 0.5, TOP, LEFT + 0.5, TOP + self.height);
    }

    function line(xa, ya, xb, yb) {
      context.beginPath();
      context.moveTo(xa, ya);
      context.lineTo(xb, yb);
      context.stroke();
    }

    function drawReserved() {
      const { reserved } = self.device.totals;
      const { samples, ratio, look } = self;
      context.save();
      context.beginPath();
      context.rect(LEFT, TOP, self.width, self.height);
      context.clip();
      context.beginPath();
      let last = NaN;
      for (let c = 0; c < samples.length; c++) {
        const y = screenY(reserved[samples[c]]);
        if (c === 0) {
          context.moveTo(LEFT, y);
        }
        else if (y !== last) {
          context.lineTo(LEFT + c / ratio, last);
          context.lineTo(LEFT + c / ratio, y);
        }
        last = y;
      }
      context.lineTo(LEFT + self.width, last);
      context.strokeStyle = look.colors.text;
      context.setLineDash([5, 3]);
      context.stroke();
      context.setLineDash([]);
      context.textAlign = "left";
      context.textBaseline = "bottom";
      label(`${last < TOP ? "↑ " : ""}reserved ${formatBytes(
        reserved[samples[samples.length - 1]])}`, LEFT + self.width,
            Math.max(TOP + 14, last - 3), look.colors.text);
      context.restore();
    }

    /* Text on a plate, readable over any band. */
    function label(text, x, y, color) {
      const width = context.measureText(text).width;
      const left = context.textAlign === "center" ? x - width / 2 : x;
      const shift = Math.min(0, LEFT + self.width - left - width - 4);
      context.fillStyle = self.look.colors.plate;
      context.fillRect(left + shift - 3, y - 14, width + 6, 15);
      context.fillStyle = color;
      context.fillText(text, x + shift, y);
    }

    function drawMarks() {
      const { colors } = self.look;
      const { device } = self;
      context.textAlign = "center";
      context.textBaseline = "bottom";
      const taken = [];
      for (const event of device.ooms) {
        const px = screenX(positionOf(self.axis, event));
        if (px < LEFT || px > LEFT + self.width) {
          continue;
        }
        context.strokeStyle = colors.bad;
        line(px, TOP, px, TOP + self.height);
        flag(`out of memory: ${formatBytes(device.events.size[event])}`, px, colors.bad,
             taken);
      }
      mark(device.peak.event, `peak ${formatBytes(device.peak.allocated)} allocated`,
           colors.text, [2, 3], taken);
      if (self.marked >= 0) {
        mark(self.marked, `event ${formatCount(self.marked)}`, colors.accent, [], taken);
      }
    }

    /* A label at the top, lowered past those that are TAKEN there already. */
    function flag(text, px, color, taken) {
      const half = context.measureText(text).width / 2 + 6;
      let row = 0;
      while (taken.some((t) => t.row === row && px - half < t.right
                        && px + half > t.left)) {
        row += 1;
      }
      taken.push({ row, left: px - half, right: px + half });
      if (row < FLAG_ROWS) {
        label(text, px, TOP + row * 16, color);
      }
    }

    function mark(event, text, color, dash, taken) {
      const px = screenX(positionOf(self.axis, Math.max(0, event)) + 0.5 * Number(
        self.axis.kind === "events"));
      if (px < LEFT || px > LEFT + self.width) {
        return;
      }
      context.strokeStyle = color;
      context.setLineDash(dash);
      line(px, TOP, px, TOP + self.height);
      context.setLineDash([]);
      flag(text, px, color, taken);
    }

    /* The event and what is drawn under a pointer; null outside the plot. */
    function probe(pointer) {
      const box = canvas.getBoundingClientRect();
      const x = pointer.clientX - box.left - LEFT;
      const y = pointer.clientY - box.top - TOP;
      if (self.samples === null || x < 0 || y < 0 || x >= self.width
          || y >= self.height) {
        return null;
      }
      const event = self.samples[Math.floor(x / self.width * self.samples.length)];
      const { y0, y1 } = self.view;
      const bytes = y0 + (1 - y / self.height) * (y1 - y0);
      return { event, what: hit(self.device, self.selection, event, bytes),
               atX: x / self.width, atY: 1 - y / self.height };
    }

    function hoverAt(pointer) {
      const found = probe(pointer);
      const what = found === null ? null : found.what;
      if (what !== self.hover) {
        self.hover = what;
        redraw();
      }
      callbacks.hover(found, pointer);
    }

    canvas.addEventListener("wheel", (wheel) => {
      wheel.preventDefault();
      const found = probe(wheel);
      const delta = wheel.deltaY || wheel.deltaX;
      if (Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY) && !wheel.shiftKey) {
        const shift = wheel.deltaX / self.width * (self.view.x1 - self.view.x0);
        setRange(self.view.x0 + shift, self.view.x1 + shift);
        return;
      }
      const factor = Math.exp(Math.max(-1, Math.min(1, delta / 250)));
      const at = found === null ? 0.5 : wheel.shiftKey ? found.atY : found.atX;
      zoom(factor, at, wheel.shiftKey);
    }, { passive: false });

    canvas.addEventListener("pointerdown", (pointer) => {
      canvas.setPointerCapture(pointer.pointerId);
      drag = { x: pointer.clientX, y: pointer.clientY, view: { ...self.view },
               moved: false };
    });
    canvas.addEventListener("pointermove", (pointer) => {
      if (drag === null) {
        hoverAt(pointer);
        return;
      }
      const dx = pointer.clientX - drag.x;
      const dy = pointer.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < DRAG_SLACK) {
        return;
      }
      drag.moved = true;
      canvas.classList.add("dragging");
      callbacks.hover(null, pointer);
      const { x0, x1, y0, y1 } = drag.view;
      self.view.y0 = Math.max(
        0, Math.min(self.full - (y1 - y0), y0 + dy / self.height * (y1 - y0)));
      self.view.y1 = self.view.y0 + (y1 - y0);
      const shift = dx / self.width * (x1 - x0);
      setRange(x0 - shift, x1 - shift);
    });
    canvas.addEventListener("pointerup", (pointer) => {
      const clicked = drag !== null && !drag.moved;
      drag = null;
      canvas.classList.remove("dragging");
      if (clicked) {
        callbacks.pick(probe(pointer));
      }
    });
    canvas.addEventListener("pointercancel", () => {
      drag = null;
      canvas.classList.remove("dragging");
    });
    canvas.addEventListener("pointerleave", (pointer) => {
      self.hover = null;
      callbacks.hover(null, pointer);
      redraw();
    });
    canvas.addEventListener("dblclick", showAll);

    function showAll() {
      self.view.y0 = 0;
      self.view.y1 = self.fit;
      setRange(0, self.axis.length);
    }

    function showEvent(event, share) {
      const span = self.axis.length * share;
      const at = positionOf(self.axis, Math.max(0, event));
      setRange(at - span / 2, at + span / 2);
    }

    /* Arrows pan, + and - zoom, ] and [ stretch the height, 0 shows all. */
    canvas.addEventListener("keydown", (key) => {
      const { x0, x1, y0, y1 } = self.view;
      const stepX = (x1 - x0) / 10;
      const stepY = (y1 - y0) / 10;
      const actions = {
        ArrowLeft: () => setRange(x0 - stepX, x1 - stepX),
        ArrowRight: () => setRange(x0 + stepX, x1 + stepX),
        ArrowUp: () => setHeights(y0 + stepY, y1 + stepY),
        ArrowDown: () => setHeights(y0 - stepY, y1 - stepY),
        "+": () => zoom(0.7, 0.5, false),
        "=": () => zoom(0.7, 0.5, false),
        "-": () => zoom(1 / 0.7, 0.5, false),
        "]": () => zoom(0.7, 0, true),
        "[": () => zoom(1 / 0.7, 0, true),
        0: showAll,
        Home: () => setRange(0, x1 - x0),
        End: () => setRange(self.axis.length - (x1 - x0), self.axis.length),
      };
      if (Object.hasOwn(actions, key.key) && !key.ctrlKey && !key.metaKey) {
        key.preventDefault();
        key.stopPropagation();
        actions[key.key]();
      }
    });
    new ResizeObserver(redraw).observe(canvas);

    return { self, setDevice, setAxis, setRange, setHeights, showAll, showEvent, redraw,
             draw };
  }

  return { create };
})();
