// Offsets of the server count code points; JavaScript's strings count halves of some. All cutting happens here.

import { h } from "./dom.js";

export function points(text) {
  return Array.from(text);
}

/** The text with its spans drawn by `draw(words, span)`; returns [nodes, spans that overlap others and were not drawn]. */
export function drawSpans(text, spans, draw) {
  const letters = points(text);
  const nodes = [];
  const left = [];
  let place = 0;
  for (const span of [...spans].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (span.start < place || span.end <= span.start) {
      left.push(span);
      continue;
    }
    nodes.push(letters.slice(place, span.start).join(""), draw(letters.slice(span.start, span.end).join(""), span));
    place = span.end;
  }
  nodes.push(letters.slice(place).join(""));
  return [nodes, left];
}

/** A span and at most so many letters on each side of it: [before, span, behind]. */
export function around(text, start, end, most) {
  const letters = points(text);
  const before = letters.slice(Math.max(0, start - most), start).join("");
  const behind = letters.slice(end, end + most).join("");
  return [start > most ? `…${before}` : before, letters.slice(start, end).join(""), letters.length > end + most ? `${behind}…` : behind];
}

export function lines(text) {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share < 1 && share > 0.999) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** A number for a table, with a real minus sign; the server writes null where a score is minus infinity. */
export function number(value, digits = 2) {
  if (value === null || value === undefined || value <= -1e9) return "−∞";
  const rounded = value.toFixed(digits);
  return Number(rounded) === 0 ? (0).toFixed(digits) : rounded.replace("-", "−");
}

const BLANKS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\u00a0": "⍽" };

const named = (letter) => BLANKS[letter] ?? (letter.trim() === "" ? `U+${letter.codePointAt(0).toString(16)}` : letter);

/** A token as a word: without the blank that some tokenizers keep before it; blanks alone would be invisible. */
export function visible(token) {
  if (token === "") return "∅";
  return token.trim() === "" ? points(token).map(named).join("") : token.trim();
}

/** A token to the letter. */
export function exact(token) {
  return points(token).map(named).join("") || "∅";
}

/** Digits that leave something of the largest of these numbers. */
export function digitsFor(values) {
  const most = Math.max(0, ...values.filter((value) => value !== null && Math.abs(value) < 1e4).map(Math.abs));
  return most >= 1 ? 2 : most >= 0.1 ? 3 : 4;
}

const LONGEST = 1500; // code points; the comparison takes the square of it

/** What changed between two texts: [kind, letters] with kind "same", "gone" or "new"; null if they are too long. */
export function changes(before, after) {
  const a = points(before);
  const b = points(after);
  if (a.length > LONGEST || b.length > LONGEST) return null;
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const found = [];
  const add = (kind, letter) => {
    if (found.length && found.at(-1)[0] === kind) found.at(-1)[1] += letter;
    else found.push([kind, letter]);
  };
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) { add("same", a[i]); i += 1; j += 1; }
    else if (i < a.length && (j === b.length || common[i + 1][j] >= common[i][j + 1])) { add("gone", a[i]); i += 1; }
    else { add("new", b[j]); j += 1; }
  }
  return found;
}

export function drawChanges(found) {
  const tags = { gone: "del", new: "ins" };
  const shown = (kind, words) => (kind === "same" ? words : h(tags[kind], {}, exact(words)));
  return h("p", { class: "text changes" }, ...found.map(([kind, words]) => shown(kind, words)));
}
