// Shares as bars: the name, the bar, the number.

import { h } from "../dom.js";
import { percent, visible } from "../text.js";

/** `items` are {name, value}; with `pick(item)` the names are buttons. */
export function bars(items, { pick = null, format = percent, label = null } = {}) {
  const rows = items.map((item) => {
    const name = visible(item.name);
    const word = pick ? h("button", { type: "button", class: "word", onclick: () => pick(item), "aria-label": `${name}, ${format(item.value)}` }, name) : name;
    const length = Math.max(0, Math.min(1, item.value));
    return h("li", { class: item.strong ? "bar strong" : "bar" },
      h("span", { class: "name", dir: "auto" }, word),
      h("span", { class: "track", vars: { "--share": length }, "aria-hidden": "true" }),
      h("span", { class: "value" }, format(item.value)));
  });
  return h("ol", { class: "bars", "aria-label": label }, ...rows);
}

/** The labels of a class answer, likeliest first. */
export function scoreBars(scores) {
  const sorted = Object.entries(scores).sort((a, b) => b[1] - a[1]);
  return bars(sorted.map(([name, value], index) => ({ name, value, strong: index === 0 })), { label: "Probability of each label" });
}
