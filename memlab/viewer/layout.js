/* Where the boxes of a tree of memory lie, and how the arrow keys move in it.
 *
 * Owns both pictures, icicle and tree map, and what is too small for a box of its own.  Of
 * a tree it needs bytes, parent, children (the largest first) and nothing of what nodes
 * stand for.  Pure functions: no document, so that they run under node too. */
"use strict";

const memlabLayout = (() => {
  const NONE = Object.freeze([]);
  /* So many boxes in a row are worth one that stands for them. */
  const LEAST_FOLDED = 4;

  /* From NODE down while there is one child that has all its bytes. */
  function chainOf(tree, node) {
    if (tree.children[node].length !== 1) {
      return NONE;
    }
    const out = [];
    for (let at = node; tree.children[at].length === 1;) {
      const [below] = tree.children[at];
      if (tree.bytes[below] !== tree.bytes[at]) {
        break;
      }
      out.push(below);
      at = below;
    }
    return out;
  }

  /* The boxes of an icicle of WIDTH: { node, x, width, row }, from ROOT in row 0 down.
   * Children that are narrower than LEAST are one box with node -1, PARENT whose they are,
   * their number SMALLER and their BYTES.  With FOLD, of frames in a row with the same
   * bytes the inner ones are one box with the CHAIN of them, and the first as its node. */
  function icicle(tree, root, width, { least = 1, fold = false } = {}) {
    const boxes = [{ node: root, x: 0, width, row: 0 }];
    const scale = tree.bytes[root] > 0 ? width / tree.bytes[root] : 0;
    for (let i = 0; i < boxes.length; i++) {
      const { node: top, x, row, width: wide, chain } = boxes[i];
      if (top < 0) {
        continue;
      }
      const node = chain === undefined ? top : chain[chain.length - 1];
      const same = fold && chain === undefined ? chainOf(tree, node) : NONE;
      if (same.length > LEAST_FOLDED) {
        boxes.push({ node: same[0], chain: same.slice(0, -1), x, width: wide,
                     row: row + 1 });
        continue;
      }
      let right = x;
      let done = 0;
      const children = tree.children[node];
      for (; done < children.length; done++) {
        const part = tree.bytes[children[done]] * scale;
        if (part < least) {
          break;
        }
        boxes.push({ node: children[done], x: right, width: part, row: row + 1 });
        right += part;
      }
      const rest = restOf(tree, children, done);
      if (rest.bytes * scale >= least) {
        boxes.push({ node: -1, parent: node, x: right, width: rest.bytes * scale,
                     row: row + 1, ...rest });
      }
    }
    return boxes;
  }

  function restOf(tree, children, from) {
    let bytes = 0;
    for (let i = from; i < children.length; i++) {
      bytes += tree.bytes[children[i]];
    }
    return { smaller: children.length - from, bytes };
  }

  const PAD = 3;
  const HEAD = 17;

  /* The boxes of a tree map in WIDTH x HEIGHT: { node, x, y, width, height, level }, those
   * inside one after it, LEVELS deep.  What would be smaller than LEAST pixels is one box
   * with node -1, as in an icicle. */
  function squares(tree, root, width, height, { levels = 3, least = 12 } = {}) {
    const boxes = [{ node: root, x: 0, y: 0, width, height, level: 0 }];
    for (let i = 0; i < boxes.length; i++) {
      const box = boxes[i];
      const inside = box.level === 0 ? { x: 0, y: 0, width, height } : within(box);
      const roomy = inside.width > 48 && inside.height > 24;
      if (box.node >= 0 && box.level < levels && roomy
          && tree.children[box.node].length > 0) {
        boxes.push(...divide(tree, box.node, inside, least).map(
          (part) => ({ ...part, level: box.level + 1 })));
      }
    }
    return boxes;
  }

  function within({ x, y, width, height }) {
    const head = height > HEAD + 2 * PAD + 8 && width > 36 ? HEAD : PAD;
    return { x: x + PAD, y: y + head, width: width - 2 * PAD,
             height: height - head - PAD };
  }

  /* Squarified: rows along the shorter side, each filled while its boxes get squarer. */
  function divide(tree, node, { x, y, width, height }, least) {
    const children = tree.children[node];
    const total = tree.bytes[node];
    const scale = total > 0 ? width * height / total : 0;
    const items = [];
    let done = 0;
    for (; done < children.length; done++) {
      const area = tree.bytes[children[done]] * scale;
      if (area < least) {
        break;
      }
      items.push({ node: children[done], area });
    }
    const rest = restOf(tree, children, done);
    if (rest.bytes * scale >= 1) {
      items.push({ node: -1, parent: node, area: rest.bytes * scale, ...rest });
    }
    const out = [];
    const room = { x, y, width, height };
    for (let i = 0; i < items.length;) {
      const side = Math.min(room.width, room.height);
      let count = 1;
      let area = items[i].area;
      while (i + count < items.length) {
        const more = area + items[i + count].area;
        if (worst(items[i].area, items[i + count].area, more, side)
            > worst(items[i].area, items[i + count - 1].area, area, side)) {
          break;
        }
        area = more;
        count += 1;
      }
      place(items.slice(i, i + count), area, room, out);
      i += count;
    }
    return out;
  }

  /* The worst shape, as long by wide, in a row of AREA along SIDE whose largest and
   * smallest boxes are these. */
  function worst(largest, smallest, area, side) {
    const thick = area / side;
    return Math.max(largest / (thick * thick), thick * thick / smallest);
  }

  /* A row of ITEMS along ROOM's shorter side, which takes its part of ROOM. */
  function place(items, area, room, out) {
    const across = room.width >= room.height;
    const side = across ? room.height : room.width;
    const thick = side > 0 ? area / side : 0;
    let at = across ? room.y : room.x;
    for (const { area: own, ...item } of items) {
      const long = thick > 0 ? own / thick : 0;
      out.push(across
        ? { ...item, x: room.x, y: at, width: thick, height: long }
        : { ...item, x: at, y: room.y, width: long, height: thick });
      at += long;
    }
    if (across) {
      room.x += thick;
      room.width = Math.max(0, room.width - thick);
    }
    else {
      room.y += thick;
      room.height = Math.max(0, room.height - thick);
    }
  }

  /* ---- keys ---- */

  /* Where an arrow leads from NODE within ROOT: up to the parent, down to the largest
   * child, left and right among its sisters; NODE where there is nothing. */
  function move(tree, root, node, key) {
    if (key === "ArrowUp") {
      return node === root ? node : tree.parent[node];
    }
    if (key === "ArrowDown") {
      return tree.children[node][0] ?? node;
    }
    if (node === root || (key !== "ArrowLeft" && key !== "ArrowRight")) {
      return node;
    }
    const sisters = tree.children[tree.parent[node]];
    return sisters[sisters.indexOf(node) + (key === "ArrowLeft" ? -1 : 1)] ?? node;
  }

  return { icicle, squares, move };
})();
