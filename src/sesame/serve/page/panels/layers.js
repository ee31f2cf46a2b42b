// What each layer knows: a linear probe on the states of each layer, and what tasks of the model learnt to read of them.

import { bars } from "../drawings/bars.js";
import { whiskers } from "../drawings/whiskers.js";
import { h } from "../dom.js";
import { lines, percent } from "../text.js";

const EXAMPLE = {
  weather: ["It rained all night and the streets are wet.", "A cold wind blows from the north.", "Tomorrow will be sunny and warm.", "Fog hid the towers of the bridge.",
    "Snow fell on the hills this morning.", "The storm took two trees in our street.", "It is too hot to sit outside.", "Clouds came up after lunch."],
  food: ["The soup needs a little more salt.", "She baked bread with walnuts.", "We had fish and potatoes for dinner.", "This cheese smells of old cellars.",
    "Peel the apples and cut them small.", "He drinks his coffee without sugar.", "The cake is still in the oven.", "Fresh basil makes the sauce better."],
  sport: ["Our team won by two goals.", "She ran the last mile in five minutes.", "The referee sent him off the field.", "He trains for the marathon every day.",
    "They lost the final in extra time.", "The goalkeeper saved three penalties.", "Her serve was too fast to return.", "The coach changed half of the players."],
};

export default {
  id: "layers",
  title: "Layers",
  heading: "What each layer knows",
  about: "For each layer a straight cut is learnt that tells your labels apart from its states alone, and is tried on rows that it did not see.",
  serves: (model) => model.can.includes("layers"),
  fields: [{ name: "rows", label: "Rows, each a label, a bar | or a tab, and a text; ten at least", kind: "text", rows: 10 }],
  example: { rows: Array.from({ length: 8 }, (_, index) => Object.entries(EXAMPLE).map(([label, texts]) => `${label} | ${texts[index]}`)).flat().join("\n") },
  request({ rows }) {
    const parts = lines(rows).map(split);
    return ["layers", { texts: parts.map(([, text]) => text), labels: parts.map(([label]) => label) }];
  },
  draw: ([answer]) => [
    h("h3", {}, "Labels told right, layer by layer"),
    whiskers(answer.layers.map(named), { least: answer.least, label: "Accuracy of a probe on each layer" }),
    h("p", { class: "note" }, `${answer.rows} rows in ${answer.folds} folds: mean over the folds and its spread. Dashed: the share of the commonest label, ${percent(answer.least)}, which needs no reading. The mix is the mean of the states of all layers.`),
    h("p", { class: "caption" }, "A probe tells what can be read off a layer, not whether the model uses it."),
    ...Object.entries(answer.mixes).flatMap(([task, shares]) => [h("h3", {}, `What the task ${task} learnt to read`),
      bars(shares.map((value, index) => ({ name: index ? `Layer ${index}` : "Embeddings", value })), { label: `Shares of the layers in the mix of ${task}` })]),
  ],
};

function split(line, index) {
  const found = /^([^\t|]+)[\t|](.+)$/.exec(line);
  const parts = found ? [found[1].trim(), found[2].trim()] : [];
  if (!parts[0] || !parts[1]) throw new Error(`Row ${index + 1} has no label or no text: write label | text.`);
  return parts;
}

function named({ layer, score, spread }) {
  const names = { embeddings: "Embeddings", mix: "Mix of all" };
  return { name: names[layer] ?? `Layer ${layer}`, score, spread, apart: layer === "mix" };
}
