/* What was allocated at the peak, or at any instant: a tree map and a table.
 *
 * Owns the view's elements; sums are breakdown.js's.  Never changes the state: what the
 * reader chooses goes out through callbacks.change. */
"use strict";

const memlabTreemap = (() => {
  const { formatBytes, formatCount, exactBytes, plural } = memlabNames;
  const { make, swatch } = memlabDescribe;
  const { percent, bar } = memlabTables;
  const B = memlabBreakdown;

  /* ---- words ---- */

  /* At the peak the core's own account; elsewhere what follows from the totals. */
  function overheadText(device, event, { active, allocated, reserved }) {
    const parts = [`${exactBytes(reserved)} reserved`, `${exactBytes(active)} active`];
    if (active > allocated) {
      parts.push(`${formatBytes(active - allocated)} of these freed, waiting for another `
        + "stream");
    }
    const { overhead } = device.peak;
    if (event !== device.peak.event) {
      const inactive = Math.max(0, reserved - active);
      parts.push(`${formatBytes(inactive)} reserved but not in use`);
      return parts.join("; ");
    }
    parts.push(`${formatBytes(overhead.inactive)} reserved but not in use, in `
      + `${plural(overhead.free_blocks, "free block")}, the largest `
      + formatBytes(overhead.largest_free),
      `${formatBytes(overhead.slack)} lost to rounding inside blocks`);
    return parts.join("; ");
  }

  /* How sure the categories are; those that are not known are not exact either. */
  function exactText(model, groups) {
    const sum = (bytes) => groups.reduce((total, group) => total + bytes(group), 0);
    const inexact = sum((group) => group.inexact);
    const unknown = sum((group) =>
      model.categories[model.kinds.category[group.kind]] === "unknown" ? group.bytes : 0);
    const parts = [
      ...(unknown === 0 ? [] : [`${exactBytes(unknown)} of no known category`]),
      ...(inexact === 0 ? []
        : [`${exactBytes(inexact)} estimated`])];
    return parts.length === 0 ? "All categories are exact."
      : `${parts.join("; ")}; all other categories are exact.`;
  }

  /* ---- cells ---- */

  function stackCell(model, group) {
    const stack = model.kinds.stack[group.kind];
    const text = B.groupText(model, group);
    return stack === 0 ? text : make("details", {}, make("summary", {}, text),
                                     memlabDescribe.stackList(model, stack));
  }

  const HEADINGS = { line: "Line that allocated", module: "Module", category: "Category",
                     stack: "Stack, innermost frame", size: "Size of the block" };

  function columnsOf(model, d, by, total) {
    const most = { id: "bytes", text: "Bytes", number: true,
                   value: (row) => row.bytes, cell: (row) => formatBytes(row.bytes),
                   title: (row) => `${formatCount(row.bytes)} B` };
    const columns = [
      { id: "what", text: HEADINGS[by], value: (row) => by === "size" ? row.key
        : B.groupText(model, row).toLowerCase(),
        title: (row) => titleOf(model, row), cell: (row) => whatCell(model, d, row) },
      most,
      { id: "share", text: "Share", number: true, value: (row) => row.bytes,
        cell: (row) => percent(row.bytes, total) },
      { id: "bar", text: "", value: (row) => -row.bytes,
        cell: (row) => bar(row.bytes, total) },
      { id: "blocks", text: "Blocks", number: true, value: (row) => row.blocks,
        cell: (row) => formatCount(row.blocks) },
    ];
    if (by === "line" || by === "stack") {
      columns.splice(1, 0, { id: "category", text: "Category",
                             value: (row) => B.mostly(model, row),
                             cell: (row) => B.mostly(model, row) });
    }
    if (by === "category") {
      columns.push({ id: "exact", text: "Exact", number: true,
                     value: (row) => row.bytes - row.inexact,
                     cell: (row) => row.inexact === 0 ? "all"
                       : percent(row.bytes - row.inexact, row.bytes) });
    }
    return columns;
  }

  function titleOf(model, group) {
    return group.by === "line" ? B.lineText(model, group, true)
      : group.by === "stack" ? "" : B.groupText(model, group);
  }

  function whatCell(model, d, group) {
    if (group.by === "stack") {
      return stackCell(model, group);
    }
    const text = make("span", { class: group.by === "size" ? "" : "mono" },
                      memlabDescribe.cut(B.groupText(model, group)));
    return group.by === "category"
      ? make("span", {}, swatch(memlabColors.ofCategory(
        model.categories[model.kinds.category[group.kind]])), text) : text;
  }

  /* ---- the view ---- */

  function create(element, callbacks) {
    const heading = make("h2", { class: "instant" });
    const overhead = make("p", { class: "quiet" });
    const toPeak = make("button", { type: "button", click: () => callbacks.change(
      { event: shown.model.devices[shown.d].peak.event }) }, "Go to the peak");
    const view = memlabTreeView.create(
      "squares", "Tree map of memory by category, module and line", callbacks.change);
    const by = memlabTables.choice("By", B.BYS.map((each) => [each, each]), "line",
                                   (value) => callbacks.change({ by: value }));
    const exact = make("span", { class: "quiet" });
    const scroll = make("div", { class: "sums-room" });
    let shown = null;
    let wanted = 0;
    const table = memlabTables.create(scroll, {
      name: "Allocated memory", columns: [], sort: { id: "bytes", down: true },
      choose: (row) => {
        const search = B.groupWord(shown.model, row);
        if (search !== "") {
          callbacks.change({ search });
        }
      } });
    element.classList.add("breakdown");
    element.append(
      make("div", { class: "instant-room" }, heading, toPeak, overhead), view.element,
      make("div", { class: "toolbar" }, by.element, exact), scroll);

    function render() {
      const { model, d, state, weights, totals, time, tree } = shown;
      const device = model.devices[d];
      const { event } = weights;
      heading.textContent = `${B.instantText(model, d, event, time)}: `
        + `${exactBytes(totals.allocated)} allocated`;
      overhead.textContent = model.source === "cpu"
        ? "The CPU's allocator reserves nothing beyond what is allocated."
        : overheadText(device, event, totals);
      toPeak.hidden = event === device.peak.event;
      view.show({ model, tree, state, amount: exactBytes,
                  fill: memlabFlame.fillOf(model, d, tree, weights,
                                           memlabFlame.schemeOf(state)) });
      by.select.value = B.byOf(state);
      const groups = B.groups(model, d, weights, B.byOf(state));
      for (const group of groups) {
        group.chosen = B.byOf(state) !== "stack" && B.groupWord(model, group) !== "";
      }
      exact.textContent = exactText(
        model, B.groups(model, d, weights, "category"));
      table.show(groups, { columns: columnsOf(model, d, B.byOf(state), weights.total),
                           caption: `Allocated memory by ${B.byOf(state)}` });
    }

    async function show(model, d, state) {
      const event = B.instantOf(model, d, state);
      if (shown !== null && shown.model === model && shown.d === d
          && shown.weights.event === event) {
        wanted += 1;
        shown = { ...shown, state };
        render();
        return;
      }
      wanted += 1;
      const turn = wanted;
      element.setAttribute("aria-busy", "true");
      const weights = await B.at(model, d, event);
      const [totals, time] = await B.totalsAt(model, d, event);
      if (turn === wanted) {
        shown = { model, d, state, weights, totals, time,
                  tree: memlabTree.build(model, weights, { rows: "line" }) };
        element.removeAttribute("aria-busy");
        render();
      }
    }

    return { show };
  }

  return { create };
})();
