// The page that overlays the metrics of several jobs: those of ?jobs=ID,ID, or of a sweep, ?array=ID.

import { get } from "./api.js";
import { Curves } from "./curves.js";
import { byId, make, say } from "./dom.js";
import { count, labelOf } from "./format.js";
import { colourOf } from "./palette.js";
import { follow } from "./shell.js";

const JOBS_MOST = 20; // more lines than that are not told apart
const NAME = /^[a-z0-9][-a-z0-9]{0,62}$/;
const asked = new URLSearchParams(location.search);
const curves = new Curves();
const form = byId("compare-form");
form.elements.jobs.value = asked.get("jobs") ?? "";

async function step() {
  const { jobs, notes } = await (asked.get("array") ? jobsOfSweep(asked.get("array")) : namedJobs());
  const answers = await Promise.all(jobs.map((job) => get(`/v1/jobs/${encodeURIComponent(job.id)}/metrics`)));
  say("compare-notes", notes.join(" "));
  byId("compare-jobs").replaceChildren(...jobs.map(entryOf));
  curves.show(jobs.map((job, i) => ({ id: job.id, label: labelOf(job), curves: answers[i] })),
    jobs.length ? "These jobs have not reported any metrics." : "Name jobs by their names or ids, with commas between them.");
}

async function jobsOfSweep(array) {
  const { items, next_cursor: next } = await get("/v1/jobs", { array_id: array, limit: JOBS_MOST });
  return { jobs: items, notes: next ? [`The newest ${JOBS_MOST} jobs of the sweep are shown.`] : [] };
}

async function namedJobs() {
  const ids = [...new Set((asked.get("jobs") ?? "").split(",").map((each) => each.trim()).filter(Boolean))];
  const found = await Promise.all(ids.slice(0, JOBS_MOST).map(jobNamed));
  const notes = ids.slice(0, JOBS_MOST).filter((_, i) => !found[i]).map((id) => `There is no job ${id}, or it is not yours.`);
  if (ids.length > JOBS_MOST) notes.push(`The first ${JOBS_MOST} of ${count(ids.length)} jobs are shown.`);
  return { jobs: found.filter(Boolean), notes };
}

/** The job with this id or name, the newest of several; undefined if there is none. */
async function jobNamed(text) {
  if (!NAME.test(text)) return undefined;
  return (await get("/v1/jobs", { match: text, limit: 1 })).items[0];
}

function entryOf(job) {
  const mark = make("i", {});
  mark.style.background = colourOf(job.id);
  const detail = Object.entries(job.labels).map(([name, value]) => `${name}=${value}`).join(", ");
  return make("li", {}, mark, make("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, labelOf(job)), ` ${job.state} ${detail}`);
}

follow(step);
