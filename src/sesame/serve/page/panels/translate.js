// Translation, with where the decoder looked while it wrote each token.

import { matrix } from "../drawings/matrix.js";
import { drawOutputs, drawSteps } from "../drawings/steps.js";
import { h } from "../dom.js";

export default {
  id: "translate",
  title: "Translate",
  heading: "Translate",
  about: "Beam search; below the translation, where the decoder looked while it wrote.",
  serves: (model) => model.can.includes("translate"),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 3 },
    { name: "beams", label: "Beams", kind: "number", min: 1, max: 16, value: 4 },
    { name: "best", label: "Outputs", kind: "number", min: 1, max: 16, value: 1 },
  ],
  example: { text: "Ein Hund läuft über die grüne Wiese." },
  request: ({ text, beams, best }) => ["translate", { text, beams: Math.max(Number(beams), Number(best)), best: Number(best), alternatives: 5, alignment: true }],
  draw([answer]) {
    return [drawOutputs(answer.outputs), answer.alignment && drawAlignment(answer.alignment), answer.steps?.length && drawSteps(answer.steps)];
  },
};

function drawAlignment({ source, target, weights }) {
  const { element } = matrix({ rows: target, columns: source, weights, label: "Alignment of translation and source", from: "writing", to: "it looked at" });
  return h("div", { class: "alignment" }, h("h3", {}, "Alignment"), element,
    h("p", { class: "note" }, "Rows: what was written. Columns: the source. The stronger the color, the more weight (the root of it, so that small ones show). Attention is not explanation."));
}
