// The estimator: throughputs with intervals and sources, user claims next to measurements, predictions next to what happened.

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
  table = await get("/v1/throughputs");
  showThroughputs(table);
  offerKinds();
  showIntervals();
  showUserClaims();
  if (offers("calibration")) showCalibration(await get("/v1/calibration"));
}

const nameOf = (row) => (row.scale_factor > 1 ? `${row.kind} ×${row.scale_factor}` : row.kind);

function offerKinds() {
  const known = new Set([...kinds.options].map((option) => option.value));
  const names = [...new Set(table.items.map(nameOf))].filter((name) => !known.has(name));
  kinds.append(...names.map((name) => make("option", {}, name)));
}

function showIntervals() {
  intervals.show(table.items.filter((row) => nameOf(row) === kinds.value));
}

function showUserClaims() {
  byId("statements").hidden = table.user_claims.length === 0;
  fillTable(byId("statements-table"), ["User", "Job kind", "Type", "Claimed", "Measured", "Difference"],
    table.user_claims.map((claim) => [
      claim.user, nameOf(claim), claim.accelerator_type, quantity(claim.stated_steps_per_s), quantity(claim.measured_steps_per_s),
      `${percent(claim.stated_steps_per_s / claim.measured_steps_per_s - 1)}`,
    ]));
}

function showCalibration(found) {
  byId("calibration").hidden = false;
  fillFacts(byId("calibration-facts"), {
    "Jobs that completed": found.predictions,
    "Finished inside the interval": found.finishes_inside === null ? "none yet" : `${percent(found.finishes_inside)}; should be ${percent(found.target)}`,
    "Started inside the interval": found.starts_inside === null ? "" : percent(found.starts_inside),
    "Median error": found.median_error_s === null ? "" : `${duration(found.median_error_s)}, ${percent(found.median_relative_error)} of the time left`,
  });
}

kinds.addEventListener("change", showIntervals);
follow(step);
