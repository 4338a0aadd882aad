/* What the view of growth says of lines that grow by step. */
"use strict";

const assert = require("node:assert/strict");
const test = require("node:test");

const { load } = require("./load.js");

global.document = {};
const { memlabGrowth } = load(
  ["names.js", "describe.js", "breakdown.js", "growth.js"],
  ["memlabGrowth"]);

test("a line that grows is a sentence, with who holds it where that is known", () => {
  const model = {
    strings: ["", "main", "train.py", "list `kept`", "loss"],
    frames: { name: [0, 1, 4], file: [0, 2, 2], line: [0, 12, 9], qualname: [0, 1, 4],
              own: [0, 1, 1] },
  };
  const growth = { by: "steps", steps: 8, frame: [1, 2], per_step: [2097152, 1024],
                   since: [3, 0], certain: [1, 0], graph: [0, 1], holder: [3, 0] };
  assert.deepEqual(memlabGrowth.growing(model, { growth }), [
    "Grows by 2.00 MiB a step since step 3: train.py:12 main, held by list `kept`.",
    "May grow by 1.00 KiB a step since step 0: train.py:9 loss, an autograd graph; "
      + "too few steps to tell.",
  ]);
});
