/* The page: reads its data and joins the views.
 *
 * Owns the state, the tabs, the legend and the theme; each view makes its own elements.
 * A fault in one view is told in its place and leaves the others at work.  Text from the
 * recording enters the document through textContent only. */
"use strict";

const memlabViewer = (() => {
  const TABLE_ROWS = 20;
  const LEGEND_LETTERS = 46;
  const COPIED_MS = 2500;
  const THEMES = ["auto", "light", "dark"];
  const COLORED = ["timeline", "segments"];
  const INSPECTED = ["timeline", "segments", "events"];
  /* In the order of the keys 1 to 6. */
  const VIEWS = new Map([
    ["timeline", (element, callbacks) => memlabTimeline.create(element, callbacks)],
    ["breakdown", (element, callbacks) => memlabTreemap.create(element, callbacks)],
    ["flame", (element, callbacks) => memlabFlame.create(element, callbacks)],
    ["segments", (element, callbacks) => memlabSegments.create(element, callbacks)],
    ["events", (element, callbacks) => memlabEvents.create(element, callbacks)],
    ["growth", (element, callbacks) => memlabGrowth.create(element, callbacks)],
  ]);
  const { formatBytes, formatCount, formatTime } = memlabNames;
  const { make, swatch } = memlabDescribe;
  const byId = (id) => document.getElementById(id);

  let model = null;
  let about = { title: "", notes: [] };
  let state = memlabAddress.parse("");
  let parts = null;
  let address = null;
  let tables = 0;
  /* By name: { element, fault, view }; a view is made when it is first shown. */
  const views = new Map();

  /* ---- state ---- */

  /* Whether there is anything to show. */
  function isOpen() {
    return model !== null && model.devices.length > 0;
  }

  function device() {
    return model.devices[state.device];
  }

  /* By category where that of most memory is known, else by line: one grey area tells
   * nothing. */
  function defaultColor() {
    const { bytes } = device().peak.by_category;
    const sum = (test) => bytes.reduce(
      (total, count, c) => total + (test(model.categories[c]) ? Number(count) : 0), 0);
    const unknown = sum((name) => ["unknown", "before_recording"].includes(name));
    return unknown * 2 < sum(() => true) ? "category" : "line";
  }

  /* STATE with what a link may have wrong put right, so that views need not look. */
  function legal(wanted) {
    const out = { ...wanted };
    const has = (list, value, other) => (list.includes(value) ? value : other);
    out.device = Number.isInteger(out.device) && out.device >= 0
      && out.device < model.devices.length ? out.device : 0;
    const { events } = model.devices[out.device];
    const inside = (event) => Number.isInteger(event) && event >= -1 && event < events;
    out.view = has(memlabAddress.VIEWS, out.view, "timeline");
    out.axis = has(["events", "time"], out.axis, "events");
    out.memory = has(["", "segments"], out.memory, "");
    out.scale = has(["", "each"], out.scale, "");
    out.color = has(["", ...memlabNames.SCHEMES], out.color, "");
    out.theme = has(THEMES, out.theme, "auto");
    out.action = has(["", ...model.actions], out.action, "");
    out.event = out.event !== null && inside(out.event) ? out.event : null;
    out.other = inside(out.other) ? out.other : -1;
    if (out.brush !== null && !(out.brush.every(inside) && out.brush[0] <= out.brush[1])) {
      out.brush = null;
    }
    out.x0 = Math.max(0, Math.min(events, out.x0));
    out.x1 = Math.max(0, Math.min(events, out.x1));
    if (!(out.x1 > out.x0)) {
      [out.x0, out.x1] = [0, 0];
    }
    return out;
  }

  /* What views are shown: the state with its defaults filled in. */
  function shownState() {
    const { events, peak } = device();
    return {
      ...state,
      event: state.event ?? Math.max(-1, Math.min(events - 1, peak.event)),
      color: state.color === "" ? defaultColor() : state.color,
      x1: state.x1 > state.x0 ? state.x1 : events,
      hits: parts.finder.find(model, state.device, state.search),
    };
  }

  /* Keeps the chosen event in the timeline's range. */
  function follow(wanted) {
    const { event, x0, x1 } = wanted;
    if (event === null || x1 <= x0 || (event >= x0 && event < x1)) {
      return wanted;
    }
    const { events } = model.devices[wanted.device];
    const span = x1 - x0;
    const from = Math.max(0, Math.min(events - span, event - span / 2));
    return { ...wanted, x0: from, x1: from + span };
  }

  /* The only way that anything changes: PART holds keys of the state.  The promise is of
   * the page that shows it. */
  function change(part) {
    const known = Object.entries(part).filter(
      ([key]) => Object.hasOwn(memlabAddress.DEFAULT_STATE, key));
    let wanted = { ...state, ...Object.fromEntries(known) };
    if (!isOpen()) {
      state = wanted;
      applyTheme();
      return Promise.resolve();
    }
    if (wanted.device !== state.device) {
      wanted = { ...wanted, x0: 0, x1: 0, y0: 0, y1: 0, event: null, other: -1,
                 brush: null, pinned: null };
    }
    wanted = legal(wanted);
    state = Object.hasOwn(part, "event") && !Object.hasOwn(part, "x0")
      ? follow(wanted) : wanted;
    address.save(state);
    return render();
  }

  /* ---- views ---- */

  function fail(name, error) {
    const { fault } = views.get(name);
    fault.textContent = `This view cannot be shown: ${error.message}`;
    fault.hidden = false;
    console.error(error);
  }

  function callbacksOf(name) {
    return {
      change,
      hover: (info) => parts.tooltip.show(model, state.device, shownState(), info),
      error: (error) => fail(name, error),
    };
  }

  function element(name) {
    return byId(`view-${name}`);
  }

  /* Resolves when the view has drawn what it could. */
  async function showView(shown) {
    const name = shown.view;
    const entry = views.get(name);
    try {
      entry.view ??= VIEWS.get(name)(entry.element, callbacksOf(name));
      await entry.view.show(model, shown.device, shown);
      entry.fault.hidden = true;
    }
    catch (error) {
      fail(name, error);
    }
  }

  function makeViews() {
    views.clear();
    for (const name of VIEWS.keys()) {
      const fault = make("p", { class: "fault", role: "alert" });
      fault.hidden = true;
      const room = make("div", { class: "view" });
      element(name).replaceChildren(fault, room);
      views.set(name, { element: room, fault, view: undefined });
    }
  }

  function showTabs() {
    for (const name of VIEWS.keys()) {
      const chosen = name === state.view;
      element(name).hidden = !chosen;
      byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
      byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
    }
    byId("colors").hidden = !COLORED.includes(state.view);
  }

  /* ---- legend, table, theme ---- */

  let legended = [];

  function showLegend(shown) {
    const d = shown.device;
    const segments = shown.view === "timeline" && shown.memory === "segments";
    const key = [device(), shown.color, memlabColors.isDark(), segments];
    if (key.every((part, i) => part === legended[i])) {
      return;
    }
    legended = key;
    byId("color").value = shown.color;
    byId("color-label").hidden = segments;
    if (segments) {
      const colors = memlabCached.colors();
      byId("legend").replaceChildren(...memlabCached.POOLS.map((text, g) => make(
        "li", {}, make("span", {}, swatch(colors[g]), text))));
      return;
    }
    const items = device().groups[shown.color].map((_, g) => {
      const word = memlabNames.groupWord(model, d, shown.color, g);
      const text = memlabNames.groupText(model, d, shown.color, g);
      const mark = swatch(memlabColors.group(model, d, shown.color, g));
      const said = memlabNames.middle(text, LEGEND_LETTERS);
      return make("li", {}, word === "" ? make("span", {}, mark, said)
        : make("button", { type: "button", title: `${text}: search ${word}`,
                           click: () => change({ search: word }) }, mark, said));
    });
    byId("legend").replaceChildren(...items);
  }

  /* The timeline as a table, for those who do not see it. */
  async function showTable(shown) {
    tables += 1;
    const mine = tables;
    const open = state.table && state.view === "timeline";
    byId("table-open").setAttribute("aria-expanded", String(open));
    byId("table-open").hidden = state.view !== "timeline";
    byId("timeline-table").hidden = !open;
    if (!open) {
      return;
    }
    const rows = await memlabQuery.highest(model, shown.device, Math.floor(shown.x0),
                                           Math.ceil(shown.x1), TABLE_ROWS);
    if (mine !== tables) {
      return;
    }
    const head = ["Event", "Time", "Allocated", "Active", "Reserved"].map(
      (text) => make("th", { scope: "col" }, text));
    byId("timeline-table").replaceChildren(make(
      "table", {}, make("caption", {}, "The event of the most allocated memory in each of "
        + `${rows.length} parts of what the timeline shows`),
      make("thead", {}, make("tr", {}, ...head)),
      make("tbody", {}, ...rows.map((row) => make(
        "tr", {}, ...[formatCount(row.event), formatTime(row.time),
                      formatBytes(row.allocated), formatBytes(row.active),
                      formatBytes(row.reserved)].map((text) => make("td", {}, text)))))));
  }

  function applyTheme() {
    const dark = state.theme === "dark" || (state.theme === "auto"
      && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    memlabColors.setDark(dark);
    byId("theme").textContent = `Theme: ${state.theme}`;
  }

  /* ---- all of it ---- */

  /* What needs chunks waits until the view has had its turn. */
  function later(shown) {
    const d = shown.device;
    const side = byId("inspector");
    side.hidden = !INSPECTED.includes(shown.view) && shown.pinned === null;
    return Promise.all([
      side.hidden ? null : parts.inspector.show(model, d, shown),
      parts.instant.show(model, d, shown),
      showTable(shown),
    ]).catch((error) => fail(shown.view, error));
  }

  let rendering = null;

  /* Once for all changes of one turn. */
  function render() {
    rendering ??= Promise.resolve().then(() => {
      rendering = null;
      applyTheme();
      showTabs();
      showDevice();
      const shown = shownState();
      parts.finder.show(shown);
      showLegend(shown);
      byId("tooltip").hidden = true;
      return showView(shown).then(() => later(shown));
    });
    return rendering;
  }

  let headed = null;

  /* The header, where the device is another than it has. */
  function showDevice() {
    if (headed === device()) {
      return;
    }
    headed = device();
    const d = state.device;
    byId("device").value = String(d);
    byId("facts").replaceChildren(...memlabHeader.facts(model, d));
    const verdict = memlabHeader.verdict(about, model, d);
    byId("verdict").replaceChildren(...verdict);
    byId("verdict").hidden = verdict.length === 0;
    byId("machine").replaceChildren(...memlabHeader.machine(model, d));
    const lines = memlabHeader.warnings(model, d, about.notes);
    byId("warnings").replaceChildren(...lines.map((line) => make("p", {}, line)));
    byId("warnings").hidden = lines.length === 0;
    byId("strip").replaceChildren(...memlabHeader.strip(
      model, d, (to) => change({ device: to })));
  }

  function showTitle() {
    const title = memlabNames.printable(about.title);
    byId("title").textContent = title;
    byId("title").title = title;
    document.title = title === "" ? "memlab" : `${title} · memlab`;
    byId("device").replaceChildren(...model.devices.map((_, d) => make(
      "option", { value: String(d) }, memlabHeader.deviceName(model, d))));
    const several = model.devices.length > 1;
    byId("device-label").hidden = !several;
    byId("strip").hidden = !several;
  }

  /* ---- keys ---- */

  function onKey(key) {
    if (!isOpen() || key.ctrlKey || key.metaKey || key.altKey) {
      return;
    }
    const typing = /^(search|text)$/.test(key.target.type ?? "");
    if (key.key === "Escape" && !byId("help").open) {
      key.target.blur?.();
      change(state.pinned !== null ? { pinned: null } : { search: "" });
      return;
    }
    if (typing || byId("help").open || key.target instanceof HTMLSelectElement) {
      return;
    }
    const go = (sort, by) => () => parts.instant.go(sort, by);
    const actions = {
      "/": () => byId("search").focus(), "n": () => parts.finder.step(1),
      "N": () => parts.finder.step(-1), ",": go("event", -1), ".": go("event", 1),
      "<": go("alloc", -1), ">": go("alloc", 1), "{": go("step", -1), "}": go("step", 1),
      "o": go("oom", 1), "p": go("peak", 0), "t": nextTheme, "c": copyLink,
      "?": () => byId("help").showModal(),
    };
    [...VIEWS.keys()].forEach((view, i) => {
      actions[String(i + 1)] = () => change({ view });
    });
    if (Object.hasOwn(actions, key.key)) {
      key.preventDefault();
      actions[key.key]();
    }
  }

  function nextTheme() {
    change({ theme: THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length] });
  }

  function onTabKey(key) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[key.key];
    if (by !== undefined) {
      const names = [...VIEWS.keys()];
      const view = names[(names.indexOf(state.view) + by + names.length) % names.length];
      change({ view });
      byId(`tab-${view}`).focus();
    }
  }

  /* ---- start ---- */

  function makeParts() {
    const callbacks = { change, error: (error) => fail(state.view, error),
                        found: () => views.get("timeline").view?.redraw() };
    return {
      finder: memlabFinder.create(
        { field: byId("search"), count: byId("search-count"), stop: byId("search-stop"),
          previous: byId("search-previous"), next: byId("search-next") }, callbacks),
      instant: memlabInstant.create(byId("instant"), callbacks),
      inspector: memlabInspector.create(byId("inspector"), callbacks),
      tooltip: memlabInspector.createTooltip(byId("tooltip")),
    };
  }

  /* A link into this page, or an edit of its address. */
  function openAddress(hash) {
    state = legal(memlabAddress.parse(hash));
    address.follow(state);
    return render();
  }

  /* So that it can be sent to somebody who has the page. */
  async function copyLink() {
    address.write(state);
    const copied = await memlabAddress.copy(location.href);
    byId("link").textContent = copied ? "Copied" : "Not copied: it is the address above";
    setTimeout(() => {
      byId("link").textContent = "Copy link";
    }, COPIED_MS);
  }

  function wire() {
    address = memlabAddress.create((hash) => {
      if (isOpen()) {
        openAddress(hash);
      }
    });
    byId("link").addEventListener("click", copyLink);
    for (const view of VIEWS.keys()) {
      byId(`tab-${view}`).addEventListener("click", () => change({ view }));
    }
    byId("tabs").addEventListener("keydown", onTabKey);
    byId("device").addEventListener(
      "change", (event) => change({ device: Number(event.target.value) }));
    byId("color").addEventListener(
      "change", (event) => change({ color: event.target.value }));
    byId("table-open").addEventListener("click", () => change({ table: !state.table }));
    byId("theme").addEventListener("click", nextTheme);
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("help-close").addEventListener("click", () => byId("help").close());
    memlabHelp.fill(byId("help-tables"));
    document.addEventListener("keydown", onKey);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
                                                                () => change({}));
  }

  function refuse(text) {
    byId("page").hidden = true;
    byId("warnings").replaceChildren(make("p", {}, text));
    byId("warnings").hidden = false;
    document.documentElement.dataset.failed = "1";
  }

  /* Of the state of one recording what is meant for another one too: events are not. */
  function kept({ view, theme, axis, color, by, pairs }) {
    return { ...memlabAddress.DEFAULT_STATE, view, theme, axis, color, by, pairs };
  }

  /* Shows a recording: ABOUT is { title, notes, state }, of which the state is shown
   * first where the address says nothing; HEAD the parsed head of its data, READBLOB(n) a
   * promise of the bytes of one of its blobs.  Another one takes the place of the one
   * before. */
  async function start(newAbout, head, readBlob) {
    const root = document.documentElement;
    delete root.dataset.ready;
    delete root.dataset.failed;
    const before = model === null ? null : state;
    try {
      about = newAbout;
      model = memlabData.open(head, readBlob);
      headed = null;
      showTitle();
      if (model.devices.length === 0) {
        refuse("This recording has no device: no GPU was used while it recorded. Record a "
          + "program with: memlab run train.py, or on a machine without a GPU: "
          + "memlab run --phantom=rtx4090 train.py");
        return;
      }
      parts ??= makeParts();
      makeViews();
      byId("page").hidden = false;
      const opened = model;
      model.onFault((error) => {
        if (model === opened) {
          fail(state.view, error);
        }
      });
      const first = about.state === undefined
        ? "" : memlabAddress.format({ ...memlabAddress.DEFAULT_STATE, ...about.state });
      const given = location.hash.length > 1 ? location.hash : first;
      await openAddress(before === null ? given : memlabAddress.format(kept(before)));
      address.write(state);
      performance.mark("memlab-ready");
      root.dataset.ready = "1";
    }
    catch (error) {
      refuse(`This page cannot show its data: ${error.message}`);
      console.error(error);
    }
  }

  /* The page comes to life, with the recording that it holds, where it holds one. */
  function startPage() {
    wire();
    applyTheme();
    const page = JSON.parse(byId("memlab-about").textContent);
    const head = JSON.parse(byId("memlab-data").textContent);
    if (head !== null) {
      start(page, head, memlabBlobs.ofPage(page));
    }
  }

  return { start, startPage, go: change,
           shown: () => ({ model, state: shownState() }) };
})();

memlabViewer.startPage();
