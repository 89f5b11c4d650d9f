// The page of a result: pictures, slider, spectra, downloads.
import { get, remembered } from "/static/shared.js";
import { Panels } from "/static/panels.js";
import { SpectraPlot, label } from "/static/spectra.js";

const byId = (id) => document.getElementById(id);
const base = `/api/results/${encodeURIComponent(window.location.pathname.split("/").pop())}`;
let facts, panels, plot;

function complain(problem) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = problem.message;
}

const band = () => Number(byId("band").value);
const wavelength = (k) => (facts.wavelengths ? `${Number(facts.wavelengths[k].toFixed(1))} nm` : `band ${k}`);

function picture(name) {
  const layer = facts.layers.find((one) => one.name === name);
  const query = new URLSearchParams();
  if (layer.banded) query.set("band", band());
  if (name === "band") query.set("scale", byId("scale").value);
  return `${base}/layers/${name}.png?${query}`;
}

function showBand() {
  const text = `${wavelength(band())} (${band() + 1} of ${facts.bands})`;
  byId("band-text").textContent = text;
  byId("band").setAttribute("aria-valuetext", text);
  for (const panel of panels.list) {
    const layer = panel.layer;
    if (layer.offsets?.length) panel.note.textContent = `marks: light of ${wavelength(band())}`;
    if (!layer.banded) continue;
    panel.note.textContent = wavelength(band());
    const over = layer.name === "band" && byId("overlay").checked ? picture("uncertainty") : null;
    panels.setImage(layer.name, picture(layer.name), over);
  }
  panels.setBand(band());
  byId("get-band").href = `${picture("band")}&download=true`;
}

async function fetchSpectrum(region) {
  const query = `spectrum?region=${region.join(",")}`;
  const spectrum = await get(`${base}/${query}`);
  const choice = byId("other");
  if (!choice.value) return { region, spectrum, other: null };
  const name = choice.selectedOptions[0].text;
  try {
    const other = await get(`/api/results/${encodeURIComponent(choice.value)}/${query}`);
    return { region, spectrum, other: { name, spectrum: other } };
  } catch (problem) {
    // It may be smaller, or gone; this one's spectrum is shown all the same.
    complain(new Error(`${name}: ${problem.message}`));
    return { region, spectrum, other: null };
  }
}

async function pick(region) {
  try {
    byId("trouble").hidden = true;
    plot.setCurrent(await fetchSpectrum(region));
    const { spectrum } = plot.entries.at(-1);
    const error = spectrum.band_meaning ? ` Shaded: ${spectrum.band_meaning}.` : "";
    byId("plot-note").textContent = `${label(region)}: mean of ${spectrum.pixels} pixel${spectrum.pixels > 1 ? "s" : ""}.${error}`;
    changed();
  } catch (problem) {
    complain(problem);
  }
}

function pin() {
  plot.pin();
  changed();
}

async function compareAgain() {
  try {
    byId("trouble").hidden = true;
    for (const entry of plot.entries) entry.other = (await fetchSpectrum(entry.region)).other;
    plot.draw();
  } catch (problem) {
    complain(problem);
  }
}

function changed() {
  panels.marks = plot.entries.map(({ region, colour }) => ({ region, colour }));
  panels.draw();
  byId("pin").disabled = plot.entries.every((one) => one.pinned);
  const query = plot.entries.map((one) => `region=${one.region.join(",")}`).join("&");
  byId("get-spectra").hidden = query === "";
  byId("get-spectra").href = `${base}/spectra.csv?${query}`;
  byId("regions").replaceChildren(...plot.entries.map(row));
}

function row(entry) {
  const line = document.createElement("tr");
  const [mark, name, action] = ["td", "td", "td"].map((tag) => document.createElement(tag));
  const swatch = document.createElement("span");
  swatch.className = "swatch";
  swatch.style.background = entry.colour;
  mark.append(swatch);
  name.textContent = label(entry.region) + (entry.pinned ? "" : " (not pinned)");
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Remove";
  button.setAttribute("aria-label", `Remove ${label(entry.region)}`);
  button.addEventListener("click", () => {
    plot.remove(entry);
    changed();
  });
  action.append(button);
  line.append(mark, name, action);
  return line;
}

function showHistory() {
  const rows = Object.entries(facts.history).filter(([key]) => key !== "findings");
  byId("history").replaceChildren(...rows.map(([key, value]) => {
    const line = document.createElement("tr");
    const [name, text] = [document.createElement("th"), document.createElement("td")];
    name.scope = "row";
    name.textContent = key;
    text.textContent = typeof value === "string" ? value : JSON.stringify(value);
    line.append(name, text);
    return line;
  }));
  byId("findings").replaceChildren(...facts.notices.map(({ level, text }) => {
    const line = document.createElement("p");
    line.textContent = text;
    line.className = level === "warning" ? "bad" : "quiet";
    return line;
  }));
}

function setTool(tool) {
  panels.setTool(tool);
  for (const name of ["pick", "move"]) byId(name).setAttribute("aria-pressed", String(name === tool));
}

function connect() {
  byId("band").addEventListener("input", showBand);
  byId("scale").addEventListener("change", showBand);
  byId("overlay").addEventListener("change", showBand);
  byId("pick").addEventListener("click", () => setTool("pick"));
  byId("move").addEventListener("click", () => setTool("move"));
  byId("closer").addEventListener("click", () => panels.zoomBy(1.5));
  byId("farther").addEventListener("click", () => panels.zoomBy(1 / 1.5));
  byId("whole").addEventListener("click", () => panels.showWhole());
  byId("pin").addEventListener("click", pin);
  byId("other").addEventListener("change", compareAgain);
}

async function start() {
  facts = await get(base);
  document.title = `${facts.name} · Prismask`;
  byId("name").textContent = facts.name;
  const range = facts.wavelengths ? `, ${wavelength(0)} to ${wavelength(facts.bands - 1)}` : "";
  byId("facts").textContent = `${facts.bands} bands of ${facts.height}×${facts.width}${range}`;
  byId("band").max = facts.bands - 1;
  byId("band").value = Math.floor(facts.bands / 2);
  byId("get-cube").href = `${base}/cube.nc`;
  byId("get-rgb").href = `${base}/layers/rgb.png?download=true`;
  byId("overlay-label").hidden = !facts.layers.some((one) => one.name === "uncertainty");
  const past = remembered().filter((one) => one.id !== facts.id);
  for (const one of [...facts.others, ...past]) byId("other").add(new Option(one.name, one.id));
  byId("other-label").hidden = byId("other").options.length < 2;
  if (facts.others.length) byId("other").value = facts.others[0].id;
  plot = new SpectraPlot(byId("plot"));
  panels = new Panels(byId("panels"), facts, { pick, pin });
  showHistory();
  connect();
  for (const layer of facts.layers) if (!layer.banded) panels.setImage(layer.name, picture(layer.name));
  showBand();
  plot.draw();
  byId("home").hidden = !(await get("/api/about")).uploads;
}

start().catch(complain);
