// Multiple choice: how a text goes on, or which answer is right.

import { rankedLines } from "../drawings/ranked.js";
import { h } from "../dom.js";
import { lines, percent } from "../text.js";

export default {
  id: "choice",
  title: "Choose",
  heading: "Choose among several",
  about: "Each choice is read together with the text; the bars are the model's probabilities.",
  fits: (task) => task.kind === "choice",
  serves: (model) => model.can.includes("choice"),
  fields: [
    { name: "text", label: "Beginning or question", kind: "text", rows: 2 },
    { name: "choices", label: "Choices, one on each line", kind: "text", rows: 4 },
  ],
  example: {
    text: "She poured the batter into the hot pan and",
    choices: "waited until the edges were golden.\nparked it behind the station.\nasked it for its passport.\nread it aloud to the class.",
  },
  request: ({ text, choices }) => ["choice", { text, choices: lines(choices) }],
  draw([answer], { choices }) {
    const given = lines(choices);
    const order = answer.scores.map((score, index) => ({ score, index })).sort((a, b) => b.score - a.score);
    const items = order.map(({ score, index }) => ({ nodes: [given[index]], share: score, value: percent(score) }));
    return [h("p", { class: "verdict-line" }, answer.text), rankedLines(items, "Choices, the likeliest first")];
  },
};
