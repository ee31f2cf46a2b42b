// Attention as lines: words that look on the left, words looked at on the right, the more weight the stronger the line.

import { along, h, roving, setVars, svg } from "../dom.js";
import { visible } from "../text.js";

const ROW = 28; // pixels, as in the style sheet
const FAINTEST = 0.03; // weights below it are not drawn
const WIDTH = 200;

/** `weights[i][j]`: how much word i looks at word j; `onWord(i or null)` hears which word is pointed at. */
export function lines({ tokens, weights, label, onWord }) {
  const left = tokens.map((token, index) => h("button", { type: "button", class: "word", onmouseenter: () => point(index), onfocus: () => point(index), onclick: () => point(index) }, visible(token)));
  const right = tokens.map((token) => h("span", { class: "word" }, visible(token)));
  const height = ROW * tokens.length;
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true", height });
  const groups = weights.map((row, i) => svg("g", {}, ...row.map((weight, j) => line(i, j, weight)).filter(Boolean)));
  drawing.append(...groups);
  roving(left, along(left.length));

  function point(word) {
    groups.forEach((group, index) => group.classList.toggle("off", word !== null && index !== word));
    left.forEach((button, index) => button.classList.toggle("lit", index === word));
    right.forEach((span, index) => {
      span.classList.toggle("seen", word !== null);
      setVars(span, { "--share": word === null ? 0 : Math.sqrt(weights[word][index]) });
    });
    onWord?.(word);
  }

  const box = h("div", { class: "lines", role: "group", "aria-label": label, onmouseleave: () => { if (!box.contains(document.activeElement)) point(null); } },
    h("div", { class: "side" }, ...left), drawing, h("div", { class: "side", "aria-hidden": "true" }, ...right));
  return { element: box, point };
}

function line(i, j, weight) {
  if (!(weight >= FAINTEST)) return null;
  const [from, to] = [ROW * (i + 0.5), ROW * (j + 0.5)];
  const path = svg("path", { d: `M0 ${from} C${WIDTH / 2} ${from} ${WIDTH / 2} ${to} ${WIDTH} ${to}`, "vector-effect": "non-scaling-stroke" });
  setVars(path, { "--share": weight });
  return path;
}

export const LINES_NOTE = `Weights below ${FAINTEST} are not drawn as lines.`;
