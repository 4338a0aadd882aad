/* What the reader asks for: searches over allocations and events, and the page's state
 * as text in the address bar.
 *
 * Pure functions of a model and a text; any text gives an answer, none an error. */
"use strict";

const memlabQuery = (() => {
  const { allocationName, eventName, frameText } = memlabModel;

  function parseSize(text) {
    const match = /^(\d+(?:\.\d+)?)\s*([kmgtpe]?)(?:i?b)?$/i.exec(text);
    if (match === null) {
      return null;
    }
    const power = match[2] === "" ? 0 : "kmgtpe".indexOf(match[2].toLowerCase()) + 1;
    return Number(match[1]) * 1024 ** power;
  }

  /* Words that must all match; `>10MiB`, `<512` and `=1KiB` compare the block's bytes. */
  function parseQuery(text) {
    const query = { words: [], atLeast: 0, atMost: Infinity };
    for (const token of text.split(/\s+/)) {
      const bytes = /^[<>=]/.test(token) ? parseSize(token.slice(1)) : null;
      if (bytes === null) {
        if (token !== "") {
          query.words.push(token.toLowerCase());
        }
        continue;
      }
      if (token[0] !== "<") {
        query.atLeast = Math.max(query.atLeast, bytes);
      }
      if (token[0] !== ">") {
        query.atMost = Math.min(query.atMost, bytes);
      }
    }
    return query;
  }

  function isEmptyQuery(query) {
    return query.words.length === 0 && query.atLeast === 0 && query.atMost === Infinity;
  }

  /* For one word: which stacks hold a frame whose function or file:line has it. */
  function stacksWith(model, word) {
    const count = model.stacks.parent.length;
    const frames = new Uint8Array(model.frames.name.length);
    for (let f = 1; f < frames.length; f++) {
      const { name, file, line } = frameText(model, f);
      frames[f] = Number(`${name}\n${file}:${line}`.toLowerCase().includes(word));
    }
    const out = new Uint8Array(count);
    for (let s = 1; s < count; s++) {
      const parent = model.stacks.parent[s];
      out[s] = frames[model.stacks.frame[s]] | (parent < s ? out[parent] : 0);
    }
    return out;
  }

  /* A function (name, stack, bytes, category) -> boolean. */
  function matcher(model, query) {
    const words = query.words.map((word) => ({
      word: word.startsWith("0x") ? word.slice(2) : word,
      stacks: stacksWith(model, word),
    }));
    return (name, stack, bytes, label) =>
      bytes >= query.atLeast && bytes <= query.atMost
      && words.every(({ word, stacks }) => stacks[stack] === 1
        || name.includes(word) || label.includes(word));
  }

  function searchAllocations(model, device, text) {
    const query = parseQuery(text);
    if (isEmptyQuery(query)) {
      return null;
    }
    const matches = matcher(model, query);
    const { allocs } = device;
    const hits = new Uint8Array(allocs.count);
    let count = 0;
    let bytes = 0;
    for (let i = 0; i < allocs.count; i++) {
      const label = `${model.categories[allocs.category[i]] ?? ""} `
        + model.strings[allocs.name[i]].toLowerCase();
      if (matches(allocationName(allocs, i), allocs.stack[i], allocs.bytes[i], label)) {
        hits[i] = 1;
        count += 1;
        bytes += allocs.bytes[i];
      }
    }
    return { hits, count, bytes };
  }

  /* Events to list.  A free completed right after it was requested is one step for the
   * reader; HIDE_PAIRS leaves its first half out. */
  function listEvents(model, device, text, hidePairs) {
    const { events, code } = device;
    const REQUESTED = code.get("free_requested");
    const COMPLETED = code.get("free_completed");
    const query = parseQuery(text);
    const matches = isEmptyQuery(query) ? null : matcher(model, query);
    const out = [];
    for (let e = 0; e < events.count; e++) {
      if (hidePairs && events.action[e] === REQUESTED && e + 1 < events.count
          && events.action[e + 1] === COMPLETED
          && events.addr[e + 1] === events.addr[e]) {
        continue;
      }
      if (matches !== null) {
        const bytes = Number(events.block[e]) || Number(events.size[e]);
        const id = device.allocs.ofEvent[e];
        const stack = events.stack[e] || (id >= 0 ? device.allocs.stack[id] : 0);
        if (!matches(eventName(device, e), stack, bytes,
                     model.actions[events.action[e]])) {
          continue;
        }
      }
      out.push(e);
    }
    return Int32Array.from(out);
  }

  /* ---- the address bar ---- */

  const DEFAULT_STATE = Object.freeze({
    device: 0, view: "timeline", axis: "events", color: "", drawn: 0,
    x0: 0, x1: 0, y1: 0, pinned: -1, event: -1, search: "", pairs: true, theme: "auto",
  });

  /* Takes any text; a key that is unknown or of another type keeps its default. */
  function parseState(hash) {
    const state = { ...DEFAULT_STATE };
    let read = null;
    try {
      read = JSON.parse(decodeURIComponent(hash.replace(/^#/, "")));
    }
    catch {
      return state;
    }
    if (read === null || typeof read !== "object") {
      return state;
    }
    for (const key of Object.keys(DEFAULT_STATE)) {
      if (Object.hasOwn(read, key) && typeof read[key] === typeof DEFAULT_STATE[key]) {
        state[key] = read[key];
      }
    }
    return state;
  }

  function stateHash(state) {
    const changed = {};
    for (const key of Object.keys(DEFAULT_STATE)) {
      if (state[key] !== DEFAULT_STATE[key]) {
        changed[key] = state[key];
      }
    }
    return Object.keys(changed).length === 0
      ? "#" : `#${encodeURIComponent(JSON.stringify(changed))}`;
  }

  return { parseSize, parseQuery, searchAllocations, listEvents, parseState, stateHash,
           DEFAULT_STATE };
})();
