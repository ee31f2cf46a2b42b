// Tags: what was found, drawn where it stands in the text, and listed.

import { h } from "../dom.js";
import { drawSpans, percent } from "../text.js";

export default {
  id: "tag",
  title: "Tag",
  heading: "Tag the words",
  about: "Names and other spans that the model finds, drawn in the text.",
  enter: true,
  fits: (task) => task.kind === "tag",
  serves: (model) => model.can.includes("tag"),
  fields: [{ name: "text", label: "Text", kind: "text", rows: 3 }],
  example: { text: "Ada Lovelace met Charles Babbage in London in 1833 and wrote about his engine." },
  request: ({ text }) => ["tag", { text }],
  draw([answer], { text }) {
    if (answer.entities.length === 0) return [h("p", { class: "text large", dir: "auto" }, text), h("p", { class: "note" }, "Nothing was found in this text.")];
    const mark = (words, { label }) => h("mark", {}, words, h("span", { class: "label" }, label));
    const [nodes, left] = drawSpans(text, answer.entities, mark);
    const rows = answer.entities.map(({ label, text: words, start, end, score }) =>
      h("tr", {}, h("td", { class: "text" }, words), h("td", {}, label), h("td", { class: "value" }, `${start}–${end}`), h("td", { class: "value" }, percent(score))));
    const head = h("tr", {}, ...["Span", "Label", "Letters", "Score"].map((name) => h("th", { scope: "col" }, name)));
    return [h("p", { class: "text large tagged", dir: "auto" }, ...nodes),
      left.length > 0 && h("p", { class: "note" }, `${left.length} spans overlap others and stand only in the table.`),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Spans" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)))];
  },
};
