// What both pages need: asking the server, and the results that this browser has made.

export async function get(path) {
  const answer = await fetch(path);
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.detail ?? `The server answered ${answer.status}.`);
  return content;
}

const KEY = "prismask-results";
const MOST = 12;

export function remembered() {
  try {
    const list = JSON.parse(window.localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(list) ? list.filter((one) => one && one.id && one.name) : [];
  } catch {
    return [];
  }
}

export function remember(one) {
  try {
    const list = [one, ...remembered().filter((other) => other.id !== one.id)].slice(0, MOST);
    window.localStorage.setItem(KEY, JSON.stringify(list));
  } catch {
    // A browser that keeps nothing simply has no list.
  }
}
