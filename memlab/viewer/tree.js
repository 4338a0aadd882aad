/* Trees of memory: by stack, by module path, by category, module and line.
 *
 * Owns which kinds are of one node, which frames say nothing, the order of what lies side
 * by side, and what a search finds.  Pure functions: no document, so that they run under
 * node too.  A node has a higher number than its parent: sums go down the numbers. */
"use strict";

const memlabTree = (() => {
  const { lineText, frameText } = memlabBreakdown;
  const { rolledText } = memlabNames;

  /* What a node stands for. */
  const ROOT = 0;
  const CATEGORY = 1; /* index; those of "unknown" are one */
  const MODULE = 2; /* string, the whole path */
  const PART = 3; /* of a module's path, repeated ones rolled up; the node in model.modules */
  const NO_MODULE = 4; /* the reason's index */
  const FRAME = 5; /* frame, the first of the same text */
  const LINE = 6; /* index into the tree's places */
  const ROLLED = 7; /* as PART, the whole path */

  /* ---- frames that say nothing ---- */

  /* The interpreter and torch's dispatcher, as csrc/core/show/draw/flame_tree.c leaves them out. */
  const NOISY_NAMES = ["unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp",
                       "_start", "__libc_start_main", "PyEval_", "PyObject_",
                       "PyFunction_"];
  const NOISY_FILES = ["core/boxing", "/Register", "/Redispatch", "pythonrun.c",
                       "Modules/main.c", "Objects/call.c", "Objects/methodobject.c",
                       "pycore_ceval.h", "ceval.c", "cpython/abstract.h"];
  /* How torch calls a module's forward, which is the next frame. */
  const CALLERS = ["_call_impl", "_wrapped_call_impl"];
  const CALLER_FILE = "torch/nn/modules/module.py";
  const facts = new WeakMap();

  /* Of each stack whether one of its frames is the program's own. */
  function reachedOf(model) {
    const { parent, frame } = model.stacks;
    const out = new Uint8Array(parent.length);
    for (let s = 1; s < out.length; s++) {
      out[s] = model.frames.own[frame[s]] | (parent[s] < s ? out[parent[s]] : 0);
    }
    return out;
  }

  /* Of each frame whether it says nothing, and the first frame of the same text. */
  function factsOf(model) {
    if (!facts.has(model)) {
      const { name, file, line } = model.frames;
      const has = (texts) => model.strings.map(
        (string) => texts.some((text) => string.includes(text)));
      const noisyName = has(NOISY_NAMES);
      const noisyFile = has(NOISY_FILES);
      const caller = model.strings.map((string) => CALLERS.includes(string));
      const callerFile = has([CALLER_FILE]);
      const seen = new Map();
      const first = Int32Array.from(name, (n, i) => {
        const key = `${n},${file[i]},${line[i]}`;
        seen.set(key, seen.get(key) ?? i);
        return seen.get(key);
      });
      facts.set(model, {
        first, reached: reachedOf(model), noise: Uint8Array.from(
          name, (n, i) => Number(noisyName[n] || noisyFile[file[i]]
            || (caller[n] && callerFile[file[i]]))) });
    }
    return facts.get(model);
  }

  /* ---- building ---- */

  /* Above any number of a frame, string or place, so that a parent's fits beside it. */
  const MOST_VALUES = 2 ** 26;
  /* Two of a thousand siblings have one key in one case of three; the larger one counts. */
  const KEY_LETTERS = 4;

  function empty() {
    return { tag: [ROOT], value: [0], parent: [-1], depth: [0], known: new Map(),
             own: [0], ownBlocks: [0], ownOther: [0], places: [] };
  }

  function child(tree, parent, tag, value) {
    const key = (parent * 8 + tag) * MOST_VALUES + value;
    let node = tree.known.get(key);
    if (node === undefined) {
      node = tree.tag.length;
      tree.known.set(key, node);
      tree.tag.push(tag);
      tree.value.push(value);
      tree.parent.push(parent);
      tree.depth.push(tree.depth[parent] + 1);
      tree.own.push(0);
      tree.ownBlocks.push(0);
      tree.ownOther.push(0);
    }
    return node;
  }

  /* Puts kinds into TREE: each path's elements are nodes below one another. */
  function planter(model, tree, { rows, category, noise }) {
    const { kinds } = model;
    const { first, reached, noise: noisy } = factsOf(model);
    const places = new Map();
    const leads = new Map();

    function lineLeaf(node, kind) {
      const place = { line: kinds.line[kind], until: kinds.until[kind], module: "",
                      inner: kinds.inner[kind],
                      phase: model.phases[kinds.phase[kind]],
                      how: model.hows[kinds.how[kind]],
                      reason: model.no_lines[model.lines.no_line[kinds.line[kind]]] };
      const text = [place.line, place.until, place.phase, place.how, place.inner].join();
      if (!places.has(text)) {
        places.set(text, tree.places.length);
        tree.places.push(place);
      }
      return child(tree, node, LINE, places.get(text));
    }

    /* The node to which STACK leads below BASE.  What started the program says nothing:
     * frames before the first of its own. */
    function stackNode(base, stack) {
      const known = leads.get(base) ?? new Map();
      leads.set(base, known);
      const path = [];
      const begins = noise || reached[stack] === 0;
      let id = stack;
      while (id > 0 && !known.has(id) && (begins || reached[id] === 1)) {
        path.push(id);
        const parent = model.stacks.parent[id];
        id = parent < id ? parent : 0;
      }
      let node = known.get(id) ?? base;
      for (const each of path.reverse()) {
        const frame = model.stacks.frame[each];
        if (noise || noisy[frame] === 0) {
          node = child(tree, node, FRAME, first[frame]);
        }
        known.set(each, node);
      }
      return node;
    }

    function moduleNode(base, kind) {
      const module = kinds.module[kind];
      if (module === 0) {
        return child(tree, base, NO_MODULE, kinds.no_module[kind]);
      }
      const rolled = kinds.rolled[kind];
      const node = rows === "line" ? child(tree, base, ROLLED, rolled)
        : partsTo(rolled).reduce((at, part) => child(tree, at, PART, part), base);
      /* What was rolled up unfolds. */
      return model.modules.modules[rolled] > 1 ? child(tree, node, MODULE, module) : node;
    }

    /* From the root down, which is none of them. */
    function partsTo(rolled) {
      const out = [];
      for (let at = rolled; at > 0; at = model.modules.parent[at]) {
        out.push(at);
      }
      return out.reverse();
    }

    return (kind) => {
      const base = category || rows === "line"
        ? child(tree, 0, CATEGORY, kinds.category[kind]) : 0;
      if (rows !== "stack") {
        return lineLeaf(moduleNode(base, kind), kind);
      }
      const node = stackNode(base, kinds.stack[kind]);
      /* The backward pass has no frames of its own, but a line whose gradient it makes. */
      return node === base || model.hows[kinds.how[kind]] !== "frames"
        ? lineLeaf(node, kind) : node;
    };
  }

  /* ROWS: "stack" (outermost frames first), "module" (parts of its path, then the line) or
   * "line" (category, module, line); repeated modules are one, then each.  CATEGORY: below the categories.  NOISE: with frames
   * that say nothing.  OTHER: weights of an earlier instant, whose sums stand beside. */
  function build(model, weights, { rows = "stack", category = false, noise = false,
                                   other = null } = {}) {
    const tree = empty();
    const plant = planter(model, tree, { rows, category, noise });
    for (let kind = 0; kind < weights.bytes.length; kind++) {
      const bytes = weights.bytes[kind];
      const blocks = weights.blocks === null ? 0 : weights.blocks[kind];
      const before = other === null ? 0 : other.bytes[kind];
      if (bytes !== 0 || blocks !== 0 || before !== 0) {
        const node = plant(kind);
        tree.own[node] += bytes;
        tree.ownBlocks[node] += blocks;
        tree.ownOther[node] += before;
        tree.kindNodes ??= new Int32Array(weights.bytes.length).fill(-1);
        tree.kindNodes[kind] = node;
      }
    }
    return finish(tree);
  }

  const NO_CHILDREN = Object.freeze([]);

  /* Sums up; sorts the children of each node, the largest first. */
  function finish(tree) {
    const count = tree.tag.length;
    const bytes = Float64Array.from(tree.own);
    const blocks = Float64Array.from(tree.ownBlocks);
    const other = Float64Array.from(tree.ownOther);
    for (let node = count - 1; node > 0; node--) {
      bytes[tree.parent[node]] += bytes[node];
      blocks[tree.parent[node]] += blocks[node];
      other[tree.parent[node]] += other[node];
    }
    const children = Array.from({ length: count }, () => NO_CHILDREN);
    for (let node = 1; node < count; node++) {
      const parent = tree.parent[node];
      if (children[parent] === NO_CHILDREN) {
        children[parent] = [];
      }
      children[parent].push(node);
    }
    for (const each of children) {
      each.sort((a, b) => bytes[b] - bytes[a] || other[b] - other[a] || a - b);
    }
    return { tag: Uint8Array.from(tree.tag), value: Float64Array.from(tree.value),
             parent: Int32Array.from(tree.parent), depth: Int32Array.from(tree.depth),
             places: tree.places, count, bytes, blocks, other,
             children, kindNodes: tree.kindNodes ?? new Int32Array(0) };
  }

  /* By node and group of a scheme the bytes, so that a node has the colour of most of
   * its own: the group, by node. */
  function groupsOf(tree, groupOfKind, groupCount, weights) {
    const sums = new Float64Array(tree.count * groupCount);
    tree.kindNodes.forEach((node, kind) => {
      if (node >= 0 && groupOfKind[kind] >= 0) {
        sums[node * groupCount + groupOfKind[kind]] += weights.bytes[kind];
      }
    });
    const out = new Int32Array(tree.count);
    for (let node = tree.count - 1; node >= 0; node--) {
      const from = node * groupCount;
      let best = 0;
      for (let g = 0; g < groupCount; g++) {
        best = sums[from + g] > sums[from + best] ? g : best;
        if (node > 0) {
          sums[tree.parent[node] * groupCount + g] += sums[from + g];
        }
      }
      out[node] = best;
    }
    return out;
  }

  /* ---- words ---- */

  function text(model, tree, node, whole = false) {
    const value = tree.value[node];
    switch (tree.tag[node]) {
    case ROOT:
      return "all memory";
    case CATEGORY:
      return model.categories[value].replace(/_/g, " ");
    case MODULE:
      return model.strings[value];
    case ROLLED:
      return rolledText(model.modules.path[value], model.modules.modules[value]);
    case PART:
      return rolledText(whole ? model.modules.path[value]
        : model.modules.path[value].replace(/^.*\./, ""), model.modules.modules[value]);
    case NO_MODULE:
      return `(${model.no_modules[value] || "no module"})`;
    case FRAME:
      return frameText(model, value, whole);
    default:
      return placeText(model, tree.places[value], whole);
    }
  }

  function placeText(model, place, whole) {
    const said = lineText(model, place, whole);
    return place.reason === "" && place.phase === "backward" && place.how !== "frames"
      ? `backward of ${said.replace(/ \(backward\)$/, "").replace("(backward, ", "(")}`
      : said;
  }

  function isModule(tree, node) {
    return [MODULE, ROLLED, PART].includes(tree.tag[node]);
  }

  /* Where there is little room: of code the function and the line's number. */
  function short(model, tree, node) {
    const value = tree.value[node];
    if (tree.tag[node] === FRAME) {
      const { qualname, line } = model.frames;
      return `${model.strings[qualname[value]]}:${line[value]}`;
    }
    if (tree.tag[node] === LINE && tree.places[value].reason === "") {
      const { line, phase, inner } = tree.places[value];
      const { function: name, line: number } = inner > 0
        ? { function: model.frames.qualname, line: model.frames.line } : model.lines;
      const at = inner > 0 ? inner : line;
      const said = `${model.strings[name[at]]}:${number[at]}`;
      return phase === "backward" ? `backward of ${said}` : said;
    }
    return text(model, tree, node);
  }

  /* From the root down to NODE. */
  function pathTo(tree, node) {
    const out = [];
    for (let at = node; at >= 0; at = tree.parent[at]) {
      out.push(at);
    }
    return out.reverse();
  }

  /* A node among its siblings in KEY_LETTERS letters: a hash (FNV-1a) of its words. */
  function keyOf(model, tree, node) {
    let hash = 0x811c9dc5;
    for (const letter of `${tree.tag[node]} ${text(model, tree, node, true)}`) {
      hash = Math.imul(hash ^ letter.codePointAt(0), 0x01000193);
    }
    return ((hash >>> 0) % 36 ** KEY_LETTERS).toString(36).padStart(KEY_LETTERS, "0");
  }

  /* NODE as text that names it in another tree of the same recording too. */
  function keysTo(model, tree, node) {
    return pathTo(tree, node).slice(1).map((at) => keyOf(model, tree, at)).join("");
  }

  /* The node of KEYS, or as far as there is one. */
  function follow(model, tree, keys) {
    let node = 0;
    for (let at = 0; at < keys.length; at += KEY_LETTERS) {
      const key = keys.slice(at, at + KEY_LETTERS);
      const next = tree.children[node].find((each) => keyOf(model, tree, each) === key);
      if (next === undefined) {
        break;
      }
      node = next;
    }
    return node;
  }

  /* ---- search ---- */

  /* Nodes whose text, with the whole path of a file, has all words of SEARCH, sizes left
   * aside, and the bytes of those below ROOT, each once.  null without words. */
  function matches(model, tree, search, root = 0) {
    const { words } = memlabQuery.parseQuery(search);
    if (words.length === 0) {
      return null;
    }
    const hit = new Uint8Array(tree.count);
    const within = new Uint8Array(tree.count);
    let bytes = 0;
    /* Many nodes are of one frame. */
    const known = new Map();
    const isHit = (node) => {
      const key = tree.tag[node] * MOST_VALUES + tree.value[node];
      if (!known.has(key)) {
        const said = text(model, tree, node, true).toLowerCase();
        known.set(key, Number(tree.tag[node] !== ROOT
          && words.every((word) => said.includes(word))));
      }
      return known.get(key);
    };
    for (let node = 0; node < tree.count; node++) {
      hit[node] = isHit(node);
      const parent = tree.parent[node];
      const above = node === root || parent < 0 ? 0 : within[parent];
      within[node] = hit[node] | above;
      if (hit[node] === 1 && above === 0 && isBelow(tree, node, root)) {
        bytes += tree.bytes[node];
      }
    }
    return { hit, within, bytes };
  }

  function isBelow(tree, node, root) {
    let at = node;
    while (tree.depth[at] > tree.depth[root]) {
      at = tree.parent[at];
    }
    return at === root;
  }

  return { isModule, build, groupsOf, text, short, pathTo, keysTo, follow, matches };
})();
