// The queue: who waits, at which place, why, and when it may start.

import { get, now } from "./api.js";
import { byId, howToSubmit, keepRows, make, say, sayEmpty } from "./dom.js";
import { count, duration, labelOf } from "./format.js";
import { showProgress } from "./progress.js";
import { follow, offers, quietly } from "./shell.js";
import { explanation, openWhy, when } from "./why.js";

const HEADINGS = ["Tier", "Place", "Job", "Kind", "State", "Waits", "Progress", "Why", ...(offers("explain") ? ["Starts"] : [])];
const NUMBERS = new Set(["Place", "Waits"]);
const PAGE = 50;
const EXPLAINED_MAX = 25; // rows whose start is asked for, once a round each
const tier = byId("queue-tier");
const starts = new Map(); // job id -> {round, text}
let limit = PAGE;
let isAsking = false;

async function step(summary) {
  const [queue, tiers] = await Promise.all([get("/v1/queue", { tier: tier.value, limit }), get("/v1/tiers")]);
  const known = new Set([...tier.options].map((option) => option.value));
  tier.append(...tiers.items.filter((each) => !known.has(each.name)).map((each) => make("option", {}, each.name)));
  show(queue);
  askStarts(queue, summary.round?.round_index ?? 0);
}

function show(queue) {
  say("queue-count", queue.waiting > queue.items.length ? `first ${count(queue.items.length)} of ${count(queue.waiting)}` : count(queue.waiting));
  const reasons = Object.entries(queue.reasons).sort(([, a], [, b]) => b - a);
  byId("queue-reasons").replaceChildren(...reasons.map(([reason, number]) => make("li", {}, make("b", {}, count(number)), ` ${reason}`)));
  sayEmpty("queue-empty", ...(queue.items.length ? [] : ["No job waits. ", ...howToSubmit()]));
  const table = byId("queue-table");
  table.hidden = queue.items.length === 0;
  if (!table.tBodies.length) table.append(make("thead", {}, make("tr", {}, ...HEADINGS.map(heading))), make("tbody"));
  keepRows(table.tBodies[0], queue.items, (job) => job.id, createRow, updateRow);
  byId("queue-more").hidden = queue.items.length >= queue.waiting || limit >= 200;
}

const heading = (text) => make("th", { scope: "col", className: NUMBERS.has(text) ? "number" : "" }, text);

function createRow(job) {
  const why = make("button", { type: "button", className: "quiet", onclick: () => quietly(openWhy(job.id)) });
  const link = make("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, labelOf(job));
  const badge = make("span", { className: "badge" });
  const progress = make("td", {}, make("progress", { max: 1 }));
  const cells = [
    make("td"), make("td", { className: "number" }), make("th", { scope: "row" }, link), make("td", { className: "kind" }),
    make("td", {}, badge), make("td", { className: "number" }), progress, make("td", { className: "reason" }, why),
  ];
  return make("tr", {}, ...cells, ...(offers("explain") ? [make("td")] : []));
}

function updateRow(row, job) {
  const [of, place, , kind, state, waits, progress, why, start] = row.children;
  say(of, job.tier);
  say(place, job.position ?? "next");
  say(kind, job.scale_factor > 1 ? `${job.kind} ×${job.scale_factor}` : job.kind);
  say(state.firstChild, job.state);
  state.firstChild.dataset.state = job.state;
  say(waits, duration(now() - job.submitted_at_s));
  showProgress(progress.firstChild, job.steps, job.total_steps);
  say(why.firstChild, job.message);
  why.firstChild.setAttribute("aria-label", `Why: ${job.message}`);
  if (start) say(start, starts.get(job.id)?.text ?? "");
}

/** Ask for expected starts one after the other, so that the service computes one explanation at a time. */
async function askStarts(queue, round) {
  if (!offers("explain") || isAsking) return;
  isAsking = true;
  for (const job of queue.items.slice(0, EXPLAINED_MAX)) {
    if (starts.get(job.id)?.round === round) continue;
    const explained = await explanation(job.id).catch(() => null);
    starts.set(job.id, { round, text: when(explained, "start") });
    show(queue);
  }
  isAsking = false;
}

const refresh = follow(step);
tier.addEventListener("change", refresh);
byId("queue-more").addEventListener("click", () => {
  limit = Math.min(200, limit + PAGE);
  refresh();
});
