// Curves of the metrics of jobs: a chart for each name, a line for each job; for one job also its leases.

import { byId, fillTable, make, sayEmpty } from "./dom.js";
import { count, quantity, timeOfDay } from "./format.js";
import { colourOf, colourOfTier, themed } from "./palette.js";
import { LinePlot } from "./plot.js";

const STEP_INCREMENTS = [1, 2, 5].flatMap((each) => Array.from({ length: 13 }, (_, power) => each * 10 ** power)).sort((a, b) => a - b);
const TABLE_ROWS = 40;

/** Draws into #curves-plots, #curves-table and #curves-empty; #curves-x chooses between steps and time. */
export class Curves {
  constructor() {
    this.plots = new Map();
    this.jobs = [];
    this.axis = byId("curves-x");
    this.axis.addEventListener("change", () => this.draw(true));
  }

  /** `jobs`: {id, label, curves} each, curves as the service answers them; `none`: what to say where there are none. */
  show(jobs, none) {
    this.jobs = jobs.filter((job) => job.curves?.steps.length);
    sayEmpty("curves-empty", ...(this.jobs.length ? [] : [none]));
    byId("curves-body").hidden = this.jobs.length === 0;
    if (this.jobs.length) this.draw(false);
  }

  isTime() {
    return this.axis.value === "time";
  }

  draw(isAnew) {
    const names = [...new Set(this.jobs.flatMap((job) => job.curves.names))].sort();
    for (const [name, { figure }] of this.plots) {
      if (isAnew || !names.includes(name)) {
        figure.remove();
        this.plots.delete(name);
      }
    }
    for (const name of names) this.drawOne(name);
    byId("curves-plots").append(...names.map((name) => this.plots.get(name).figure));
    this.fillTable(names);
  }

  drawOne(name) {
    const jobs = this.jobs.filter((job) => job.curves.names.includes(name));
    const tables = jobs.map(({ curves }) => [this.xsOf(curves), curves.values[name]]);
    const [xs, ...values] = tables.length === 1 ? tables[0] : uPlot.join(tables);
    const series = jobs.map((job, i) => ({ label: job.label, colour: () => colourOf(job.id), values: values[i] }));
    if (!this.plots.has(name)) this.plots.set(name, this.made(name));
    this.plots.get(name).plot.show(xs, series);
  }

  made(name) {
    const place = make("div", { className: "plot", role: "img" });
    place.setAttribute("aria-label", `Curve of ${name}; the table has the same numbers`);
    const figure = make("figure", { className: "curve" }, make("figcaption", {}, name), place);
    byId("curves-plots").append(figure); // it has a width from now on
    const plot = new LinePlot(place, {
      x: this.isTime() ? "time" : "step",
      y: (value, digits = 3) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(digits - 2) : quantity(value, digits)),
      group: "curves",
      options: () => ({ increments: STEP_INCREMENTS, isTime: this.isTime(), behind: (drawn) => this.leases(drawn) }),
    });
    return { figure, plot };
  }

  /** In a job's time several points may share an instant: each x is used once, and grows. */
  xsOf(curves) {
    if (!this.isTime()) return curves.steps;
    let last = -Infinity;
    return curves.at_s.map((atS) => (last = Math.max(atS, last + 1e-3)));
  }

  /** Behind the lines of one job: a ground for each type that it ran on, a line where it was stopped. */
  leases(drawn) {
    if (this.jobs.length !== 1) return;
    const { curves } = this.jobs[0];
    const xs = this.xsOf(curves);
    const types = [...new Set(curves.accelerator_types)].sort();
    const { ctx: pen, bbox } = drawn;
    const at = (x) => Math.min(bbox.left + bbox.width, Math.max(bbox.left, drawn.valToPos(x, "x", true)));
    pen.save();
    pen.textAlign = "left";
    for (const { first, end } of leasesOf(curves)) {
      const [left, right] = [at(xs[first]), at(xs[Math.min(end, xs.length - 1)])];
      const type = curves.accelerator_types[first];
      pen.globalAlpha = 0.16;
      pen.fillStyle = colourOfTier(types.indexOf(type));
      pen.fillRect(left, bbox.top, right - left, bbox.height);
      pen.globalAlpha = 1;
      pen.fillStyle = themed("--quiet");
      const scale = window.devicePixelRatio || 1;
      pen.font = `${11 * scale}px system-ui, sans-serif`;
      if (pen.measureText(type).width + 8 * scale < right - left) pen.fillText(type, left + 4 * scale, bbox.top + 12 * scale);
      if (first > 0 && left > bbox.left) stopAt(pen, left, bbox, scale);
    }
    pen.restore();
  }

  fillTable(names) {
    const rows = this.jobs.flatMap((job) => rowsOf(job, names));
    fillTable(byId("curves-table"), ["Job", "Step", "At", "Type", ...names], rows);
  }
}

/** The leases of a job: indices of their first points, and of the first point of the next one. */
export function leasesOf({ generations }) {
  const starts = generations.flatMap((each, i) => (each !== generations[i - 1] ? [i] : []));
  return starts.map((first, i) => ({ first, end: starts[i + 1] ?? generations.length }));
}

function stopAt(pen, x, bbox, scale) {
  pen.strokeStyle = themed("--ink");
  pen.lineWidth = scale;
  pen.setLineDash([4 * scale, 3 * scale]);
  pen.beginPath();
  pen.moveTo(x, bbox.top);
  pen.lineTo(x, bbox.top + bbox.height);
  pen.stroke();
  pen.setLineDash([]);
}

function rowsOf({ label, curves }, names) {
  const every = Math.max(1, Math.ceil(curves.steps.length / TABLE_ROWS));
  return curves.steps.flatMap((step, i) => (i % every && i !== curves.steps.length - 1 ? [] : [[
    label, count(step), timeOfDay(curves.at_s[i]), curves.accelerator_types[i],
    ...names.map((name) => (Number.isFinite(curves.values[name]?.[i]) ? quantity(curves.values[name][i]) : "")),
  ]]));
}
