/* memlabNames and memlabColors: values worked out by hand. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");

const { memlabNames, memlabColors } = load(["names.js", "colors.js"],
                                           ["memlabNames", "memlabColors"]);

test("bytes, counts and times read alike everywhere", () => {
  const { formatBytes, formatCount, formatTime, exactBytes, plural } = memlabNames;
  assert.equal(formatBytes(0), "0 B");
  assert.equal(formatBytes(1023), "1023 B");
  assert.equal(formatBytes(1536), "1.50 KiB");
  assert.equal(formatBytes(400 * 1024 * 1024), "400 MiB");
  /* 999.499 and 999.5 KiB; 9.996 and 1000 MiB. */
  assert.equal(formatBytes(1023487), "999 KiB");
  assert.equal(formatBytes(1023488), "0.976 MiB");
  assert.equal(formatBytes(10481565), "10.0 MiB");
  assert.equal(formatBytes(1000 * 1024 * 1024), "0.977 GiB");
  assert.equal(formatBytes(2 ** 30 - 1), "1.00 GiB");
  assert.equal(formatBytes(-2048), "-2.00 KiB");
  assert.equal(formatBytes(2 ** 63), "8.00 EiB");
  assert.equal(exactBytes(1536), "1.50 KiB (1,536 B)");
  assert.equal(formatCount("9007199254740993"), "9,007,199,254,740,993");
  assert.equal(formatCount(2 ** 63), "9,223,372,036,854,775,808");
  assert.equal(formatCount(999), "999");
  assert.equal(plural(1, "event"), "1 event");
  assert.equal(plural(1000, "event"), "1,000 events");
  assert.equal(formatTime(999), "999 µs");
  assert.equal(formatTime(1500), "1.50 ms");
  assert.equal(formatTime(2500000), "2.500 s");
});

test("control and direction characters show as escapes", () => {
  assert.equal(memlabNames.printable("a\u202eb\u0007\u001b[31m"),
               "a\\u202eb\\u0007\\u001b[31m");
  assert.equal(memlabNames.printable("\ud800x 😀"), "\\ud800x 😀");
});

test("addresses of 64 bits have all their digits in names", () => {
  const rows = { hi: [0x7f06, 0, 0xffffffff], lo: [0x4c000000, 0x1000, 0xfffffe00],
                 ordinal: [0, 12, 3] };
  assert.deepEqual([0, 1, 2].map((row) => memlabNames.allocationName(rows, row)),
                   ["b7f064c000000_0", "b1000_12", "bfffffffffffffe00_3"]);
});

const MODEL = {
  strings: ["", "/u/net.py", "forward", "C:\\u\\my net.py", "block.0", "weight"],
  categories: ["parameter", "unknown"],
  phases: ["forward", "backward"],
  hows: ["frames", "near", "likely"],
  no_lines: ["", "stacks not recorded"],
  no_modules: ["", "outside any module's call"],
  whys: ["", "no backward pass followed"],
  lines: { file: [1, 1, 0, 3], function: [2, 2, 0, 2], line: [7, 8, 0, 9],
           until: [7, 11, 0, 0], no_line: [0, 0, 1, 0] },
  kinds: { line: [0, 0, 1, 2, 3], phase: [0, 1, 1, 1, 0], how: [0, 0, 1, 0, 0],
           category: [0, 0, 1, 1, 0], why: [0, 0, 1, 0, 0], exact: [1, 0, 1, 1, 1],
           name: [5, 0, 0, 0, 0], module: [4, 0, 0, 0, 0], no_module: [0, 1, 0, 0, 0] },
  devices: [{ index: 3, groups: { category: [1, 0], module: [0, 1, 2, 3, -1],
                                  line: [1, 3, -1], size: [256, 1024] },
              module_rows: {
                path: ["block.*.mlp", "block.*", "", "net.[0-8]", ""],
                modules: [48, 48, 0, 5, 0], no_module: [0, 0, 1, 0, 0],
                share: ["all", "own", "all", "rest", "rest"] } }],
};

test("a line says where it is, how it is known, or why there is none", () => {
  assert.deepEqual([0, 1, 2, 3, 4].map((kind) => memlabNames.kindPlace(MODEL, kind)), [
    "net.py:7 forward", "net.py:7 forward (backward)",
    "net.py:8-11 forward (backward, near this line)", "(stacks not recorded)",
    "my net.py:9 forward"]);
  assert.deepEqual([0, 1, 2, 3].map((line) => memlabNames.lineWord(MODEL, line)),
                   ["net.py:7", "net.py:8", "", '"my net.py:9"']);
});

test("a category says whose it is, why it is not known, and whether it is exact", () => {
  assert.deepEqual([0, 1, 2, 3].map((kind) => memlabNames.kindCategory(MODEL, kind)), [
    "parameter weight", "parameter (estimated)",
    "unknown: no backward pass followed", "unknown"]);
  assert.equal(memlabNames.kindModule(MODEL, 0), "block.0");
  assert.equal(memlabNames.kindModule(MODEL, 1), "(outside any module's call)");
});

test("groups have words, and a search that finds them", () => {
  const { groupText, groupWord } = memlabNames;
  const all = (scheme) => MODEL.devices[0].groups[scheme].map(
    (_, g) => [groupText(MODEL, 0, scheme, g), groupWord(MODEL, 0, scheme, g)]);
  assert.deepEqual(all("category"), [["unknown", "unknown"], ["parameter", "parameter"]]);
  assert.deepEqual(all("module"), [
    ["block.*.mlp ×48", "block.*.mlp"], ["block.* ×48, itself", "block.*"],
    ["(outside any module's call)", ""], ["net.[0-8] ×5, the rest", "net.*"],
    ["all other modules", ""]]);
  assert.deepEqual(all("line"), [["net.py:8-11 forward", "net.py:8"],
                                 ["my net.py:9 forward", '"my net.py:9"'],
                                 ["all other lines", ""]]);
  assert.deepEqual(all("size"), [["256 B to 1.00 KiB", ">=256 <1024"],
                                 ["1.00 KiB and more", ">=1024"]]);
});

test("steps and phases are those of the device and the time", () => {
  const note = (kind, time, end, name, value, device = -1, rank = -1) => (
    { kind, time, end, name, value, device, rank });
  const ranks = [{ devices: [{ device: 3 }] }, { devices: [{ device: 4 }] }];
  const model = { ranks, devices: [{ index: 3 }, { index: 4 }], notes: [
    note("step", 200, null, "", 1), note("step", 100, null, "", 0),
    note("step", 300, null, "", 9, 4), note("step", 250, null, "", 8, -1, 1),
    note("phase", 50, 150, "forward", 0),
    note("region", 60, 90, "attention", 0), note("mark", 70, null, "here", 0)] };
  assert.deepEqual(memlabNames.stepEnds(model, 0).map((step) => step.value), [0, 1]);
  assert.deepEqual([0, 100, 101, 200, 201].map((t) => memlabNames.stepAt(model, 0, t)),
                   [0, 0, 1, 1, 2]);
  assert.deepEqual(memlabNames.stepEnds(model, 1).map((step) => step.value), [0, 1, 8, 9]);
  assert.equal(memlabNames.stepAt(model, 1, 251), 9);
  assert.equal(memlabNames.stepAt({ ranks: [], devices: [{}], notes: [] }, 0, 5), -1);
  assert.deepEqual(memlabNames.phasesAt(model, 0, 70), ["forward", "attention"]);
  assert.deepEqual(memlabNames.phasesAt(model, 0, 90), ["forward"]);
});

test("colours: packed as rasters store them, and other ones for each theme's sizes", () => {
  const { pack, mix, group, groupOf, setDark } = memlabColors;
  assert.equal(pack("#010203"), 0xff030201);
  assert.equal(mix("#ff0000", "#0000ff", 0.5), "#800080");
  const model = { ...MODEL, devices: [{
    ...MODEL.devices[0], group_of_kind: { category: [1, 1, 0, 0, 1] } }] };
  assert.equal(groupOf(model, 0, "category", 2, 0), 0);
  assert.deepEqual([0, 255, 1023, 1024, 2 ** 60].map(
    (bytes) => groupOf(model, 0, "size", 0, bytes)), [0, 0, 0, 1, 1]);
  const light = group(model, 0, "size", 0);
  setDark(true);
  assert.notEqual(group(model, 0, "size", 0), light);
});

test("colours of categories stay apart for those who see two of the three primaries", () => {
  /* Machado et al. 2009, severity 1, on linear light. */
  const MATRICES = [
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
     [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
     [-0.01182, 0.04294, 0.968881]],
  ];
  const linear = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  const lab = ([r, g, b]) => {
    const f = (t) => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
    const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
    const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
    const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
  };
  const names = ["parameter", "gradient", "optimizer_state", "activation", "temporary",
                 "buffer"];
  for (const matrix of MATRICES) {
    const seen = names.map((name) => {
      const color = linear(memlabColors.ofCategory(name));
      return lab(matrix.map((row) => Math.max(0, row.reduce(
        (sum, weight, i) => sum + weight * color[i], 0))));
    });
    for (let a = 0; a < names.length; a++) {
      for (let b = 0; b < a; b++) {
        const apart = Math.hypot(...seen[a].map((v, i) => v - seen[b][i]));
        assert.ok(apart > 10, `${names[a]} and ${names[b]}: ${apart}`);
      }
    }
  }
});
