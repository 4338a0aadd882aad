/* memlabBlobs: blobs of a served page; viewport.js: the limits of what is shown. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");
const { encode, readerOf, randomRecording } = require("./encode.js");

const { memlabBlobs, memlabData, memlabViewport } = load(
  ["names.js", "blobs.js", "data.js", "columns.js", "viewport.js"],
  ["memlabBlobs", "memlabData", "memlabViewport"]);

/* readBlob of a server that answers with ANSWER(range). */
function served(t, answer) {
  const asked = [];
  const { fetch } = globalThis;
  t.after(() => {
    globalThis.fetch = fetch;
  });
  globalThis.fetch = async (url, { headers }) => {
    asked.push([url, headers.Range]);
    return answer(headers.Range);
  };
  return { asked, read: memlabBlobs.ofPage({ serve: { offsets: [0, 3, 3, 10] } }) };
}

test("a served page asks for the bytes of one blob, and none of an empty one",
     async (t) => {
  const { asked, read } = served(t, (range) => new Response(
    new Uint8Array(range === "bytes=0-2" ? 3 : 7), { status: 206 }));
  assert.equal((await read(0)).length, 3);
  assert.equal((await read(1)).length, 0);
  assert.equal((await read(2)).length, 7);
  assert.deepEqual(asked, [["blobs", "bytes=0-2"], ["blobs", "bytes=3-9"]]);
});

test("a server that is gone or answers something else is told in a sentence",
     async (t) => {
  const gone = served(t, () => Promise.reject(new TypeError("refused")));
  await assert.rejects(gone.read(0), /--serve does not answer/);
  const whole = served(t, () => new Response(new Uint8Array(10), { status: 200 }));
  await assert.rejects(whole.read(0), /status 200/);
  const short = served(t, () => new Response(new Uint8Array(2), { status: 206 }));
  await assert.rejects(short.read(0), /something else/);
});

test("no move leaves the recording, and zooming ends at a few events", () => {
  const { head, blobs } = encode(randomRecording(1, 1000));
  const model = memlabData.open(head, readerOf(blobs));
  let told = 0;
  const port = memlabViewport.create(model, 0, "events", () => 100, () => {
    told += 1;
  });
  const shown = () => [port.range.x0, port.range.x1];
  assert.deepEqual(shown(), [0, 1000]);
  assert.ok(port.isWhole() && port.fits());
  port.zoom(0.5, 0.25);
  assert.deepEqual(shown(), [125, 625]);
  port.pan(0.5, 0);
  assert.deepEqual(shown(), [375, 875]);
  port.pan(5, 0);
  assert.deepEqual(shown(), [500, 1000]);
  port.pan(-5, 0);
  assert.deepEqual(shown(), [0, 500]);
  port.zoom(1e-9, 0.5);
  assert.equal(port.range.x1 - port.range.x0, 8);
  port.stretch(0.5, 0);
  assert.ok(!port.fits());
  port.showAll();
  assert.ok(port.isWhole() && port.fits());
  assert.ok(told > 0);
});
