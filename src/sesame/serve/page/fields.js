// The fields of a form. A field is {name, label, kind, ...}; some of them depend on the chosen model.
//   text: several lines; line: one; number: min, max, value; choice: options, pairs of [value, words].

import { freshId, h } from "./dom.js";

export function makeField(given, model) {
  const id = freshId(given.name);
  const input = MAKERS[given.kind](given, id, model);
  const label = h("label", { for: id }, given.label, given.optional && h("span", { class: "optional" }, " optional"));
  const short = given.kind === "number" || given.kind === "choice";
  const extra = given.insert && insertButton(given.insert, input);
  const element = h("div", { class: short ? "field short" : "field" }, h("div", { class: "labels" }, label, extra), input);
  element.hidden = input.tagName === "SELECT" && input.options.length < 2;
  return { element, get: () => input.value, set: (value) => put(input, value), focus: () => input.focus() };
}

const MAKERS = {
  text: (given, id) => h("textarea", { id, name: given.name, rows: given.rows ?? 3, spellcheck: "false", dir: "auto" }),
  line: (given, id) => h("input", { id, name: given.name, type: "text", spellcheck: "false", autocomplete: "off", dir: "auto" }),
  number: (given, id, model) => {
    const max = typeof given.max === "function" ? given.max(model) : given.max;
    return h("input", { id, name: given.name, type: "number", min: given.min, max, step: given.step ?? 1, value: given.value, required: true });
  },
  choice: (given, id, model) => {
    const options = typeof given.options === "function" ? given.options(model) : given.options;
    return h("select", { id, name: given.name }, ...options.map(([value, words]) => h("option", { value }, words)));
  },
};

/** A value that is no option of a list, or above the most a model has, would leave the field empty: keep what stands. */
function put(input, value) {
  if (input.tagName === "SELECT" && ![...input.options].some((option) => option.value === String(value))) return;
  if (input.type === "number" && (!Number.isFinite(Number(value)) || (input.max && Number(value) > Number(input.max)))) return;
  input.value = value;
}

function insertButton(words, input) {
  const put = () => {
    input.setRangeText(words, input.selectionStart, input.selectionEnd, "end");
    input.focus();
  };
  return h("button", { type: "button", class: "quiet small", onclick: put }, `Insert ${words}`);
}
