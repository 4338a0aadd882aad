/* The search field: what it finds is counted in the background, and stepped through.
 *
 * Owns the field, its count and its buttons; memlabQuery does the work.  What is found
 * goes out through the callbacks. */
"use strict";

const memlabFinder = (() => {
  const TYPING_MS = 150;

  const { formatBytes, formatCount } = memlabNames;

  /* ELEMENTS: { field, count, stop, previous, next }. */
  function create(elements, callbacks) {
    const { field, count, stop, previous, next } = elements;
    let model = null;
    let d = 0;
    let state = null;
    let hits = null;
    let asked = null;
    let turn = 0;
    let typing = 0;

    function tell({ done, of, count: found, bytes, starts }) {
      const percent = done < of ? `, ${Math.floor(done / of * 100)} % searched` : "";
      count.textContent = found === 0 && done >= of
        ? "nothing found: try a function, a file or >10MiB"
        : `${formatCount(found)} found, ${formatBytes(bytes)} in all${percent}`;
      stop.hidden = done >= of;
      hits.starts = starts;
      callbacks.found();
    }

    async function countAll() {
      turn += 1;
      const mine = turn;
      stop.hidden = true;
      if (hits === null) {
        count.textContent = "";
        return;
      }
      tell({ done: 0, of: model.devices[d].chunkCount, count: 0, bytes: 0,
             starts: new Int32Array(0) });
      await memlabQuery.count(model, d, hits, tell, () => mine !== turn);
    }

    /* What TEXT finds in a model; the same object as long as both stay. */
    function find(newModel, newD, text) {
      const changed = model !== newModel || asked !== text;
      const moved = changed || d !== newD;
      [model, d] = [newModel, newD];
      if (changed) {
        asked = text;
        hits = memlabQuery.compile(model, text);
      }
      if (moved) {
        field.value = text;
        previous.disabled = hits === null;
        next.disabled = hits === null;
        countAll().catch(callbacks.error);
      }
      return hits;
    }

    /* To the next match: an event in the list of events, elsewhere an allocation. */
    async function step(by) {
      if (hits === null || model.devices[d].events === 0) {
        return;
      }
      const alloc = model.actions.indexOf("alloc");
      const listed = state.view === "events";
      const test = listed ? hits.ofEvent : ({ events, rows }, i) =>
        events.action[i] === alloc && hits.matches(rows, events.row[i]);
      const from = state.event;
      const here = [model, d];
      const stopped = () => here[0] !== model || here[1] !== d;
      const event = await memlabQuery.nearest(model, d, from, by, test, stopped);
      if (event < 0) {
        count.textContent = by > 0 ? "none follows" : "none before";
        return;
      }
      const chunk = await model.chunk(d, model.chunkOf(d, event));
      const row = chunk.events.row[event - chunk.first];
      callbacks.change({ event, pinned: listed || row < 0 ? null
        : { chunk: chunk.index, id: chunk.rows.id[row] } });
    }

    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => callbacks.change({ search: field.value }), TYPING_MS);
    });
    field.addEventListener("keydown", (key) => {
      if (key.key === "Enter") {
        key.preventDefault();
        clearTimeout(typing);
        if (field.value === asked) {
          step(key.shiftKey ? -1 : 1).catch(callbacks.error);
        }
        else {
          callbacks.change({ search: field.value });
        }
      }
    });
    stop.addEventListener("click", () => {
      turn += 1;
      stop.hidden = true;
      count.textContent += " (stopped)";
    });
    next.addEventListener("click", () => step(1).catch(callbacks.error));
    previous.addEventListener("click", () => step(-1).catch(callbacks.error));

    function show(newState) {
      state = newState;
    }

    return { find, show, step: (by) => step(by).catch(callbacks.error) };
  }

  return { create };
})();
