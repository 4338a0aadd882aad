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

  /* Fills PIXELS, column after column from the top (WIDTH columns of HEIGHT), with the
   * stacked bands.  LOOK: fill and edge (a colour an allocation), rest, background. */
  function raster(device, selection, samples, view, height, look, pixels) {
    const { allocs, totals, events } = device;
    const { drawn, at, id } = selection;
    const END = allocs.count;
    const next = new Int32Array(END + 1);
    const prev = new Int32Array(END + 1);
    next[END] = END;
    prev[END] = END;
    const width = samples.length;
    const scale = height / (view.y1 - view.y0);
    const edges = (samples[width - 1] - samples[0]) / width < EDGE_DENSITY;
    const append = (i) => {
      const last = prev[END];
      next[last] = i;
      prev[i] = last;
      next[i] = END;
      prev[END] = i;
    };
    const remove = (i) => {
      next[prev[i]] = next[i];
      prev[next[i]] = prev[i];
    };
    const first = samples[0];
    for (let i = 0; i < allocs.count && allocs.start[i] <= first; i++) {
      if (drawn[i] === 1 && allocs.end[i] > first) {
        append(i);
      }
    }
    let op = 0;
    while (op < at.length && at[op] <= first) {
      op += 1;
    }
    for (let c = 0; c < width; c++) {
      const event = samples[c];
      const base = c * height;
      const before = c > 0 ? samples[c - 1] : event;
      if (c > 0 && event === before && !(edges && c > 1 && samples[c - 2] !== event)) {
        pixels.copyWithin(base, base - height, base);
        continue;
      }
      while (op < at.length && at[op] <= event) {
        if (id[op] >= 0) {
          append(id[op]);
        }
        else {
          remove(~id[op]);
        }
        op += 1;
      }
      pixels.fill(look.background, base, base + height);
      let below = -view.y0;
      let bottom = height - Math.round(below * scale);
      for (let i = next[END]; i !== END && bottom > 0; i = next[i]) {
        below += allocs.bytes[i];
        const top = height - Math.round(below * scale);
        if (top < bottom && top < height) {
          const from = base + Math.max(0, top);
          const to = base + Math.min(height, bottom);
          const started = edges && c > 0 && allocs.start[i] > before;
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
      const active = events.count > 0 ? totals.active[event] : 0;
      const top = height - Math.round((active - view.y0) * scale);
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
