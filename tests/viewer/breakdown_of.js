/* Sums of a recording as the page makes them: reads {"head", "blobs" (base64), "asked":
 * [[device, event]]} from stdin, writes for each what memlabBreakdown says by each of its
 * ways, in names. */
"use strict";

const { readFileSync } = require("node:fs");

const { load } = require("./load.js");

const { memlabData, memlabBreakdown: breakdown } = load(
  ["names.js", "blobs.js", "data.js", "breakdown.js"], ["memlabData", "memlabBreakdown"]);

/* A group in the words that Recording.peak has for it. */
function worded(model, group) {
  const { kinds, lines, strings } = model;
  const { kind, line } = group;
  const out = { bytes: group.bytes, blocks: group.blocks };
  const place = { phase: group.phase, how: group.how, reason: group.reason };
  switch (group.by) {
  case "line":
    return { ...out, ...place, file: strings[lines.file[line]],
             function: strings[lines.function[line]], line: lines.line[line],
             until_line: group.until === 0 ? lines.line[line] : group.until,
             module: group.module,
             by_category: Object.fromEntries([...group.categories].map(
               (bytes, i) => [model.categories[i], bytes]).filter(([, b]) => b > 0)) };
  case "module":
    return { ...out, module: strings[kinds.module[kind]],
             reason: model.no_modules[kinds.no_module[kind]] };
  case "category":
    return { ...out, category: model.categories[kinds.category[kind]],
             inexact: group.inexact, why: model.whys[kinds.why[kind]] };
  case "size":
    return { ...out, least_bytes: group.from };
  default:
    return { ...out, ...place, frames: framesOf(model, kinds.stack[kind]) };
  }
}

function framesOf(model, stack) {
  const { frames, stacks, strings } = model;
  const out = [];
  for (let id = stack; id > 0; id = stacks.parent[id]) {
    const frame = stacks.frame[id];
    out.push({ name: strings[frames.name[frame]], filename: strings[frames.file[frame]],
               line: frames.line[frame] });
  }
  return out;
}

async function main() {
  const { head, blobs, asked } = JSON.parse(readFileSync(0, "utf8"));
  const model = memlabData.open(
    head, async (n) => new Uint8Array(Buffer.from(blobs[n], "base64")));
  const answers = [];
  for (const [d, event] of asked) {
    const weights = await breakdown.at(model, d, event);
    const answer = { total: weights.total };
    for (const by of breakdown.BYS) {
      answer[by] = breakdown.groups(model, d, weights, by)
        .map((group) => worded(model, group));
    }
    answers.push(answer);
  }
  process.stdout.write(JSON.stringify(answers));
}

main();
