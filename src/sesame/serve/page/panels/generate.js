// Writing on: the text, and at each step what else the model might have written.

import { drawOutputs, drawSteps } from "../drawings/steps.js";

export default {
  id: "generate",
  title: "Generate",
  heading: "Write on",
  about: "The model continues the text. Temperature 0 always takes the likeliest token; the same seed draws the same text.",
  serves: (model) => model.can.includes("generate"),
  fields: [
    { name: "text", label: "Beginning", kind: "text", rows: 3 },
    { name: "max_tokens", label: "Tokens", kind: "number", min: 1, max: 512, value: 40 },
    { name: "temperature", label: "Temperature", kind: "number", min: 0, max: 5, step: 0.05, value: 0.8 },
    { name: "top_p", label: "Nucleus (top p)", kind: "number", min: 0.05, max: 1, step: 0.05, value: 0.95 },
    { name: "seed", label: "Seed", kind: "number", min: 0, max: 999999, value: 1 },
  ],
  example: { text: "Once upon a time, in a town by the sea," },
  /** The server draws as soon as it is given a number for drawing; at temperature 0 it gets none and searches greedily. */
  request(values) {
    const drawn = Number(values.temperature) > 0 ? ["temperature", "top_p", "seed"] : [];
    const numbers = ["max_tokens", ...drawn].map((name) => [name, Number(values[name])]);
    return ["generate", { text: values.text, ...Object.fromEntries(numbers), beams: 1, alternatives: 6 }];
  },
  draw: ([answer], { text }) => [drawOutputs(answer.outputs, answer.outputs[0]?.text.startsWith(text) ? "" : text), answer.steps?.length && drawSteps(answer.steps)],
};
