/* Search, the list of events, the memory after an event and the page's state in its
 * address, against brute force over the model in encode.js. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");
const { encode, readerOf, randomRecording } = require("./encode.js");

global.document = {
  createElement: () => ({ append(...parts) { this.parts = parts; } }),
};
const { memlabData, memlabQuery, memlabAddress, memlabDescribe, memlabEvents, memlabMemory,
        memlabNames } = load(
  ["names.js", "blobs.js", "data.js", "query.js", "address.js", "describe.js", "events.js",
   "memory.js"],
  ["memlabData", "memlabQuery", "memlabAddress", "memlabDescribe", "memlabEvents",
   "memlabMemory", "memlabNames"]);

function opened(recording) {
  const made = encode(recording);
  return { ...made, model: memlabData.open(made.head, readerOf(made.blobs)) };
}

const never = () => false;

test("the beginning that may be cut off is none or longer than three letters", () => {
  for (const name of ["", "a.py:1 f", "train.py:9 <module>", "train.py:13 <module>",
                      "train.py:113 <module>", "train.py:1113 <module>"]) {
    const [head, tail] = memlabDescribe.cut(name).parts;
    assert.equal(head.parts[0] + tail, name);
    assert.ok(head.parts[0].length === 0 || head.parts[0].length > 3, name);
    assert.equal(head.parts[0].length > 3, name.length > 21, name);
  }
});

/* ---- search ---- */

test("a search is words, phrases and bounds; what is no size is a word", () => {
  assert.deepEqual(memlabQuery.parseQuery('Foo >1MiB "a  B" <=2k =7 <b>'), {
    words: ["foo", "a  b", "<b>"],
    bounds: [{ how: ">", bytes: 1048576 }, { how: "<=", bytes: 2048 },
             { how: "=", bytes: 7 }] });
  assert.equal(memlabQuery.parseSize("1.5KiB"), 1536);
  assert.equal(memlabQuery.parseSize("12 apples"), null);
});

async function counted(model, text) {
  const sums = [];
  await memlabQuery.count(model, 0, memlabQuery.compile(model, text),
                          (sum) => sums.push({ ...sum }), never);
  const last = sums[sums.length - 1];
  assert.equal(last.done, last.of);
  return { count: last.count, bytes: last.bytes };
}

test("what a search counts is what there is, over all chunks", async () => {
  for (let seed = 1; seed < 6; seed++) {
    const recording = randomRecording(seed, 200);
    const { model, story } = opened({ ...recording, chunk: 32 });
    const { lives } = story;
    const sum = (test_) => lives.filter(test_).reduce(
      (all, life) => ({ count: all.count + 1, bytes: all.bytes + life.bytes }),
      { count: 0, bytes: 0 });
    const one = lives[Math.floor(lives.length / 2)];
    const name = `b${one.addr.toString(16)}_${one.ordinal}`;
    const inside = `0x${(one.addr + BigInt(one.bytes) - 1n).toString(16)}`;
    const holds = (life) => life.addr < one.addr + BigInt(one.bytes)
      && life.addr + BigInt(life.bytes) > one.addr + BigInt(one.bytes) - 1n;
    assert.deepEqual(await counted(model, ">=0"), sum(() => true));
    assert.deepEqual(await counted(model, `>${one.bytes}`),
                     sum((life) => life.bytes > one.bytes));
    assert.deepEqual(await counted(model, `<${one.bytes}`),
                     sum((life) => life.bytes < one.bytes));
    assert.deepEqual(await counted(model, name), sum((life) => life === one));
    assert.deepEqual(await counted(model, `${name} =${one.bytes}`),
                     sum((life) => life === one));
    assert.deepEqual(await counted(model, inside), sum(holds));
    assert.deepEqual(await counted(model, "no such thing"), { count: 0, bytes: 0 });
  }
});

test("a star in a word is any part of a module's path", async () => {
  const recording = randomRecording(1, 200);
  const { model, story } = opened({ ...recording, chunk: 32 });
  const wanted = story.lives.filter(({ kind }) => recording.kinds[kind].module === 2);
  assert.ok(wanted.length > 0);
  /* net.weight is the second of the strings that modules are. */
  for (const text of ["net.*ght", "n*t.*ght", "*.weight"]) {
    assert.equal((await counted(model, text)).count, wanted.length, text);
  }
  assert.equal((await counted(model, "n*weight")).count, 0);
});

test("a count tells where the allocations that it finds begin", async () => {
  const recording = randomRecording(4, 3000);
  const { model, story } = opened({ ...recording, chunk: 512 });
  const hits = memlabQuery.compile(model, ">=0");
  const told = [];
  await memlabQuery.count(model, 0, hits, ({ starts }) => told.push(Array.from(starts)),
                          never);
  const all = story.lives.map(({ start }) => start).filter((start) => start >= 0)
    .sort((a, b) => a - b);
  assert.ok(all.length > 1024);
  assert.deepEqual(told.at(-1), all);
  assert.deepEqual(told[0], all.filter((start) => start < 512));
});

test("a count ends where it is stopped", async () => {
  const { model } = opened({ ...randomRecording(3, 200), chunk: 32 });
  let calls = 0;
  await memlabQuery.count(model, 0, memlabQuery.compile(model, ">=0"), () => {
    calls += 1;
  }, () => calls === 2);
  assert.equal(calls, 2);
});

test("the nearest event of a sort, on both sides, across chunks", async () => {
  const recording = randomRecording(5, 150);
  const { model } = opened({ ...recording, chunk: 16 });
  const alloc = model.actions.indexOf("alloc");
  const test_ = (chunk, i) => chunk.events.action[i] === alloc;
  const allocs = recording.events.flatMap(([action], e) => (action === "alloc" ? [e] : []));
  for (let from = -1; from < 150; from += 7) {
    const next = allocs.find((e) => e > from) ?? -1;
    const last = allocs.findLast((e) => e < from) ?? -1;
    assert.equal(await memlabQuery.nearest(model, 0, from, 1, test_, never), next);
    assert.equal(await memlabQuery.nearest(model, 0, from, -1, test_, never), last);
  }
});

test("the highest instants of parts are those of the totals, by chunks and by levels",
  async () => {
    const recording = randomRecording(7, 400);
    const { model, story } = opened({ ...recording, chunk: 64, spans: [4, 16] });
    for (const [e0, e1, parts, span] of [[0, 400, 5, 16], [3, 50, 20, 1], [0, 400, 40, 1],
                                         [0, 400, 20, 4]]) {
      const found = await memlabQuery.highest(model, 0, e0, e1, parts);
      const wanted = Array.from({ length: parts }, (_, part) => {
        const from = Math.floor((e0 + part * (e1 - e0) / parts) / span) * span;
        const to = Math.ceil(Math.floor(e0 + (part + 1) * (e1 - e0) / parts) / span) * span;
        return Math.max(-1, ...story.totals.slice(from, to).map((row) => row.allocated));
      }).filter((most) => most >= 0);
      assert.deepEqual(found.map((row) => row.allocated), wanted);
      for (const row of found) {
        assert.equal(story.totals[row.event].allocated, row.allocated);
        assert.equal(story.totals[row.event].active, row.active);
      }
    }
  });

/* ---- the list of events ---- */

const ALL = { action: "", pairs: false, hits: null };

async function listed(model, index) {
  const out = [];
  for (let row = 0; row < index.total(); row++) {
    const { chunk, k } = index.locate(row);
    index.take(await model.chunk(0, chunk));
    const place = index.locate(row);
    if (place !== null) {
      out.push(index.eventAt(place.chunk, place.k));
    }
  }
  return out;
}

test("rows of the list of events: all, of one action, frees as one row, found ones",
  async () => {
    const recording = randomRecording(2, 300);
    const { model, story } = opened({ ...recording, chunk: 64 });
    const { events } = recording;
    const rows = (keeps) => events.flatMap((_, e) => (keeps(e) ? [e] : []));
    const isFirst = (e) => events[e][0] === "free_requested" && (e + 1) % 64 !== 0
      && events[e + 1]?.[0] === "free_completed" && events[e + 1][1] === events[e][1];
    const hits = memlabQuery.compile(model, ">=1024");
    const cases = [
      [ALL, rows(() => true)],
      [{ ...ALL, action: "alloc" }, rows((e) => events[e][0] === "alloc")],
      [{ ...ALL, pairs: true }, rows((e) => !isFirst(e))],
      [{ ...ALL, hits }, rows((e) => (story.rows[e]?.bytes ?? events[e][2])
        >= 1024)],
    ];
    for (const [filter, wanted] of cases) {
      const index = memlabEvents.createIndex(model, 0, filter);
      for (let i = 0; i < model.devices[0].chunkCount; i++) {
        index.take(await model.chunk(0, i));
      }
      assert.ok(index.whole);
      assert.equal(index.total(), wanted.length);
      assert.deepEqual(await listed(model, index), wanted);
      for (let e = 0; e < events.length; e++) {
        assert.equal(index.rowOf(e), wanted.filter((event) => event <= e).length - 1);
      }
    }
  });

test("chunks that were not read are estimated from those that were", async () => {
  const { model } = opened({ ...randomRecording(2, 300), chunk: 64 });
  const index = memlabEvents.createIndex(model, 0, { ...ALL, action: "alloc" });
  assert.equal(index.total(), 300);
  const chunk = await model.chunk(0, 0);
  index.take(chunk);
  const alloc = model.actions.indexOf("alloc");
  const share = chunk.events.action.filter((action) => action === alloc).length / 64;
  assert.equal(index.total(), Math.round(64 * share) * 4 + Math.round(44 * share));
  assert.equal(index.whole, false);
  assert.equal(index.eventAt(2, 0), -1);
  assert.equal(index.take(chunk), false);
});

/* ---- memory after an event ---- */

const EXPANDABLE = 1;

test("segments by address with their blocks; pieces that touch are one", async () => {
  const segment = (addr, bytes, start, end, flags = 0) => ({ addr, bytes, start, end,
                                                             flags });
  const events = [
    ["segment_alloc", 0x1000, 8192], ["alloc", 0x1200, 1024], ["alloc", 0x1000, 512],
    ["segment_map", 0x9000, 4096], ["segment_map", 0xa000, 4096], ["alloc", 0x9e00, 1024],
    ["free_requested", 0x1000, 512], ["free_completed", 0x1000, 512],
    ["segment_unmap", 0x9000, 4096]];
  const { model } = opened({ events, segments: [
    segment(0x1000, 8192, 0, 9), segment(0x9000, 4096, 3, 8, EXPANDABLE),
    segment(0xa000, 4096, 4, 9, EXPANDABLE), segment(0xb000, 512, 4, 9)] });
  const [pieces, chunk] = [await model.segments(0), await model.chunk(0, 0)];
  const at = (event) => memlabMemory.stateAt(pieces, chunk, event).map((s) => [
    s.name, s.bytes, s.offsets, s.used, s.pending, s.fresh, s.gone]);
  assert.deepEqual(at(0), [["s1000", 8192, [], 0, 0, true, false]]);
  assert.deepEqual(at(2), [["s1000", 8192, [0, 512], 1536, 0, false, false]]);
  assert.deepEqual(at(5), [["s1000", 8192, [0, 512], 1536, 0, false, false],
                           ["s9000", 8192, [3584], 1024, 0, false, false],
                           ["sb000", 512, [], 0, 0, false, false]]);
  assert.deepEqual(at(6)[0], ["s1000", 8192, [0, 512], 1536, 512, false, false]);
  assert.deepEqual(at(8).map((s) => [s[0], s[1], s[6]]), [
    ["s1000", 8192, false], ["s9000", 4096, true], ["sa000", 4096, false],
    ["sb000", 512, false], ["", 1024, false]]);
  const [first] = memlabMemory.stateAt(pieces, chunk, 2);
  assert.deepEqual(memlabMemory.holesOf(first, chunk.rows), [{ offset: 1536, bytes: 6656 }]);
  const hole = memlabMemory.largestHole(memlabMemory.stateAt(pieces, chunk, 7), chunk.rows,
                                        () => true);
  assert.deepEqual([hole.segment.name, hole.offset, hole.bytes], ["s1000", 1536, 6656]);
  assert.equal(memlabMemory.largestHole([], chunk.rows, () => true), null);
});

/* ---- the address ---- */

test("the state in the address comes back, and any other text is the default", () => {
  const { parse, format, DEFAULT_STATE } = memlabAddress;
  const state = { ...DEFAULT_STATE, view: "events", event: -1, brush: [3, 9],
                  pinned: { chunk: 2, id: 77 }, search: 'a "b" %#\u2028', x1: 12.5 };
  assert.deepEqual(parse(format(state)), state);
  assert.equal(format(DEFAULT_STATE), "#");
  for (const text of ["", "#", "#%", "#{", "#null", "#7", "#[]", '#"x"', "#search=%",
                      "#x=7&view=4&event=1.5&brush=1&pinned=&device=&other=x",
                      "#__proto__=events&toString=x&pairs=3&constructor"]) {
    assert.deepEqual(parse(text), DEFAULT_STATE, text);
  }
  assert.equal({}.view, undefined);
});

test("an address is short, and a range in it is the same to a part of a pixel", () => {
  const { parse, format, DEFAULT_STATE } = memlabAddress;
  const of = (part) => format({ ...DEFAULT_STATE, ...part });
  assert.equal(of({ view: "flame", event: 1120, search: "net.py:12 a" }),
               "#flame&event=1120&search=net.py:12+a");
  assert.equal(of({ x0: 1234.56789, x1: 2234.56789, pairs: false }),
               "#x=1234.6~2234.6&pairs=0");
  for (const [x0, x1] of [[0, 8], [1e7 + 1 / 3, 1e7 + 8 + 1 / 3], [0.1, 9999999.7]]) {
    const back = parse(of({ x0, x1 }));
    assert.ok(Math.abs(back.x0 - x0) <= (x1 - x0) / 1e4, of({ x0, x1 }));
    assert.ok(Math.abs(back.x1 - x1) <= (x1 - x0) / 1e4);
  }
});
