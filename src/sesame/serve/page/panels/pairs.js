// Two texts: how near their vectors are, whether one follows the other, or what a task trained on pairs says.

import { scoreBars } from "../drawings/bars.js";
import { matrix } from "../drawings/matrix.js";
import { h } from "../dom.js";
import { lines, number, percent } from "../text.js";

const JUDGES = ["classify", "regress"];

function measures(model) {
  const tasks = (model.tasks ?? []).filter((task) => JUDGES.includes(task.kind) && task.pair !== false);
  return [
    ...(model.can.includes("similarity") ? [["similarity", "Similarity"]] : []),
    ...(model.can.includes("nsp") ? [["nsp", "Next sentence"]] : []),
    ...tasks.filter((task) => task.pair || model.can.includes(task.kind)).map((task) => [`task ${task.name}`, `Task ${task.name}`]),
  ];
}

export default {
  id: "pairs",
  title: "Pairs",
  heading: "Compare two texts",
  about: "Similarity is the cosine of two sentence vectors; several lines on a side give a table. Other measures read both texts at once.",
  serves: (model) => model.can.includes("similarity") || model.can.includes("nsp") || (model.tasks ?? []).some((task) => task.pair),
  fields: [
    { name: "measure", label: "Measure", kind: "choice", options: measures },
    { name: "a", label: "First text", kind: "text", rows: 3 },
    { name: "b", label: "Second text", kind: "text", rows: 3 },
  ],
  example: { a: "The river flooded the lower town.\nShe plays the cello every evening.", b: "After the rain, water stood in the streets.\nHe is learning an instrument.\nThe bank raised its rates." },
  request({ measure, a, b }, model) {
    if (measure === "similarity") return ["similarity", { a: lines(a), b: lines(b) }];
    if (measure === "nsp") return ["nsp", { text: a.trim(), pair: b.trim() }];
    const task = model.tasks.find((one) => `task ${one.name}` === measure);
    return [task.kind, { task: task.name, text: a.trim(), pair: b.trim() }];
  },
  draw([answer], { a, b }) {
    if (answer.matrix) return drawSimilarity(answer.matrix, lines(a), lines(b));
    const verdict = answer.label === undefined ? number(answer.score, 3) : `${answer.label}, ${percent(answer.score)}`;
    return [h("p", { class: "verdict-line" }, verdict), answer.scores && scoreBars(answer.scores)];
  },
};

function drawSimilarity(found, a, b) {
  if (a.length === 1 && b.length === 1) {
    return [h("p", { class: "verdict-line" }, number(found[0][0], 3)), h("p", { class: "note" }, "Cosine of the two vectors: 1 is the same direction, 0 is unrelated.")];
  }
  if (a.length > 12 || b.length > 12) {
    return matrix({ rows: a, columns: b, weights: found, label: "Similarity", from: "", to: "and", shade: (share) => share * share }).element;
  }
  const head = h("tr", {}, h("td"), ...b.map((text) => h("th", { scope: "col" }, text)));
  const rows = a.map((text, i) => {
    const best = Math.max(...found[i]);
    return h("tr", {}, h("th", { scope: "row" }, text), ...found[i].map((cosine) =>
      h("td", { class: cosine === best ? "cosine best" : "cosine", vars: { "--share": Math.max(0, cosine) } }, number(cosine, 3))));
  });
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Similarity" }, h("table", { class: "similarity" }, h("thead", {}, head), h("tbody", {}, ...rows))),
    h("p", { class: "note" }, "Cosines; the nearest of each row is bold.")];
}
