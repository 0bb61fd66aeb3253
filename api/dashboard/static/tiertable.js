// Tiers: their rules, and the share of the cluster each had over the last rounds.

import { byId, keepRows, make, say, sayEmpty } from "./dom.js";
import { percent } from "./format.js";
import { isOperator } from "./shell.js";

const HEADINGS = ["Tier", "Objective", "Weight", "Guarantee", isOperator ? "Jobs" : "Your jobs", "Share", "History"];
const ROUNDS = 40; // that the share is the mean of
const SVG = "http://www.w3.org/2000/svg";

/**
 * Fill #tiers-table. `shares`: the answer of /v1/shares; `own`: number of the reader's unfinished jobs by tier;
 * `onEdit(tier)`: what the button in each row does; without it there is no button.
 */
export function showTiers({ tiers, shares, own, onEdit = null }) {
  sayEmpty("tiers-empty", ...(tiers.length ? [] : ["No tier yet. An operator creates one:", "$ gavel tier set default --weight 1"]));
  const table = byId("tiers-table");
  table.hidden = tiers.length === 0;
  if (!table.tBodies.length) {
    const headings = onEdit ? [...HEADINGS, "Change"] : HEADINGS;
    table.append(make("thead", {}, make("tr", {}, ...headings.map(heading))), make("tbody"));
  }
  const rows = asTree(tiers).map(([tier, depth]) => {
    const history = (shares.tiers[tier.name] ?? []).slice(-ROUNDS);
    const held = history.length ? history.reduce((total, part) => total + part, 0) / history.length : 0;
    const [jobs, due] = [shares.jobs[tier.name] ?? 0, shares.by_weight[tier.name] ?? 0];
    return { ...tier, depth, history, held, jobs, own: own[tier.name] ?? 0, due };
  });
  keepRows(table.tBodies[0], rows, (row) => row.name, (row) => createRow(row, onEdit), updateRow);
}

/** Tiers with their depth, each below its parent. */
function asTree(tiers, parent = null, depth = 0) {
  const names = new Set(tiers.map((tier) => tier.name));
  const isBelow = (tier) => (names.has(tier.parent) ? tier.parent : null) === parent;
  return tiers.filter(isBelow).flatMap((tier) => [[tier, depth], ...asTree(tiers, tier.name, depth + 1)]);
}

function heading(text) {
  const isNumber = ["Weight", "Guarantee", "Jobs", "Your jobs"].includes(text);
  return make("th", { scope: "col", className: isNumber ? "number" : "" }, text);
}

function createRow(tier, onEdit) {
  const bar = make("div", { className: "bar" }, make("span", { className: "fill" }), make("span", { className: "tick" }));
  const share = make("div", { className: "share" }, bar, make("span"));
  const line = document.createElementNS(SVG, "svg");
  line.setAttribute("class", "sparkline");
  line.setAttribute("viewBox", "0 0 100 20");
  line.setAttribute("preserveAspectRatio", "none");
  line.setAttribute("aria-hidden", "true");
  line.append(document.createElementNS(SVG, "polyline"));
  const numbers = [1, 2, 3].map(() => make("td", { className: "number" }));
  const name = make("th", { scope: "row" }, tier.name);
  name.style.paddingInlineStart = `${7 + 16 * tier.depth}px`;
  const edit = make("button", { type: "button", onclick: () => onEdit(tier.name) }, "Edit");
  edit.setAttribute("aria-label", `Edit tier ${tier.name}`);
  const cells = [make("td"), ...numbers, make("td", {}, share), make("td", {}, line), ...(onEdit ? [make("td", {}, edit)] : [])];
  return make("tr", {}, name, ...cells);
}

function updateRow(row, tier) {
  const [, objective, weight, guarantee, jobs, share, history] = row.children;
  say(objective, tier.objective.replaceAll("_", " "));
  say(weight, tier.weight);
  say(guarantee, percent(tier.guarantee));
  say(jobs, isOperator ? tier.jobs : `${tier.own} of ${tier.jobs}`);
  const [bar, text] = share.firstChild.children;
  bar.firstChild.style.width = percent(Math.min(1, tier.held)).replace(" ", "");
  bar.lastChild.hidden = tier.due === 0;
  bar.lastChild.style.left = percent(Math.min(1, tier.due)).replace(" ", "");
  bar.title = `holds ${percent(tier.held)} of all workers; its share by weight among the tiers with jobs is ${percent(tier.due)}`;
  say(text, percent(tier.held));
  const last = Math.max(1, tier.history.length - 1);
  const points = tier.history.map((part, i) => `${(100 * i) / last},${19 - 18 * Math.min(1, part)}`);
  history.firstChild.firstChild.setAttribute("points", points.join(" "));
}
