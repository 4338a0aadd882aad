/* What the reader asks for: searches over allocations and events, and the next event of
 * some sort.
 *
 * Works on a model and a text alone, so that it runs under node too; any text gives an
 * answer, none an error.  Goes through a recording chunk by chunk and can be stopped. */
"use strict";

const memlabQuery = (() => {
  const HIGH = 2 ** 32;

  const { allocationName, eventName, frameText } = memlabNames;

  /* ---- what is asked ---- */

  function parseSize(text) {
    const match = /^(\d+(?:\.\d+)?)\s*([kmgtpe]?)(?:i?b)?$/i.exec(text);
    if (match === null) {
      return null;
    }
    const power = match[2] === "" ? 0 : "kmgtpe".indexOf(match[2].toLowerCase()) + 1;
    return Number(match[1]) * 1024 ** power;
  }

  /* An address as written for people, 0x..., in two halves; null for anything else. */
  function parseAddress(word) {
    const match = /^0x([0-9a-f]{1,16})$/.exec(word);
    if (match === null) {
      return null;
    }
    const digits = match[1].padStart(16, "0");
    return { hi: parseInt(digits.slice(0, 8), 16), lo: parseInt(digits.slice(8), 16) };
  }

  /* Words that must all match, or phrases in double quotes; `>10MiB`, `>=1MiB`, `<512`,
   * `<=4KiB` and `=1KiB` compare the block's bytes. */
  function parseQuery(text) {
    const query = { words: [], bounds: [] };
    for (const [token, phrase] of text.matchAll(/"([^"]*)"|\S+/g)) {
      const match = /^(>=|<=|>|<|=)(.+)$/.exec(token);
      const bytes = match === null ? null : parseSize(match[2]);
      const word = (phrase ?? token).toLowerCase();
      if (bytes !== null) {
        query.bounds.push({ how: match[1], bytes });
      }
      else if (word !== "") {
        query.words.push(word);
      }
    }
    return query;
  }

  function isWithin(bounds, bytes) {
    for (const { how, bytes: bound } of bounds) {
      const holds = how === ">" ? bytes > bound : how === "<" ? bytes < bound
        : how === ">=" ? bytes >= bound : how === "<=" ? bytes <= bound
          : bytes === bound;
      if (!holds) {
        return false;
      }
    }
    return true;
  }

  /* ---- what it finds ---- */

  /* Which stacks have a frame whose function or file:line has WORD. */
  function stacksWith(model, word) {
    const { parent, frame } = model.stacks;
    const frames = new Uint8Array(model.frames.name.length);
    for (let f = 1; f < frames.length; f++) {
      const { name, file, line } = frameText(model, f);
      frames[f] = Number(`${name}\n${file}:${line}`.toLowerCase().includes(word));
    }
    const out = new Uint8Array(parent.length);
    for (let s = 1; s < out.length; s++) {
      out[s] = frames[frame[s]] | (parent[s] < s ? out[parent[s]] : 0);
    }
    return out;
  }

  /* Which kinds have WORD in their stack, line, module, category or owner's name. */
  function kindsWith(model, word, stacks) {
    const { stack, line, module, category, name } = model.kinds;
    const { lines, strings } = model;
    const strung = new Uint8Array(strings.length);
    const has = wordTest(word);
    for (let s = 0; s < strings.length; s++) {
      strung[s] = Number(has(strings[s].toLowerCase()));
    }
    const lined = new Uint8Array(lines.line.length);
    for (let l = 0; l < lined.length; l++) {
      lined[l] = strung[lines.function[l]] | Number(
        `${strings[lines.file[l]]}:${lines.line[l]}`.toLowerCase().includes(word));
    }
    const named = model.categories.map((text) => Number(text.includes(word)
      || text.replace(/_/g, " ").includes(word)));
    const out = new Uint8Array(stack.length);
    for (let k = 0; k < out.length; k++) {
      out[k] = stacks[stack[k]] | lined[line[k]] | strung[module[k]] | strung[name[k]]
        | (named[category[k]] ?? 0);
    }
    return out;
  }

  /* A word that is an allocation's name, or the start of one, or an address. */
  function placeTest(word) {
    const address = parseAddress(word);
    const start = `b${word.startsWith("0x") ? word.slice(2) : word.replace(/^b/, "")}`;
    const whole = /^b[0-9a-f]+_\d+$/.test(word);
    if (address === null && !whole && !/^b[0-9a-f]+_?$/.test(start)) {
      return null;
    }
    return (rows, row) => {
      const name = allocationName(rows, row);
      if (whole ? name === word : name.startsWith(start)) {
        return true;
      }
      if (address === null) {
        return false;
      }
      const offset = (address.hi - rows.hi[row]) * HIGH + (address.lo - rows.lo[row]);
      return offset >= 0 && offset < rows.bytes[row];
    };
  }

  /* Whether a text has WORD, in which "*" stands for any part of a module's path. */
  function wordTest(word) {
    if (!word.includes("*")) {
      return (text) => text.includes(word);
    }
    const parts = word.split(/\*+/).map(
      (part) => part.replace(/[.[\]\\^$+?{}()|/-]/g, "\\$&"));
    const pattern = new RegExp(parts.join("[^.]*"));
    return (text) => text.includes(word) || pattern.test(text);
  }

  /* What TEXT finds in MODEL: null for an empty text, else
   *   kinds      1 for a kind of which every allocation matches
   *   matches    (rows, row) -> boolean
   *   ofEvent    (chunk, i) -> boolean, the same of an event of a chunk
   */
  function compile(model, text) {
    const { words, bounds } = parseQuery(text);
    if (words.length === 0 && bounds.length === 0) {
      return null;
    }
    const tests = words.map((word) => {
      const stacks = stacksWith(model, word);
      return { word, stacks, kinds: kindsWith(model, word, stacks),
               place: placeTest(word) };
    });
    const kinds = new Uint8Array(model.kinds.stack.length).fill(
      bounds.length === 0 ? 1 : 0);
    for (const test of tests) {
      for (let k = 0; k < kinds.length; k++) {
        kinds[k] &= test.kinds[k];
      }
    }
    const holds = (test, rows, row) => test.kinds[rows.kind[row]] === 1
      || (test.place !== null && test.place(rows, row));
    const matches = (rows, row) => kinds[rows.kind[row]] === 1
      || (isWithin(bounds, rows.bytes[row])
          && tests.every((test) => holds(test, rows, row)));
    const ofEvent = (chunk, i) => {
      const { events, rows } = chunk;
      const row = events.row[i];
      if (!isWithin(bounds, row >= 0 ? rows.bytes[row] : events.size[i])) {
        return false;
      }
      return tests.every((test) => test.stacks[events.stack[i]] === 1
        || model.actions[events.action[i]].includes(test.word)
        || (row >= 0 ? holds(test, rows, row)
          : eventName(model, chunk, i).includes(test.word.replace(/^0x/, ""))));
    };
    return { kinds, matches, ofEvent };
  }

  /* ---- through the chunks ---- */

  function rest() {
    return new Promise((resolve) => {
      setTimeout(resolve, 0);
    });
  }

  /* Counts the allocations that HITS finds on a device, telling PROGRESS({ done, of,
   * count, bytes, starts }) after each chunk, until it is all or STOPPED() says so.  starts
   * are the events that made them, ascending; those from before the recording have none. */
  async function count(model, d, hits, progress, stopped) {
    const { chunkCount } = model.devices[d];
    const sum = { done: 0, of: chunkCount, count: 0, bytes: 0, starts: new Int32Array(0) };
    let room = new Int32Array(1024);
    let begun = 0;
    for (let i = 0; i < chunkCount; i++) {
      const { rows } = await model.chunk(d, i);
      if (stopped()) {
        return;
      }
      for (let row = i === 0 ? 0 : rows.carried; row < rows.count; row++) {
        if (hits.matches(rows, row)) {
          sum.count += 1;
          sum.bytes += rows.bytes[row];
          if (rows.start[row] >= 0) {
            if (begun === room.length) {
              const more = new Int32Array(2 * begun);
              more.set(room);
              room = more;
            }
            room[begun] = rows.start[row];
            begun += 1;
          }
        }
      }
      sum.starts = room.subarray(0, begun);
      sum.done = i + 1;
      progress(sum);
      await rest();
    }
  }

  /* The nearest event after FROM (before it, with BY -1) of which TEST(chunk, i) is true;
   * -1: there is none, or STOPPED() said so. */
  async function nearest(model, d, from, by, test, stopped) {
    const device = model.devices[d];
    const size = device.chunks.events;
    for (let event = from + by; event >= 0 && event < device.events;) {
      const chunk = await model.chunk(d, Math.floor(event / size));
      if (stopped()) {
        return -1;
      }
      for (let i = event - chunk.first; i >= 0 && i < chunk.count; i += by) {
        if (test(chunk, i)) {
          return chunk.first + i;
        }
      }
      event = by > 0 ? chunk.first + chunk.count : chunk.first - 1;
      await rest();
    }
    return -1;
  }

  /* The row of allocation ID of a chunk, or -1. */
  function rowOf(chunk, id) {
    return chunk.rows.id.indexOf(id);
  }

  /* Of each of PARTS equal parts of the events from E0 to E1: the event with the most
   * allocated bytes and what was allocated, active and reserved then.  Where a part is
   * longer than the finest level's columns, its borders are theirs. */
  async function highest(model, d, e0, e1, parts) {
    const device = model.devices[d];
    const out = [];
    const chosen = device.levels.findIndex(({ span }) => span * 4 * parts <= e1 - e0);
    for (let part = 0; part < parts; part++) {
      const from = Math.floor(e0 + part * (e1 - e0) / parts);
      const to = Math.floor(e0 + (part + 1) * (e1 - e0) / parts);
      out.push(chosen < 0 ? await highestOfChunks(model, d, from, to)
        : await highestOfLevel(model, d, chosen, from, to));
    }
    return out.filter((row) => row !== null);
  }

  async function highestOfChunks(model, d, from, to) {
    let best = null;
    for (let event = from; event < to;) {
      const chunk = await model.chunk(d, Math.floor(event / model.devices[d].chunks.events));
      const { allocated, active, reserved } = chunk.totals;
      const stop = Math.min(to - chunk.first, chunk.count);
      for (let i = event - chunk.first; i < stop; i++) {
        if (best === null || allocated[i] > best.allocated) {
          best = { event: chunk.first + i, time: chunk.events.time[i],
                   allocated: allocated[i], active: active[i], reserved: reserved[i] };
        }
      }
      event = chunk.first + chunk.count;
    }
    return best;
  }

  async function highestOfLevel(model, d, l, from, to) {
    const { span, columns } = model.devices[d].levels[l];
    const TILE = memlabData.TILE_COLUMNS;
    let best = null;
    const stop = Math.min(columns, Math.ceil(to / span));
    for (let c = Math.floor(from / span); c < stop; c++) {
      const tile = await model.level(d, l, Math.floor(c / TILE));
      const i = c - tile.first;
      if (best === null || tile.allocated[i] > best.allocated) {
        best = { event: tile.peak[i], time: tile.time[i], allocated: tile.allocated[i],
                 active: tile.active[i], reserved: tile.reserved[i] };
      }
    }
    return best;
  }

  return { parseSize, parseQuery, compile, count, nearest, rowOf, highest };
})();
