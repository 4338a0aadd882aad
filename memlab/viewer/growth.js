/* What grew between two instants: tables, a flame graph, and what is new and still live.
 *
 * Owns the view's elements; sums are breakdown.js's.  Never changes the state: what the
 * reader chooses goes out through callbacks.change. */
"use strict";

const memlabGrowth = (() => {
  const { formatBytes, formatCount, exactBytes, plural, allocationName } = memlabNames;
  const { make, cut } = memlabDescribe;
  const B = memlabBreakdown;

  const STEPS_LISTED = 500;
  const FRESH_LISTED = 1000;
  const GREW = "#d55e00";
  const SHRANK = "#0072b2";

  /* ---- words ---- */

  function signed(bytes) {
    return bytes > 0 ? `+${formatBytes(bytes)}` : bytes < 0 ? formatBytes(bytes)
      : "no difference";
  }

  function sentence(before, after, rows) {
    const counts = ["appeared", "grew", "shrank", "gone"].map(
      (change) => [change, rows.filter((row) => row.change === change).length])
      .filter(([, count]) => count > 0)
      .map(([change, count]) => `${formatCount(count)} ${change}`);
    const difference = after.total - before.total;
    return `${exactBytes(before.total)} before, ${exactBytes(after.total)} after: `
      + `${signed(difference)}${difference === 0 ? "" : ` (${formatCount(difference)} B)`}`
      + `. ${counts.join(", ") || "Nothing changed"}.`;
  }

  const STEPS = { steps: "step", backward_passes: "backward pass",
                  module_calls: "call of the outermost module" };

  /* A sentence for each line that grows by step, as the report has them. */
  function growing(model, { growth }) {
    return growth.frame.map((frame, i) => {
      const holder = model.strings[growth.holder[i]];
      const place = memlabNames.placeText(memlabNames.frameText(model, frame));
      return `${growth.certain[i] ? "Grows" : "May grow"} by `
        + `${formatBytes(Number(growth.per_step[i]))} a ${STEPS[growth.by]} since step `
        + `${formatCount(Number(growth.since[i]))}: ${place}`
        + `${growth.graph[i] ? ", an autograd graph" : ""}`
        + `${holder === "" ? "" : `, held by ${holder}`}`
        + `${growth.certain[i] ? "" : "; too few steps to tell"}.`;
    });
  }

  /* ---- tables ---- */

  function columnsOf(model) {
    const bytes = (id, text, value, show) => ({
      id, text, number: true, value, cell: (row) => show(value(row)),
      title: (row) => `${formatCount(value(row))} B` });
    return [
      { id: "what", text: "What",
        value: (row) => B.groupText(model, row.group).toLowerCase(),
        title: (row) => row.group.by === "line" ? B.lineText(model, row.group, true)
          : B.groupText(model, row.group),
        cell: (row) => make("span", { class: "mono" },
                            cut(B.groupText(model, row.group))) },
      { id: "change", text: "Change", value: (row) => row.change,
        cell: (row) => make("span", { class: `change ${row.change}` }, row.change) },
      { id: "difference", text: "Difference", number: true,
        value: (row) => Math.abs(row.difference), cell: (row) => signed(row.difference),
        title: (row) => `${formatCount(row.difference)} B` },
      bytes("before", "Before", (row) => row.before, formatBytes),
      bytes("after", "After", (row) => row.after, formatBytes),
      { id: "blocks", text: "Blocks", number: true,
        value: (row) => row.blocksAfter - row.blocksBefore,
        cell: (row) => `${formatCount(row.blocksBefore)} → `
          + formatCount(row.blocksAfter) },
    ];
  }

  /* Why a category is not known is a sentence, which would push the line out of sight. */
  function categoryCell(model, kind) {
    const { category, why } = model.kinds;
    return (model.whys[why[kind]] ?? "") === "" ? memlabNames.kindCategory(model, kind)
      : memlabNames.categoryText(model, category[kind]);
  }

  function freshColumns(model) {
    const { kindPlace, kindCategory } = memlabNames;
    return [
      { id: "name", text: "Allocation", value: (row) => row.name,
        cell: (row) => make("span", { class: "mono" }, row.name) },
      { id: "start", text: "Allocated by event", number: true, value: (row) => row.start,
        cell: (row) => formatCount(row.start) },
      { id: "bytes", text: "Bytes", number: true, value: (row) => row.bytes,
        cell: (row) => formatBytes(row.bytes),
        title: (row) => `${formatCount(row.bytes)} B` },
      { id: "category", text: "Category", value: (row) => kindCategory(model, row.kind),
        cell: (row) => categoryCell(model, row.kind),
        title: (row) => kindCategory(model, row.kind) },
      { id: "line", text: "Line", value: (row) => kindPlace(model, row.kind),
        cell: (row) => make("span", { class: "mono" }, cut(kindPlace(model, row.kind))),
        title: (row) => memlabNames.lineTitle(model, model.kinds.line[row.kind]) },
    ];
  }

  function freshRows({ chunk, rows }) {
    return rows.map((row) => ({
      row, name: allocationName(chunk.rows, row), start: chunk.rows.start[row],
      bytes: chunk.rows.bytes[row], kind: chunk.rows.kind[row], id: chunk.rows.id[row],
      chunk: chunk.index }));
  }

  /* ---- colours ---- */

  /* Orange for what grew, blue for what shrank, the stronger the more of the node it is;
   * the label says it in numbers. */
  function fillOf(tree) {
    const { free } = memlabColors.page();
    return (node) => {
      const now = tree.bytes[node];
      const difference = now - tree.other[node];
      if (difference === 0) {
        return free;
      }
      const part = Math.min(1, Math.abs(difference) / Math.max(1, now, tree.other[node]));
      const color = memlabFlame.tint(difference > 0 ? GREW : SHRANK);
      return memlabColors.mix(color, free, 0.25 + 0.75 * part);
    };
  }

  /* ---- the view ---- */

  function create(element, callbacks) {
    const from = memlabTables.choice("From", [], "", choose);
    const to = memlabTables.choice("to", [], "", choose);
    const by = memlabTables.choice("By", B.BYS.map((each) => [each, each]), "line",
                                   (value) => callbacks.change({ by: value }));
    const said = make("p", { class: "instant" });
    const steady = make("div", { class: "growing" });
    const tableRoom = make("div", { class: "sums-room" });
    const table = memlabTables.create(tableRoom, {
      name: "What grew", columns: [], first: 40, sort: { id: "difference", down: true },
      choose: ({ group }) => callbacks.change(
        { search: B.groupWord(shown.model, group) }) });
    const freshText = make("p", { class: "quiet" });
    const freshRoom = make("div", { class: "sums-room" });
    const fresh = memlabTables.create(freshRoom, {
      name: "Allocations", columns: [], first: 20, sort: { id: "start", down: false },
      choose: ({ chunk, id }) => callbacks.change({ pinned: { chunk, id } }) });
    const view = memlabTreeView.create("icicle", "Flame graph of what grew",
                                       callbacks.change);
    let shown = null;
    let wanted = 0;
    let stepOf = new Map(); /* by event the option of the step that ends there */
    element.classList.add("growth");
    element.append(
      make("div", { class: "toolbar" }, from.element, to.element, by.element),
      steady, said,
      tableRoom, make("h3", {}, "New and still live, the oldest first"), freshText,
      freshRoom, make("h3", {}, "By stack: orange grew, blue shrank"), view.element);

    /* The event of an option: "e" and its number, or "s" and the index of a step's end. */
    async function eventOf(value) {
      const number = Number(value.slice(1));
      if (value[0] === "e") {
        return number;
      }
      const { model, d } = shown;
      const { time } = memlabNames.stepEnds(model, d)[number];
      const event = await model.eventAtTime(d, time);
      stepOf.set(event, value);
      return event;
    }

    async function choose() {
      const [other, event] = [await eventOf(from.select.value),
                              await eventOf(to.select.value)];
      callbacks.change({ other, event });
    }

    function listInstants() {
      const { model, d, state, pair } = shown;
      const device = model.devices[d];
      const steps = memlabNames.stepEnds(model, d);
      const apart = Math.ceil(steps.length / STEPS_LISTED);
      const items = new Map([["e0", "the first event"]]);
      steps.forEach(({ value }, i) => {
        if (i % apart === 0 || i === steps.length - 1) {
          items.set(`s${i}`, `the end of step ${formatCount(value)}`);
        }
      });
      const peak = device.peak.event;
      items.set(`e${peak}`, `the peak, event ${formatCount(peak)}`);
      items.set(`e${device.events - 1}`, "the last event");
      for (const event of [B.instantOf(model, d, state), ...pair]) {
        const value = stepOf.get(event) ?? `e${event}`;
        items.set(value, items.get(value) ?? `event ${formatCount(event)}`);
      }
      [from, to].forEach(({ select }, i) => {
        select.replaceChildren(...[...items].map(
          ([value, text]) => make("option", { value }, text)));
        select.value = stepOf.get(pair[i]) ?? `e${pair[i]}`;
      });
    }

    function render() {
      const { model, d, state, before, after, added, tree } = shown;
      listInstants();
      by.select.value = B.byOf(state);
      steady.replaceChildren(...growing(model, model.devices[d]).map(
        (text) => make("p", {}, text)));
      const all = B.differences(model, d, before, after, B.byOf(state));
      const rows = all.filter((row) => row.change !== "same");
      for (const row of rows) {
        row.chosen = B.groupWord(model, row.group) !== "";
      }
      said.textContent = sentence(before, after, all);
      // Where nothing changed, the sentence above says so.
      tableRoom.hidden = rows.length === 0;
      table.show(rows, {
        columns: columnsOf(model),
        caption: `What changed, by ${B.byOf(state)}; `
          + `${formatCount(all.length - rows.length)} did not` });
      const blocks = freshRows(added);
      const bytes = blocks.reduce((sum, row) => sum + row.bytes, 0);
      freshText.textContent = `${plural(blocks.length, "block")}, ${exactBytes(bytes)}`
        + (blocks.length > FRESH_LISTED ? `; the oldest ${formatCount(FRESH_LISTED)} are `
          + "listed" : "");
      fresh.show(blocks.slice(0, FRESH_LISTED), { columns: freshColumns(model) });
      view.show({ model, tree, amount: exactBytes, state, fold: true, fill: fillOf(tree),
                  signed, difference: (node) => tree.bytes[node] - tree.other[node] });
    }

    async function read(model, d, state) {
      const pair = await B.pairOf(model, d, state);
      if (shown === null || shown.model !== model || shown.d !== d) {
        stepOf = new Map();
      }
      const steps = memlabNames.stepEnds(model, d);
      if (state.other < 0 && steps.length > 1) {
        stepOf.set(pair[0], "s0").set(pair[1], `s${steps.length - 1}`);
      }
      const before = await B.at(model, d, pair[0]);
      const after = await B.at(model, d, pair[1]);
      return { model, d, state, pair, before, after,
               added: await B.fresh(model, d, pair[0], pair[1]),
               tree: memlabTree.build(model, after, { other: before }) };
    }

    async function show(model, d, state) {
      wanted += 1;
      const turn = wanted;
      const key = JSON.stringify([d, state.event, state.other]);
      if (shown !== null && shown.model === model && shown.key === key) {
        shown.state = state;
        render();
        return;
      }
      element.setAttribute("aria-busy", "true");
      const next = await read(model, d, state);
      if (turn === wanted) {
        shown = { ...next, key };
        element.removeAttribute("aria-busy");
        render();
      }
    }

    return { show };
  }

  return { create, growing };
})();
