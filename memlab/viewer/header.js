/* What stands above the views: title, facts, warnings, and the devices to choose from.
 *
 * Owns their wording and elements; all of it is in the head, no blob is waited for. */
"use strict";

const memlabHeader = (() => {
  const { formatBytes, formatCount, formatTime, plural } = memlabNames;
  const { make } = memlabDescribe;
  /* The page's data names no more of them. */
  const OOMS_TOLD = 10000;

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
    return count === 0 ? [] : [`The file has ${plural(count, "value")} that could not be `
      + `read, taken as unknown: ${said}.`];
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
                    title: `peak ${formatCount(bytes)} B`, click: () => choose(d) },
        make("span", { class: "device" }, deviceName(model, d)),
        make("span", { class: "track" }, bar), make("span", {}, formatBytes(bytes))));
    });
  }

  return { deviceName, facts, verdict, warnings, strip };
})();
