"use strict";
// Attention of one text: thumbnails of all heads, the matrix of one, and its lines.
const KINDS = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const now = { kind: 0, layer: 0, head: 0, row: null };

for (const kind of KINDS) {
  kind.layers = kind.weights.map((packed) => {
    const raw = atob(packed);
    const bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
    return new Uint16Array(bytes.buffer); // little-endian, as every machine with a browser is
  });
}

function weight(kind, layer, head, row, column) {
  const columns = kind.columns.length;
  return kind.layers[layer][(head * kind.rows.length + row) * columns + column] / 65535;
}

function make(name, attributes, text) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name, value) => new Option(name, value, false, value === chosen)));
}

function ink() {
  return getComputedStyle(document.documentElement).getPropertyValue("--plus");
}

function thumbnail(kind, layer, head) {
  const rows = kind.rows.length, columns = kind.columns.length;
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.style.cssText = "width:56px;height:" + Math.max(12, Math.min(112, Math.round((56 * rows) / columns))) +
    "px;image-rendering:pixelated";
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const color = ink().split(",").map(Number);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = 4 * (row * columns + column);
      image.data.set([...color, Math.round(255 * weight(kind, layer, head, row, column))], at);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function drawThumbs() {
  const kind = KINDS[now.kind], box = $("thumbs");
  box.replaceChildren();
  box.style.gridTemplateColumns = `auto repeat(${Math.max(...kind.heads)}, max-content)`;
  kind.layers.forEach((_, layer) => {
    const name = document.createElement("span");
    name.textContent = String(layer + 1);
    box.append(name);
    for (let head = 0; head < Math.max(...kind.heads); head++) {
      if (head >= kind.heads[layer]) {
        box.append(document.createElement("span"));
        continue;
      }
      const button = document.createElement("button");
      button.type = "button";
      button.title = button.ariaLabel = `layer ${layer + 1}, head ${head + 1}`;
      button.dataset.at = `${layer}-${head}`;
      button.append(thumbnail(kind, layer, head));
      button.onclick = () => choose(layer, head);
      box.append(button);
    }
  });
}

function say(row, column) {
  const kind = KINDS[now.kind];
  const told = (one) => `“${kind.rows[one]}”`;
  if (row === null) {
    $("said").textContent = "";
  } else if (column === null) {
    const best = kind.columns
      .map((token, at) => [weight(kind, now.layer, now.head, row, at), token])
      .sort((a, b) => b[0] - a[0])
      .slice(0, 4)
      .map(([value, token]) => `“${token}” ${(100 * value).toFixed(1)} %`);
    $("said").textContent = `${told(row)} looks at ${best.join(", ")}`;
  } else {
    const value = 100 * weight(kind, now.layer, now.head, row, column);
    $("said").textContent = `${told(row)} looks at “${kind.columns[column]}”: ${value.toFixed(2)} %`;
  }
}

function drawMatrix() {
  const kind = KINDS[now.kind], size = 18, left = 110, top = 90;
  const rows = kind.rows.length, columns = kind.columns.length;
  const svg = make("svg", { width: left + size * columns + 60, height: top + size * rows + 8, role: "img" });
  svg.setAttribute("aria-label", `weights of layer ${now.layer + 1}, head ${now.head + 1}`);
  kind.columns.forEach((token, at) => {
    const x = left + size * at + 12;
    svg.append(make("text", { x, y: top - 6, transform: `rotate(-60 ${x} ${top - 6})` }, cut(token)));
  });
  kind.rows.forEach((token, at) => {
    svg.append(make("text", { x: left - 6, y: top + size * at + 13, "text-anchor": "end" }, cut(token)));
    for (let column = 0; column < columns; column++) {
      const value = weight(kind, now.layer, now.head, at, column);
      const cell = { x: left + size * column, y: top + size * at, width: size, height: size, class: "cell" };
      svg.append(make("rect", { ...cell, "fill-opacity": value.toFixed(3), "data-row": at, "data-column": column }));
    }
  });
  svg.onmousemove = (event) => {
    const { row, column } = event.target.dataset;
    if (row !== undefined) say(Number(row), Number(column));
  };
  $("matrix").replaceChildren(svg);
}

function drawLines() {
  const kind = KINDS[now.kind], size = 22, left = 150, right = 400;
  const tall = Math.max(kind.rows.length, kind.columns.length) * size + 12;
  const svg = make("svg", { width: right + 160, height: tall, role: "img" });
  svg.setAttribute("aria-label", `looks of layer ${now.layer + 1}, head ${now.head + 1}`);
  kind.rows.forEach((_, row) => {
    if (now.row !== null && now.row !== row) return;
    kind.columns.forEach((_, column) => {
      const value = weight(kind, now.layer, now.head, row, column);
      if (value < 0.02) return;
      const y1 = row * size + 12, y2 = column * size + 12;
      svg.append(make("line", { x1: left, y1, x2: right, y2, "stroke-opacity": value.toFixed(3), "stroke-width": 2 }));
    });
  });
  kind.rows.forEach((token, row) => {
    const text = make("text", { x: left - 8, y: row * size + 16, "text-anchor": "end" }, cut(token));
    if (now.row === row) text.setAttribute("class", "hot");
    text.setAttribute("tabindex", "0");
    text.onmouseenter = text.onfocus = () => point(row);
    text.onmouseleave = text.onblur = () => point(null);
    svg.append(text);
  });
  kind.columns.forEach((token, column) => {
    svg.append(make("text", { x: right + 8, y: column * size + 16 }, cut(token)));
  });
  $("lines").replaceChildren(svg);
}

function point(row) {
  now.row = row;
  const lines = $("lines").querySelectorAll("line");
  lines.forEach((line) => {
    const own = row === null || Number(line.getAttribute("y1")) === row * 22 + 12;
    line.style.display = own ? "" : "none";
  });
  say(row, null);
}

function cut(token) {
  return token.length > 16 ? token.slice(0, 15) + "…" : token;
}

function choose(layer, head) {
  const kind = KINDS[now.kind];
  now.layer = Math.min(layer, kind.layers.length - 1);
  now.head = Math.min(head, kind.heads[now.layer] - 1);
  now.row = null;
  options($("layer"), kind.layers.map((_, at) => at + 1), now.layer);
  options($("head"), Array.from({ length: kind.heads[now.layer] }, (_, at) => at + 1), now.head);
  for (const button of $("thumbs").querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(button.dataset.at === `${now.layer}-${now.head}`));
  }
  say(null, null);
  drawMatrix();
  drawLines();
}

function show(kind) {
  now.kind = kind;
  drawThumbs();
  choose(KINDS[kind].layers.length - 1, 0);
}

options($("kind"), KINDS.map((kind) => kind.name), 0);
$("kind").onchange = (event) => show(Number(event.target.value));
$("layer").onchange = (event) => choose(Number(event.target.value), now.head);
$("head").onchange = (event) => choose(now.layer, Number(event.target.value));
matchMedia("(prefers-color-scheme: dark)").onchange = () => show(now.kind);
show(0);
