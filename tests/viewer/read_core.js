/* The core as WebAssembly.  Run by tests/page/test_page_data.py:
 *   node read_core.js FILE OUT      writes what it makes of FILE to OUT: the verdicts, a
 *                                   NUL, the head, a NUL, then each blob behind its length
 *   node read_core.js FILE          prints the error */
"use strict";

const { readFileSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { load } = require("./load.js");

const CORE = join(__dirname, "..", "..", "memlab", "viewer", "core.wasm");
const { memlabDrop } = load(["drop.js"], ["memlabDrop"]);

async function main(path, out) {
  const module = new WebAssembly.Module(readFileSync(CORE));
  const { text, verdicts, count, readBlob } = await memlabDrop.read(
    module, new Blob([readFileSync(path)]));
  const pieces = [Buffer.from(`${JSON.stringify(verdicts)}\0${text}\0`)];
  for (let n = 0; n < count; n++) {
    const blob = await readBlob(n);
    const length = Buffer.alloc(4);
    length.writeUInt32LE(blob.length);
    pieces.push(length, Buffer.from(blob));
  }
  writeFileSync(out, Buffer.concat(pieces));
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.log(error.message);
  process.exitCode = 1;
});
