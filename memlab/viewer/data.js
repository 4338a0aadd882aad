/* The recording, as the page reads it: the head's tables, and the blobs as they are
 * asked for.
 *
 * Owns what the blobs' columns mean (docs/FORMAT.md), which of them are kept, and
 * what can be asked of them: the allocations live after an event, bytes x time
 * between two events, the event at a time.  Knows no document and draws nothing;
 * runs under node too. */
"use strict";

const memlabData = (() => {
  const FORMAT = 5;
  const TILE_COLUMNS = 4096;
  const BLOB_INTEGRALS = 64;
  const SCHEMES = ["category", "module", "line", "size"];
  const KEPT_CHUNKS = 48;
  const KEPT_TILES = 32;
  const KEPT_BANDS = 256;

  const { printable } = memlabNames;
  const { reader, unsigned, deltas, relative, number, ended } = memlabBlobs;

  /* ---- the head ---- */

  function integers(table) {
    return Object.fromEntries(
      Object.entries(table).map(([name, column]) => [name, Int32Array.from(column)]));
  }

  function notesOf(head, strings) {
    const { kind, time, end, name, device, rank, value } = head.notes;
    return kind.map((text, i) => ({
      kind: text, time: time[i], end: end[i], name: strings[name[i]] ?? "",
      device: device[i], rank: rank[i], value: value[i],
    }));
  }

  function deviceOf(head) {
    return { ...head, chunkCount: head.chunks.blobs.length,
             module_rows: { ...head.module_rows,
                            path: head.module_rows.path.map(printable) },
             group_of_kind: integers(head.group_of_kind) };
  }

  /* Index of the last of the ascending BOUNDS that is at most VALUE; -1: none. */
  function lastAtMost(bounds, value) {
    let lo = 0;
    let hi = bounds.length;
    while (lo < hi) {
      const mid = (lo + hi) >>> 1;
      if (bounds[mid] <= value) {
        lo = mid + 1;
      }
      else {
        hi = mid;
      }
    }
    return lo - 1;
  }

  /* ---- blobs ---- */

  function emptyRows(count) {
    const ints = () => new Int32Array(count);
    return { count, id: ints(), start: ints(), requested: ints(), end: ints(),
             hi: new Uint32Array(count), lo: new Uint32Array(count),
             bytes: new Float64Array(count), size: new Float64Array(count),
             kind: ints(), ordinal: ints() };
  }

  /* Where a row is at the address of one BACK rows before it, its address; else the next
   * of those that the blob has. */
  function readAddresses(input, rows, from, to, back) {
    const { hi, lo, ordinal } = rows;
    let written = 0;
    for (let r = from; r < to; r++) {
      written += back[r - from] === 0 ? 1 : 0;
    }
    const own = { hi: deltas(input, new Uint32Array(written)),
                  lo: unsigned(input, new Uint32Array(written)),
                  ordinal: unsigned(input, new Int32Array(written)) };
    for (let r = from, next = 0; r < to; r++) {
      const at = r - back[r - from];
      if (at === r) {
        hi[r] = own.hi[next];
        lo[r] = own.lo[next];
        ordinal[r] = own.ordinal[next];
        next += 1;
      }
      else {
        hi[r] = hi[at];
        lo[r] = lo[at];
        ordinal[r] = ordinal[at] + 1;
      }
    }
  }

  /* The rows FROM to TO of ROWS; EVENTS is the end of what never ends.  FIRST: the number
   * of the first, where they follow each other; null: each has its own. */
  function readRows(input, rows, from, to, events, first = null) {
    const part = (column) => column.subarray(from, to);
    if (first === null) {
      deltas(input, part(rows.id));
    }
    else {
      for (let r = from; r < to; r++) {
        rows.id[r] = first + r - from;
      }
    }
    deltas(input, part(rows.start));
    unsigned(input, part(rows.requested));
    unsigned(input, part(rows.end));
    unsigned(input, part(rows.bytes));
    relative(input, part(rows.size), part(rows.bytes));
    unsigned(input, part(rows.kind));
    const back = new Int32Array(to - from);
    if (first !== null) {
      unsigned(input, back);
    }
    readAddresses(input, rows, from, to, back);
    const { start, requested, end } = rows;
    for (let r = from; r < to; r++) {
      start[r] -= 1;
      requested[r] = requested[r] === 0 ? events : start[r] + requested[r] - 1;
      end[r] = end[r] === 0 ? events : requested[r] + end[r] - 1;
    }
  }

  /* The row of each of COUNT events from FIRST on, -1 for none: the last one that starts,
   * is to be freed or ends there, but where the blob names another. */
  function readEventRows(input, rows, first, count) {
    const row = new Int32Array(count).fill(-1);
    const { start, requested, end } = rows;
    const change = (event, r) => {
      if (event >= first && event < first + count) {
        row[event - first] = r;
      }
    };
    for (let r = 0; r < rows.count; r++) {
      change(start[r], r);
      change(requested[r], r);
      change(end[r], r);
    }
    const others = number(input);
    const event = deltas(input, new Int32Array(others));
    const other = unsigned(input, new Int32Array(others));
    for (let i = 0; i < others; i++) {
      row[event[i]] = other[i] - 1;
    }
    return row;
  }

  /* BEFORE, and what the rows add between the events START and END, after each of COUNT
   * events from FIRST on. */
  function sumRows(before, rows, start, end, first, count) {
    const sums = new Float64Array(count);
    for (let r = 0; r < rows.count; r++) {
      const [from, to] = [start[r] - first, end[r] - first];
      if (from >= 0) {
        sums[from] += rows.bytes[r];
      }
      if (to >= 0 && to < count) {
        sums[to] -= rows.bytes[r];
      }
    }
    for (let e = 0, sum = before; e < count; e++) {
      sum += sums[e];
      sums[e] = sum;
    }
    return sums;
  }

  function readReserved(input, before, allocated) {
    const changes = number(input) - 1;
    if (changes < 0) {
      return allocated;
    }
    const event = deltas(input, new Int32Array(changes));
    const bytes = deltas(input, new Float64Array(changes), before);
    const reserved = new Float64Array(allocated.length);
    let next = 0;
    let now = before;
    for (let e = 0; e < reserved.length; e++) {
      while (next < changes && event[next] === e) {
        now = bytes[next];
        next += 1;
      }
      reserved[e] = now;
    }
    return reserved;
  }

  /* Addresses, sizes and streams of events: of their rows, where they have one. */
  function eventColumns(streamOfKind, input, rows, row) {
    const count = row.length;
    let bare = 0;
    for (let e = 0; e < count; e++) {
      bare += row[e] < 0 ? 1 : 0;
    }
    const own = { hi: deltas(input, new Uint32Array(bare)),
                  lo: unsigned(input, new Uint32Array(bare)),
                  size: unsigned(input, new Float64Array(bare)),
                  stream: unsigned(input, new Int32Array(bare)) };
    const hi = new Uint32Array(count);
    const lo = new Uint32Array(count);
    const size = new Float64Array(count);
    const stream = new Int32Array(count);
    const { hi: rowHi, lo: rowLo, size: rowSize, kind } = rows;
    for (let e = 0, next = 0; e < count; e++) {
      const r = row[e];
      if (r < 0) {
        hi[e] = own.hi[next];
        lo[e] = own.lo[next];
        size[e] = own.size[next];
        stream[e] = own.stream[next];
        next += 1;
      }
      else {
        hi[e] = rowHi[r];
        lo[e] = rowLo[r];
        size[e] = rowSize[r];
        stream[e] = streamOfKind[kind[r]];
      }
    }
    return { hi, lo, size, stream };
  }

  function readChunk(model, device, index, bytes) {
    const input = reader(bytes);
    const count = number(input);
    const carried = number(input);
    const fresh = number(input);
    const born = number(input);
    const before = { allocated: number(input), active: number(input),
                     reserved: number(input) };
    const first = index * device.chunks.events;
    const rows = { ...emptyRows(carried + fresh), carried };
    readRows(input, rows, 0, carried, device.events);
    readRows(input, rows, carried, carried + fresh, device.events, born);
    const action = unsigned(input, new Uint8Array(count));
    const time = deltas(input, new Float64Array(count));
    const stack = unsigned(input, new Int32Array(count));
    const flags = unsigned(input, new Uint8Array(count));
    const row = readEventRows(input, rows, first, count);
    const { start, requested, end } = rows;
    const allocated = sumRows(before.allocated, rows, start, requested, first, count);
    const active = sumRows(before.active, rows, start, end, first, count);
    const reserved = readReserved(input, before.reserved, allocated);
    const columns = eventColumns(model.kinds.stream, input, rows, row);
    ended(input);
    return { index, first, count, rows, before,
             totals: { allocated, active, reserved }, events: { action, row, time, stack, flags, ...columns } };
  }

  function readLevel(device, level, tile, bytes) {
    const input = reader(bytes);
    const count = number(input);
    const first = tile * TILE_COLUMNS;
    const column = () => new Float64Array(count);
    const time = deltas(input, column());
    const peak = unsigned(input, new Int32Array(count));
    const allocated = deltas(input, column());
    const active = deltas(input, column());
    const reserved = deltas(input, column());
    const most = unsigned(input, column());
    for (let c = 0; c < count; c++) {
      peak[c] += (first + c) * level.span;
      most[c] += reserved[c];
    }
    const groups = {};
    for (const scheme of SCHEMES) {
      groups[scheme] = device.groups[scheme].map(() => deltas(input, column()));
    }
    ended(input);
    return { first, count, span: level.span, time, peak, allocated, active, reserved,
             most, groups };
  }

  function readBands(device, bytes) {
    const input = reader(bytes);
    const rows = emptyRows(number(input));
    readRows(input, rows, 0, rows.count, device.events);
    ended(input);
    return rows;
  }

  function readSegments(device, bytes) {
    const input = reader(bytes);
    const count = number(input);
    const ints = () => new Int32Array(count);
    const start = deltas(input, ints());
    const end = unsigned(input, ints());
    for (let s = 0; s < count; s++) {
      start[s] -= 1;
      end[s] = end[s] === 0 ? device.events : start[s] + end[s] - 1;
    }
    const segments = {
      count, start, end, hi: deltas(input, new Uint32Array(count)),
      lo: unsigned(input, new Uint32Array(count)),
      bytes: unsigned(input, new Float64Array(count)),
      stream: unsigned(input, ints()), stack: unsigned(input, ints()),
      flags: unsigned(input, new Uint8Array(count)),
    };
    ended(input);
    return segments;
  }

  /* For each chunk of one blob of integrals: kind, allocs, byteUs. */
  function readIntegrals(bytes) {
    const input = reader(bytes);
    const chunks = [];
    while (input.at < bytes.length) {
      const count = number(input);
      chunks.push({ kind: deltas(input, new Int32Array(count)),
                    allocs: unsigned(input, new Float64Array(count)),
                    byteUs: unsigned(input, new Float64Array(count)) });
    }
    ended(input);
    return chunks;
  }

  /* ---- what is kept ---- */

  /* The newest LIMIT things that LOAD(key) promised. */
  function shelf(limit, load, told) {
    const items = new Map();
    function item(key) {
      let found = items.get(key);
      if (found === undefined) {
        found = { value: null, promise: load(key) };
        found.promise.then((value) => {
          found.value = value;
          told.loaded();
        }, told.failed);
      }
      items.delete(key);
      items.set(key, found);
      if (items.size > limit) {
        items.delete(items.keys().next().value);
      }
      return found;
    }
    return { get: (key) => item(key).promise, now: (key) => item(key).value,
             peek: (key) => items.get(key)?.value ?? null };
  }

  /* Bytes x microseconds of the chunk's allocations between two instants, each an event
   * with its time; added to SUMS by kind. */
  function addPart(chunk, from, fromUs, to, toUs, sums) {
    const { start, requested, bytes, kind, count } = chunk.rows;
    const { time } = chunk.events;
    for (let r = 0; r < count; r++) {
      if (start[r] < to && requested[r] > from) {
        const begun = start[r] <= from ? fromUs : time[start[r] - chunk.first];
        const over = requested[r] >= to ? toUs : time[requested[r] - chunk.first];
        sums[kind[r]] += bytes[r] * (over - begun);
      }
    }
  }

  /* ---- the model ---- */

  /* What READBLOB(n), a promise of a blob's bytes, and HEAD make together.  Throws an
   * Error with a sentence for people where HEAD is of another format. */
  function open(head, readBlob) {
    if (head === null || typeof head !== "object" || head.format !== FORMAT) {
      throw new Error(`This page reads data of format ${FORMAT} only.`);
    }
    const strings = head.strings.map(printable);
    const listeners = { load: new Set(), fault: new Set() };
    const told = {
      loaded: () => listeners.load.forEach((callback) => callback()),
      failed: (error) => listeners.fault.forEach((callback) => callback(error)),
    };
    const model = {
      ...head,
      strings,
      frames: integers(head.frames),
      stacks: integers(head.stacks),
      lines: integers(head.lines),
      kinds: integers(head.kinds),
      modules: { ...head.modules, path: head.modules.path.map(printable) },
      notes: notesOf(head, strings),
      devices: head.devices.map(deviceOf),
    };
    const key = (...parts) => parts.join(" ");
    const parts = (text) => text.split(" ").map(Number);

    const chunks = shelf(KEPT_CHUNKS, async (text) => {
      const [d, i] = parts(text);
      const device = model.devices[d];
      return readChunk(model, device, i, await readBlob(device.chunks.blobs[i]));
    }, told);
    const tiles = shelf(KEPT_TILES, async (text) => {
      const [d, l, tile] = parts(text);
      const device = model.devices[d];
      const level = device.levels[l];
      return readLevel(device, level, tile, await readBlob(level.blobs[tile]));
    }, told);
    const bands = shelf(KEPT_BANDS, async (text) => {
      const [d, l, tile] = parts(text);
      const device = model.devices[d];
      return readBands(device, await readBlob(device.bands[l].blobs[tile]));
    }, told);
    const others = shelf(KEPT_TILES, async (text) => {
      const [d, n] = parts(text);
      const device = model.devices[d];
      return n < 0 ? readSegments(device, await readBlob(device.segments))
        : readIntegrals(await readBlob(device.integrals[n]));
    }, told);

    model.chunk = (d, i) => chunks.get(key(d, i));
    model.chunkNow = (d, i) => chunks.now(key(d, i));
    model.level = (d, l, tile) => tiles.get(key(d, l, tile));
    model.levelNow = (d, l, tile) => tiles.now(key(d, l, tile));
    model.bands = (d, l, tile) => bands.get(key(d, l, tile));
    model.bandsNow = (d, l, tile) => bands.now(key(d, l, tile));
    /* What is there already, asked for or not. */
    model.levelPeek = (d, l, tile) => tiles.peek(key(d, l, tile));
    model.bandsPeek = (d, l, tile) => bands.peek(key(d, l, tile));
    model.segments = (d) => others.get(key(d, -1));
    /* Both return what takes CALLBACK off again. */
    model.onLoad = (callback) => {
      listeners.load.add(callback);
      return () => listeners.load.delete(callback);
    };
    model.onFault = (callback) => {
      listeners.fault.add(callback);
      return () => listeners.fault.delete(callback);
    };

    model.chunkOf = (d, event) =>
      Math.max(0, Math.floor(event / model.devices[d].chunks.events));

    /* The index of the group of SCHEME that an allocation of KIND and BYTES is in. */
    model.groupOf = (d, scheme, kind, bytes) => {
      const device = model.devices[d];
      return scheme === "size" ? Math.max(0, lastAtMost(device.groups.size, bytes))
        : device.group_of_kind[scheme][kind];
    };

    model.live = async (d, event) => {
      if (model.devices[d].chunkCount === 0) {
        return { chunk: null, rows: new Int32Array(0) };
      }
      const chunk = await model.chunk(d, model.chunkOf(d, event));
      const { start, requested, count } = chunk.rows;
      const rows = new Int32Array(count);
      let n = 0;
      for (let r = 0; r < count; r++) {
        if (start[r] <= event && event < requested[r]) {
          rows[n] = r;
          n += 1;
        }
      }
      return { chunk, rows: rows.slice(0, n) };
    };

    model.liveByKind = async (d, event) => {
      const kinds = model.kinds.stack.length;
      const sums = { bytes: new Float64Array(kinds), blocks: new Int32Array(kinds) };
      const { chunk, rows } = await model.live(d, event);
      for (const r of rows) {
        const kind = chunk.rows.kind[r];
        sums.bytes[kind] += chunk.rows.bytes[r];
        sums.blocks[kind] += 1;
      }
      return sums;
    };

    model.timeOf = async (d, event) => {
      const device = model.devices[d];
      if (event < 0 || device.events === 0) {
        return device.first_us;
      }
      const chunk = await model.chunk(d, model.chunkOf(d, event));
      return chunk.events.time[Math.min(event - chunk.first, chunk.count - 1)];
    };

    /* The last event at or before a time; -1: there is none. */
    model.eventAtTime = async (d, us) => {
      const i = lastAtMost(model.devices[d].chunks.time, us);
      if (i < 0) {
        return -1;
      }
      const chunk = await model.chunk(d, i);
      return chunk.first + lastAtMost(chunk.events.time, us);
    };

    model.integral = async (d, e0, e1) => {
      const device = model.devices[d];
      const sums = new Float64Array(model.kinds.stack.length);
      const [from, to] = [Math.max(0, e0), Math.min(device.events - 1, e1)];
      if (from >= to) {
        return sums;
      }
      const [a, b] = [model.chunkOf(d, from), model.chunkOf(d, to)];
      const first = await model.chunk(d, a);
      const fromUs = first.events.time[from - first.first];
      if (a === b) {
        addPart(first, from, fromUs, to, first.events.time[to - first.first], sums);
        return sums;
      }
      const { time } = device.chunks;
      addPart(first, from, fromUs, first.first + first.count, time[a + 1], sums);
      for (let i = a + 1; i < b; i++) {
        const blob = await others.get(key(d, Math.floor(i / BLOB_INTEGRALS)));
        const part = blob[i % BLOB_INTEGRALS];
        for (let k = 0; k < part.kind.length; k++) {
          sums[part.kind[k]] += part.byteUs[k];
        }
      }
      const last = await model.chunk(d, b);
      addPart(last, last.first, time[b], to, last.events.time[to - last.first], sums);
      return sums;
    };
    return model;
  }

  return { open, lastAtMost, SCHEMES, TILE_COLUMNS };
})();
