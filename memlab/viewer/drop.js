/* The empty page: a recording's file, dropped or chosen, becomes a head and blobs by
 * the core itself, as WebAssembly, and is shown.
 *
 * Owns the file on its way into the core, the errors on its way out, and the panel that
 * asks for one.  Nothing leaves the page.  read() runs under node too. */
"use strict";

const memlabDrop = (() => {
  const GZIP = [0x1f, 0x8b];
  /* The core's parts that are no blobs. */
  const HEAD = -1;
  const VERDICTS = -2;
  /* Snapshots pack to between a tenth and a fiftieth.  What unpacks to far more than that
   * was made to fill the memory. */
  const MOST_RATIO = 200;
  const MOST_SMALL = 64 * 2 ** 20;
  /* WebAssembly's addresses have 32 bits. */
  const MOST_BYTES = 2 ** 32 - 2 ** 20;
  const NO_MEMORY = "out of memory: a page has 4 GiB at most; memlab view --serve FILE "
    + "has all of the machine's";
  const REMEDY = "this page reads .mlab files, and what "
    + "torch.cuda.memory._dump_snapshot and memlab.dump_snapshot write, plain or packed "
    + "by gzip";

  /* Says itself what is wrong; others are of the browser. */
  class Refusal extends Error {}

  /* ---- the file, into the core ---- */

  async function* chunksOf(stream) {
    const reader = stream.getReader();
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      yield next.value;
    }
  }

  async function isPacked(file) {
    const start = new Uint8Array(await file.slice(0, GZIP.length).arrayBuffer());
    return GZIP.every((byte, i) => start[i] === byte);
  }

  /* Copies FILE, unpacked, into the memory of CORE; the number of its bytes. */
  async function copyIn(core, file) {
    const packed = await isPacked(file);
    const most = packed ? Math.max(file.size * MOST_RATIO, MOST_SMALL) : Infinity;
    const stream = packed
      ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream();
    let room = 0;
    let length = 0;
    let at = 0;
    for await (const chunk of chunksOf(stream)) {
      const needed = length + chunk.length;
      if (needed > most) {
        throw new Refusal(`${file.size} bytes unpack to more than ${most}, which no `
          + "snapshot does; if you trust the file, unpack it with gunzip first");
      }
      if (needed > room) {
        room = Math.max(needed, Math.min(packed ? 1.5 * needed : file.size, MOST_BYTES));
        at = room > MOST_BYTES ? 0 : core.file(room) >>> 0;
        if (at === 0) {
          throw new Refusal(NO_MEMORY);
        }
      }
      new Uint8Array(core.memory.buffer, at + length, chunk.length).set(chunk);
      length = needed;
    }
    return length;
  }

  /* ---- what the core made of it ---- */

  function bytesOf(core, part) {
    return new Uint8Array(core.memory.buffer, core.part(part) >>> 0,
                          core.bytes(part) >>> 0);
  }

  function textOf(core) {
    const memory = new Uint8Array(core.memory.buffer);
    const at = core.error() >>> 0;
    const text = new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
    return text === "out of memory" ? NO_MEMORY : `${text}; ${REMEDY}`;
  }

  function open(core, length) {
    let result = 0;
    try {
      result = core.open(length);
    }
    catch (error) {
      throw new Error(`the core stopped (${error.message}); please report this file`);
    }
    if (result !== 0) {
      throw new Error(textOf(core));
    }
  }

  /* The data of FILE, a Blob, by a new instance of MODULE: { head, text, count,
   * readBlob, verdicts }, as of a page that holds them.  Rejects with an Error whose message is for
   * people. */
  async function read(module, file) {
    const core = (await WebAssembly.instantiate(module, {})).exports;
    let length = 0;
    try {
      length = await copyIn(core, file);
    }
    catch (error) {
      throw error instanceof Refusal
        ? error : new Error(`the file is damaged or incomplete (${error.message})`);
    }
    if (length === 0) {
      throw new Error(`the file is empty; ${REMEDY}`);
    }
    open(core, length);
    const decoder = new TextDecoder();
    const text = decoder.decode(bytesOf(core, HEAD));
    const verdicts = JSON.parse(decoder.decode(bytesOf(core, VERDICTS)));
    return { head: JSON.parse(text), text, verdicts, count: core.count(),
             readBlob: async (n) => bytesOf(core, n) };
  }

  /* ---- the panel ---- */

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  function makePanel() {
    const input = make("input", { type: "file", id: "drop-file" });
    const status = make("p", { id: "drop-status", role: "status" });
    const panel = make(
      "section", { id: "drop", "aria-labelledby": "drop-title" },
      make("h2", { id: "drop-title" }, "Open a recording"),
      make("p", { id: "drop-about" }, "Drag a file onto this page, or choose one: a "
        + ".mlab file, or a snapshot of torch.cuda.memory._dump_snapshot() or memlab.dump_snapshot(), "
        + "plain or packed by gzip. It is read here, in your browser; nothing is sent "
        + "anywhere."),
      make("label", { for: "drop-file" }, "File"), input, status);
    return { panel, input, status };
  }

  /* The page says what it does before it is busy doing it. */
  function painted() {
    return new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  }

  function compile() {
    const bytes = Uint8Array.from(
      atob(document.getElementById("core").textContent), (c) => c.charCodeAt(0));
    return WebAssembly.compile(bytes);
  }

  function start() {
    let module = null;
    const { panel, input, status } = makePanel();
    let turn = 0;

    async function show(file) {
      turn += 1;
      const mine = turn;
      const { dataset } = panel;
      status.textContent = `Reading ${file.name} …`;
      dataset.state = "reading";
      await painted();
      try {
        module ??= compile();
        const { head, verdicts, readBlob } = await read(await module, file);
        if (mine !== turn) {
          return;
        }
        await memlabViewer.start({ title: file.name, notes: [], verdicts }, head, readBlob);
        status.textContent = `Shown: ${file.name}`;
        dataset.state = "shown";
        dataset.shown = "1";
        input.blur(); /* the viewer's keys are for the page */
      }
      catch (error) {
        if (mine === turn) {
          status.textContent = `${file.name}: ${error.message}`;
          dataset.state = "failed";
        }
      }
    }

    function take(files) {
      if (files.length === 1) {
        show(files[0]);
      }
      else if (files.length > 1) {
        status.textContent = `${files.length} files at once: memlab merge makes one of `
          + "the files of several ranks; drop that one";
        panel.dataset.state = "failed";
      }
    }

    const { dataset } = document.documentElement;
    dataset.theme ??= matchMedia("(prefers-color-scheme: dark)").matches
      ? "dark" : "light";
    document.querySelector("header").after(panel);
    input.addEventListener("change", () => take(input.files));
    for (const type of ["dragenter", "dragover"]) {
      document.addEventListener(type, (event) => {
        event.preventDefault();
        panel.dataset.over = "1";
      });
    }
    document.addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) {
        delete panel.dataset.over;
      }
    });
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      delete panel.dataset.over;
      take(event.dataTransfer.files);
    });
    input.focus();
  }

  return { read, start };
})();

if (typeof document !== "undefined") {
  /* The core's element is the last. */
  document.addEventListener("DOMContentLoaded", memlabDrop.start);
}
