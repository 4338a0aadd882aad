/* Labels in the timeline: none over another, none outside. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");

const { memlabMarks } = load(["names.js", "blobs.js", "data.js", "marks.js"],
                             ["memlabMarks"]);
const LETTER = 6;

/* A canvas that keeps what is written on plates: [{ text, left, right, top }]. */
function canvas() {
  const plates = [];
  let plate = null;
  const context = {
    measureText: (text) => ({ width: text.length * LETTER }),
    fillRect: (x, top, width) => { plate = { left: x, right: x + width, top }; },
    fillText: (text, x) => {
      if (plate !== null && x > plate.left) {
        plates.push({ text, ...plate });
      }
      plate = null;
    },
  };
  const all = new Proxy(context, { get: (own, name) => own[name] ?? (() => undefined) });
  return { context: all, plates };
}

function plotOf(width, peak) {
  const columns = { width, reserved: new Float64Array(width).fill(960),
                    source: new Int32Array(width), time: new Float64Array(width),
                    begin: Int32Array.from({ length: width }, (_, p) => p),
                    event: Int32Array.from({ length: width }, (_, p) => p) };
  return { left: 60, top: 20, width, height: 300, range: { axis: "event", x0: 0, x1: 1000 },
           extent: { from: 0, to: 1000 }, view: { y0: 0, y1: 1000 }, columns, page: {},
           notes: memlabMarks.sortNotes(
             { notes: [], ranks: [], devices: [{ index: 0 }] }, 0),
           ooms: [{ event: peak, bytes: 1024 }] };
}

test("labels have a row each where they would meet, also at the edges", () => {
  for (const width of [250, 900]) {
    for (let event = 0; event < 1000; event += 50) {
      const { context, plates } = canvas();
      const plot = plotOf(width, 999 - event);
      memlabMarks.draw(context, plot, { peak: { event, allocated: 900 }, event, other: -1,
                                        brush: null });
      assert.equal(plates.length, 3, `${width} ${event}`);
      for (const [i, one] of plates.entries()) {
        assert.ok(one.left >= plot.left - 1 && one.right <= plot.left + width, one.text);
        for (const other of plates.slice(0, i)) {
          assert.ok(one.right <= other.left || one.left >= other.right
                    || Math.abs(one.top - other.top) >= 15, `${one.text}, ${other.text}`);
        }
      }
    }
  }
});

test("the last number below the timeline ends within it", () => {
  const plot = plotOf(900, 0);
  const numbers = [];
  const { context } = canvas();
  const below = new Proxy(context, { get: (own, name) => name !== "fillText" ? own[name]
    : (text, x, y) => y > plot.top + plot.height && numbers.push([text, x]) });
  memlabMarks.draw(below, plot, { peak: { event: 0, allocated: 900 }, event: 0, other: -1,
                                  brush: null });
  const [text, x] = numbers.at(-1);
  assert.equal(text, "1,000");
  assert.equal(x + text.length * LETTER / 2, plot.left + plot.width);
});

/* Columns of ten microseconds and a pixel. */
function spansDrawn(axis, ranges) {
  const drawn = [];
  const context = new Proxy({
    measureText: () => ({ width: 0 }),
    fillRect: (x, top, width, height) => {
      if (height === 12) {
        drawn.push([x - 60, width + 1]);
      }
    },
  }, { get: (own, name) => own[name] ?? (() => undefined) });
  const plot = plotOf(100, 0);
  plot.range = { axis, x0: 0, x1: 1000 };
  plot.extent = { from: 0, to: 3000 };
  plot.columns.time = Float64Array.from({ length: 100 }, (_, p) => 10 * p);
  const spans = ranges.sort(([a], [b]) => a - b)
    .map(([from, to]) => ({ from, to, lane: 0, text: "" }));
  Object.assign(plot.notes, { spans, starts: Float64Array.from(spans, ({ from }) => from),
                              longest: 2000, lanes: 1 });
  memlabMarks.draw(context, plot, { peak: { event: 0, allocated: 1 }, event: 0, other: -1,
                                    brush: null });
  return drawn;
}

test("of many spans those are drawn that are wide enough, wherever they are", () => {
  const narrow = Array.from({ length: 1000 }, (_, at) => [at, at + 1]);
  const wide = [[200, 260], [300, 320], [400, 409], [970, 2000]];
  for (const axis of ["event", "time"]) {
    assert.deepEqual(spansDrawn(axis, [...narrow, ...wide]), [[20, 6], [30, 2], [97, 3]], axis);
  }
  /* Its columns are one apart; its times one and a half. */
  assert.deepEqual(spansDrawn("event", [[300, 315]]), []);
  assert.deepEqual(spansDrawn("time", [[300, 315]]), [[30, 1.5]]);
  /* Its end is right of the last column. */
  assert.deepEqual(spansDrawn("event", [[980, 1500]]), [[98, 2]]);
});
