// The estimator: throughputs with intervals and sources, statements beside facts, predictions beside what happened.

import { get } from "./api.js";
import { byId, fillTable, make } from "./dom.js";
import { duration, percent, quantity } from "./format.js";
import { Intervals } from "./intervals.js";
import { follow, offers } from "./shell.js";
import { showThroughputs } from "./throughputs.js";
import { fillFacts } from "./why.js";

const kinds = byId("intervals-kind");
const intervals = new Intervals("intervals");
let table = null;

async function step() {
  table = await get("/v1/estimator");
  showThroughputs(table);
  offerKinds();
  showIntervals();
  showStatements();
  if (offers("calibration")) showCalibration(await get("/v1/explain/calibration"));
}

const alone = (row) => row.partner === null && row.placement === "consolidated";
const nameOf = (row) => (row.scale_factor > 1 ? `${row.kind} ×${row.scale_factor}` : row.kind);

function offerKinds() {
  const known = new Set([...kinds.options].map((option) => option.value));
  const names = [...new Set(table.items.filter(alone).map(nameOf))].filter((name) => !known.has(name));
  kinds.append(...names.map((name) => make("option", {}, name)));
}

function showIntervals() {
  intervals.show(table.items.filter((row) => alone(row) && nameOf(row) === kinds.value));
}

function showStatements() {
  byId("statements").hidden = table.statements.length === 0;
  fillTable(byId("statements-table"), ["User", "Job kind", "Type", "Stated", "Measured", "Off by"],
    table.statements.map((said) => [
      said.user, nameOf(said), said.accelerator_type, quantity(said.stated_steps_per_s), quantity(said.measured_steps_per_s),
      `${percent(said.stated_steps_per_s / said.measured_steps_per_s - 1)}`,
    ]));
}

function showCalibration(found) {
  byId("calibration").hidden = false;
  fillFacts(byId("calibration-facts"), {
    "Jobs that completed": found.predictions,
    "Finished inside the interval": found.finishes_inside === null ? "none yet" : `${percent(found.finishes_inside)}, of ${percent(found.target)} wanted`,
    "Started inside the interval": found.starts_inside === null ? "" : percent(found.starts_inside),
    "Median error": found.median_error_s === null ? "" : `${duration(found.median_error_s)}, ${percent(found.median_relative_error)} of the time left`,
  });
}

kinds.addEventListener("change", showIntervals);
follow(step);
