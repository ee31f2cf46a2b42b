// A matrix of weights: cells on a canvas of one pixel each, names that stay in sight when a long one scrolls,
// one cell read out under the pointer or the arrow keys.

import { h, setVars } from "../dom.js";
import { number, visible } from "../text.js";
import { keepDrawn, paint } from "./colors.js";

/** `weights[row][column]`; `caption` names both sides; `onRow(row)` hears which row is looked at. */
export function matrix({ rows, columns, weights, label, from = "from", to = "to", shade = Math.sqrt, onRow = null }) {
  const longest = (words) => Math.max(...words.map((word) => visible(word).length));
  const size = Math.max(rows.length, columns.length) > 60 ? 14 : 24;
  const names = (words, kind) => words.map((word) => h("span", { class: kind, title: word }, visible(word)));
  const [above, beside] = [names(columns, "column"), names(rows, "row")];
  const canvas = h("canvas", { class: "cells", "aria-hidden": "true" });
  const cursor = h("span", { class: "cursor", hidden: true, "aria-hidden": "true" });
  const readout = h("p", { class: "readout", role: "status" });
  const field = h("div", { class: "field-of-cells" }, canvas, cursor);
  const box = h("div", { class: "matrix", tabindex: "0", role: "group", "aria-label": `${label}: ${rows.length} by ${columns.length}; arrow keys read the cells`, vars: { "--cell": `${size}px`, "--columns": columns.length, "--rows": rows.length, "--longest-row": longest(rows), "--longest-column": longest(columns) } },
    h("span", { class: "corner" }), h("div", { class: "above", "aria-hidden": "true" }, ...above), h("div", { class: "beside", "aria-hidden": "true" }, ...beside), field);
  let at = null;

  function look(row, column) {
    at = [Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column))];
    cursor.hidden = false;
    setVars(cursor, { "--row": at[0], "--column": at[1] });
    above.forEach((name, index) => name.classList.toggle("lit", index === at[1]));
    beside.forEach((name, index) => name.classList.toggle("lit", index === at[0]));
    readout.textContent = `${from} ${visible(rows[at[0]])} ${to} ${visible(columns[at[1]])}: ${number(weights[at[0]][at[1]], 3)}`;
    onRow?.(at[0]);
  }

  field.addEventListener("pointermove", (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    look(Math.floor((event.clientY - top) / size), Math.floor((event.clientX - left) / size));
  });
  field.addEventListener("pointerdown", (event) => {
    const { left, top } = canvas.getBoundingClientRect();
    look(Math.floor((event.clientY - top) / size), Math.floor((event.clientX - left) / size));
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    look(at ? at[0] + step[0] : 0, at ? at[1] + step[1] : 0);
    cursor.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  keepDrawn(canvas, () => paint(canvas, weights, shade));
  readout.textContent = "Point at a cell to read it.";
  return { element: h("div", { class: "matrix-box" }, box, readout), look };
}
