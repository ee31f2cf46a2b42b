// The table of runs. Rows live on from one look to the next, so that a box keeps its focus while its run goes on.

import { arrange, h } from "../dom.js";
import { amount, count, duration, figure } from "./axes.js";
import { swatch } from "./curves.js";

const NAMES = ["Run", "Recipe", "State", "Step", "Tokens", "Held out", "Last sign", "Size"];

/** `draw(runs, slots)`: runs in order, slots by name of those that are chosen; `choose(name, on)` hears the boxes. */
export function runTable(choose) {
  const body = h("tbody");
  const rows = new Map();
  const head = h("tr", {}, ...NAMES.map((name) => h("th", { scope: "col" }, name)));
  const element = h("div", { class: "scroll runs", tabindex: "0", role: "region", "aria-label": "Runs" }, h("table", {}, h("thead", {}, head), body));

  function draw(runs, slots) {
    for (const name of [...rows.keys()]) if (!runs.some((run) => run.name === name)) rows.delete(name);
    arrange(body, runs.map((run) => {
      if (!rows.has(run.name)) rows.set(run.name, makeRow(run.name, choose));
      rows.get(run.name).show(run, slots.get(run.name));
      return rows.get(run.name).element;
    }));
  }

  return { element, draw };
}

function makeRow(name, choose) {
  const box = h("input", { type: "checkbox", onchange: () => choose(name, box.checked) });
  const sample = h("span", { class: "sample" });
  const cells = NAMES.slice(1).map(() => h("td", { class: "value" }));
  const element = h("tr", {}, h("th", { scope: "row" }, h("label", { class: "radio" }, box, sample, h("span", { class: "name" }, name))), ...cells);
  function show(run, slot) {
    box.checked = slot !== undefined;
    sample.replaceChildren(...(slot === undefined ? [] : [swatch(slot)]));
    element.className = run.state;
    words(run).forEach((text, index) => { if (cells[index].textContent !== text) cells[index].textContent = text; });
  }
  return { element, show };
}

function words(run) {
  const step = run.steps === null ? count(run.step) : `${count(run.step)} / ${count(run.steps)}`;
  const last = Object.entries(run.last).map(([name, value]) => `${name === "valid" ? "score" : name} ${figure(value)}`);
  return [run.recipe, run.state, step, run.tokens ? amount(run.tokens) : "", last.join(", ") + (run.kept === null ? "" : ` of step ${count(run.kept)}`), `${duration(run.age)} ago`, run.size];
}
