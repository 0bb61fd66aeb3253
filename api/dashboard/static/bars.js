// Fractions with a sign, one row for each name, on an axis with zero in it: gains with their intervals, or regrets.

import { Chart, fitted } from "./chart.js";
import { byId } from "./dom.js";
import { themed } from "./palette.js";

const ROW = 26;
const FOOT = 22;
const TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100];
const TICKS_MOST = 8;

/** 0.1234 -> "+12.3 %"; -0.004 -> "−0.4 %". */
export function signed(part, digits = 1) {
  const text = (Math.abs(part) * 100).toFixed(digits);
  return `${Number(text) === 0 ? "" : part < 0 ? "−" : "+"}${text} %`;
}

/** Draws rows {name, value, error, text, mark} into a canvas; `error` null: no interval, then a bar from zero. */
export class Bars {
  constructor(id) {
    Object.assign(this, { id, rows: [] });
    this.chart = new Chart(byId(id), {
      heightFor: () => this.rows.length * ROW + FOOT,
      draw: (pen, width) => this.draw(pen, width),
      open: () => {},
    });
  }

  show(rows, label) {
    this.rows = rows;
    byId(this.id).setAttribute("aria-label", label);
    this.chart.redraw();
  }

  draw(pen, width) {
    if (!this.rows.length) return [];
    const left = Math.min(300, Math.round(width * 0.38));
    const ends = this.rows.flatMap(({ value, error }) => [value - (error ?? 0), value + (error ?? 0)]);
    const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
    const span = Math.max(high - low, 0.01);
    const scale = (value) => left + 24 + ((value - low) / span) * (width - left - 54);
    this.axis(pen, low, low + span, scale);
    return this.rows.map((row, i) => [this.row(pen, row, i * ROW, { scale, left, width })]);
  }

  axis(pen, low, high, scale) {
    const step = TICKS.find((each) => (high - low) / each <= TICKS_MOST * Math.min(1, (scale(high) - scale(low)) / 360)) ?? TICKS.at(-1);
    pen.textAlign = "center";
    for (let k = Math.ceil(low / step); k <= Math.floor(high / step); k += 1) {
      pen.fillStyle = themed(k === 0 ? "--quiet" : "--line");
      pen.fillRect(scale(k * step), 0, 1, this.rows.length * ROW);
      pen.fillStyle = themed("--quiet");
      pen.fillText(k === 0 ? "0" : signed(k * step, 0), scale(k * step), this.rows.length * ROW + 12);
    }
    pen.textAlign = "left";
  }

  row(pen, { name, value, error, text, mark }, y, { scale, left, width }) {
    pen.fillStyle = themed(mark ? "--accent" : "--ink");
    pen.fillText(fitted(pen, `${mark ? "▸ " : ""}${name}`, left - 8), 0, y + ROW / 2);
    const [from, to] = error === null ? [scale(Math.min(0, value)), scale(Math.max(0, value))] : [scale(value - error), scale(value + error)];
    pen.globalAlpha = 0.7;
    pen.fillStyle = themed("--accent");
    pen.fillRect(from, y + ROW / 2 - 4, Math.max(2, to - from), 8);
    pen.globalAlpha = 1;
    pen.fillStyle = themed("--ink");
    pen.fillRect(scale(value) - 1, y + ROW / 2 - 8, 2, 16);
    return { x: 0, y, width, height: ROW, text, job: null };
  }
}
