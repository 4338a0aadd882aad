/* What the page knows: the recording's columns and everything derived from them.
 *
 * Owns decoding, the life of each allocation and segment, the state at any event, and the
 * texts for names and numbers.  Pure functions of their arguments: no document, no clock,
 * so that they run under node too.  Tables keyed by strings from a file are Maps. */
"use strict";

const memlabModel = (() => {
  const FORMAT = 1;
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const BLOCK_INACTIVE = 0;

  /* ---- texts ---- */

  function formatBytes(bytes) {
    let value = Number(bytes);
    const sign = value < 0 ? "-" : "";
    value = Math.abs(value);
    let unit = 0;
    while (value >= 1024 && unit < UNITS.length - 1) {
      value /= 1024;
      unit += 1;
    }
    if (unit === 0) {
      return `${sign}${value} B`;
    }
    const digits = value >= 100 ? 1 : 2;
    return `${sign}${value.toFixed(digits)} ${UNITS[unit]}`;
  }

  function formatCount(value) {
    return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
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

  /* ---- columns ---- */

  /* Integers past 2^53 travel as strings; they become BigInt, the others stay numbers,
   * so that equal values are equal keys and `<` compares exactly. */
  function wide(value) {
    return typeof value === "string" ? BigInt(value) : value;
  }

  function wideColumn(values) {
    return values.some((v) => typeof v === "string")
      ? values.map(wide) : Float64Array.from(values);
  }

  function numberColumn(values) {
    return Float64Array.from(values, Number);
  }

  function summed(values) {
    const out = new Float64Array(values.length);
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      sum += Number(values[i]);
      out[i] = sum;
    }
    return out;
  }

  function distance(from, to) {
    return Number(BigInt(to) - BigInt(from));
  }

  function plus(addr, bytes) {
    const sum = Number(addr) + Number(bytes);
    return Number.isSafeInteger(sum) ? sum : wide(String(BigInt(addr) + BigInt(bytes)));
  }

  function hex(addr) {
    return BigInt(addr).toString(16);
  }

  /* ---- the whole recording ---- */

  function build(data) {
    if (data === null || typeof data !== "object" || data.format !== FORMAT) {
      throw new Error(`This page reads data of format ${FORMAT} only.`);
    }
    const model = {
      source: data.source,
      baseUs: wide(data.base_us),
      strings: data.strings.map(printable),
      actions: data.actions,
      categories: data.categories,
      frames: data.frames,
      stacks: data.stacks,
      lines: {
        file: data.lines.file.map(printable),
        name: data.lines.function.map(printable),
        line: data.lines.line,
        ofStack: data.lines.of_stack,
      },
      devices: [],
    };
    model.devices = data.devices.map((device) => buildDevice(model, device));
    return model;
  }

  function buildDevice(model, raw) {
    const events = {
      count: raw.events.action.length,
      action: Uint8Array.from(raw.events.action),
      backward: Uint8Array.from(raw.events.backward),
      addr: wideColumn(raw.events.addr),
      size: wideColumn(raw.events.size),
      block: wideColumn(raw.events.block),
      stream: wideColumn(raw.events.stream),
      time: summed(raw.events.time),
      stack: Int32Array.from(raw.events.stack),
      origin: Int32Array.from(raw.events.origin),
    };
    const code = new Map(model.actions.map((name, i) => [name, i]));
    const device = {
      index: raw.index,
      name: raw.name,
      events,
      code,
      totals: {
        allocated: summed(raw.totals.allocated),
        active: summed(raw.totals.active),
        reserved: summed(raw.totals.reserved),
      },
      peak: raw.peak,
      losses: raw.losses,
      final: { segments: raw.segments, blocks: raw.blocks },
    };
    device.allocs = followAllocations(device, raw);
    takeCategories(model, device.allocs, raw.owners);
    device.pieces = followSegments(device, raw);
    device.ooms = [];
    for (let e = 0; e < events.count; e++) {
      if (events.action[e] === code.get("oom")) {
        device.ooms.push(e);
      }
    }
    return device;
  }

  /* Each allocation's life in events: live after event e when start <= e < end; start
   * -1 was live before the recording, end == count outlives it.  Also which allocation
   * each event is about.  Stays whole on contradictory files: a second alloc at a live
   * address ends the first, a free of nothing is taken for one from before. */
  function followAllocations(device, raw) {
    const { events, code } = device;
    const ALLOC = code.get("alloc");
    const REQUESTED = code.get("free_requested");
    const COMPLETED = code.get("free_completed");
    const n = events.count;
    const rows = [];
    const live = new Map();
    const last = new Map();
    const eventRow = new Array(n).fill(null);
    const open = (start, addr, bytes, size, stack, stream) => {
      const row = { start, requestedAt: n, end: n, addr, bytes, size, stack, stream };
      rows.push(row);
      return row;
    };
    for (let e = 0; e < n; e++) {
      const action = events.action[e];
      const addr = events.addr[e];
      if (action === ALLOC) {
        const old = live.get(addr);
        if (old !== undefined) {
          old.end = e;
          old.requestedAt = Math.min(old.requestedAt, e);
        }
        const row = open(e, addr, events.block[e], events.size[e], events.stack[e],
                         events.stream[e]);
        live.set(addr, row);
        last.set(addr, row);
        eventRow[e] = row;
      }
      else if (action === REQUESTED || action === COMPLETED) {
        let row = live.get(addr);
        if (row === undefined && !last.has(addr)) {
          row = open(-1, addr, events.block[e], events.size[e], events.origin[e],
                     events.stream[e]);
          live.set(addr, row);
          last.set(addr, row);
        }
        if (row !== undefined) {
          row.requestedAt = Math.min(row.requestedAt, e);
          eventRow[e] = row;
          if (action === COMPLETED) {
            row.end = e;
            live.delete(addr);
          }
        }
      }
    }
    const blocks = raw.blocks;
    const blockStream = new Map();
    for (let s = 0; s < raw.segments.addr.length; s++) {
      for (let k = 0; k < raw.segments.count[s]; k++) {
        blockStream.set(raw.segments.first[s] + k, wide(raw.segments.stream[s]));
      }
    }
    for (let b = 0; b < blocks.addr.length; b++) {
      const addr = wide(blocks.addr[b]);
      if (blocks.state[b] !== BLOCK_INACTIVE && !last.has(addr)) {
        const row = open(-1, addr, wide(blocks.size[b]), wide(blocks.requested[b]),
                         blocks.stack[b], blockStream.get(b) ?? 0);
        last.set(addr, row);
      }
    }
    return allocationColumns(rows, eventRow);
  }

  function allocationColumns(rows, eventRow) {
    rows.sort((a, b) => a.start - b.start || (a.addr < b.addr ? -1 : 1));
    const count = rows.length;
    const allocs = {
      count,
      start: new Int32Array(count),
      requestedAt: new Int32Array(count),
      end: new Int32Array(count),
      addr: new Array(count),
      bytes: new Float64Array(count),
      exactBytes: new Array(count),
      size: new Array(count),
      stack: new Int32Array(count),
      stream: new Array(count),
      ordinal: new Int32Array(count),
      category: new Int8Array(count).fill(-1),
      name: new Int32Array(count),
      ofEvent: new Int32Array(eventRow.length).fill(-1),
    };
    const seen = new Map();
    rows.forEach((row, i) => {
      row.id = i;
      allocs.start[i] = row.start;
      allocs.requestedAt[i] = row.requestedAt;
      allocs.end[i] = row.end;
      allocs.addr[i] = row.addr;
      allocs.bytes[i] = Number(row.bytes);
      allocs.exactBytes[i] = row.bytes;
      allocs.size[i] = row.size;
      allocs.stack[i] = row.stack;
      allocs.stream[i] = row.stream;
      const ordinal = seen.get(row.addr) ?? 0;
      allocs.ordinal[i] = ordinal;
      seen.set(row.addr, ordinal + 1);
    });
    eventRow.forEach((row, e) => {
      if (row !== null) {
        allocs.ofEvent[e] = row.id;
      }
    });
    return allocs;
  }

  function allocationName(allocs, id) {
    return `b${hex(allocs.addr[id])}_${allocs.ordinal[id]}`;
  }

  /* ---- categories: as the core found them ---- */

  function takeCategories(model, allocs, owners) {
    const before = new Map(owners.before_addr.map((addr, i) => [wide(addr), i]));
    const unknown = model.categories.indexOf("unknown");
    for (let id = 0; id < allocs.count; id++) {
      const start = allocs.start[id];
      const i = start >= 0 ? start : before.get(allocs.addr[id]);
      const [category, name] = start >= 0 ? [owners.category, owners.name]
        : [owners.before_category, owners.before_name];
      allocs.category[id] = category[i] ?? unknown;
      allocs.name[id] = name[i] ?? 0;
    }
  }

  /* Device memory as pieces with a life like an allocation's.  Found backwards from the
   * memory at the end, because an unmap may cut what several maps made. */
  function followSegments(device, raw) {
    const { events, code } = device;
    const ALLOC = code.get("segment_alloc");
    const FREE = code.get("segment_free");
    const MAP = code.get("segment_map");
    const UNMAP = code.get("segment_unmap");
    const n = events.count;
    const done = [];
    const plain = new Map();
    let mapped = [];
    for (let s = 0; s < raw.segments.addr.length; s++) {
      const addr = wide(raw.segments.addr[s]);
      const bytes = Number(raw.segments.total[s]);
      const piece = { addr, bytes, start: -1, end: n, stack: raw.segments.stack[s],
                      stream: wide(raw.segments.stream[s]),
                      expandable: raw.segments.expandable[s] === 1 };
      if (piece.expandable) {
        mapped.push(piece);
      }
      else {
        plain.set(addr, piece);
      }
    }
    for (let e = n - 1; e >= 0; e--) {
      const action = events.action[e];
      const addr = events.addr[e];
      const bytes = Number(events.size[e]);
      if (action === ALLOC && plain.has(addr)) {
        const piece = plain.get(addr);
        piece.start = e;
        piece.stack = events.stack[e];
        done.push(piece);
        plain.delete(addr);
      }
      else if (action === FREE || action === UNMAP) {
        const piece = { addr, bytes, start: -1, end: e, stack: events.stack[e],
                        stream: events.stream[e], expandable: action === UNMAP };
        if (action === UNMAP) {
          mapped.push(piece);
        }
        else {
          plain.set(addr, piece);
        }
      }
      else if (action === MAP) {
        mapped = cutMapped(mapped, addr, bytes, e, events.stack[e], done);
      }
    }
    return done.concat([...plain.values()], mapped)
      .sort((a, b) => (a.addr < b.addr ? -1 : a.addr > b.addr ? 1 : a.start - b.start));
  }

  function cutMapped(mapped, addr, bytes, event, stack, done) {
    const stop = plus(addr, bytes);
    const rest = [];
    for (const piece of mapped) {
      const pieceStop = plus(piece.addr, piece.bytes);
      const from = piece.addr > addr ? piece.addr : addr;
      const to = pieceStop < stop ? pieceStop : stop;
      if (!(from < to)) {
        rest.push(piece);
        continue;
      }
      done.push({ ...piece, addr: from, bytes: distance(from, to), start: event, stack });
      if (piece.addr < from) {
        rest.push({ ...piece, bytes: distance(piece.addr, from) });
      }
      if (to < pieceStop) {
        rest.push({ ...piece, addr: to, bytes: distance(to, pieceStop) });
      }
    }
    return rest;
  }

  /* ---- the state after an event ---- */

  function liveAt(allocs, event) {
    const out = [];
    for (let i = 0; i < allocs.count && allocs.start[i] <= event; i++) {
      if (allocs.end[i] > event) {
        out.push(i);
      }
    }
    return out;
  }

  /* Segments by address with the allocations inside; what they leave is free.  Mapped
   * pieces that touch are one segment, as torch's own snapshot shows them. */
  function stateAt(device, event) {
    const { allocs, pieces } = device;
    const ids = liveAt(allocs, event);
    ids.sort((a, b) => (allocs.addr[a] < allocs.addr[b] ? -1 : 1));
    const segments = [];
    for (const piece of pieces) {
      if (piece.start > event || piece.end <= event) {
        continue;
      }
      const last = segments[segments.length - 1];
      if (last !== undefined && piece.expandable && last.expandable
          && last.stream === piece.stream
          && plus(last.addr, last.bytes) === piece.addr) {
        last.bytes += piece.bytes;
        continue;
      }
      segments.push({ addr: piece.addr, bytes: piece.bytes, stream: piece.stream,
                      stack: piece.stack, start: piece.start, used: 0,
                      expandable: piece.expandable, blocks: [], offsets: [] });
    }
    const strays = [];
    let s = 0;
    for (const id of ids) {
      const addr = allocs.addr[id];
      while (s < segments.length
             && !(addr < plus(segments[s].addr, segments[s].bytes))) {
        s += 1;
      }
      const segment = segments[s];
      if (segment === undefined || addr < segment.addr) {
        strays.push(id);
        continue;
      }
      segment.blocks.push(id);
      segment.offsets.push(distance(segment.addr, addr));
      segment.used += allocs.bytes[id];
    }
    if (strays.length > 0) {
      segments.push(withoutSegment(allocs, strays));
    }
    return segments;
  }

  /* Blocks of an allocator without segments (the CPU's), end to end. */
  function withoutSegment(allocs, ids) {
    const segment = { addr: null, bytes: 0, stream: 0, stack: 0, start: -1, used: 0,
                      expandable: false, blocks: ids, offsets: [] };
    for (const id of ids) {
      segment.offsets.push(segment.bytes);
      segment.bytes += allocs.bytes[id];
    }
    segment.used = segment.bytes;
    return segment;
  }

  /* ---- stacks ---- */

  function frameText(model, frame) {
    return { name: model.strings[model.frames.name[frame]],
             file: model.strings[model.frames.file[frame]],
             line: model.frames.line[frame] };
  }

  /* Innermost first.  Parents have smaller ids, so this ends on any file. */
  function stackFrames(model, stack) {
    const out = [];
    for (let id = stack; id > 0;) {
      out.push(model.stacks.frame[id]);
      const parent = model.stacks.parent[id];
      id = parent < id ? parent : 0;
    }
    return out;
  }

  function shortFile(file) {
    return file.slice(Math.max(file.lastIndexOf("/"), file.lastIndexOf("\\")) + 1);
  }

  /* The line of the user's code that stands for stacks, by its number. */
  function lineParts(model, index) {
    return { name: model.lines.name[index], file: model.lines.file[index],
             line: model.lines.line[index] };
  }

  function lineOfStack(model, stack) {
    return model.lines.ofStack[stack];
  }

  function isNoLine(model, index) {
    return index === model.lines.ofStack[0];
  }

  function placeText({ name, file, line }) {
    const at = line > 0 ? `${shortFile(file)}:${line}` : shortFile(file);
    return at === "" ? name : `${at} ${name}`;
  }

  /* The name that an event's address has in lists: of its allocation or segment. */
  function eventName(device, event) {
    const { events, allocs, code } = device;
    const id = allocs.ofEvent[event];
    if (id >= 0) {
      return allocationName(allocs, id);
    }
    const action = events.action[event];
    if (action === code.get("oom")) {
      return "";
    }
    return `s${hex(events.addr[event])}`;
  }

  return { build, formatBytes, formatCount, formatTime, printable, hex, plus, liveAt,
           stateAt, allocationName, eventName, frameText, stackFrames, shortFile,
           lineParts, lineOfStack, isNoLine, placeText };
})();
