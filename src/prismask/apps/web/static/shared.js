// What both pages need: asking the server, watching a job, and times in words.

export const byId = (id) => document.getElementById(id);

export async function get(path, options = undefined) {
  const answer = await fetch(path, options).catch(() => {
    throw new Error("The server does not answer. Is it still running?");
  });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.detail ?? `The server answered ${answer.status}.`);
  return content;
}

export function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

export function duration(seconds) {
  if (seconds < 1) return "a moment";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  return `${Number((seconds / 3600).toFixed(1))} h`;
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// Tells `show(text, share)` how far a job is until it is done; share is null where nobody knows.
export async function watch(id, show) {
  while (true) {
    const status = await get(`/api/jobs/${id}`);
    if (status.state === "done") return status;
    if (status.state === "failed" || status.state === "cancelled") {
      throw Object.assign(new Error(status.message), { fixes: status.fixes });
    }
    const left = `about ${duration(status.seconds_left)} left`;
    const all = status.seconds + status.seconds_left;
    const step = status.total ? `step ${status.done} of ${status.total}` : "starting";
    if (status.state === "waiting" && status.position > 0) {
      show(`Waiting for ${status.position} other job${status.position === 1 ? "" : "s"}: ${left}`, null);
    } else show(`Reconstructing: ${left} (${step})`, all ? status.seconds / all : null);
    await pause(400);
  }
}
