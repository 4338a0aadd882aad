/* Segments over time under node, against sums over all pieces at each event. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");

const { memlabCached: cached } = load(
  ["names.js", "blobs.js", "data.js", "colors.js", "cached.js"], ["memlabCached"]);

const EVENTS = 40;
/* start, end, bytes, flags: large, small, private, one from before, one without an end. */
const PIECES = [[-1, 12, 20, 0], [3, 9, 2, 2], [5, EVENTS, 32, 4], [9, 30, 64, 0],
                [10, 11, 500, 0], [31, 33, 2, 2]];
const column = (i) => PIECES.map((piece) => piece[i]);
const pieces = { count: PIECES.length, start: column(0), end: column(1), bytes: column(2),
                 flags: column(3), stream: PIECES.map(() => 0), hi: PIECES.map(() => 0),
                 lo: PIECES.map((_, i) => i) };

function poolsAt(event) {
  const sums = [0, 0, 0];
  for (const [start, end, bytes, flags] of PIECES) {
    if (start <= event && event < end) {
      sums[flags === 4 ? 2 : flags === 2 ? 1 : 0] += bytes;
    }
  }
  return sums;
}

const total = (sums) => sums.reduce((sum, bytes) => sum + bytes, 0);

function columns(begin) {
  return { width: begin.length, groups: 1, begin, event: Int32Array.from(begin),
           source: begin.map(() => 0), time: begin };
}

test("a column has its most reserved instant, by pool", () => {
  for (const apart of [1, 3, 7, EVENTS]) {
    const begin = Array.from({ length: Math.ceil(EVENTS / apart) }, (_, p) => p * apart);
    const out = cached.columnsOf(pieces, columns(begin), EVENTS);
    begin.forEach((first, p) => {
      const all = Array.from({ length: Math.min(apart, EVENTS - first) },
                             (_, i) => poolsAt(first + i));
      const most = Math.max(...all.map(total));
      assert.equal(out.reserved[p], most, `${apart} ${p}`);
      assert.deepEqual(Array.from(out.sums.slice(3 * p, 3 * p + 3)),
                       poolsAt(out.event[p]));
      assert.ok(out.event[p] >= first && out.event[p] < first + apart);
    });
  }
});

test("what has not come yet stays so, and a device may have no segments", () => {
  const bare = columns([0, 20]);
  bare.source = [-1, 0];
  const out = cached.columnsOf(pieces, bare, EVENTS);
  assert.deepEqual([out.reserved[0], out.reserved[1]], [0, total(poolsAt(20))]);
  const none = { ...pieces, count: 0, start: [], end: [], bytes: [], flags: [] };
  assert.deepEqual(Array.from(cached.columnsOf(none, columns([0, 20]), EVENTS).reserved),
                   [0, 0]);
});

test("the pieces of a range are bands; of too many those that take most of it", () => {
  const shown = columns([6, 7, 8]);
  const ids = (limit, rows = 1) => Array.from(
    cached.bandsOf(pieces, shown, rows, limit).id);
  assert.deepEqual(ids(10), [0, 1, 2]);
  assert.deepEqual(ids(2), [0, 2]);
  assert.deepEqual(ids(10, 1 / 50), [2]);
  assert.deepEqual(Array.from(cached.bandsOf(pieces, shown, 1, 10).group), [0, 1, 2]);
});
