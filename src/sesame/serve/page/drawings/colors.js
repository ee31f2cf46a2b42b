// The style sheet's colors for canvases, and a word when light turns to dark.

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** [r, g, b] of a #rrggbb custom property. */
export function channels(name) {
  const hex = color(name).replace("#", "");
  return [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

/** Draws now and again when the scheme changes, as long as the canvas is part of the page. */
export function keepDrawn(canvas, draw) {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const again = () => {
    if (!canvas.isConnected) query.removeEventListener("change", again);
    else draw();
  };
  query.addEventListener("change", again);
  draw();
}

function mix(image, at, from, to, share) {
  for (let c = 0; c < 3; c += 1) image.data[at + c] = from[c] + share * (to[c] - from[c]);
  image.data[at + 3] = 255;
}

/** One pixel for each number of a vector: above zero in the accent, below in grey, by the root of its part of `most`. */
export function paintVector(canvas, vector, most) {
  const [paper, above, below] = [channels("--paper"), channels("--accent"), channels("--muted")];
  canvas.width = vector.length;
  canvas.height = 1;
  const context = canvas.getContext("2d");
  const image = context.createImageData(vector.length, 1);
  vector.forEach((value, d) => mix(image, 4 * d, paper, value < 0 ? below : above, Math.sqrt(Math.abs(value) / most)));
  context.putImageData(image, 0, 0);
}

/** One pixel for each weight, from paper to accent. The root makes small weights visible; it is told in the caption. */
export function paint(canvas, weights, shade = Math.sqrt) {
  const [rows, columns] = [weights.length, weights[0].length];
  const [paper, accent] = [channels("--paper"), channels("--accent")];
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  weights.forEach((row, i) => row.forEach((weight, j) => {
    const share = shade(Math.max(0, Math.min(1, weight ?? 0)));
    mix(image, 4 * (i * columns + j), paper, accent, share);
  }));
  context.putImageData(image, 0, 0);
}
