/* The part of a recording that the timeline shows: a range of its axis, and heights.
 *
 * Owns their limits and moves.  RANGE { axis, x0, x1 } is in events or microseconds,
 * VIEW { y0, y1 } in bytes.  Knows no pixels but how many columns there are, and no
 * document: runs under node too. */
"use strict";

const memlabViewport = (() => {
  const HEADROOM = 1.04;
  const MOST_RESERVED = 2.5;
  const LEAST = { events: 8, time: 10 };
  const LEAST_BYTES = 4096;

  /* COLUMNS() is the number of columns of pixels; CHANGED() is told of every move.  ALL: what
   * is reserved is in sight at first, however much. */
  function create(model, d, axis, columns, changed, all = false) {
    const device = model.devices[d];
    const extent = memlabColumns.extent(model, d, axis);
    const range = { axis, x0: extent.from, x1: extent.to };
    const { full, fit } = heights(device, all);
    const view = { y0: 0, y1: fit };

    function least() {
      return Math.min(extent.to - extent.from, LEAST[axis]);
    }

    /* To whole columns, so that panning moves the picture and does not change it. */
    function setRange(x0, x1) {
      const span = Math.min(extent.to - extent.from, Math.max(least(), x1 - x0));
      const step = span / columns();
      const left = extent.from + Math.round((x0 - extent.from) / step) * step;
      range.x0 = Math.max(extent.from, Math.min(extent.to - span, left));
      range.x1 = range.x0 + span;
      changed();
    }

    function setHeights(y0, y1) {
      const span = Math.min(full, Math.max(LEAST_BYTES, y1 - y0));
      view.y0 = Math.max(0, Math.min(full - span, y0));
      view.y1 = view.y0 + span;
      changed();
    }

    /* By a FACTOR of what is shown, around a share of it. */
    function zoom(factor, at) {
      const { x0, x1 } = range;
      const x = x0 + (x1 - x0) * at;
      const f = Math.max(factor, Math.min(1, least() / (x1 - x0)));
      setRange(x - (x - x0) * f, x + (x1 - x) * f);
    }

    function stretch(factor, at) {
      const { y0, y1 } = view;
      const y = y0 + (y1 - y0) * at;
      setHeights(y - (y - y0) * factor, y + (y1 - y) * factor);
    }

    /* By shares of what is shown, from where FROM stood: { range, view }. */
    function pan(x, y, from = { range, view }) {
      const { x0, x1 } = from.range;
      const { y0, y1 } = from.view;
      if (y !== 0 || from.view !== view) {
        setHeights(y0 + (y1 - y0) * y, y1 + (y1 - y0) * y);
      }
      setRange(x0 + (x1 - x0) * x, x1 + (x1 - x0) * x);
    }

    function showAll() {
      setHeights(0, fit);
      setRange(extent.from, extent.to);
    }

    return { range, view, extent, all, setRange, setHeights, zoom, stretch, pan, showAll,
             copy: () => ({ range: { ...range }, view: { ...view } }),
             isWhole: () => range.x0 <= extent.from && range.x1 >= extent.to,
             fits: () => view.y0 === 0 && view.y1 === fit,
             fit: () => setHeights(0, fit) };
  }

  /* Bytes: all there is, and what is shown at first.  Far more reserved than allocated
   * would leave the bands no room: its line is then out of sight. */
  function heights({ peak }, all) {
    const active = Math.max(1, peak.allocated, peak.active, peak.highest?.active ?? 0);
    const reserved = Math.max(peak.reserved ?? 0, peak.highest?.reserved ?? 0);
    const full = Math.max(active, reserved) * HEADROOM;
    return { full, fit: !all && reserved > active * MOST_RESERVED ? active * 1.15 : full };
  }

  return { create };
})();
