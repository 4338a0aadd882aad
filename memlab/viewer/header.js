/* What stands above the views: title, facts, warnings, and the devices to choose from.
 *
 * Owns their wording and elements; all of it is in the head, no blob is waited for. */
"use strict";

const memlabHeader = (() => {
  const { formatBytes, formatCount, formatTime, plural } = memlabNames;
  const { make } = memlabDescribe;
  /* The page's data names no more of them. */
  const OOMS_TOLD = 10000;
  const DEVICE_LETTERS = 26;

  function deviceName(model, d) {
    const { name, index } = model.devices[d];
    return name === undefined || name === "" ? `${model.source ?? "device"} ${index}`
      : memlabNames.printable(name);
  }

  function facts(model, d) {
    const device = model.devices[d];
    const { peak } = device;
    const rows = [
      ["Peak allocated", formatBytes(peak.allocated), `${formatCount(peak.allocated)} B`],
      ["Peak reserved", formatBytes(peak.highest.reserved),
       `${formatCount(peak.highest.reserved)} B`],
      ["Events", formatCount(device.events), ""],
      ["Allocations", formatCount(device.allocs), ""],
      ["Duration", formatTime(device.events > 0 ? device.last_us - device.first_us : 0),
       ""],
    ];
    return rows.map(([name, value, title]) => make(
      "div", {}, make("dt", {}, name), make("dd", { title }, value)));
  }

  function lossLines({ losses }) {
    const lines = [];
    const say = (count, text) => {
      if (count > 0) {
        lines.push(text(count));
      }
    };
    say(losses.dropped_events, (n) => `${plural(n, "event")} never recorded: totals may `
      + "be wrong from there on.");
    say(losses.overwritten_events, (n) => `${plural(n, "older event")} overwritten by `
      + "newer ones: the page starts after them.");
    say(losses.lost_stacks, (n) => `${plural(n, "event")} without its stack: the table of `
      + "stacks was full.");
    say(losses.lost_names, (n) => `${plural(n, "name")} lost, shown as <lost>: the table `
      + "of names was full.");
    return lines;
  }

  function unreadLines({ unread = {} }) {
    const kinds = Object.entries(unread);
    const count = kinds.reduce((sum, [, n]) => sum + n, 0);
    const said = kinds.map(([name, n]) => `${name} ${n}`).join(", ");
    const newer = "memlab.newer" in unread ? "; a newer memlab may read memlab.newer" : "";
    return count === 0 ? [] : [`The file has ${plural(count, "value")} that could not be `
      + `read, taken as unknown: ${said}${newer}.`];
  }

  /* Sentences about what is not as it should be, or not exact. */
  function warnings(model, d, notes) {
    const device = model.devices[d];
    const lines = [...notes.map(memlabNames.printable), ...unreadLines(model),
                   ...lossLines(device)];
    if (Number(device.peak.earlier) === 1) {
      lines.push("The recording had a higher peak before the events that are kept.");
    }
    if (device.peak.misfits > 0) {
      lines.push(`${plural(device.peak.misfits, "event")} in conflict with the memory `
        + "there was: totals may be wrong from there on.");
    }
    if (Number(device.peak.uncertain) > 0) {
      lines.push("Blocks from before the recording may be up to "
        + `${formatBytes(device.peak.uncertain)} larger than shown.`);
    }
    const ooms = device.ooms.length;
    if (ooms > 0) {
      lines.push("The device ran out of memory: "
        + `${ooms < OOMS_TOLD ? plural(ooms, "time") : `${plural(ooms, "time")} or more`}.`);
    }
    if (model.rounded === true) {
      lines.push("Some numbers are above 2^53: they are rounded here, as the browser "
        + "counts. memlab report has them exactly.");
    }
    if (model.source === "cpu") {
      lines.push("Recorded from torch's CPU allocator: it has no segments, so nothing is "
        + "reserved beyond what is allocated.");
    }
    return lines;
  }

  /* What happened on device D and what to change, in the lines of ABOUT. */
  function verdict(about, model, d) {
    const lines = about.verdicts?.[model.devices[d].index] ?? [];
    return lines.map((line) => make("p", {}, memlabNames.printable(line)));
  }

  /* Whose the memory of a whole GPU is, in the words of the report. */
  const GPU_LINES = [
    ["torch_allocated", "torch: allocated"],
    ["torch_pending_free", "torch: freed, waiting for another stream"],
    ["torch_cached", "torch: reserved but not in use"],
    ["outside_at_start", "this process outside torch, at the start"],
    ["outside_first_step", "this process outside torch, added in the first step"],
    ["outside_later", "this process outside torch, added later"],
    ["other_processes", "other processes"],
    ["driver", "driver"],
    ["unknown", "unknown"],
  ];

  function gpuSummary({ gpu, gpu_reason: reason }) {
    if (gpu === null) {
      return reason === "" ? "" : `The whole GPU was not sampled: ${reason}`;
    }
    const of = gpu.total === undefined ? "" : ` of ${formatBytes(gpu.total)}`;
    return `The whole GPU at the peak: ${formatBytes(gpu.used)}${of} used`;
  }

  function gpuTable({ gpu }) {
    if (gpu === null) {
      return [];
    }
    const free = gpu.total === undefined ? []
      : [["free", Math.max(0, Number(gpu.total) - Number(gpu.used))]];
    const rows = [...GPU_LINES.filter(([key]) => Number(gpu.lines[key] ?? 0) !== 0)
      .map(([key, words]) => [words, Number(gpu.lines[key])]), ...free];
    const most = Math.max(1, Number(gpu.total ?? gpu.used));
    const apart = formatTime(Math.abs(gpu.after_us));
    return [make("table", { class: "sums" },
                 make("caption", {}, "The whole GPU at the peak; outside torch as sampled "
                   + `${apart} ${gpu.after_us < 0 ? "before" : "after"} it`),
                 make("tbody", {}, ...rows.map(([words, bytes]) => make(
                   "tr", {}, make("th", { scope: "row" }, words),
                   make("td", { class: "number", title: `${formatCount(bytes)} B` },
                        formatBytes(bytes)),
                   make("td", { class: "column-bar" },
                        memlabTables.bar(bytes, most))))))];
  }

  /* Settings that torch has at first say nothing. */
  const PLAIN = { max_split_size: -1, max_round_threshold: -1, max_cached_size: -1,
                  pinned_num_register_threads: 1 };

  function isPlain([key, value]) {
    return [false, "", 0, null].includes(value)
      || (Array.isArray(value) && value.every((each) => each === 0))
      || (Object.hasOwn(PLAIN, key) && PLAIN[key] === value);
  }

  function settingText([key, value]) {
    return `${memlabNames.printable(key)}=${memlabNames.printable(String(value))}`;
  }

  function settingsSummary({ settings }) {
    const conf = settings.find(([key]) => key.endsWith("ALLOC_CONF") || key === "conf");
    const others = settings.filter((setting) => !isPlain(setting));
    return settings.length === 0 ? ""
      : conf !== undefined && conf[1] !== "" ? settingText(conf)
        : others.length === 0 ? "allocator settings: torch's defaults"
          : `allocator settings: ${others.map(settingText).join(", ")}`;
  }

  /* The whole GPU and the allocator's settings: one line, and more when it is opened. */
  function machine(model, d) {
    const device = model.devices[d];
    const said = [gpuSummary(device), settingsSummary(device)].filter((text) => text !== "");
    if (said.length === 0) {
      return [];
    }
    const list = device.settings.map((setting) => make(
      "li", { class: isPlain(setting) ? "quiet" : "" }, settingText(setting)));
    return [make("details", {}, make("summary", {}, said.join(" · ")),
                 make("div", { class: "machine" }, ...gpuTable(device),
                      make("ul", { class: "mono", "aria-label": "Allocator settings" },
                           ...list)))];
  }

  /* One button a device, with its peak beside those of the others. */
  function strip(model, chosen, choose) {
    const most = model.devices.reduce(
      (max, device) => Math.max(max, Number(device.peak.allocated)), 1);
    return model.devices.map((device, d) => {
      const bytes = Number(device.peak.allocated);
      const bar = make("span", { class: "bar" });
      bar.style.width = `${(bytes / most * 100).toFixed(2)}%`;
      return make("li", {}, make(
        "button", { type: "button", "aria-pressed": String(d === chosen),
                    title: `${deviceName(model, d)}, peak ${formatCount(bytes)} B`, click: () => choose(d) },
        make("span", { class: "device" },
             memlabNames.middle(deviceName(model, d), DEVICE_LETTERS)),
        make("span", { class: "track" }, bar), make("span", {}, formatBytes(bytes))));
    });
  }

  return { deviceName, facts, verdict, machine, warnings, strip };
})();
