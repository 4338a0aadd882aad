/* What torch's allocator holds of the device, over time: its segments as bands.
 *
 * Owns the pools that segments are coloured by, what is reserved after each change, and
 * how columns of pixels and bands are made of it, in the form that bands.js draws.  A
 * column shows its most reserved instant.  Pure; runs under node too. */
"use strict";

const memlabCached = (() => {
  const SMALL = 2;
  const PRIVATE = 4;
  const POOLS = ["large blocks", "small blocks", "private pool"];
  const LEAST_ROWS = 0.5;

  const { formatBytes, formatCount, hex } = memlabNames;

  function poolOf(flags) {
    return (flags & PRIVATE) !== 0 ? 2 : (flags & SMALL) !== 0 ? 1 : 0;
  }

  function colors() {
    return POOLS.map((_, g) => memlabColors.ofRank(g));
  }

  /* ---- what is reserved ---- */

  const known = new WeakMap();

  /* After each event that changes it what each pool has reserved: { event, sums }, the
   * first entry before all events. */
  function changesOf(pieces) {
    if (!known.has(pieces)) {
      known.set(pieces, makeChanges(pieces));
    }
    return known.get(pieces);
  }

  function makeChanges({ count, start, end, bytes, flags }) {
    const order = Float64Array.from({ length: 2 * count }, (_, i) => i);
    const at = (i) => (i < count ? start[i] : end[i - count]);
    order.sort((a, b) => at(a) - at(b) || b - a);
    const event = [-1];
    const sums = new Array(POOLS.length).fill(0);
    for (const i of order) {
      if (at(i) > event[event.length - 1]) {
        event.push(at(i));
        sums.push(...sums.slice(-POOLS.length));
      }
      const s = i % count;
      sums[sums.length - POOLS.length + poolOf(flags[s])] += i < count ? bytes[s] : -bytes[s];
    }
    return { event: Int32Array.from(event), sums: Float64Array.from(sums) };
  }

  function total(changes, k) {
    let sum = 0;
    for (let g = 0; g < POOLS.length; g++) {
      sum += changes.sums[k * POOLS.length + g];
    }
    return sum;
  }

  /* COLUMNS of the timeline, each at its most reserved instant, by pool. */
  function columnsOf(pieces, columns, events) {
    const changes = changesOf(pieces);
    const { width, begin, source } = columns;
    const groups = POOLS.length;
    const out = { ...columns, groups, event: Int32Array.from(columns.event),
                  allocated: new Float64Array(width), active: new Float64Array(width),
                  reserved: new Float64Array(width), sums: new Float64Array(width * groups) };
    let k = 0;
    for (let p = 0; p < width; p++) {
      if (source[p] < 0) {
        continue;
      }
      const next = p + 1 < width && source[p + 1] >= 0 ? begin[p + 1] : events;
      k = Math.max(0, memlabData.lastAtMost(changes.event, begin[p]));
      let best = k;
      while (k + 1 < changes.event.length && changes.event[k + 1] < Math.max(next, begin[p] + 1)) {
        k += 1;
        best = total(changes, k) > total(changes, best) ? k : best;
      }
      out.event[p] = Math.max(changes.event[best], begin[p]);
      for (let g = 0; g < groups; g++) {
        out.sums[p * groups + g] = changes.sums[best * groups + g];
      }
      const held = total(changes, best);
      out.allocated[p] = held;
      out.active[p] = held;
      out.reserved[p] = held;
    }
    return out;
  }

  /* ---- bands ---- */

  /* At most LIMIT pieces, those that take most of the range; by their numbers. */
  function bandsOf(pieces, columns, rowsAByte, limit) {
    const { width, event } = columns;
    const [from, to] = [event[0], event[width - 1]];
    const seen = [];
    for (let s = 0; s < pieces.count; s++) {
      if (pieces.start[s] <= to && pieces.end[s] > from
          && pieces.bytes[s] * rowsAByte >= LEAST_ROWS) {
        seen.push(s);
      }
    }
    const area = (s) => pieces.bytes[s]
      * (Math.min(to + 1, pieces.end[s]) - Math.max(from, pieces.start[s]));
    const chosen = seen.length <= limit ? seen
      : seen.sort((a, b) => area(b) - area(a)).slice(0, limit).sort((a, b) => a - b);
    return { count: chosen.length, of: seen.length, whole: true,
             id: Int32Array.from(chosen),
             start: Int32Array.from(chosen, (s) => pieces.start[s]),
             requested: Int32Array.from(chosen, (s) => pieces.end[s]),
             bytes: Float64Array.from(chosen, (s) => pieces.bytes[s]),
             group: Int16Array.from(chosen, (s) => poolOf(pieces.flags[s])) };
  }

  /* ---- words ---- */

  function tipLines(model, d, pieces, s) {
    const { events } = model.devices[d];
    const made = pieces.start[s] < 0 ? "from before the recording"
      : `from event ${formatCount(pieces.start[s])}`;
    const gone = pieces.end[s] >= events ? "to the end"
      : `to event ${formatCount(pieces.end[s])}`;
    return [`segment s${hex(pieces.hi[s], pieces.lo[s])}, ${formatBytes(pieces.bytes[s])}`,
            `${POOLS[poolOf(pieces.flags[s])]}, stream `
              + formatCount(model.streams[pieces.stream[s]]),
            `${made} ${gone}`];
  }

  return { POOLS, colors, columnsOf, bandsOf, tipLines };
})();
