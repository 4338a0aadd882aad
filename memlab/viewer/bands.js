/* The picture of the timeline as pixels.
 *
 * Owns which allocations are drawn one by one, how they and the rest of each group are
 * stacked in a column, and the raster.  Its cost is bounded by what is drawn and the
 * pixels, not by the events.  Pure: arrays in, arrays out; no canvas. */
"use strict";

const memlabBands = (() => {
  const SHADES = 3;
  const SQUARE = 32;
  const LONG_RUN = 24; /* pixels from which on the engine's own filling is faster */
  const EDGE_ROWS = 5; /* lower bands have no edge on top */
  /* Columns from start to start from which on starts have an edge too. */
  const EDGE_SPACE = 3;
  const LEAST_ROWS = 0.5;
  const BUCKETS_AN_OCTAVE = 8;
  const BUCKETS = 64 * BUCKETS_AN_OCTAVE;
  /* Beyond every index that is sorted; times 2^31 still exact. */
  const INDEXES = 2 ** 22;

  /* ---- which are drawn ---- */

  /* What was found so far, in arrays that only grow: this runs in every frame. */
  const scratch = { area: new Float32Array(4096), table: new Int32Array(4096),
                    row: new Int32Array(4096), count: 0, tables: [] };

  /* The indexes below COUNT by their KEY, of 32 bits, then by themselves: without a
   * function that compares, which would be called a dozen times an index and frame. */
  function byKey(count, key) {
    const sorted = Float64Array.from({ length: count }, (_, i) => key(i) * INDEXES + i)
      .sort();
    return Int32Array.from(sorted, (value) => value - Math.floor(value / INDEXES) * INDEXES);
  }

  function note(area, table, row) {
    if (scratch.count === scratch.area.length) {
      for (const name of ["area", "table", "row"]) {
        const old = scratch[name];
        scratch[name] = new old.constructor(2 * old.length);
        scratch[name].set(old);
      }
    }
    scratch.area[scratch.count] = area;
    scratch.table[scratch.count] = table;
    scratch.row[scratch.count] = row;
    scratch.count += 1;
  }

  /* The tables of rows that a range needs, as far as they are there: long lives from
   * the bands of each level down to the plan's, shorter ones from chunks.  Each with
   * the first row that counts, and the length in events from which on another table
   * has it. */
  function tablesOf(model, d, part) {
    const device = model.devices[d];
    const tables = [];
    let whole = true;
    const use = (rows, from, below) => {
      if (rows === null) {
        whole = false;
      }
      else {
        tables.push({ rows, from, below });
      }
    };
    for (let l = 0; l <= part.level; l++) {
      const { blobs, first, last } = device.bands[l];
      for (let t = 0; t < blobs.length; t++) {
        if (first[t] < part.to && last[t] > part.from) {
          use(model.bandsNow(d, l, t), 0, Infinity);
        }
      }
    }
    if (part.chunks !== null) {
      const shorter = 8 * device.levels[device.levels.length - 1].span;
      let before = null;
      for (let i = part.chunks[0]; i <= part.chunks[1]; i++) {
        const chunk = model.chunkNow(d, i);
        /* What a chunk carries over was new in the one before. */
        use(chunk?.rows ?? null, before === null ? 0 : chunk?.rows.carried, shorter);
        before = chunk;
      }
    }
    return { tables, whole };
  }

  function bucketOf(area) {
    return Math.min(BUCKETS - 1, Math.floor(Math.log2(area) * BUCKETS_AN_OCTAVE));
  }

  /* What ends before the first of these events or begins at the second is in no column:
   * most of what a chunk holds, where a range is short. */
  function eventsWithin(range, { begin, width, complete }) {
    if (range.axis !== "time") {
      return [range.x0, range.x1];
    }
    return complete ? [begin[0], begin[width - 1]] : [-Infinity, Infinity];
  }

  /* At most LIMIT allocations, those that take most pixels of the range; ROWS_A_BYTE
   * says how high they are.  By their ids: { count, of (how many there were to
   * choose from), whole (nothing is on its way), id, start, requested, bytes, group,
   * rows, row }. */
  function select(model, d, scheme, range, columns, rowsAByte, limit) {
    const { tables, whole } = tablesOf(model, d, memlabColumns.plan(model, d, range));
    const histogram = new Int32Array(BUCKETS);
    const leastBytes = LEAST_ROWS / rowsAByte;
    const { width } = columns;
    const byTime = range.axis === "time";
    const scale = width / (range.x1 - range.x0);
    const place = byTime ? (event) => memlabColumns.columnOf(columns, event)
      : (event) => (event - range.x0) * scale;
    const [low, high] = eventsWithin(range, columns);
    scratch.count = 0;
    tables.forEach(({ rows, from, below }, t) => {
      const { start, requested, bytes, count } = rows;
      for (let r = from; r < count; r++) {
        if (bytes[r] < leastBytes || requested[r] < low || start[r] >= high
            || requested[r] - start[r] >= below) {
          continue;
        }
        const left = Math.max(0, place(start[r]));
        const right = Math.min(width, place(requested[r]));
        const area = (right - left) * bytes[r] * rowsAByte;
        if (area >= 1) {
          histogram[bucketOf(area)] += 1;
          note(area, t, r);
        }
      }
    });
    return { ...pick(model, d, scheme, tables, histogram, limit), whole };
  }

  function pick(model, d, scheme, tables, histogram, limit) {
    const { area, table, row, count } = scratch;
    let bucket = BUCKETS;
    let taken = 0;
    while (bucket > 0 && taken + histogram[bucket - 1] <= limit) {
      bucket -= 1;
      taken += histogram[bucket];
    }
    /* Of the bucket that does not fit whole, the first ones found. */
    let room = bucket === 0 ? 0 : limit - taken;
    const chosen = [];
    const idOf = (i) => tables[table[i]].rows.id[row[i]];
    for (let i = 0; i < count; i++) {
      const of = bucketOf(area[i]);
      if (of >= bucket || (of === bucket - 1 && room > 0)) {
        room -= Number(of < bucket);
        chosen.push(i);
      }
    }
    const n = chosen.length;
    const sorted = byKey(n, (c) => idOf(chosen[c]));
    const bands = { count: n, of: count, id: new Int32Array(n), start: new Int32Array(n),
                    requested: new Int32Array(n), bytes: new Float64Array(n),
                    group: new Int16Array(n), rows: new Array(n),
                    row: new Int32Array(n) };
    for (let b = 0; b < n; b++) {
      const i = chosen[sorted[b]];
      const { rows } = tables[table[i]];
      const r = row[i];
      bands.id[b] = rows.id[r];
      bands.start[b] = rows.start[r];
      bands.requested[b] = rows.requested[r];
      bands.bytes[b] = rows.bytes[r];
      bands.group[b] = memlabColors.groupOf(model, d, scheme, rows.kind[r], rows.bytes[r]);
      bands.rows[b] = rows;
      bands.row[b] = r;
    }
    return bands;
  }

  /* ---- how they are stacked ---- */

  /* The drawn bands of each group that are allocated after an event, oldest first, and
   * the bytes below each; moved from event to event. */
  function createPiles(bands, groups) {
    const { start, requested, group, bytes } = bands;
    const piles = Array.from({ length: groups }, () => ({
      count: 0, band: new Int32Array(64), below: new Float64Array(65), same: 0 }));
    const byEnd = byKey(bands.count, (b) => requested[b]);
    let at = -2;
    let nextStart = 0;
    let nextEnd = 0;

    function add(b) {
      const pile = piles[group[b]];
      if (pile.count === pile.band.length) {
        const { band, below } = pile;
        pile.band = new Int32Array(2 * band.length);
        pile.band.set(band);
        pile.below = new Float64Array(2 * band.length + 1);
        pile.below.set(below);
      }
      pile.band[pile.count] = b;
      pile.same = Math.min(pile.same, pile.count);
      pile.count += 1;
    }

    function remove(b) {
      const pile = piles[group[b]];
      const { band } = pile;
      let lo = 0;
      let hi = pile.count;
      while (lo < hi) {
        const mid = (lo + hi) >>> 1;
        if (band[mid] < b) {
          lo = mid + 1;
        }
        else {
          hi = mid;
        }
      }
      band.copyWithin(lo, lo + 1, pile.count);
      pile.count -= 1;
      pile.same = Math.min(pile.same, lo);
    }

    /* After EVENT; backwards it begins anew. */
    function move(event) {
      if (event < at) {
        piles.forEach((pile) => {
          pile.count = 0;
          pile.same = 0;
        });
        nextStart = 0;
        nextEnd = 0;
        at = -2;
      }
      for (; nextEnd < byEnd.length && requested[byEnd[nextEnd]] <= event; nextEnd++) {
        /* Only what is there: it may begin and end between two columns. */
        if (start[byEnd[nextEnd]] <= at && requested[byEnd[nextEnd]] > at) {
          remove(byEnd[nextEnd]);
        }
      }
      for (; nextStart < bands.count && start[nextStart] <= event; nextStart++) {
        if (requested[nextStart] > event) {
          add(nextStart);
        }
      }
      at = event;
      for (const pile of piles) {
        for (let i = pile.same; i < pile.count; i++) {
          pile.below[i + 1] = pile.below[i] + bytes[pile.band[i]];
        }
      }
    }

    return { piles, move };
  }

  /* ---- pixels ---- */

  /* The colours of a picture: for each of COLORS, its groups', SHADES fills, as many
   * edges, and its rest, then those of what a search does not find.  Packed. */
  function palette(colors, page) {
    const { mix, pack } = memlabColors;
    const make = (of) => Uint32Array.from({ length: colors.length * SHADES }, (_, i) =>
      pack(of(colors[Math.floor(i / SHADES)], i % SHADES)));
    const shade = (color, s) => s === 0 ? color
      : mix(color, s === 1 ? "#000000" : "#ffffff", 0.92);
    const faint = (color) => mix(color, page.canvas, 0.22);
    return {
      fill: make(shade), edge: make((color) => mix(color, page.canvas, 0.55)),
      rest: make((color) => mix(color, page.canvas, 0.72)),
      dimFill: make((color, s) => faint(shade(color, s))),
      dimEdge: make((color) => mix(color, page.canvas, 0.12)),
      dimRest: make((color) => faint(mix(color, page.canvas, 0.72))),
      background: pack(page.canvas),
      waiting: [pack(mix(page.quiet, page.canvas, 0.75)),
                pack(mix(page.quiet, page.canvas, 0.2))],
      chosen: pack(page.chosen),
    };
  }

  function isHit(hits, rows, r) {
    return hits.kinds[rows.kind[r]] !== 0 || hits.matches(rows, r);
  }

  /* Fill and edge of each band.  HITS, the shell's answer to a search or null, dims
   * what does not match; CHOSEN are ids that stand out. */
  function look(bands, colors, hits, chosen) {
    const fill = new Uint32Array(bands.count);
    const edge = new Uint32Array(bands.count);
    for (let b = 0; b < bands.count; b++) {
      const dim = hits !== null && !isHit(hits, bands.rows[b], bands.row[b]);
      const at = bands.group[b] * SHADES + bands.id[b] % SHADES;
      fill[b] = dim ? colors.dimFill[at] : colors.fill[at];
      edge[b] = dim ? colors.dimEdge[at] : colors.edge[at];
      if (chosen.includes(bands.id[b])) {
        fill[b] = colors.chosen;
      }
    }
    return { fill, edge, rest: hits === null ? colors.rest : colors.dimRest,
             waiting: colors.waiting, background: colors.background };
  }

  /* Whether bands begin far enough apart for each beginning to be marked. */
  function marksStarts(columns, bands) {
    let begun = 0;
    for (let b = 0; b < bands.count; b++) {
      begun += Number(bands.start[b] > columns.event[0]);
    }
    return begun * EDGE_SPACE <= columns.width;
  }

  /* Rows TOP to BOTTOM of the column that begins at BASE, as far as it has them. */
  function paint(pixels, base, height, color, top, bottom) {
    const from = base + (top > 0 ? top : 0);
    const to = base + (bottom < height ? bottom : height);
    if (to - from > LONG_RUN) {
      pixels.fill(color, from, to);
      return;
    }
    for (let i = from; i < to; i++) {
      pixels[i] = color;
    }
  }

  /* Draws COLUMNS into PIXELS, column after column, each from the top: HEIGHT rows
   * for the bytes view.y0 to view.y1, one COLORS of `look`.  A column is copied from
   * the one before, and drawn anew from where it differs. */
  function raster(columns, bands, view, height, colors, pixels) {
    const { width, groups, event, sums, active, allocated, source } = columns;
    const scale = height / (view.y1 - view.y0);
    const rowOf = (bytes) => height - Math.round((bytes - view.y0) * scale);
    const { piles, move } = createPiles(bands, groups);
    const starts = marksStarts(columns, bands);
    const floors = new Float64Array(groups).fill(NaN); /* each group's in the last column */
    let before = event[0];
    for (let p = 0; p < width; p++) {
      const base = p * height;
      if (source[p] < 0) {
        pixels.fill(colors.background, base, base + height);
        floors.fill(NaN);
        continue;
      }
      if (p > 0) {
        pixels.copyWithin(base, base - height, base);
      }
      move(event[p]);
      let floor = 0;
      for (let g = 0; g < groups; g++) {
        const pile = piles[g];
        const ceiling = rowOf(floor + sums[p * groups + g]);
        let i = floors[g] === floor ? pile.same : 0;
        let low = rowOf(floor + pile.below[i]);
        floors[g] = floor;
        pile.same = pile.count;
        for (; i < pile.count; i++) {
          const high = rowOf(floor + pile.below[i + 1]);
          if (high < low && high < height && low > 0) {
            const b = pile.band[i];
            const fresh = starts && bands.start[b] > before;
            paint(pixels, base, height, fresh ? colors.edge[b] : colors.fill[b], high,
                  low);
            if (low - high >= EDGE_ROWS && high >= 0) {
              pixels[base + high] = colors.edge[b];
            }
            if (fresh) {
              pile.same = Math.min(pile.same, i); /* its edge is not copied */
            }
          }
          low = high;
        }
        if (ceiling < low) {
          paint(pixels, base, height, colors.rest[g * SHADES], ceiling, low);
        }
        floor += sums[p * groups + g];
      }
      const top = rowOf(active[p]);
      for (let r = Math.max(0, top); r < Math.min(height, rowOf(allocated[p])); r++) {
        pixels[base + r] = colors.waiting[((r + p) >> 2) & 1];
      }
      paint(pixels, base, height, colors.background, 0, top);
      before = event[p];
    }
  }

  /* Columns of pixels as rows, in squares that fit the processor's cache. */
  function transpose(columns, rows, width, height) {
    for (let left = 0; left < width; left += SQUARE) {
      const right = Math.min(width, left + SQUARE);
      for (let top = 0; top < height; top += SQUARE) {
        const bottom = Math.min(height, top + SQUARE);
        for (let r = top; r < bottom; r++) {
          let from = left * height + r;
          for (let to = r * width + left; to < r * width + right; to++) {
            rows[to] = columns[from];
            from += height;
          }
        }
      }
    }
  }

  /* What is drawn BYTES above zero in column P: { group, band } with band -1 for the
   * rest of the group, { waiting: true }, or null. */
  function hit(columns, bands, p, bytes) {
    const { groups, event, sums, active, source } = columns;
    let floor = 0;
    if (bytes < 0 || source[p] < 0 || bytes >= active[p]) {
      return null;
    }
    for (let g = 0; g < groups; g++) {
      const sum = sums[p * groups + g];
      if (bytes < floor + sum) {
        for (let b = 0; b < bands.count && bands.start[b] <= event[p]; b++) {
          if (bands.group[b] === g && bands.requested[b] > event[p]) {
            floor += bands.bytes[b];
            if (bytes < floor) {
              return { group: g, band: b };
            }
          }
        }
        return { group: g, band: -1 };
      }
      floor += sum;
    }
    return { waiting: true };
  }

  return { select, palette, look, raster, transpose, hit };
})();
