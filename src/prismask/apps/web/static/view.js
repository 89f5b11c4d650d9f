// The page of a result: pictures, slider, spectra, downloads.
import { byId, element, get } from "/static/shared.js";
import { Legend, scales, short } from "/static/legends.js";
import { label } from "/static/marks.js";
import { showNotices } from "/static/notices.js";
import { Panels } from "/static/panels.js";
import { SpectraPlot } from "/static/spectra.js";

const base = `/api/results/${encodeURIComponent(window.location.pathname.split("/").pop())}`;
const TOOLS = ["pick", "polygon", "move"];
let facts, panels, plot;
let legends = {};

function complain(problem) {
  byId("trouble").hidden = false;
  byId("trouble").textContent = problem.message;
}

const band = () => Number(byId("band").value);
const nanometres = (k) => `${Number(facts.wavelengths[k].toFixed(1))} nm`;
const wavelength = (k) => (facts.wavelengths ? nanometres(k) : `band ${k}`);
const hue = (k) => facts.colours?.[k] ?? "#ffffff";

const BESIDE = ["other", "difference"];

function picture(name) {
  const layer = panels.list.find((one) => one.layer.name === name).layer;
  const stretch = byId("stretch").value;
  const query = new URLSearchParams();
  if (layer.banded) query.set("band", band());
  if (name === "band" || name === "other") query.set("scale", byId("scale").value);
  if (stretch !== "hand") query.set("stretch", stretch);
  else if (["band", "other"].includes(name) && limits()) for (const [end, value] of limits()) query.set(end, value);
  const where = BESIDE.includes(name) ? `beside/${encodeURIComponent(byId("other").value)}` : "layers";
  return `${base}/${where}/${name}.png?${query}`;
}

function limits() {
  const ends = ["low", "high"].map((name) => [name, byId(name).valueAsNumber]);
  return ends.every(([, value]) => Number.isFinite(value)) && ends[0][1] < ends[1][1] ? ends : null;
}

// --- pictures and their legends -------------------------------------------------------------------

function addLegend(panel) {
  const { name, meaning } = panel.layer;
  if (!meaning) return;
  legends[name] = new Legend(meaning);
  panel.figure.append(legends[name].place);
  if (name !== "band") return;
  legends.overlay = new Legend("overlay: uncertainty");
  panel.figure.append(legends.overlay.place);
}

// The band of the cube that is compared with, and what this one has more than that.
function showBeside() {
  for (const name of BESIDE) panels.remove(name);
  const choice = byId("other");
  if (!choice.value) return;
  const { width, height } = facts;
  const shared = { banded: true, width, height, offsets: [] };
  const name = choice.selectedOptions[0].text;
  addLegend(panels.add({ ...shared, name: "other", title: `Band of ${name}`, meaning: facts.unit }, "band"));
  addLegend(panels.add({ ...shared, name: "difference", title: "Difference", meaning: `this cube − ${name}` }, "other"));
  showBand();
}

function showLegend({ layer, picture: shown, over }) {
  const colours = {
    band: () => scales.ramp(hue(band())), other: () => scales.ramp(hue(band())),
    difference: scales.diverging, uncertainty: scales.heat, error: scales.diverging,
    snapshot: () => scales.ramp("#ffffff"), mask: () => scales.ramp("#ffffff"),
  }[layer.name];
  if (colours) legends[layer.name].show(shown.low, shown.high, colours());
  if (layer.name !== "band") return;
  if (over) legends.overlay.show(over.low, over.high, scales.heat());
  else legends.overlay.hide();
  if (byId("stretch").value === "hand") return;
  // Whoever sets limits by hand begins with those in view.
  byId("low").value = short(shown.low);
  byId("high").value = short(shown.high);
}

function showBand() {
  const number = `band ${band()} (0–${facts.bands - 1})`;
  const text = facts.wavelengths ? `${nanometres(band())}, ${number}` : number;
  byId("band-text").textContent = text;
  byId("band").setAttribute("aria-valuetext", text);
  for (const panel of panels.list) {
    const layer = panel.layer;
    if (!layer.banded) continue;
    panel.note.textContent = wavelength(band());
    const over = layer.name === "band" && byId("overlay").checked ? picture("uncertainty") : null;
    panels.setImage(layer.name, picture(layer.name), over);
  }
  panels.setBand(band());
  plot.setBand(band());
  noteMarks();
  byId("get-band").href = `${picture("band")}&download=true`;
}

// Where a pixel of the cube lies in the snapshot depends on the band.
function noteMarks() {
  const text = plot.entries.length ? `marks: light of ${wavelength(band())}` : "";
  for (const { layer, note } of panels.list) if (layer.offsets?.length) note.textContent = text;
}

function showContrast() {
  const byHand = byId("stretch").value === "hand";
  byId("limits").hidden = !byHand;
  byId("scale-label").hidden = byHand;
  for (const layer of facts.layers) if (!layer.banded) panels.setImage(layer.name, picture(layer.name));
  showBand();
}

// --- spectra --------------------------------------------------------------------------------------

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
  byId("plot-card").classList.add("loading");
  try {
    byId("trouble").hidden = true;
    plot.setCurrent(await fetchSpectrum(region));
    const { spectrum } = plot.entries.at(-1);
    const near = spectrum.materials.map((one) => `${one.name} (${one.angle.toFixed(1)}°)`).join(", ");
    const error = spectrum.band_meaning ? ` Shaded: error bars (${spectrum.band_meaning}).` : " No error bars in this cube.";
    byId("plot-note").textContent = `${label(region)}: ${spectrum.pixels > 1 ? `mean of ${spectrum.pixels} pixels` : "one pixel"}.${error}${near ? ` Nearest in the library: ${near}.` : ""}`;
    changed();
    // On a phone it lies below the pictures.
    byId("plot-card").scrollIntoView({ block: "nearest" });
  } catch (problem) {
    complain(problem);
  } finally {
    byId("plot-card").classList.remove("loading");
  }
}

function pin() {
  plot.pin();
  changed();
}

async function compareAgain() {
  try {
    byId("trouble").hidden = true;
    showBeside();
    for (const entry of plot.entries) entry.other = (await fetchSpectrum(entry.region)).other;
    plot.draw();
  } catch (problem) {
    complain(problem);
  }
}

function changed() {
  panels.marks = plot.entries.map(({ region, colour }) => ({ region, colour }));
  panels.draw();
  noteMarks();
  byId("pin").disabled = plot.entries.every((one) => one.pinned);
  const query = plot.entries.map((one) => `region=${one.region.join(",")}`).join("&");
  byId("get-spectra").hidden = query === "";
  byId("get-spectra").href = `${base}/spectra.csv?${query}`;
  byId("regions").replaceChildren(...plot.entries.map(row));
}

function row(entry) {
  const [line, mark, action] = ["tr", "td", "td"].map((tag) => element(tag));
  const swatch = element("span", "", "swatch");
  swatch.style.background = entry.colour;
  mark.append(swatch);
  const button = element("button", "Remove");
  button.type = "button";
  button.setAttribute("aria-label", `Remove ${label(entry.region)}`);
  button.addEventListener("click", () => {
    plot.remove(entry);
    changed();
  });
  action.append(button);
  line.append(mark, element("td", label(entry.region) + (entry.pinned ? "" : " (not pinned)")), action);
  return line;
}

// --- the rest -------------------------------------------------------------------------------------

function showHistory() {
  byId("history").replaceChildren(...Object.entries(facts.history).map(([key, value]) => {
    const [line, name] = [element("tr"), element("th", key)];
    name.scope = "row";
    line.append(name, element("td", typeof value === "string" ? value : JSON.stringify(value)));
    return line;
  }));
}

function setTool(tool) {
  panels.setTool(tool);
  for (const name of TOOLS) byId(name).setAttribute("aria-pressed", String(name === tool));
}

function connect() {
  if (window.matchMedia("(max-width: 48rem)").matches) byId("contrast").open = false;
  byId("band").addEventListener("input", showBand);
  for (const name of ["scale", "overlay", "low", "high"]) byId(name).addEventListener("change", showBand);
  byId("stretch").addEventListener("change", showContrast);
  for (const name of TOOLS) byId(name).addEventListener("click", () => setTool(name));
  byId("closer").addEventListener("click", () => panels.zoomBy(1.5));
  byId("farther").addEventListener("click", () => panels.zoomBy(1 / 1.5));
  byId("whole").addEventListener("click", () => panels.showWhole());
  byId("pin").addEventListener("click", pin);
  byId("other").addEventListener("change", compareAgain);
}

async function offerOthers() {
  const others = new Map(facts.others.map((one) => [one.id, one.name]));
  for (const one of await get("/api/results")) if (!others.has(one.id)) others.set(one.id, one.name);
  others.delete(facts.id);
  for (const [id, name] of others) byId("other").add(new Option(name, id));
  byId("other-label").hidden = others.size === 0;
  if (facts.others.length) byId("other").value = facts.others[0].id;
}

async function start() {
  facts = await get(base);
  document.title = `${facts.name} · Prismask`;
  byId("name").textContent = facts.name;
  const assumed = facts.wavelengths_assumed ? " (assumed: no file gives them)" : "";
  const range = facts.wavelengths ? `, ${nanometres(0)} to ${nanometres(facts.bands - 1)}${assumed}` : ", wavelengths unknown";
  byId("facts").textContent = `${facts.bands} bands of ${facts.height}×${facts.width}${range}`;
  byId("band").max = facts.bands - 1;
  byId("band").value = Math.floor(facts.bands / 2);
  byId("get-cube").href = `${base}/cube.nc`;
  byId("get-rgb").href = `${base}/layers/rgb.png?download=true`;
  byId("overlay-label").hidden = !facts.layers.some((one) => one.name === "uncertainty");
  showNotices(byId("notices"), facts);
  showHistory();
  plot = new SpectraPlot(byId("plot"), facts);
  panels = new Panels(byId("panels"), facts, { pick, pin, shown: showLegend, failed: complain });
  panels.list.forEach(addLegend);
  connect();
  plot.draw();
  showContrast();
  await offerOthers();
  showBeside();
  byId("home").hidden = !(await get("/api/about")).uploads;
}

start().catch(complain);
