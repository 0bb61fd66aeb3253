// Intervals of a job kind's throughput, one line for each accelerator type, on a logarithmic axis.

import { Chart, fitted } from "./chart.js";
import { byId, fillTable } from "./dom.js";
import { quantity } from "./format.js";
import { themed } from "./palette.js";

const ROW = 26;
const FOOT = 22;
const LEFT = 120;

/** Draws rows of the estimator into #<name>-canvas and #<name>-table. */
export class Intervals {
  constructor(name) {
    Object.assign(this, { name, rows: [] });
    this.chart = new Chart(byId(`${name}-canvas`), {
      heightFor: () => this.rows.length * ROW + FOOT,
      draw: (pen, width) => this.draw(pen, width),
      open: () => {},
    });
  }

  show(rows) {
    this.rows = rows.filter((row) => row.steps_per_s > 0);
    byId(`${this.name}-canvas`).setAttribute("aria-label", `Intervals of ${this.rows.length} accelerator types`);
    fillTable(byId(`${this.name}-table`), ["Type", "Steps/s", "From", "To", "Source", "Measurements"],
      this.rows.map((row) => [
        row.accelerator_type, quantity(row.steps_per_s), quantity(row.low_steps_per_s), quantity(row.high_steps_per_s),
        row.source, String(row.measurements),
      ]));
    this.chart.redraw();
  }

  draw(pen, width) {
    if (!this.rows.length) return [];
    const ends = this.rows.flatMap((row) => [row.low_steps_per_s, row.high_steps_per_s]).filter((value) => value > 0);
    const [low, high] = [Math.floor(Math.log10(Math.min(...ends))), Math.ceil(Math.log10(Math.max(...ends)))];
    const scale = (value) => LEFT + ((Math.log10(Math.max(value, 10 ** low)) - low) / Math.max(1, high - low)) * (width - LEFT - 40);
    this.axis(pen, low, high, scale);
    return this.rows.map((row, i) => [this.row(pen, row, i * ROW, scale, width)]);
  }

  axis(pen, low, high, scale) {
    pen.textAlign = "center";
    for (let power = low; power <= high; power += 1) {
      pen.fillStyle = themed("--line");
      pen.fillRect(scale(10 ** power), 0, 1, this.rows.length * ROW);
      pen.fillStyle = themed("--quiet");
      pen.fillText(quantity(10 ** power), scale(10 ** power), this.rows.length * ROW + 12);
    }
    pen.textAlign = "left";
  }

  row(pen, row, y, scale, width) {
    pen.fillStyle = themed("--ink");
    pen.fillText(fitted(pen, row.accelerator_type, LEFT - 16), 0, y + ROW / 2);
    const [from, to] = [scale(row.low_steps_per_s), scale(row.high_steps_per_s)];
    pen.globalAlpha = row.is_measured ? 0.9 : 0.45;
    pen.fillStyle = themed("--accent");
    pen.fillRect(from, y + ROW / 2 - 4, Math.max(2, to - from), 8);
    pen.globalAlpha = 1;
    pen.fillStyle = themed("--ink");
    pen.fillRect(scale(row.steps_per_s) - 1, y + ROW / 2 - 8, 2, 16);
    const text = `${row.accelerator_type}: ${quantity(row.steps_per_s)} steps/s\n${quantity(row.low_steps_per_s)} to ` +
      `${quantity(row.high_steps_per_s)} with 90 %\n${row.source}, ${row.measurements} measurements`;
    return { x: 0, y, width, height: ROW, text, job: null };
  }
}
