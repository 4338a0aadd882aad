/* Breakdowns, trees and differences under node: `node --test tests/viewer/`.
 *
 * Random recordings by seed, summed here block by block; small cases by hand. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");

const { memlabBreakdown: breakdown, memlabTree: tree, memlabLayout: layout } = load(
  ["names.js", "query.js", "breakdown.js", "tree.js", "layout.js"],
  ["memlabBreakdown", "memlabTree", "memlabLayout"]);

/* Numbers from 0 to below N, the same for one seed. */
function dice(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * n);
  };
}

const CATEGORIES = ["parameter", "activation", "unknown"];
const PHASES = ["forward", "backward", "other"];
const HOWS = ["", "frames", "node", "likely", "near", "backward_call"];
const NO_LINES = ["", "before recording", "autograd's own sum of gradients (backward)"];
const NO_MODULES = ["", "outside any module's call", "in an optimizer's step"];
const WHYS = ["", "its pass was not recorded", "no owner"];
const SIZES = [0, 1, 4, 16, 64, 256, 1024];

/* A recording with one chunk whose tables and rows are random. */
function recording(seed, { kinds = 40, rows = 300, events = 500, stacks = 30 } = {}) {
  const roll = dice(seed);
  const strings = ["", "a.py", "/lib/b.py", "ceval.c", "f", "g", "PyEval_x", "net",
                   "net.0", "net.0.fc", "net.1.fc", "net.1"];
  const column = (n, value) => Array.from({ length: n }, (_, i) => value(i));
  const frames = { name: [0], file: [0], line: [0], qualname: [0], own: [0] };
  for (let i = 0; i < 12; i++) {
    frames.name.push(4 + roll(3));
    frames.qualname.push(frames.name.at(-1));
    frames.own.push(0);
    frames.file.push(1 + roll(3));
    frames.line.push(1 + roll(3));
  }
  const lines = { file: [0, 0], function: [0, 0], line: [0, 0], until: [0, 0],
                  no_line: [1, 2] };
  for (let i = 0; i < 8; i++) {
    lines.file.push(1 + i % 2);
    lines.function.push(4 + (i >> 1) % 2);
    lines.line.push(1 + (i >> 2));
    lines.until.push(0);
    lines.no_line.push(0);
  }
  const table = {
    stack: [], line: [], module: [], no_module: [], category: [], exact: [], why: [],
    phase: [], how: [], name: [], stream: [], until: [], inner: [], rolled: [],
  };
  for (let k = 0; k < kinds; k++) {
    const line = roll(lines.line.length);
    const module = roll(2) === 0 ? 0 : 7 + roll(5);
    const category = roll(3);
    table.stack.push(roll(stacks));
    table.line.push(line);
    table.module.push(module);
    table.no_module.push(module === 0 ? 1 + roll(2) : 0);
    table.category.push(category);
    table.exact.push(roll(2));
    table.why.push(category === 2 ? roll(3) : 0);
    table.phase.push(roll(3));
    table.how.push(lines.no_line[line] !== 0 ? 0 : 1 + roll(5));
    table.until.push(HOWS[table.how[k]] === "near" ? 1 + roll(9) : 0);
    table.inner.push(table.how[k] === 0 ? 0 : roll(2) * roll(12));
    table.rolled.push(["net", "net.*", "net.*.fc"].indexOf(
      strings[module].replace(/[01]/, "*")) + 1);
    table.name.push(0);
    table.stream.push(0);
  }
  const start = column(rows, () => roll(events + 20) - 20).map((e) => Math.max(-1, e))
    .sort((a, b) => a - b);
  const requested = start.map((from) => Math.min(events, from + 1 + roll(events)));
  const live = { count: rows, start: Int32Array.from(start),
                 requested: Int32Array.from(requested),
                 bytes: Float64Array.from(start, () => roll(3) === 0 ? roll(9)
                   : 1 + roll(2000)),
                 kind: Int32Array.from(start, () => roll(kinds)) };
  const at = (event) => column(rows, (r) => r).filter(
    (r) => start[r] <= event && event < requested[r]);
  const allocated = column(
    events, (e) => at(e).reduce((sum, r) => sum + live.bytes[r], 0));
  const model = {
    strings, frames, lines, kinds: table, categories: CATEGORIES,
    modules: { path: ["", "net", "net.*", "net.*.fc"], parent: [0, 0, 1, 2],
               modules: [0, 1, 2, 2] },
    phases: PHASES,
    hows: HOWS, no_lines: NO_LINES, no_modules: NO_MODULES, whys: WHYS,
    stacks: { parent: column(stacks, (s) => (s < 2 ? 0 : roll(s))),
              frame: column(stacks, (s) => (s === 0 ? 0 : 1 + roll(12))) },
    devices: [{ groups: { size: SIZES }, chunks: { events: 100, peak: [] } }],
  };
  const { chunks } = model.devices[0];
  for (let i = 0; i * 100 < events; i++) {
    chunks.peak.push(Math.max(...allocated.slice(i * 100, i * 100 + 100)));
  }
  const chunk = { rows: live };
  model.live = async (d, event) => ({ chunk, rows: Int32Array.from(at(event)) });
  model.chunk = async (d, i) => ({
    first: i * 100, count: Math.min(100, events - i * 100),
    totals: { allocated: allocated.slice(i * 100, i * 100 + 100) } });
  return { model, live, at, allocated, events };
}

/* What tells the groups of one sort apart, spelt out from the names themselves. */
function naming(model, by, kind, bytes, loose) {
  const k = Object.fromEntries(
    Object.entries(model.kinds).map(([name, column]) => [name, column[kind]]));
  const { lines } = model;
  const how = loose ? "" : HOWS[k.how];
  const reason = NO_LINES[lines.no_line[k.line]];
  const names = {
    line: [model.strings[lines.file[k.line]], model.strings[lines.function[k.line]],
           lines.line[k.line], reason, PHASES[k.phase], how],
    module: [model.strings[k.module], NO_MODULES[k.no_module]],
    category: [CATEGORIES[k.category], k.category === 2 ? WHYS[k.why] : ""],
    stack: [k.stack, PHASES[k.phase], how, reason],
    size: [Math.max(...SIZES.filter((size) => size <= bytes))],
  };
  return JSON.stringify(names[by]);
}

function sums(model, live, rows, by, loose = false) {
  const out = new Map();
  for (const row of rows) {
    const name = naming(model, by, live.kind[row], live.bytes[row], loose);
    const [bytes, blocks] = out.get(name) ?? [0, 0];
    out.set(name, [bytes + live.bytes[row], blocks + 1]);
  }
  return [...out.values()].sort((a, b) => b[0] - a[0] || b[1] - a[1]);
}

test("groups are the sums of their blocks", async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { model, live, at } = recording(seed);
    for (const event of [-1, 0, 123, 499]) {
      const weights = await breakdown.at(model, 0, event);
      const total = at(event).reduce((sum, row) => sum + live.bytes[row], 0);
      assert.equal(weights.total, total);
      for (const by of breakdown.BYS) {
        const groups = breakdown.groups(model, 0, weights, by);
        const found = groups.map((group) => [group.bytes, group.blocks])
          .sort((a, b) => b[0] - a[0] || b[1] - a[1]);
        assert.deepEqual(found, sums(model, live, at(event), by),
                         `seed ${seed}, event ${event}, by ${by}`);
        assert.deepEqual(groups.map((group) => group.bytes),
                         found.map(([bytes]) => bytes));
      }
    }
  }
});

test("differences add up to that of the totals", async () => {
  for (let seed = 1; seed <= 20; seed++) {
    const { model, live, at } = recording(seed);
    const before = await breakdown.at(model, 0, 100);
    const after = await breakdown.at(model, 0, 400);
    for (const by of breakdown.BYS) {
      const rows = breakdown.differences(model, 0, before, after, by);
      assert.equal(rows.reduce((sum, row) => sum + row.difference, 0),
                   after.total - before.total);
      const sides = [["before", "blocksBefore", 100], ["after", "blocksAfter", 400]];
      for (const [side, blocks, event] of sides) {
        const found = rows.filter((row) => row[blocks] > 0)
          .map((row) => [row[side], row[blocks]])
          .sort((a, b) => b[0] - a[0] || b[1] - a[1]);
        assert.deepEqual(found, sums(model, live, at(event), by, true));
      }
      for (const row of rows) {
        const expected = row.blocksBefore === 0 ? "appeared"
          : row.blocksAfter === 0 ? "gone"
            : row.difference > 0 ? "grew" : row.difference < 0 ? "shrank" : "same";
        assert.equal(row.change, expected);
      }
    }
  }
});

test("what is new and still live comes oldest first", async () => {
  const { model, live, at } = recording(3);
  const { rows } = await breakdown.fresh(model, 0, 100, 400);
  const expected = at(400).filter((row) => live.start[row] > 100)
    .sort((a, b) => live.start[a] - live.start[b] || a - b);
  assert.deepEqual(rows, expected);
  assert.ok(rows.length > 10);
});

test("the highest event of a range is its first of the most bytes", async () => {
  const { model, allocated } = recording(5);
  for (const [first, last] of [[0, 499], [0, 0], [99, 100], [37, 412], [150, 160]]) {
    const part = allocated.slice(first, last + 1);
    assert.equal(await breakdown.highest(model, 0, first, last),
                 first + part.indexOf(Math.max(...part)));
  }
});

test("the two instants: those chosen, the steps' ends, or all of it", async () => {
  const device = { index: 0, events: 90, peak: { event: 70 } };
  const step = (time, value) => ({ kind: "step", device: -1, name: "", end: null, time,
                                   value });
  const model = { devices: [device], notes: [], ranks: [],
                  eventAtTime: async (d, us) => us / 10 };
  const pair = (state) => breakdown.pairOf(model, 0, { event: null, other: -1, ...state });
  assert.deepEqual(await pair({}), [0, 89]);
  assert.deepEqual(await pair({ event: 5 }), [0, 89]);
  assert.deepEqual(await pair({ event: 5, other: 3 }), [3, 5]);
  assert.deepEqual(await pair({ other: 80 }), [70, 80]);
  const steps = { ...model, notes: [step(100, 0), step(200, 1), step(300, 2)],
                  devices: [{ ...device }] };
  assert.deepEqual(await breakdown.pairOf(steps, 0, { event: null, other: -1 }), [10, 30]);
  const none = { ...model, devices: [{ index: 0, events: 0, peak: { event: -1 } }] };
  assert.deepEqual(await breakdown.pairOf(none, 0, { event: null, other: -1 }), [-1, -1]);
  assert.equal(breakdown.instantOf(model, 0, { event: null }), 70);
  assert.equal(breakdown.instantOf(model, 0, { event: -1 }), -1);
});

test("modules and last lines widen as the report's", () => {
  for (const [pattern, name, expected] of [
    ["a.b.c", "a.x.c", "a.*.c"], ["a.b", "a.b.c", "a.b.*"], ["a.b.c", "a.b", "a.b.*"],
    ["a.b", "x", "*"], ["a", "b", "*"], ["a.*.c", "a.q.d", "a.*.*"],
    ["a.*", "a.b.c", "a.*"],
  ]) {
    assert.equal(breakdown.widenModule(pattern, name), expected);
  }
  /* Of line 5: up to 9 covers up to 7; round a loop to 2 covers both; 3 more than 2. */
  assert.equal(breakdown.widenUntil(5, 0, 7), 7);
  assert.equal(breakdown.widenUntil(5, 7, 9), 9);
  assert.equal(breakdown.widenUntil(5, 9, 7), 9);
  assert.equal(breakdown.widenUntil(5, 9, 2), 2);
  assert.equal(breakdown.widenUntil(5, 2, 9), 2);
  assert.equal(breakdown.widenUntil(5, 2, 3), 3);
});

/* Of each module of the recording the names on the way, in rows by line and by module: what
 * was rolled up unfolds. */
const ROLLED = new Map([
  ["net", [["net"], ["net"]]],
  ["net.0", [["net.*", "net.0"], ["net", "*", "net.0"]]],
  ["net.1", [["net.*", "net.1"], ["net", "*", "net.1"]]],
  ["net.0.fc", [["net.*.fc", "net.0.fc"], ["net", "*", "fc", "net.0.fc"]]],
  ["net.1.fc", [["net.*.fc", "net.1.fc"], ["net", "*", "fc", "net.1.fc"]]],
]);

/* The names on the way to the node of a kind, spelt out. */
function wayOf(model, kind, { rows, category, noise }) {
  const { kinds, lines, frames } = model;
  const line = `line ${[lines.file, lines.function, lines.line, lines.no_line].map(
    (column) => column[kinds.line[kind]])} ${kinds.phase[kind]} ${kinds.how[kind]} `
    + `${kinds.until[kind]} ${kinds.inner[kind]}`;
  const way = category || rows === "line" ? [`category ${kinds.category[kind]}`] : [];
  if (rows === "stack") {
    const stack = [];
    for (let id = kinds.stack[kind]; id > 0; id = model.stacks.parent[id]) {
      const frame = model.stacks.frame[id];
      const name = model.strings[frames.name[frame]];
      const file = model.strings[frames.file[frame]];
      if (noise || !(name.includes("PyEval_") || file.includes("ceval.c"))) {
        stack.push(`frame ${name} ${file} ${frames.line[frame]}`);
      }
    }
    way.push(...stack.reverse());
    if (stack.length === 0 || HOWS[kinds.how[kind]] !== "frames") {
      way.push(line);
    }
    return way;
  }
  const module = model.strings[kinds.module[kind]];
  if (module === "") {
    way.push(`no module ${kinds.no_module[kind]}`);
  }
  else {
    way.push(...ROLLED.get(module)[rows === "line" ? 0 : 1]);
  }
  return [...way, line];
}

test("trees hold at every node what its blocks have", async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const { model, live, at } = recording(seed);
    const weights = await breakdown.at(model, 0, 300);
    const other = await breakdown.at(model, 0, 50);
    for (const rows of ["stack", "module", "line"]) {
      for (const category of [false, true]) {
        for (const noise of [false, true]) {
          const built = tree.build(model, weights, { rows, category, noise, other });
          const expected = new Map();
          for (const [event, side] of [[300, 0], [50, 2]]) {
            for (const row of at(event)) {
              const way = wayOf(model, live.kind[row], { rows, category, noise });
              for (let n = 0; n <= way.length; n++) {
                const sum = expected.get(way.slice(0, n).join("|")) ?? [0, 0, 0];
                sum[side] += live.bytes[row];
                sum[1] += side === 0 ? 1 : 0;
                expected.set(way.slice(0, n).join("|"), sum);
              }
            }
          }
          const found = Array.from(built.bytes, (bytes, node) => [
            bytes, built.blocks[node], built.other[node], built.depth[node]]);
          const wanted = [...expected].map(([way, sum]) => [
            ...sum, way === "" ? 0 : way.split("|").length]);
          assert.deepEqual(found.map(String).sort(), wanted.map(String).sort(),
                           `seed ${seed} ${rows} ${category} ${noise}`);
        }
      }
    }
  }
});

test("an icicle's boxes have their share of the width, and none is too narrow", async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const { model } = recording(seed, { kinds: 200, rows: 2000 });
    const weights = await breakdown.at(model, 0, 250);
    const built = tree.build(model, weights);
    const boxes = layout.icicle(built, 0, 500);
    const scale = 500 / weights.total;
    for (const box of boxes) {
      const bytes = box.node < 0 ? box.bytes : built.bytes[box.node];
      assert.ok(Math.abs(box.width - bytes * scale) < 1e-6);
      assert.ok(box.width >= 1 - 1e-9);
      const parent = box.node < 0 ? box.parent : built.parent[box.node];
      const above = boxes.find((other) => other.node === parent);
      assert.ok(box.row === 0 || (box.row === above.row + 1
        && box.x >= above.x - 1e-6
        && box.x + box.width <= above.x + above.width + 1e-6));
    }
    const drawn = new Set(boxes.map((box) => box.node));
    for (let node = 1; node < built.count; node++) {
      if (drawn.has(built.parent[node])) {
        assert.equal(drawn.has(node), built.bytes[node] * scale >= 1, `seed ${seed}`);
      }
    }
    const rests = boxes.filter((box) => box.node < 0);
    for (const rest of rests) {
      const small = [...built.children[rest.parent]].filter((node) => !drawn.has(node));
      assert.equal(rest.smaller, small.length);
      assert.equal(rest.bytes, small.reduce((sum, node) => sum + built.bytes[node], 0));
    }
  }
});

/* One stack of FRAMES, [function, file, line] outermost first, with 100 bytes. */
function oneStack(frames) {
  const strings = ["", ...new Set(frames.flatMap(([name, file]) => [name, file]))];
  const model = {
    strings, hows: ["", "frames"], phases: [""], no_lines: [""],
    kinds: { stack: [frames.length], line: [0], module: [0], no_module: [0], category: [0],
             phase: [0], how: [1], until: [0], inner: [0] },
    lines: { no_line: [0] },
    frames: { qualname: [0, ...frames.map(([name]) => strings.indexOf(name))],
              own: [0, ...frames.map(([, , , own = 0]) => own)],
              name: [0, ...frames.map(([name]) => strings.indexOf(name))],
              file: [0, ...frames.map(([, file]) => strings.indexOf(file))],
              line: [0, ...frames.map(([, , line]) => line)] },
    stacks: { parent: [0, ...frames.keys()], frame: [0, ...frames.map((_, i) => i + 1)] },
  };
  return { model, weights: { bytes: Float64Array.of(100), blocks: Float64Array.of(1) } };
}

test("frames that say nothing are left out, unless asked for", () => {
  const module = "/x/torch/nn/modules/module.py";
  const { model, weights } = oneStack([
    ["main", "a.py", 1], ["PyEval_Vector", "x.c", 2], ["_wrapped_call_impl", module, 3],
    ["_call_impl", module, 4], ["call", "/p/Objects/call.c", 5], ["_call_impl", "b.py", 6],
    ["forward", "b.py", 7]]);
  const said = (options) => {
    const built = tree.build(model, weights, options);
    return Array.from(built.tag, (_, node) => tree.text(model, built, node));
  };
  assert.deepEqual(said({}), ["all memory", "a.py:1 main", "b.py:6 _call_impl",
                              "b.py:7 forward"]);
  assert.equal(said({ noise: true }).length, 8);
});

test("what started the program is left out, unless there is nothing else", () => {
  const runpy = ["run", "/lib/runpy.py", 1];
  const said = (frames, options) => {
    const { model, weights } = oneStack(frames);
    const built = tree.build(model, weights, options);
    return Array.from(built.tag, (_, node) => tree.text(model, built, node));
  };
  const program = [runpy, ["main", "a.py", 3, 1], ["step", "/lib/adam.py", 4]];
  assert.deepEqual(said(program, {}), ["all memory", "a.py:3 main", "adam.py:4 step"]);
  assert.equal(said(program, { noise: true }).length, 4);
  assert.deepEqual(said([runpy], {}), ["all memory", "runpy.py:1 run"]);
});

test("frames in a row with the same bytes are folded, the first and the last stay", () => {
  const frames = Array.from({ length: 9 }, (_, i) => [`f${i}`, "a.py", i]);
  const { model, weights } = oneStack(frames);
  const built = tree.build(model, weights);
  const boxes = layout.icicle(built, 0, 100, { fold: true });
  assert.deepEqual(boxes.map(({ node, chain, row }) => [node, chain, row]),
                   [[0, undefined, 0], [1, [1, 2, 3, 4, 5, 6, 7, 8], 1], [9, undefined, 2]]);
  assert.equal(layout.icicle(built, 0, 100).length, 10);
  /* Four in a row are not worth it. */
  assert.equal(layout.icicle(built, 5, 100, { fold: true }).length, 5);
});

test("boxes of a tree map fill their parents by share and do not overlap", async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const { model } = recording(seed, { kinds: 100, rows: 1000 });
    const weights = await breakdown.at(model, 0, 250);
    const built = tree.build(model, weights, { rows: "line" });
    const boxes = layout.squares(built, 0, 600, 400, { levels: 1, least: 12 });
    let area = 0;
    for (const [i, box] of boxes.slice(1).entries()) {
      const bytes = box.node < 0 ? box.bytes : built.bytes[box.node];
      assert.ok(Math.abs(box.width * box.height - bytes / weights.total * 240000) < 1e-3);
      area += box.width * box.height;
      for (const other of boxes.slice(1, i + 1)) {
        const across = Math.min(box.x + box.width, other.x + other.width)
          - Math.max(box.x, other.x);
        const down = Math.min(box.y + box.height, other.y + other.height)
          - Math.max(box.y, other.y);
        assert.ok(across <= 1e-6 || down <= 1e-6);
      }
    }
    assert.ok(Math.abs(area - 240000) < 1e-3);
    for (const box of layout.squares(built, 0, 600, 400, { levels: 3 })) {
      assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= 600 + 1e-6
        && box.y + box.height <= 400 + 1e-6);
    }
  }
});

test("a search counts what is below several matches once", async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const { model } = recording(seed);
    const weights = await breakdown.at(model, 0, 300);
    const built = tree.build(model, weights);
    const found = tree.matches(model, built, "b.py");
    let bytes = 0;
    for (let node = 1; node < built.count; node++) {
      const way = tree.pathTo(built, node);
      const own = built.bytes[node]
        - built.children[node].reduce((sum, below) => sum + built.bytes[below], 0);
      const has = way.some((at) => tree.text(model, built, at, true).includes("b.py"));
      bytes += has ? own : 0;
    }
    assert.equal(found.bytes, bytes, `seed ${seed}`);
  }
  const { model } = recording(1);
  const built = tree.build(model, await breakdown.at(model, 0, 300));
  assert.equal(tree.matches(model, built, "  >1KiB "), null);
  assert.equal(tree.matches(model, built, "no such name").bytes, 0);
});

test("a node is found again in another tree by its keys", async () => {
  const { model } = recording(2);
  const first = tree.build(model, await breakdown.at(model, 0, 300));
  const second = tree.build(model, await breakdown.at(model, 0, 310));
  for (let node = 0; node < first.count; node++) {
    const keys = tree.keysTo(model, first, node);
    assert.equal(tree.follow(model, first, keys), node);
    const there = tree.follow(model, second, keys);
    assert.deepEqual(tree.keysTo(model, second, there),
                     keys.slice(0, 4 * second.depth[there]));
  }
});

test("arrows move to parent, child and sisters", () => {
  /* 0 has 2 (the larger) and 1; 2 has 3. */
  const small = { parent: [-1, 0, 0, 2], children: [[2, 1], [], [3], []] };
  const from = (node, key, root = 0) => layout.move(small, root, node, key);
  assert.equal(from(0, "ArrowDown"), 2);
  assert.equal(from(2, "ArrowRight"), 1);
  assert.equal(from(1, "ArrowRight"), 1);
  assert.equal(from(1, "ArrowLeft"), 2);
  assert.equal(from(2, "ArrowDown"), 3);
  assert.equal(from(3, "ArrowUp"), 2);
  assert.equal(from(2, "ArrowUp", 2), 2);
  assert.equal(from(0, "ArrowLeft"), 0);
});

test("lines are worded as in the report", () => {
  const model = { strings: ["", "/u/train.py", "step"], no_lines: NO_LINES,
                  lines: { file: [1, 0], function: [2, 0], line: [7, 0] } };
  const said = (group) => breakdown.lineText(
    model, { line: 0, until: 0, phase: "forward", how: "frames", reason: "", module: "",
             ...group });
  assert.equal(said({}), "train.py:7 step");
  assert.equal(said({ module: "net.*" }), "train.py:7 step [net.*]");
  assert.equal(said({ phase: "backward", how: "node" }), "train.py:7 step (backward)");
  assert.equal(said({ phase: "backward", how: "likely" }),
               "train.py:7 step (backward, likely)");
  assert.equal(said({ phase: "backward", how: "near", until: 9 }),
               "train.py:7-9 step (backward, of one of these lines)");
  assert.equal(said({ phase: "backward", how: "near", until: 7 }),
               "train.py:7 step (backward, near this line)");
  assert.equal(said({ line: 1, reason: NO_LINES[1] }), "(before recording)");
  assert.equal(said({ line: 1, reason: NO_LINES[2], phase: "backward" }),
               "(backward pass: autograd's own sum of gradients)");
});

/* As WCAG has it: how much lighter one of two "#rrggbb" is than the other. */
function contrast(a, b) {
  const [light, dark] = [a, b].map((color) => {
    const [red, green, blue] = [1, 3, 5].map((i) => {
      const part = parseInt(color.slice(i, i + 2), 16) / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }).sort((x, y) => y - x);
  return (light + 0.05) / (dark + 0.05);
}

test("text on every colour of a box is readable in both themes", () => {
  const { memlabColors: colors, memlabFlame: flame } = load(
    ["names.js", "colors.js", "query.js", "describe.js", "tables.js", "breakdown.js",
     "tree.js", "flame.js"], ["memlabColors", "memlabFlame"]);
  const names = ["parameter", "buffer", "gradient", "optimizer_state", "activation",
                 "temporary", "input", "other", "workspace", "communication",
                 "before_recording", "unknown"];
  const ids = Array.from({ length: 30 }, (_, i) => i);
  const model = { devices: [{ groups: { line: ids } }] };
  const all = [...names.map(colors.ofCategory),
               ...ids.map((g) => colors.group(model, 0, "line", g))];
  for (const dark of [false, true]) {
    colors.setDark(dark);
    for (const color of all) {
      const ratio = contrast(flame.tint(color), colors.page().text);
      assert.ok(ratio >= 4.5, `${color} ${dark ? "dark" : "light"}: ${ratio}`);
    }
  }
});
