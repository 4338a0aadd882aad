/* The address of the page: its state as short text, and the entries of the history.
 *
 * Owns which changes Back undoes: a view, a device, a zoom, a range.  Any text gives a
 * state, none an error; format and parse run under node too. */
"use strict";

const memlabAddress = (() => {
  const WRITE_MS = 250;
  /* Of a range's length: what an address says of where it begins and ends. */
  const PRECISION = 1e-4;

  const VIEWS = ["timeline", "breakdown", "flame", "segments", "events", "growth"];

  /* event null: the peak.  other -1: none.  x1 0: the whole recording. */
  const DEFAULT_STATE = Object.freeze({
    device: 0, view: "timeline", x0: 0, x1: 0, y0: 0, y1: 0, event: null, other: -1,
    brush: null, color: "", by: "", search: "", pinned: null, axis: "events",
    theme: "auto", drawn: 0, weight: "", fold: "", zoom: "", sort: "", order: "",
    action: "", pairs: true, table: false, memory: "", scale: "",
  });
  /* What Back undoes at once, and what it undoes once a movement has ended. */
  const PLACES = ["view", "device", "zoom", "brush", "memory"];
  const RANGES = ["x0", "x1", "y0", "y1"];

  /* ---- as text ---- */

  function isEvent(value) {
    return Number.isSafeInteger(value) && value >= -1;
  }

  function numbersOf(text) {
    const numbers = text.split("~").map((part) => (part === "" ? NaN : Number(part)));
    return numbers.length === 2 && numbers.every(Number.isFinite) ? numbers : null;
  }

  function eventsOf(text) {
    const pair = numbersOf(text);
    return pair !== null && pair.every(isEvent) ? pair : null;
  }

  /* A range in as few digits as tell it from its neighbours. */
  function rangeText(from, to) {
    const step = 10 ** Math.floor(Math.log10((to - from) * PRECISION));
    const short = (value) => String(Number((Math.round(value / step) * step)
      .toPrecision(12)));
    return `${short(from)}~${short(to)}`;
  }

  /* Keys of the state that an address has together. */
  const TOGETHER = {
    x: { keys: ["x0", "x1"], text: ({ x0, x1 }) => (x1 > x0 ? rangeText(x0, x1) : ""),
         state: (pair) => ({ x0: pair[0], x1: pair[1] }), read: numbersOf },
    y: { keys: ["y0", "y1"], text: ({ y0, y1 }) => (y1 > y0 ? rangeText(y0, y1) : ""),
         state: (pair) => ({ y0: pair[0], y1: pair[1] }), read: numbersOf },
    brush: { keys: ["brush"], text: ({ brush }) => (brush === null ? "" : brush.join("~")),
             state: (brush) => ({ brush }), read: eventsOf },
    pinned: { keys: ["pinned"],
              text: ({ pinned }) => (pinned === null ? "" : `${pinned.chunk}~${pinned.id}`),
              state: ([chunk, id]) => ({ pinned: { chunk, id } }), read: eventsOf },
  };
  const ALONE = Object.keys(DEFAULT_STATE).filter((key) => key !== "view"
    && !Object.values(TOGETHER).some(({ keys }) => keys.includes(key)));

  /* TEXT as a value of KEY; undefined where it is none. */
  function valueOf(key, text) {
    if (key === "event" || typeof DEFAULT_STATE[key] === "number") {
      const number = text === "" ? NaN : Number(text);
      const whole = ["event", "other"].includes(key);
      return Number.isFinite(number) && (!whole || isEvent(number)) ? number : undefined;
    }
    return typeof DEFAULT_STATE[key] === "boolean" ? { 0: false, 1: true }[text] : text;
  }

  function decoded(text) {
    try {
      return decodeURIComponent(text.replace(/\+/g, " "));
    }
    catch {
      return null;
    }
  }

  /* What of the state PART of an address says. */
  function partOf(part) {
    const at = part.indexOf("=");
    if (at < 0) {
      return VIEWS.includes(part) ? { view: part } : {};
    }
    const key = part.slice(0, at);
    const text = decoded(part.slice(at + 1));
    if (text === null) {
      return {};
    }
    if (Object.hasOwn(TOGETHER, key)) {
      const read = TOGETHER[key].read(text);
      return read === null ? {} : TOGETHER[key].state(read);
    }
    const value = ALONE.includes(key) ? valueOf(key, text) : undefined;
    return value === undefined ? {} : { [key]: value };
  }

  /* Takes any text; a key that is unknown or of another type keeps its default. */
  function parse(hash) {
    const parts = hash.replace(/^#/, "").split("&").map(partOf);
    return Object.assign({ ...DEFAULT_STATE }, ...parts);
  }

  function textOf(value) {
    return typeof value === "boolean" ? String(Number(value))
      : encodeURIComponent(value).replace(/%20/g, "+").replace(/%3A/g, ":")
        .replace(/%2F/g, "/").replace(/%2C/g, ",");
  }

  /* "#flame&event=1120": the view, and what is not as at first. */
  function format(state) {
    const parts = state.view === DEFAULT_STATE.view ? [] : [state.view];
    for (const [key, { text }] of Object.entries(TOGETHER)) {
      const said = text(state);
      if (said !== "") {
        parts.push(`${key}=${said}`);
      }
    }
    for (const key of ALONE) {
      if (state[key] !== DEFAULT_STATE[key]) {
        parts.push(`${key}=${textOf(state[key])}`);
      }
    }
    return `#${parts.join("&")}`;
  }

  /* ---- in the history ---- */

  function differs(keys, one, other) {
    return keys.some((key) => String(one[key]) !== String(other[key]));
  }

  /* OPENED(hash): Back, Forward, a link into this page, or an edit of its address. */
  function create(opened) {
    let timer = 0;
    let written = null;
    let acted = false; /* whether the reader did something since the last entry */

    for (const type of ["pointerdown", "wheel", "keydown", "input", "change"]) {
      document.addEventListener(type, () => {
        acted = true;
      }, { capture: true, passive: true });
    }
    // Not location.hash: a state that was about to be written may have replaced it since.
    window.addEventListener("hashchange", (event) => opened(new URL(event.newURL).hash));

    function write(state) {
      clearTimeout(timer);
      const moved = acted && written !== null
        && differs([...PLACES, ...RANGES], written, state);
      if (moved) {
        acted = false; /* what views put right afterwards is of this entry */
      }
      history[moved ? "pushState" : "replaceState"](null, "", format(state));
      written = state;
    }

    /* The page shows STATE now. */
    function save(state) {
      clearTimeout(timer);
      if (written !== null && differs(PLACES, written, state)) {
        write(state);
      }
      else {
        timer = setTimeout(write, WRITE_MS, state);
      }
    }

    /* The page shows STATE because its address says so. */
    function follow(state) {
      clearTimeout(timer);
      written = state;
      acted = false;
    }

    return { save, follow, write };
  }

  /* Whether TEXT is on the clipboard now. */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    }
    catch {
      return copyByHand(text);
    }
  }

  /* Where a page may not write to the clipboard, as one of an intranet. */
  function copyByHand(text) {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }

  return { VIEWS, DEFAULT_STATE, parse, format, create, copy };
})();
