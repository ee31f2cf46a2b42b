// The lecture about one word in one head: four steps, every number from the server, sums done again here and compared.

import { h } from "../dom.js";
import { digitsFor, number, visible } from "../text.js";
import { keepDrawn, paintVector } from "./colors.js";

const SHOWN = 6; // numbers of a vector that are written out

export function lectureFor(answer, index) {
  const { tokens, q, k, v, scores, weights, output, scale } = answer;
  const size = q[index].length;
  const word = visible(tokens[index]);
  const dots = k.map((key) => dot(q[index], key));
  return [
    step(1, "Three vectors for every word",
      `The head turns each word into a query q, a key k and a value v of ${size} numbers each. The query of “${word}” asks; the keys of all words answer.`,
      vectors([[["q", word, q[index]]], rowsOf("k", tokens, k), rowsOf("v", tokens, v)])),
    step(2, "Scores: query times key",
      `score = (q · k) × ${number(scale, 4)}. The factor keeps the scores small: it is ${explainScale(scale, size)}.`,
      [example(q[index], k, dots, tokens, scale), scoreTable(tokens, dots, scores[index], scale, bound(q[index], k, scale))]),
    step(3, "Softmax: scores become weights",
      "weight = e^score divided by the sum of all e^score. The largest score is subtracted first; that changes nothing and keeps the numbers small.",
      softmaxTable(tokens, scores[index], weights[index])),
    step(4, "Output: the values, weighted and summed",
      `The head's output for “${word}” is the sum of weight × v over all words.`,
      outputTable(tokens, v, weights[index], output[index])),
  ];
}

function step(count, title, words, drawing) {
  return h("section", { class: "lecture-step" }, h("h3", {}, h("span", { class: "count" }, String(count)), title), h("p", {}, words), ...[drawing].flat());
}

function dot(a, b) {
  return a.reduce((sum, value, index) => sum + value * b[index], 0);
}

function explainScale(scale, size) {
  return Math.abs(scale - 1 / Math.sqrt(size)) < 1e-3 ? `1 / √${size}` : "this model's own";
}

/** How far a score may lie from q · k × scale because the numbers came rounded to 4 digits. */
function bound(query, keys, scale) {
  const weight = (vector) => vector.reduce((sum, value) => sum + Math.abs(value), 0);
  return keys.map((key) => 6e-5 * (weight(query) + weight(key)) * scale + 1e-3);
}

function scoreTable(tokens, dots, scores, scale, bounds) {
  const masked = (score) => score === null || score <= -1e4;
  const added = scores.map((score, j) => (masked(score) ? 0 : score - dots[j] * scale));
  const more = added.some((value, j) => Math.abs(value) > bounds[j]);
  const names = ["Word", "q · k", `× ${number(scale, 4)}`, ...(more ? ["added for places"] : []), "score"];
  const digits = digitsFor(dots);
  const rows = tokens.map((_, j) => [number(dots[j], digits), number(dots[j] * scale, digits), ...(more ? [number(added[j], digits)] : []), masked(scores[j]) ? "−∞ (hidden)" : number(scores[j], digits)]);
  return table("Scores", names, tokens, rows);
}

function softmaxTable(tokens, scores, weights) {
  const real = scores.filter((score) => score !== null);
  const top = Math.max(...real);
  const powers = scores.map((score) => (score === null ? 0 : Math.exp(score - top)));
  const sum = powers.reduce((total, power) => total + power, 0);
  const digits = digitsFor(scores);
  const rows = tokens.map((_, j) => [number(scores[j], digits), number(powers[j], 3), bar(weights[j])]);
  const last = ["Sum", "", number(sum, 3), number(weights.reduce((total, weight) => total + weight, 0), 3)];
  return table("Softmax", ["Word", "score", "e^(score − largest)", "weight"], tokens, rows, last);
}

function bar(weight) {
  return h("span", { class: "weight" }, h("span", { class: "track", vars: { "--share": weight }, "aria-hidden": "true" }), number(weight, 3));
}

function outputTable(tokens, values, weights, output) {
  const dims = output.slice(0, SHOWN).map((_, d) => `v${d}`);
  const rest = output.length > SHOWN;
  const digits = digitsFor([...values.flat(), ...output]);
  const rows = tokens.map((_, j) => [number(weights[j], 3), ...values[j].slice(0, SHOWN).map((value) => number(value, digits)), ...(rest ? ["…"] : [])]);
  const last = ["Output", "", ...output.slice(0, SHOWN).map((value) => number(value, digits)), ...(rest ? ["…"] : [])];
  return h("div", {}, table("Output", ["Word", "weight", ...dims, ...(rest ? ["…"] : [])], tokens, rows, last), vectors([[["out", "all numbers", output]]]));
}

function table(label, names, tokens, rows, last = null) {
  const head = h("tr", {}, ...names.map((name, index) => h("th", { scope: "col", class: index ? "value" : "" }, name)));
  const body = rows.map((cells, j) => h("tr", {}, h("th", { scope: "row", class: "token" }, visible(tokens[j])), ...cells.map((cell) => h("td", { class: "value" }, cell))));
  const foot = last && h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, last[0]), ...last.slice(1).map((cell) => h("td", { class: "value" }, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", { class: "numbers" }, h("thead", {}, head), h("tbody", {}, ...body), foot));
}

function rowsOf(kind, tokens, all) {
  return tokens.map((token, j) => [kind, visible(token), all[j]]);
}

/** One product written out: the word with the highest one. */
function example(query, keys, dots, tokens, scale) {
  const best = dots.indexOf(Math.max(...dots));
  const digits = digitsFor([...query, ...keys[best]]);
  const bracket = (value) => (value < 0 ? `(${number(value, digits)})` : number(value, digits));
  const terms = query.slice(0, 3).map((value, d) => `${bracket(value)} × ${bracket(keys[best][d])}`);
  return h("p", { class: "formula" }, `q · k for “${visible(tokens[best])}” = ${terms.join(" + ")} + … = ${number(dots[best], digitsFor(dots))};  × ${number(scale, 4)} = ${number(dots[best] * scale, digitsFor(dots))}`);
}

/** Vectors as strips: above zero in the accent, below zero in grey, stronger the further from zero; the first numbers written out. */
function vectors(groups) {
  const rows = groups.flat();
  const most = Math.max(1e-6, ...rows.flatMap(([, , vector]) => vector.map(Math.abs)));
  const digits = digitsFor([most]);
  const drawn = rows.map(([kind, word, vector]) => h("div", { class: groups.some((group) => groups.length > 1 && group.at(-1)[2] === vector) ? "vector last" : "vector" },
    h("span", { class: "kind" }, kind), h("span", { class: "token" }, word),
    strip(vector, most),
    h("span", { class: "value" }, vector.slice(0, SHOWN).map((value) => number(value, digits)).join("  ") + (vector.length > SHOWN ? "  …" : ""))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Vectors" }, h("div", { class: "vectors" }, ...drawn),
    h("p", { class: "note" }, "Color: above zero; grey: below zero; the stronger, the further from it."));
}

function strip(vector, most) {
  const canvas = h("canvas", { class: "strip", "aria-hidden": "true" });
  keepDrawn(canvas, () => paintVector(canvas, vector, most));
  return canvas;
}
