// What the model reads: pieces, their numbers, where they stand in the text, and what normalisation changed before.

import { h } from "../dom.js";
import { changes, drawChanges, drawSpans, exact, points } from "../text.js";

export default {
  id: "tokens",
  title: "Tokens",
  heading: "See what the model reads",
  about: "The text cut into the pieces of this model's vocabulary, with their ids and places.",
  enter: true,
  serves: (model) => model.can.includes("tokenize"),
  fields: [{ name: "text", label: "Text", kind: "text", rows: 3 }],
  example: { text: "Ünbelievably, the café’s  naïve barista said: “Ёлка, tannenbäumchen!”" },
  request: ({ text }) => ["tokenize", { text }],
  draw([answer], { text }) {
    const inside = answer.tokens.filter(({ start, end }) => end > start);
    const [nodes] = drawSpans(text, inside, (words, { id }) => h("span", { class: "piece", title: `id ${id}` }, words));
    const counts = `${answer.tokens.length} tokens, ${points(text).length} letters, ${answer.unknown} unknown`;
    return [h("p", { class: "text large pieces", dir: "auto" }, ...nodes), h("p", { class: "note" }, counts), drawNormal(text, answer.normalized), drawTable(answer.tokens, text)];
  },
};

function drawNormal(text, normalized) {
  if (normalized === undefined || normalized === null) return null;
  const found = normalized === text ? [] : changes(text, normalized);
  const words = found === null ? h("p", { class: "text" }, normalized) : drawChanges(found);
  const same = h("p", { class: "note" }, "Nothing: the tokenizer reads the text as it stands.");
  return h("div", {}, h("h3", {}, "What normalisation changed"), normalized === text ? same : words);
}

function drawTable(tokens, text) {
  const letters = points(text);
  const head = h("tr", {}, ...["", "Token", "Id", "Letters", "In the text"].map((name) => (name ? h("th", { scope: "col" }, name) : h("td"))));
  const rows = tokens.map(({ token, id, start, end }, index) =>
    h("tr", {}, h("td", { class: "value" }, String(index)), h("td", { class: "token" }, exact(token)), h("td", { class: "value" }, String(id)),
      h("td", { class: "value" }, end > start ? `${start}–${end}` : "—"), h("td", { class: "text" }, letters.slice(start, end).join(""))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tokens" }, h("table", {}, h("thead", {}, head), h("tbody", {}, ...rows)));
}
