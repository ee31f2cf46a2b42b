// Classes: every line of the text is judged by itself and drawn with its label.

import { scoreBars } from "../drawings/bars.js";
import { h } from "../dom.js";
import { lines, number, percent } from "../text.js";

const KINDS = ["classify", "regress"];

/** Tasks that need two texts stand in the panel for pairs. */
const single = (task) => KINDS.includes(task.kind) && !task.pair;

export default {
  id: "classify",
  title: "Classify",
  heading: "Classify",
  about: "Every line is a text of its own. The label stands beside it; open a line to see all labels.",
  fits: single,
  serves: (model) => (model.can.includes("classify") || model.can.includes("regress")) && (model.tasks ?? []).some(single),
  fields: [{ name: "text", label: "Texts, one on each line", kind: "text", rows: 4 }],
  example: { text: "A quiet film that stays with you for days.\nTwo hours of my life that nobody will give back.\nThe plot is thin, but the music is lovely." },
  request({ text }, model, task) {
    const kind = model.tasks.find((one) => one.name === task)?.kind ?? "classify";
    return [kind, { texts: lines(text) }];
  },
  draw: (answers, { text }) => h("div", { class: "judged" }, ...lines(text).map((line, index) => drawLine(line, answers[index], index === 0))),
};

function drawLine(line, answer, open) {
  const words = h("span", { class: "text", dir: "auto" }, line);
  if (answer.scores === undefined) return h("p", { class: "judgement plain" }, words, h("span", { class: "verdict" }, number(answer.score, 3)));
  const verdict = h("span", { class: "verdict" }, h("b", {}, answer.label), " ", h("span", { class: "value" }, percent(answer.score)));
  return h("details", { class: "judgement", open, vars: { "--share": answer.score } }, h("summary", {}, words, verdict), scoreBars(answer.scores));
}
