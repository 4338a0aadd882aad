/* A tree of memory on a canvas, as an icicle or a tree map, and as a table.
 *
 * Owns the canvas, which node is zoomed to and which is chosen, the keys, the tooltip and
 * the table that says the same.  What the tree is made of is its maker's. */
"use strict";

const memlabTreeView = (() => {
  const ROW = 20;
  const BELOW_ROOT = 2 * ROW;
  const FONT = "12px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif";
  /* Pixels of one, more or less. */
  const LETTER = 7;
  const CRUMBS = 6;
  const CRUMB_LETTERS = 36;
  const TABLE_ROWS = 400;
  const CHAIN_NAMES = 16;
  const TIP_LETTERS = 300;
  const KEYS = ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"];

  const { formatCount, plural } = memlabNames;
  const { make } = memlabDescribe;
  const { percent } = memlabTables;

  const LAYOUTS = {
    icicle: ({ tree, fold }, root, width) =>
      memlabLayout.icicle(tree, root, width, { fold })
        .map((box) => ({ ...box, y: box.row * ROW, height: ROW })),
    squares: ({ tree }, root, width, height) =>
      memlabLayout.squares(tree, root, width, height),
  };

  /* SHAPE: "icicle" or "squares".  NAME: what screen readers call it.  CHANGE takes what
   * the reader chooses: { zoom }, the keys of a node, or { table }. */
  function create(shape, name, change) {
    const canvas = make("canvas", { tabindex: "0", role: "application",
                                    "aria-roledescription": "tree of memory",
                                    "aria-label": `${name}. Arrow keys move, Enter zooms `
                                      + "in, Escape zooms out." });
    const spacer = make("div", { class: "spacer" });
    const stage = make("div", { class: `tree-stage ${shape}` }, canvas, spacer);
    const crumbs = make("nav", { class: "crumbs", "aria-label": "Zoomed to" });
    const tip = make("div", { class: "tree-tip", hidden: "" });
    const said = make("div", { class: "tree-said", role: "status" });
    const sheet = make("div", { class: "tree-table", hidden: "" });
    const swap = make("button", { type: "button", "aria-pressed": "false",
                                  click: () => change({ table: sheet.hidden }) },
                      "As a table");
    const found = make("output", { class: "tree-found" });
    const element = make("div", { class: "tree" },
                         make("div", { class: "tree-head" }, crumbs, found, swap),
                         stage, sheet, said, tip);
    let shown = null;
    let root = 0;
    let chosen = 0;
    let boxes = [];
    let laid = { tree: null, fold: false, size: "" };
    let hits = null;
    let pending = 0;
    const table = memlabTables.create(sheet, {
      name, sort: { id: "order", down: false }, choose: (row) => zoom(row.node),
      columns: tableColumns() });

    /* ---- words ---- */

    function textOf(node, whole = false) {
      return memlabTree.text(shown.model, shown.tree, node, whole);
    }

    function describe(box) {
      const { tree, amount } = shown;
      const parent = box.node < 0 ? box.parent : tree.parent[box.node];
      const bytes = box.node < 0 ? box.bytes : tree.bytes[box.node];
      const parts = [`${amount(bytes)}, ${percent(bytes, tree.bytes[0])} of all`];
      if (parent > 0) {
        parts.push(`${percent(bytes, tree.bytes[parent])} of ${textOf(parent)}`);
      }
      if (box.node >= 0 && tree.blocks[box.node] > 0) {
        parts.push(plural(tree.blocks[box.node], "block"));
      }
      if (box.node >= 0 && shown.difference !== undefined) {
        parts.push(`${shown.signed(shown.difference(box.node))} since then`);
      }
      if (box.chain !== undefined) {
        const names = box.chain.map((node) => textOf(node));
        const more = names.length > CHAIN_NAMES
          ? [`and ${formatCount(names.length - CHAIN_NAMES)} more`] : [];
        return { title: foldText(box), parts: [...parts, ...names.slice(0, CHAIN_NAMES),
                                               ...more] };
      }
      return { title: box.node < 0 ? `and ${formatCount(box.smaller)} smaller`
        : textOf(box.node, true), parts };
    }

    function foldText({ chain }) {
      return `… ${formatCount(chain.length)} frames, one in the other …`;
    }

    function isOf(box, node) {
      return box.node === node || (box.chain !== undefined && box.chain.includes(node));
    }

    /* ---- drawing ---- */

    function paint(context, width, height, top) {
      const { page, tree, fill } = { page: memlabColors.page(), ...shown };
      context.font = FONT;
      context.textBaseline = "middle";
      context.fillStyle = page.canvas;
      context.fillRect(0, 0, width, height);
      for (const box of boxes) {
        if (box.y + box.height > top && box.y < top + height) {
          paintBox(context, box, top, page, box.node <= 0 ? page.free : fill(box.node));
        }
      }
      const mark = boxes.find((box) => isOf(box, chosen));
      if (mark !== undefined && document.activeElement === canvas) {
        context.strokeStyle = page.chosen;
        context.lineWidth = 2;
        context.strokeRect(mark.x + 1, mark.y - top + 1, Math.max(1, mark.width - 2),
                           mark.height - 2);
      }
      if (tree.bytes[0] === 0) {
        context.fillStyle = page.quiet;
        context.fillText("Nothing was allocated then. Press p for the peak.", 12,
                         shape === "icicle" ? BELOW_ROOT : 20);
      }
    }

    function paintBox(context, box, top, page, color) {
      const y = box.y - top;
      const width = Math.max(0.5, box.width - 1);
      const height = Math.max(0.5, box.height - 1);
      const inner = box.level > 1;
      const dim = hits !== null && (box.node < 0 ? hits.within[box.parent] === 0
        : hits.within[box.node] === 0 && !hits.above.has(box.node));
      context.globalAlpha = dim ? 0.3 : 1;
      context.fillStyle = color;
      context.fillRect(box.x, y, width, height);
      if (inner && width > 2) {
        /* Boxes within boxes have one colour: an edge tells them apart. */
        context.strokeStyle = page.canvas;
        context.lineWidth = 1;
        context.strokeRect(box.x + 0.5, y + 0.5, width - 1, height - 1);
      }
      const isHit = hits !== null && box.node >= 0
        && (box.chain ?? [box.node]).some((node) => hits.hit[node] === 1);
      if (isHit && width > 3) {
        context.strokeStyle = page.text;
        context.lineWidth = 1.5;
        context.strokeRect(box.x + 0.75, y + 0.75, width - 1.5, height - 1.5);
      }
      if (width > (inner ? 54 : 26) && height > 12) {
        const room = Math.min(height, ROW);
        context.fillStyle = page.text;
        write(context, label(box, width - 8), box.x + 4, y + room / 2 + 0.5, width - 8);
      }
      context.globalAlpha = 1;
    }

    function label(box, room) {
      if (box.node < 0) {
        return `and ${formatCount(box.smaller)} smaller`;
      }
      if (box.chain !== undefined) {
        return foldText(box);
      }
      const text = textOf(box.node);
      const whole = `${text}  ${labelAmount(box.node)}`;
      if (whole.length * LETTER <= room) {
        return whole;
      }
      if (text.length * LETTER <= room) {
        return text;
      }
      /* Of code the function says most. */
      return memlabTree.isModule(shown.tree, box.node) ? text
        : memlabTree.short(shown.model, shown.tree, box.node);
    }

    function labelAmount(node) {
      return shown.difference === undefined
        ? shown.amount(shown.tree.bytes[node]).replace(/ \(.*/, "")
        : shown.signed(shown.difference(node));
    }

    /* As much of TEXT as has ROOM. */
    function write(context, text, x, y, room) {
      let length = Math.min(text.length, Math.ceil(room / 2));
      let said = memlabNames.middle(text, length);
      let width = context.measureText(said).width;
      while (length > 2 && width > room) {
        length = Math.min(length - 1, Math.floor(length * room / width));
        said = memlabNames.middle(text, length);
        width = context.measureText(said).width;
      }
      if (width <= room && (length > 2 || said === text)) {
        context.fillText(said, x, y);
      }
    }

    function draw() {
      pending = 0;
      const width = stage.clientWidth;
      const height = stage.clientHeight;
      if (shown === null || width === 0 || height === 0) {
        return;
      }
      const size = `${root} ${width} ${height}`;
      if (laid.tree !== shown.tree || laid.fold !== shown.fold || laid.size !== size) {
        boxes = LAYOUTS[shape](shown, root, width, height);
        laid = { tree: shown.tree, fold: shown.fold, size };
      }
      const deep = boxes.reduce((most, box) => Math.max(most, box.y + box.height), 0);
      spacer.style.height = `${shape === "icicle" ? Math.max(0, deep - height) : 0}px`;
      const ratio = devicePixelRatio;
      if (canvas.width !== Math.round(width * ratio)
          || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      const context = canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(context, width, height, stage.scrollTop);
    }

    function redraw() {
      if (pending === 0) {
        pending = requestAnimationFrame(draw);
      }
    }

    /* ---- the table ---- */

    function tableColumns() {
      const difference = shown?.difference === undefined ? [] : [
        { id: "difference", text: "Difference", number: true,
          value: (row) => shown.difference(row.node),
          cell: (row) => shown.signed(shown.difference(row.node)) }];
      return [
        { id: "order", text: "What", value: (row) => row.order,
          title: (row) => row.title, cell: (row) => {
            const text = make("span", { class: "level" }, row.text);
            text.style.paddingInlineStart = `${row.level * 14}px`;
            return text;
          } },
        { id: "bytes", text: "Bytes", number: true, value: (row) => row.bytes,
          cell: (row) => row.amount },
        ...difference,
        { id: "share", text: "Of all", number: true, value: (row) => row.bytes,
          cell: (row) => row.share },
        { id: "parent", text: "Of parent", number: true, value: (row) => row.ofParent,
          cell: (row) => `${(100 * row.ofParent).toFixed(1)} %` },
        { id: "blocks", text: "Blocks", number: true, value: (row) => row.blocks,
          cell: (row) => row.blocks > 0 ? formatCount(row.blocks) : "" },
      ];
    }

    /* What is zoomed to, a node under its parent, the largest first; what of it would be
     * narrower than a pixel in a thousand is left out. */
    function tableRows() {
      const { tree, amount } = shown;
      const rows = [];
      const least = tree.bytes[root] / 1000;
      const open = [root];
      while (open.length > 0 && rows.length < TABLE_ROWS) {
        const node = open.pop();
        const parent = tree.parent[node];
        rows.push({
          node, order: rows.length, text: textOf(node), title: textOf(node, true),
          level: tree.depth[node] - tree.depth[root], bytes: tree.bytes[node],
          amount: amount(tree.bytes[node]), blocks: tree.blocks[node],
          share: percent(tree.bytes[node], tree.bytes[0]),
          ofParent: parent < 0 || tree.bytes[parent] === 0 ? 1
            : tree.bytes[node] / tree.bytes[parent] });
        open.push(...[...tree.children[node]].filter((at) => tree.bytes[at] >= least)
          .reverse());
      }
      return rows;
    }

    function showTable(wanted) {
      sheet.hidden = !wanted;
      stage.hidden = wanted;
      swap.setAttribute("aria-pressed", String(wanted));
      swap.textContent = wanted ? "As a picture" : "As a table";
    }

    /* ---- zoom ---- */

    function showCrumbs() {
      const path = memlabTree.pathTo(shown.tree, root);
      const hidden = Math.max(0, path.length - CRUMBS);
      const items = path.filter((_, i) => i === 0 || i > hidden).map((node) => make(
        "button", { type: "button", class: "crumb", title: textOf(node, true),
                    ...(node === root ? { "aria-current": "true" } : {}),
                    click: () => zoom(node) }, memlabNames.middle(textOf(node), CRUMB_LETTERS)));
      if (hidden > 0) {
        items.splice(1, 0, make("span", {}, `… ${hidden} …`));
      }
      crumbs.replaceChildren(...items);
    }

    function showFound() {
      const { model, tree, state } = shown;
      if (hits === null || hits.tree !== tree || hits.root !== root
          || hits.search !== state.search) {
        hits = memlabTree.matches(model, tree, state.search, root);
      }
      else {
        return;
      }
      found.textContent = hits === null ? ""
        : `${percent(hits.bytes, tree.bytes[root])} found`;
      if (hits !== null) {
        Object.assign(hits, { tree, root, search: state.search, above: new Set() });
        /* What leads to a match is not dimmed either. */
        hits.hit.forEach((hit, node) => {
          for (let at = node; hit === 1 && at >= 0 && !hits.above.has(at);
            at = tree.parent[at]) {
            hits.above.add(at);
          }
        });
      }
    }

    function refresh() {
      showCrumbs();
      showFound();
      if (!sheet.hidden) {
        table.show(tableRows(), { columns: tableColumns() });
      }
      redraw();
    }

    function zoom(node) {
      if (shown.tree.children[node].length === 0 && node !== root) {
        choose(node);
        return;
      }
      goTo(node);
      say(node);
      change({ zoom: memlabTree.keysTo(shown.model, shown.tree, node) });
    }

    function goTo(node) {
      root = node;
      chosen = node;
      stage.scrollTop = 0;
      hideTip();
      refresh();
    }

    function say(node) {
      const { title, parts } = describe({ node });
      said.textContent = `${title}: ${parts.join(", ")}`;
    }

    function choose(node) {
      chosen = node;
      say(node);
      const box = boxes.find((each) => isOf(each, node));
      if (box !== undefined && shape === "icicle") {
        stage.scrollTop = Math.min(box.y, Math.max(
          stage.scrollTop, box.y + 2 * ROW - stage.clientHeight));
      }
      redraw();
    }

    /* ---- pointer and keys ---- */

    function boxAt(event) {
      const area = canvas.getBoundingClientRect();
      const x = event.clientX - area.left;
      const y = event.clientY - area.top + stage.scrollTop;
      for (let i = boxes.length - 1; i >= 0; i--) {
        const box = boxes[i];
        if (x >= box.x && x < box.x + box.width
            && y >= box.y && y < box.y + box.height) {
          return box;
        }
      }
      return null;
    }

    function hideTip() {
      tip.hidden = true;
    }

    function cut(text) {
      return memlabNames.middle(text, TIP_LETTERS);
    }

    function hover(event) {
      const box = shown === null ? null : boxAt(event);
      if (box === null) {
        hideTip();
        return;
      }
      const { title, parts } = describe(box);
      tip.replaceChildren(make("strong", {}, cut(title)),
                          ...parts.map((part) => make("div", {}, cut(part))));
      tip.hidden = false;
      const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 6);
      const below = event.clientY + 16;
      const top = below + tip.offsetHeight > innerHeight
        ? event.clientY - tip.offsetHeight - 10 : below;
      tip.style.left = `${Math.max(4, left)}px`;
      tip.style.top = `${Math.max(4, top)}px`;
    }

    function click(event) {
      const box = boxAt(event);
      if (box === null || box.node < 0) {
        return;
      }
      const node = box.chain === undefined ? box.node : box.chain[box.chain.length - 1];
      zoom(node === root && root > 0 ? shown.tree.parent[root] : node);
    }

    function press(event) {
      if (shown === null || event.ctrlKey || event.metaKey || event.altKey) {
        return;
      }
      const { tree } = shown;
      if (KEYS.includes(event.key)) {
        choose(memlabLayout.move(tree, root, chosen, event.key));
      }
      else if (event.key === "Enter" || event.key === " ") {
        zoom(chosen);
      }
      else if (event.key === "Escape" && root > 0) {
        const from = root;
        zoom(tree.parent[root]);
        choose(from);
      }
      else if (event.key === "Home") {
        zoom(0);
      }
      else {
        return;
      }
      event.preventDefault();
      event.stopPropagation();
    }

    canvas.addEventListener("pointermove", hover);
    canvas.addEventListener("pointerleave", hideTip);
    canvas.addEventListener("click", click);
    canvas.addEventListener("keydown", press);
    canvas.addEventListener("focus", redraw);
    canvas.addEventListener("blur", redraw);
    stage.addEventListener("scroll", redraw);
    new ResizeObserver(redraw).observe(stage);

    /* NEXT: { model, tree, state, fill(node) -> colour, amount(bytes) -> text, fold: true
     * where boxes in a row that say the same are to be one, and, where two instants are
     * compared, difference(node) -> bytes and signed(bytes) -> text }. */
    function show(next) {
      const same = shown !== null && shown.tree === next.tree;
      const at = memlabTree.follow(next.model, next.tree, next.state.zoom);
      shown = next;
      showTable(next.state.table === true);
      if (!same || at !== root) {
        goTo(at);
      }
      else {
        refresh();
      }
    }

    return { element, show };
  }

  return { create };
})();
