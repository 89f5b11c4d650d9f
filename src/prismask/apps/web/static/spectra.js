// The plot of spectra: the one just picked, those pinned, each with its error band.
import { label } from "/static/marks.js";

const COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#0072b2", "#b8a900", "#999999"];
export const CURRENT = "#ff3b6b";

export class SpectraPlot {
  constructor(place, facts) {
    this.place = place;
    this.facts = facts;
    this.band = 0;
    this.entries = []; // {region, colour, spectrum, other, pinned}
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  setCurrent(entry) {
    this.entries = [...this.entries.filter((one) => one.pinned), { ...entry, colour: CURRENT, pinned: false }];
    this.draw();
  }

  pin() {
    const current = this.entries.find((one) => !one.pinned);
    if (!current) return;
    const used = new Set(this.entries.map((one) => one.colour));
    current.colour = COLOURS.find((colour) => !used.has(colour)) ?? COLOURS[this.entries.length % COLOURS.length];
    current.pinned = true;
    this.draw();
  }

  remove(entry) {
    this.entries = this.entries.filter((one) => one !== entry);
    this.draw();
  }

  // A line where the band in view lies.
  setBand(band) {
    this.band = band;
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      if (this.place.data) window.Plotly.relayout(this.place, { shapes: this.#shapes() });
    });
  }

  draw() {
    // The other lines of a spectrum have one style everywhere: the first region's explain them.
    const traces = this.entries.flatMap((entry, k) => tracesOf(entry, k === 0));
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const [ink, quiet, grid] = ["--ink", "--quiet", "--grid"].map(colour);
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: ink, automargin: true };
    const isEmpty = traces.length === 0;
    const [nm, assumed] = [this.facts.wavelengths, this.facts.wavelengths_assumed];
    const layout = {
      margin: { l: 55, r: 10, t: 10, b: 42 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif" },
      xaxis: { ...axis, range: this.#range(), title: { text: nm ? `wavelength in nm${assumed ? " (assumed)" : ""}` : "band number" } },
      yaxis: {
        ...axis, title: { text: `value (${this.facts.unit})` }, rangemode: "tozero",
        ...(isEmpty ? { range: [0, 1] } : { autorange: true }),
      },
      showlegend: traces.length > 2, legend: { orientation: "h", y: 1.02, yanchor: "bottom", font: { size: 11 } },
      hovermode: "x unified", dragmode: false, shapes: this.#shapes(),
      annotations: isEmpty ? [{
        text: "Click a pixel or drag a rectangle<br>in any picture.", showarrow: false,
        xref: "paper", yref: "paper", x: 0.5, y: 0.5, font: { color: quiet, size: 15 },
      }] : [],
    };
    // Each line of the legend takes from the plot, so that grows with them.
    const lines = layout.showlegend ? traces.filter((one) => one.name && one.showlegend !== false).length : 0;
    this.place.style.height = lines > 2 ? `calc(17rem + ${1.2 * lines}rem)` : "";
    window.Plotly.react(this.place, traces, layout, { displaylogo: false, responsive: true, displayModeBar: false })
      .then(() => window.Plotly.Plots.resize(this.place));
  }

  #at(band) {
    return this.facts.wavelengths ? this.facts.wavelengths[band] : band;
  }

  #range() {
    const ends = [this.#at(0), this.#at(this.facts.bands - 1)];
    const [low, high] = [Math.min(...ends), Math.max(...ends)];
    const room = 0.02 * (high - low) || 0.5;
    return [low - room, high + room];
  }

  #shapes() {
    const x = this.#at(this.band);
    const line = { color: "#80808090", width: 1, dash: "dot" };
    return [{ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line }];
  }
}

function tracesOf({ region, colour, spectrum, other }, isFirst) {
  const at = (one) => one.wavelengths ?? one.values.map((_, k) => k);
  const x = at(spectrum);
  const traces = [];
  if (spectrum.lower && spectrum.upper) {
    const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
    traces.push({ ...edge, y: spectrum.lower });
    traces.push({ ...edge, y: spectrum.upper, fill: "tonexty", fillcolor: `${colour}40` });
  }
  const name = label(region);
  traces.push({ x, y: spectrum.values, name, mode: "lines+markers", line: { color: colour, width: 2 }, marker: { size: 4 } });
  if (spectrum.reference) {
    traces.push({ x, y: spectrum.reference, name: `${name} reference`, showlegend: isFirst, mode: "lines", line: { color: colour, dash: "dash", width: 1.5 } });
  }
  if (spectrum.materials.length) {
    const [nearest] = spectrum.materials;
    traces.push({ x, y: nearest.values, name: `${nearest.name}, ${nearest.angle.toFixed(1)}°`, mode: "lines", line: { color: colour, dash: "longdashdot", width: 1.5 } });
  }
  if (other) {
    traces.push({ x: at(other.spectrum), y: other.spectrum.values, name: `${name} ${other.name}`, showlegend: isFirst, mode: "lines", line: { color: colour, dash: "dot", width: 2 } });
  }
  return traces;
}
