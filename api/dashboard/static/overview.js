// The overview: asks the API when something changed, and draws each answer.

import { get } from "./api.js";
import { byId, say } from "./dom.js";
import { count, duration, fixed, percent } from "./format.js";
import { Heatmap } from "./heatmap.js";
import { JobsTable } from "./jobs.js";
import { PlacementsPanel, showNotes } from "./placing.js";
import { follow, quietly } from "./shell.js";
import { showTiers } from "./tiertable.js";
import { showUpcoming } from "./upcoming.js";

const JOBS_SHOWN = 100;
const SLOW_MS = 4000; // received fractions and shares change slowly
const heatmap = new Heatmap();
const placements = new PlacementsPanel();
const jobsTable = new JobsTable(() => quietly(askJobs()));
let lastRound = null;
let lastSlow = 0;

async function step(summary) {
  const index = summary.round?.round_index ?? null;
  const isDue = index !== lastRound || Date.now() - lastSlow > SLOW_MS;
  const asked = [askJobs(), placements.refresh(index)];
  if (isDue) asked.push(heatmap.refresh(summary.solve !== null), askTiers(summary), showUpcoming());
  await Promise.all(asked);
  if (isDue) [lastRound, lastSlow] = [index, Date.now()];
  showNotes(summary.notes);
  showTiles(summary);
}

async function askJobs() {
  jobsTable.show(await get("/v1/jobs", { limit: JOBS_SHOWN, ...jobsTable.query() }));
}

async function askTiers(summary) {
  const [tiers, shares] = await Promise.all([get("/v1/tiers"), get("/v1/shares", { rounds: 40 })]);
  jobsTable.offerTiers(tiers.items.map((tier) => tier.name));
  showTiers({ tiers: tiers.items, shares, own: summary.tiers });
}

function showTiles({ jobs, round, solve, workers, busy_workers: busy, worst }) {
  const running = (jobs.RUNNING ?? 0) + (jobs.PROFILING ?? 0);
  const all = Object.values(jobs).reduce((total, number) => total + number, 0);
  tile("running", count(running), jobs.PROFILING ? `${jobs.PROFILING} profiling` : "");
  tile("queued", count(all - running - (jobs.CANCELLING ?? 0)), jobs.PREEMPTED ? `${jobs.PREEMPTED} preempted` : "");
  tile("utilization", workers ? percent(busy / workers) : "–", `${busy} of ${workers} workers`);
  tile("rho", worst ? fixed(worst.rho) : "–", worst ? worst.name || worst.id : "", worst && worst.rho > 2 ? "warn" : "");
  showSolve(solve);
  const renewed = round?.leases ? percent(round.renewed_leases / round.leases) : "–";
  tile("renewals", renewed, round ? `${round.renewed_leases} of ${round.leases} leases` : "");
}

function showSolve(solve) {
  if (!solve) return tile("solve", "–", "");
  const text = solve.solve_time_s < 1 ? `${Math.round(solve.solve_time_s * 1000)} ms` : duration(solve.solve_time_s);
  return tile("solve", text, solve.is_fallback ? "fallback" : solve.solver, solve.is_fallback ? "warn" : "");
}

function tile(name, text, note, tone = "") {
  say(`tile-${name}`, text);
  byId(`tile-${name}`).className = tone;
  say(`tile-${name}-note`, note);
}

follow(step);
