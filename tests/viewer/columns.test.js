/* memlabColumns against brute force over all events. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");
const { encode, readerOf, randomRecording, dice, SCHEMES } = require("./encode.js");

const { memlabData, memlabColumns } = load(
  ["names.js", "blobs.js", "data.js", "columns.js"], ["memlabData", "memlabColumns"]);
const { sample, extent, CHUNKS, NOTHING } = memlabColumns;

/* Samples until all that it asked for has come. */
async function settled(model, scheme, range) {
  for (;;) {
    const came = new Promise((resolve) => model.onLoad(resolve));
    const columns = sample(model, 0, scheme, range);
    if (columns.complete) {
      return columns;
    }
    await came;
  }
}

/* The first highest of the events LO to HI, where -1 is before the first. */
function highest({ story }, lo, hi) {
  const at = (e) => (e < 0 ? story.first : story.totals[e]).allocated;
  let best = lo;
  for (let e = lo; e <= hi; e++) {
    best = at(e) > at(best) ? e : best;
  }
  return best;
}

function checkColumn(made, scheme, columns, p, event, what) {
  const total = event < 0 ? made.story.first : made.story.totals[event];
  assert.equal(columns.event[p], event, `event of ${what}`);
  assert.equal(columns.allocated[p], total.allocated, what);
  assert.equal(columns.active[p], total.active, what);
  const { groups } = columns;
  assert.deepEqual(Array.from(columns.sums.subarray(p * groups, (p + 1) * groups)),
                   made.sums[scheme][event + 1], what);
}

test("close up, by events: each column has the highest of its own events", async () => {
  for (let seed = 0; seed < 16; seed++) {
    const random = dice(seed);
    const made = encode({ ...randomRecording(seed, 500), chunk: 64, spans: [16, 64] });
    const model = memlabData.open(made.head, readerOf(made.blobs));
    const width = 5 + random(60);
    const x0 = random(400);
    const x1 = x0 + 1 + random(Math.min(15 * width, 500 - x0));
    const scheme = SCHEMES[seed % 4];
    const columns = await settled(model, scheme, { axis: "events", x0, x1, width });
    for (let p = 0; p < width; p++) {
      /* In whole numbers: x0 + (x1 - x0) * p / width. */
      const from = (q) => Math.ceil((x0 * width + (x1 - x0) * q) / width);
      const hi = from(p + 1) - 1;
      const lo = Math.min(hi, from(p));
      const what = `seed ${seed}, column ${p}, events ${lo} to ${hi}`;
      assert.equal(columns.source[p], CHUNKS);
      assert.equal(columns.begin[p], lo, what);
      assert.equal(columns.time[p], made.times[lo], what);
      assert.equal(columns.reserved[p], Math.max(
        ...made.story.totals.slice(lo, hi + 1).map((row) => row.reserved)), what);
      checkColumn(made, scheme, columns, p, highest(made, lo, hi), what);
    }
  }
});

test("close up, by time: what a column began with counts too", async () => {
  for (let seed = 50; seed < 70; seed++) {
    const random = dice(seed);
    const made = encode({ ...randomRecording(seed, 400), chunk: 64, spans: [16] });
    const model = memlabData.open(made.head, readerOf(made.blobs));
    const all = extent(model, 0, "time");
    const width = 5 + random(80);
    const x0 = all.from + random(200);
    const x1 = Math.min(all.to, x0 + 10 + random(400));
    const columns = await settled(model, "line", { axis: "time", x0, x1, width });
    for (let p = 0; p < width; p++) {
      const before = (t) => made.times.filter((time) => time < t).length - 1;
      const step = (x1 - x0) / width;
      const [lo, hi] = [before(x0 + p * step), before(x0 + (p + 1) * step)];
      checkColumn(made, "line", columns, p, highest(made, lo, hi),
                  `seed ${seed}, column ${p}`);
    }
  }
});

test("from afar: no peak is lost, every column adds up, at every level", async () => {
  const made = encode({ ...randomRecording(3, 20000), chunk: 1024, spans: [4, 16, 64] });
  const model = memlabData.open(made.head, readerOf(made.blobs));
  for (const axis of ["events", "time"]) {
    const { from, to } = extent(model, 0, axis);
    for (const width of [10, 100, 300, 1000]) {
      for (const [a, b] of [[0, 1], [0.25, 0.75], [0.1, 0.9]]) {
        const [x0, x1] = [from + (to - from) * a, from + (to - from) * b];
        const columns = await settled(model, "module", { axis, x0, x1, width });
        const what = `${axis}, ${width} columns of ${x0} to ${x1}`;
        const inside = (e) => {
          const x = axis === "time" ? made.times[e] : e;
          return x >= x0 && x < x1;
        };
        /* A level's column that begins left of the range is not in it. */
        const margin = 64;
        const first = made.times.findIndex((_, e) => inside(e)) + (a > 0 ? margin : 0);
        const last = made.times.findLastIndex((_, e) => inside(e));
        const most = Math.max(...made.story.totals.slice(first, last + 1)
          .map((row) => row.allocated));
        assert.ok(Math.max(...columns.allocated) >= most, what);
        for (let p = 0; p < width; p++) {
          assert.notEqual(columns.source[p], NOTHING, what);
          checkColumn(made, "module", columns, p, columns.event[p], `${what}: ${p}`);
          assert.ok(p === 0 || columns.begin[p] >= columns.begin[p - 1], what);
        }
      }
    }
  }
});

test("by events, a column from a level is the highest of what begins in it", async () => {
  const made = encode({ ...randomRecording(4, 8000), spans: [4, 16, 64] });
  const model = memlabData.open(made.head, readerOf(made.blobs));
  const columns = await settled(model, "size",
                                { axis: "events", x0: 1000, x1: 7400, width: 64 });
  for (let p = 0; p < 64; p++) { /* 100 events a column: the level of 64 */
    const lo = 64 * Math.ceil((1000 + 100 * p) / 64);
    const hi = 64 * Math.ceil((1100 + 100 * p) / 64) - 1;
    checkColumn(made, "size", columns, p, highest(made, lo, hi), `column ${p}`);
  }
});

test("while blobs are on their way the coarser picture stands in", async () => {
  const made = encode({ ...randomRecording(8, 9000), chunk: 1024, spans: [4, 16, 64] });
  const [device] = made.head.devices;
  const coarsest = device.levels[0].blobs[0];
  const gates = new Map();
  const model = memlabData.open(made.head, (n) => new Promise((resolve) => {
    gates.set(n, () => resolve(made.blobs[n]));
  }));
  const range = { axis: "events", x0: 2000, x1: 4000, width: 1000 };
  const first = sample(model, 0, "category", range);
  assert.equal(first.complete, false);
  assert.ok(first.source.every((source) => source === NOTHING));
  const came = new Promise((resolve) => model.onLoad(resolve));
  gates.get(coarsest)();
  await came;
  const coarse = sample(model, 0, "category", range);
  assert.ok(coarse.source.every((source) => source === 0));
  const chunk = new Promise((resolve) => model.onLoad(resolve));
  gates.get(device.chunks.blobs[2])();
  await chunk;
  const mixed = sample(model, 0, "category", range);
  assert.equal(mixed.complete, false);
  for (let p = 0; p < 1000; p++) {
    const event = 2000 + 2 * p;
    assert.equal(mixed.source[p], event >= 2048 && event < 3072 ? CHUNKS : 0, String(p));
  }
});
