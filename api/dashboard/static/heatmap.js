// The allocation matrix: for each job and accelerator type the target, what was received, or both side by side.

import { Chart, fitted } from "./chart.js";
import { get } from "./api.js";
import { byId, fillTable, say, sayEmpty } from "./dom.js";
import { count, fixed, labelOf, percent } from "./format.js";
import { markedJob } from "./highlight.js";
import { colourOf, shade, themed } from "./palette.js";
import { quietly } from "./shell.js";
import { openWhy } from "./why.js";

const ROW = 21;
const HEAD = 24;
const ROWS_MAX = 500; // the service groups above

/** Draws allocations into #allocation. A click on a job explains it; a click on a group shows its jobs. */
export class Heatmap {
  constructor() {
    Object.assign(this, { allocation: null, shown: [], chosen: null, group: null, mode: "both", asked: 0 });
    byId("grouped").addEventListener("change", () => this.choose({ chosen: byId("grouped").checked, group: null }));
    byId("allocation-back").addEventListener("click", () => this.choose({ group: null }));
    byId("allocation-mode").addEventListener("change", (event) => this.choose({ mode: event.target.value }));
    this.chart = new Chart(byId("allocation-canvas"), {
      heightFor: () => HEAD + this.shown.length * ROW + 4,
      draw: (pen, width) => this.draw(pen, width),
      open: (cell) => (cell.group ? this.choose({ group: cell.group }) : quietly(openWhy(cell.job))),
    });
  }

  /** The parameters of the request: rows of one group, groups, single jobs, or the default of the service. */
  query() {
    if (this.group) return { ...this.group, limit: ROWS_MAX };
    return { group_by: this.chosen === null ? "auto" : this.chosen ? "tier_and_kind" : "none", limit: ROWS_MAX };
  }

  /** Read and draw; `isSolved`: whether there is an allocation at all. */
  async refresh(isSolved = true) {
    const asked = ++this.asked;
    const found = isSolved ? await get("/v1/allocations/current", this.query()) : null;
    if (asked === this.asked) this.show(found); // else the reader has chosen something else meanwhile
  }

  choose(choice) {
    Object.assign(this, choice);
    return "mode" in choice ? this.show(this.allocation) : quietly(this.refresh());
  }

  /** Show an allocation; null: there is none yet. */
  show(allocation) {
    this.allocation = allocation;
    const rows = allocation?.rows ?? [];
    byId("grouped").checked = allocation?.is_grouped ?? false;
    byId("allocation-back").hidden = !this.group;
    this.shown = rows.map((row) => ({ ...row, label: row.jobs > 1 ? `${row.kind} · ${row.tier} ×${row.jobs}` : labelOf(row) }));
    this.largest = Math.max(0, ...this.shown.flatMap((row) => this.valuesOf(row)));
    for (const part of byId("allocation").querySelectorAll(".needs-rows")) part.hidden = rows.length === 0;
    sayEmpty("allocation-empty", ...(rows.length ? [] : ["No job has a share yet: a job gets one in the round after its submission."]));
    say("allocation-largest", fixed(this.largest));
    say("allocation-note", note(allocation));
    this.tell();
    drawScale(byId("allocation-scale"));
    this.chart.redraw();
  }

  fields() {
    return this.mode === "both" ? ["target", "received"] : [this.mode];
  }

  valuesOf(row) {
    return this.fields().flatMap((field) => row[field]);
  }

  /** The same as text: the label of the canvas, and the table below it. */
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
    const hasRoom = width > 75;
    const name = fitted(pen, type, hasRoom ? width - 30 : width - 4);
    pen.fillText(name, x + 2, 9);
    if (!hasRoom) return;
    pen.fillStyle = themed("--quiet");
    pen.fillText(` ×${workers}`, x + 2 + pen.measureText(name).width, 9);
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
    const values = this.fields().map((field) => row[field][j]);
    const part = (step - 5) / values.length;
    const text = describe(row, type, j);
    const [job, group] = row.jobs === 1 ? [row.job_id, null] : [null, { tier: row.tier, kind: row.kind }];
    return values.map((value, k) => {
      const cell = { x: x + k * part, y, width: part, height: ROW, text, job, group };
      const colours = shade(this.largest ? value / this.largest : 0);
      pen.fillStyle = colours.ground;
      pen.beginPath();
      pen.roundRect(cell.x, y + 1, part - 1, ROW - 2, values.length === 1 ? 3 : k ? [0, 3, 3, 0] : [3, 0, 0, 3]);
      pen.fill();
      if (value >= 0.0005 && part > 30) {
        pen.fillStyle = colours.ink;
        pen.textAlign = "center";
        pen.fillText(fixed(value), cell.x + part / 2, y + ROW / 2 + 0.5);
        pen.textAlign = "left";
      }
      return cell;
    });
  }
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

function describe(row, type, j) {
  const who = row.jobs === 1
    ? `${row.label} · ${row.tier} · ${type}\n${row.kind} · ${row.job_id}`
    : `${row.label} · ${type}\nmean of ${row.jobs} jobs; click to see them`;
  const said = row.note ? `\n${row.note}` : "";
  return `${who}\ntarget ${fixed(row.target[j], 3)} · received ${fixed(row.received[j], 3)}${said}`;
}

function note(allocation) {
  if (!allocation) return "";
  const jobs = sum(allocation.rows.map((row) => row.jobs));
  const cut = jobs < allocation.jobs ? `first ${count(jobs)} of ${count(allocation.jobs)} jobs · ` : "";
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
