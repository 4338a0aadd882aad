/* The viewer's pure functions under node: `node --test tests/viewer/`.
 *
 * Expected values are worked out by hand from the little recording below. */
"use strict";

const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");
const test = require("node:test");

const VIEWER = join(__dirname, "..", "..", "memlab", "viewer");
const FILES = ["model.js", "query.js", "bands.js", "colors.js"];
const source = FILES.map((name) => readFileSync(join(VIEWER, name), "utf8")).join("\n");
const { memlabModel, memlabQuery, memlabBands, memlabColors } = new Function(
  `${source}\nreturn { memlabModel, memlabQuery, memlabBands, memlabColors };`)();

const ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc",
                 "segment_free", "segment_map", "segment_unmap", "snapshot", "oom",
                 "other"];
const CATEGORIES = ["parameter", "gradient", "activation", "temporary",
                    "before_recording", "unknown"];

/* Page data of one device: EVENTS are [action, addr, size, block, backward], SEGMENTS
 * [addr, total, expandable], BLOCKS [addr, size, state] of the first segment. */
function recording({ events = [], segments = [], blocks = [], before = [], deltas = [],
                     strings = [""], frames = [[0, 0, 0]], stacks = [[0, 0]],
                     stack = 0, peak = -1 } = {}) {
  const column = (rows, k) => rows.map((row) => row[k]);
  const zeros = (n) => new Array(n).fill(0);
  return {
    format: 1, source: "cuda", foreign: 0, base_us: 1000, actions: ACTIONS,
    categories: CATEGORIES, strings,
    frames: { name: column(frames, 0), file: column(frames, 1), line: column(frames, 2) },
    stacks: { parent: column(stacks, 0), frame: column(stacks, 1) },
    lines: { file: frames.map((row) => strings[row[1]]),
             function: frames.map((row) => strings[row[0]]), line: column(frames, 2),
             of_stack: column(stacks, 1) },
    devices: [{
      index: 0,
      events: {
        action: column(events, 0).map((name) => ACTIONS.indexOf(name)),
        addr: column(events, 1), size: column(events, 2),
        backward: events.map((row) => row[4] ?? 0),
        block: events.map((row) => row[3] ?? 0), stream: zeros(events.length),
        time: events.map((_, i) => (i === 0 ? 0 : 10)),
        stack: zeros(events.length).fill(stack), origin: zeros(events.length),
      },
      totals: { allocated: column(deltas, 0), active: column(deltas, 0),
                reserved: column(deltas, 1) },
      segments: { addr: column(segments, 0), total: column(segments, 1),
                  expandable: column(segments, 2), stream: zeros(segments.length),
                  stack: zeros(segments.length),
                  first: zeros(segments.length),
                  count: segments.map((_, i) => (i === 0 ? blocks.length : 0)) },
      blocks: { addr: column(blocks, 0), size: column(blocks, 1),
                requested: column(blocks, 1), state: column(blocks, 2),
                stack: zeros(blocks.length) },
      owners: { category: events.map((row) => CATEGORIES.indexOf(row[5] ?? "unknown")),
                name: zeros(events.length), before_addr: column(before, 0),
                before_category: column(before, 1).map((name) => CATEGORIES.indexOf(name)),
                before_name: zeros(before.length) },
      losses: { overwritten_events: 0, dropped_events: 0, lost_stacks: 0, lost_names: 0 },
      peak: { event: peak, allocated: 0, active: 0, reserved: 0 },
    }],
  };
}

/* Two blocks at one address, one that was there before, one that stays. */
const LITTLE = {
  events: [
    ["segment_alloc", 0x1000, 8192],
    ["alloc", 0x1000, 100, 512],
    ["alloc", 0x1200, 1000, 1024],
    ["free_requested", 0x1000, 100, 512],
    ["free_completed", 0x1000, 100, 512],
    ["alloc", 0x1000, 300, 512],
    ["free_requested", 0x9000, 2048, 2048],
    ["free_completed", 0x9000, 2048, 2048],
  ],
  deltas: [[2048, 12288], [512, 0], [1024, 0], [0, 0], [-512, 0], [512, 0], [0, 0],
           [-2048, 0]],
  segments: [[0x1000, 8192, 0], [0x9000, 4096, 0]],
  blocks: [[0x1000, 512, 1], [0x1200, 1024, 1], [0x1600, 6656, 0]],
};

function little(more = {}) {
  const model = memlabModel.build(recording({ ...LITTLE, ...more }));
  return { model, device: model.devices[0] };
}

test("bytes, counts and times read alike everywhere", () => {
  const { formatBytes, formatCount, formatTime } = memlabModel;
  assert.equal(formatBytes(0), "0 B");
  assert.equal(formatBytes(1023), "1023 B");
  assert.equal(formatBytes(1536), "1.50 KiB");
  assert.equal(formatBytes(400 * 1024 * 1024), "400.0 MiB");
  assert.equal(formatBytes(-2048), "-2.00 KiB");
  assert.equal(formatBytes(2n ** 63n), "8.00 EiB");
  assert.equal(formatCount(9007199254740993n), "9,007,199,254,740,993");
  assert.equal(formatCount(999), "999");
  assert.equal(formatTime(999), "999 µs");
  assert.equal(formatTime(1500), "1.50 ms");
  assert.equal(formatTime(2500000), "2.500 s");
});

test("control and direction characters show as escapes", () => {
  assert.equal(memlabModel.printable("a\u202eb\u0007\u001b[31m"),
               "a\\u202eb\\u0007\\u001b[31m");
  assert.equal(memlabModel.printable("\ud800x 😀"), "\\ud800x 😀");
});

test("allocations get a name of address and ordinal, and their life in events", () => {
  const { device } = little();
  const { allocs } = device;
  const lives = Array.from({ length: allocs.count }, (_, i) => [
    memlabModel.allocationName(allocs, i), allocs.start[i], allocs.requestedAt[i],
    allocs.end[i], allocs.bytes[i]]);
  assert.deepEqual(lives, [
    ["b9000_0", -1, 6, 7, 2048],
    ["b1000_0", 1, 3, 4, 512],
    ["b1200_0", 2, 8, 8, 1024],
    ["b1000_1", 5, 8, 8, 512],
  ]);
});

test("live bytes after each event are the recorded totals", () => {
  const { device } = little();
  const sums = Array.from({ length: 8 }, (_, event) =>
    memlabModel.liveAt(device.allocs, event)
      .reduce((sum, id) => sum + device.allocs.bytes[id], 0));
  assert.deepEqual(sums, [2048, 2560, 3584, 3584, 3072, 3584, 3584, 1536]);
  assert.deepEqual(sums, Array.from(device.totals.active));
});

test("the state after an event: segments by address, blocks at their offsets", () => {
  const { device } = little();
  const state = memlabModel.stateAt(device, 2).map((segment) => [
    segment.addr, segment.bytes, segment.offsets, segment.used]);
  assert.deepEqual(state, [
    [0x1000, 8192, [0, 512], 1536],
    [0x9000, 4096, [0], 2048],
  ]);
  assert.equal(memlabModel.stateAt(device, 7)[1].blocks.length, 0);
});

test("a segment that is allocated or freed in the window is there only meanwhile", () => {
  const { devices: [device] } = memlabModel.build(recording({
    events: [["segment_alloc", 0x1000, 100], ["segment_free", 0x5000, 50],
             ["segment_free", 0x1000, 100]],
    deltas: [[0, 150], [0, -50], [0, -100]],
  }));
  const held = [0, 1, 2].map(
    (event) => memlabModel.stateAt(device, event).map((segment) => segment.addr));
  assert.deepEqual(held, [[0x1000, 0x5000], [0x1000], []]);
});

test("mapped pieces that touch are one segment; an unmap cuts across maps", () => {
  const { devices: [device] } = memlabModel.build(recording({
    events: [["segment_map", 0, 40], ["segment_map", 40, 40], ["segment_unmap", 20, 40]],
    segments: [[0, 20, 1], [60, 20, 1]],
    deltas: [[0, 40], [0, 40], [0, -40]],
  }));
  const held = [0, 1, 2].map((event) => memlabModel.stateAt(device, event)
    .map((segment) => [segment.addr, segment.bytes]));
  assert.deepEqual(held, [[[0, 40]], [[0, 80]], [[0, 20], [60, 20]]]);
});

test("without segments (the CPU's allocator) blocks lie end to end", () => {
  const { devices: [device] } = memlabModel.build(recording({
    events: [["alloc", 0x100, 10, 10], ["alloc", 0x900, 30, 30]],
    deltas: [[10, 10], [30, 30]],
  }));
  const [only] = memlabModel.stateAt(device, 1);
  assert.equal(only.addr, null);
  assert.deepEqual([only.bytes, only.offsets], [40, [0, 10]]);
});

test("integers past 2^53 stay exact", () => {
  const high = "18446744073709550592";
  const { devices: [device] } = memlabModel.build(recording({
    events: [["alloc", high, "9007199254740993", "9007199254740993"],
             ["alloc", "18446744073709550593", 5, 5],
             ["free_completed", high, 5, 5]],
    deltas: [[0, 0], [0, 0], [0, 0]],
  }));
  assert.equal(memlabModel.allocationName(device.allocs, 0), "bfffffffffffffc00_0");
  assert.equal(memlabModel.allocationName(device.allocs, 1), "bfffffffffffffc01_0");
  assert.equal(device.allocs.exactBytes[0], 9007199254740993n);
  assert.deepEqual(Array.from(device.allocs.end), [2, 3]);
});

test("a file that contradicts itself is shown, not refused", () => {
  const { devices: [device] } = memlabModel.build(recording({
    events: [["alloc", 1, 10, 10], ["alloc", 1, 20, 20], ["free_completed", 1, 20, 20],
             ["free_completed", 1, 20, 20], ["segment_unmap", 7, 3],
             ["segment_alloc", 1, 5]],
    deltas: [[10, 0], [10, 0], [-20, 0], [0, 0], [0, 0], [0, 0]],
  }));
  assert.deepEqual(Array.from(device.allocs.start), [0, 1]);
  assert.deepEqual(Array.from(device.allocs.end), [1, 2]);
});

test("no sequence of events, however absurd, stops the page", () => {
  let seed = 99;
  const random = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor(seed / 2147483648 * n);
  };
  for (let round = 0; round < 200; round++) {
    const events = Array.from({ length: random(40) }, () => [
      ACTIONS[random(ACTIONS.length)], 512 * random(8), 512 * random(5),
      512 * random(5), random(2)]);
    const { devices: [device] } = memlabModel.build(recording({
      events, deltas: events.map(() => [512 * (random(9) - 4), 512 * (random(9) - 4)]),
      segments: [[0, 1024, 0], [1024, 1024, 1], [2048, 512, 1]],
      blocks: [[0, 512, 1], [512, 512, 2]],
      before: [[512 * random(8), "parameter"]],
    }));
    for (let e = 0; e < events.length; e++) {
      for (const segment of memlabModel.stateAt(device, e)) {
        assert.equal(segment.blocks.length, segment.offsets.length);
      }
    }
    if (events.length > 0) {
      const { sizeOrder, select, axisOf, peakIndex, sampleColumns, raster } = memlabBands;
      const chosen = select(device, sizeOrder(device.allocs), random(9));
      const samples = sampleColumns(axisOf(device, "events"),
                                    peakIndex(device.totals.active), events.length, 0,
                                    events.length, 16);
      const colours = new Uint32Array(device.allocs.count);
      raster(device, chosen, samples, { y0: 0, y1: 4096 }, 16,
             { fill: colours, edge: colours, rest: 1, background: 2 },
             new Uint32Array(256));
    }
  }
});

test("an allocation has the category that the core gave its event or its block", () => {
  const events = LITTLE.events.map((row) => [...row]);
  events[2][5] = "gradient";
  events[5][5] = "activation";
  const { device, model } = little({ events, before: [[0x9000, "parameter"]] });
  const names = Array.from(device.allocs.category, (code) => model.categories[code]);
  assert.deepEqual(Array.from(device.allocs.start), [-1, 1, 2, 5]);
  assert.deepEqual(names, ["parameter", "unknown", "gradient", "activation"]);
});

test("search by function, file:line, address, size, and all words together", () => {
  const { model, device } = little({
    strings: ["", "Forward", "/home/u/net.py"], frames: [[0, 0, 0], [1, 2, 7]],
    stacks: [[0, 0], [0, 1]], stack: 1,
    before: [[0x9000, "before_recording"]],
  });
  const hits = (text) => Array.from(
    memlabQuery.searchAllocations(model, device, text).hits);
  assert.equal(memlabQuery.searchAllocations(model, device, "  "), null);
  assert.deepEqual(hits("forward"), [0, 1, 1, 1]);
  assert.deepEqual(hits("NET.PY:7"), [0, 1, 1, 1]);
  assert.deepEqual(hits("0x1000"), [0, 1, 0, 1]);
  assert.deepEqual(hits("b1000_1"), [0, 0, 0, 1]);
  assert.deepEqual(hits(">1KiB"), [1, 0, 1, 0]);
  assert.deepEqual(hits("<512"), [0, 1, 0, 1]);
  assert.deepEqual(hits("=2k"), [1, 0, 0, 0]);
  assert.deepEqual(hits("forward >1k"), [0, 0, 1, 0]);
  assert.deepEqual(hits("before_rec"), [1, 0, 0, 0]);
  assert.deepEqual(hits("nowhere"), [0, 0, 0, 0]);
});

test("the list of events hides the first half of a free and filters", () => {
  const { model, device } = little();
  const list = (text, pairs) => Array.from(
    memlabQuery.listEvents(model, device, text, pairs));
  assert.deepEqual(list("", false), [0, 1, 2, 3, 4, 5, 6, 7]);
  assert.deepEqual(list("", true), [0, 1, 2, 4, 5, 7]);
  assert.deepEqual(list("b1000_0", true), [1, 4]);
  assert.deepEqual(list("segment_alloc", true), [0]);
});

test("the address bar takes any text and gives only known keys of known types", () => {
  const { parseState, stateHash, DEFAULT_STATE } = memlabQuery;
  for (const text of ["", "#", "#%", "#null", "#[1]", "#{\"view\":7}", "#%7B%22x%22",
                      "#{\"__proto__\":{\"view\":\"x\"}}", "#\"text\""]) {
    assert.deepEqual(parseState(text), { ...DEFAULT_STATE }, text);
  }
  const state = { ...DEFAULT_STATE, view: "peak", search: "a&b #<c>", pinned: 3 };
  assert.deepEqual(parseState(stateHash(state)), state);
  assert.equal(stateHash(DEFAULT_STATE), "#");
  assert.equal({}.view, undefined);
});

test("names like __proto__ are names", () => {
  const { model, device } = little({
    strings: ["", "__proto__", "constructor"], frames: [[0, 0, 0], [1, 2, 1]],
    stacks: [[0, 0], [0, 1]], stack: 1,
  });
  assert.equal(memlabModel.placeText(memlabModel.frameText(model, 1)),
               "constructor:1 __proto__");
  assert.equal(memlabQuery.searchAllocations(model, device, "__proto__").count, 3);
  assert.equal({}.polluted, undefined);
});

test("stacks end on a file whose parents run in a circle", () => {
  const { model } = little({ stacks: [[0, 0], [2, 0], [1, 0]] });
  assert.equal(memlabModel.stackFrames(model, 1).length, 1);
  assert.equal(memlabModel.stackFrames(model, 2).length, 2);
});

/* Paints LITTLE with one row of pixels for 256 bytes and one column an event; the colour
 * of an allocation is its id + 1, 100 the smaller ones, 0 the background. */
function paint(device, limit, view = { y0: 0, y1: 4096 }) {
  const { sizeOrder, select, axisOf, peakIndex, sampleColumns, raster } = memlabBands;
  const selection = select(device, sizeOrder(device.allocs), limit);
  const axis = axisOf(device, "events");
  const samples = sampleColumns(axis, peakIndex(device.totals.active), 8, 0, 8, 8);
  const ids = Uint32Array.from({ length: device.allocs.count }, (_, i) => i + 1);
  const pixels = new Uint32Array(8 * 16);
  raster(device, selection, samples, view, 16,
         { fill: ids, edge: ids, rest: 100, background: 0 }, pixels);
  return Array.from({ length: 8 }, (_, c) => Array.from(
    pixels.subarray(c * 16, c * 16 + 16)).reverse());
}

test("the picture stacks every live allocation, oldest at the bottom", () => {
  const { device } = little();
  const columns = paint(device, 4);
  const pad = (column) => [...column, ...new Array(16 - column.length).fill(0)];
  assert.deepEqual(columns[0], pad([1, 1, 1, 1, 1, 1, 1, 1]));
  assert.deepEqual(columns[2], pad([1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3]));
  assert.deepEqual(columns[4], pad([1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3]));
  assert.deepEqual(columns[7], pad([3, 3, 3, 3, 4, 4]));
});

test("less detail keeps the height and lumps the small ones on top", () => {
  const { device } = little();
  const columns = paint(device, 2);
  assert.deepEqual(columns[2].filter((p) => p === 100).length, 2);
  for (let e = 0; e < 8; e++) {
    const rows = columns[e].filter((p) => p !== 0).length;
    assert.equal(rows * 256, device.totals.active[e], `after event ${e}`);
  }
});

/* What a column shows, told plainly: every live drawn allocation from the bottom. */
function plainColumn(device, drawn, event, before, view, height, edges) {
  const column = new Array(height).fill(0);
  const row = (bytes) => height - Math.round((bytes - view.y0) * height
    / (view.y1 - view.y0));
  let below = 0;
  const paintBand = (bytes, fill, edge) => {
    const [from, to] = [row(below + bytes), row(below)];
    for (let r = Math.max(0, from); r < Math.min(height, to); r++) {
      column[r] = r === from && to - from >= 5 ? edge : fill;
    }
    below += bytes;
  };
  for (const i of memlabModel.liveAt(device.allocs, event)) {
    if (drawn[i] === 1) {
      const started = edges && device.allocs.start[i] > before;
      paintBand(device.allocs.bytes[i], started ? 1000 + i : 2000 + i, 1000 + i);
    }
  }
  const rest = device.totals.active[event] - below;
  const rows = [row(below + rest), row(below)];
  column.fill(9, Math.max(0, rows[0]), Math.max(0, Math.min(height, rows[1])));
  return column;
}

test("drawing only what changed gives the same picture", () => {
  let seed = 7;
  const random = (n) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return Math.floor(seed / 2147483648 * n);
  };
  for (let round = 0; round < 60; round++) {
    const live = [];
    const events = [];
    const deltas = [];
    for (let e = 0; e < 400; e++) {
      if (live.length < 5 || random(20) < (round % 2 === 0 ? 11 : 9)) {
        const bytes = 1 + random(random(10) === 0 ? 500 : 20);
        live.push([1000 + e, bytes]);
        events.push(["alloc", 1000 + e, bytes, bytes]);
        deltas.push([bytes, 0]);
      }
      else {
        const at = random(3) === 0 ? random(live.length) : live.length - 1;
        const [[addr, bytes]] = live.splice(at, 1);
        events.push(["free_completed", addr, bytes, bytes]);
        deltas.push([-bytes, 0]);
      }
    }
    const blocks = live.map(([addr, bytes]) => [addr, bytes, 1]);
    const { devices: [device] } = memlabModel.build(recording({
      events, deltas, segments: [[0, 10000, 0]], blocks }));
    const { sizeOrder, select, axisOf, peakIndex, sampleColumns, raster } = memlabBands;
    const selection = select(device, sizeOrder(device.allocs), 20 + random(200));
    const view = { y0: random(3) * 50, y1: 300 + random(3000) };
    const [width, height] = [16 + random(900), 40 + random(60)];
    const x0 = random(300);
    const x1 = x0 + 20 + random(380 - x0);
    const samples = sampleColumns(axisOf(device, "events"),
                                  peakIndex(device.totals.active), 400, x0, x1, width);
    const ids = Array.from({ length: device.allocs.count }, (_, i) => i);
    const look = { fill: ids.map((i) => 2000 + i), edge: ids.map((i) => 1000 + i),
                   rest: 9, background: 0 };
    const pixels = new Uint32Array(width * height);
    raster(device, selection, samples, view, height, look, pixels);
    const edges = (samples[width - 1] - samples[0]) / width < 0.5;
    for (let c = 0; c < width; c++) {
      const before = c > 0 ? samples[c - 1] : samples[0];
      assert.deepEqual(
        Array.from(pixels.subarray(c * height, (c + 1) * height)),
        plainColumn(device, selection.drawn, samples[c], before, view, height,
                    edges && c > 0),
        `round ${round}, column ${c}`);
    }
  }
});

test("a range of heights that starts above zero cuts the picture", () => {
  const { device } = little();
  const columns = paint(device, 4, { y0: 2048, y1: 6144 });
  assert.deepEqual(columns[2].slice(0, 7), [2, 2, 3, 3, 3, 3, 0]);
});

test("pointing finds what is drawn there", () => {
  const { device } = little();
  const { select, sizeOrder, hit } = memlabBands;
  const all = select(device, sizeOrder(device.allocs), 4);
  assert.equal(hit(device, all, 2, 0), 0);
  assert.equal(hit(device, all, 2, 2047), 0);
  assert.equal(hit(device, all, 2, 2048), 1);
  assert.equal(hit(device, all, 2, 3583), 2);
  assert.equal(hit(device, all, 2, 3584), null);
  assert.equal(hit(device, all, 2, -1), null);
  const largest = select(device, sizeOrder(device.allocs), 1);
  assert.equal(hit(device, largest, 2, 2048), "rest");
});

test("no zoom loses the peak of its range", () => {
  const { peakIndex, peakBetween, sampleColumns, axisOf } = memlabBands;
  const n = 5000;
  let seed = 12345;
  const values = Float64Array.from({ length: n }, () => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed;
  });
  const index = peakIndex(values);
  const time = Float64Array.from(values, (_, i) => i * 3);
  const device = { events: { count: n, time } };
  for (const [lo, hi] of [[0, 4999], [1, 63], [64, 127], [63, 64], [5, 5], [100, 4321]]) {
    const most = values.subarray(lo, hi + 1).reduce((a, b) => Math.max(a, b));
    assert.equal(values[peakBetween(index, lo, hi)], most, `${lo}..${hi}`);
  }
  for (const kind of ["events", "time"]) {
    const axis = axisOf(device, kind);
    for (const width of [1, 7, 640, 4999]) {
      const samples = sampleColumns(axis, index, n, 0, axis.length, width);
      assert.equal(Math.max(...Array.from(samples, (e) => values[e])),
                   values.reduce((a, b) => Math.max(a, b)), `${kind} ${width}`);
      assert.ok(samples.every((e, c) => c === 0 || e >= samples[c - 1]));
    }
  }
});

test("the detail slider runs from ten to all, and back to the same place", () => {
  const { drawnLimit, sliderPosition } = memlabBands;
  assert.equal(drawnLimit(0, 1000), 10);
  assert.equal(drawnLimit(50, 1000), 100);
  assert.equal(drawnLimit(100, 1000), 1000);
  assert.equal(drawnLimit(0, 4), 4);
  for (const position of [0, 10, 37, 50, 99, 100]) {
    assert.equal(sliderPosition(drawnLimit(position, 100000), 100000), position);
  }
});

const CSS = { canvas: "#ffffff", rest: "#cccccc" };

test("a search dims what it does not find", () => {
  const { model, device } = little();
  const plain = memlabColors.look(model, device, "category", null, CSS);
  const dimmed = memlabColors.look(model, device, "category",
                                   Uint8Array.from([1, 0, 0, 0]), CSS);
  assert.equal(dimmed.fill[0], plain.fill[0]);
  assert.notEqual(dimmed.fill[1], plain.fill[1]);
});

test("lines rank by the bytes they hold at the peak", () => {
  const { model, device } = little({
    strings: ["", "f", "g"], frames: [[0, 0, 0], [1, 0, 1], [2, 0, 2]],
    stacks: [[0, 0], [0, 1], [0, 2]], stack: 1, peak: 2,
  });
  device.allocs.stack[2] = 2;
  const { ranks } = memlabColors.look(model, device, "line", null, CSS);
  assert.deepEqual([...ranks.keys()], [0, 2, 1]);
});

test("another format is refused with a sentence", () => {
  assert.throws(() => memlabModel.build({ format: 2 }), /format 1 only/);
  assert.throws(() => memlabModel.build(null), /format 1 only/);
});
