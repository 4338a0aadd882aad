/* The flame graph: memory at an instant or over a range, by stack or by module.
 *
 * Owns the view's choices and colours; sums and trees are breakdown.js's and tree.js's.
 * Never changes the state: what the reader chooses goes out through callbacks.change. */
"use strict";

const memlabFlame = (() => {
  const { formatBytes, formatCount, formatTime, exactBytes } = memlabNames;
  const { make, swatch } = memlabDescribe;
  const B = memlabBreakdown;

  const LEGEND = 12;
  /* How much of a group's colour a box has: text on it stays readable. */
  const SHARE = { light: 0.45, dark: 0.44 };

  const COLORS = ["category", "module", "line"];

  /* Sizes are no property of a kind: a node has none. */
  function schemeOf(state) {
    return COLORS.includes(state.color) ? state.color : COLORS[0];
  }

  function tint(color) {
    const { canvas } = memlabColors.page();
    return memlabColors.mix(color, canvas,
                            memlabColors.isDark() ? SHARE.dark : SHARE.light);
  }

  const known = new WeakMap();

  /* By node the group of SCHEME that has most of its bytes. */
  function groupsOf(model, d, tree, weights, scheme) {
    const { groups, group_of_kind: ofKind } = model.devices[d];
    const schemes = known.get(tree) ?? new Map();
    known.set(tree, schemes);
    if (!schemes.has(scheme)) {
      schemes.set(scheme, memlabTree.groupsOf(tree, ofKind[scheme], groups[scheme].length,
                                              weights));
    }
    return schemes.get(scheme);
  }

  function fillOf(model, d, tree, weights, scheme) {
    const { groups } = model.devices[d];
    const found = groupsOf(model, d, tree, weights, scheme);
    const colors = groups[scheme].map(
      (_, g) => tint(memlabColors.group(model, d, scheme, g)));
    return (node) => colors[found[node]] ?? memlabColors.page().free;
  }

  function legendOf(model, d, tree, weights, scheme) {
    const { groups, group_of_kind: ofKind } = model.devices[d];
    const sums = new Float64Array(groups[scheme].length);
    weights.bytes.forEach((bytes, kind) => {
      if (bytes > 0 && ofKind[scheme][kind] >= 0) {
        sums[ofKind[scheme][kind]] += bytes;
      }
    });
    const present = [...sums.keys()].filter((g) => sums[g] > 0)
      .sort((a, b) => sums[b] - sums[a]);
    return present.slice(0, LEGEND).map((g) => make(
      "li", {}, swatch(tint(memlabColors.group(model, d, scheme, g))),
      memlabNames.groupText(model, d, scheme, g)));
  }

  /* ---- what is weighed ---- */

  const WHATS = [["instant", "the chosen instant"],
                 ["highest", "the highest instant of the range"],
                 ["time", "bytes × time over the range"]];

  async function weigh(model, d, state, what) {
    if (what === "time") {
      const [first, last] = state.brush;
      const weights = await B.over(model, d, first, last);
      const [from, to] = [await model.timeOf(d, first), await model.timeOf(d, last)];
      return { weights, text: overText(weights, first, last, to - from),
               amount: (value) => amountOver(value, to - from) };
    }
    const event = what === "highest" ? await B.highest(model, d, ...state.brush)
      : B.instantOf(model, d, state);
    const weights = await B.at(model, d, event);
    const time = await model.timeOf(d, event);
    return { weights, amount: exactBytes, text: `${B.instantText(model, d, event, time)}: `
      + `${exactBytes(weights.total)} allocated` };
  }

  function overText({ total }, first, last, us) {
    return `Events ${formatCount(first)} to ${formatCount(last)}, ${formatTime(us)}: `
      + amountOver(total, us);
  }

  /* Bytes x microseconds as bytes held for a second, and the mean over the range. */
  function amountOver(value, us) {
    const mean = us > 0 ? ` (${formatBytes(Math.round(value / us))} on average)` : "";
    return `${formatBytes(Math.round(value / 1e6))}·s${mean}`;
  }

  /* ---- the view ---- */

  const FOLDS = ["module", "category", "noise"];

  /* What the tree is made of: words of STATE's fold. */
  function foldsOf(state) {
    return FOLDS.filter((word) => state.fold.split(" ").includes(word));
  }

  /* A range that was just chosen is what one wants to see. */
  function whatOf({ brush, weight }) {
    if (brush === null) {
      return "instant";
    }
    return WHATS.some(([value]) => value === weight) ? weight : "highest";
  }

  function create(element, callbacks) {
    const fold = (word, wanted) => {
      const words = foldsOf(shown.state).filter((each) => each !== word);
      callbacks.change({ fold: [...words, ...(wanted ? [word] : [])].join(" ") });
    };
    const what = memlabTables.choice("Of", WHATS, "instant",
                                     (value) => callbacks.change({ weight: value }));
    const rows = memlabTables.choice(
      "Rows", [["stack", "stack"], ["module", "module path"]], "stack",
      (value) => fold("module", value === "module"));
    const category = memlabTables.check("category first", false,
                                        (value) => fold("category", value));
    const noise = memlabTables.check("all frames", false,
                                     (value) => fold("noise", value));
    const color = memlabTables.choice(
      "Colour", COLORS.map((each) => [each, each]), "category",
      (value) => callbacks.change({ color: value }));
    noise.element.title = "Also those of the interpreter and of torch's dispatcher";
    const heading = make("h2", { class: "instant" });
    const view = memlabTreeView.create("icicle", "Flame graph of memory",
                                       callbacks.change);
    const legend = make("ul", { class: "tree-legend",
                                "aria-label": "Colours, of most of a box's bytes" });
    let shown = null;
    let wanted = 0;
    element.classList.add("flame");
    element.append(
      make("div", { class: "toolbar" }, what.element, rows.element, category.element,
           noise.element, color.element),
      make("div", { class: "instant-room" }, heading), view.element, legend);

    function render() {
      const { model, d, state, weights, text, amount, tree } = shown;
      heading.textContent = text;
      const unit = weights.blocks === null ? "B·µs" : "B";
      heading.title = `${formatCount(weights.total)} ${unit}`;
      const scheme = schemeOf(state);
      color.select.value = scheme;
      view.show({ model, tree, amount, state, fold: !foldsOf(state).includes("noise"),
                  fill: fillOf(model, d, tree, weights, scheme) });
      legend.replaceChildren(...legendOf(model, d, tree, weights, scheme));
    }

    function showChoices(state, chosen, folds) {
      what.select.value = chosen;
      for (const option of what.select.options) {
        option.disabled = state.brush === null && option.value !== "instant";
      }
      rows.select.value = folds.includes("module") ? "module" : "stack";
      category.box.checked = folds.includes("category");
      noise.box.checked = folds.includes("noise");
      noise.box.disabled = folds.includes("module");
    }

    async function show(model, d, state) {
      const chosen = whatOf(state);
      const folds = foldsOf(state);
      showChoices(state, chosen, folds);
      wanted += 1;
      const turn = wanted;
      const key = JSON.stringify([d, chosen, chosen === "instant"
        ? B.instantOf(model, d, state) : state.brush]);
      let next = shown;
      if (shown === null || shown.model !== model || shown.key !== key) {
        element.setAttribute("aria-busy", "true");
        next = { model, d, key, ...await weigh(model, d, state, chosen) };
      }
      if (turn !== wanted) {
        return;
      }
      const same = next === shown && shown.folds === folds.join(" ");
      const tree = same ? shown.tree : memlabTree.build(model, next.weights, {
        rows: folds.includes("module") ? "module" : "stack",
        category: folds.includes("category"), noise: folds.includes("noise") });
      shown = { ...next, state, tree, folds: folds.join(" ") };
      element.removeAttribute("aria-busy");
      render();
    }

    return { show };
  }

  return { create, schemeOf, fillOf, tint };
})();
