/* Device memory after an event: segments, the blocks in them, the holes between.
 *
 * Owns how the pieces and rows of a recording make that state.  Knows no document and
 * draws nothing; runs under node too. */
"use strict";

const memlabMemory = (() => {
  const HIGH = 2 ** 32;
  const EXPANDABLE = 1;
  const SMALL = 2;
  const PRIVATE = 4;

  const orders = new WeakMap();

  function byAddress(table, a, b) {
    return table.hi[a] - table.hi[b] || table.lo[a] - table.lo[b];
  }

  /* Pieces of segments by address, sorted once. */
  function orderOf(pieces) {
    let order = orders.get(pieces);
    if (order === undefined) {
      order = Int32Array.from({ length: pieces.count }, (_, i) => i)
        .sort((a, b) => byAddress(pieces, a, b) || pieces.start[a] - pieces.start[b]);
      orders.set(pieces, order);
    }
    return order;
  }

  /* Bytes from one address to another. */
  function distance(from, table, row) {
    return (table.hi[row] - from.hi) * HIGH + (table.lo[row] - from.lo);
  }

  function segmentOf(pieces, s, event) {
    const flags = pieces.flags[s];
    return {
      name: `s${memlabNames.hex(pieces.hi[s], pieces.lo[s])}`,
      hi: pieces.hi[s], lo: pieces.lo[s], bytes: pieces.bytes[s],
      stream: pieces.stream[s], stack: pieces.stack[s], flags,
      expandable: (flags & EXPANDABLE) !== 0, small: (flags & SMALL) !== 0,
      isPrivate: (flags & PRIVATE) !== 0,
      fresh: pieces.start[s] === event, gone: pieces.end[s] === event,
      rows: [], offsets: [], used: 0, pending: 0,
    };
  }

  /* Mapped pieces that touch are one segment, as torch's own snapshot has them. */
  function joins(last, pieces, s) {
    return last !== undefined && last.expandable && !last.gone
      && pieces.flags[s] === last.flags && pieces.stream[s] === last.stream
      && distance(last, pieces, s) === last.bytes;
  }

  /* The segments there are after EVENT, by address, those that EVENT itself gave back
   * among them, marked as gone; empty yet. */
  function segmentsAt(pieces, event) {
    const out = [];
    let last;
    for (const s of orderOf(pieces)) {
      if (pieces.start[s] > event || pieces.end[s] < event) {
        continue;
      }
      const gone = pieces.end[s] === event;
      if (!gone && joins(last, pieces, s)) {
        last.bytes += pieces.bytes[s];
        last.fresh ||= pieces.start[s] === event;
        continue;
      }
      const segment = segmentOf(pieces, s, event);
      out.push(segment);
      if (!gone) {
        last = segment;
      }
    }
    return out;
  }

  /* Rows of CHUNK that are active after EVENT, by address. */
  function activeRows({ rows }, event) {
    const out = [];
    for (let r = 0; r < rows.count; r++) {
      if (rows.start[r] <= event && rows.end[r] > event) {
        out.push(r);
      }
    }
    return out.sort((a, b) => byAddress(rows, a, b));
  }

  function put(segment, rows, row, offset, event) {
    segment.rows.push(row);
    segment.offsets.push(offset);
    segment.used += rows.bytes[row];
    if (rows.requested[row] <= event) {
      segment.pending += rows.bytes[row];
    }
  }

  /* Blocks of an allocator without segments (the CPU's), end to end. */
  function withoutSegment(rows, list, event) {
    const segment = { name: "", hi: 0, lo: 0, bytes: 0, stream: 0, stack: 0, flags: 0,
                      expandable: false, small: false, isPrivate: false, fresh: false,
                      gone: false, rows: [], offsets: [], used: 0, pending: 0 };
    for (const row of list) {
      put(segment, rows, row, segment.bytes, event);
      segment.bytes += rows.bytes[row];
    }
    return segment;
  }

  /* All segments after EVENT with their blocks: rows of CHUNK, which has EVENT, at their
   * offsets.  Blocks that are in no segment come last, in one of their own. */
  function stateAt(pieces, chunk, event) {
    const segments = segmentsAt(pieces, event);
    const present = segments.filter((segment) => !segment.gone);
    const { rows } = chunk;
    const strays = [];
    let s = 0;
    for (const row of activeRows(chunk, event)) {
      while (s < present.length && distance(present[s], rows, row) >= present[s].bytes) {
        s += 1;
      }
      const offset = s < present.length ? distance(present[s], rows, row) : -1;
      if (offset < 0) {
        strays.push(row);
      }
      else {
        put(present[s], rows, row, offset, event);
      }
    }
    if (strays.length > 0) {
      segments.push(withoutSegment(rows, strays, event));
    }
    return segments;
  }

  /* Free parts of a segment: [{ offset, bytes }]. */
  function holesOf(segment, rows) {
    const out = [];
    let at = 0;
    const free = (stop) => {
      if (stop > at) {
        out.push({ offset: at, bytes: stop - at });
      }
    };
    segment.rows.forEach((row, k) => {
      free(segment.offsets[k]);
      at = Math.max(at, segment.offsets[k] + rows.bytes[row]);
    });
    free(segment.bytes);
    return out;
  }

  /* The largest hole among SEGMENTS that SUITS accepts: { segment, offset, bytes }, or
   * null. */
  function largestHole(segments, rows, suits) {
    let best = null;
    for (const segment of segments) {
      if (segment.gone || !suits(segment)) {
        continue;
      }
      for (const hole of holesOf(segment, rows)) {
        if (best === null || hole.bytes > best.bytes) {
          best = { segment, ...hole };
        }
      }
    }
    return best;
  }

  return { stateAt, holesOf, largestHole, distance };
})();
