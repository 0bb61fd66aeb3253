// One job: what it waits for, where it ran, its story and its log.

import { askHealth, get, getLog, now, poll, showHealth } from "./api.js";
import { byId, make, say, sayEmpty } from "./dom.js";
import { count, duration, fixed, labelOf, percent, quantity, timeOfDay } from "./format.js";
import { Gantt } from "./gantt.js";
import { stepsOf } from "./jobs.js";
import { speedOf } from "./speed.js";

const ID = document.body.dataset.job;
const ROUNDS = 80;
const LOG_CHUNK_BYTES = 1 << 20;
const LOG_KEPT_CHARACTERS = 400_000;
const CHUNKS_PER_STEP = 4;

const gantt = new Gantt("timeline");
const decoder = new TextDecoder();
let lastEvent = 0;
let logOffset = 0;
let isOver = false;

async function step() {
  const job = await get(`/v1/jobs/${encodeURIComponent(ID)}`);
  showHealth(await askHealth());
  if (!job) throw new Error(`There is no job ${ID}, or it is not yours`);
  if (isOver) return;
  const hasEnded = job.finished_at_s !== null;
  showJob(job);
  await Promise.all([showTimeline(job), showStory(), showLog(hasEnded)]);
  isOver = hasEnded;
}

function showJob(job) {
  document.title = `${labelOf(job)} · ${job.state} · Gavel`;
  say("job-name", labelOf(job));
  say("job-state", job.state);
  byId("job-state").dataset.state = job.state;
  say("job-reason", job.message ? `${job.reason}: ${job.message}` : job.reason);
  byId("job-progress").value = stepsOf(job) / job.total_steps;
  say("job-steps", `${count(stepsOf(job))} of ${count(job.total_steps)} steps, ${percent(stepsOf(job) / job.total_steps)}`);
  showTiles(job);
  showFacts(job);
}

function showTiles(job) {
  const speed = speedOf(job);
  const left = job.total_steps - stepsOf(job);
  tile("speed", speed === null ? "–" : quantity(speed), job.worker_ids.length ? `on ${job.worker_ids.join(", ")}` : "not running");
  tile("left", count(left), speed && left ? `about ${duration(left / speed)} of running` : "");
  tile("rho", fixed(job.rho), job.rho === null ? "" : "time taken ÷ time on an equal share");
  const started = job.started_at_s === null ? "" : `started after ${duration(job.started_at_s - job.submitted_at_s)}`;
  say("tile-age-label", job.jct_s === null ? "Age" : "Completion time");
  tile("age", duration(job.jct_s ?? now() - job.submitted_at_s), started);
  const held = Object.entries(job.received_s);
  tile("held", duration(held.reduce((total, [, seconds]) => total + seconds, 0)),
    held.map(([type, seconds]) => `${type} ${duration(seconds)}`).join(", "));
  tile("preemptions", count(job.preemptions), `${job.attempt} ${job.attempt === 1 ? "start" : "starts"}`);
}

function tile(name, text, note) {
  say(`tile-${name}`, text);
  say(`tile-${name}-note`, note);
  byId(`tile-${name}-note`).title = note;
}

function showFacts(job) {
  const facts = {
    Id: job.id,
    "Job kind": job.kind,
    "User, tier": `${job.user}, ${job.tier}`,
    Program: job.argv.join(" "),
    "Scale factor": job.scale_factor,
    Weight: job.weight,
    Deadline: job.deadline_at_s === null ? "" : new Date(job.deadline_at_s * 1000).toLocaleString(),
    Labels: Object.entries(job.labels).map(([key, value]) => `${key}=${value}`).join(", "),
    Metrics: Object.entries(job.metrics).map(([key, value]) => `${key} ${quantity(value)}`).join(", "),
    "Rounds received": Object.entries(job.rounds_received).map(([type, rounds]) => `${type} ${rounds}`).join(", "),
    "Exit code": job.exit_code ?? "",
  };
  const shown = Object.entries(facts).filter(([, value]) => value !== "");
  const list = byId("facts");
  if (list.dataset.said === JSON.stringify(shown)) return;
  list.dataset.said = JSON.stringify(shown);
  list.replaceChildren(...shown.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

async function showTimeline(job) {
  const rounds = (await get("/v1/rounds", { limit: ROUNDS })).items.reverse().map((round) => ({
    ...round,
    leases: round.leases.filter((lease) => lease.job_id === ID),
  }));
  const lanes = [...new Set(rounds.flatMap((round) => round.leases.map((lease) => lease.accelerator_type)))].sort();
  sayEmpty("timeline-empty", ...(lanes.length ? [] : ["It held no lease in these rounds."]));
  byId("timeline-chart").hidden = lanes.length === 0;
  gantt.show({
    rounds,
    lanes,
    laneOf: (lease) => [lease.accelerator_type],
    labelOf: () => labelOf(job),
    current: rounds.findLast((round) => round.starts_at_s <= now())?.round_index,
  });
}

async function showStory() {
  const page = await get(`/v1/jobs/${encodeURIComponent(ID)}/events`, { after: lastEvent, limit: 200 });
  lastEvent = page.next_after;
  const list = byId("story-list");
  list.prepend(...page.items.map(tell).reverse());
  sayEmpty("story-empty", ...(list.children.length ? [] : ["Nothing has happened yet."]));
}

function tell(event) {
  const at = make("time", { dateTime: new Date(event.at_s * 1000).toISOString() }, timeOfDay(event.at_s));
  const round = event.round_index === null ? "" : ` (round ${event.round_index})`;
  const message = make("span", {}, event.message, make("span", { className: "round" }, round));
  return make("li", {}, at, make("b", {}, event.kind), message);
}

/** Read on where the last step stopped; what a job wrote is only ever text. */
async function showLog(hasEnded) {
  const element = byId("log-text");
  for (let chunk = 0; chunk < CHUNKS_PER_STEP || hasEnded; chunk += 1) {
    const { bytes, next } = await getLog(ID, logOffset, LOG_CHUNK_BYTES);
    if (bytes.length === 0) break;
    logOffset = next;
    append(element, decoder.decode(bytes, { stream: true }));
  }
  say("log-note", hasEnded ? "complete" : "follows the job");
  sayEmpty("log-empty", ...(element.textContent ? [] : ["It has written nothing yet."]));
}

function append(element, text) {
  const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
  element.textContent = (element.textContent + text).slice(-LOG_KEPT_CHARACTERS);
  if (isAtEnd) element.scrollTop = element.scrollHeight;
}

poll(step);
