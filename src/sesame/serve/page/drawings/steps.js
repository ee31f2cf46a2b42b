// Written tokens, each with what the model might have written instead.

import { along, h, roving } from "../dom.js";
import { bars } from "./bars.js";
import { visible } from "../text.js";

const BLANK = /^\s/;

/** Where tokens carry the blank before a word, those without one touch the token that they go on. */
export function drawSteps(steps) {
  const place = h("div", { class: "beside-steps" });
  const spaced = steps.some((step) => BLANK.test(step.token));
  const joined = (step, index) => spaced && index > 0 && !BLANK.test(step.token);
  const chips = steps.map((step, index) => h("button", { type: "button", class: joined(step, index) ? "chip joined" : "chip", onclick: () => show(index), onmouseenter: () => show(index), onfocus: () => show(index) }, visible(step.token)));
  roving(chips, along(chips.length, { back: "ArrowLeft", on: "ArrowRight" }));
  function show(index) {
    chips.forEach((chip, other) => chip.classList.toggle("lit", other === index));
    const items = steps[index].alternatives.map(({ token, p }) => ({ name: token, value: p, strong: token === steps[index].token }));
    place.replaceChildren(h("h4", {}, `Step ${index + 1}: what might have stood here`), bars(items, { label: `Alternatives at step ${index + 1}` }),
      ...(items.some((item) => item.strong) ? [] : [h("p", { class: "note" }, `“${visible(steps[index].token)}” was written; it is not among the likeliest.`)]));
  }
  if (steps.length) show(0);
  return h("div", { class: "steps" }, h("h3", {}, "Step by step"), h("p", { class: "note" }, "Point at a token, or walk with the arrow keys."),
    h("div", { class: "chips", role: "group", "aria-label": "Tokens written" }, ...chips), place);
}

/** The texts of generate and translate: the best one large, the others with their scores. */
export function drawOutputs(outputs, before = "") {
  const [best, ...others] = outputs;
  const rest = others.map((output) => h("li", {}, h("span", { class: "text", dir: "auto" }, output.text), h("span", { class: "value" }, score(output))));
  const silent = !best?.text.trim() && h("p", { class: "note" }, "The model ended at once: its best output is empty.");
  return h("div", { class: "outputs" }, h("p", { class: "text large", dir: "auto" }, before && h("span", { class: "given" }, before), best?.text ?? ""), silent,
    rest.length > 0 && h("ol", { class: "ranked", start: "2", "aria-label": "Other outputs" }, ...rest));
}

function score(output) {
  return typeof output.score === "number" ? output.score.toFixed(2).replace("-", "−") : "";
}
