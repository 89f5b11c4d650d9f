// Files dropped on the page: on a field they go there, elsewhere the one called a mask is the mask.
import { byId } from "/static/shared.js";

export function takeDrops(form, say) {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let inside = 0;
  window.addEventListener("dragenter", (event) => {
    if (hasFiles(event)) form.classList.toggle("dropping", ++inside > 0);
  });
  window.addEventListener("dragleave", (event) => {
    if (hasFiles(event)) form.classList.toggle("dropping", --inside > 0);
  });
  window.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  window.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    inside = 0;
    form.classList.remove("dropping");
    const field = event.target.closest?.("[data-for]")?.dataset.for;
    say(assign([...event.dataTransfer.files], field));
  });
}

// Puts files into their fields; says what is still missing.
function assign(files, field) {
  if (files.length > 2) return "Drop one snapshot and its mask, no more than two files.";
  if (files.length === 1 && field) put(field, files[0]);
  else {
    const isMask = (file) => /mask/i.test(file.name);
    const mask = files.find(isMask) ?? (files.length === 2 ? files[1] : null);
    for (const file of files) {
      const free = byId("snapshot").files.length === 0 || files.length === 2 ? "snapshot" : "mask";
      put(file === mask ? "mask" : free, file);
    }
  }
  const missing = ["snapshot", "mask"].filter((name) => byId(name).files.length === 0);
  return missing.length ? `Now add the ${missing.join(" and the ")}.` : "Both files are ready.";
}

function put(name, file) {
  const held = new DataTransfer();
  held.items.add(file);
  byId(name).files = held.files;
}
