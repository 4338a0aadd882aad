/* memlabData against the model in encode.js. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");
const { encode, readerOf, randomRecording, groupOf, Writer, SCHEMES }
  = require("./encode.js");

const { memlabData, memlabBlobs } = load(["names.js", "blobs.js", "data.js"],
                                         ["memlabData", "memlabBlobs"]);

function opened(recording) {
  const made = encode(recording);
  return { ...made, model: memlabData.open(made.head, readerOf(made.blobs)) };
}

const allocatedAfter = (lives, event) => lives.filter(
  (life) => life.start <= event && life.requested > event);

test("varints of every length come back as the nearest double", () => {
  const values = [0n, 1n, 127n, 128n, 2n ** 14n, 2n ** 21n - 1n, 2n ** 28n - 1n, 2n ** 28n,
                  2n ** 32n - 1n, 2n ** 53n - 1n, 2n ** 53n + 1n, 2n ** 63n + 1025n,
                  2n ** 64n - 1n];
  const bytes = new Writer().unsigned(values).done();
  const input = memlabBlobs.reader(bytes);
  const out = memlabBlobs.unsigned(input, new Float64Array(values.length));
  memlabBlobs.ended(input);
  assert.deepEqual(Array.from(out), values.map(Number));
});

test("differences go up and down, over every length of varint", () => {
  const values = [5n, 0n, 2n ** 27n, 1n, 2n ** 28n, 2n ** 31n, 3n, 2n ** 52n, 0n, 77n];
  const bytes = new Writer().deltas(values, 9n).done();
  const out = memlabBlobs.deltas(memlabBlobs.reader(bytes), new Float64Array(10), 9);
  assert.deepEqual(Array.from(out), values.map(Number));
});

test("numbers beside others, over every length of varint", () => {
  const base = [5n, 0n, 2n ** 31n, 2n ** 53n - 1n, 0n];
  const values = [4n, 63n, 0n, 512n, 2n ** 53n - 1n];
  const bytes = new Writer().relative(values, base).done();
  const input = memlabBlobs.reader(bytes);
  const out = memlabBlobs.relative(input, new Float64Array(5), base.map(Number));
  memlabBlobs.ended(input);
  assert.deepEqual(Array.from(out), values.map(Number));
});

test("an event that changes nothing of its row is of it all the same", async () => {
  const { model } = opened({ events: [
    ["alloc", 512, 1024], ["alloc", 2048, 512], ["free_requested", 512, 1024],
    ["free_requested", 512, 1024], ["free_completed", 512, 1024], ["alloc", 512, 512]] });
  const { events, rows, totals } = await model.chunk(0, 0);
  assert.deepEqual(Array.from(events.row), [0, 1, 0, 0, 0, 2]);
  assert.deepEqual(Array.from(rows.ordinal), [0, 0, 1]);
  assert.deepEqual(Array.from(totals.allocated), [1024, 1536, 512, 512, 512, 1024]);
  assert.deepEqual(Array.from(totals.active), [1024, 1536, 1536, 1536, 512, 1024]);
});

test("data cut short or too long is refused", async () => {
  for (const change of [(b) => b.slice(0, -1), (b) => Uint8Array.of(...b, 0)]) {
    const { head, blobs } = encode(randomRecording(1, 100));
    const model = memlabData.open(head, readerOf(blobs.map(change)));
    await assert.rejects(model.chunk(0, 0), /damaged/);
    await assert.rejects(model.level(0, 0, 0), /damaged/);
  }
});

test("every row, event and total of every chunk is what happened", async () => {
  for (let seed = 0; seed < 8; seed++) {
    const recording = randomRecording(seed, 300);
    const { model, story, times } = opened({ ...recording, chunk: 64 });
    const { events } = recording;
    for (let i = 0; i < model.devices[0].chunkCount; i++) {
      const chunk = await model.chunk(0, i);
      assert.equal(chunk.count, Math.min(64, 300 - 64 * i));
      assert.equal(chunk.before.active,
                   i === 0 ? story.first.active : story.totals[64 * i - 1].active);
      for (let k = 0; k < chunk.count; k++) {
        const e = chunk.first + k;
        const life = story.rows[e];
        const row = chunk.events.row[k];
        assert.equal(model.actions[chunk.events.action[k]], events[e][0]);
        assert.equal(chunk.events.time[k], times[e]);
        for (const name of ["allocated", "active", "reserved"]) {
          assert.equal(chunk.totals[name][k], story.totals[e][name]);
        }
        const addr = life?.addr ?? BigInt(events[e][1]);
        assert.equal(chunk.events.hi[k] * 2 ** 32 + chunk.events.lo[k], Number(addr));
        assert.equal(chunk.events.size[k], life?.size ?? events[e][2]);
        assert.equal(row >= 0, life !== null);
        if (life !== null) {
          for (const name of ["id", "start", "requested", "end", "bytes", "size", "kind",
                              "ordinal"]) {
            assert.equal(chunk.rows[name][row], life[name], name);
          }
        }
      }
    }
  }
});

test("the rows live after any event, and their sums by kind", async () => {
  for (let seed = 20; seed < 24; seed++) {
    const { model, story } = opened({ ...randomRecording(seed, 200), chunk: 32 });
    for (let event = -1; event < 200; event++) {
      const expected = allocatedAfter(story.lives, event);
      const { chunk, rows } = await model.live(0, event);
      assert.deepEqual(Array.from(rows, (r) => chunk.rows.id[r]).sort((a, b) => a - b),
                       expected.map((life) => life.id));
      const { bytes, blocks } = await model.liveByKind(0, event);
      for (let kind = 0; kind < 12; kind++) {
        const of = expected.filter((life) => life.kind === kind);
        assert.equal(blocks[kind], of.length);
        assert.equal(bytes[kind], of.reduce((sum, life) => sum + life.bytes, 0));
      }
    }
  }
});

test("bytes x time between any two events", async () => {
  for (let seed = 40; seed < 43; seed++) {
    const { model, story, times } = opened({ ...randomRecording(seed, 250), chunk: 16 });
    for (const [e0, e1] of [[0, 249], [3, 5], [10, 30], [0, 16], [16, 32], [7, 200],
                            [5, 5], [-1, 400], [100, 50]]) {
      const got = await model.integral(0, e0, e1);
      const [from, to] = [Math.max(0, e0), Math.min(249, e1)];
      const expected = new Float64Array(12);
      for (const life of story.lives) {
        const [a, b] = [Math.max(life.start, from), Math.min(life.requested, to)];
        if (b > a) {
          expected[life.kind] += life.bytes * (times[b] - times[a]);
        }
      }
      assert.deepEqual(got, expected, `${e0} to ${e1}`);
    }
  }
});

test("the model of the tests sums groups as a look at every life does", () => {
  const { story, grouped, sums } = encode(randomRecording(2, 120));
  for (let event = -1; event < 120; event++) {
    for (const scheme of SCHEMES) {
      assert.deepEqual(sums[scheme][event + 1], grouped.groups[scheme].map(
        (_, g) => allocatedAfter(story.lives, event)
          .filter((life) => groupOf(grouped, scheme, life) === g)
          .reduce((sum, life) => sum + life.bytes, 0)));
    }
  }
});

test("each column of a level shows its highest event, and its groups add up", async () => {
  const recording = randomRecording(5, 20000);
  const { model, story } = opened({ ...recording, spans: [4, 16, 64] });
  const [device] = model.devices;
  assert.deepEqual(device.levels.map((l) => [l.span, l.columns, l.blobs.length]),
                   [[64, 313, 1], [16, 1250, 1], [4, 5000, 2]]);
  for (let l = 0; l < 3; l++) {
    for (let tile = 0; tile < device.levels[l].blobs.length; tile++) {
      const level = await model.level(0, l, tile);
      for (let c = 0; c < level.count; c++) {
        const from = (level.first + c) * level.span;
        const part = story.totals.slice(from, from + level.span);
        const most = Math.max(...part.map((row) => row.allocated));
        assert.equal(level.peak[c],
                     from + part.findIndex((row) => row.allocated === most));
        assert.equal(level.allocated[c], most);
        assert.equal(level.most[c], Math.max(...part.map((row) => row.reserved)));
        for (const scheme of SCHEMES) {
          assert.equal(level.groups[scheme].reduce((sum, g) => sum + g[c], 0), most);
        }
      }
    }
  }
});

test("bands are the lives that are long for their level", async () => {
  const { model, story } = opened({ ...randomRecording(6, 1000), spans: [4, 16] });
  const ids = async (l) => Array.from((await model.bands(0, l, 0)).id);
  const length = (life) => life.requested - life.start;
  assert.deepEqual(await ids(0), story.lives.filter((a) => length(a) >= 128)
    .map((a) => a.id));
  assert.deepEqual(await ids(1), story.lives
    .filter((a) => length(a) >= 32 && length(a) < 128).map((a) => a.id));
});

test("an allocation's group, by the head's tables or its bytes", () => {
  const { model, story, grouped } = opened(randomRecording(7, 300));
  for (const life of story.lives) {
    for (const scheme of SCHEMES) {
      assert.equal(model.groupOf(0, scheme, life.kind, life.bytes),
                   groupOf(grouped, scheme, life));
    }
  }
});

test("times of events and the last event at a time", async () => {
  const events = [0, 10, 10, 25, 40].map((time, i) => ["alloc", 512 * i, 512, 0, 9, time]);
  const { model } = opened({ events, chunk: 2 });
  const at = [];
  for (const us of [-1, 0, 9, 10, 24, 25, 39, 40, 1000]) {
    at.push(await model.eventAtTime(0, us));
  }
  assert.deepEqual(at, [-1, 0, 0, 2, 2, 3, 3, 4, 4]);
  assert.equal(await model.timeOf(0, 3), 25);
  assert.equal(await model.timeOf(0, -1), 0);
});

test("a recording without events answers with nothing", async () => {
  const { model } = opened({});
  assert.deepEqual(Array.from((await model.live(0, -1)).rows), []);
  assert.equal((await model.level(0, 0, 0)).count, 0);
  assert.equal((await model.segments(0)).count, 0);
  assert.equal(await model.eventAtTime(0, 5), -1);
  assert.deepEqual(Array.from(await model.integral(0, 0, 5)), [0]);
});

test("what is not there yet is asked for once, and told when it comes", async () => {
  const { head, blobs } = encode(randomRecording(9, 100));
  const asked = [];
  const model = memlabData.open(head, async (n) => {
    asked.push(n);
    return blobs[n];
  });
  let told = 0;
  const came = new Promise((resolve) => {
    const off = model.onLoad(() => {
      told += 1;
      off();
      resolve();
    });
  });
  assert.equal(model.chunkNow(0, 0), null);
  assert.equal(model.chunkNow(0, 0), null);
  await came;
  assert.equal(model.chunkNow(0, 0).count, 100);
  assert.deepEqual([asked.length, told], [1, 1]);
});

test("48 chunks are kept, the newest", async () => {
  const made = encode({ ...randomRecording(10, 60 * 4), chunk: 4 });
  let asked = 0;
  const model = memlabData.open(made.head, async (n) => {
    asked += 1;
    return made.blobs[n];
  });
  for (let i = 0; i < 60; i++) {
    await model.chunk(0, i);
  }
  await model.chunk(0, 59);
  await model.chunk(0, 12);
  assert.equal(asked, 60);
  await model.chunk(0, 11);
  assert.equal(asked, 61);
});

test("a blob that fails is told, and does not stop the others", async () => {
  const { head, blobs } = encode(randomRecording(11, 100));
  const bad = head.devices[0].chunks.blobs[0];
  const model = memlabData.open(head, async (n) => {
    if (n === bad) {
      throw new Error("gone");
    }
    return blobs[n];
  });
  const fault = new Promise((resolve) => model.onFault(resolve));
  assert.equal(model.chunkNow(0, 0), null);
  assert.equal((await fault).message, "gone");
  assert.equal((await model.level(0, 0, 0)).count, 1);
});

test("names cannot rewrite the text around them", () => {
  const { head } = encode({ names: { strings: ["a\u202eb\u0000", "\ud800", "ok é"] } });
  assert.deepEqual(memlabData.open(head, null).strings,
                   ["a\\u202eb\\u0000", "\\ud800", "ok é"]);
});

test("another format is refused with a sentence", () => {
  assert.throws(() => memlabData.open({ format: 1 }, null), /format 5 only/);
  assert.throws(() => memlabData.open(null, null), /format 5 only/);
});
