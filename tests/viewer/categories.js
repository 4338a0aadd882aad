/* Reads page data on stdin; prints the bytes by category at the peak as the viewer shows
 * them: { category: bytes }. */
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");

const path = join(__dirname, "..", "..", "memlab", "viewer", "model.js");
const { build, liveAt } = new Function(
  `${readFileSync(path, "utf8")}\nreturn memlabModel;`)();

const model = build(JSON.parse(readFileSync(0, "utf8")));
const [device] = model.devices;
const sums = {};
for (const id of liveAt(device.allocs, device.peak.event)) {
  if (device.allocs.requestedAt[id] > device.peak.event) {
    const name = model.categories[device.allocs.category[id]];
    sums[name] = (sums[name] ?? 0) + device.allocs.bytes[id];
  }
}
process.stdout.write(JSON.stringify(sums));
