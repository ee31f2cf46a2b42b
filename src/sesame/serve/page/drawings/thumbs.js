// All heads of all layers as small pictures; one of them is chosen, with the pointer or the arrow keys.

import { h, roving } from "../dom.js";
import { keepDrawn, paint } from "./colors.js";

/** `weights[layer][head][i][j]`; `pick(layer, head)`. Returns {element, mark(layer, head)}. */
export function thumbs(weights, pick) {
  const heads = weights[0].length;
  const buttons = weights.flatMap((layer, l) => layer.map((map, k) => {
    const canvas = h("canvas", { class: "cells" });
    keepDrawn(canvas, () => paint(canvas, map));
    return h("button", { type: "button", class: "thumb", "aria-pressed": "false", "aria-label": `layer ${l}, head ${k}`, title: `layer ${l}, head ${k}`, onclick: () => pick(l, k) }, canvas);
  }));
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -heads, ArrowDown: heads };
  const reach = roving(buttons, (key, index) => (key in step ? index + step[key] : null));
  const head = h("div", { class: "thumb-row", "aria-hidden": "true" }, h("span", { class: "which" }, "head"), ...weights[0].map((_, k) => h("span", { class: "which number" }, String(k))));
  const rows = weights.map((_, l) => h("div", { class: "thumb-row" }, h("span", { class: "which" }, l === 0 ? "layer 0" : String(l)), ...buttons.slice(l * heads, (l + 1) * heads)));
  const element = h("div", { class: "thumbs", role: "group", "aria-label": "All heads; arrow keys move, Enter chooses", vars: { "--heads": heads } }, head, ...rows);
  function mark(layer, chosen) {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === layer * heads + chosen)));
    reach(layer * heads + chosen);
  }
  return { element, mark };
}
