/* Sums of the memory at an instant, or over a range, by line, module, category, stack and
 * size; and what differs between two instants.
 *
 * Owns what makes one group of two kinds, by the report's rules, and the report's words
 * for a group.  Pure functions of a model and its weights: no document, so that they run
 * under node too.  Must not know how any of it is drawn.
 *
 * Weights are { event, bytes, blocks, total }: by kind the bytes and, at an instant, the
 * number of blocks; of a range BYTES are bytes x microseconds and BLOCKS is null. */
"use strict";

const memlabBreakdown = (() => {
  const { HOW_WORDS, formatBytes, formatCount, formatTime, shortFile, stackFrames,
          placeText } = memlabNames;

  const BYS = ["line", "module", "category", "stack", "size"];
  /* Room for a number of a phase, a way or a reason in a key. */
  const PLACES = 64;

  /* ---- weights ---- */

  function sizeGroup(bounds, bytes) {
    let group = 0;
    while (group + 1 < bounds.length && bounds[group + 1] <= bytes) {
      group += 1;
    }
    return group;
  }

  /* What was allocated after EVENT (-1: before the first). */
  async function at(model, d, event) {
    const { chunk, rows: live } = await model.live(d, event);
    const count = model.kinds.stack.length;
    const bounds = model.devices[d].groups.size;
    const weights = { event, total: 0, bytes: new Float64Array(count),
                      blocks: new Float64Array(count),
                      sizes: { bytes: new Float64Array(bounds.length),
                               blocks: new Float64Array(bounds.length) } };
    for (const row of live) {
      const { rows } = chunk;
      const bytes = rows.bytes[row];
      const group = sizeGroup(bounds, bytes);
      weights.bytes[rows.kind[row]] += bytes;
      weights.blocks[rows.kind[row]] += 1;
      weights.sizes.bytes[group] += bytes;
      weights.sizes.blocks[group] += 1;
      weights.total += bytes;
    }
    return weights;
  }

  /* Bytes x microseconds of what was allocated from the events FIRST to LAST. */
  async function over(model, d, first, last) {
    const bytes = await model.integral(d, first, last);
    return { event: last, bytes, blocks: null, sizes: null,
             total: bytes.reduce((sum, n) => sum + n, 0) };
  }

  /* The first event of the most allocated bytes from FIRST to LAST. */
  async function highest(model, d, first, last) {
    const { events: span, peak } = model.devices[d].chunks;
    let best = -1;
    let most = -1;
    for (let i = Math.floor(first / span); i * span <= last; i++) {
      const whole = i * span >= first && (i + 1) * span - 1 <= last;
      if (whole && peak[i] <= most) {
        continue;
      }
      const chunk = await model.chunk(d, i);
      const to = Math.min(chunk.count - 1, last - chunk.first);
      for (let e = Math.max(0, first - chunk.first); e <= to; e++) {
        if (chunk.totals.allocated[e] > most) {
          most = chunk.totals.allocated[e];
          best = chunk.first + e;
        }
      }
    }
    return best;
  }

  /* ---- instants ---- */

  /* The chosen instant, else the peak. */
  function instantOf(model, d, state) {
    const { events, peak } = model.devices[d];
    return state.event ?? Math.min(peak.event, events - 1);
  }

  /* The two instants that are compared, the earlier first: those chosen, else the ends of
   * the first and of the last step, else the first and the last event. */
  async function pairOf(model, d, state) {
    const last = model.devices[d].events - 1;
    const steps = memlabNames.stepEnds(model, d);
    let pair = [Math.min(0, last), last];
    if (state.other >= 0) {
      pair = [instantOf(model, d, state), state.other];
    }
    else if (steps.length > 1) {
      pair = await Promise.all([steps[0], steps[steps.length - 1]].map(
        ({ time }) => model.eventAtTime(d, time)));
    }
    return pair.sort((a, b) => a - b);
  }

  /* The device's totals after EVENT, and its time. */
  async function totalsAt(model, d, event) {
    const time = await model.timeOf(d, event);
    const { chunk } = await model.live(d, event);
    if (chunk === null) {
      return [{ allocated: 0, active: 0, reserved: 0 }, time];
    }
    const { totals, before, first } = chunk;
    return [event < 0 ? before : {
      allocated: totals.allocated[event - first], active: totals.active[event - first],
      reserved: totals.reserved[event - first] }, time];
  }

  function byOf(state) {
    return BYS.includes(state.by) ? state.by : BYS[0];
  }

  /* ---- lines ---- */

  /* Of all blocks of LINE: one that goes round a loop goes past all that do not. */
  function widenUntil(line, until, other) {
    const round = other < line;
    if (until === 0 || (round && until >= line)
        || (round === until < line && other > until)) {
      return other;
    }
    return until;
  }

  /* The names of PATTERN and NAME as one, with "*" for what differs. */
  function widenModule(pattern, name) {
    const had = pattern.split(".");
    const has = name.split(".");
    const out = [];
    for (let i = 0; ; i++) {
      const last = i === had.length - 1;
      const end = i === has.length - 1;
      if (had[i] !== has[i] || last !== end) {
        out.push(...(had[i] === has[i] ? [had[i], "*"] : ["*"]));
        if (last || end || had[i] === "") {
          break;
        }
      }
      else {
        out.push(had[i]);
        if (last) {
          break;
        }
      }
    }
    return out.join(".");
  }

  /* ---- groups ---- */

  /* The number that equal groups share.  LOOSE: however a line is known. */
  function keyOf(model, by, kind, loose) {
    const { line, module, no_module: noModule, category, why, stack, phase, how } =
      model.kinds;
    switch (by) {
    case "line":
      return (line[kind] * PLACES + phase[kind]) * PLACES
        + (loose ? 0 : how[kind]);
    case "module":
      return module[kind] * PLACES + noModule[kind];
    case "category":
      return category[kind] * PLACES
        + (model.categories[category[kind]] === "unknown" ? why[kind] : 0);
    default:
      return ((stack[kind] * PLACES + phase[kind]) * PLACES
        + (loose ? 0 : how[kind])) * PLACES + model.lines.no_line[line[kind]];
    }
  }

  function newGroup(model, by, kind, key) {
    const { kinds, lines } = model;
    const line = kinds.line[kind];
    return { by, key, kind, line, bytes: 0, blocks: 0, inexact: 0, until: 0, module: "",
             phase: model.phases[kinds.phase[kind]], how: model.hows[kinds.how[kind]],
             reason: model.no_lines[lines.no_line[line]],
             categories: new Float64Array(model.categories.length) };
  }

  function addKind(model, group, kind, bytes, blocks) {
    const { kinds, lines } = model;
    const name = model.strings[kinds.module[kind]];
    const until = kinds.until[kind];
    group.bytes += bytes;
    group.blocks += blocks;
    group.categories[kinds.category[kind]] += bytes;
    group.inexact += kinds.exact[kind] ? 0 : bytes;
    if (until > 0) {
      group.until = widenUntil(lines.line[group.line], group.until, until);
    }
    if (name !== "" && name !== group.module) {
      group.module = group.module === "" ? name : widenModule(group.module, name);
    }
  }

  function sizeGroups(model, weights, bounds) {
    return bounds.map((bound, i) => ({
      by: "size", key: bound, kind: -1, bytes: weights.sizes.bytes[i],
      blocks: weights.sizes.blocks[i], inexact: 0, from: bound,
      below: bound === 0 ? 1 : bound * 4 })).filter((group) => group.blocks > 0);
  }

  const made = new WeakMap();

  /* The groups of WEIGHTS, the most bytes first.  Their bytes add up to its total. */
  function groups(model, d, weights, by, loose = false) {
    const known = made.get(weights) ?? new Map();
    made.set(weights, known);
    const name = `${by} ${loose}`;
    if (!known.has(name)) {
      known.set(name, makeGroups(model, d, weights, by, loose));
    }
    return known.get(name);
  }

  function makeGroups(model, d, weights, by, loose) {
    if (by === "size") {
      return sizeGroups(model, weights, model.devices[d].groups.size).sort(compare);
    }
    const found = new Map();
    for (let kind = 0; kind < weights.bytes.length; kind++) {
      const blocks = weights.blocks === null ? 0 : weights.blocks[kind];
      if (weights.bytes[kind] === 0 && blocks === 0) {
        continue;
      }
      const key = keyOf(model, by, kind, loose);
      let group = found.get(key);
      if (group === undefined) {
        group = newGroup(model, by, kind, key);
        found.set(key, group);
      }
      addKind(model, group, kind, weights.bytes[kind], blocks);
    }
    return [...found.values()].sort(compare);
  }

  function compare(a, b) {
    return b.bytes - a.bytes || a.key - b.key;
  }

  /* ---- what grew ---- */

  function changeOf(before, after) {
    if (before.blocks === 0) {
      return "appeared";
    }
    if (after.blocks === 0) {
      return "gone";
    }
    if (before.bytes === after.bytes) {
      return "same";
    }
    return before.bytes < after.bytes ? "grew" : "shrank";
  }

  const NOTHING = { bytes: 0, blocks: 0 };

  /* Both instants' groups side by side, the greatest difference first, either way.  The
   * differences add up to that of the totals. */
  function differences(model, d, before, after, by) {
    const old = new Map(groups(model, d, before, by, true).map((g) => [g.key, g]));
    const now = new Map(groups(model, d, after, by, true).map((g) => [g.key, g]));
    const rows = [];
    for (const key of new Set([...old.keys(), ...now.keys()])) {
      const a = old.get(key) ?? NOTHING;
      const b = now.get(key) ?? NOTHING;
      rows.push({ group: now.get(key) ?? old.get(key), key, change: changeOf(a, b),
                  before: a.bytes, after: b.bytes, difference: b.bytes - a.bytes,
                  blocksBefore: a.blocks, blocksAfter: b.blocks });
    }
    return rows.sort((a, b) => Math.abs(b.difference) - Math.abs(a.difference)
      || b.difference - a.difference || a.key - b.key);
  }

  /* Rows of the chunk that are allocated after AFTER and began after BEFORE, the oldest
   * first. */
  async function fresh(model, d, before, after) {
    const { chunk, rows } = await model.live(d, after);
    const start = chunk === null ? [] : chunk.rows.start;
    const found = Array.from(rows).filter((row) => start[row] > before);
    return { chunk, rows: found.sort((a, b) => start[a] - start[b] || a - b) };
  }

  /* ---- words ---- */

  /* FILE:LINE FUNCTION and how that is known, as the report says it.  inner: a frame, the
   * model's own line to which the line leads. */
  function lineText(model, { line, until, phase, how, reason, module, inner = 0 },
                    whole = false) {
    const { file, function: name, line: number } = model.lines;
    if (reason !== "") {
      const bare = reason.replace(/ \(backward\)$/, "");
      return phase === "backward" ? `(backward pass: ${bare})` : `(${bare})`;
    }
    const path = model.strings[file[line]];
    const last = until === 0 ? number[line] : until;
    const at = last === number[line] ? last : `${number[line]}-${last}`;
    const there = inner > 0 ? `→ ${frameText(model, inner, whole)}`
      : model.strings[name[line]];
    const text = `${whole ? path : shortFile(path)}:${at} ${there}`
      + (module === "" ? "" : ` [${module}]`);
    if (last !== number[line]) {
      return `${text} (backward, of one of these lines)`;
    }
    const word = HOW_WORDS.get(how);
    return word !== undefined ? `${text} (backward, ${word})`
      : phase === "backward" ? `${text} (backward)` : text;
  }

  function categoryText(model, category, why) {
    const name = model.categories[category].replace(/_/g, " ");
    const reason = name === "unknown" ? model.whys[why] ?? "" : "";
    return reason === "" ? name : `${name}: ${reason}`;
  }

  function frameText(model, frame, whole = false) {
    const { name, file, line } = memlabNames.frameText(model, frame);
    return whole ? `${file}${line > 0 ? `:${line}` : ""} ${name}`.trim()
      : placeText({ name, file, line });
  }

  /* Which instant EVENT is. */
  function instantText(model, d, event, time) {
    if (event < 0) {
      return "Before the first event";
    }
    const step = memlabNames.stepAt(model, d, time);
    return `After event ${formatCount(event)}, ${formatTime(time)}`
      + (step < 0 ? "" : `, step ${step}`)
      + (event === model.devices[d].peak.event ? ", the peak" : "");
  }

  /* The categories of a line: the largest, and whether there are others. */
  function mostly(model, group) {
    const present = [...group.categories.keys()].filter((i) => group.categories[i] > 0)
      .sort((a, b) => group.categories[b] - group.categories[a]);
    const more = present.length > 1 ? ` +${present.length - 1}` : "";
    return present.length === 0 ? ""
      : model.categories[present[0]].replace(/_/g, " ") + more;
  }

  /* What a row of GROUP says. */
  function groupText(model, group) {
    const { kinds } = model;
    const { kind } = group;
    switch (group.by) {
    case "line":
      return lineText(model, group);
    case "module":
      return memlabNames.kindModule(model, kind);
    case "category":
      return categoryText(model, kinds.category[kind], kinds.why[kind]);
    case "size":
      return group.from === 0 ? "no bytes"
        : `${formatBytes(group.from)} to less than ${formatBytes(group.below)}`;
    default:
      return stackText(model, group);
    }
  }

  /* A stack by its innermost frame; without one by its line or the reason of none. */
  function stackText(model, group) {
    const [frame] = stackFrames(model, model.kinds.stack[group.kind]);
    return frame === undefined || group.how !== "frames"
      ? lineText(model, { ...group, module: "" }) : frameText(model, frame);
  }

  /* A search that finds the allocations of GROUP. */
  function groupWord(model, group) {
    const { kinds, lines } = model;
    const { kind } = group;
    if (group.by === "size") {
      return `>=${group.from} <${group.below}`;
    }
    if (group.by === "category") {
      return model.categories[kinds.category[kind]];
    }
    if (group.by === "module") {
      return model.strings[kinds.module[kind]];
    }
    const file = shortFile(model.strings[lines.file[group.line]]);
    return group.reason !== "" || /\s/.test(file) ? ""
      : `${file}:${lines.line[group.line]}`;
  }

  return { BYS, byOf, instantOf, pairOf, totalsAt, instantText, at, over, highest, groups,
           differences, fresh, widenModule, widenUntil, lineText, frameText, mostly,
           groupText, groupWord };
})();
