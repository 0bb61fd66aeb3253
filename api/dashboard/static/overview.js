// The overview: asks the API about once a second and hands each answer to what draws it.

import { askHealth, get, now, poll, showHealth } from "./api.js";
import { byId, make, say, sayEmpty } from "./dom.js";
import { count, duration, fixed, labelOf, percent } from "./format.js";
import { Gantt } from "./gantt.js";
import { Heatmap } from "./heatmap.js";
import { JobsTable } from "./jobs.js";
import { showThroughputs } from "./throughputs.js";
import { showTiers } from "./tiers.js";

const ROUNDS = 40;
const TICKS_BETWEEN_SLOW = 5; // tiers, throughputs and received fractions change slowly
const known = { jobs: [], isCut: false, rounds: [], allocation: null, cluster: { nodes: [], workers: [], capacity: {}, notes: [] }, tiers: [] };
const names = new Map(); // of every job seen: id -> {name, tier}

const heatmap = new Heatmap();
const gantt = new Gantt("placements");
const jobsTable = new JobsTable(() => askJobs());
let ticks = 0;

async function step() {
  const isSlow = ticks % TICKS_BETWEEN_SLOW === 0;
  ticks += 1;
  const asked = [get("/v1/cluster"), askRounds(), askHealth(), askJobs()];
  const [cluster, isNewRound, isAlive] = await Promise.all(asked);
  showHealth(isAlive);
  known.cluster = cluster;
  if (known.rounds.length === 0) heatmap.show(null);
  else if (isNewRound || isSlow) {
    known.allocation = await get("/v1/allocations/current");
    remember(known.allocation?.rows ?? []);
    heatmap.show(known.allocation);
  }
  if (isSlow) await askSlow();
  showNotes();
  showPlacements();
  showTierTable();
  showTiles();
  showRound();
}

/** True when a round came that was not known. */
async function askRounds() {
  const page = await get("/v1/rounds", { limit: known.rounds.length ? 2 : ROUNDS });
  const newest = page.items[0]?.round_index;
  if (newest === undefined || newest === known.rounds.at(-1)?.round_index) return false;
  const all = known.rounds.length ? await get("/v1/rounds", { limit: ROUNDS }) : page;
  known.rounds = all.items.reverse();
  return true;
}

async function askJobs() {
  const page = await get("/v1/jobs", { limit: 200, ...jobsTable.query() });
  known.jobs = page.items;
  known.isCut = page.next_cursor !== null;
  remember(page.items);
  jobsTable.show(page);
}

async function askSlow() {
  const [tiers, throughputs] = await Promise.all([get("/v1/tiers"), get("/v1/estimator")]);
  known.tiers = tiers.items;
  jobsTable.offerTiers(tiers.items.map((tier) => tier.name));
  showThroughputs(throughputs);
}

function remember(jobs) {
  for (const job of jobs) names.set(job.id ?? job.job_id, { name: labelOf(job), tier: job.tier });
}

const current = () => known.rounds.findLast((round) => round.starts_at_s <= now());

/** What is wrong with the cluster or a node of it, and what to do. */
function showNotes() {
  const broken = known.cluster.nodes.filter((node) => node.problem).map((node) => `${node.name}: ${node.problem}`);
  const lines = [...known.cluster.notes, ...broken];
  const list = byId("cluster-notes");
  list.hidden = lines.length === 0;
  if (list.dataset.said === lines.join("\n")) return;
  list.dataset.said = lines.join("\n");
  list.replaceChildren(...lines.map((line) => make("li", {}, line)));
}

function showPlacements() {
  const workers = known.cluster.workers.map((worker) => worker.id);
  sayEmpty("placements-empty", ...(known.rounds.length ? [] : ["No round yet: the first begins when there is a job."]));
  for (const part of document.querySelectorAll(".needs-rounds")) part.hidden = known.rounds.length === 0;
  gantt.show({
    rounds: known.rounds,
    lanes: workers,
    laneOf: (lease) => lease.worker_ids,
    labelOf: (id) => names.get(id)?.name ?? id,
    current: current()?.round_index,
  });
}

function showTierTable() {
  showTiers({
    tiers: known.tiers,
    rounds: known.rounds,
    workers: known.cluster.workers.length,
    tierOf: (id) => names.get(id)?.tier,
    liveJobs: known.allocation?.rows ?? [],
  });
}

function showTiles() {
  const leases = current()?.leases ?? [];
  const running = new Set(known.cluster.workers.map((worker) => worker.job_id).filter(Boolean)).size;
  const waiting = known.jobs.filter((job) => job.core_state === "QUEUED").length;
  const rows = known.allocation?.rows.length ?? 0;
  const profiling = leases.filter((lease) => lease.is_profiling).length;
  tile("running", count(running), profiling ? `${profiling} profiling` : "");
  tile("queued", count(Math.max(waiting, rows - running)), known.isCut ? "at least" : "");
  showUtilisation();
  showWorst();
  showSolve();
  showRenewals(leases);
}

function showSolve() {
  const solve = known.allocation;
  if (!solve) return tile("solve", "–", "");
  const text = solve.solve_time_s < 1 ? `${Math.round(solve.solve_time_s * 1000)} ms` : duration(solve.solve_time_s);
  return tile("solve", text, solve.is_fallback ? "fallback" : solve.solver, solve.is_fallback ? "warn" : "");
}

function showUtilisation() {
  const workers = known.cluster.workers;
  const busy = workers.filter((worker) => worker.busy).length;
  tile("utilisation", workers.length ? percent(busy / workers.length) : "–", `${busy} of ${workers.length} workers`);
}

function showWorst() {
  const judged = known.jobs.filter((job) => job.rho !== null && job.finished_at_s === null);
  const worst = judged.reduce((most, job) => (job.rho > (most?.rho ?? 0) ? job : most), null);
  tile("rho", worst ? fixed(worst.rho) : "–", worst ? labelOf(worst) : "", worst && worst.rho > 2 ? "warn" : "");
}

function showRenewals(leases) {
  const index = known.rounds.indexOf(current());
  const before = new Set((known.rounds[index - 1]?.leases ?? []).map((lease) => `${lease.job_id} ${lease.token}`));
  const renewed = leases.filter((lease) => before.has(`${lease.job_id} ${lease.token}`)).length;
  tile("renewals", leases.length ? percent(renewed / leases.length) : "–", `${renewed} of ${leases.length} leases`);
}

function tile(name, text, note, tone = "") {
  say(`tile-${name}`, text);
  byId(`tile-${name}`).className = tone;
  say(`tile-${name}-note`, note);
}

function showRound() {
  const round = current();
  say("policy", round?.policy.split("?")[0].replaceAll("_", " ") ?? "–");
  say("round", round ? count(round.round_index) : "–");
  const left = round ? round.starts_at_s + round.duration_s - now() : NaN;
  say("next-round", left > 0 ? `${Math.ceil(left)} s` : "–");
  const part = left > 0 ? 1 - left / round.duration_s : 0;
  byId("round-progress").style.transform = `scaleX(${part})`;
}

poll(step);
setInterval(showRound, 250);
