// Fill the gaps of a text: each gap with its likeliest tokens.

import { bars } from "../drawings/bars.js";
import { h } from "../dom.js";

const MASK = /\[MASK\]|<mask>/g;

export default {
  id: "fill",
  title: "Fill",
  heading: "Fill the gap",
  about: "Put [MASK] where a word is missing. The bars are the model's probabilities for each gap.",
  enter: true,
  serves: (model) => model.can.includes("fill"),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 2, insert: "[MASK]" },
    { name: "top", label: "Candidates", kind: "number", min: 1, max: 50, value: 8 },
  ],
  example: { text: "The capital of [MASK] is Paris, a city known for its [MASK]." },
  request: ({ text, top }) => ["fill", { text, top: Number(top) }],
  draw([answer], { text }) {
    const gaps = answer.gaps.map((gap) => h("span", { class: "gap" }, gap[0]?.token.trim() ?? "?"));
    const parts = text.split(MASK);
    const exact = parts.length === answer.gaps.length + 1;
    const filled = exact ? parts.flatMap((part, index) => [part, gaps[index] ?? ""]) : [answer.text];
    const lists = answer.gaps.map((gap, index) => {
      const pick = ({ name }) => { gaps[index].textContent = name.trim(); };
      const items = gap.map(({ token, score }, place) => ({ name: token, value: score, strong: place === 0 }));
      const title = answer.gaps.length > 1 ? `Gap ${index + 1}` : "Candidates";
      return h("div", { class: "column" }, h("h3", {}, title), bars(items, { pick: exact ? pick : null, label: title }));
    });
    return [h("p", { class: "text large", dir: "auto" }, ...filled), exact && h("p", { class: "note" }, "Press a candidate to read it in its place."), h("div", { class: "columns" }, ...lists)];
  },
};
