/* Sortable tables, bars and headings: what the breakdown and what grew are shown in.
 *
 * Owns elements and the order of rows; text from the recording enters them through
 * textContent only.  Knows neither model nor state. */
"use strict";

const memlabTables = (() => {
  const { make } = memlabDescribe;

  const ROWS_MORE = 1000;

  function percent(part, whole) {
    return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "-";
  }

  /* A bar of PART of WHOLE; the number stands beside it. */
  function bar(part, whole, color = "") {
    const inside = make("span", { class: "bar" });
    inside.style.width = `${whole > 0 ? Math.min(100, 100 * part / whole) : 0}%`;
    if (color !== "") {
      inside.style.background = color;
    }
    return make("span", { class: "bar-room", "aria-hidden": "true" }, inside);
  }

  /* A table in BOX.  COLUMNS: [{ id, text, cell(row) -> text or element, title(row),
   * value(row) -> what it is sorted by, number: true for those on the right }].  FIRST: so
   * many rows before one asks for more.  CHOOSE takes the row that was clicked. */
  function create(box, { name, columns, sort, first = 100, choose = null }) {
    const order = { ...sort };
    let rows = [];
    let limit = first;
    let shown = columns;
    const head = make("tr");
    const body = make("tbody");
    const caption = make("caption", {}, name);
    const more = make("button", { type: "button", class: "more", click: () => {
      limit += ROWS_MORE;
      render();
    } });
    const table = make("table", { class: "sums" }, caption, make("thead", {}, head),
                       body);
    box.append(table, more);

    function sortBy(column) {
      order.down = order.id === column.id ? !order.down : column.number === true;
      order.id = column.id;
      render();
      head.children[shown.indexOf(column)].firstChild.focus();
    }

    function headCell(column) {
      const chosen = column.id === order.id;
      const arrow = chosen ? (order.down ? " ▾" : " ▴") : "";
      const cell = make(
        "th", { scope: "col", class: column.number ? "number" : `column-${column.id}` },
        ...(column.text === "" ? [] : [
          make("button", { type: "button", click: () => sortBy(column) },
               column.text + arrow)]));
      if (chosen) {
        cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      }
      return cell;
    }

    function bodyRow(row) {
      const line = make("tr", { "data-bytes": String(row.bytes ?? row.difference) });
      const active = choose !== null && row.chosen !== false;
      shown.forEach((column, i) => {
        const content = column.cell(row);
        const inside = active && i === 0
          ? make("button", { type: "button", class: "row" }, content) : content;
        line.append(make("td", { class: column.number ? "number" : `column-${column.id}`,
                                 title: column.title?.(row) ?? "" }, inside));
      });
      if (active) {
        line.classList.add("active");
        line.addEventListener("click", () => choose(row));
      }
      return line;
    }

    function compare(a, b) {
      const { value } = shown.find((column) => column.id === order.id) ?? shown[0];
      const [x, y] = [value(a), value(b)];
      const less = x < y ? -1 : Number(x > y);
      return order.down ? -less : less;
    }

    function render() {
      /* Equal rows stay in the order in which they came. */
      const sorted = [...rows].sort(compare);
      head.replaceChildren(...shown.map(headCell));
      body.replaceChildren(...sorted.slice(0, limit).map(bodyRow));
      more.hidden = rows.length <= limit;
      more.textContent = `Show more: ${rows.length - limit} rows are left`;
    }

    /* ROWS in the order that equal ones keep; COLUMNS, where they are others now. */
    function show(next, { columns: others = shown, caption: text = name } = {}) {
      rows = next;
      shown = others;
      limit = first;
      caption.textContent = text;
      if (!shown.some((column) => column.id === order.id)) {
        Object.assign(order, sort);
      }
      render();
    }

    return { show };
  }

  /* A labelled <select>.  ITEMS: [[value, text]]. */
  function choice(text, items, chosen, change) {
    const options = items.map(([value, said]) => make("option", { value }, said));
    const select = make("select", {}, ...options);
    select.addEventListener("change", () => change(select.value));
    select.value = chosen;
    return { element: make("label", {}, `${text} `, select), select };
  }

  function check(text, chosen, change) {
    const box = make("input", { type: "checkbox" });
    box.addEventListener("change", () => change(box.checked));
    box.checked = chosen;
    return { element: make("label", {}, box, ` ${text}`), box };
  }

  return { percent, bar, create, choice, check };
})();
