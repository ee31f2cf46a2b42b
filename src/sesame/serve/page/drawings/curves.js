// Learning curves: one line for each run, the values before smoothing faint behind it; a cursor reads what stands there.

import { freshId, h, svg } from "../dom.js";
import { amount, count, duration, figure, logTicks, range, scale, ticks } from "./axes.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [240, 54, 14, 10, 40]; // pixels
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "14 4"];
const COLORS = 6; // in the style sheet; five dashes and six colors make thirty pairs before one comes again
const FEW = 40; // points that are also marked
const HINT = "Point at the curves, or walk with the arrow keys, to read them.";

export const AXES = {
  step: { title: "steps", tick: amount, words: (value) => `step ${count(value)}` },
  tokens: { title: "tokens", tick: amount, words: (value) => `${amount(value)} tokens` },
  seconds: { title: "time", tick: duration, words: duration, unit: (most) => [86400, 3600, 60].find((size) => most >= 2 * size) ?? 1 },
};

/** How the line of a slot looks, as attributes. */
export function lineOf(slot, more = "") {
  return { class: `line-${slot % COLORS} ${more}`, "stroke-dasharray": DASHES[slot % DASHES.length] || null };
}

export function swatch(slot) {
  return svg("svg", { class: "swatch", viewBox: "0 0 30 8", "aria-hidden": "true" }, svg("path", { ...lineOf(slot, "smooth"), d: "M1 4 H29" }));
}

/** A chart; `draw({series, axis, log})` with series {name, slot, x, y, raw?, marked?}: y is the line, raw the values it smooths. */
export function curves(title) {
  const drawing = svg("svg", { "aria-hidden": "true", height: HEIGHT });
  const readout = h("p", { class: "readout", role: "status" }, HINT);
  const box = h("div", { class: "curves", tabindex: "0", role: "group", "aria-label": `${title}; arrow keys read the values` }, drawing);
  const clip = freshId("clip");
  let [given, frame, at, told] = [null, null, null, HINT];

  function draw(next = given) {
    given = next;
    if (!given) return;
    frame = frameOf(given, box.clientWidth || 480);
    drawing.setAttribute("viewBox", `0 0 ${frame.width} ${HEIGHT}`);
    const shown = [...given.series].sort((a, b) => b.slot - a.slot); // the first of the legend lies on top
    drawing.replaceChildren(svg("clipPath", { id: clip }, svg("rect", { x: LEFT, y: 0, width: frame.width - LEFT, height: HEIGHT - BOTTOM })),
      ...grid(frame, given), svg("g", { "clip-path": `url(#${clip})` },
        ...shown.filter((one) => one.raw).map((one) => path(one, one.raw, frame, "raw")), ...shown.map((one) => path(one, one.y, frame, "smooth")),
        ...shown.filter((one) => one.y.length <= (one.marked ? FEW : 1)).flatMap((one) => marks(one, frame))), svg("g", { class: "cursor-line" }));
    look(at);
  }

  function look(x) {
    const found = frame && x !== null && given.series.length ? reading(given.series, x) : null;
    at = found ? found.x : null;
    drawing.lastChild?.replaceChildren(...(found ? cursor(found, frame) : []));
    const words = found ? found.points.map(({ one, index }) => h("span", { class: "read" }, swatch(one.slot), `${one.name} `, h("b", {}, values(one, index)))) : [];
    const all = found ? `${AXES[given.axis].words(found.x)}: ${found.points.map(({ one, index }) => one.name + values(one, index))}` : HINT;
    if (all !== told) readout.replaceChildren(...(found ? [h("span", { class: "read" }, AXES[given.axis].words(found.x)), ...words] : [HINT]));
    told = all;
  }

  const point = (event) => look(frame && frame.back(event.clientX - drawing.getBoundingClientRect().left));
  box.addEventListener("pointermove", point);
  box.addEventListener("pointerdown", point);
  box.addEventListener("pointerleave", () => { if (document.activeElement !== box) look(null); });
  box.addEventListener("keydown", (event) => {
    const next = event.ctrlKey || event.metaKey || event.altKey || !given ? null : walked(event.key, places(given.series), at);
    if (next === null) return;
    event.preventDefault();
    look(next);
  });
  new ResizeObserver(() => draw()).observe(box);
  return { element: h("figure", { class: "chart" }, h("figcaption", {}, title), box, readout), draw };
}

function values(one, index) {
  return one.raw ? `${figure(one.y[index])} (raw ${figure(one.raw[index])})` : figure(one.y[index]);
}

function frameOf({ series, log }, width) {
  const most = series.reduce((far, one) => Math.max(far, one.x.at(-1)), 0) || 1;
  const found = range(series.flatMap((one) => one.y), log) ?? (log ? [0.1, 1] : [0, 1]);
  const x = scale(0, most, LEFT, width - RIGHT);
  const back = (place) => Math.max(0, Math.min(most, ((place - LEFT) / (width - RIGHT - LEFT)) * most));
  return { width, most, low: found[0], high: found[1], x, back, y: scale(...found, HEIGHT - BOTTOM, TOP, log) };
}

function grid({ width, most, low, high, x, y }, { axis, log }) {
  const across = (log ? logTicks : ticks)(low, high, 5).map((value) => svg("g", {},
    svg("path", { class: "rule", d: `M${LEFT} ${y(value).toFixed(1)} H${width - RIGHT}` }), svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, figure(value))));
  const unit = AXES[axis].unit?.(most) ?? 1;
  const along = ticks(0, most / unit, Math.floor(width / 70)).map((number) => number * unit).map((value) => svg("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": value ? "middle" : "start" }, AXES[axis].tick(value)));
  const name = svg("text", { x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, AXES[axis].title);
  return [...across, svg("path", { class: "base", d: `M${LEFT} ${HEIGHT - BOTTOM} H${width - RIGHT}` }), ...along, name];
}

/** A line through all values that have a place; a gap where one has none, as 0 on a logarithmic scale. */
function path(one, numbers, { x, y }, kind) {
  let words = "";
  let pen = "M";
  numbers.forEach((value, index) => {
    const place = value === null ? NaN : y(value);
    if (Number.isFinite(place)) words += `${pen}${x(one.x[index]).toFixed(2)} ${place.toFixed(2)}`;
    pen = Number.isFinite(place) ? "L" : "M";
  });
  return svg("path", { ...(kind === "raw" ? { class: `line-${one.slot % COLORS} raw` } : lineOf(one.slot, "smooth")), d: words, "data-run": one.name });
}

function marks(one, { x, y }) {
  const kept = one.y.map((value, index) => [x(one.x[index]), value === null ? NaN : y(value)]).filter(([, place]) => Number.isFinite(place));
  return kept.map(([across, up]) => svg("circle", { class: `line-${one.slot % COLORS}`, cx: across, cy: up, r: 2.5 }));
}

function cursor({ x: at, points }, { x, y }) {
  const dots = points.map(({ one, index }) => ({ one, across: x(one.x[index]), up: y(one.y[index]) })).filter(({ up }) => Number.isFinite(up));
  return [svg("path", { d: `M${x(at).toFixed(1)} ${TOP} V${HEIGHT - BOTTOM}` }), ...dots.map(({ one, across, up }) => svg("circle", { class: `line-${one.slot % COLORS}`, cx: across, cy: up, r: 4 }))];
}

/** All places of the x axis where some run has a value, in order. */
function places(series) {
  return [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
}

function nearest(sorted, x) {
  return sorted.reduce((best, place, index) => (Math.abs(place - x) < Math.abs(sorted[best] - x) ? index : best), 0);
}

/** The place nearest to x, and what each run that reaches so far has there. */
function reading(series, x) {
  const all = places(series);
  const here = all[nearest(all, x)];
  const reach = series.filter((one) => one.x[0] <= here && here <= one.x.at(-1));
  return { x: here, points: reach.map((one) => ({ one, index: nearest(one.x, here) })).filter(({ one, index }) => one.y[index] !== null) };
}

function walked(key, all, at) {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[key];
  if (step === undefined || all.length === 0) return null;
  if (at === null) return step > 0 && key !== "End" ? all[0] : all.at(key === "Home" ? 0 : -1);
  return all[Math.max(0, Math.min(all.length - 1, nearest(all, at) + step))];
}
