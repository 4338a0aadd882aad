/* The chosen instant: what it is, and the buttons that step to another.
 *
 * Owns how the next allocation, step or out of memory is found; what is chosen goes out
 * through the callbacks. */
"use strict";

const memlabInstant = (() => {
  const { formatBytes, formatCount, formatTime } = memlabNames;
  const { make } = memlabDescribe;

  /* The event of each step's end that lies on the side BY of FROM, nearest first. */
  async function stepEvent(model, d, from, by) {
    const ends = memlabNames.stepEnds(model, d);
    for (const { time } of by > 0 ? ends : [...ends].reverse()) {
      const event = await model.eventAtTime(d, time);
      if (by > 0 ? event > from : event < from) {
        return event;
      }
    }
    return -1;
  }

  function actionTest(model, name) {
    const action = model.actions.indexOf(name);
    return (chunk, i) => chunk.events.action[i] === action;
  }

  function create(element, callbacks) {
    const said = make("output", { id: "instant-text" });
    const event = make("input", { id: "instant-event", inputmode: "numeric",
                                  autocomplete: "off", "aria-label": "Chosen event" });
    let model = null;
    let d = 0;
    let state = null;
    let turn = 0;

    function choose(to) {
      callbacks.change({ event: to, pinned: null });
    }

    function stepBy(by) {
      const to = Math.max(-1, Math.min(model.devices[d].events - 1, state.event + by));
      choose(to);
    }

    /* FIND(model, d, from, by, stopped) is an event or -1, or a promise of it. */
    async function seek(find, by, none) {
      turn += 1;
      const mine = turn;
      const to = await find(model, d, state.event, by, () => mine !== turn);
      if (mine !== turn) {
        return;
      }
      if (to >= 0) {
        choose(to);
      }
      else {
        said.textContent = none;
      }
    }

    const nearest = (name) => (m, dd, from, by, stopped) => memlabQuery.nearest(
      m, dd, from, by, actionTest(m, name), stopped);

    /* After the last comes the first again. */
    function oomEvent(m, dd, from) {
      const { ooms } = m.devices[dd];
      return ooms.find((oom) => oom > from) ?? ooms[0] ?? -1;
    }

    const seeks = {
      event: (by) => stepBy(by),
      alloc: (by) => seek(nearest("alloc"), by, by > 0 ? "No allocation follows."
        : "No allocation before it."),
      step: (by) => seek(stepEvent, by, memlabNames.stepEnds(model, d).length === 0
        ? "The recording has no steps." : "No step ends there."),
      oom: (by) => seek(oomEvent, by, "The device never ran out of memory."),
      peak: () => choose(model.devices[d].peak.event),
    };

    /* Goes to the next event of a sort; BY -1: to the one before. */
    function go(sort, by) {
      if (model !== null && model.devices[d].events > 0) {
        Promise.resolve(seeks[sort](by)).catch(callbacks.error);
      }
    }

    function stepButton(text, label, sort, by) {
      return make("button", { type: "button", "aria-label": label, title: label,
                              click: () => go(sort, by) }, text);
    }

    element.append(
      stepButton("« step", "Step before", "step", -1),
      stepButton("‹ alloc", "Allocation before", "alloc", -1),
      stepButton("‹", "Event before", "event", -1),
      make("label", {}, "Event ", event),
      stepButton("›", "Next event", "event", 1),
      stepButton("alloc ›", "Next allocation", "alloc", 1),
      stepButton("step »", "Next step", "step", 1),
      stepButton("OOM »", "Next out of memory", "oom", 1),
      stepButton("peak", "The event of the peak", "peak", 0), said);

    event.addEventListener("change", () => {
      const number = Number(event.value.replace(/[^\d-]/g, ""));
      const most = model.devices[d].events - 1;
      choose(Math.max(-1, Math.min(most, Math.trunc(number) || 0)));
    });

    async function tell() {
      const mine = turn;
      const device = model.devices[d];
      event.value = formatCount(state.event);
      if (device.events === 0) {
        said.textContent = "no events";
        return;
      }
      const chunk = await model.chunk(d, model.chunkOf(d, state.event));
      if (mine !== turn) {
        return;
      }
      const i = state.event - chunk.first;
      const parts = [`of ${formatCount(device.events)}`];
      if (i >= 0) {
        const time = chunk.events.time[i];
        parts.push(formatTime(time));
        const step = memlabNames.stepAt(model, d, time);
        if (step >= 0) {
          parts.push(`step ${formatCount(step)}`);
        }
        parts.push(...memlabNames.phasesAt(model, d, time).slice(0, 3));
      }
      const bytes = i < 0 ? chunk.before.allocated : chunk.totals.allocated[i];
      parts.push(`${formatBytes(bytes)} allocated`);
      said.textContent = parts.join(" · ");
    }

    function show(newModel, newD, newState) {
      const same = model === newModel && d === newD && state?.event === newState.event;
      [model, d, state] = [newModel, newD, newState];
      if (!same) {
        turn += 1;
        tell().catch(callbacks.error);
      }
    }

    return { show, go };
  }

  return { create };
})();
