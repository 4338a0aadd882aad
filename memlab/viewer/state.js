/* The Allocator State view: the list of events and the memory after the chosen one.
 *
 * Owns the virtual list and the canvas of segments; what is chosen or pointed at goes
 * out through the callbacks.  Knows nothing of the rest of the page. */
"use strict";

const memlabState = (() => {
  const ROW = 21;
  /* Browsers cap the height of an element; beyond this the scroll bar is scaled. */
  const TALLEST = 8e6;
  const LANE_LEFT = 226;
  const LANE_MIN = 22;
  const LANE_MAX = 72;
  const LANE_GAP = 5;
  const RIGHT = 12;

  const { formatBytes, formatCount, formatTime, eventName, stateAt, hex } = memlabModel;

  /* A list of any length of which only the rows in sight exist. */
  function createList(box, renderRow, choose) {
    const spacer = document.createElement("div");
    box.append(spacer);
    const list = { items: new Int32Array(0), selected: -1 };

    function tall() {
      return Math.min(TALLEST, list.items.length * ROW);
    }

    function firstRow() {
      const room = Math.max(1, tall() - box.clientHeight);
      const rows = list.items.length - box.clientHeight / ROW;
      return Math.max(0, box.scrollTop / room * rows);
    }

    function render() {
      const first = firstRow();
      const from = Math.floor(first);
      const count = Math.ceil(box.clientHeight / ROW) + 1;
      const rows = [];
      for (let i = from; i < Math.min(list.items.length, from + count); i++) {
        const row = renderRow(list.items[i]);
        row.classList.add("row");
        row.setAttribute("role", "option");
        row.setAttribute("aria-selected", String(list.items[i] === list.selected));
        row.setAttribute("aria-setsize", String(list.items.length));
        row.setAttribute("aria-posinset", String(i + 1));
        row.style.top = `${box.scrollTop + (i - first) * ROW}px`;
        row.addEventListener("click", () => choose(list.items[i]));
        rows.push(row);
      }
      spacer.style.height = `${tall()}px`;
      spacer.replaceChildren(...rows);
    }

    function setItems(items) {
      list.items = items;
      spacer.style.height = `${tall()}px`;
      render();
    }

    /* The row of ITEM or of the one before it, so that hidden events land near. */
    function rowOf(item) {
      let lo = 0;
      let hi = list.items.length;
      while (lo < hi) {
        const mid = (lo + hi) >>> 1;
        if (list.items[mid] <= item) {
          lo = mid + 1;
        }
        else {
          hi = mid;
        }
      }
      return lo - 1;
    }

    function select(item) {
      list.selected = item;
      const row = rowOf(item);
      const first = firstRow();
      const rows = box.clientHeight / ROW;
      if (row < first || row > first + rows - 1) {
        const share = (row - rows / 2) / Math.max(1, list.items.length - rows);
        box.scrollTop = share * Math.max(1, tall() - box.clientHeight);
      }
      render();
    }

    function step(by) {
      const row = Math.max(0, Math.min(list.items.length - 1,
                                       rowOf(list.selected) + by));
      if (list.items.length > 0) {
        choose(list.items[row]);
      }
    }

    box.addEventListener("scroll", render);
    box.addEventListener("keydown", (key) => {
      const page = Math.max(1, Math.floor(box.clientHeight / ROW) - 1);
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
                      Home: -list.items.length, End: list.items.length };
      if (Object.hasOwn(steps, key.key)) {
        key.preventDefault();
        key.stopPropagation();
        step(steps[key.key]);
      }
    });
    new ResizeObserver(render).observe(box);
    return { setItems, select, render, list };
  }

  function cell(kind, text) {
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = text;
    return span;
  }

  function eventRow(model, device, event) {
    const { events, code } = device;
    const action = events.action[event];
    const text = model.actions[action];
    const row = document.createElement("div");
    const kind = action === code.get("alloc") ? "action alloc"
      : action === code.get("oom") ? "action oom"
        : text.startsWith("segment") ? "action segment" : "action";
    const bytes = Number(events.block[event]) || events.size[event];
    row.append(cell("number", formatCount(event)), cell(kind, text),
               cell("name", eventName(device, event)), cell("size", formatBytes(bytes)));
    row.title = formatTime(events.time[event]);
    return row;
  }

  /* Segments one below the other, each as wide as the pane, with their blocks. */
  function createSegments(canvas, callbacks) {
    const context = canvas.getContext("2d");
    const stage = canvas.parentElement;
    const spacer = document.createElement("div");
    stage.append(spacer);
    const self = { device: null, segments: [], look: null, event: -1, focus: -1,
                   focusAddr: null, x0: 0, x1: 1, lane: LANE_MIN };
    let raf = 0;
    let drag = null;

    function redraw() {
      if (raf === 0) {
        raf = requestAnimationFrame(() => {
          raf = 0;
          draw();
        });
      }
    }

    function layout() {
      const count = Math.max(1, self.segments.length);
      self.lane = Math.max(LANE_MIN, Math.min(LANE_MAX,
                                              Math.floor(stage.clientHeight / count)));
      spacer.style.height = `${self.lane * self.segments.length}px`;
    }

    /* The memory after EVENT; PINNED, or else the event's own allocation, stands out, or
     * the segment that held it. */
    function show(device, event, look, pinned) {
      self.device = device;
      self.event = event;
      self.look = look;
      self.segments = device.events.count > 0 || device.allocs.count > 0
        ? stateAt(device, event) : [];
      self.focus = pinned >= 0 || event < 0 ? pinned : device.allocs.ofEvent[event];
      const { end } = device.allocs;
      const gone = self.focus < 0 || end[self.focus] <= event;
      self.focusAddr = event >= 0 && gone ? device.events.addr[event] : null;
      layout();
      reveal();
      redraw();
    }

    function isFocus(segment) {
      return self.focusAddr !== null && segment.addr !== null
        && segment.addr <= self.focusAddr
        && self.focusAddr < memlabModel.plus(segment.addr, segment.bytes);
    }

    function reveal() {
      const row = self.segments.findIndex(
        (segment) => segment.blocks.includes(self.focus) || isFocus(segment));
      const top = row * self.lane;
      if (row >= 0 && (top < stage.scrollTop
                       || top + self.lane > stage.scrollTop + stage.clientHeight)) {
        stage.scrollTop = top - stage.clientHeight / 2;
      }
    }

    function laneWidth() {
      return stage.clientWidth - LANE_LEFT - RIGHT;
    }

    function draw() {
      const ratio = Math.min(2, window.devicePixelRatio || 1);
      const width = stage.clientWidth;
      const height = stage.clientHeight;
      if (self.device === null || width === 0) {
        return;
      }
      canvas.style.transform = `translateY(${stage.scrollTop}px)`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = self.look.colors.canvas;
      context.fillRect(0, 0, width, height);
      context.font = "11px system-ui, sans-serif";
      const first = Math.floor(stage.scrollTop / self.lane);
      const last = Math.min(self.segments.length - 1,
                            Math.floor((stage.scrollTop + height) / self.lane));
      for (let row = first; row <= last; row++) {
        drawSegment(self.segments[row], row * self.lane - stage.scrollTop);
      }
      if (self.segments.length === 0) {
        context.fillStyle = self.look.colors.quiet;
        context.fillText("No memory is held after this event.", 16, 24);
      }
    }

    function drawSegment(segment, y) {
      const { colors } = self.look;
      const top = y + 2;
      const high = self.lane - LANE_GAP;
      const share = segment.bytes > 0 ? segment.used / segment.bytes : 0;
      const name = segment.addr === null ? "blocks, end to end" : `s${hex(segment.addr)}`;
      context.textBaseline = "middle";
      context.textAlign = "left";
      context.fillStyle = isFocus(segment) ? colors.accent : colors.text;
      context.fillText(name, 10, top + high / 2);
      context.textAlign = "right";
      context.fillStyle = colors.quiet;
      context.fillText(`${formatBytes(segment.bytes)}  ${Math.round(share * 100)}%`,
                       LANE_LEFT - 8, top + high / 2);
      context.save();
      context.beginPath();
      context.rect(LANE_LEFT, top, laneWidth(), high);
      context.clip();
      context.fillStyle = colors.free;
      context.fillRect(LANE_LEFT, top, laneWidth(), high);
      for (let k = 0; k < segment.blocks.length; k++) {
        drawBlock(segment, k, top, high);
      }
      context.restore();
      context.strokeStyle = isFocus(segment) ? colors.accent : colors.line;
      context.lineWidth = isFocus(segment) ? 2 : 1;
      context.strokeRect(LANE_LEFT + 0.5, top + 0.5, laneWidth() - 1, high - 1);
      context.lineWidth = 1;
    }

    function laneX(segment, offset) {
      const at = segment.bytes > 0 ? offset / segment.bytes : 0;
      return LANE_LEFT + (at - self.x0) / (self.x1 - self.x0) * laneWidth();
    }

    function drawBlock(segment, k, top, high) {
      const { allocs } = self.device;
      const id = segment.blocks[k];
      const left = laneX(segment, segment.offsets[k]);
      const right = laneX(segment, segment.offsets[k] + allocs.bytes[id]);
      if (right < LANE_LEFT || left > LANE_LEFT + laneWidth()) {
        return;
      }
      const wide = Math.max(0.6, right - left);
      const pending = allocs.requestedAt[id] <= self.event;
      context.globalAlpha = pending ? 0.45 : 1;
      context.fillStyle = id === self.focus ? self.look.chosenText : self.look.text(id);
      context.fillRect(left, top, wide, high);
      context.globalAlpha = 1;
      if (wide > 3) {
        context.strokeStyle = self.look.colors.canvas;
        context.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
      }
    }

    /* The block, free space or segment under a pointer. */
    function probe(pointer) {
      const box = stage.getBoundingClientRect();
      const x = pointer.clientX - box.left;
      const y = pointer.clientY - box.top + stage.scrollTop;
      const segment = self.segments[Math.floor(y / self.lane)];
      if (segment === undefined || x > LANE_LEFT + laneWidth()) {
        return null;
      }
      if (x < LANE_LEFT) {
        return { segment, id: -1, free: 0 };
      }
      const at = self.x0 + (x - LANE_LEFT) / laneWidth() * (self.x1 - self.x0);
      const offset = at * segment.bytes;
      let previous = 0;
      for (let k = 0; k < segment.blocks.length; k++) {
        const stop = segment.offsets[k] + self.device.allocs.bytes[segment.blocks[k]];
        if (offset < segment.offsets[k]) {
          return { segment, id: -1, free: segment.offsets[k] - previous };
        }
        if (offset < stop) {
          return { segment, id: segment.blocks[k], free: 0 };
        }
        previous = stop;
      }
      return { segment, id: -1, free: segment.bytes - previous };
    }

    function setRange(x0, x1) {
      const span = Math.min(1, Math.max(1e-6, x1 - x0));
      self.x0 = Math.max(0, Math.min(1 - span, x0));
      self.x1 = self.x0 + span;
      redraw();
    }

    function zoom(factor, share) {
      const at = self.x0 + (self.x1 - self.x0) * share;
      setRange(at - (at - self.x0) * factor, at + (self.x1 - at) * factor);
    }

    canvas.addEventListener("wheel", (wheel) => {
      if (!wheel.shiftKey) {
        return;
      }
      wheel.preventDefault();
      const box = stage.getBoundingClientRect();
      const share = (wheel.clientX - box.left - LANE_LEFT) / laneWidth();
      const delta = wheel.deltaY || wheel.deltaX;
      zoom(Math.exp(Math.max(-1, Math.min(1, delta / 250))),
           Math.max(0, Math.min(1, share)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (pointer) => {
      canvas.setPointerCapture(pointer.pointerId);
      drag = { x: pointer.clientX, x0: self.x0, x1: self.x1, moved: false };
    });
    canvas.addEventListener("pointermove", (pointer) => {
      if (drag === null) {
        callbacks.hover(probe(pointer), pointer);
        return;
      }
      const shift = (pointer.clientX - drag.x) / laneWidth() * (drag.x1 - drag.x0);
      drag.moved ||= Math.abs(pointer.clientX - drag.x) > 3;
      setRange(drag.x0 - shift, drag.x1 - shift);
    });
    canvas.addEventListener("pointerup", (pointer) => {
      if (drag !== null && !drag.moved) {
        callbacks.pick(probe(pointer));
      }
      drag = null;
    });
    canvas.addEventListener("pointercancel", () => {
      drag = null;
    });
    canvas.addEventListener("pointerleave", (pointer) => callbacks.hover(null, pointer));
    canvas.addEventListener("keydown", (key) => {
      const step = (self.x1 - self.x0) / 10;
      const actions = {
        ArrowLeft: () => setRange(self.x0 - step, self.x1 - step),
        ArrowRight: () => setRange(self.x0 + step, self.x1 + step),
        "+": () => zoom(0.7, 0.5),
        "=": () => zoom(0.7, 0.5),
        "-": () => zoom(1 / 0.7, 0.5),
        0: () => setRange(0, 1),
      };
      if (Object.hasOwn(actions, key.key) && !key.ctrlKey && !key.metaKey) {
        key.preventDefault();
        key.stopPropagation();
        actions[key.key]();
      }
    });
    stage.addEventListener("scroll", draw);
    new ResizeObserver(() => {
      layout();
      redraw();
    }).observe(stage);
    return { self, show, redraw };
  }

  return { createList, createSegments, eventRow };
})();
