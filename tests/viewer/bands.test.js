/* memlabBands: what is drawn against a plain picture of every allocation. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");
const { encode, readerOf, randomRecording, dice, groupOf, SCHEMES }
  = require("./encode.js");

const { memlabData, memlabColumns, memlabBands } = load(
  ["names.js", "colors.js", "blobs.js", "data.js", "columns.js", "bands.js"],
  ["memlabData", "memlabColumns", "memlabBands"]);

const COLORS = {
  rest: Uint32Array.from({ length: 300 }, (_, i) => 10 + i / 3),
  waiting: [7, 7], background: 1,
};

/* Colours of bands that tell which they are. */
function marked(bands) {
  return { ...COLORS, fill: Uint32Array.from(bands.id, (id) => 1000 + id),
           edge: Uint32Array.from(bands.id, (id) => 500000 + id) };
}

async function settled(model, scheme, range, rowsAByte, limit) {
  for (;;) {
    const came = new Promise((resolve) => model.onLoad(resolve));
    const columns = memlabColumns.sample(model, 0, scheme, range);
    const bands = memlabBands.select(model, 0, scheme, range, columns, rowsAByte, limit);
    if (columns.complete && bands.whole) {
      return { columns, bands };
    }
    await came;
  }
}

/* Column P told plainly: every drawn life of each group from the bottom, the rest. */
function plainColumn(made, scheme, { columns, bands }, p, view, height, starts) {
  const out = new Array(height).fill(1);
  const row = (bytes) => height - Math.round((bytes - view.y0) * height
    / (view.y1 - view.y0));
  const paint = (from, to, color) => {
    for (let r = Math.max(0, row(to)); r < Math.min(height, row(from)); r++) {
      out[r] = color;
    }
  };
  const drawn = new Set(bands.id);
  const event = columns.event[p];
  const before = p > 0 ? columns.event[p - 1] : columns.event[0];
  const live = made.story.lives.filter((l) => l.start <= event && l.requested > event);
  let floor = 0;
  made.grouped.groups[scheme].forEach((_, g) => {
    const mine = live.filter((life) => groupOf(made.grouped, scheme, life) === g);
    for (const life of mine.filter(({ id }) => drawn.has(id))) {
      const [top, bottom] = [row(floor + life.bytes), row(floor)];
      paint(floor, floor + life.bytes,
            (starts && life.start > before ? 500000 : 1000) + life.id);
      if (bottom - top >= 5 && top >= 0 && top < height) {
        out[top] = 500000 + life.id;
      }
      floor += life.bytes;
    }
    const rest = mine.filter(({ id }) => !drawn.has(id))
      .reduce((sum, life) => sum + life.bytes, 0);
    paint(floor, floor + rest, 10 + g);
    floor += rest;
  });
  paint(floor, columns.active[p], 7);
  return out;
}

test("drawing only what changed gives the same picture", async () => {
  for (let seed = 0; seed < 25; seed++) {
    const random = dice(seed);
    const made = encode({ ...randomRecording(seed, 600), chunk: 128, spans: [4, 16] });
    const model = memlabData.open(made.head, readerOf(made.blobs));
    const width = 10 + random(120);
    const x0 = random(300);
    const range = { axis: seed % 5 === 4 ? "time" : "events", x0,
                    x1: x0 + 20 + random(280), width };
    const height = 30 + random(60);
    const most = Math.max(...made.story.totals.map((row) => row.active));
    const view = { y0: random(2) * random(most / 3), y1: most * (0.5 + random(60) / 100) };
    const scheme = SCHEMES[seed % 4];
    const got = await settled(model, scheme, range, height / (view.y1 - view.y0),
                              random(80));
    const { columns, bands } = got;
    const pixels = new Uint32Array(width * height);
    memlabBands.raster(columns, bands, view, height, marked(bands), pixels);
    const starts = 3 * bands.start.filter((s) => s > columns.event[0]).length <= width;
    for (let p = 0; p < width; p++) {
      assert.deepEqual(Array.from(pixels.subarray(p * height, (p + 1) * height)),
                       plainColumn(made, scheme, got, p, view, height, starts),
                       `seed ${seed}, column ${p}`);
    }
  }
});

test("the allocations with most pixels are drawn, no more than asked for", async () => {
  const recording = randomRecording(3, 2000);
  const made = encode({ ...recording, chunk: 256, spans: [4, 16] });
  const model = memlabData.open(made.head, readerOf(made.blobs));
  const range = { axis: "events", x0: 500, x1: 900, width: 200 };
  const area = (life) => (Math.min(900, life.requested) - Math.max(500, life.start)) / 2
    * life.bytes / 512;
  const areas = made.story.lives.filter((life) => life.bytes / 512 >= 0.5)
    .map(area).filter((a) => a >= 1).sort((a, b) => b - a);
  for (const limit of [0, 1, 10, 50, 100000]) {
    const { bands } = await settled(model, "line", range, 1 / 512, limit);
    assert.equal(bands.count, Math.min(limit, areas.length));
    assert.equal(bands.of, areas.length);
    assert.ok(Array.from(bands.id).every((id, b) => b === 0 || id > bands.id[b - 1]));
    const drawn = Array.from(bands.id, (id) => area(made.story.lives[id]));
    const least = areas[limit - 1] ?? 0;
    /* Areas within an eighth of an octave count as equal. */
    assert.ok(drawn.every((a) => a >= least / 2 ** 0.125), `${limit}`);
  }
});

test("from afar too, each allocation is there once, though many tables have it", async () => {
  const made = encode({ ...randomRecording(12, 4000), chunk: 256, spans: [4, 16, 64] });
  const model = memlabData.open(made.head, readerOf(made.blobs));
  for (const [x0, x1, shortest] of [[0, 4000, 512], [1000, 2000, 128], [300, 700, 32],
                                  [300, 500, 0]]) {
    const { bands } = await settled(model, "line", { axis: "events", x0, x1, width: 60 },
                                    1e6, 1e9);
    const expected = made.story.lives.filter((life) => life.start < x1
      && life.requested > x0 && life.requested - life.start >= shortest
      && life.requested - life.start > 0);
    assert.deepEqual(Array.from(bands.id), expected.map((life) => life.id),
                     `${x0} to ${x1}`);
  }
});

test("columns of pixels become rows", () => {
  for (const [width, height] of [[1, 1], [3, 2], [32, 33], [70, 31]]) {
    const columns = Uint32Array.from({ length: width * height }, (_, i) => i + 1);
    const rows = new Uint32Array(width * height);
    memlabBands.transpose(columns, rows, width, height);
    for (let p = 0; p < width; p++) {
      for (let r = 0; r < height; r++) {
        assert.equal(rows[r * width + p], columns[p * height + r]);
      }
    }
  }
});

test("pointing finds what is drawn there", async () => {
  const events = [["alloc", 0x1000, 1024, 0], ["alloc", 0x2000, 512, 1],
                  ["alloc", 0x3000, 2048, 0], ["free_requested", 0x1000, 0]];
  const kinds = [{ line: 0 }, { line: 1 }];
  const made = encode({ events, kinds });
  const model = memlabData.open(made.head, readerOf(made.blobs));
  const range = { axis: "events", x0: 0, x1: 4, width: 4 };
  const all = await settled(model, "line", range, 1, 10);
  const at = (p, bytes, { columns, bands } = all) => {
    const found = memlabBands.hit(columns, bands, p, bytes);
    return found === null || found.waiting ? found
      : [found.group, found.band < 0 ? "rest" : bands.id[found.band]];
  };
  assert.deepEqual(at(2, 0), [0, 0]);
  assert.deepEqual(at(2, 1023), [0, 0]);
  assert.deepEqual(at(2, 1024), [0, 2]);
  assert.deepEqual(at(2, 3071), [0, 2]);
  assert.deepEqual(at(2, 3072), [1, 1]);
  assert.equal(at(2, 3584), null);
  assert.equal(at(2, -1), null);
  assert.deepEqual(at(3, 2047), [0, 2]);
  assert.deepEqual(at(3, 2560), { waiting: true });
  const largest = await settled(model, "line", range, 1, 1);
  assert.deepEqual(at(2, 0, largest), [0, 2]);
  assert.deepEqual(at(2, 2500, largest), [0, "rest"]);
});

test("what is not there yet leaves the column empty", () => {
  const made = encode(randomRecording(1, 50));
  const model = memlabData.open(made.head, () => new Promise(() => {}));
  const range = { axis: "events", x0: 0, x1: 50, width: 5 };
  const columns = memlabColumns.sample(model, 0, "line", range);
  const bands = memlabBands.select(model, 0, "line", range, columns, 1, 10);
  const pixels = new Uint32Array(50);
  memlabBands.raster(columns, bands, { y0: 0, y1: 4096 }, 10, marked(bands), pixels);
  assert.ok(pixels.every((pixel) => pixel === 1));
  assert.deepEqual([columns.complete, bands.whole], [false, false]);
});
