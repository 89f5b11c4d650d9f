// What is drawn over a picture: regions, the polygon being drawn, and how long some pixels are.

export const isPolygon = (region) => region.length > 4;

export function corners(region) {
  return Array.from({ length: region.length / 2 }, (_, k) => [region[2 * k], region[2 * k + 1]]);
}

export function label(region) {
  if (!isPolygon(region)) {
    const [a, b, c, d] = region;
    return a === c && b === d ? `x ${a}, y ${b}` : `x ${a}–${c}, y ${b}–${d}`;
  }
  const [xs, ys] = [0, 1].map((k) => corners(region).map((corner) => corner[k]));
  const span = (list) => `${Math.floor(Math.min(...list))}–${Math.ceil(Math.max(...list)) - 1}`;
  return `polygon x ${span(xs)}, y ${span(ys)}`;
}

// `place` maps a corner in pixels of the cube to the canvas.
export function drawRegion(pen, dense, colour, region, place) {
  if (isPolygon(region)) {
    trace(pen, dense, colour, corners(region).map(place), true);
    return;
  }
  const [a, b, c, d] = region;
  const [[x0, y0], [x1, y1]] = [place([a, b]), place([c + 1, d + 1])];
  // A single pixel may be smaller than its frame: give it room.
  const grow = Math.max(0, (7 * dense - Math.min(x1 - x0, y1 - y0)) / 2);
  const [left, top, right, bottom] = [x0 - grow, y0 - grow, x1 + grow, y1 + grow];
  trace(pen, dense, colour, [[left, top], [right, top], [right, bottom], [left, bottom]], true);
}

export function trace(pen, dense, colour, points, closed) {
  for (const [width, style] of [[4, "#000000a0"], [2, colour]]) {
    pen.lineWidth = width * dense;
    pen.strokeStyle = style;
    pen.beginPath();
    points.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    if (closed) pen.closePath();
    pen.stroke();
  }
}

// A bar of 1, 2 or 5 × 10ⁿ pixels, about a fifth of the picture.
export function drawScaleBar(pen, dense, scale) {
  const most = pen.canvas.width / 4 / scale;
  const power = 10 ** Math.floor(Math.log10(most));
  const length = Math.max(1, [5, 2, 1].find((k) => k * power <= most) * power);
  const [x, y] = [10 * dense, pen.canvas.height - 10 * dense];
  const text = `${length} px`;
  pen.font = `${12 * dense}px system-ui, sans-serif`;
  const wide = Math.max(length * scale, pen.measureText(text).width);
  pen.fillStyle = "#000000a0";
  pen.fillRect(x - 5 * dense, y - 21 * dense, wide + 10 * dense, 26 * dense);
  trace(pen, dense, "#ffffff", [[x, y], [x + length * scale, y]], false);
  pen.fillStyle = "#ffffff";
  pen.fillText(text, x, y - 6 * dense);
}
