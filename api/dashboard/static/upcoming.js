// The overview's first lists: which jobs failed and completed last, and which start next.

import { get, now } from "./api.js";
import { byId, make } from "./dom.js";
import { duration, labelOf } from "./format.js";
import { explanation } from "./why.js";

const SHOWN = 4;
const LOOKED_AT = 50;

/** Fill #failed-list, #completed-list and #next-list. */
export async function showUpcoming() {
  const [failed, completed, queue] = await Promise.all([
    ended("FAILED"), ended("COMPLETED"),
    get("/v1/queue", { limit: SHOWN }),
  ]);
  const explained = await Promise.all(queue.items.map((job) => explanation(job.id).catch(() => null)));
  fill("failed-list", failed.map((job) => [job, `${ago(job)}. ${job.message}`]), "No job has failed.");
  fill("completed-list", completed.map((job) => [job, `${ago(job)}, after ${duration(job.jct_s)}.`]), "No job has completed yet.");
  fill("next-list", queue.items.map((job, i) => [job, explained[i]?.sentence ?? job.message]), "No job waits.");
}

/** Those that ended last among the newest jobs in a state. */
async function ended(state) {
  const { items } = await get("/v1/jobs", { state, limit: LOOKED_AT });
  return items.sort((a, b) => b.finished_at_s - a.finished_at_s).slice(0, SHOWN);
}

const ago = (job) => `${duration(now() - job.finished_at_s)} ago`;

function fill(id, jobs, otherwise) {
  const rows = jobs.map(([job, text]) =>
    make("li", {}, make("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, labelOf(job)), ` ${text}`));
  byId(id).replaceChildren(...(rows.length ? rows : [make("li", { className: "hint" }, otherwise)]));
}
