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
    text: "The actors forgot their lines in the last play.",
    word: "play",
    at: 1,
    lines: [
      "The children play in the garden until dark.",
      "The play had three acts and a long interval.",
      "We play chess on Sunday evenings.",
      "She wrote a play about her grandmother.",
      "Two boys play football behind the church.",
      "The audience loved the new play at the theatre.",
      "Our team will play the final on Saturday.",
      "Tickets for the play were sold out in an hour.",
      "He was too tired to play tennis.",
      "The critics called it the best play of the season.",
      "The drama opened on a stage in London.",
      "They enjoyed the game in the rain.",
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
