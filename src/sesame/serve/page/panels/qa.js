// Questions: the span of the context that answers, lit; other answers light up when they are pointed at.

import { along, h, roving } from "../dom.js";
import { drawSpans, percent } from "../text.js";
import { bars } from "../drawings/bars.js";

export default {
  id: "qa",
  title: "Answer",
  heading: "Answer from a text",
  about: "The answer is a span of the context. A model trained to abstain also says how likely it is that there is none.",
  fits: (task) => task.kind === "qa",
  serves: (model) => model.can.includes("qa"),
  fields: [
    { name: "question", label: "Question", kind: "line" },
    { name: "context", label: "Context", kind: "text", rows: 5 },
    { name: "best", label: "Answers", kind: "number", min: 1, max: 20, value: 3 },
  ],
  example: {
    question: "Where was the engine shown?",
    context: "Charles Babbage showed a small part of his difference engine in his house in Dorset Street. The machine itself was never finished; its drawings lay for years in the Science Museum.",
  },
  request: ({ question, context, best }) => ["qa", { question, context, best: Number(best) }],
  draw([answer], { context }) {
    const place = h("p", { class: "text large", dir: "auto" });
    const none = answer.none === null || answer.none === undefined ? null : answer.none;
    const abstains = answer.answers.length === 0 || (none !== null && none > answer.answers[0].score);
    const light = (span) => {
      const [nodes] = drawSpans(context, span ? [span] : [], (words) => h("mark", {}, words));
      place.replaceChildren(...nodes);
    };
    const buttons = answer.answers.map((span) => h("button", { type: "button", class: "answer", onclick: () => light(span), onmouseenter: () => light(span), onfocus: () => light(span) },
      h("span", { class: "text", dir: "auto" }, span.text), h("span", { class: "value" }, percent(span.score))));
    if (buttons.length) roving(buttons, along(buttons.length));
    light(abstains ? null : answer.answers[0]);
    const verdict = abstains ? "The model finds no answer in this context." : answer.answers[0].text;
    return [h("p", { class: abstains ? "verdict-line none" : "verdict-line" }, verdict), place,
      h("div", { class: "columns" },
        h("div", { class: "column" }, h("h3", {}, "Best answers"), h("ol", { class: "ranked" }, ...buttons.map((button) => h("li", {}, button)))),
        none !== null && h("div", { class: "column" }, h("h3", {}, "No answer"), bars([{ name: "none", value: none, strong: abstains }])))];
  },
};
