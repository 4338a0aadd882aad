/* Colours of allocations, by category or by line of code, and of the page's canvases.
 *
 * Owns the palettes: Okabe and Ito's, which stays distinct for colour-blind readers, and
 * shades of it for more lines than it has hues.  Knows nothing of the page. */
"use strict";

const memlabColors = (() => {
  const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
                "#b8a800", "#7a5fb5", "#8c6d46", "#4f8a8b"];
  const CATEGORY_HUES = new Map([
    ["parameter", "#0072b2"],
    ["gradient", "#009e73"],
    ["optimizer_state", "#e69f00"],
    ["activation", "#d55e00"],
    ["temporary", "#cc79a7"],
    ["buffer", "#56b4e9"],
    ["input", "#c9bb1c"],
    ["workspace", "#7a5fb5"],
    ["communication", "#8c6d46"],
    ["before_recording", "#7c8799"],
    ["unknown", "#a3adbd"],
  ]);
  const SHADES = [1, 0.78, 1.22];
  const NEIGHBOURS = [1, 0.92, 1.07];
  const DIMMED = 0.2;
  const CHOSEN = [255, 59, 212];

  function parse(hex) {
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function scale(color, factor) {
    return color.map((v) => factor <= 1 ? v * factor : v + (255 - v) * (factor - 1) * 1.6)
      .map((v) => Math.round(Math.max(0, Math.min(255, v))));
  }

  function mix(color, other, share) {
    return color.map((v, i) => Math.round(v * share + other[i] * (1 - share)));
  }

  /* As the raster stores pixels: the bytes red, green, blue, alpha in memory order. */
  function pack([r, g, b]) {
    return new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0];
  }

  function text([r, g, b]) {
    return `rgb(${r} ${g} ${b})`;
  }

  function ofRank(rank) {
    const hue = parse(HUES[rank % HUES.length]);
    return scale(hue, SHADES[Math.floor(rank / HUES.length) % SHADES.length]);
  }

  function ofCategory(name) {
    return parse(CATEGORY_HUES.get(name) ?? CATEGORY_HUES.get("unknown"));
  }

  /* Lines by the bytes they hold at the peak, then by all they allocate. */
  function rankLines(model, device) {
    const { allocs } = device;
    const bytes = new Map();
    for (let i = 0; i < allocs.count; i++) {
      const line = memlabModel.lineOfStack(model, allocs.stack[i]);
      const row = bytes.get(line) ?? { line, peak: 0, all: 0 };
      row.all += allocs.bytes[i];
      if (allocs.start[i] <= device.peak.event && allocs.end[i] > device.peak.event) {
        row.peak += allocs.bytes[i];
      }
      bytes.set(line, row);
    }
    const rows = [...bytes.values()]
      .sort((a, b) => b.peak - a.peak || b.all - a.all || a.line - b.line);
    return new Map(rows.map((row, rank) => [row.line, rank]));
  }

  /* Every allocation's colour: KIND "category" or "line"; HITS, where given, dims the
   * others; CSS holds the page's own colours by name. */
  function look(model, device, kind, hits, css) {
    const { allocs } = device;
    const ranks = kind === "line" ? rankLines(model, device) : null;
    const back = parse(css.canvas);
    const fill = new Uint32Array(allocs.count);
    const edge = new Uint32Array(allocs.count);
    const texts = new Array(allocs.count);
    const known = new Map();
    for (let i = 0; i < allocs.count; i++) {
      const line = memlabModel.lineOfStack(model, allocs.stack[i]);
      const byLine = kind === "line" && !memlabModel.isNoLine(model, line);
      const key = byLine ? ranks.get(line) : model.lines.line.length + allocs.category[i];
      const dim = hits !== null && hits[i] === 0;
      const shade = i % NEIGHBOURS.length;
      const id = (key * NEIGHBOURS.length + shade) * 2 + Number(dim);
      let entry = known.get(id);
      if (entry === undefined) {
        const base = byLine
          ? ofRank(key) : ofCategory(model.categories[allocs.category[i]]);
        let color = scale(base, NEIGHBOURS[shade]);
        color = dim ? mix(color, back, DIMMED) : color;
        entry = { fill: pack(color), edge: pack(mix(color, back, 0.6)),
                  text: text(color) };
        known.set(id, entry);
      }
      fill[i] = entry.fill;
      edge[i] = entry.edge;
      texts[i] = entry.text;
    }
    return { fill, edge, rest: pack(parse(css.rest)), background: pack(back),
             chosen: pack(CHOSEN), chosenText: text(CHOSEN), text: (id) => texts[id],
             colors: css, ranks };
  }

  return { look, ofRank: (rank) => text(ofRank(rank)),
           ofCategory: (name) => text(ofCategory(name)) };
})();
