// How many workers the gang of an elastic job had over its life: a line in steps, and a table.

import { now } from "./api.js";
import { byId, fillTable, sayEmpty } from "./dom.js";
import { count, duration, instant } from "./format.js";
import { colourOfTier } from "./palette.js";
import { LinePlot } from "./plot.js";

const EDGE_S = 1e-3; // between the two ends of an upright line: each x is used once

/** Draws into #sizes-plot, #sizes-table and #sizes-empty; #sizes is hidden for jobs of one size. */
export class Sizes {
  constructor() {
    this.changes = []; // {at, size}: workers from an instant on
    this.plot = null;
  }

  /** Further events of the history, oldest first. */
  take(events) {
    for (const { at_s: at, gang_size: size } of events) {
      if (size !== null && size !== (this.changes.at(-1)?.size ?? 0)) this.changes.push({ at, size });
    }
  }

  show(job) {
    byId("sizes").hidden = job.sizes.length === 0;
    if (byId("sizes").hidden) return;
    const has = this.changes.length > 0;
    sayEmpty("sizes-empty", ...(has ? [] : [`It has not had workers yet; its sizes are ${job.sizes.join(", ")}.`]));
    byId("sizes-body").hidden = !has;
    if (!has) return;
    const until = Math.max(job.finished_at_s ?? now(), this.changes.at(-1).at);
    const [xs, values] = stepsOf(this.changes, until);
    this.plot ??= new LinePlot(byId("sizes-plot"), {
      x: "time", y: (value) => count(value), range: [0, job.sizes.at(-1) + 0.5], group: "sizes", options: () => ({ isTime: true }),
    });
    this.plot.show(xs, [{ label: "workers", colour: () => colourOfTier(0), values }]);
    fillTable(byId("sizes-table"), ["From", "Workers", "For"], rowsOf(this.changes, until));
  }
}

/** The corners of the line: at each change the size before it, and at once the one after it. */
function stepsOf(changes, until) {
  const [xs, values] = [[], []];
  const add = (at, size) => {
    xs.push(Math.max(at, (xs.at(-1) ?? -Infinity) + EDGE_S));
    values.push(size);
  };
  changes.forEach(({ at, size }, i) => {
    add(at, changes[i - 1]?.size ?? 0);
    add(at, size);
  });
  add(until, changes.at(-1).size);
  return [xs, values];
}

function rowsOf(changes, until) {
  const spans = changes.map(({ at, size }, i) => ({ at, size, end: changes[i + 1]?.at ?? until }));
  return spans.filter(({ size }) => size > 0).map(({ at, size, end }) => [instant(at), count(size), duration(end - at)]).reverse();
}
