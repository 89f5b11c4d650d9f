// Pictures side by side with one zoom and one place for all of them.
import { element } from "/static/shared.js";
import { drawRegion, drawScaleBar, trace } from "/static/marks.js";
import { loadPicture } from "/static/pictures.js";

const NEAR = 8; // pixels of the screen within which a click closes a polygon

export class Panels {
  constructor(place, facts, handlers) {
    this.facts = facts;
    this.handlers = handlers; // pick(region), pin(), shown(panel), failed(problem)
    this.tool = "pick";
    this.band = 0;
    this.zoom = 1; // 1 shows the whole of every picture
    this.centre = [facts.width / 2, facts.height / 2];
    this.cross = [Math.floor(facts.width / 2), Math.floor(facts.height / 2)];
    this.hasCross = false;
    this.marks = []; // {region, colour}
    this.rubber = null;
    this.polygon = []; // corners of the one being drawn
    this.pointers = new Map();
    this.where = place;
    this.list = [];
    for (const layer of facts.layers) this.add(layer);
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // Another picture, at the end or after the one of this name.
  add(layer, after = null) {
    const panel = this.#make(layer);
    this.list.push(panel);
    const before = this.list.find((one) => one.layer.name === after);
    if (before) before.figure.after(panel.figure);
    else this.where.append(panel.figure);
    return panel;
  }

  remove(name) {
    const panel = this.list.find((one) => one.layer.name === name);
    panel?.figure.remove();
    this.list = this.list.filter((one) => one !== panel);
  }

  setTool(tool) {
    this.tool = tool;
    this.polygon = [];
    for (const panel of this.list) panel.canvas.className = tool === "move" ? "moving" : "picking";
    this.draw();
  }

  // Where a pixel of the cube lies in a snapshot depends on the band.
  setBand(band) {
    this.band = band;
    this.draw();
  }

  setImage(name, url, overlay = null) {
    const panel = this.list.find((one) => one.layer.name === name);
    panel.urls = [url, overlay];
    return this.#load(panel);
  }

  // Asks for as many pixels as the screen shows of the picture.
  async #load(panel) {
    const dense = window.devicePixelRatio || 1;
    const across = Math.max(1, Math.ceil(panel.canvas.clientWidth * dense * Math.max(1, this.zoom)));
    const wanted = panel.urls.map((url) => url && `${url}&width=${Math.min(panel.layer.width, across)}`);
    if (String(wanted) === panel.wanted) return;
    panel.wanted = String(wanted);
    const slow = setTimeout(() => panel.figure.classList.add("loading"), 150);
    try {
      const [picture, over] = await Promise.all(wanted.map((url) => url && loadPicture(url)));
      if (panel.wanted !== String(wanted)) return; // a later band has been asked for since
      [panel.picture, panel.over] = [picture, over];
      panel.figure.classList.remove("loading", "failed");
      this.handlers.shown(panel);
      this.draw();
    } catch (problem) {
      if (panel.wanted !== String(wanted)) return;
      panel.wanted = "";
      panel.figure.classList.remove("loading");
      panel.figure.classList.add("failed");
      this.handlers.failed(problem);
    } finally {
      clearTimeout(slow);
    }
  }

  // Closer up, a picture that was sent small is asked for again.
  #refine() {
    clearTimeout(this.refining);
    this.refining = setTimeout(() => {
      for (const panel of this.list) if (panel.picture?.reduction > 1 && panel.urls) this.#load(panel);
    }, 150);
  }

  zoomBy(factor, at = this.centre) {
    const zoom = Math.min(64, Math.max(0.5, this.zoom * factor));
    const share = this.zoom / zoom;
    this.centre = this.centre.map((c, k) => at[k] + (c - at[k]) * share);
    this.zoom = zoom;
    this.#bound();
    this.#refine();
    this.draw();
  }

  showWhole() {
    this.zoom = 1;
    this.centre = [this.facts.width / 2, this.facts.height / 2];
    this.draw();
  }

  draw() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      for (const panel of this.list) this.#paint(panel);
    });
  }

  #make(layer) {
    const figure = element("figure", "", "card loading");
    const caption = element("figcaption");
    const note = element("span", "", "quiet");
    caption.append(element("h2", layer.title), note);
    const canvas = document.createElement("canvas");
    canvas.tabIndex = 0;
    canvas.className = "picking";
    canvas.id = `panel-${layer.name}`;
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", `${layer.title}: arrows move the cross, Enter shows its spectrum`);
    figure.append(caption, canvas);
    const panel = { layer, figure, canvas, note, picture: null, over: null, urls: null, wanted: "" };
    this.#listen(panel);
    return panel;
  }

  #listen(panel) {
    const canvas = panel.canvas;
    canvas.addEventListener("pointerdown", (event) => this.#down(panel, event));
    canvas.addEventListener("pointermove", (event) => this.#moved(panel, event));
    canvas.addEventListener("pointerup", (event) => this.#up(panel, event));
    canvas.addEventListener("pointercancel", (event) => {
      this.pointers.delete(event.pointerId);
      this.rubber = null;
      this.draw();
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY / 400), this.#place(panel, event));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => { this.hasCross = true; this.draw(); });
  }

  // How far from its place in the cube the band in view lies in a picture; null: nobody knows.
  #shift({ layer }) {
    return layer.offsets && (layer.offsets[this.band] ?? [0, 0]);
  }

  // Pixels of the screen to those of a panel's picture, as it is now.
  #view(panel) {
    const { canvas, layer } = panel;
    const scale = (canvas.width / layer.width) * this.zoom;
    const [x, y] = this.#middle(panel);
    return { scale, left: x - canvas.width / 2 / scale, top: y - canvas.height / 2 / scale };
  }

  // The middle of the view, in pixels of the picture. Those of another size than the cube follow the
  // light of the band in view and stay within their frame, so that "whole" shows all of them.
  #middle(panel) {
    const { layer } = panel;
    const [cube, size] = [this.facts, layer].map((one) => [one.width, one.height]);
    if (cube.every((length, k) => length === size[k])) return this.centre;
    const shift = this.#shift(panel);
    return this.centre.map((c, k) => {
      const half = size[k] / 2 / Math.max(1, this.zoom);
      const at = shift ? c + shift[k] : (c / cube[k]) * size[k];
      return Math.min(size[k] - half, Math.max(half, at));
    });
  }

  // The place in the cube under a pointer.
  #place(panel, event) {
    const box = panel.canvas.getBoundingClientRect();
    const view = this.#view(panel);
    const dense = panel.canvas.width / box.width;
    const x = view.left + ((event.clientX - box.left) * dense) / view.scale;
    const y = view.top + ((event.clientY - box.top) * dense) / view.scale;
    const shift = this.#shift(panel);
    if (shift) return [x - shift[0], y - shift[1]];
    return [(x / panel.layer.width) * this.facts.width, (y / panel.layer.height) * this.facts.height];
  }

  #down(panel, event) {
    const canvas = panel.canvas;
    canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    const moves = this.tool === "move" || event.button === 1 || event.shiftKey || this.pointers.size > 1
      || !this.#shift(panel); // nobody knows which pixel of the cube this would be
    this.dragging = moves ? "move" : "pick";
    if (moves) this.rubber = null;
    else if (this.tool === "polygon") this.#corner(panel, event);
    else {
      const at = this.#pixel(this.#place(panel, event));
      this.rubber = [...at, ...at];
    }
    this.draw();
  }

  // Another corner; on the first one, or twice in one place, the polygon is closed.
  #corner(panel, event) {
    this.dragging = "polygon";
    const size = [this.facts.width, this.facts.height];
    const at = this.#place(panel, event).map((c, k) => Math.min(size[k], Math.max(0, c)));
    const view = this.#view(panel);
    const dense = panel.canvas.width / panel.canvas.getBoundingClientRect().width;
    const isNear = (corner) => Math.hypot(corner[0] - at[0], corner[1] - at[1]) * view.scale < NEAR * dense;
    const ends = [this.polygon[0], this.polygon.at(-1)];
    if (this.polygon.length > 2 && ends.some(isNear)) this.closePolygon();
    else if (!this.polygon.length || !isNear(ends[1])) this.polygon.push(at);
  }

  closePolygon() {
    const region = this.polygon.flat().map((c) => Number(c.toFixed(2)));
    this.polygon = [];
    if (region.length >= 6) this.handlers.pick(region);
    this.draw();
  }

  #moved(panel, event) {
    if (!this.pointers.has(event.pointerId)) return;
    const before = [...this.pointers.values()];
    const old = this.pointers.get(event.pointerId);
    this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    if (this.dragging === "pick" && this.rubber) {
      const at = this.#pixel(this.#place(panel, event));
      this.rubber = [this.rubber[0], this.rubber[1], ...at];
      this.draw();
      return;
    }
    if (this.dragging === "polygon") return;
    const view = this.#view(panel);
    const dense = panel.canvas.width / panel.canvas.getBoundingClientRect().width;
    const share = 1 / before.length;
    this.centre[0] -= ((event.clientX - old[0]) * dense * share) / view.scale;
    this.centre[1] -= ((event.clientY - old[1]) * dense * share) / view.scale;
    this.#bound();
    if (before.length === 2) {
      const after = [...this.pointers.values()];
      const apart = (p) => Math.hypot(p[0][0] - p[1][0], p[0][1] - p[1][1]);
      if (apart(before) > 0) this.zoomBy(apart(after) / apart(before));
    }
    this.draw();
  }

  #up(panel, event) {
    this.pointers.delete(event.pointerId);
    if (this.dragging === "pick" && this.rubber) {
      const [a, b, c, d] = this.rubber;
      this.rubber = null;
      this.cross = [c, d];
      this.handlers.pick([Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)]);
    }
    this.draw();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const arrows = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far] };
    const pans = { a: [-1, 0], d: [1, 0], w: [0, -1], s: [0, 1] };
    const step = this.facts.width / this.zoom / 8;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (arrows[key]) {
      this.cross = this.#pixel(this.cross.map((c, k) => c + arrows[key][k]));
      this.hasCross = true;
      this.#follow();
    } else if (pans[key]) {
      this.centre = this.centre.map((c, k) => c + pans[key][k] * step);
      this.#bound();
    } else if (key === "Escape") this.polygon = [];
    else if (key === "c" && this.tool === "polygon") this.closePolygon();
    else if ((key === "Enter" || key === " ") && this.tool === "polygon") {
      this.polygon.push(this.cross.map((c) => c + 0.5));
    } else if (key === "Enter" || key === " ") this.handlers.pick([...this.cross, ...this.cross]);
    else if (key === "p") this.handlers.pin();
    else if (key === "+" || key === "=") this.zoomBy(1.5, this.cross);
    else if (key === "-") this.zoomBy(1 / 1.5, this.cross);
    else if (key === "0") this.showWhole();
    else return;
    event.preventDefault();
    this.draw();
  }

  #follow() {
    const half = [this.facts.width / this.zoom / 2, this.facts.height / this.zoom / 2];
    this.centre = this.centre.map((c, k) => Math.min(this.cross[k] + half[k], Math.max(this.cross[k] + 1 - half[k], c)));
  }

  #bound() {
    const size = [this.facts.width, this.facts.height];
    this.centre = this.centre.map((c, k) => Math.min(size[k], Math.max(0, c)));
  }

  #pixel([x, y]) {
    const inside = (value, most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
    return [inside(x, this.facts.width), inside(y, this.facts.height)];
  }

  #paint(panel) {
    const { canvas, layer } = panel;
    const dense = window.devicePixelRatio || 1;
    const wide = Math.max(1, Math.round(canvas.clientWidth * dense));
    const high = Math.max(1, Math.round((wide * layer.height) / layer.width));
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
    }
    const pen = canvas.getContext("2d");
    const { scale, left, top } = this.#view(panel);
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, wide, high);
    for (const [shown, alpha] of [[panel.picture, 1], [panel.over, 0.6]]) {
      if (!shown) continue;
      const each = scale * shown.reduction;
      pen.imageSmoothingEnabled = each < 1;
      pen.setTransform(each, 0, 0, each, -left * scale, -top * scale);
      pen.globalAlpha = alpha;
      pen.drawImage(shown.bitmap, 0, 0);
    }
    pen.globalAlpha = 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    if (panel.picture) drawScaleBar(pen, dense, scale);
    const shift = this.#shift(panel);
    if (!shift) return; // a mark would be somewhere, and wrong
    const place = ([x, y]) => [(x + shift[0] - left) * scale, (y + shift[1] - top) * scale];
    const mark = (region, colour) => drawRegion(pen, dense, colour, region, place);
    for (const { region, colour } of this.marks) mark(region, colour);
    if (this.rubber) {
      const [a, b, c, d] = this.rubber;
      mark([Math.min(a, c), Math.min(b, d), Math.max(a, c), Math.max(b, d)], "#ffffff");
    }
    if (this.polygon.length) trace(pen, dense, "#ffffff", this.polygon.map(place), false);
    for (const [x, y] of this.polygon) mark([x - 0.5, y - 0.5, x - 0.5, y - 0.5], "#ffffff");
    if (this.hasCross && document.activeElement === canvas) mark([...this.cross, ...this.cross], "#ffff00");
  }
}
