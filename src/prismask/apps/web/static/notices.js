// What was noticed about a result, and what can be done about it at one press. Notes that need no
// answer are folded away; how far to trust the cube never is, nor what aligning the mask has found.
import { byId, duration, element, get, watch } from "/static/shared.js";

export function showNotices(place, facts) {
  const warnings = facts.notices.filter((one) => one.level === "warning");
  const notes = facts.notices.filter((one) => one.level !== "warning");
  place.replaceChildren(...warnings.map((one) => box(one, facts)));
  const isPressing = (one) => one.remedies.length > 0 || /^(Trust:|the mask lies)/.test(one.text);
  place.append(...notes.filter(isPressing).map((one) => box(one, facts)));
  const rest = notes.filter((one) => !isPressing(one));
  byId("notes").hidden = rest.length === 0;
  byId("notes-list").replaceChildren(...rest.map((one) => element("li", one.text)));
}

function box({ level, text, remedies }, facts) {
  const made = element("div", "", `card notice ${level}`);
  const line = element("p");
  line.append(element("strong", level === "warning" ? "Warning: " : "Note: "), text);
  made.append(line);
  if (remedies.length) made.append(actions(remedies, facts));
  return made;
}

function actions(remedies, facts) {
  const row = element("div", "", "row");
  for (const { name, title, seconds } of remedies) {
    const button = element("button", `${title} (about ${duration(seconds)})`);
    button.type = "button";
    button.dataset.remedy = name;
    button.addEventListener("click", () => run(name, facts, row));
    row.append(button);
  }
  return row;
}

async function run(remedy, facts, row) {
  const buttons = [...document.querySelectorAll("[data-remedy]")];
  const [bar, text, cancel] = [element("progress"), element("span"), element("button", "Cancel")];
  bar.setAttribute("aria-label", "Progress");
  text.setAttribute("role", "status");
  cancel.type = "button";
  text.textContent = "Sending";
  row.append(bar, text, cancel);
  for (const button of buttons) button.disabled = true;
  try {
    const body = new URLSearchParams({ remedy });
    const job = await get(`/api/results/${encodeURIComponent(facts.id)}/again`, { method: "POST", body });
    cancel.addEventListener("click", () => fetch(`/api/jobs/${job.id}`, { method: "DELETE" }));
    const status = await watch(job.id, (stage, share) => {
      text.textContent = stage;
      if (share === null) bar.removeAttribute("value");
      else bar.value = share;
    });
    window.location.assign(`/results/${status.result}`);
  } catch (problem) {
    text.textContent = problem.message;
    text.className = "bad";
    bar.remove();
    cancel.remove();
    for (const button of buttons) button.disabled = false;
  }
}
