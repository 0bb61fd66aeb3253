// One job: what it waits for, where it ran, how fast it is where, its history and its log.

import { freshKey, get, now, send } from "./api.js";
import { Curves } from "./curves.js";
import { byId, fillTable, make, say, sayEmpty } from "./dom.js";
import { showCheckpoint, showFiles } from "./files.js";
import { bytes, count, duration, fixed, instant, labelOf, percent, quantity } from "./format.js";
import { Gantt } from "./gantt.js";
import { harmless, JobLog } from "./joblog.js";
import { stepsOf } from "./jobs.js";
import { blockOf } from "./placing.js";
import { showProgress } from "./progress.js";
import { act, confirmed, follow } from "./shell.js";
import { Sizes } from "./sizes.js";
import { speedOf } from "./speed.js";
import { showUtilization } from "./utilization.js";
import { explanation, factsOf, fillFacts, sentenceOf } from "./why.js";

const ID = document.body.dataset.job;
const PATH = `/v1/jobs/${encodeURIComponent(ID)}`;
const ROUNDS = 80;
const EVENTS = 200; // of one answer
const gantt = new Gantt("timeline", { open: () => {} });
const curves = new Curves();
const sizes = new Sizes();
let lastReport = "";
let lastEvent = 0;
let isOver = false;
let log = null;

async function step(summary) {
  const job = await get(PATH);
  if (!job) throw new Error(`There is no job ${ID}, or it is not yours`);
  if (isOver) return;
  const hasEnded = job.finished_at_s !== null;
  log ??= new JobLog(ID);
  showJob(job);
  await Promise.all([showTimeline(job, summary.round?.round_index), showStory(job), showSpeeds(job), showExplained(job), showReported(job), showUtilization(ID, hasEnded)]);
  isOver = hasEnded;
}

function showJob(job) {
  document.title = `${labelOf(job)} · ${job.state} · Gavel`;
  say("job-name", labelOf(job));
  say("job-state", job.state);
  byId("job-state").dataset.state = job.state;
  showProgress(byId("job-progress"), stepsOf(job), job.total_steps);
  byId("job-progress").hidden = job.total_steps === null && job.finished_at_s !== null;
  say("job-steps", job.total_steps !== null ? `${count(stepsOf(job))} of ${count(job.total_steps)} steps, ${percent(stepsOf(job) / job.total_steps)}`
    : job.finished_at_s !== null ? `${count(stepsOf(job))} steps; the program never said how many there are`
      : `${count(stepsOf(job))} steps so far, how many there are is unknown yet`);
  const isAlive = job.finished_at_s === null && job.state !== "CANCELLING";
  byId("job-cancel").hidden = !isAlive;
  byId("job-resubmit").hidden = job.state !== "FAILED";
  byId("job-resubmit-checkpoint").hidden = job.state !== "FAILED" || job.steps_done === 0;
  byId("job-pause").hidden = !isAlive || job.pause_requested;
  byId("job-resume").hidden = !isAlive || !job.pause_requested;
  showFailure(job);
  showTiles(job);
  showFacts(job);
  showDiff(job.code);
}

function showFailure(job) {
  byId("failure").hidden = job.state !== "FAILED";
  const code = job.exit_code;
  say("failure-exit", code === null ? "" : code < 0 ? `ended by signal ${-code}` : `exit code ${code}`);
  say("failure-reason", `${job.message} ${job.fix}`);
  say("failure-tail", harmless(job.log_tail).trimEnd());
}

function showTiles(job) {
  const speed = speedOf(job);
  const left = job.total_steps === null ? null : job.total_steps - stepsOf(job);
  tile("speed", speed === null ? "–" : quantity(speed), job.worker_ids.length ? `on ${job.worker_ids.join(", ")}` : "not running");
  tile("left", left !== null ? count(left) : job.finished_at_s === null ? "unknown" : "–", speed && left ? `about ${duration(left / speed)} of running` : "");
  tile("rho", fixed(job.rho), job.rho === null ? "" : "1 or less is fair");
  tile("deficit", job.deficit_s === null ? "–" : duration(Math.abs(job.deficit_s)), job.isolated_share.replace(/^[0-9]+ [a-z]+ /, ""));
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

const pairs = (object, write) => Object.entries(object).map(write).join(", ");

function codeOf(code) {
  const version = code.digest.slice(0, 12);
  const source = code.git_url ? ` of ${code.git_url} at ${code.git_ref}` : "";
  return code.commit ? `${version} of commit ${code.commit.slice(0, 12)}${code.is_modified ? " with changes" : ""}${source}` : version;
}

/** Offers the differences of the code from its commit; they are fetched when somebody unfolds them. */
function showDiff(code) {
  byId("diff").hidden = !code?.diff;
}

byId("diff").addEventListener("toggle", async () => {
  if (!byId("diff").open || byId("diff-text").textContent) return;
  const answer = await get(`${PATH}/diff`).catch(() => undefined); // undefined: no answer, so that the next click asks again
  if (answer !== undefined) say("diff-text", answer ? harmless(answer.text) : "The differences are no longer stored.");
});

/** What a service is asked for, and the replicas that this leads to; nothing where their number is stated. */
function demandOf(demand) {
  if (demand === null) return {};
  const named = (counts, unit) => Object.entries(counts).map(([type, value]) => `${type ? `${type} ` : ""}${quantity(value)}${unit}`).join(", ");
  const now = demand.now === null ? "not known yet" : `${quantity(demand.now)} requests/s`;
  const ahead = demand.forecast > demand.now ? `, ${quantity(demand.forecast)} expected` : "";
  return {
    "Demand": `${now}${ahead}${demand.stated === "measured" ? " (measured)" : " (stated)"}`,
    "Rate of a replica": named(demand.rates, "/s"),
    "Wanted replicas": demand.replicas === null ? "" : `${named(demand.replicas, "") || 0}: ${quantity(demand.answered)} of ${quantity(demand.needed)} requests/s`,
    "Bound": demand.bound,
  };
}

/** What a service has besides: its replicas and versions, and the commands about them; of a replica whose it is. */
function serviceOf(job) {
  if (job.replica_of !== null) {
    const where = job.endpoint || "not ready";
    return { "Replica of": job.replica_of, "Version": job.replica_version, "Endpoint": job.finished_at_s === null ? where : "" };
  }
  const service = job.service;
  if (service === null) return {};
  const refused = service.refused_version ? `, version ${service.refused_version} was given up` : "";
  return {
    "Replicas": `${service.ready} of ${service.replicas} ready (${service.replicas_min} to ${service.replicas_max})`,
    ...demandOf(service.demand),
    "Version": `${service.version}${refused}`,
    "Endpoints by": `gavel job endpoints ${job.id}`,
  };
}

/** What a job that is an interactive session has besides: when it ends, and the command that reaches it. */
function sessionOf(job) {
  if (job.mode !== "interactive") return {};
  const idle = job.idle_s === null ? "" : `, or when nobody has used it for ${duration(job.idle_s)}`;
  const end = job.session_ends_at_s === null
    ? `${duration(job.longest_s)} after its start`
    : `at ${new Date(job.session_ends_at_s * 1000).toLocaleString()}`;
  const hasTerminal = job.argv.includes("gavel_runtime.terminal");
  const runs = job.finished_at_s === null;
  const workers = `${job.scale_factor} ${job.reserved_type}`;
  return {
    Reservation: job.reserved_at_s === null ? "" : `${workers} from ${new Date(job.reserved_at_s * 1000).toLocaleString()}`,
    "Accelerators are": job.accelerator_share < 1 ? "shared with another session or a training, if one comes" : "",
    "Interactive session": runs ? `ends ${end}${idle}` : "has ended",
    "Reach it by": runs ? (hasTerminal ? `gavel attach ${job.id}` : `gavel port-forward ${job.id} PORT`) : "",
    "Extend it by": runs ? `gavel job extend ${job.id} 1h` : "",
  };
}

function regionOf(job) {
  const own = job.residence;
  if (!own) return "";
  const cost = own.egress_usd ? ` for ${own.egress_usd.toFixed(2)} USD` : "";
  const moves = own.moves ? ` Its ${own.moves} ${own.moves === 1 ? "move" : "moves"} copied ${bytes(own.egress_bytes)}${cost}.` : "";
  return `${own.region}. ${own.why}${moves}`;
}

function startupOf(job) {
  const durations = [["", job.startup_s], ["restore ", job.restore_s]];
  return durations.filter(([, seconds]) => seconds !== null).map(([name, seconds]) => `${name}${seconds.toFixed(1)} s`).join(", ");
}

function checkpointsOf(job) {
  const every = job.checkpoint_every_s;
  return [
    job.checkpoint_bytes === null ? "" : bytes(job.checkpoint_bytes),
    job.checkpoint_s === null ? "" : `written in ${job.checkpoint_s.toFixed(1)} s`,
    every === null ? "" : every ? `one every ${duration(every)}` : "one after every step or epoch",
  ].filter(Boolean).join(", ");
}

/** What the seconds from one checkpoint to the next follow from. */
function reasonOfInterval(job) {
  if (job.checkpoint_cost_s === null) return "";
  const costs = `the training stands still for ${quantity(job.checkpoint_cost_s)} s for one`;
  return job.time_to_loss_s === null ? `stated by its program; ${costs}`
    : `${costs}, and a gang of its size is lost every ${quantity(job.time_to_loss_s / 3600)} h`;
}

function showFacts(job) {
  fillFacts(byId("facts"), {
    Id: job.id,
    "Job kind": job.kind,
    "Kind is made of": job.kind_from,
    "User, tier": `${job.user}, ${job.tier}`,
    Program: job.argv.join(" "),
    "Working directory": job.workdir,
    Interpreter: job.python,
    Setup: job.setup,
    "Saved by": job.dump,
    "Restored by": job.restore,
    Image: job.image,
    Inputs: Object.entries(job.data).map(([name, source]) => `${name}: ${source}`).join(", "),
    Secrets: job.secrets.join(", "),
    Code: job.code === null ? "" : codeOf(job.code),
    "Environment sets": job.env.join(", "),
    "Scale factor": job.sizes.length
      ? `${job.scale_factor} now, of ${job.sizes.join(", ")} (elastic; ${count(job.global_batch)} samples in each step${job.max_global_batch ? `, up to ${count(job.max_global_batch)} in an update` : ""})`
      : job.scale_factor,
    "Execution plans": job.plans.length
      ? `${job.plan} now, of ${job.plans.map(({ name, sizes }) => `${name} (size ${sizes.join(", ")})`).join("; ")}`
      : "",
    "Each worker needs": `${count(job.cpu_cores)} CPU ${job.cpu_cores === 1 ? "core" : "cores"}${job.memory_bytes ? `, ${bytes(job.memory_bytes)} of memory` : ""}`,
    "Runs only on": [
      job.accelerator_types.join(", "),
      job.accelerator_memory_bytes ? `accelerators with ${bytes(job.accelerator_memory_bytes)} of memory` : "",
      pairs(job.node_labels, ([key, value]) => `${key}=${value}`),
      job.topology_label ? `nodes with one value of ${job.topology_label}` : "",
      job.regions.length ? `regions ${job.regions.join(", ")}` : "",
    ].filter(Boolean).join("; "),
    "Data set": job.data_region ? `${bytes(job.data_bytes)} in ${job.data_region}` : "",
    Region: regionOf(job),
    "Weight, priority": `${job.weight}, ${job.priority}`,
    Preemptible: job.preemptible ? "yes" : "no",
    ...sessionOf(job),
    ...serviceOf(job),
    Retries: `${job.failures} of ${job.max_retries}`,
    "Claimed steps/s": pairs(job.throughputs, ([type, rate]) => `${type} ${quantity(rate)}`),
    Deadline: job.deadline_at_s === null ? "" : new Date(job.deadline_at_s * 1000).toLocaleString(),
    "Deadline's outlook": job.deadline ? `${job.deadline.outlook.replace("_", " ")}: ${job.deadline.message}` : "",
    After: job.after.join(", "),
    "Notifies of": job.notify === null ? "" : job.notify.join(", ") || "nothing",
    "Submitted again from": job.resubmit_of ?? "",
    "Began with checkpoint": job.from_checkpoint,
    "Sweep": job.array_id === null ? "" : `${job.array_id}, number ${job.array_index}`,
    Labels: pairs(job.labels, ([key, value]) => `${key}=${value}`),
    "Start-up": startupOf(job),
    Checkpoints: checkpointsOf(job),
    "Checkpoint interval": reasonOfInterval(job),
    "No progress": job.no_progress,
    Metrics: pairs(job.metrics, ([key, value]) => `${key} ${quantity(value)}`),
    "Besides training": pairs(job.phases_s, ([name, seconds]) => `${name} ${duration(seconds)}${shareOf(seconds, job)}`),
    "Units of work per second": job.work_units_per_s === null ? "" : quantity(job.work_units_per_s),
    "Rounds received": pairs(job.rounds_received, ([type, rounds]) => `${type} ${rounds}`),
    "Exit code": job.exit_code ?? "",
    "To stop it": job.finished_at_s === null ? `gavel job cancel ${job.id}` : "",
  });
}

function shareOf(seconds, job) {
  const held = Object.values(job.received_s).reduce((total, each) => total + each, 0);
  return held > 0 ? ` (${percent(Math.min(1, seconds / held))})` : "";
}

async function showTimeline(job, current) {
  const found = await get("/v1/placements", { job_id: ID, rounds: ROUNDS, limit: 200 });
  const lanes = [...new Set(found.blocks.map((block) => block.accelerator_type))].sort();
  // All workers of a gang are of one type: one block shows them all.
  const seen = new Set();
  const blocks = found.blocks.filter((block) => {
    const key = `${block.accelerator_type} ${block.first_round}`;
    return !seen.has(key) && seen.add(key);
  });
  const none = job.started_at_s === null ? "The job has not held workers yet." : "The rounds in which the job held workers are no longer kept.";
  sayEmpty("timeline-empty", ...(lanes.length ? [] : [none]));
  byId("timeline-chart").hidden = lanes.length === 0;
  gantt.show({
    rounds: found.rounds.map((round) => round.round_index),
    lanes,
    blocks: blocks.map((block) => blockOf(block, block.accelerator_type)),
    current,
  });
}

async function showSpeeds(job) {
  const { items } = await get("/v1/throughputs", { job_id: ID });
  const held = Object.values(job.received_s).reduce((total, seconds) => total + seconds, 0);
  const rows = items.map((row) => [
    row.accelerator_type, quantity(row.steps_per_s), `${quantity(row.low_steps_per_s)} to ${quantity(row.high_steps_per_s)}`,
    row.source, held ? percent((job.received_s[row.accelerator_type] ?? 0) / held) : "–",
  ]);
  sayEmpty("speeds-empty", ...(rows.length ? [] : ["No estimate yet: the speed is measured when the job runs."]));
  byId("speeds-table").hidden = rows.length === 0;
  fillTable(byId("speeds-table"), ["Type", "Steps/s", "Interval", "Source", "Fraction of its time"], rows);
}

/** Curves and files, which change with the reports of the job. */
async function showReported(job) {
  const report = `${job.generation} ${stepsOf(job)} ${job.state}`;
  if (report === lastReport) return;
  const [answer] = await Promise.all([get(`${PATH}/metrics`), showFiles(ID), showCheckpoint(ID)]);
  lastReport = report;
  if (job.array_id) byId("curves-compare").href = `/curves?array=${encodeURIComponent(job.array_id)}`;
  say("curves-compare", job.array_id ? "Compare with its sweep" : "Compare with other jobs");
  curves.show([{ id: ID, label: labelOf(job), curves: answer }], "The job has not reported any metrics: job.report(loss=0.3) in its program does.");
}

async function showExplained(job) {
  const explained = await explanation(ID);
  say("job-reason", sentenceOf(job, explained));
  if (explained) fillFacts(byId("explain-facts"), factsOf(job, explained));
}

/** The history, and the sizes over time that follow from it. */
async function showStory(job) {
  const list = byId("story-list");
  let items;
  do {
    const page = await get(`${PATH}/events`, { after: lastEvent, limit: EVENTS });
    ({ items, next_after: lastEvent } = page);
    list.prepend(...items.map(lineOf).reverse());
    sizes.take(items);
  } while (items.length === EVENTS);
  sayEmpty("story-empty", ...(list.children.length ? [] : ["Nothing has happened yet."]));
  sizes.show(job);
}

function lineOf(event) {
  const at = make("time", { dateTime: new Date(event.at_s * 1000).toISOString() }, instant(event.at_s));
  const round = event.round_index === null ? "" : ` (round ${event.round_index})`;
  const message = make("span", {}, event.message, make("span", { className: "round" }, round));
  return make("li", {}, at, make("b", {}, event.kind), message);
}

async function ask(button, verb, done) {
  await act(button, () => send("POST", `${PATH}/${verb}`), done);
  refresh();
}

const on = (name, action) => byId(`job-${name}`).addEventListener("click", (event) => action(event.currentTarget));
on("pause", (button) => ask(button, "pause", "The job stops after a checkpoint, and waits."));
on("resume", (button) => ask(button, "resume", "The job continues from its checkpoint."));
const again = async (button, changes) => {
  const made = await act(button, () => send("POST", `${PATH}/resubmit`, changes, { "Idempotency-Key": freshKey() }),
    "The job is submitted again.");
  if (made) location.assign(`/jobs/${encodeURIComponent(made.id)}`);
};
on("resubmit", (button) => again(button, {}));
on("resubmit-checkpoint", (button) => again(button, { from_checkpoint: true }));
on("cancel", async (button) => {
  if (await confirmed("Cancel this job? This cannot be undone.", "Cancel the job")) {
    await ask(button, "cancel", "The job ends as soon as its gang has stopped.");
  }
});

const refresh = follow(step);
