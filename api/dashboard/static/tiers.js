// Tiers: their rules, and the share of the cluster each had over the last rounds.

import { byId, keepRows, make, say, sayEmpty } from "./dom.js";
import { percent } from "./format.js";

const HEADINGS = ["Tier", "Objective", "Weight", "Guarantee", "Jobs", "Share", "History"];
const SVG = "http://www.w3.org/2000/svg";

/** Fill #tiers-table. `tierOf(job id)` is undefined for jobs unknown here. */
export function showTiers({ tiers, rounds, workers, tierOf, liveJobs }) {
  sayEmpty("tiers-empty", ...(tiers.length ? [] : ["No tier yet. An operator makes one:", "$ gavel tiers set default --weight 1"]));
  const table = byId("tiers-table");
  table.hidden = tiers.length === 0;
  if (!table.tBodies.length) {
    table.append(make("thead", {}, make("tr", {}, ...HEADINGS.map(heading))), make("tbody"));
  }
  const jobsOf = (tier) => liveJobs.filter((job) => job.tier === tier.name).length;
  const weights = tiers.reduce((total, tier) => total + (jobsOf(tier) ? tier.weight : 0), 0);
  const rows = tiers.map((tier) => {
    const history = rounds.map((round) => shareOf(tier.name, round, workers, tierOf));
    const held = history.length ? history.reduce((total, part) => total + part, 0) / history.length : 0;
    const jobs = jobsOf(tier);
    return { ...tier, history, held, jobs, due: jobs ? tier.weight / weights : 0 };
  });
  keepRows(table.tBodies[0], rows, (row) => row.name, createRow, updateRow);
}

function heading(text) {
  const isNumber = ["Weight", "Guarantee", "Jobs"].includes(text);
  return make("th", { scope: "col", className: isNumber ? "number" : "" }, text);
}

function shareOf(tier, round, workers, tierOf) {
  const held = round.leases.filter((lease) => tierOf(lease.job_id) === tier);
  return workers ? held.reduce((total, lease) => total + lease.worker_ids.length, 0) / workers : 0;
}

function createRow(tier) {
  const bar = make("div", { className: "bar" }, make("span", { className: "fill" }), make("span", { className: "tick" }));
  const share = make("div", { className: "share" }, bar, make("span"));
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("class", "sparkline");
  line.setAttribute("viewBox", "0 0 100 20");
  line.setAttribute("preserveAspectRatio", "none");
  line.setAttribute("aria-hidden", "true");
  line.append(document.createElementNS(SVG, "polyline"));
  const numbers = [1, 2, 3].map(() => make("td", { className: "number" }));
  return make("tr", {}, make("th", { scope: "row" }, tier.name), make("td"), ...numbers, make("td", {}, share), make("td", {}, line));
}

function updateRow(row, tier) {
  const [, objective, weight, guarantee, jobs, share, history] = row.children;
  say(objective, tier.objective.replaceAll("_", " "));
  say(weight, tier.weight);
  say(guarantee, percent(tier.guarantee));
  say(jobs, tier.jobs);
  const [bar, text] = share.firstChild.children;
  bar.firstChild.style.width = percent(Math.min(1, tier.held)).replace(" ", "");
  bar.lastChild.hidden = tier.due === 0;
  bar.lastChild.style.left = percent(Math.min(1, tier.due)).replace(" ", "");
  bar.title = `holds ${percent(tier.held)} of all workers; ${percent(tier.due)} is its part of the weights of tiers with jobs`;
  say(text, percent(tier.held));
  const last = Math.max(1, tier.history.length - 1);
  const points = tier.history.map((part, i) => `${(100 * i) / last},${19 - 18 * Math.min(1, part)}`);
  history.firstChild.firstChild.setAttribute("points", points.join(" "));
}
