// The front page: files and options, progress, a sample to try, and what was made before.
import { byId, duration, element, get, watch } from "/static/shared.js";
import { takeDrops } from "/static/drops.js";

const form = byId("form");
const OPTIONS = ["bands", "step", "offsets", "wavelengths", "axis", "design", "level", "noise_std", "dark", "mask_std",
  "bits", "turn_snapshot", "turn_mask", "crop_mask"];
const TICKS = ["align", "average", "fill_bad_pixels", "check_mask"];
const FILES = ["snapshot", "mask", "dark_frame", "flat"];
const LARGE = 660; // pixels on each side of a common snapshot
let about = null;
let job = null;
let sending = null;

function say(text, bad = false, fixes = []) {
  byId("message").textContent = text;
  byId("message").className = bad ? "bad" : "";
  byId("fixes").replaceChildren(...fixes.filter(({ field }) => !byId(field).value).map(fixButton));
  if (bad) byId("fixes").scrollIntoView({ block: "nearest" }); // below the fold it would not be seen
}

// One press mends what the message names: a file the wrong way round, or a mask that is too large.
function fixButton({ field, value }) {
  const turned = byId(field).querySelector?.(`option[value="${value}"]`)?.text;
  const what = { turn_mask: "mask", turn_snapshot: "snapshot" }[field];
  const title = what ? `Try again with the ${what} ${turned}` : `Try again with this part of the mask: ${value}`;
  const button = element("button", title);
  button.type = "button";
  button.addEventListener("click", () => {
    byId(field).value = value;
    byId(field).closest("details").open = true;
    form.requestSubmit();
  });
  return button;
}

function showBusy(busy) {
  for (const name of ["go", "try"]) byId(name).disabled = busy;
  byId("cancel").hidden = !busy;
  byId("progress-area").hidden = !busy;
  if (busy) byId("progress-area").scrollIntoView({ block: "nearest" });
}

function showProgress(stage, share) {
  byId("stage").textContent = stage;
  if (share === null) byId("progress").removeAttribute("value");
  else byId("progress").value = share;
}

// --- what can be chosen ---------------------------------------------------------------------------

async function offer() {
  about = await get("/api/about");
  const how = byId("how");
  const chooses = about.models.includes(about.default); // by the camera, where networks are offered
  if (chooses) how.add(new Option("automatic, to suit the camera", "camera:"));
  for (const name of about.models) how.add(new Option(`${name} (network)`, `model:${name}`));
  for (const name of about.methods) how.add(new Option(`${name} (solver, no training)`, `method:${name}`));
  how.value = chooses ? "camera:" : `method:${about.default}`;
  byId("largest").textContent = `${(about.limits.upload_bytes / 2 ** 20).toFixed(0)} MiB at most together.`;
  byId("kept").textContent = duration(about.limits.keep_seconds);
  byId("adapt-time").textContent = `about ${duration(60 * about.seconds.adapt)}`;
  byId("align-time").textContent = `about ${duration(about.seconds.align)} for a mask of 256×256 pixels and`
    + ` ${duration(alignSeconds(LARGE))} for ${LARGE}×${LARGE}`;
  byId("try-time").textContent = `about ${duration(seconds(256, true))}`;
  for (const name of ["how", "samples", "adapt", "iterations", "align"]) byId(name).addEventListener("input", showOptions);
  showOptions();
}

// It looks at a part of the frame only.
const alignSeconds = (size) => about.seconds.align * (size / 256) ** 1.5;

const isNetwork = () => !byId("how").value.startsWith("method:");

// What the server takes for a snapshot of this size.
function seconds(size, plain = false) {
  const { seconds: known } = about;
  const number = (name) => (plain ? 0 : Number(byId(name).value) || 0);
  const isNet = plain || isNetwork();
  const passes = isNet ? Math.max(1, number("samples")) : number("iterations") / 60 || 1;
  const each = isNet ? known.network : known[byId("how").value.replace("method:", "")] ?? known.network;
  const extra = (isNet ? number("adapt") * known.adapt : 0) + (!plain && byId("align").checked ? alignSeconds(size) : 0);
  return each * passes * (size / 256) ** 2 + extra + known.start;
}

function showOptions() {
  for (const [field, shown] of [["samples", isNetwork()], ["adapt", isNetwork()], ["iterations", !isNetwork()]]) {
    byId(`${field}-field`).hidden = !shown;
    byId(field).disabled = !shown; // or a wrong number that nobody sees would hold the form back
  }
  byId("time").textContent = `This takes about ${duration(seconds(256))} for a mask of 256×256 pixels and`
    + ` ${duration(seconds(LARGE))} for ${LARGE}×${LARGE} on this computer.`;
}

// --- sending and watching -------------------------------------------------------------------------

function order() {
  const data = new FormData();
  const [kind, name] = byId("how").value.split(/:(.*)/s);
  if (kind !== "camera") data.append(kind, name);
  const own = kind !== "method" ? ["samples", "adapt"] : ["iterations"];
  for (const field of [...OPTIONS, ...own]) if (byId(field).value.trim() !== "") data.append(field, byId(field).value);
  for (const field of TICKS) data.append(field, byId(field).checked);
  for (const field of FILES) if (byId(field).files.length) data.append(field, byId(field).files[0]);
  return data;
}

function send(data) {
  // fetch cannot tell how much has been sent.
  return new Promise((resolve, reject) => {
    sending = new XMLHttpRequest();
    sending.open("POST", "/api/jobs");
    sending.responseType = "json";
    sending.upload.onprogress = (event) => {
      const sent = event.loaded >= event.total;
      showProgress(sent ? "Reading the files" : "Sending", sent ? null : event.loaded / event.total);
    };
    sending.onload = () => {
      if (sending.status === 202) resolve(sending.response);
      else reject(new Error(sending.response?.detail ?? `The server answered ${sending.status}.`));
    };
    sending.onerror = () => reject(new Error("The server does not answer, or ended the upload."));
    sending.onabort = () => reject(new Error("Cancelled."));
    sending.send(data);
  });
}

async function run(stage, begin) {
  say("");
  showBusy(true);
  showProgress(stage, null);
  try {
    job = (await begin()).id;
    const status = await watch(job, showProgress);
    window.location.assign(`/results/${status.result}`);
  } catch (problem) {
    showBusy(false);
    say(problem.message, true, problem.fixes);
  } finally {
    job = null;
    sending = null;
  }
}

// Browsers hold a form back for a wrong field and can only say so where it is shown.
form.addEventListener("invalid", (event) => {
  const fold = event.target.closest("details");
  if (fold) fold.open = true;
}, true);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  run("Sending", () => send(order()));
});
byId("try").addEventListener("click", () => {
  run(`Drawing a scene and its snapshot; about ${duration(seconds(256, true))} in all`, () => get("/api/sample", { method: "POST" }));
});
byId("cancel").addEventListener("click", () => {
  if (job) fetch(`/api/jobs/${job}`, { method: "DELETE" });
  else sending?.abort();
});

// --- what was made before -------------------------------------------------------------------------

async function showPast() {
  const results = await get("/api/results");
  byId("past").hidden = results.length === 0;
  byId("past-list").replaceChildren(...results.map((one) => {
    const [item, picture] = [element("li"), element("img")];
    picture.src = `/api/results/${encodeURIComponent(one.id)}/layers/rgb.png?width=64`;
    picture.alt = "";
    const link = element("a", one.name);
    link.href = `/results/${encodeURIComponent(one.id)}`;
    const made = new Date(1000 * one.made).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const facts = `${made}, ${one.bands} bands of ${one.height}×${one.width}`;
    const warned = one.warnings ? `, ${one.warnings} warning${one.warnings > 1 ? "s" : ""}` : "";
    const text = element("div");
    text.append(link, element("div", facts + warned, "quiet"));
    item.append(picture, text);
    return item;
  }));
}

// A mask can be turned as a snapshot can.
for (const { text, value } of byId("turn_snapshot").options) byId("turn_mask").add(new Option(text, value));
takeDrops(form, say);
for (const place of document.querySelectorAll(".origin")) place.textContent = window.location.origin;
offer().catch((problem) => say(problem.message, true));
showPast().catch((problem) => say(problem.message, true));
window.addEventListener("pageshow", (event) => event.persisted && showPast());
