/* Page data of a list of events, as docs/FORMAT.md says: an independent model of what
 * the core writes, small and slow.
 *
 * const { head, blobs, lives, totals } = encode({ kinds, events, before }); const model
 * = memlabData.open(head, readerOf(blobs));
 *
 * kinds: [{ line, module, category, stack ... }] indices, default 0; lines, modules
 * and categories are made up.  events: [action, address, bytes, kind, size, time].
 * Memory actions follow the allocator; others change nothing.  before: [address,
 * bytes, kind]. */
"use strict";

const ACTIONS = ["alloc", "free_requested", "free_completed", "segment_alloc",
                 "segment_free", "segment_map", "segment_unmap", "snapshot", "oom",
                 "other"];
const CATEGORIES = ["unknown", "parameter", "activation", "temporary", "gradient"];
const SCHEMES = ["category", "module", "line", "size"];

/* ---- varints, by BigInt ---- */

class Writer {
  constructor() {
    this.bytes = [];
  }

  varint(value) {
    let rest = BigInt(value);
    while (rest >= 128n) {
      this.bytes.push(Number(rest & 127n) | 128);
      rest >>= 7n;
    }
    this.bytes.push(Number(rest));
    return this;
  }

  unsigned(values) {
    values.forEach((value) => this.varint(value));
    return this;
  }

  deltas(values, from = 0) {
    let before = BigInt(from);
    for (const value of values) {
      const step = BigInt(value) - before;
      this.varint(step >= 0n ? 2n * step : -2n * step - 1n);
      before = BigInt(value);
    }
    return this;
  }

  /* VALUES, each as its difference from that of BASES. */
  relative(values, bases) {
    values.forEach((value, i) => this.deltas([value], bases[i]));
    return this;
  }

  done() {
    return Uint8Array.from(this.bytes);
  }
}

/* ---- the allocator, told plainly ---- */

/* The life of each allocation, the totals after each event, the row of each event. */
function follow(events, before) {
  const n = events.length;
  const ordinals = new Map();
  const lives = [];
  const live = new Map();
  const open = (start, addr, bytes, kind, size) => {
    const ordinal = ordinals.get(addr) ?? 0;
    ordinals.set(addr, ordinal + 1);
    const life = { id: lives.length, start, requested: n, end: n, addr: BigInt(addr),
                   bytes, size, kind, ordinal };
    lives.push(life);
    live.set(addr, life);
    return life;
  };
  [...before].sort((a, b) => a[0] - b[0])
    .forEach(([addr, bytes, kind = 0]) => open(-1, addr, bytes, kind, bytes));
  const now = { allocated: 0, active: 0, reserved: 0 };
  for (const life of lives) {
    now.allocated += life.bytes;
    now.active += life.bytes;
  }
  const first = { ...now };
  const totals = [];
  const rows = [];
  events.forEach(([action, addr, bytes, kind = 0, size = bytes], e) => {
    let life = null;
    if (action === "alloc") {
      life = open(e, addr, bytes, kind, size);
      now.allocated += bytes;
      now.active += bytes;
    }
    else if (action === "free_requested") {
      life = live.get(addr);
      if (life.requested === n) {
        life.requested = e;
        now.allocated -= life.bytes;
      }
    }
    else if (action === "free_completed") {
      life = live.get(addr);
      life.end = e;
      now.active -= life.bytes;
      live.delete(addr);
    }
    else if (action === "segment_alloc") {
      now.reserved += bytes;
    }
    else if (action === "segment_free") {
      now.reserved -= bytes;
    }
    totals.push({ ...now });
    rows.push(life);
  });
  return { lives, totals, rows, first };
}

/* ---- groups ---- */

function groupsOf(kinds, lives) {
  const present = (of) => [...new Set(lives.map((life) => of(kinds[life.kind])))]
    .sort((a, b) => a - b);
  const groups = { category: present((kind) => kind.category),
                   module: [...present((kind) => kind.module), -1],
                   line: [...present((kind) => kind.line), -1],
                   size: [0, 512, 2048, 8192] };
  const groupOfKind = {};
  for (const scheme of ["category", "module", "line"]) {
    groupOfKind[scheme] = kinds.map((kind) => {
      const at = groups[scheme].indexOf(kind[scheme]);
      return at >= 0 ? at : groups[scheme].length - 1;
    });
  }
  return { groups, groupOfKind };
}

function groupOf({ groups, groupOfKind }, scheme, life) {
  return scheme === "size" ? groups.size.filter((bound) => bound <= life.bytes).length - 1
    : groupOfKind[scheme][life.kind];
}

/* ---- blobs ---- */

/* APART: each row has its number and its address; else they follow each other, and have
 * the address by an earlier one's place where there is one. */
function writeRows(writer, rows, n, apart = true) {
  const column = (of) => rows.map(of);
  const last = new Map();
  const back = rows.map((row, r) => {
    const before = last.get(row.addr);
    last.set(row.addr, r);
    return apart || before === undefined ? 0 : r - before;
  });
  const written = rows.filter((_, r) => back[r] === 0);
  if (apart) {
    writer.deltas(column((r) => r.id));
  }
  writer.deltas(column((r) => r.start + 1))
    .unsigned(column((r) => (r.requested === n ? 0 : r.requested - r.start + 1)))
    .unsigned(column((r) => (r.end === n ? 0 : r.end - r.requested + 1)))
    .unsigned(column((r) => r.bytes))
    .relative(column((r) => r.size), column((r) => r.bytes))
    .unsigned(column((r) => r.kind));
  if (!apart) {
    writer.unsigned(back);
  }
  return writer.deltas(written.map((r) => r.addr >> 32n))
    .unsigned(written.map((r) => r.addr & 0xffffffffn))
    .unsigned(written.map((r) => r.ordinal));
}

/* [event in the chunk, reserved bytes after it], where they change. */
function reservedChanges(totals, before) {
  return totals.map((row, e) => [e, row.reserved, e > 0 ? totals[e - 1].reserved : before])
    .filter(([, now, last]) => now !== last);
}

function chunkBlob({ events, story, times, index, size }) {
  const from = index * size;
  const to = Math.min(events.length, from + size);
  const carried = story.lives.filter((life) =>
    (life.start < from && life.end >= from)
    || (life.start < 0 && index === 0));
  const fresh = story.lives.filter((life) => life.start >= from && life.start < to);
  const before = from === 0 ? story.first : story.totals[from - 1];
  const born = story.lives.filter((life) => life.start < from).length;
  const writer = new Writer().unsigned([to - from, carried.length, fresh.length, born])
    .unsigned([before.allocated, before.active, before.reserved]);
  writeRows(writer, carried, events.length);
  writeRows(writer, fresh, events.length, false);
  const part = events.slice(from, to);
  const rows = story.rows.slice(from, to);
  writer.unsigned(part.map(([action]) => ACTIONS.indexOf(action)))
    .deltas(times.slice(from, to)).unsigned(part.map(() => 0))
    .unsigned(part.map((_, i) => i % 2));
  const changed = new Map([...carried, ...fresh].flatMap((life) =>
    [life.start, life.requested, life.end].map((event) => [event, life])));
  const place = new Map([...carried, ...fresh].map((life, r) => [life, r + 1]));
  const others = rows.map((life, e) => [e, life]).filter(([e, life]) =>
    (changed.get(from + e) ?? null) !== life);
  writer.varint(others.length).deltas(others.map(([e]) => e))
    .unsigned(others.map(([, life]) => (life === null ? 0 : place.get(life))));
  const changes = reservedChanges(story.totals.slice(from, to), before.reserved);
  writer.varint(changes.length + 1).deltas(changes.map(([event]) => event))
    .deltas(changes.map(([, bytes]) => bytes), before.reserved);
  const bare = part.filter((_, i) => rows[i] === null);
  return writer.deltas(bare.map(([, addr]) => BigInt(addr) >> 32n))
    .unsigned(bare.map(([, addr]) => BigInt(addr) & 0xffffffffn))
    .unsigned(bare.map(([, , bytes]) => bytes)).unsigned(bare.map(() => 0)).done();
}

/* The bytes of each group of SCHEME before the first event and after each: sums[e +
 * 1]. */
function sumsAfter({ events, story, grouped }, scheme) {
  const now = grouped.groups[scheme].map(() => 0);
  const count = (life, sign) => {
    now[groupOf(grouped, scheme, life)] += sign * life.bytes;
  };
  story.lives.filter((life) => life.start < 0).forEach((life) => count(life, 1));
  const sums = [[...now]];
  events.forEach(([action], e) => {
    if (action === "alloc") {
      count(story.rows[e], 1);
    }
    else if (action === "free_requested") {
      count(story.rows[e], -1);
    }
    sums.push([...now]);
  });
  return sums;
}

/* The columns of a level, each { first event, its peak event, sums by scheme }. */
function columnsOf({ events, story, sums, span }) {
  const columns = [];
  for (let from = 0; from < events.length; from += span) {
    const to = Math.min(events.length, from + span);
    let peak = from;
    let most = 0;
    for (let e = from; e < to; e++) {
      if (story.totals[e].allocated > story.totals[peak].allocated) {
        peak = e;
      }
      most = Math.max(most, story.totals[e].reserved);
    }
    columns.push({ from, peak, most, sums: Object.fromEntries(
      SCHEMES.map((scheme) => [scheme, sums[scheme][peak + 1]])) });
  }
  return columns;
}

function levelBlob({ columns, story, times, grouped }) {
  const writer = new Writer().varint(columns.length);
  const total = (name) => columns.map((c) => story.totals[c.peak][name]);
  writer.deltas(columns.map((c) => times[c.from]))
    .unsigned(columns.map((c) => c.peak - c.from))
    .deltas(total("allocated")).deltas(total("active")).deltas(total("reserved"))
    .unsigned(columns.map((c) => c.most - story.totals[c.peak].reserved));
  for (const scheme of SCHEMES) {
    grouped.groups[scheme].forEach((_, g) =>
      writer.deltas(columns.map((c) => c.sums[scheme][g])));
  }
  return writer.done();
}

function integralOf({ story, times, from, to }) {
  const stop = to < times.length ? to : times.length - 1;
  const byKind = new Map();
  for (const life of story.lives) {
    const begun = Math.max(life.start, from);
    const over = Math.min(life.requested, stop);
    const row = byKind.get(life.kind) ?? { allocs: 0, byteUs: 0 };
    row.allocs += Number(life.start >= from && life.start < to);
    if (life.start < to && over > begun) {
      row.byteUs += life.bytes * (times[over] - times[begun]);
    }
    byKind.set(life.kind, row);
  }
  return [...byKind].filter(([, row]) => row.allocs + row.byteUs > 0)
    .sort((a, b) => a[0] - b[0]);
}

/* ---- the whole ---- */

function slices(list, size) {
  const out = [];
  for (let i = 0; i < list.length || i === 0; i += size) {
    out.push(list.slice(i, i + size));
  }
  return out;
}

/* chunk: events of a chunk; spans: of the levels, finest first. */
function encode({ events = [], before = [], kinds = [{}], notes = [], chunk = 65536,
                  spans = [256], segments = [], peak = null, names = {} } = {}) {
  const full = kinds.map((kind) => ({
    stack: 0, line: 0, module: 0, no_module: 0, category: 0, exact: 1, why: 0, phase: 0,
    how: 0, name: 0, stream: 0, inner: 0, rolled: 0, ...kind }));
  const story = follow(events, before);
  const times = events.map((event, e) => event[5] ?? 10 * e);
  const grouped = groupsOf(full, story.lives);
  const blobs = [];
  const add = (bytes) => blobs.push(bytes) - 1;
  const n = events.length;

  const sums = Object.fromEntries(SCHEMES.map(
    (scheme) => [scheme, sumsAfter({ events, story, grouped }, scheme)]));
  const levels = [...spans].reverse().map((span) => {
    const columns = columnsOf({ events, story, sums, span });
    return { span, columns: columns.length, blobs: slices(columns, 4096).map(
      (part) => add(levelBlob({ columns: part, story, times, grouped }))) };
  });
  const bands = [...spans].reverse().map((span, k) => {
    const above = k === 0 ? Infinity : 8 * [...spans].reverse()[k - 1];
    const rows = story.lives.filter(({ start, requested }) =>
      requested - start >= 8 * span && requested - start < above);
    const parts = slices(rows, 8192);
    return { span, blobs: parts.map((part) => add(
      writeRows(new Writer().varint(part.length), part, n).done())),
             first: parts.map((part) => (part.length > 0 ? part[0].start : 0)),
             last: parts.map((part) => Math.max(0, ...part.map((r) => r.requested))) };
  });
  const segmentBlob = add(new Writer().varint(segments.length)
    .deltas(segments.map((s) => s.start + 1))
    .unsigned(segments.map((s) => (s.end === n ? 0 : s.end - s.start + 1)))
    .deltas(segments.map((s) => BigInt(s.addr) >> 32n))
    .unsigned(segments.map((s) => BigInt(s.addr) & 0xffffffffn))
    .unsigned(segments.map((s) => s.bytes)).unsigned(segments.map(() => 0))
    .unsigned(segments.map(() => 0)).unsigned(segments.map((s) => s.flags ?? 0)).done());
  const starts = [];
  for (let from = 0; from < n; from += chunk) {
    starts.push(from);
  }
  const integrals = n === 0 ? [] : slices(starts, 64).map((part) => {
    const writer = new Writer();
    for (const from of part) {
      const rows = integralOf({ story, times, from, to: Math.min(n, from + chunk) });
      writer.varint(rows.length).deltas(rows.map(([kind]) => kind))
        .unsigned(rows.map(([, row]) => row.allocs))
        .unsigned(rows.map(([, row]) => row.byteUs));
    }
    return add(writer.done());
  });
  const chunks = starts.map((_, index) => add(
    chunkBlob({ events, story, times, index, size: chunk })));
  const highest = story.totals.reduce(
    (best, row, e) => (row.allocated > (story.totals[best]?.allocated ?? -1) ? e : best),
    -1);
  const table = (rows, names_) => Object.fromEntries(
    names_.map((name) => [name, rows.map((row) => row[name])]));
  const strings = names.strings
    ?? ["", "net", "net.weight", "/home/u/net.py", "forward", "step"];
  const head = {
    format: 5, source: "cuda", base_us: "1700000000000000", strings, actions: ACTIONS,
    categories: CATEGORIES, phases: ["none", "forward", "backward", "optimizer"],
    hows: ["exact", "near"], no_lines: ["", "no stack"], no_modules: ["", "no module"],
    whys: [""],
    frames: names.frames ?? { name: [0, 4], file: [0, 3], line: [0, 7], qualname: [0, 4],
                              own: [0, 1] },
    stacks: names.stacks ?? { parent: [0, 0], frame: [0, 1], module: [0, 1] },
    lines: names.lines ?? { file: [3, 3, 3, 3], function: [4, 4, 4, 4],
                            line: [7, 8, 9, 10], until: [7, 8, 9, 10],
                            no_line: [0, 0, 0, 0] },
    kinds: table(full, Object.keys(full[0])),
    modules: names.modules ?? { path: [""], parent: [0], modules: [0] },
    streams: [0],
    notes: table(notes.map((note) => ({ time: 0, end: null, name: 0, device: -1, rank: -1,
                                        value: 0, ...note })),
                 ["kind", "time", "end", "name", "device", "rank", "value"]),
    ranks: [],
    devices: [{
      index: 0, name: "GPU", events: n, allocs: story.lives.length,
      first_us: times[0] ?? 0, last_us: times[n - 1] ?? 0,
      ooms: events.flatMap(([action], e) => (action === "oom" ? [e] : [])),
      losses: { dropped_events: 0, overwritten_events: 0, lost_stacks: 0, lost_names: 0 },
      gpu: null, gpu_reason: "", settings: [],
      peak: peak ?? { event: highest, ...(story.totals[highest] ?? story.first),
                      highest: { reserved: Math.max(
                        0, ...story.totals.map((row) => row.reserved)) } },
      module_rows: names.moduleRows ?? {
        path: grouped.groups.module.map((id) => `net.${id}`),
        modules: grouped.groups.module.map(() => 1),
        no_module: grouped.groups.module.map(() => 0),
        share: grouped.groups.module.map(() => "all") },
      groups: grouped.groups, group_of_kind: grouped.groupOfKind, levels, bands,
      segments: segmentBlob, integrals,
      chunks: { events: chunk, blobs: chunks,
                time: starts.map((from) => times[from]),
                peak: starts.map((from) => Math.max(
                  ...story.totals.slice(from, from + chunk).map((r) => r.allocated))) },
    }],
  };
  return { head, blobs, story, times, grouped, sums };
}

/* A readBlob of BLOBS; DELAY, where given, is awaited before each answer. */
function readerOf(blobs, delay = null) {
  return async (n) => {
    await delay;
    return blobs[n];
  };
}

/* Random numbers of a seed: random(n) is an integer from 0 to n - 1. */
function dice(seed) {
  let state = seed >>> 0;
  return (n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * n);
  };
}

/* A random recording: blocks come and go, some wait for another stream. */
function randomRecording(seed, count) {
  const random = dice(seed);
  const kinds = Array.from({ length: 12 }, (_, k) => ({
    category: random(CATEGORIES.length), module: random(4), line: random(4), stack: k % 2,
  }));
  const before = Array.from({ length: random(5) }, (_, i) => [
    0x10000 * (i + 1), 512 * (1 + random(40)), random(12)]);
  const live = before.map(([addr]) => addr);
  const waiting = [];
  const free = [];
  const rooms = new Map(before.map(([at, bytes]) => [at, bytes]));
  const events = [];
  let addr = 2 ** 44;
  let time = 0;
  let held = 0;
  while (events.length < count) {
    time += random(4);
    const dice20 = random(20);
    if (waiting.length > 0 && dice20 < 6) {
      const [at] = waiting.splice(random(waiting.length), 1);
      free.push(at);
      events.push(["free_completed", at, 0, 0, 0, time]);
    }
    else if (live.length > 0 && dice20 < 10) {
      const [at] = live.splice(random(3) === 0 ? random(live.length)
        : live.length - 1, 1);
      waiting.push(at);
      events.push(["free_requested", at, 0, 0, 0, time]);
    }
    else if (dice20 === 10) {
      held += 1;
      events.push(["segment_alloc", addr, 1 << 20, 0, 0, time]);
    }
    else if (dice20 === 11 && held > 0) {
      held -= 1;
      events.push(["segment_free", addr, 1 << 20, 0, 0, time]);
    }
    else {
      const bytes = 512 * (1 + random(random(8) === 0 ? 200 : 8));
      const again = free.findIndex((at) => rooms.get(at) >= bytes);
      const [at] = again >= 0 ? free.splice(again, 1) : [addr];
      if (again < 0) {
        rooms.set(addr, bytes);
        addr += bytes;
      }
      events.push(["alloc", at, bytes, random(12), bytes - random(512), time]);
      live.push(at);
    }
  }
  return { events, before, kinds };
}

module.exports = { encode, readerOf, dice, randomRecording, groupOf, Writer, SCHEMES,
                   ACTIONS };
