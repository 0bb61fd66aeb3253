// Why a job is where it is: a dialog that any panel opens.

import { get, now } from "./api.js";
import { byId, make, say } from "./dom.js";
import { duration, fixed, labelOf, quantity, timeOfDay } from "./format.js";
import { offers } from "./shell.js";

/** The explanation of a job; null if this service explains nothing. */
export async function explanation(id) {
  return offers("explain") ? get(`/v1/jobs/${encodeURIComponent(id)}/explanation`) : null;
}

/** Open the dialog for a job. */
export async function openWhy(id) {
  const [job, explained] = await Promise.all([get(`/v1/jobs/${encodeURIComponent(id)}`), explanation(id)]);
  if (!job) return;
  say("why-title", `Why is ${labelOf(job)} where it is?`);
  say("why-state", job.state);
  byId("why-state").dataset.state = job.state;
  say("why-message", sentenceOf(job, explained));
  fillFacts(byId("why-facts"), { Tier: job.tier, "Job kind": job.kind, ...factsOf(job, explained) });
  byId("why-link").href = `/jobs/${encodeURIComponent(id)}`;
  if (!byId("why").open) byId("why").showModal();
}

/** What people read first about a job: where it is, when it starts or ends, what would help. */
export const sentenceOf = (job, explained) => [explained?.sentence || job.message, ...(explained?.would_unblock ?? [job.fix])].join(" ").trim();

/** The explanation as names and texts; without one (null), the reason of the job itself. */
export function factsOf(job, explained) {
  const told = explained ? {
    "Waits for type": bindingOf(explained.binding),
    "Target fraction of time": partsOf(explained.target_fraction),
    "Received fraction of time": partsOf(explained.received),
    "Isolated share": explained.isolated_share,
    "Tier": explained.tier_objective || "–",
    "Execution plan": explained.plan_reason,
    "Speed by plan": speedsOf(explained.plan_speeds),
    "Lag in rounds": explained.lag_rounds ? fixed(explained.lag_rounds) : "",
    "Place in its tier": explained.position ? `${explained.position}, with ${explained.jobs_ahead} ahead` : "",
    Starts: when(explained, "start"),
    Finishes: [when(explained, "finish"), explained.est_finish_assumes].filter(Boolean).join(" "),
  } : {};
  return { Reason: explained?.code || job.reason, "Runs on": job.worker_ids.join(", "), ...told };
}

function bindingOf(binding) {
  if (!binding) return "";
  const { accelerator_type: type, leased_workers: leased, workers, price, source } = binding;
  return `${type}: ${leased} of ${workers} leased, ${source === "prices" ? "price" : "load"} ${fixed(price)}`;
}

const partsOf = (parts) => Object.entries(parts).filter(([, part]) => part > 0).map(([type, part]) => `${type} ${fixed(part)}`).join(", ");

/** How fast the job is under each of its plans, by type: "fast: tensor=1 12 steps/s, tensor=2 not measured". */
function speedsOf(speeds) {
  const types = [...new Set(speeds.map((each) => each.accelerator_type))];
  const told = ({ plan, steps_per_s: rate, note }) => `${plan} ${rate === null ? note : `${quantity(rate)} steps/s`}`;
  return types.map((type) => `${type}: ${speeds.filter((each) => each.accelerator_type === type).map(told).join(", ")}`).join("; ");
}

/** When a job starts or finishes, with the interval: "in 3 min 20 s (1 min 0 s to 9 min 5 s)"; empty without an estimate. */
export function when(explained, what) {
  const [at, low, high] = ["", "_low", "_high"].map((end) => explained?.[`est_${what}${end}_at_s`] ?? null);
  if (at === null) return "";
  if (at <= now()) return timeOfDay(at);
  const span = low === null || high === null ? "" : ` (${duration(low - now())} to ${duration(high - now())})`;
  return `in ${duration(at - now())}${span}`;
}

/** Show names and texts in a description list; empty ones are left out. */
export function fillFacts(list, facts) {
  const shown = Object.entries(facts).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  if (list.dataset.said === JSON.stringify(shown)) return;
  list.dataset.said = JSON.stringify(shown);
  list.replaceChildren(...shown.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}
