/* The page: reads its data, joins the views and keeps the state in the address bar.
 *
 * Owns every element outside the canvases.  Text from the recording enters the document
 * through textContent only. */
"use strict";

(() => {
  const HASH_DELAY_MS = 250;
  const LEGEND_LINES = 10;
  const DRAWN_AT_FIRST = 15000;
  const THEMES = ["auto", "light", "dark"];
  const VIEWS = ["timeline", "peak", "state"];
  const KEYS = [
    ["1 2 3", "timeline, peak, allocator state"],
    ["/", "search"],
    ["← → ↑ ↓", "pan, or move through the list of events"],
    ["+ −", "zoom (also the wheel; with Shift the height or the lanes)"],
    ["] [", "on the timeline: taller, flatter"],
    ["0", "show all (also a double click)"],
    ["p", "zoom to the peak"],
    ["Esc", "let go of what is pinned, clear the search"],
    ["t", "light or dark"],
    ["?", "this help"],
  ];

  const { formatBytes, formatCount, formatTime, allocationName } = memlabModel;
  const { make, swatch, lineWord, allocationTip, totalsTip, segmentTip } = memlabDescribe;
  const byId = (id) => document.getElementById(id);

  let model = null;
  let device = null;
  let state = null;
  let order = null;
  let found = null;
  let timeline = null;
  let events = null;
  let segments = null;
  let look = null;
  let hashTimer = 0;
  let inspecting = false;

  function facts(list, rows) {
    list.replaceChildren(...rows.map(
      ([name, value, title]) => make("div", {}, make("dt", {}, name),
                                     make("dd", { title: title ?? "" }, value))));
  }

  function shown() {
    return { model, device, look };
  }

  /* ---- state ---- */

  function saveState() {
    clearTimeout(hashTimer);
    hashTimer = setTimeout(() => {
      history.replaceState(null, "", memlabQuery.stateHash(state));
    }, HASH_DELAY_MS);
  }

  function isDark() {
    return state.theme === "dark" || (state.theme === "auto"
      && matchMedia("(prefers-color-scheme: dark)").matches);
  }

  function applyTheme() {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    byId("theme").textContent = `Theme: ${state.theme}`;
  }

  function pageColors() {
    const css = getComputedStyle(document.documentElement);
    const read = (name) => css.getPropertyValue(`--${name}`).trim();
    const colors = {};
    for (const name of ["canvas", "grid", "text", "quiet", "line", "rest", "free",
                        "accent", "bad"]) {
      colors[name] = read(name);
    }
    colors.plate = `${colors.canvas}d9`;
    colors.gridOver = isDark() ? "rgb(255 255 255 / 10%)" : "rgb(0 0 0 / 9%)";
    return colors;
  }

  /* By category where owners are known, else by line: one grey area tells nothing. */
  function colorKind() {
    if (state.color !== "") {
      return state.color;
    }
    const known = device.allocs.category.some((category) => category >= 0
      && !["unknown", "before_recording"].includes(model.categories[category]));
    return known ? "category" : "line";
  }

  function refreshLook() {
    byId("color").value = colorKind();
    look = memlabColors.look(model, device, colorKind(),
                             found === null ? null : found.hits, pageColors());
    timeline.self.look = look;
    timeline.redraw();
    showLegend();
    if (state.view === "state") {
      showEvent();
    }
  }

  /* ---- header ---- */

  function showHeader(about) {
    byId("title").textContent = about.title;
    byId("title").title = about.title;
    document.title = about.title === "" ? "memlab" : `${about.title} · memlab`;
    const select = byId("device");
    select.replaceChildren(...model.devices.map((d, i) => make(
      "option", { value: String(i) },
      d.name ?? `${model.source ?? "device"} ${d.index}`)));
    byId("device-label").hidden = model.devices.length < 2;
  }

  function showFacts() {
    const { events: all, peak } = device;
    facts(byId("facts"), [
      ["Peak allocated", formatBytes(peak.allocated), `${formatCount(peak.allocated)} B`],
      ["Peak reserved", formatBytes(peak.highest.reserved),
       `${formatCount(peak.highest.reserved)} B`],
      ["Events", formatCount(all.count)],
      ["Allocations", formatCount(device.allocs.count)],
      ["Duration", all.count > 0
        ? formatTime(all.time[all.count - 1] - all.time[0]) : "0 µs"],
    ]);
  }

  function plural(count, noun) {
    return `${formatCount(count)} ${noun}${Number(count) === 1 ? "" : "s"}`;
  }

  function showWarnings(about) {
    const { losses, ooms } = device;
    const lines = [...about.notes];
    if (losses.dropped_events > 0) {
      lines.push(`${plural(losses.dropped_events, "event")} never recorded: totals may `
        + "be wrong from there on.");
    }
    if (losses.overwritten_events > 0) {
      lines.push(`${plural(losses.overwritten_events, "older event")} overwritten by `
        + "newer ones: the page starts after them.");
    }
    if (losses.lost_stacks > 0) {
      lines.push(`${plural(losses.lost_stacks, "event")} without its stack: the table of `
        + "stacks was full.");
    }
    if (losses.lost_names > 0) {
      lines.push(`${plural(losses.lost_names, "name")} lost, shown as <lost>: the table of `
        + "names was full.");
    }
    if (device.peak.earlier === 1) {
      lines.push("The recording had a higher peak before the events that are kept.");
    }
    if (device.peak.misfits > 0) {
      lines.push(`${plural(device.peak.misfits, "event")} in conflict with the memory `
        + "there was: totals may be wrong from there on.");
    }
    if (ooms.length > 0) {
      lines.push(`The device ran out of memory: ${plural(ooms.length, "time")}.`);
    }
    if (model.source === "cpu") {
      lines.push("Recorded from torch's CPU allocator: it has no segments, so nothing is "
        + "reserved beyond what is allocated.");
    }
    byId("warnings").replaceChildren(...lines.map((line) => make("p", {}, line)));
    byId("warnings").hidden = lines.length === 0;
  }

  /* ---- inspector and tooltip ---- */

  function allocationActions(id) {
    const { start, end } = device.allocs;
    const box = make("div", { class: "actions" });
    const go = (text, event) => box.append(
      make("button", { type: "button", click: () => {
        chooseEvent(event);
        showView("state");
      } }, text));
    if (start[id] >= 0) {
      go("State when allocated", start[id]);
    }
    if (end[id] < device.events.count) {
      go("State when freed", end[id]);
    }
    box.append(make("button", { type: "button", click: () => {
      showView("timeline");
      const from = Math.max(0, start[id]);
      const to = Math.min(device.events.count, end[id]);
      const { axis } = timeline.self;
      const x0 = memlabBands.positionOf(axis, from);
      const x1 = to >= device.events.count
        ? axis.length : memlabBands.positionOf(axis, to);
      const margin = (x1 - x0) * 0.2;
      timeline.setRange(x0 - margin, x1 + margin);
    } }, "Zoom to lifetime"));
    return box;
  }

  /* Once for all changes of one event: a deep stack takes a while to lay out. */
  function showInspector() {
    if (!inspecting) {
      inspecting = true;
      queueMicrotask(() => {
        inspecting = false;
        inspect(byId("inspector"));
      });
    }
  }

  function inspect(box) {
    if (state.pinned >= 0) {
      inspectAllocation(box, state.pinned);
    }
    else if (state.view === "state" && state.event >= 0) {
      box.replaceChildren(...memlabDescribe.eventParts(shown(), state.event));
    }
    else {
      box.replaceChildren(
        make("p", {}, "Point at a band or a block to see what allocated it; click to pin "
          + "it here. Press ? for the keys."),
        make("h3", {}, "Lines that hold most at the peak"),
        ...memlabDescribe.peakDigest(shown(), search));
    }
  }

  function inspectAllocation(box, id) {
    box.replaceChildren(
      make("h2", {}, allocationName(device.allocs, id)),
      memlabDescribe.allocationFacts(shown(), id),
      allocationActions(id), make("h3", {}, "Allocated at, innermost first"),
      memlabDescribe.stackList(shown(), device.allocs.stack[id]));
  }

  function placeTooltip(pointer, ...content) {
    const tip = byId("tooltip");
    tip.replaceChildren(...content);
    tip.hidden = false;
    const { offsetWidth, offsetHeight } = tip;
    const left = pointer.clientX + 16 + offsetWidth > innerWidth
      ? pointer.clientX - 16 - offsetWidth : pointer.clientX + 16;
    const top = Math.min(pointer.clientY + 16, innerHeight - offsetHeight - 4);
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, top)}px`;
  }

  function hideTooltip() {
    byId("tooltip").hidden = true;
  }

  function hoverTimeline(probe, pointer) {
    if (probe === null) {
      hideTooltip();
    }
    else if (typeof probe.what === "number") {
      placeTooltip(pointer, ...allocationTip(shown(), probe.what));
    }
    else {
      const rest = probe.what === "rest"
        ? [make("div", {}, make("strong", {}, "smaller allocations"))] : [];
      placeTooltip(pointer, ...rest, ...totalsTip(shown(), probe.event));
    }
  }

  function hoverSegments(probe, pointer) {
    if (probe === null) {
      hideTooltip();
    }
    else if (probe.id >= 0) {
      placeTooltip(pointer, ...allocationTip(shown(), probe.id));
    }
    else {
      placeTooltip(pointer, ...segmentTip(shown(), probe));
    }
  }

  function pin(id) {
    state.pinned = id;
    timeline.self.pinned = id;
    timeline.redraw();
    showInspector();
    saveState();
  }

  /* ---- legend and peak ---- */

  function legendItem(color, text, word) {
    return make("li", {}, make("button", { type: "button", title: `search ${word}`,
                                           click: () => search(word) },
                               swatch(color), text));
  }

  function showLegend() {
    const { allocs } = device;
    const items = [];
    if (look.ranks === null) {
      const present = new Set(allocs.category);
      model.categories.forEach((name, code) => {
        if (present.has(code)) {
          items.push(legendItem(memlabColors.ofCategory(name), name.replace(/_/g, " "),
                                name));
        }
      });
    }
    else {
      for (const [line, rank] of look.ranks) {
        if (!memlabModel.isNoLine(model, line) && items.length < LEGEND_LINES) {
          items.push(legendItem(
            memlabColors.ofRank(rank),
            memlabModel.placeText(memlabModel.lineParts(model, line)),
            lineWord(model, line)));
        }
      }
    }
    const rest = make("li", {}, swatch(look.colors.rest), "smaller allocations");
    byId("legend").replaceChildren(...items, rest);
  }

  /* ---- detail, search, events ---- */

  function applyDetail(drawn) {
    state.drawn = drawn;
    const { count } = device.allocs;
    const limit = drawn === 0 ? Math.min(count, DRAWN_AT_FIRST) : Math.min(count, drawn);
    timeline.self.selection = memlabBands.select(device, order, limit);
    byId("detail").value = String(memlabBands.sliderPosition(limit, count));
    byId("detail-count").textContent =
      `${formatCount(limit)} of ${formatCount(count)} drawn`;
    timeline.redraw();
  }

  function search(text) {
    state.search = text;
    byId("search").value = text;
    found = memlabQuery.searchAllocations(model, device, text);
    byId("search-count").textContent = found === null ? ""
      : `${formatCount(found.count)} found`;
    refreshLook();
    listEvents();
    saveState();
  }

  function listEvents() {
    const items = memlabQuery.listEvents(model, device, state.search, state.pairs);
    events.setItems(items);
    byId("event-count").textContent =
      `${formatCount(items.length)} of ${formatCount(device.events.count)} events`;
  }

  function chooseEvent(event) {
    state.event = event;
    pin(-1);
    timeline.self.marked = event;
    timeline.redraw();
    if (state.view === "state") {
      showEvent();
    }
    saveState();
  }

  function showEvent() {
    const { totals } = device;
    const { event } = state;
    events.select(event);
    segments.show(device, event, look, state.pinned);
    const summary = byId("state-summary");
    const values = ["allocated", "active", "reserved"].map(
      (name) => [name, event < 0 ? 0 : totals[name][event]]);
    summary.textContent = event < 0 ? "This device has no events."
      : `After event ${formatCount(event)}: `
      + values.map(([name, bytes]) => `${formatBytes(bytes)} ${name}`).join(", ")
      + ` in ${plural(segments.self.segments.length, "segment")}`;
    summary.title = values.map(([name, bytes]) => `${formatCount(bytes)} B ${name}`)
      .join(", ");
    showInspector();
  }

  function pickSegment(probe) {
    pin(probe !== null ? probe.id : -1);
    showEvent();
  }

  /* ---- views ---- */

  function showView(view) {
    state.view = VIEWS.includes(view) ? view : "timeline";
    for (const name of VIEWS) {
      const chosen = name === state.view;
      byId(`view-${name}`).hidden = !chosen;
      byId(`tab-${name}`).setAttribute("aria-selected", String(chosen));
      byId(`tab-${name}`).tabIndex = chosen ? 0 : -1;
    }
    byId("inspector").hidden = state.view === "peak";
    hideTooltip();
    if (state.view === "state") {
      if (state.event < 0 && device.events.count > 0) {
        state.event = Math.max(0, device.peak.event);
      }
      listEvents();
      showEvent();
    }
    else if (state.view === "timeline") {
      timeline.redraw();
    }
    showInspector();
    saveState();
  }

  function zoomToPeak() {
    showView("timeline");
    timeline.showEvent(device.peak.event, 0.1);
  }

  function showDevice(index, about) {
    device = model.devices[index] ?? model.devices[0];
    state.device = model.devices.indexOf(device);
    byId("device").value = String(state.device);
    order = memlabBands.sizeOrder(device.allocs);
    timeline.setDevice(device, state.axis);
    found = memlabQuery.searchAllocations(model, device, state.search);
    applyDetail(state.drawn);
    refreshLook();
    showFacts();
    showWarnings(about);
    byId("view-peak").replaceChildren(...memlabDescribe.peakParts(shown(), search));
  }

  function restoreState() {
    const { x0, x1, y1, pinned, event } = state;
    byId("axis").value = state.axis;
    byId("pairs").checked = state.pairs;
    if (y1 > 0) {
      timeline.setHeights(0, y1);
    }
    if (x1 > x0) {
      timeline.setRange(x0, x1);
    }
    state.event = event < device.events.count ? Math.trunc(event) : -1;
    timeline.self.marked = state.event;
    state.pinned = pinned < device.allocs.count ? Math.trunc(pinned) : -1;
    timeline.self.pinned = state.pinned;
    search(state.search);
    showView(state.view);
  }

  function onKey(key) {
    if (key.ctrlKey || key.metaKey || key.altKey) {
      return;
    }
    const typing = key.target instanceof HTMLInputElement && key.target.type === "search";
    if (key.key === "Escape") {
      if (typing) {
        key.target.blur();
      }
      search("");
      pin(-1);
      return;
    }
    if (typing || byId("help").open) {
      return;
    }
    const actions = {
      1: () => showView("timeline"),
      2: () => showView("peak"),
      3: () => showView("state"),
      "/": () => byId("search").focus(),
      p: zoomToPeak,
      t: nextTheme,
      "?": () => byId("help").showModal(),
    };
    if (Object.hasOwn(actions, key.key)) {
      key.preventDefault();
      actions[key.key]();
    }
  }

  function nextTheme() {
    state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
    applyTheme();
    refreshLook();
    byId("view-peak").replaceChildren(...memlabDescribe.peakParts(shown(), search));
    saveState();
  }

  /* A link into this page, or an edit of its address. */
  function openAddress(about, hash) {
    clearTimeout(hashTimer);
    state = memlabQuery.parseState(hash);
    applyTheme();
    showDevice(state.device, about);
    restoreState();
  }

  function wire(about) {
    // Not location.hash: a state that was about to be saved may have replaced it since.
    window.addEventListener("hashchange",
                            (change) => openAddress(about, new URL(change.newURL).hash));
    for (const view of VIEWS) {
      byId(`tab-${view}`).addEventListener("click", () => showView(view));
    }
    byId("tabs").addEventListener("keydown", (key) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[key.key];
      if (by !== undefined) {
        const { length } = VIEWS;
        const next = VIEWS[(VIEWS.indexOf(state.view) + by + length) % length];
        showView(next);
        byId(`tab-${next}`).focus();
      }
    });
    byId("device").addEventListener("change", (change) => {
      state.pinned = -1;
      state.event = -1;
      state.drawn = 0;
      showDevice(Number(change.target.value), about);
      showView(state.view);
    });
    byId("axis").addEventListener("change", (change) => {
      state.axis = change.target.value;
      timeline.setAxis(state.axis);
    });
    byId("color").addEventListener("change", (change) => {
      state.color = change.target.value;
      refreshLook();
      saveState();
    });
    byId("detail").addEventListener("input", (input) => {
      applyDetail(memlabBands.drawnLimit(Number(input.target.value),
                                         device.allocs.count));
      saveState();
    });
    byId("search").addEventListener("input", (input) => search(input.target.value));
    byId("pairs").addEventListener("change", (change) => {
      state.pairs = change.target.checked;
      listEvents();
      events.select(state.event);
      saveState();
    });
    byId("zoom-all").addEventListener("click", () => timeline.showAll());
    byId("zoom-peak").addEventListener("click", zoomToPeak);
    byId("theme").addEventListener("click", nextTheme);
    byId("help-open").addEventListener("click", () => byId("help").showModal());
    byId("help-close").addEventListener("click", () => byId("help").close());
    byId("help-keys").append(...KEYS.map(([keys, text]) => make(
      "tr", {}, make("td", {}, ...keys.split(" ").flatMap(
        (k) => [make("kbd", {}, k), " "])), make("td", {}, text))));
    document.addEventListener("keydown", onKey);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      applyTheme();
      refreshLook();
    });
  }

  function start() {
    const about = JSON.parse(byId("memlab-about").textContent);
    state = { ...memlabQuery.DEFAULT_STATE };
    applyTheme();
    model = memlabModel.build(JSON.parse(byId("memlab-data").textContent));
    showHeader(about);
    if (model.devices.length === 0) {
      fail("This recording holds no device.");
      return;
    }
    timeline = memlabTimeline.create(byId("timeline"), {
      range: ({ x0, x1, y1 }) => {
        Object.assign(state, { x0, x1, y1 });
        saveState();
      },
      hover: hoverTimeline,
      pick: (probe) => pin(probe !== null && typeof probe.what === "number"
        ? probe.what : -1),
    });
    events = memlabState.createList(
      byId("event-list"), (event) => memlabState.eventRow(model, device, event),
      chooseEvent);
    segments = memlabState.createSegments(byId("segments"), {
      hover: hoverSegments, pick: pickSegment });
    wire(about);
    openAddress(about, location.hash);
    timeline.draw();
    performance.mark("memlab-ready");
    document.documentElement.dataset.ready = "1";
  }

  function fail(text) {
    byId("warnings").replaceChildren(make("p", {}, text));
    byId("warnings").hidden = false;
    document.documentElement.dataset.failed = "1";
  }

  try {
    start();
  }
  catch (error) {
    fail(`This page cannot show its data: ${error.message}`);
  }
})();
