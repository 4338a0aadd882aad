/* The picture of the Active Memory Timeline as pixels.
 *
 * Owns which allocations are drawn one by one, which event stands for each column of
 * pixels, and the raster itself.  Its cost is bounded by the drawn allocations and the
 * pixels, not by the events.  Pure: arrays in, arrays out; no canvas. */
"use strict";

const memlabBands = (() => {
  const GROUP = 64;
  /* Below this many events a pixel the start of a band gets an edge of its own. */
  const EDGE_DENSITY = 0.5;
  const EDGE_ROWS = 5;

  /* Allocations by bytes, largest first: the slider draws a prefix of this. */
  function sizeOrder(allocs) {
    const order = Int32Array.from({ length: allocs.count }, (_, i) => i);
    return order.sort((a, b) => allocs.bytes[b] - allocs.bytes[a] || a - b);
  }

  /* Starts and ends of the LIMIT largest allocations, in event order.  An id that starts
   * is stored as it is, one that ends as its complement. */
  function select(device, order, limit) {
    const { allocs, events } = device;
    const drawn = new Uint8Array(allocs.count);
    const count = Math.min(limit, order.length);
    for (let k = 0; k < count; k++) {
      drawn[order[k]] = 1;
    }
    const at = [];
    const id = [];
    const ending = [];
    let nextStart = 0;
    while (nextStart < allocs.count && allocs.start[nextStart] < 0) {
      nextStart += 1;
    }
    for (let i = 0; i < allocs.count; i++) {
      if (drawn[i] === 1 && allocs.end[i] < events.count) {
        ending.push(i);
      }
    }
    ending.sort((a, b) => allocs.end[a] - allocs.end[b]);
    let nextEnd = 0;
    while (nextEnd < ending.length || nextStart < allocs.count) {
      const start = nextStart < allocs.count ? allocs.start[nextStart] : Infinity;
      const end = nextEnd < ending.length ? allocs.end[ending[nextEnd]] : Infinity;
      if (end <= start) {
        at.push(end);
        id.push(~ending[nextEnd]);
        nextEnd += 1;
      }
      else {
        if (drawn[nextStart] === 1) {
          at.push(start);
          id.push(nextStart);
        }
        nextStart += 1;
      }
    }
    return { drawn, count, at: Int32Array.from(at), id: Int32Array.from(id) };
  }

  /* Index of the largest value of each group, so that a column's peak is found without
   * looking at every event. */
  function peakIndex(values) {
    const groups = new Int32Array(Math.ceil(values.length / GROUP));
    for (let i = 0; i < values.length; i++) {
      const g = (i / GROUP) | 0;
      if (i % GROUP === 0 || values[i] > values[groups[g]]) {
        groups[g] = i;
      }
    }
    return { values, groups };
  }

  function peakBetween(index, lo, hi) {
    const { values, groups } = index;
    let best = lo;
    let i = lo;
    while (i <= hi) {
      if (i % GROUP === 0 && i + GROUP - 1 <= hi) {
        const candidate = groups[i / GROUP];
        if (values[candidate] > values[best]) {
          best = candidate;
        }
        i += GROUP;
      }
      else {
        if (values[i] > values[best]) {
          best = i;
        }
        i += 1;
      }
    }
    return best;
  }

  /* Positions of events on the axis; one past the last event closes the axis. */
  function axisOf(device, kind) {
    const { time, count } = device.events;
    if (kind === "time" && count > 0) {
      const xs = new Float64Array(count);
      let latest = 0;
      for (let e = 0; e < count; e++) {
        latest = Math.max(latest, time[e] - time[0]);
        xs[e] = latest;
      }
      return { kind, xs, length: Math.max(latest, 1) };
    }
    return { kind: "events", xs: null, length: Math.max(count, 1) };
  }

  /* The last event at or before X; -1 before the first. */
  function eventAt(axis, x, count) {
    if (axis.xs === null) {
      return Math.max(-1, Math.min(count - 1, Math.floor(x)));
    }
    let lo = 0;
    let hi = count;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if (axis.xs[mid] <= x) {
        lo = mid + 1;
      }
      else {
        hi = mid;
      }
    }
    return lo - 1;
  }

  function positionOf(axis, event) {
    return axis.xs === null ? event : axis.xs[event];
  }

  /* For each of WIDTH columns the event whose state is drawn: the one with the most
   * active bytes among those the column covers, so that no peak can fall between. */
  function sampleColumns(axis, index, count, x0, x1, width) {
    const samples = new Int32Array(width);
    for (let c = 0; c < width; c++) {
      const lo = Math.max(0, eventAt(axis, x0 + (x1 - x0) * c / width, count));
      const stop = x0 + (x1 - x0) * (c + 1) / width;
      let hi = eventAt(axis, stop, count);
      if (hi >= 0 && positionOf(axis, hi) >= stop) {
        hi -= 1;
      }
      samples[c] = peakBetween(index, lo, Math.max(lo, hi));
    }
    return samples;
  }

  /* The drawn allocations that are live, oldest first, with the bytes below each.  What
   * ends leaves a gap of no bytes, so that the others keep their places, unless it is on
   * top, where most come and go. */
  function createPile(allocs) {
    const pile = { count: 0, gaps: 0, ids: new Int32Array(64),
                   bytes: new Float64Array(64), below: new Float64Array(65),
                   place: new Int32Array(allocs.count) };

    pile.append = (id) => {
      if (pile.count === pile.ids.length) {
        for (const key of ["ids", "bytes", "below"]) {
          const grown = new pile[key].constructor(pile[key].length * 2 + 1);
          grown.set(pile[key]);
          pile[key] = grown;
        }
      }
      pile.ids[pile.count] = id;
      pile.bytes[pile.count] = allocs.bytes[id];
      pile.place[id] = pile.count;
      pile.count += 1;
      return pile.count - 1;
    };

    pile.remove = (id) => {
      const place = pile.place[id];
      pile.bytes[place] = 0;
      pile.ids[place] = -1;
      pile.gaps += 1;
      while (pile.count > 0 && pile.ids[pile.count - 1] < 0) {
        pile.count -= 1;
        pile.gaps -= 1;
      }
      return Math.min(place, pile.count);
    };

    pile.compact = () => {
      const ids = Array.from(pile.ids.subarray(0, pile.count)).filter((id) => id >= 0);
      pile.count = 0;
      pile.gaps = 0;
      ids.forEach(pile.append);
    };
    return pile;
  }

  /* Fills PIXELS, column after column from the top (as many columns as SAMPLES, of
   * HEIGHT), with the stacked bands.  LOOK: fill and edge (a colour an allocation), rest,
   * background.  A column differs from the one before only above the lowest band that
   * came or went, so only that part is drawn anew. */
  function raster(device, selection, samples, view, height, look, pixels) {
    const { allocs, totals } = device;
    const { drawn, at, id } = selection;
    const width = samples.length;
    const scale = height / (view.y1 - view.y0);
    const edges = (samples[width - 1] - samples[0]) / width < EDGE_DENSITY;
    const pile = createPile(allocs);
    const first = samples[0];
    for (let i = 0; i < allocs.count && allocs.start[i] <= first; i++) {
      if (drawn[i] === 1 && allocs.end[i] > first) {
        pile.append(i);
      }
    }
    let op = 0;
    while (op < at.length && at[op] <= first) {
      op += 1;
    }
    const rowOf = (bytes) => height - Math.round((bytes - view.y0) * scale);
    let same = 0; /* places below this are as in the column before */
    for (let c = 0; c < width; c++) {
      const event = samples[c];
      const base = c * height;
      const before = c > 0 ? samples[c - 1] : event;
      for (; op < at.length && at[op] <= event; op++) {
        same = Math.min(same, id[op] >= 0 ? pile.append(id[op]) : pile.remove(~id[op]));
      }
      if (pile.gaps > GROUP && pile.gaps > pile.count / 2) {
        pile.compact();
        same = 0;
      }
      if (c > 0) {
        pixels.copyWithin(base, base - height, base);
      }
      let bottom = same === 0 ? height - Math.round(-view.y0 * scale)
        : rowOf(pile.below[same]);
      pixels.fill(look.background, base, base + Math.max(0, Math.min(height, bottom)));
      let place = same;
      let fresh = -1; /* lowest place drawn as an edge, to be drawn again next */
      for (; place < pile.count && bottom > 0; place++) {
        const below = pile.below[place] + pile.bytes[place];
        pile.below[place + 1] = below;
        const top = rowOf(below);
        if (top < bottom && top < height) {
          const i = pile.ids[place];
          const from = base + Math.max(0, top);
          const to = base + Math.min(height, bottom);
          const started = edges && c > 0 && allocs.start[i] > before;
          if (started && fresh < 0) {
            fresh = place;
          }
          const color = started ? look.edge[i] : look.fill[i];
          for (let p = from; p < to; p++) {
            pixels[p] = color;
          }
          if (top >= 0 && bottom - top >= EDGE_ROWS) {
            pixels[from] = look.edge[i];
          }
        }
        bottom = top;
      }
      same = fresh >= 0 ? fresh : place;
      const top = rowOf(totals.active[event]);
      if (bottom > 0 && top < bottom && top < height) {
        pixels.fill(look.rest, base + Math.max(0, top), base + Math.min(height, bottom));
      }
    }
  }

  /* What is drawn BYTES above zero after EVENT: an allocation's id, "rest" for the band
   * of smaller allocations, or null. */
  function hit(device, selection, event, bytes) {
    const { allocs, totals } = device;
    let below = 0;
    if (bytes < 0) {
      return null;
    }
    for (let i = 0; i < allocs.count && allocs.start[i] <= event; i++) {
      if (selection.drawn[i] === 1 && allocs.end[i] > event) {
        below += allocs.bytes[i];
        if (bytes < below) {
          return i;
        }
      }
    }
    return bytes < totals.active[event] ? "rest" : null;
  }

  /* How many of the largest allocations a slider position from 0 to 100 draws: from ten
   * to all of them, by equal ratios. */
  function drawnLimit(position, count) {
    if (position >= 100 || count <= 10) {
      return count;
    }
    return Math.min(count, Math.round(10 * (count / 10) ** (position / 100)));
  }

  function sliderPosition(limit, count) {
    if (limit >= count || count <= 10) {
      return 100;
    }
    return Math.max(0, Math.round(100 * Math.log(limit / 10) / Math.log(count / 10)));
  }

  return { sizeOrder, select, peakIndex, peakBetween, axisOf, eventAt, positionOf,
           sampleColumns, raster, hit, drawnLimit, sliderPosition };
})();
