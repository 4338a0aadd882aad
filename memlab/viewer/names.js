/* Texts for what a recording holds: numbers, addresses, places in code, stacks, steps.
 *
 * Owns how they are worded, in all views alike.  Pure functions of their arguments: no
 * document, no clock, so that they run under node too. */
"use strict";

const memlabNames = (() => {
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const HIGH = 2 ** 32;
  /* Of a line of the backward pass that is not exactly the one. */
  const HOW_WORDS = new Map([
    ["likely", "likely"],
    ["near", "near this line"],
    ["backward_call", "called here"],
  ]);

  /* ---- numbers ---- */

  function formatBytes(bytes) {
    let value = Number(bytes);
    const sign = value < 0 ? "-" : "";
    value = Math.abs(value);
    let unit = 0;
    if (value < 1024) {
      return `${sign}${value} B`;
    }
    /* Three significant digits: from 999.5 on it would have four. */
    while ((unit === 0 || value >= 999.5) && unit < UNITS.length - 1) {
      value /= 1024;
      unit += 1;
    }
    return `${sign}${value < 999.5 ? value.toPrecision(3) : value.toFixed(0)} ${UNITS[unit]}`;
  }

  function formatCount(value) {
    const number = typeof value === "number" && Number.isInteger(value)
      ? BigInt(value) : value;
    return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  }

  function exactBytes(bytes) {
    return `${formatBytes(bytes)} (${formatCount(bytes)} B)`;
  }

  function formatTime(microseconds) {
    const size = Math.abs(microseconds);
    if (size < 1000) {
      return `${microseconds} µs`;
    }
    if (size < 1e6) {
      return `${(microseconds / 1e3).toFixed(2)} ms`;
    }
    return `${(microseconds / 1e6).toFixed(3)} s`;
  }

  function plural(count, noun) {
    return `${formatCount(count)} ${noun}${Number(count) === 1 ? "" : "s"}`;
  }

  const CONTROLS = "\\u0000-\\u001f\\u007f-\\u009f\\u200b-\\u200f\\u2028-\\u202e"
    + "\\u2060-\\u2069\\ufeff";
  const LONE_SURROGATE = "[\\ud800-\\udbff](?![\\udc00-\\udfff])"
    + "|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]";
  const UNPRINTABLE = new RegExp(`[${CONTROLS}]|${LONE_SURROGATE}`, "g");

  /* Control and direction characters would let a name rewrite the text around it. */
  function printable(text) {
    return text.replace(
      UNPRINTABLE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
  }

  /* ---- addresses ---- */

  function hex(hi, lo) {
    return hi === 0 ? lo.toString(16)
      : hi.toString(16) + lo.toString(16).padStart(8, "0");
  }

  /* Rounded past 2^53; exact where addresses of devices are. */
  function addressNumber(hi, lo) {
    return hi * HIGH + lo;
  }

  /* The n-th allocation at an address, counted from 0. */
  function allocationName(rows, row) {
    return `b${hex(rows.hi[row], rows.lo[row])}_${rows.ordinal[row]}`;
  }

  /* What event I of a chunk is about: an allocation, device memory, or nothing. */
  function eventName(model, chunk, i) {
    const { row, action, hi, lo } = chunk.events;
    if (row[i] >= 0) {
      return allocationName(chunk.rows, row[i]);
    }
    return ["oom", "snapshot", "other"].includes(model.actions[action[i]])
      ? "" : `s${hex(hi[i], lo[i])}`;
  }

  /* TEXT in at most LETTERS letters: what it begins and ends with tells names apart. */
  function middle(text, letters) {
    if (text.length <= letters) {
      return text;
    }
    const tail = Math.floor((letters - 1) / 2);
    return letters < 2 ? "…" : `${text.slice(0, letters - 1 - tail)}…`
      + text.slice(text.length - tail);
  }

  /* ---- places in code ---- */

  function shortFile(file) {
    return file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);
  }

  function placeText({ name, file, line }) {
    const at = line > 0 ? `${shortFile(file)}:${line}` : shortFile(file);
    return at === "" ? name : `${at} ${name}`;
  }

  function frameText(model, frame) {
    return { name: model.strings[model.frames.qualname[frame]],
             file: model.strings[model.frames.file[frame]],
             line: model.frames.line[frame] };
  }

  /* Frames innermost first.  Parents have smaller ids, so this ends on any file. */
  function stackFrames(model, stack) {
    const out = [];
    for (let id = stack; id > 0;) {
      out.push(model.stacks.frame[id]);
      const parent = model.stacks.parent[id];
      id = parent < id ? parent : 0;
    }
    return out;
  }

  function hasLine(model, line) {
    const { file, line: number } = model.lines;
    return number[line] !== 0 || model.strings[file[line]] !== "";
  }

  /* A line of the user's code, or, in brackets, why there is none. */
  function linePlace(model, line) {
    const { file, function: name, line: first, until, no_line: reason } = model.lines;
    if (!hasLine(model, line)) {
      return `(${model.no_lines[reason[line]] || "no line"})`;
    }
    const range = until[line] > first[line] ? `${first[line]}-${until[line]}`
      : String(first[line]);
    const at = `${shortFile(model.strings[file[line]])}:${range}`;
    return `${at} ${model.strings[name[line]]}`.trimEnd();
  }

  /* Its line in full, with the file's path, or "". */
  function lineTitle(model, line) {
    const { file, function: name, line: number } = model.lines;
    return hasLine(model, line)
      ? `${model.strings[file[line]]}:${number[line]} ${model.strings[name[line]]}` : "";
  }

  /* TEXT as one word of a search. */
  function searchWord(text) {
    return /\s/.test(text) ? `"${text}"` : text;
  }

  /* A search that finds what a line allocated; "" for no line. */
  function lineWord(model, line) {
    if (!hasLine(model, line)) {
      return "";
    }
    const { file, line: number } = model.lines;
    return searchWord(`${shortFile(model.strings[file[line]])}:${number[line]}`);
  }

  /* ---- kinds of allocations ---- */

  function kindPlace(model, kind) {
    const { line, phase, how } = model.kinds;
    const text = linePlace(model, line[kind]);
    if (model.phases[phase[kind]] !== "backward" || !hasLine(model, line[kind])) {
      return text;
    }
    const word = HOW_WORDS.get(model.hows[how[kind]]);
    return word === undefined ? `${text} (backward)` : `${text} (backward, ${word})`;
  }

  function categoryText(model, category) {
    return (model.categories[category] ?? "unknown").replace(/_/g, " ");
  }

  /* Its category, with the owner's name or why it is not known. */
  function kindCategory(model, kind) {
    const { category, exact, why, name } = model.kinds;
    const text = categoryText(model, category[kind]);
    const owner = model.strings[name[kind]];
    const reason = model.whys[why[kind]] ?? "";
    if (reason !== "") {
      return `${text}: ${reason}`;
    }
    const sure = exact[kind] === 0 ? " (estimated)" : "";
    return (owner === "" ? text : `${text} ${owner}`) + sure;
  }

  function kindModule(model, kind) {
    const { module, no_module: reason } = model.kinds;
    const text = model.strings[module[kind]];
    return text === "" ? `(${model.no_modules[reason[kind]] || "no module"})` : text;
  }

  /* PATH of a module, or of several that are rolled up. */
  function rolledText(path, modules) {
    return modules > 1 ? `${path} ×${modules}` : path;
  }

  /* ---- groups of the picture ---- */

  const SCHEMES = ["category", "module", "line", "size"];

  function groupText(model, d, scheme, group) {
    const id = model.devices[d].groups[scheme][group];
    if (scheme === "category") {
      return categoryText(model, id);
    }
    if (scheme === "size") {
      const { size } = model.devices[d].groups;
      return group + 1 < size.length
        ? `${formatBytes(id)} to ${formatBytes(size[group + 1])}`
        : `${formatBytes(id)} and more`;
    }
    if (id < 0) {
      return `all other ${scheme}s`;
    }
    return scheme === "line" ? linePlace(model, id) : rowText(model, d, id);
  }

  const SHARES = new Map([["own", ", itself"], ["rest", ", the rest"]]);

  /* A row of modules, as the report says it. */
  function rowText(model, d, row) {
    const { path, modules, no_module: reason, share } = model.devices[d].module_rows;
    return reason[row] > 0 ? `(${model.no_modules[reason[row]]})`
      : rolledText(path[row], modules[row]) + (SHARES.get(share[row]) ?? "");
  }

  /* A search that finds what a group has, or "". */
  function groupWord(model, d, scheme, group) {
    const id = model.devices[d].groups[scheme][group];
    if (scheme === "category") {
      return model.categories[id] ?? "";
    }
    if (scheme === "size") {
      const next = model.devices[d].groups.size[group + 1];
      return next === undefined ? `>=${id}` : `>=${id} <${next}`;
    }
    if (id < 0) {
      return "";
    }
    return scheme === "line" ? lineWord(model, id)
      : searchWord(model.devices[d].module_rows.path[id].replace(/\[\d+-\d+\]/g, "*"));
  }

  /* ---- steps and phases ---- */

  const stepsOf = new WeakMap();

  /* The notes that tell of a device: its own, and those of all devices of its rank. */
  function notesOf(model, d) {
    const { index } = model.devices[d];
    const rank = model.ranks.findIndex(
      ({ devices }) => devices.some(({ device }) => device === index));
    return model.notes.filter(
      (note) => (note.device === -1 || note.device === index)
        && (note.rank === -1 || rank === -1 || note.rank === rank));
  }

  /* Ends of the training steps of a device: [{ time, value }] in order. */
  function stepEnds(model, d) {
    const device = model.devices[d];
    let ends = stepsOf.get(device);
    if (ends === undefined) {
      ends = notesOf(model, d).filter((note) => note.kind === "step")
        .map((note) => ({ time: note.time, value: Number(note.value) }))
        .sort((a, b) => a.time - b.time);
      stepsOf.set(device, ends);
    }
    return ends;
  }

  /* The number of the step that TIME is in, or -1 where steps were not told. */
  function stepAt(model, d, time) {
    const ends = stepEnds(model, d);
    if (ends.length === 0) {
      return -1;
    }
    const end = ends.find((step) => step.time >= time);
    return end === undefined ? ends[ends.length - 1].value + 1 : end.value;
  }

  /* Names of the phases and regions that TIME is in, outermost first. */
  function phasesAt(model, d, time) {
    return notesOf(model, d).filter(
      (note) => /^(phase|region)/.test(note.kind)
        && note.time <= time && note.end !== null && note.end > time)
      .map((note) => note.name);
  }

  return { middle, HOW_WORDS, formatBytes, formatCount, formatTime, exactBytes, plural,
           printable, hex, addressNumber, allocationName, eventName, shortFile,
           placeText, frameText, stackFrames, hasLine, linePlace, lineTitle,
           searchWord, lineWord, kindPlace, kindCategory, kindModule, categoryText, rolledText,
           SCHEMES, groupText, groupWord, notesOf, stepEnds, stepAt, phasesAt };
})();
