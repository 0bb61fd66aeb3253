// What the ranks of a job used: CPU cores, memory and accelerator over time, a line for each rank.

import { get } from "./api.js";
import { byId, fillTable, make, sayEmpty } from "./dom.js";
import { bytes, fixed, percent, timeOfDay } from "./format.js";
import { colourOfTier } from "./palette.js";
import { LinePlot } from "./plot.js";

const EVERY_MS = 10_000; // as often as a sample is taken
const TABLE_ROWS = 40;
const KINDS = [
  ["cpu_cores", "CPU cores", (value, digits = 3) => fixed(value, digits - 1)],
  ["memory_bytes", "Memory", bytes],
  ["accelerator_busy", "Accelerator busy", (value) => percent(value)],
  ["accelerator_memory_bytes", "Accelerator memory", bytes],
];
const plots = new Map();
let askedAt = -Infinity;

/** Draw into #utilization-plots, #utilization-table and #utilization-empty, at most every ten seconds. */
export async function showUtilization(id, hasEnded) {
  if (!hasEnded && performance.now() - askedAt < EVERY_MS) return;
  askedAt = performance.now();
  const { ranks } = await get(`/v1/jobs/${encodeURIComponent(id)}/utilization`, { points: 300 });
  const none = hasEnded ? "No sample was taken: its program ran for less than two seconds."
    : "No sample yet: the first is taken two seconds after the start.";
  sayEmpty("utilization-empty", ...(ranks.length ? [] : [none]));
  byId("utilization-body").hidden = ranks.length === 0;
  const kinds = KINDS.filter(([field]) => ranks.some((each) => each[field].some((value) => value !== null)));
  for (const kind of kinds) drawn(kind, ranks);
  const rows = ranks.flatMap((each) => rowsOf(each, kinds));
  fillTable(byId("utilization-table"), ["Rank", "At", ...kinds.map(([, name]) => name)], rows);
}

function drawn([field, name, y], ranks) {
  const [xs, ...values] = uPlot.join(ranks.map((each) => [growing(each.at_s), each[field]]));
  const series = ranks.map((each, i) => ({ label: `rank ${each.rank}`, colour: () => colourOfTier(i), values: values[i] }));
  if (!plots.has(name)) plots.set(name, made(name, y));
  plots.get(name).show(xs, series);
}

function made(name, y) {
  const place = make("div", { className: "plot", role: "img" });
  place.setAttribute("aria-label", `${name} of each rank over time; the table has the same numbers`);
  byId("utilization-plots").append(make("figure", { className: "curve" }, make("figcaption", {}, name), place));
  return new LinePlot(place, { x: "time", y, group: "utilization", options: () => ({ isTime: true }) });
}

/** Two gangs may have been sampled at one instant, and clocks are set back: each x is used once, and grows. */
function growing(atS) {
  let last = -Infinity;
  return atS.map((each) => (last = Math.max(each, last + 1e-3)));
}

function rowsOf(each, kinds) {
  const every = Math.max(1, Math.ceil(each.at_s.length / TABLE_ROWS));
  return each.at_s.flatMap((atS, i) => (i % every && i !== each.at_s.length - 1 ? [] : [[
    String(each.rank), timeOfDay(atS), ...kinds.map(([field, , write]) => (each[field][i] === null ? "" : write(each[field][i]))),
  ]]));
}
