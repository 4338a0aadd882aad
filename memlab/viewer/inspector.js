/* The pane of details beside the views, and the tooltip at the pointer.
 *
 * Owns what they show of a state; the words are memlabDescribe's. */
"use strict";

const memlabInspector = (() => {
  const DIGEST_LINES = 10;
  const GAP = 16;
  const EDGE = 4;

  const { formatBytes, formatCount, allocationName } = memlabNames;
  const { make, cut, button } = memlabDescribe;

  /* ---- the pane ---- */

  async function timesOf(model, d, rows, row) {
    const known = (event) => event >= 0 && event < model.devices[d].events;
    if (!known(rows.start[row]) || !known(rows.requested[row])) {
      return null;
    }
    return { start: await model.timeOf(d, rows.start[row]),
             requested: await model.timeOf(d, rows.requested[row]) };
  }

  async function allocationParts(model, d, { chunk: c, id }, callbacks) {
    const chunk = await model.chunk(d, c);
    const row = memlabQuery.rowOf(chunk, id);
    if (row < 0) {
      return null;
    }
    const { rows } = chunk;
    const times = await timesOf(model, d, rows, row);
    const from = Math.max(0, rows.start[row]);
    const to = Math.min(model.devices[d].events, rows.requested[row] + 1);
    const margin = Math.max(4, (to - from) * 0.2);
    const go = (event) => callbacks.change({ event });
    return [
      make("h2", {}, allocationName(rows, row)),
      memlabDescribe.eventLinks(model, d, rows, row, go),
      make("div", { class: "actions" },
           button("In allocator state", () => callbacks.change(
             { view: "segments", event: from })),
           button("In timeline", () => callbacks.change(
             { view: "timeline", x0: from - margin, x1: to + margin })),
           button("Unpin", () => callbacks.change({ pinned: null }))),
      memlabDescribe.allocationFacts(model, d, chunk, row, times),
      make("h3", {}, "Allocated at, innermost first"),
      memlabDescribe.stackList(model, model.kinds.stack[rows.kind[row]])];
  }

  async function eventParts(model, d, event, callbacks) {
    if (event < 0 || model.devices[d].events === 0) {
      return [make("p", {}, "Before the first event: what was allocated when the recording "
        + "began. Press . for the next event, p for the peak.")];
    }
    const chunk = await model.chunk(d, model.chunkOf(d, event));
    return memlabDescribe.eventParts(
      model, d, chunk, event - chunk.first,
      (to) => callbacks.change({ event: to, pinned: null }));
  }

  /* The lines that hold most after the chosen event. */
  async function digest(model, d, event, callbacks) {
    const { bytes } = await model.liveByKind(d, event);
    const lines = new Float64Array(model.lines.line.length);
    bytes.forEach((sum, kind) => {
      lines[model.kinds.line[kind]] += sum;
    });
    const order = Array.from(lines.keys()).filter((line) => lines[line] > 0)
      .sort((a, b) => lines[b] - lines[a]).slice(0, DIGEST_LINES);
    return [
      make("p", {}, "Point at a band or a block to see what allocated it; click to pin "
        + "it here. Press ? for the keys."),
      make("h3", {}, `Lines that hold most after event ${formatCount(event)}`),
      ...order.map((line) => make(
        "button", { type: "button", class: "digest",
                    click: () => callbacks.change(
                      { search: memlabNames.lineWord(model, line) }) },
        make("strong", {}, formatBytes(lines[line])),
        make("span", { class: "mono" }, cut(memlabNames.linePlace(model, line)))))];
  }

  function create(element, callbacks) {
    let turn = 0;
    let key = [];

    async function parts(model, d, state) {
      const pinned = state.pinned === null ? null
        : await allocationParts(model, d, state.pinned, callbacks);
      if (pinned !== null) {
        return pinned;
      }
      return ["segments", "events"].includes(state.view)
        ? eventParts(model, d, state.event, callbacks)
        : digest(model, d, state.event, callbacks);
    }

    /* Once what it needs has come; a newer call goes before an older one. */
    async function show(model, d, state) {
      const newKey = [model, d, state.event, state.pinned, state.view];
      if (newKey.every((part, i) => part === key[i])) {
        return;
      }
      key = newKey;
      turn += 1;
      const mine = turn;
      const chunks = model.devices[d].chunkCount;
      const legal = state.pinned !== null && state.pinned.chunk >= 0
        && state.pinned.chunk < chunks;
      const content = chunks === 0 ? [make("p", {}, "This device has no events.")]
        : await parts(model, d, legal ? state : { ...state, pinned: null });
      if (mine === turn) {
        element.replaceChildren(...content);
      }
    }

    return { show };
  }

  /* ---- the tooltip ---- */

  function createTooltip(element) {
    function place(x, y) {
      const { offsetWidth, offsetHeight } = element;
      const left = x + GAP + offsetWidth > innerWidth ? x - GAP - offsetWidth : x + GAP;
      const top = Math.min(y + GAP, innerHeight - offsetHeight - EDGE);
      element.style.left = `${Math.max(EDGE, left)}px`;
      element.style.top = `${Math.max(EDGE, top)}px`;
    }

    function groupParts(model, d, state, info) {
      const parts = [make("div", {}, memlabDescribe.swatch(
        memlabColors.group(model, d, state.color, info.group)),
        make("strong", {}, memlabNames.groupText(model, d, state.color, info.group)))];
      return [...parts, ...linesOf(info)];
    }

    function linesOf(info) {
      return (info.lines ?? []).map((line) => make("div", {}, line));
    }

    function partsOf(model, d, state, info) {
      if (info.parts !== undefined) {
        return info.parts;
      }
      if (info.row !== undefined && info.row >= 0) {
        const { kind, bytes } = info.chunk.rows;
        const group = memlabColors.groupOf(model, d, state.color, kind[info.row],
                                           bytes[info.row]);
        return [...memlabDescribe.allocationTip(
          model, d, info.chunk, info.row,
          memlabColors.group(model, d, state.color, group)), ...linesOf(info)];
      }
      return info.group !== undefined && info.group >= 0
        ? groupParts(model, d, state, info) : linesOf(info);
    }

    /* INFO as views hand it to callbacks.hover, or null. */
    function show(model, d, state, info) {
      element.hidden = info === null;
      if (info !== null) {
        element.replaceChildren(...partsOf(model, d, state, info));
        place(info.x, info.y);
      }
    }

    return { show };
  }

  return { create, createTooltip };
})();
