// What every canvas chart needs: sharp pixels, a tooltip under pointer and keys, redrawing when size or theme change.

import { byId } from "./dom.js";
import { mark, onMark } from "./highlight.js";
import { onThemeChange, themed } from "./palette.js";

const FONT = '12px system-ui, "Segoe UI", Roboto, sans-serif';
const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

/**
 * A canvas that `draw(pen, width)` paints. `draw` returns rows of cells {x, y, width, height, text, job}: what a
 * pointer or the arrow keys can select, and its job. `heightFor()`: height in pixels. `open(cell)`: what a
 * click or Enter does; by default it goes to the page of the cell's job. `press(event)`: keys of the chart's own.
 */
export class Chart {
  constructor(canvas, { heightFor, draw, open = openJob, press = () => false }) {
    Object.assign(this, { canvas, heightFor, draw, opens: open, presses: press, rows: [], at: null, waiting: false });
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => this.rest(null));
    canvas.addEventListener("blur", () => this.rest(null));
    canvas.addEventListener("click", () => this.open());
    canvas.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.redraw()).observe(canvas.parentElement);
    onThemeChange(() => this.redraw());
    onMark(() => this.redraw());
  }

  /** Paint at the next frame. */
  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const width = Math.max(320, this.canvas.parentElement.clientWidth);
    const height = this.heightFor();
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(height * scale);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = FONT;
    pen.textBaseline = "middle";
    this.rows = this.draw(pen, width);
    const cell = this.at && this.rows[this.at[0]]?.[this.at[1]];
    if (cell) this.frame(pen, cell);
  }

  frame(pen, cell) {
    pen.strokeStyle = themed("--ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(cell.x + 0.75, cell.y + 0.75, cell.width - 1.5, cell.height - 1.5);
  }

  point(event) {
    const r = this.rows.findIndex((row) => row.some((cell) => covers(cell, event.offsetX, event.offsetY)));
    const c = r < 0 ? -1 : this.rows[r].findIndex((cell) => covers(cell, event.offsetX, event.offsetY));
    this.rest(r < 0 ? null : [r, c]);
    if (r >= 0) place(event.clientX, event.clientY);
  }

  press(event) {
    if (event.key === "Escape") return this.rest(null);
    if (event.key === "Enter") return this.open();
    if (this.presses(event)) return event.preventDefault();
    const step = STEPS[event.key];
    if (!step || !this.rows.length) return undefined;
    event.preventDefault();
    const [r, c] = this.at ? [this.at[0] + step[0], this.at[1] + step[1]] : [0, 0];
    const row = Math.min(Math.max(r, 0), this.rows.length - 1);
    this.rest([row, Math.min(Math.max(c, 0), this.rows[row].length - 1)]);
    const cell = this.rows[row][this.at[1]];
    if (!cell) return undefined;
    const box = this.canvas.getBoundingClientRect();
    place(box.left + cell.x + cell.width / 2, box.top + cell.y + cell.height / 2);
    byId("announcer").textContent = cell.text;
    return undefined;
  }

  /** Select a cell [row, column], or none. */
  rest(at) {
    const cell = at && this.rows[at[0]]?.[at[1]];
    const tooltip = byId("tooltip");
    tooltip.hidden = !cell;
    if (cell) tooltip.textContent = cell.text;
    if (String(at) === String(this.at)) return;
    this.at = at;
    this.canvas.style.cursor = cell?.job || cell?.group ? "pointer" : "";
    mark(cell?.job ?? null);
    this.redraw();
  }

  /** Open the selected cell. */
  open() {
    const cell = this.at && this.rows[this.at[0]]?.[this.at[1]];
    if (cell) this.opens(cell);
  }
}

/** Go to the page of a cell's job. */
export function openJob({ job }) {
  if (job) location.assign(`/jobs/${encodeURIComponent(job)}`);
}

/** Text cut to a width, with an ellipsis; nothing rather than fewer than `least` characters. */
export function fitted(pen, text, width, least = 2) {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end >= least && pen.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return end >= least ? `${text.slice(0, end)}…` : "";
}

const covers = (cell, x, y) => x >= cell.x && x < cell.x + cell.width && y >= cell.y && y < cell.y + cell.height;

function place(x, y) {
  const tooltip = byId("tooltip");
  const left = Math.min(x + 14, window.innerWidth - tooltip.offsetWidth - 8);
  const below = y + 16 + tooltip.offsetHeight < window.innerHeight;
  tooltip.style.transform = `translate(${Math.max(8, left)}px, ${below ? y + 16 : y - tooltip.offsetHeight - 12}px)`;
}
