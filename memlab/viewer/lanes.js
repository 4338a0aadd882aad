/* Segments drawn one below the other, each as wide as the pane, with their blocks.
 *
 * Owns the geometry of the lanes and what is drawn in them; which segments, blocks and
 * instant, and what is pointed at, is the allocator state view's (segments.js). */
"use strict";

const memlabLanes = (() => {
  /* Beside the lanes there is room for a name and figures, on a phone below one another. */
  const BESIDE = { left: 212, least: 24, letters: 40 };
  const BELOW = { left: 104, least: 36, letters: 13 };
  const NARROW = 560;
  const LANE_MAX = 72;
  const LANE_GAP = 6;
  const LABEL_LINE = 15;
  const RIGHT = 12;
  const NARROWEST = 3;
  const DIMMED = 0.25;

  const { formatBytes, formatCount } = memlabNames;
  const { holesOf } = memlabMemory;

  /* SELF is what is shown: { model, d, state, chunk, segments, hole, focus, cursor: { s,
   * k }, x0, x1, lane, scaled, most }; the lanes keep its `lane`, their height. */
  function create(self, canvas, stage) {
    const context = canvas.getContext("2d");

    let room = BESIDE;

    function layout() {
      const count = Math.max(1, self.segments.length);
      room = stage.clientWidth < NARROW ? BELOW : BESIDE;
      self.lane = Math.max(room.least, Math.min(LANE_MAX,
                                              Math.floor(stage.clientHeight / count)));
    }

    /* The segment that the event or the pinned allocation is about. */
    function isAbout(segment) {
      if (segment.fresh || segment.gone || segment === self.hole?.segment) {
        return true;
      }
      if (self.focus < 0 || segment.name === "") {
        return segment.rows.includes(self.focus);
      }
      const offset = memlabMemory.distance(segment, self.chunk.rows, self.focus);
      return offset >= 0 && offset < segment.bytes;
    }

    function laneWidth() {
      return stage.clientWidth - room.left - RIGHT;
    }

    /* Bytes of a whole lane: the largest segment's, or each its own. */
    function laneBytes(segment) {
      return self.scaled ? self.most : segment.bytes;
    }

    function laneX(segment, offset) {
      const whole = laneBytes(segment);
      const at = whole > 0 ? offset / whole : 0;
      return room.left + (at - self.x0) / (self.x1 - self.x0) * laneWidth();
    }

    function draw() {
      const ratio = Math.min(2, window.devicePixelRatio || 1);
      const width = stage.clientWidth;
      const height = stage.clientHeight;
      if (self.model === null || width === 0) {
        return;
      }
      const colors = memlabColors.page();
      canvas.style.height = `${height}px`;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.fillStyle = colors.canvas;
      context.fillRect(0, 0, width, height);
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      const hatch = hatching(colors);
      const first = Math.floor(stage.scrollTop / self.lane);
      const last = Math.min(self.segments.length - 1,
                            Math.floor((stage.scrollTop + height) / self.lane));
      for (let s = first; s <= last; s++) {
        drawSegment(s, s * self.lane - stage.scrollTop, colors, hatch);
      }
      if (self.segments.length === 0) {
        context.textAlign = "left";
        context.fillStyle = colors.quiet;
        context.fillText("No memory is held after this event. Press p for the peak.", 16,
                         24);
      }
    }

    function hatching(colors) {
      const tile = document.createElement("canvas");
      tile.width = 6;
      tile.height = 6;
      const pen = tile.getContext("2d");
      pen.strokeStyle = colors.text;
      pen.lineWidth = 1.4;
      pen.beginPath();
      for (const at of [-3, 3, 9]) {
        pen.moveTo(at - 3, 9);
        pen.lineTo(at + 9, -3);
      }
      pen.stroke();
      return context.createPattern(tile, "repeat");
    }

    function drawSegment(s, y, colors, hatch) {
      const segment = self.segments[s];
      const top = y + 2;
      const high = self.lane - LANE_GAP;
      drawLabel(segment, top, high, colors);
      const left = Math.max(room.left, laneX(segment, 0));
      const right = Math.min(room.left + laneWidth(), laneX(segment, segment.bytes));
      if (right < left) {
        return; /* a small one, left of what is zoomed to */
      }
      const wide = Math.max(NARROWEST, right - left);
      context.save();
      context.beginPath();
      context.rect(left, top, wide, high);
      context.clip();
      context.fillStyle = segment.gone ? colors.canvas : colors.free;
      context.fillRect(left, top, wide, high);
      for (let k = 0; k < segment.rows.length; k++) {
        drawBlock(segment, k, top, high, colors, hatch);
      }
      drawFreed(segment, top, high, colors);
      if (self.hole?.segment === segment) {
        outline(segment, self.hole.offset, self.hole.bytes, top, high, colors.bad, [5, 3]);
      }
      if (self.cursor.s === s && document.activeElement === canvas) {
        drawCursor(segment, top, high, colors);
      }
      context.restore();
      const about = isAbout(segment);
      context.strokeStyle = about ? colors.accent : colors.line;
      context.lineWidth = about ? 2 : 1;
      context.setLineDash(segment.gone ? [6, 4] : []);
      context.strokeRect(left + 0.5, top + 0.5, Math.max(1, wide - 1), high - 1);
      context.setLineDash([]);
      context.lineWidth = 1;
    }

    /* Its address, size and share in use; where a lane has room, its pool and stream. */
    function drawLabel(segment, top, high, colors) {
      const share = segment.bytes > 0
        ? Math.round(segment.used / segment.bytes * 100) : 0;
      const fate = segment.gone ? "given back" : segment.fresh ? "new" : `${share}%`;
      const figures = `${formatBytes(segment.bytes)}  ${fate}`;
      const name = segment.name === "" ? "blocks, end to end" : segment.name;
      const more = room === BELOW ? [figures] : segment.name === "" ? [] : [
        memlabDescribe.segmentWords(segment),
        `stream ${formatCount(self.model.streams[segment.stream])}`];
      const count = Math.min(more.length, Math.max(0, Math.floor(high / LABEL_LINE) - 1));
      const line = top + high / 2 - count * LABEL_LINE / 2;
      context.textAlign = "left";
      context.fillStyle = isAbout(segment) ? colors.accent : colors.text;
      context.fillText(memlabNames.middle(name, room.letters), 10, line);
      context.fillStyle = colors.quiet;
      more.slice(0, count).forEach((text, i) => context.fillText(
        text, 10, line + (i + 1) * LABEL_LINE, room.left - 18));
      if (room === BESIDE) {
        context.textAlign = "right";
        context.fillText(figures, room.left - 8, line);
      }
    }

    function blockColor(row) {
      const { model, d, state, chunk } = self;
      const { kind, bytes } = chunk.rows;
      const group = memlabColors.groupOf(model, d, state.color, kind[row], bytes[row]);
      const color = memlabColors.group(model, d, state.color, group);
      const dim = state.hits !== null && !state.hits.matches(chunk.rows, row);
      return dim ? memlabColors.mix(color, memlabColors.page().free, DIMMED) : color;
    }

    function drawBlock(segment, k, top, high, colors, hatch) {
      const row = segment.rows[k];
      const { rows } = self.chunk;
      const left = laneX(segment, segment.offsets[k]);
      const right = laneX(segment, segment.offsets[k] + rows.bytes[row]);
      if (right < room.left || left > room.left + laneWidth()) {
        return;
      }
      const wide = Math.max(0.6, right - left);
      const pending = rows.requested[row] <= self.state.event;
      context.fillStyle = pending
        ? memlabColors.mix(blockColor(row), colors.free, 0.45) : blockColor(row);
      context.fillRect(left, top, wide, high);
      if (pending) {
        context.fillStyle = hatch;
        context.fillRect(left, top, wide, high);
      }
      if (wide > 3) {
        context.strokeStyle = colors.canvas;
        context.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
      }
      if (row === self.focus) {
        outline(segment, segment.offsets[k], rows.bytes[row], top, high, colors.chosen, []);
      }
    }

    function outline(segment, offset, bytes, top, high, color, dash) {
      const left = laneX(segment, offset);
      const wide = Math.max(3, laneX(segment, offset + bytes) - left);
      context.strokeStyle = color;
      context.lineWidth = 3;
      context.setLineDash(dash);
      context.strokeRect(left + 1.5, top + 1.5, Math.max(1, wide - 3), high - 3);
      context.setLineDash([]);
      context.lineWidth = 1;
    }

    /* Where the block was that the event freed. */
    function drawFreed(segment, top, high, colors) {
      const { rows } = self.chunk;
      if (self.focus < 0 || segment.name === "" || rows.end[self.focus] > self.state.event
          || rows.start[self.focus] > self.state.event) {
        return;
      }
      const offset = memlabMemory.distance(segment, rows, self.focus);
      if (offset >= 0 && offset < segment.bytes) {
        outline(segment, offset, rows.bytes[self.focus], top, high, colors.chosen, [4, 3]);
      }
    }

    function drawCursor(segment, top, high, colors) {
      const { k } = self.cursor;
      if (k < 0) {
        outline(segment, 0, segment.bytes, top, high, colors.text, [2, 2]);
      }
      else {
        outline(segment, segment.offsets[k], self.chunk.rows.bytes[segment.rows[k]], top,
                high, colors.text, [2, 2]);
      }
    }

    /* The block, free space or segment under a pointer. */
    function probe(pointer) {
      const box = stage.getBoundingClientRect();
      const x = pointer.clientX - box.left;
      const y = pointer.clientY - box.top + stage.scrollTop;
      const segment = self.segments[Math.floor(y / self.lane)];
      if (segment === undefined || x > room.left + laneWidth()) {
        return null;
      }
      const at = self.x0 + (x - room.left) / laneWidth() * (self.x1 - self.x0);
      const offset = at * laneBytes(segment);
      if (x < room.left || offset >= segment.bytes) {
        return { segment, row: -1, free: 0 };
      }
      const { rows } = self.chunk;
      const k = segment.offsets.findIndex(
        (from, i) => offset >= from && offset < from + rows.bytes[segment.rows[i]]);
      if (k >= 0) {
        return { segment, row: segment.rows[k], free: 0 };
      }
      const hole = holesOf(segment, rows).find(
        (free) => offset >= free.offset && offset < free.offset + free.bytes);
      return { segment, row: -1, free: hole === undefined ? 0 : hole.bytes };
    }

    return { layout, draw, isAbout, laneX, laneWidth, probe, left: () => room.left };
  }

  return { create };
})();
