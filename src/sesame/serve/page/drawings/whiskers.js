// Scores as bars from 0 to 1, each with its spread as a whisker, and one dashed line through all of them.

import { h } from "../dom.js";
import { percent } from "../text.js";

const inside = (value) => Math.max(0, Math.min(1, value));

/** `items` are {name, score, spread, apart}; what stands `apart` has a rule above it; `least` is where the line is. */
export function whiskers(items, { least, label }) {
  const rows = items.map(({ name, score, spread, apart }) => {
    const vars = { "--share": inside(score), "--low": inside(score - spread), "--high": inside(score + spread), "--least": inside(least) };
    return h("li", { class: apart ? "probe apart" : "probe" },
      h("span", { class: "name" }, name),
      h("span", { class: "lane", vars, "aria-hidden": "true" }, h("span", { class: "whisker" }), h("span", { class: "least" })),
      h("span", { class: "value" }, percent(score), h("span", { class: "spread" }, ` ± ${(100 * spread).toFixed(1)}`)));
  });
  return h("ol", { class: "probes", "aria-label": label }, ...rows);
}
