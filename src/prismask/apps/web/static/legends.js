// Colour bars: what the colours of a picture stand for.
import { element } from "/static/shared.js";

const HEAT = ["#0d0826", "#5a1a73", "#cc4059", "#fa9e33", "#fff5b8"];
const DIVERGING = ["#144099", "#73ade6", "#f5f5f5", "#f29e66", "#a6141f"];
const STOPS = 16;

// From black to a colour as the pictures run: linear in the value, shown on the sRGB curve.
function ramp(colour) {
  const parts = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  const curve = (light) => (light <= 0.0031308 ? 12.92 * light : 1.055 * light ** (1 / 2.4) - 0.055);
  return Array.from({ length: STOPS + 1 }, (_, k) => {
    const level = curve(k / STOPS);
    return `rgb(${parts.map((part) => Math.round(part * level)).join(" ")})`;
  });
}

export const scales = { heat: () => HEAT, diverging: () => DIVERGING, ramp };

export class Legend {
  constructor(caption) {
    this.place = element("div", "", "legend");
    this.bar = element("div", "", "bar");
    this.low = element("span");
    this.caption = element("span", caption);
    this.high = element("span");
    const ends = element("div", "", "ends quiet");
    ends.append(this.low, this.caption, this.high);
    this.place.append(this.bar, ends);
    this.place.hidden = true;
  }

  show(low, high, colours) {
    this.place.hidden = low === null || high === null;
    if (this.place.hidden) return;
    this.low.textContent = short(low).replace("-", "−");
    this.high.textContent = short(high);
    this.bar.style.background = `linear-gradient(90deg, ${colours.join(", ")})`;
  }

  hide() {
    this.place.hidden = true;
  }
}

export const short = (value) => String(Number(value.toPrecision(3)));
