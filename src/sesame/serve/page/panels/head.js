// One head, one word, step by step, with the model's own numbers.
//   score_j = q · k_j × scale (+ what the model adds for places)     weight = softmax(score)     output = Σ_j weight_j v_j

import { along, h, roving } from "../dom.js";
import { lectureFor } from "../drawings/lecture.js";
import { visible } from "../text.js";

export default {
  id: "head",
  title: "One head",
  heading: "One head, step by step",
  about: "Queries, keys and values of one head, and how a word's output is computed from them, with the model's own numbers.",
  enter: true,
  serves: (model) => model.can.includes("attention"),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 2 },
    { name: "layer", label: "Layer", kind: "number", min: 0, max: (model) => Math.max(0, (model.layers ?? 1) - 1), value: 0 },
    { name: "head", label: "Head", kind: "number", min: 0, max: (model) => Math.max(0, (model.heads ?? 1) - 1), value: 0 },
  ],
  example: { text: "The bank of the river was green." },
  request: ({ text, layer, head }) => ["attention", { text, layer: Number(layer), head: Number(head) }],
  draw([answer], { layer, head }) {
    const place = h("div", { class: "lecture" });
    const words = answer.tokens.map((token, index) => h("button", { type: "button", class: "chip", "aria-pressed": "false", onclick: () => show(index) }, visible(token)));
    roving(words, along(words.length, { back: "ArrowLeft", on: "ArrowRight" }));
    function show(index) {
      words.forEach((word, other) => {
        word.classList.toggle("lit", other === index);
        word.setAttribute("aria-pressed", String(other === index));
      });
      place.replaceChildren(...lectureFor(answer, index));
    }
    show(Math.min(1, words.length - 1));
    return [h("h3", {}, `Layer ${layer}, head ${head}: which word looks?`), h("div", { class: "chips", role: "group", "aria-label": "The word that looks" }, ...words), place];
  },
};
