// The plot of spectra: the one just picked, those pinned, each with its error band.

const COLOURS = ["#e69f00", "#56b4e9", "#009e73", "#d55e00", "#cc79a7", "#0072b2", "#b8a900", "#999999"];
export const CURRENT = "#ff3b6b";

export class SpectraPlot {
  constructor(place) {
    this.place = place;
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

  draw() {
    const traces = this.entries.flatMap((entry) => traces_of(entry));
    const style = getComputedStyle(document.documentElement);
    const [ink, grid] = ["--ink", "--grid"].map((name) => style.getPropertyValue(name).trim());
    const nm = this.entries.some((one) => one.spectrum.wavelengths);
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: ink, automargin: true };
    const layout = {
      margin: { l: 50, r: 10, t: 10, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif" },
      xaxis: { ...axis, title: { text: nm ? "wavelength in nm" : "band" } },
      yaxis: { ...axis, title: { text: "value" }, rangemode: "tozero" },
      showlegend: traces.length > 2, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
      hovermode: "x unified", dragmode: false,
    };
    window.Plotly.react(this.place, traces, layout, { displaylogo: false, responsive: true, displayModeBar: false });
  }
}

export function label(region) {
  const [a, b, c, d] = region;
  return a === c && b === d ? `x ${a}, y ${b}` : `x ${a}–${c}, y ${b}–${d}`;
}

function at(spectrum) {
  return spectrum.wavelengths ?? spectrum.values.map((_, k) => k);
}

function traces_of({ region, colour, spectrum, other }) {
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
    traces.push({ x, y: spectrum.reference, name: `${name} reference`, mode: "lines", line: { color: colour, dash: "dash", width: 1.5 } });
  }
  if (other) {
    traces.push({ x: at(other.spectrum), y: other.spectrum.values, name: `${name} ${other.name}`, mode: "lines", line: { color: colour, dash: "dot", width: 2 } });
  }
  return traces;
}
