/* What each column of pixels of the timeline shows: an instant, its totals and groups.
 *
 * Owns which level of detail a range is drawn from, and which event stands for a
 * column: of all that it covers the one with the most allocated bytes, so that no
 * peak falls between columns.  Where blobs are still on their way, coarser ones
 * stand in.  Pure but for asking the model; no canvas. */
"use strict";

const memlabColumns = (() => {
  const STRIDE = 1024;
  const NOTHING = -1; /* as a source, which else is a level's index */
  const CHUNKS = 1000;
  const NO_EVENT = -2; /* -1 is before the first */

  const { lastAtMost, TILE_COLUMNS } = memlabData;

  /* ---- axes: positions are events, or microseconds as the recording counts them
   * ---- */

  function extent(model, d, axis) {
    const device = model.devices[d];
    if (axis === "time") {
      return { from: device.first_us,
               to: Math.max(device.last_us, device.first_us + 1) };
    }
    return { from: 0, to: Math.max(1, device.events) };
  }

  /* First value of the ascending COLUMN that is at least VALUE. */
  function firstAtLeast(column, value) {
    let lo = 0;
    let hi = column.length;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if (column[mid] < value) {
        lo = mid + 1;
      }
      else {
        hi = mid;
      }
    }
    return lo;
  }

  /* The chunks from which a range is told exactly, first and last. */
  function chunkRange(model, d, range) {
    const device = model.devices[d];
    const last = device.chunkCount - 1;
    const clamp = (i) => Math.max(0, Math.min(last, i));
    if (range.axis === "time") {
      const { time } = device.chunks;
      return [clamp(firstAtLeast(time, range.x0) - 1),
              clamp(firstAtLeast(time, range.x1) - 1)];
    }
    return [clamp(Math.floor(range.x0 / device.chunks.events)),
            clamp(Math.floor((Math.ceil(range.x1) - 1) / device.chunks.events))];
  }

  /* How a range is drawn: from which level at best, and whether from chunks. */
  function plan(model, d, range) {
    const device = model.devices[d];
    const { levels } = device;
    const chunks = chunkRange(model, d, range);
    const perChunk = device.chunks.events;
    const finest = levels[levels.length - 1].span;
    const byTime = range.axis === "time";
    const events = byTime ? (chunks[1] - chunks[0] + 1) * perChunk : range.x1 - range.x0;
    /* By time, events gather in some columns: more of them than columns are looked
     * at. */
    const density = events / range.width / (byTime ? 4 : 1);
    const fine = byTime ? events <= (range.width * finest + 2 * perChunk)
      : density < finest;
    let level = levels.findIndex((one) => one.span <= density);
    if (level < 0) {
      level = levels.length - 1;
    }
    return { chunks: fine ? chunks : null, level,
             from: byTime ? chunks[0] * perChunk : Math.floor(range.x0),
             to: byTime ? Math.min(device.events, (chunks[1] + 1) * perChunk)
               : Math.min(device.events, Math.ceil(range.x1)) };
  }

  /* ---- groups within a chunk ---- */

  const indexes = new WeakMap();

  /* What each event of CHUNK adds to which group of SCHEME, and the groups' bytes
   * before every STRIDEth event. */
  function chunkIndex(model, d, scheme, chunk) {
    let known = indexes.get(chunk);
    if (known === undefined) {
      known = new Map();
      indexes.set(chunk, known);
    }
    let index = known.get(scheme);
    if (index === undefined) {
      index = buildIndex(model, d, scheme, chunk);
      known.set(scheme, index);
    }
    return index;
  }

  function groupsOfRows(model, d, scheme, rows) {
    const device = model.devices[d];
    const out = new Int16Array(rows.count);
    if (scheme === "size") {
      const bounds = device.groups.size;
      for (let r = 0; r < rows.count; r++) {
        out[r] = Math.max(0, lastAtMost(bounds, rows.bytes[r]));
      }
      return out;
    }
    const table = device.group_of_kind[scheme];
    for (let r = 0; r < rows.count; r++) {
      out[r] = table[rows.kind[r]];
    }
    return out;
  }

  function buildIndex(model, d, scheme, chunk) {
    const { rows, first, count } = chunk;
    const groups = model.devices[d].groups[scheme].length;
    const group = groupsOfRows(model, d, scheme, rows);
    const sums = new Float64Array(groups);
    /* Changes in the order of their events: counted, placed, filled in. */
    const at = new Int32Array(count + 2);
    for (let r = 0; r < rows.count; r++) {
      const start = rows.start[r] - first;
      const stop = rows.requested[r] - first;
      if (start < 0 && stop >= 0) {
        sums[group[r]] += rows.bytes[r];
      }
      if (start >= 0) {
        at[start + 2] += 1;
      }
      if (stop >= 0 && stop < count) {
        at[stop + 2] += 1;
      }
    }
    for (let e = 2; e < at.length; e++) {
      at[e] += at[e - 1];
    }
    const which = new Int16Array(at[count + 1]);
    const bytes = new Float64Array(at[count + 1]);
    for (let r = 0; r < rows.count; r++) {
      const start = rows.start[r] - first;
      const stop = rows.requested[r] - first;
      if (start >= 0) {
        which[at[start + 1]] = group[r];
        bytes[at[start + 1]] = rows.bytes[r];
        at[start + 1] += 1;
      }
      if (stop >= 0 && stop < count) {
        which[at[stop + 1]] = group[r];
        bytes[at[stop + 1]] = -rows.bytes[r];
        at[stop + 1] += 1;
      }
    }
    const marks = new Float64Array((Math.floor(count / STRIDE) + 1) * groups);
    for (let e = 0; e < count; e++) {
      if (e % STRIDE === 0) {
        marks.set(sums, e / STRIDE * groups);
      }
      for (let k = at[e]; k < at[e + 1]; k++) {
        sums[which[k]] += bytes[k];
      }
    }
    return { at, which, bytes, marks, groups, group };
  }

  /* Moves SUMS, which are of the instant after event FROM of the chunk (-1: before its
   * first), to after event TO. */
  function advance(index, sums, from, to) {
    const { at, which, bytes, marks, groups } = index;
    let e = from + 1;
    const mark = Math.floor(to / STRIDE);
    if (to < from || to - from > STRIDE) {
      sums.set(marks.subarray(Math.max(0, mark) * groups,
                              (Math.max(0, mark) + 1) * groups));
      e = Math.max(0, mark) * STRIDE;
    }
    for (let k = at[e]; k < at[to + 1]; k++) {
      sums[which[k]] += bytes[k];
    }
  }

  /* ---- columns from levels ---- */

  function emptyColumns(width, groups) {
    const numbers = () => new Float64Array(width);
    return { width, groups, complete: true, event: new Int32Array(width),
             begin: numbers(), time: numbers(), allocated: numbers(), active: numbers(),
             reserved: numbers(), sums: new Float64Array(width * groups),
             source: new Int16Array(width).fill(NOTHING),
             tile: new Array(width).fill(null), column: new Int32Array(width) };
  }

  function tilesOf(device, l, part) {
    const { span, columns } = device.levels[l];
    const first = Math.floor(part.from / span);
    const last = Math.min(columns - 1, Math.floor((part.to - 1) / span));
    return { first, last, tiles: columns === 0 ? [0, -1]
      : [Math.floor(first / TILE_COLUMNS), Math.floor(last / TILE_COLUMNS)] };
  }

  /* Puts what is there of level L over the columns OUT.  Returns whether all was. */
  function overlay(model, d, range, part, l, ask, out) {
    const device = model.devices[d];
    const { first, last, tiles } = tilesOf(device, l, part);
    let whole = true;
    for (let t = tiles[0]; t <= tiles[1]; t++) {
      const tile = ask ? model.levelNow(d, l, t) : model.levelPeek(d, l, t);
      if (tile === null) {
        whole = false;
        continue;
      }
      const stop = (tile.first + tile.count) * tile.span;
      const endUs = stop < device.events
        ? device.chunks.time[stop / device.chunks.events] : device.last_us + 1;
      overlayTile(range, tile, l, Math.max(0, first - tile.first),
                  Math.min(tile.count - 1, last - tile.first), endUs, out);
    }
    return whole;
  }

  /* A column of pixels gets the columns FROM to TO of TILE that begin in it, or the one
   * that covers it. */
  function overlayTile(range, tile, l, from, to, endUs, out) {
    const { x0, x1, width } = range;
    const scale = width / (x1 - x0);
    const byTime = range.axis === "time";
    const { time, allocated, span } = tile;
    const { source } = out;
    const place = (c) => Math.floor(1e-6 + scale * (
      (byTime ? c < tile.count ? time[c] : endUs : (tile.first + c) * span) - x0));
    const begin = (p, c) => {
      source[p] = l;
      out.begin[p] = (tile.first + c) * span;
      out.time[p] = time[c];
      out.reserved[p] = tile.most[c];
      show(p, c);
    };
    const show = (p, c) => {
      out.event[p] = tile.peak[c];
      out.allocated[p] = allocated[c];
      out.active[p] = tile.active[c];
      out.tile[p] = tile;
      out.column[p] = c;
    };
    let next = place(from);
    for (let c = from; c <= to && next < width; c++) {
      const p = next;
      next = place(c + 1);
      if (p >= 0 && source[p] !== l) {
        begin(p, c);
      }
      else if (p >= 0) {
        out.reserved[p] = Math.max(out.reserved[p], tile.most[c]);
        if (allocated[c] > out.allocated[p]) {
          show(p, c);
        }
      }
      for (let q = Math.max(0, p + 1); q < next && q < width; q++) {
        begin(q, c);
      }
    }
  }

  /* ---- columns from chunks ---- */

  /* The chunks that part of a range lies in, as far as they are there. */
  function hold(model, d, [first, last]) {
    const chunks = Array.from({ length: last - first + 1 },
                              (_, i) => model.chunkNow(d, first + i));
    return { device: model.devices[d], of: (i) => chunks[i - first] ?? null,
             whole: !chunks.includes(null) };
  }

  /* The last event before position X; NO_EVENT where its chunk is not there. */
  function eventBefore(held, range, x) {
    const { device } = held;
    if (range.axis !== "time") {
      return Math.max(0, Math.min(device.events, Math.ceil(x - 1e-6))) - 1;
    }
    const i = firstAtLeast(device.chunks.time, x) - 1;
    if (i < 0) {
      return -1;
    }
    const chunk = held.of(i);
    return chunk === null
      ? NO_EVENT : chunk.first + firstAtLeast(chunk.events.time, x) - 1;
  }

  /* The first event with the most allocated bytes of those from LO to HI (-1: before
   * the first), and the most reserved bytes; null where a chunk is not there. */
  function highest(held, lo, hi) {
    const perChunk = held.device.chunks.events;
    const found = { chunk: null, k: -1, allocated: -1, reserved: 0 };
    const last = Math.floor(hi / perChunk);
    for (let i = Math.max(0, Math.floor(lo / perChunk)); i <= last || i === 0; i++) {
      const chunk = held.of(i);
      if (chunk === null) {
        return null;
      }
      const { first, before, totals: { allocated, reserved } } = chunk;
      if (lo < 0 && i === 0) {
        found.chunk = chunk;
        found.allocated = before.allocated;
        found.reserved = before.reserved;
      }
      const stop = Math.min(chunk.count - 1, hi - first);
      for (let k = Math.max(0, lo - first); k <= stop; k++) {
        if (allocated[k] > found.allocated) {
          found.allocated = allocated[k];
          found.chunk = chunk;
          found.k = k;
        }
        if (reserved[k] > found.reserved) {
          found.reserved = reserved[k];
        }
      }
    }
    return found;
  }

  function fillFromChunks(model, d, scheme, range, held, out) {
    const { x0, x1, width } = range;
    const byTime = range.axis === "time";
    const step = (x1 - x0) / width;
    const sums = new Float64Array(out.groups);
    let walked = { chunk: null, k: -1, index: null };
    let before = eventBefore(held, range, x0);
    for (let p = 0; p < width; p++) {
      const hi = eventBefore(held, range, x0 + (p + 1) * step);
      const begin = Math.min(hi, before + 1);
      /* By time, what was there when the column began belongs to it. */
      const lo = byTime ? before : begin;
      before = hi;
      const found = lo === NO_EVENT || hi === NO_EVENT ? null : highest(held, lo, hi);
      if (found === null) {
        continue;
      }
      const { chunk, k } = found;
      if (walked.chunk !== chunk) {
        const index = chunkIndex(model, d, scheme, chunk);
        sums.set(index.marks.subarray(0, out.groups));
        walked = { chunk, k: -1, index };
      }
      advance(walked.index, sums, walked.k, k);
      walked.k = k;
      out.sums.set(sums, p * out.groups);
      out.event[p] = chunk.first + k;
      out.begin[p] = Math.max(0, begin);
      out.time[p] = byTime ? x0 + p * step : timeOf(held, begin);
      out.allocated[p] = found.allocated;
      out.active[p] = k < 0 ? chunk.before.active : chunk.totals.active[k];
      out.reserved[p] = found.reserved;
      out.source[p] = CHUNKS;
    }
  }

  function timeOf(held, event) {
    const chunk = held.of(Math.floor(event / held.device.chunks.events));
    return chunk.events.time[event - chunk.first];
  }

  /* ---- both ---- */

  /* The groups' bytes of the columns that came from levels. */
  function gather(scheme, out) {
    const { width, groups, tile, column, sums } = out;
    for (let p = 0; p < width; p++) {
      if (tile[p] !== null) {
        const of = tile[p].groups[scheme];
        for (let g = 0; g < groups; g++) {
          sums[p * groups + g] = of[g][column[p]];
        }
      }
    }
  }

  function fillFromLevels(model, d, range, part, out) {
    const device = model.devices[d];
    const { tiles } = tilesOf(device, part.level, part);
    let l = part.level;
    for (let t = tiles[0]; t <= tiles[1]; t++) {
      if (model.levelPeek(d, part.level, t) === null) {
        l = 0;
      }
    }
    for (; l < part.level; l++) {
      overlay(model, d, range, part, l, l === 0, out);
    }
    return overlay(model, d, range, part, part.level, true, out);
  }

  /* The columns of RANGE { axis, x0, x1, width }, by the groups of SCHEME: of each
   * column p its event, begin (its first event), time (of that), allocated, active
   * and reserved (the most) bytes, and the bytes of each group g at its event,
   * sums[p * groups + g]; source is NOTHING where nothing is there yet.  complete:
   * nothing finer is on its way. */
  function sample(model, d, scheme, range) {
    const out = emptyColumns(range.width, model.devices[d].groups[scheme].length);
    const part = plan(model, d, range);
    const held = part.chunks === null ? null : hold(model, d, part.chunks);
    if (held === null || !held.whole) {
      const whole = fillFromLevels(model, d, range, part, out);
      out.complete = whole && held === null;
      gather(scheme, out);
    }
    if (held !== null) {
      fillFromChunks(model, d, scheme, range, held, out);
    }
    return out;
  }

  /* The column that an event is in; -1: left of all. */
  function columnOf(columns, event) {
    return lastAtMost(columns.begin, event);
  }

  /* The first and the last event of the columns at shares FROM to TO of the range. */
  function eventsOf(columns, device, from, to) {
    const { begin, event, width } = columns;
    const at = (share) => Math.max(0, Math.min(width - 1, Math.floor(share * width)));
    const [a, b] = [at(from), at(to)];
    const last = b + 1 < width ? begin[b + 1] - 1 : event[b];
    return [begin[a], Math.min(device.events - 1, Math.max(begin[a], begin[b], last))];
  }

  return { extent, plan, sample, eventsOf, columnOf, NOTHING, CHUNKS };
})();
