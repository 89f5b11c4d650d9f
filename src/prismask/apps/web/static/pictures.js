// Pictures of layers: fetched as large as the screen needs, with the values at the ends of their colours.

const held = new Map();
const MOST = 80; // decoded pictures are large; the browser's own cache has the rest

// {bitmap, low, high, reduction}: one pixel of the bitmap stands for reduction × reduction of the layer.
export function loadPicture(url) {
  if (!held.has(url)) {
    held.set(url, fetchPicture(url).catch((problem) => {
      held.delete(url);
      throw problem;
    }));
    if (held.size > MOST) held.delete(held.keys().next().value);
  }
  return held.get(url);
}

async function fetchPicture(url) {
  const answer = await fetch(url);
  if (!answer.ok) {
    const content = await answer.json().catch(() => ({}));
    throw new Error(content.detail ?? `The server answered ${answer.status}.`);
  }
  const number = (name) => (answer.headers.has(name) ? Number(answer.headers.get(name)) : null);
  const bitmap = await createImageBitmap(await answer.blob());
  return { bitmap, low: number("display-low"), high: number("display-high"), reduction: number("display-reduction") ?? 1 };
}
