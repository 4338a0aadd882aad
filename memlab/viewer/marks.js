/* What is drawn over and beside the bands of the timeline: axes, the line of what is
 * reserved, steps, phases, marks, and the instants that are chosen.
 *
 * Owns how they look and which of them have room.  A PLOT tells where things are:
 * left, top, width, height (of the bands), range, extent, view, columns, page
 * (colours), notes, ooms ({ event, bytes or null } of the range).  Knows neither
 * pointers nor the rest of the page. */
"use strict";

const memlabMarks = (() => {
  const LANE = 14;
  const MOST_LANES = 3;
  const FLAG_ROWS = 4;
  const FLAG_HEIGHT = 16;
  const HIT_WIDTH = 1.5;
  const HIT_HEIGHT = 5;
  const LEAST_SPAN = 1.5; /* pixels */
  const LEAST_LETTERS = 5; /* fewer name nothing */
  const TEXT_WIDTH = 6.2; /* of a letter at 11 pixels, about */
  const FONT = "11px system-ui, \"DejaVu Sans\", sans-serif";
  const SPANS = ["phase", "region", "annotation"];

  const { formatBytes, formatCount } = memlabNames;
  const { lastAtMost } = memlabData;

  /* ---- notes, sorted for drawing ---- */

  /* Steps, spans and marks of one device.  Spans have a lane each: the depth at
   * which they are nested, as far as there is room. */
  function sortNotes(model, d) {
    const mine = memlabNames.notesOf(model, d)
      .sort((a, b) => a.time - b.time);
    const of = (kind) => mine.filter((note) => note.kind === kind);
    const steps = of("step");
    const open = [];
    const spans = [];
    for (const note of mine) {
      if (SPANS.includes(note.kind)) {
        while (open.length > 0 && open[open.length - 1] <= note.time) {
          open.pop();
        }
        if (open.length < MOST_LANES) {
          spans.push({ from: note.time, to: note.end ?? Infinity, lane: open.length,
                       text: note.name });
        }
        open.push(note.end ?? Infinity);
      }
    }
    return { steps, stepTimes: Float64Array.from(steps, (note) => note.time), spans,
             starts: Float64Array.from(spans, (span) => span.from),
             longest: spans.reduce((most, { from, to }) =>
               Math.max(most, to === Infinity ? most : to - from), 0),
             endless: spans.filter((span) => span.to === Infinity),
             lanes: spans.reduce((most, span) => Math.max(most, span.lane + 1), 0),
             marks: of("mark") };
  }

  /* Pixels that steps and spans take above the bands. */
  function laneHeight(notes) {
    return LANE * (Number(notes.steps.length > 0) + notes.lanes);
  }

  /* ---- where ---- */

  function xOf(plot, position) {
    const { x0, x1 } = plot.range;
    return plot.left + (position - x0) / (x1 - x0) * plot.width;
  }

  function yOf(plot, bytes) {
    const { y0, y1 } = plot.view;
    return plot.top + plot.height - (bytes - y0) / (y1 - y0) * plot.height;
  }

  function xOfColumn(plot, p) {
    return plot.left + p / plot.columns.width * plot.width;
  }

  /* By events, a time is where the first column begins that is not before it. */
  function xOfTime(plot, us) {
    if (plot.range.axis === "time") {
      return xOf(plot, us);
    }
    const { time, width } = plot.columns;
    const p = lastAtMost(time, us);
    if (p < 0) {
      return -Infinity;
    }
    return p === width - 1 && us > time[p] && plot.range.x1 < plot.extent.to
      ? Infinity : xOfColumn(plot, p);
  }

  function xOfEvent(plot, event) {
    const { axis, x1 } = plot.range;
    if (axis !== "time") {
      return xOf(plot, event < 0 ? 0 : event + 0.5);
    }
    const { begin, event: shown, width } = plot.columns;
    const p = lastAtMost(begin, event);
    if (p < 0) {
      return event < 0 && plot.range.x0 <= plot.extent.from ? plot.left : -Infinity;
    }
    return p === width - 1 && event > Math.max(begin[p], shown[p]) && x1 < plot.extent.to
      ? Infinity : xOfColumn(plot, p + 0.5);
  }

  function inside(plot, x) {
    return x >= plot.left && x <= plot.left + plot.width;
  }

  /* ---- drawing ---- */

  /* With as many digits as tell a tick from the next one, STEP microseconds on. */
  function tickTime(us, step) {
    const [unit, name] = us >= 1e6 ? [1e6, "s"] : us >= 1e3 ? [1e3, "ms"] : [1, "µs"];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    return `${(us / unit).toFixed(Math.min(6, digits))} ${name}`;
  }

  /* A STEP of the form 1, 2 or 5 times a power of ten (of two for bytes). */
  function niceStep(span, ticks, binary) {
    const raw = Math.max(span / ticks, 1);
    if (binary) {
      return 2 ** Math.ceil(Math.log2(raw));
    }
    const power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  }

  function line(context, xa, ya, xb, yb) {
    context.beginPath();
    context.moveTo(xa, ya);
    context.lineTo(xb, yb);
    context.stroke();
  }

  function drawAxes(context, plot) {
    const { page, left, top, width, height } = plot;
    const { axis, x0, x1 } = plot.range;
    const { y0, y1 } = plot.view;
    context.font = FONT;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    const stepY = niceStep(y1 - y0, height / 60, true);
    for (let y = Math.ceil(y0 / stepY) * stepY; y <= y1; y += stepY) {
      const py = Math.round(yOf(plot, y)) + 0.5;
      context.strokeStyle = page.gridOver;
      line(context, left, py, left + width, py);
      context.fillStyle = page.quiet;
      context.fillText(formatBytes(y), left - 6, py);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const stepX = niceStep(x1 - x0, width / 110, false);
    context.strokeStyle = page.line;
    context.fillStyle = page.quiet;
    for (let x = Math.ceil(x0 / stepX) * stepX; x <= x1; x += stepX) {
      const px = Math.round(xOf(plot, x)) + 0.5;
      line(context, px, top + height, px, top + height + 4);
      const text = axis === "time" ? tickTime(x, stepX) : formatCount(x);
      // The last one would end outside.
      const most = left + width - context.measureText(text).width / 2;
      context.fillText(text, Math.min(px, most), top + height + 7);
    }
    line(context, left + 0.5, top, left + 0.5, top + height);
  }

  /* X, or the nearest place where a text WIDTH wide does not stick out. */
  function labelLeft(plot, x, width) {
    return Math.max(plot.left + 2, Math.min(plot.left + plot.width - width - 4, x));
  }

  /* Text on a plate, readable over any band.
   * Returns what it takes up. */
  function label(context, plot, text, x, y, color) {
    const { width } = context.measureText(text);
    const from = labelLeft(plot, x, width);
    context.fillStyle = plot.page.plate;
    context.fillRect(from - 3, y, width + 6, 15);
    context.fillStyle = color;
    context.textAlign = "left";
    context.textBaseline = "top";
    context.fillText(text, from, y + 2);
    return { left: from - 6, right: from + width + 6, top: y, bottom: y + 15 };
  }

  /* Returns the places of its labels. */
  function drawReserved(context, plot) {
    const { reserved, width, source } = plot.columns;
    context.save();
    context.beginPath();
    context.rect(plot.left, plot.top, plot.width, plot.height);
    context.clip();
    context.beginPath();
    let last = NaN;
    for (let p = 0; p < width; p++) {
      const y = Math.round(yOf(plot, reserved[p])) + 0.5;
      if (source[p] >= 0 && y !== last) {
        const x = xOfColumn(plot, p);
        if (Number.isNaN(last)) {
          context.moveTo(x, y);
        }
        else {
          context.lineTo(x, last);
          context.lineTo(x, y);
        }
        last = y;
      }
    }
    context.lineTo(plot.left + plot.width, last);
    context.strokeStyle = plot.page.text;
    context.setLineDash([5, 3]);
    context.stroke();
    context.setLineDash([]);
    context.restore();
    if (Number.isNaN(last)) {
      return [];
    }
    context.font = FONT;
    return [label(
      context, plot,
      `${last < plot.top ? "↑ " : ""}reserved ${formatBytes(reserved[width - 1])}`,
      Infinity, Math.max(plot.top, last - 17), plot.page.text)];
  }

  function shortened(text, room) {
    const letters = Math.floor(room / TEXT_WIDTH);
    return letters < LEAST_LETTERS && letters < text.length ? ""
      : memlabNames.middle(text, letters);
  }

  function drawSteps(context, plot, y) {
    const { steps, stepTimes } = plot.notes;
    const { time, width } = plot.columns;
    const byTime = plot.range.axis === "time";
    const from = lastAtMost(stepTimes, byTime ? plot.range.x0 : time[0]);
    const to = Math.min(steps.length - 1, 1 + lastAtMost(
      stepTimes, byTime ? plot.range.x1 : time[width - 1]));
    const every = niceStep((to - from + 1) * 64, plot.width, false);
    const dense = (to - from + 1) * 6 > plot.width;
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "center";
    context.strokeStyle = plot.page.line;
    context.fillStyle = plot.page.quiet;
    for (let i = Math.max(0, from); i <= to; i++) {
      if (dense && steps[i].value % every !== 0) {
        continue;
      }
      const right = xOfTime(plot, stepTimes[i]);
      const left = i > 0 ? xOfTime(plot, stepTimes[i - 1]) : plot.left;
      if (inside(plot, right)) {
        line(context, Math.round(right) + 0.5, y, Math.round(right) + 0.5,
             dense ? y + LANE : plot.top + plot.height);
      }
      const [a, b] = [Math.max(plot.left, left),
                      Math.min(plot.left + plot.width, right)];
      if (steps[i].value % every === 0 && b >= a) {
        const text = b - a > 52 ? `step ${formatCount(steps[i].value)}`
          : formatCount(steps[i].value);
        const at = dense ? Math.max(plot.left + 20, Math.min(b, plot.left + plot.width - 20))
          : (a + b) / 2;
        context.fillText(text, at, y + LANE / 2);
      }
    }
  }

  function drawSpans(context, plot, y) {
    const { spans, starts, longest, endless, lanes } = plot.notes;
    const { time, width } = plot.columns;
    const byTime = plot.range.axis === "time";
    const fromUs = byTime ? plot.range.x0 : time[0];
    const toUs = byTime ? plot.range.x1 : time[width - 1];
    const right = plot.left + plot.width;
    const taken = new Float64Array(lanes).fill(-Infinity);
    context.font = FONT;
    context.textBaseline = "middle";
    context.textAlign = "left";
    const draw = ({ from, to, lane, text }) => {
      const a = Math.max(plot.left, xOfTime(plot, from));
      const b = Math.min(right, to === Infinity ? right : xOfTime(plot, to));
      if (b - a < LEAST_SPAN || b <= taken[lane]) {
        return;
      }
      taken[lane] = b;
      const top = y + lane * LANE;
      context.fillStyle = plot.page.free;
      context.fillRect(a, top + 1, b - a - 1, LANE - 2);
      context.strokeStyle = plot.page.line;
      line(context, Math.round(a) + 0.5, top + 1, Math.round(a) + 0.5, top + LANE - 1);
      context.fillStyle = plot.page.text;
      const word = shortened(text, b - a - 8);
      if (word !== "") {
        context.fillText(word, a + 4, top + LANE / 2);
      }
    };
    endless.filter((span) => span.from < fromUs - longest).forEach(draw);
    /* Of a long recording nearly all are too narrow to be drawn: where they are is not
     * looked up. */
    const leastUs = LEAST_SPAN * (plot.range.x1 - plot.range.x0) / plot.width;
    const leastColumns = Math.ceil(LEAST_SPAN * width / plot.width);
    let p = 0; /* the column that a span begins in: they are in order */
    const isNarrow = ({ from, to }) => {
      if (byTime) {
        return to - from < leastUs;
      }
      while (p + 1 < width && time[p + 1] <= from) {
        p += 1;
      }
      return p + leastColumns < width && to < time[p + leastColumns];
    };
    for (let i = lastAtMost(starts, fromUs - longest - 1) + 1;
      i < spans.length && starts[i] <= toUs; i++) {
      if (spans[i].to >= fromUs && !isNarrow(spans[i])) {
        draw(spans[i]);
      }
    }
  }

  /* A label at the top, lowered past those that are TAKEN there already. */
  function flag(context, plot, text, x, color, taken) {
    const { width } = context.measureText(text);
    const from = labelLeft(plot, x - width / 2, width);
    for (let row = 0; row < FLAG_ROWS; row++) {
      const top = plot.top + 1 + row * FLAG_HEIGHT;
      if (!taken.some((t) => t.top < top + FLAG_HEIGHT && t.bottom > top
                      && from - 6 < t.right && from + width + 6 > t.left)) {
        taken.push(label(context, plot, text, from, top, color));
        return;
      }
    }
  }

  function upright(context, plot, x, color, dash) {
    context.strokeStyle = color;
    context.setLineDash(dash);
    const at = Math.round(x) + 0.5;
    line(context, at, plot.top, at, plot.top + plot.height);
    context.setLineDash([]);
  }

  /* FLAGS: { x, text, color, dash }, the most important first. */
  function drawFlags(context, plot, flags, taken) {
    context.font = FONT;
    for (const { x, text, color, dash } of flags) {
      if (inside(plot, x)) {
        upright(context, plot, x, color, dash);
        flag(context, plot, text, x, color, taken);
      }
    }
  }

  /* Out of memory, marks, the peak, the chosen instants. */
  function flagsOf(plot, { peak, event, other }) {
    const { page, notes } = plot;
    const room = 200; /* more labels than this nobody reads */
    const near = (list) => list.map((note) => ({ note, x: xOfTime(plot, note.time) }))
      .filter(({ x }) => inside(plot, x)).slice(0, room);
    const flags = plot.ooms.map(({ event: at, bytes }) => ({
      x: xOfEvent(plot, at), color: page.bad, dash: [], text: bytes === null
        ? "out of memory" : `out of memory: ${formatBytes(bytes)} asked for` }));
    const peakText = `peak ${formatBytes(peak.allocated)} allocated`;
    flags.push({ x: xOfEvent(plot, event), color: page.accent, dash: [],
                 text: event === peak.event ? `event ${formatCount(event)}: ${peakText}`
                   : event < 0 ? "before the first event"
                     : `event ${formatCount(event)}` });
    if (other >= 0) {
      flags.push({ x: xOfEvent(plot, other), color: page.accent, dash: [6, 3],
                   text: `compared: ${formatCount(other)}` });
    }
    if (event !== peak.event) {
      flags.push({ x: xOfEvent(plot, peak.event), color: page.text, dash: [2, 3],
                   text: peakText });
    }
    return [...flags, ...near(notes.marks).map(({ note, x }) => ({
      x, text: note.name, color: page.quiet, dash: [1, 2] }))];
  }

  function drawBrush(context, plot, [from, to]) {
    const a = Math.max(plot.left, Math.min(xOfEvent(plot, from), plot.left + plot.width));
    const b = Math.max(plot.left, Math.min(xOfEvent(plot, to), plot.left + plot.width));
    if (b > a) {
      context.strokeStyle = plot.page.accent;
      context.lineWidth = 2;
      context.strokeRect(a, plot.top + 1, b - a, plot.height - 2);
      context.lineWidth = 1;
      context.globalAlpha = 0.14;
      context.fillStyle = plot.page.accent;
      context.fillRect(a, plot.top, b - a, plot.height);
      context.globalAlpha = 1;
    }
  }

  /* Where allocations begin that a search finds, below the bands: many are too small to
   * be one.  STARTS are their events, ascending. */
  function drawHits(context, plot, starts) {
    const { begin, width, source } = plot.columns;
    const top = plot.top + plot.height + 1;
    context.fillStyle = plot.page.chosen;
    let from = 0;
    for (let p = 0; p < width; p++) {
      const next = p + 1 < width ? begin[p + 1] : Infinity;
      const at = source[p] < 0 ? from : lastAtMost(starts, next - 1) + 1;
      if (at > from && starts[at - 1] >= begin[p] && begin[p] <= plot.lastEvent) {
        context.fillRect(xOfColumn(plot, p), top,
                         Math.max(HIT_WIDTH, plot.width / width), HIT_HEIGHT);
      }
      from = at;
    }
  }

  /* All of it; CHOSEN: { peak, event, other, brush, hits (or none) }. */
  function draw(context, plot, chosen) {
    drawAxes(context, plot);
    if (chosen.hits) {
      drawHits(context, plot, chosen.hits);
    }
    const { notes } = plot;
    const top = plot.top - laneHeight(notes);
    if (notes.steps.length > 0) {
      drawSteps(context, plot, top);
    }
    drawSpans(context, plot, top + LANE * Number(notes.steps.length > 0));
    const taken = drawReserved(context, plot);
    if (chosen.brush !== null) {
      drawBrush(context, plot, chosen.brush);
    }
    drawFlags(context, plot, flagsOf(plot, chosen), taken);
  }

  return { sortNotes, laneHeight, draw, niceStep, xOfEvent, xOfTime };
})();
