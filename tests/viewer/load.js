/* The page's scripts as node modules: load(["data.js"], ["memlabData"]). */
"use strict";

const { readFileSync } = require("node:fs");
const { join } = require("node:path");

const VIEWER = join(__dirname, "..", "..", "memlab", "viewer");

module.exports.load = (files, names) => {
  const source = files.map((name) => readFileSync(join(VIEWER, name), "utf8")).join("\n");
  return new Function(`${source}\nreturn { ${names.join(", ")} };`)();
};
