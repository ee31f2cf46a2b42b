// Neighbours of a word in context: where else in some lines a word means, or does, the same.

import { rankedLines } from "../drawings/ranked.js";
import { h } from "../dom.js";
import { around, lines, number } from "../text.js";

const WIDE = 90; // letters that are shown on each side of a word
const USUAL = "usual";

function layers(model) {
  const each = Array.from({ length: model.layers ?? 0 }, (_, index) => [String(index + 1), `Layer ${index + 1}`]);
  return [[USUAL, "Last four, summed"], ["0", "Embeddings"], ...each];
}

export default {
  id: "neighbours",
  title: "Neighbours",
  heading: "Neighbours of a word in context",
  about: "The words of the lines whose states lie nearest to those of one word in its text: a model that reads context tells its senses apart.",
  serves: (model) => model.can.includes("neighbours"),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 2 },
    { name: "word", label: "Word in it", kind: "line" },
    { name: "lines", label: "Lines to look among, one sentence on each", kind: "text", rows: 8 },
    { name: "at", label: "Occurrence", kind: "number", min: 1, max: 100, value: 1 },
    { name: "top", label: "Neighbours", kind: "number", min: 1, max: 50, value: 10 },
    { name: "layer", label: "Layer", kind: "choice", options: layers },
  ],
  example: {
    text: "We sat on the bank and watched the boats go by.",
    word: "bank",
    at: 1,
    lines: [
      "The bank raised its interest rates again in spring.",
      "Willows grow along the bank of the stream.",
      "She opened an account at the bank next to the station.",
      "The river broke its bank after three days of rain.",
      "My bank charges a fee for every transfer abroad.",
      "They pulled the canoe up the muddy bank.",
      "A bank that lends too freely will soon be in trouble.",
      "On the far bank two herons were fishing.",
      "The robbers left the bank with two bags of coins.",
      "Ducks slept in the grass at the edge of the pond.",
      "He borrowed the money from a friend, not from a lender.",
      "The path follows the shore of the lake for a mile.",
    ].join("\n"),
  },
  request({ text, word, lines: given, at, top, layer }) {
    const chosen = layer === USUAL ? {} : { layer: Number(layer) };
    return ["neighbours", { text, word: word.trim(), at: Number(at), texts: lines(given), top: Number(top), ...chosen }];
  },
  draw([answer], { text }) {
    const items = answer.neighbours.map((one) => ({ nodes: lit(one.text, one), share: one.score, value: number(one.score, 3) }));
    return [h("p", { class: "text large", dir: "auto" }, ...lit(text, answer)), h("h3", {}, `Nearest to “${answer.word}” in this text`),
      rankedLines(items, "Neighbours, the nearest first"),
      h("p", { class: "note" }, "The bar is the cosine of the two words' states: 1 is the same direction, 0 is unrelated. All words of the lines are compared, not only equal ones.")];
  },
};

function lit(text, { start, end }) {
  const [before, word, behind] = around(text, start, end, WIDE);
  return [before, h("mark", {}, word), behind];
}
