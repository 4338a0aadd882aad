/* The help: what keys and gestures do, in the whole page and in each view.
 *
 * Owns the words. */
"use strict";

const memlabHelp = (() => {
  const { make } = memlabDescribe;

  /* A title, then what to press or do, and what it does.  Keys stand apart by spaces. */
  const TABLES = [
    { title: "Keys", keys: true, rows: [
      ["1 2 3 4 5 6", "timeline, breakdown, flame graph, allocator state, events, growth"],
      ["/", "search; Enter: next match, Shift Enter: the one before"],
      ["n N", "next match, the one before"],
      [", .", "event before, next event"],
      ["< >", "allocation before, next allocation"],
      ["{ }", "step before, next step"],
      ["o", "next out of memory"],
      ["p", "the event of the peak"],
      ["Esc", "let go of what is pinned, then clear the search"],
      ["c", "copy the link to what is shown"],
      ["t", "theme: auto, light, dark"],
      ["?", "this help"]] },
    { title: "Keys, on the timeline", keys: true, rows: [
      ["← → ↑ ↓", "pan"],
      ["+ − 0", "zoom in, out, show all"],
      ["] [", "stretch, shrink the height"],
      ["Home End", "to the beginning, to the end"],
      ["z", "zoom to the brushed range"]] },
    { title: "Keys, on the tree map and flame graphs", keys: true, rows: [
      ["↑ ↓", "parent, largest child"],
      ["← →", "larger, smaller neighbour"],
      ["Enter Esc Home", "zoom in, out, show all"]] },
    { title: "Keys, in the allocator state", keys: true, rows: [
      ["↑ ↓ ← →", "segment, block; with Shift pan"],
      ["+ − 0", "zoom in, out, show all"],
      ["Enter", "pin the block"]] },
    { title: "Mouse and touch", keys: false, rows: [
      ["point", "what a band, a box or a block is"],
      ["click, tap", "choose an instant and pin its allocation; zoom to a box"],
      ["drag", "pan the timeline or the segments"],
      ["wheel, pinch", "zoom the timeline; segments with Ctrl or Shift"],
      ["Shift wheel", "stretch the timeline's height"],
      ["Shift drag", "brush a range: the flame graph shows it"],
      ["Ctrl drag", "zoom to a box of the timeline"],
      ["double click", "show all of the timeline"],
      ["Back, Forward", "the browser's: the view or zoom before, the next one"]] },
  ];

  function tableOf({ title, keys, rows }) {
    const first = (text) => keys
      ? text.split(" ").flatMap((key) => [make("kbd", {}, key), " "]) : [text];
    return make("table", {}, make("caption", {}, title), make(
      "tbody", {}, ...rows.map(([what, text]) => make(
        "tr", {}, make("th", { scope: "row" }, ...first(what)), make("td", {}, text)))));
  }

  function fill(element) {
    element.append(...TABLES.map(tableOf));
  }

  return { fill };
})();
