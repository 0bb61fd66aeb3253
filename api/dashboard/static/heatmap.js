// The allocation matrix: for each job and accelerator type the target beside what was received.

import { Chart, fitted } from "./chart.js";
import { byId, fillTable, say, sayEmpty } from "./dom.js";
import { fixed, labelOf, percent } from "./format.js";
import { markedJob } from "./highlight.js";
import { colourOf, shade, themed } from "./palette.js";

const ROW = 21;
const HEAD = 24;
const ROWS_BEFORE_GROUPING = 48;
const ROWS_MAX = 400;

/** Draws allocations into #allocation. */
export class Heatmap {
  constructor() {
    this.allocation = null;
    this.shown = [];
    this.box = byId("grouped");
    this.box.addEventListener("change", () => {
      this.chosen = this.box.checked;
      this.show(this.allocation);
    });
    this.chart = new Chart(byId("allocation-canvas"), {
      heightFor: () => HEAD + this.shown.length * ROW + 4,
      draw: (pen, width) => this.draw(pen, width),
    });
  }

  /** Show an allocation; null: there is none yet. */
  show(allocation) {
    this.allocation = allocation;
    const rows = allocation?.rows ?? [];
    this.box.checked = this.chosen ?? rows.length > ROWS_BEFORE_GROUPING;
    const all = this.box.checked ? grouped(rows) : rows.map((row) => ({ ...row, label: labelOf(row), jobs: 1 }));
    this.shown = all.slice(0, ROWS_MAX);
    this.largest = Math.max(0, ...this.shown.flatMap((row) => [...row.target, ...row.received]));
    for (const part of byId("allocation").querySelectorAll(".needs-rows")) part.hidden = rows.length === 0;
    sayEmpty("allocation-empty", ...(rows.length ? [] : ["No job has a share yet: it gets one in the round after its submission."]));
    say("allocation-largest", fixed(this.largest));
    say("allocation-note", note(allocation, all.length));
    this.tell();
    drawScale(byId("allocation-scale"));
    this.chart.redraw();
  }

  /** The same in words: the canvas's label and the table twin. */
  tell() {
    const types = this.allocation?.types ?? [];
    byId("allocation-canvas").setAttribute("aria-label",
      `Heatmap of ${this.shown.length} rows by ${types.length} accelerator types: ${types.join(", ")}`);
    fillTable(byId("allocation-table"),
      ["Job", "Tier", ...types.flatMap((type) => [`${type} target`, `${type} received`])],
      this.shown.map((row) =>
        [row.label, row.tier, ...types.flatMap((_, j) => [fixed(row.target[j], 3), fixed(row.received[j], 3)])]));
  }

  draw(pen, width) {
    const { types = [], capacity = {} } = this.allocation ?? {};
    const left = Math.min(190, width * 0.28);
    const right = 52;
    const step = (width - left - right) / Math.max(1, types.length);
    types.forEach((type, j) => this.heading(pen, left + j * step, step, type, capacity[type] ?? 0));
    return this.shown.map((row, i) => {
      const y = HEAD + i * ROW;
      this.margins(pen, row, y, left, width);
      return types.flatMap((type, j) => this.pair(pen, row, type, j, left + j * step, y, step));
    });
  }

  heading(pen, x, width, type, workers) {
    pen.fillStyle = themed("--ink");
    pen.fillText(fitted(pen, `${type}`, width - 30), x + 2, 9);
    const taken = pen.measureText(fitted(pen, type, width - 30)).width;
    pen.fillStyle = themed("--quiet");
    pen.fillText(` ×${workers}`, x + 2 + taken, 9);
  }

  margins(pen, row, y, left, width) {
    if (row.jobs === 1 && row.job_id === markedJob()) {
      pen.fillStyle = themed("--hover");
      pen.fillRect(0, y, width, ROW);
    }
    if (row.jobs === 1) {
      pen.fillStyle = colourOf(row.job_id);
      pen.fillRect(0, y + 6, 9, 9);
    }
    pen.fillStyle = themed("--ink");
    pen.fillText(fitted(pen, row.label, left - 28), 17, y + ROW / 2);
    pen.fillStyle = themed("--quiet");
    pen.textAlign = "right";
    pen.fillText(percent(sum(row.target)), width - 2, y + ROW / 2);
    pen.textAlign = "left";
  }

  pair(pen, row, type, j, x, y, step) {
    const half = (step - 5) / 2;
    const text = describe(row, type, j);
    return [row.target[j], row.received[j]].map((value, k) => {
      const cell = { x: x + k * half, y, width: half, height: ROW, text, job: row.jobs === 1 ? row.job_id : null };
      const colours = shade(this.largest ? value / this.largest : 0);
      pen.fillStyle = colours.ground;
      pen.beginPath();
      pen.roundRect(cell.x, y + 1, half - 1, ROW - 2, k ? [0, 3, 3, 0] : [3, 0, 0, 3]);
      pen.fill();
      if (value >= 0.0005 && half > 30) {
        pen.fillStyle = colours.ink;
        pen.textAlign = "center";
        pen.fillText(fixed(value), cell.x + half / 2, y + ROW / 2 + 0.5);
        pen.textAlign = "left";
      }
      return cell;
    });
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function describe(row, type, j) {
  const who = row.jobs === 1 ? `${row.label} · ${row.tier} · ${type}\n${row.kind} · ${row.job_id}` : `${row.label} · ${type}`;
  return `${who}\ntarget ${fixed(row.target[j], 3)} · received ${fixed(row.received[j], 3)}`;
}

/** Mean rows of the jobs of one kind and tier: each of 10 000 jobs alone has next to nothing. */
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const key = `${row.kind} · ${row.tier}`;
    const group = groups.get(key) ?? groups.set(key, { ...row, key, members: [] }).get(key);
    group.members.push(row);
  }
  const mean = (group, field) =>
    group[field].map((_, j) => sum(group.members.map((row) => row[field][j])) / group.members.length);
  return [...groups.values()].map((group) => ({
    ...group,
    jobs: group.members.length,
    label: group.members.length === 1 ? labelOf(group.members[0]) : `${group.key} ×${group.members.length}`,
    target: mean(group, "target"),
    received: mean(group, "received"),
  }));
}

function note(allocation, rows) {
  if (!allocation) return "";
  const cut = rows > ROWS_MAX ? `first ${ROWS_MAX} of ${rows} rows · ` : "";
  const gap = allocation.certificate.dual_gap;
  const checked = `checked: violation ${allocation.certificate.primal_violation.toExponential(0)}` +
    (gap === null ? "" : `, gap ${gap.toExponential(0)}`);
  const fallback = allocation.is_fallback ? ` · fallback (${allocation.solver_outcome})` : "";
  return `${cut}${allocation.solver} · ${checked}${fallback}`;
}

function drawScale(canvas) {
  const pen = canvas.getContext("2d");
  for (let x = 0; x < canvas.width; x += 1) {
    pen.fillStyle = shade(x / (canvas.width - 1)).ground;
    pen.fillRect(x, 0, 1, canvas.height);
  }
}
