// Lines of text in an order: the words, a bar for the share, the number. One is lit: under the pointer, or by the keys.

import { along, h, roving } from "../dom.js";

/** `items` are {nodes, share, value}: what stands in the line, 0 to 1, and how the number is written. */
export function rankedLines(items, label) {
  const rows = items.map(({ nodes, share, value }, index) => h("button", { type: "button", class: "ranked-line", onmouseenter: () => light(index), onfocus: () => light(index), onclick: () => light(index) },
    h("span", { class: "text", dir: "auto" }, ...nodes),
    h("span", { class: "track", vars: { "--share": Math.max(0, Math.min(1, share)) }, "aria-hidden": "true" }),
    h("span", { class: "value" }, value)));
  roving(rows, along(rows.length));
  function light(index) {
    rows.forEach((row, other) => row.classList.toggle("lit", other === index));
  }
  return h("ol", { class: "ranked-lines", "aria-label": label }, ...rows.map((row) => h("li", {}, row)));
}
