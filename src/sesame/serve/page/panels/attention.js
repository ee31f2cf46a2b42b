// The attention explorer: all heads small, one of them large as lines or matrix, one word in numbers.

import { bars } from "../drawings/bars.js";
import { LINES_NOTE, lines } from "../drawings/lines.js";
import { matrix } from "../drawings/matrix.js";
import { thumbs } from "../drawings/thumbs.js";
import { freshId, h } from "../dom.js";
import { format } from "../fragment.js";
import { visible } from "../text.js";

const SHOWN = 8; // words in the list of what one word looks at

export default {
  id: "attention",
  title: "Attention",
  heading: "Where each head looks",
  about: "Every layer and head of the model on one text. Choose a head, then a word.",
  enter: true,
  serves: (model) => model.can.includes("attention"),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 2 },
    { name: "pair", label: "Second text", kind: "line", optional: true },
  ],
  example: { text: "The animal did not cross the street because it was too tired." },
  request: ({ text, pair }) => ["attention", { text, ...(pair.trim() ? { pair } : {}) }],
  draw: ([answer], values, model) => explore(answer, values, model),
};

export const CAPTION = "Attention is not explanation: a weight says where a head looked, not why the model answered as it did.";

function explore({ tokens, weights }, values, model) {
  const now = { layer: 0, head: 0, view: "lines" };
  const large = h("div", { class: "large-map" });
  const word = h("div", { class: "one-word" });
  const title = h("h3", {});
  const link = h("a", { class: "go" }, "This head step by step");
  const all = thumbs(weights, (layer, head) => { Object.assign(now, { layer, head }); draw(); });
  const layer = picker("Layer", weights.length, (value) => { now.layer = value; draw(); });
  const head = picker("Head", weights[0].length, (value) => { now.head = value; draw(); });
  const view = views((value) => { now.view = value; draw(); });

  function draw() {
    const map = weights[now.layer][now.head];
    const label = `layer ${now.layer}, head ${now.head}`;
    title.textContent = label[0].toUpperCase() + label.slice(1);
    layer.select.value = now.layer;
    head.select.value = now.head;
    all.mark(now.layer, now.head);
    const model_name = values.model ? { model: model.name } : {};
    link.setAttribute("href", format("head", { text: values.text, layer: now.layer, head: now.head, ...model_name, go: 1 }));
    link.hidden = Boolean(values.pair?.trim());
    const drawn = now.view === "lines"
      ? lines({ tokens, weights: map, label: `Words that look and words looked at, ${label}`, onWord: (index) => tell(map, index) })
      : matrix({ rows: tokens, columns: tokens, weights: map, label: `Attention, ${label}`, from: "", to: "→", onRow: (row) => tell(map, row) });
    large.replaceChildren(drawn.element);
    tell(map, null);
  }

  function tell(map, index) {
    if (index === null) {
      word.replaceChildren(h("p", { class: "note" }, "Point at a word, or walk with the arrow keys, to see what it looks at."));
      return;
    }
    const items = map[index].map((value, other) => ({ name: tokens[other], value })).sort((a, b) => b.value - a.value);
    const rest = items.length > SHOWN ? `and ${items.length - SHOWN} more words` : "";
    word.replaceChildren(h("h4", {}, `${visible(tokens[index])} looks at`), bars(items.slice(0, SHOWN)), rest && h("p", { class: "note" }, rest));
  }

  draw();
  const controls = h("div", { class: "choosers" }, layer.element, head.element, view);
  return [
    h("div", { class: "explorer" },
      h("div", { class: "all-heads" }, h("h3", {}, "All heads"), all.element),
      h("div", { class: "one-head" }, h("div", { class: "title-row" }, title, link), controls, large, word)),
    h("p", { class: "caption" }, CAPTION),
    h("p", { class: "note" }, `The stronger the color, the more weight; shades follow its root, so that small ones show. ${LINES_NOTE}`),
  ];
}

function picker(label, count, pick) {
  const id = freshId("pick");
  const options = Array.from({ length: count }, (_, index) => h("option", { value: index }, String(index)));
  const select = h("select", { id, onchange: (event) => pick(Number(event.target.value)) }, ...options);
  return { element: h("div", { class: "field short" }, h("label", { for: id }, label), select), select };
}

function views(pick) {
  const group = freshId("view");
  const radio = (value, words) => h("label", { class: "radio" }, h("input", { type: "radio", name: group, value, checked: value === "lines", onchange: () => pick(value) }), words);
  return h("fieldset", { class: "views" }, h("legend", {}, "Draw"), radio("lines", "Lines"), radio("matrix", "Matrix"));
}
