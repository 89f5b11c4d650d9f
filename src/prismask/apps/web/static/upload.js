// The upload form: send, watch, go to the result.
import { get, remembered, remember } from "/static/shared.js";

const byId = (id) => document.getElementById(id);
const form = byId("form");
let job = null;
let sending = null;

function say(text, bad = false) {
  byId("message").textContent = text;
  byId("message").className = bad ? "bad" : "";
}

function showBusy(busy) {
  byId("go").disabled = busy;
  byId("cancel").hidden = !busy;
  byId("progress-area").hidden = !busy;
}

function showProgress(stage, done, total) {
  const bar = byId("progress");
  byId("stage").textContent = stage;
  if (total > 0) bar.value = done / total;
  else bar.removeAttribute("value");
}

async function offer() {
  const about = await get("/api/about");
  const how = byId("how");
  const chooses = about.models.includes(about.default); // by the camera, where networks are offered
  if (chooses) how.add(new Option("what suits the camera", "camera:"));
  for (const name of about.models) how.add(new Option(`${name} (network)`, `model:${name}`));
  for (const name of about.methods) how.add(new Option(`${name} (no training)`, `method:${name}`));
  how.value = chooses ? "camera:" : `method:${about.default}`;
  byId("largest").textContent = `${(about.limits.upload_bytes / 2 ** 20).toFixed(0)} MiB at most.`;
  how.addEventListener("change", showOptions);
  showOptions();
}

function showOptions() {
  const isModel = !byId("how").value.startsWith("method:");
  for (const [field, shown] of [["samples", isModel], ["adapt", isModel], ["iterations", !isModel]]) {
    byId(`${field}-field`).hidden = !shown;
    byId(field).disabled = !shown; // or a wrong number that nobody sees would hold the form back
  }
}

function order() {
  const data = new FormData();
  const [kind, name] = byId("how").value.split(/:(.*)/s);
  if (kind !== "camera") data.append(kind, name);
  const own = kind !== "method" ? ["samples", "adapt"] : ["iterations"];
  const fields = ["bands", "step", "offsets", "wavelengths", "axis", "design", ...own];
  for (const field of fields) if (byId(field).value.trim() !== "") data.append(field, byId(field).value);
  if (byId("align").checked) data.append("align", "true");
  for (const field of ["snapshot", "mask"]) data.append(field, byId(field).files[0]);
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
      showProgress(sent ? "Reading the files" : "Sending", sent ? 0 : event.loaded, sent ? 0 : event.total);
    };
    sending.onload = () => {
      if (sending.status === 202) resolve(sending.response);
      else reject(new Error(sending.response?.detail ?? `The server answered ${sending.status}.`));
    };
    sending.onerror = () => reject(new Error("The server does not answer."));
    sending.onabort = () => reject(new Error("Cancelled."));
    sending.send(data);
  });
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function watch() {
  while (true) {
    const status = await get(`/api/jobs/${job}`);
    if (status.state === "done") return status;
    if (status.state === "failed" || status.state === "cancelled") throw new Error(status.message);
    if (status.state === "waiting") showProgress(`Waiting; ${status.position} before it`, 0, 0);
    else {
      const text = status.total ? `Reconstructing: ${status.done} of ${status.total}` : "Starting";
      showProgress(`${text} (${status.seconds.toFixed(0)} s)`, status.done, status.total);
    }
    await pause(400);
  }
}

// Browsers hold a form back for a wrong field and can only say so where it is shown.
form.addEventListener("invalid", (event) => {
  const fold = event.target.closest("details");
  if (fold) fold.open = true;
}, true);

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  say("");
  showBusy(true);
  showProgress("Sending", 0, 0);
  try {
    job = (await send(order())).id;
    const status = await watch();
    remember({ id: status.result, name: status.name });
    window.location.assign(`/results/${status.result}`);
  } catch (problem) {
    say(problem.message, true);
    showBusy(false);
  } finally {
    job = null;
    sending = null;
  }
});

byId("cancel").addEventListener("click", async () => {
  if (job) await fetch(`/api/jobs/${job}`, { method: "DELETE" });
  else sending?.abort();
});

for (const place of [byId("origin"), ...document.querySelectorAll(".origin")]) {
  place.textContent = window.location.origin;
}
for (const one of remembered()) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = `/results/${encodeURIComponent(one.id)}`;
  link.textContent = one.name;
  item.append(link);
  byId("past-list").append(item);
  byId("past").hidden = false;
}
offer().catch((problem) => say(problem.message, true));
