/* Colours of groups of allocations, by category, module, line or size, and of canvases.
 *
 * Owns the palettes: Okabe and Ito's, which colour-blind readers can tell apart, and
 * shades of it for more groups than it has hues; sizes go from light to dark.  Knows
 * nothing of the page but its theme. */
"use strict";

const memlabColors = (() => {
  const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
                "#b8a800", "#7a5fb5", "#8c6d46", "#4f8a8b"];
  const SHADES = [1, 0.78, 1.22];
  const OTHERS = "#a3adbd";
  const CATEGORY_HUES = new Map([
    ["parameter", "#0072b2"],
    ["gradient", "#009e73"],
    ["optimizer_state", "#e69f00"],
    ["activation", "#d55e00"],
    ["temporary", "#cc79a7"],
    ["buffer", "#56b4e9"],
    ["input", "#c9bb1c"],
    ["other", "#4f8a8b"],
    ["workspace", "#7a5fb5"],
    ["communication", "#8c6d46"],
    ["before_recording", "#7c8799"],
    ["unknown", "#a3adbd"],
  ]);
  /* Cividis, which has the same order of lightness for everybody. */
  const SCALE = ["#fee838", "#d9c55c", "#b3a772", "#918f78", "#757575", "#56606f",
                 "#33466c", "#00306f"];
  const PAGE = {
    light: { canvas: "#ffffff", grid: "#e4e7ec", text: "#1b1f27", quiet: "#5a6372",
             line: "#8b93a1", rest: "#c9ced6", free: "#eef0f4", accent: "#0b63b0",
             bad: "#b3261e", chosen: "#d6008f", plate: "#ffffffd9",
             gridOver: "rgb(0 0 0 / 9%)" },
    dark: { canvas: "#171a20", grid: "#2a303a", text: "#e7eaf0", quiet: "#9aa4b5",
            line: "#5b6575", rest: "#4a5260", free: "#262b34", accent: "#6db3f2",
            bad: "#ff8a80", chosen: "#ff59d6", plate: "#171a20d9",
            gridOver: "rgb(255 255 255 / 10%)" },
  };

  let dark = false;

  function parse(hex) {
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }

  function text(parts) {
    return `#${parts.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
  }

  function scale(parts, factor) {
    const scaled = (v) => (factor <= 1 ? v * factor : v + (255 - v) * (factor - 1) * 1.6);
    return parts.map((v) => Math.round(Math.max(0, Math.min(255, scaled(v)))));
  }

  /* SHARE of the first colour, the rest of the second; both "#rrggbb". */
  function mix(color, other, share) {
    const back = parse(other);
    return text(parse(color).map(
      (v, i) => Math.round(v * share + back[i] * (1 - share))));
  }

  /* As a raster stores pixels: the bytes red, green, blue, alpha in memory order. */
  function pack(color) {
    return new Uint32Array(new Uint8Array([...parse(color), 255]).buffer)[0];
  }

  function ofRank(rank) {
    const shade = SHADES[Math.floor(rank / HUES.length) % SHADES.length];
    return text(scale(parse(HUES[rank % HUES.length]), shade));
  }

  function ofCategory(name) {
    return CATEGORY_HUES.get(name) ?? CATEGORY_HUES.get("unknown");
  }

  /* The "#rrggbb" of one group. */
  function group(model, d, scheme, g) {
    const groups = model.devices[d].groups[scheme];
    if (scheme === "category") {
      return ofCategory(model.categories[groups[g]]);
    }
    if (scheme === "size") {
      const at = groups.length > 1 ? g / (groups.length - 1) : 1;
      return SCALE[Math.round((1 - (dark ? 1 - at : at)) * (SCALE.length - 1))];
    }
    return groups[g] < 0 ? OTHERS : ofRank(g);
  }

  function groupOf(model, d, scheme, kind, bytes) {
    const device = model.devices[d];
    if (scheme !== "size") {
      return device.group_of_kind[scheme][kind];
    }
    const bounds = device.groups.size;
    let g = bounds.length - 1;
    while (g > 0 && bounds[g] > bytes) {
      g -= 1;
    }
    return g;
  }

  function setDark(value) {
    dark = value;
  }

  function isDark() {
    return dark;
  }

  /* The colours of canvases in the theme of now. */
  function page() {
    return dark ? PAGE.dark : PAGE.light;
  }

  return { group, groupOf, ofCategory, ofRank, setDark, isDark, page, pack, mix };
})();
