// Nodes: the state of each, and the buttons that take it out of service and back.

import { get, now, send } from "./api.js";
import { byId, keepRows, make, say, sayEmpty } from "./dom.js";
import { count, duration, timeOfDay } from "./format.js";
import { showNotes } from "./placing.js";
import { act, follow, isOperator } from "./shell.js";

const HEADINGS = ["Node", "State", "Since", "Workers", "Jobs", "Region", ...(isOperator ? ["Take out of service"] : [])];
const NEXT = { ready: ["cordon", "drain"], cordoned: ["uncordon", "drain"], draining: ["uncordon"], drained: ["uncordon"], lost: [] };
const VERBS = { cordon: "Cordon", uncordon: "Uncordon", drain: "Drain" };
const ROWS_MOST = 200; // a browser draws thousands of rows for seconds, and nobody reads them
const SEARCH_FROM = 20; // nodes

let nodes = [];

async function step(summary) {
  nodes = (await get("/v1/nodes")).items;
  say("nodes-count", count(nodes.length));
  sayEmpty("nodes-empty", ...(nodes.length ? [] : ["No node yet: the scheduler has not observed the cluster."]));
  byId("nodes-find").hidden = nodes.length < SEARCH_FROM;
  showFound();
  showNotes(summary.notes);
}

function showFound() {
  const wanted = byId("nodes-search").value.trim().toLowerCase();
  const found = wanted ? nodes.filter((node) => textOf(node).includes(wanted)) : nodes;
  const isLong = found.length > ROWS_MOST;
  const shown = (isLong ? [...found.filter(needsALook), ...found.filter((node) => !needsALook(node))] : found).slice(0, ROWS_MOST);
  const others = isLong ? "; those out of service or with a problem come first. Type to find others." : ".";
  say("nodes-more", wanted || isLong ? `${count(shown.length)} of ${count(found.length)} ${wanted ? "found " : ""}nodes are shown${others}` : "");
  showRows(shown);
}

const needsALook = (node) => node.state !== "ready" || node.problem;
const textOf = (node) => [node.name, node.state, node.problem, node.region, ...Object.keys(node.capacity), ...node.jobs].filter(Boolean).join(" ").toLowerCase();

function showRows(items) {
  const table = byId("nodes-table");
  if (!table.tBodies.length) {
    table.append(make("thead", {}, make("tr", {}, ...HEADINGS.map((text) => make("th", { scope: "col" }, text)))), make("tbody"));
  }
  table.hidden = items.length === 0;
  keepRows(table.tBodies[0], items, (node) => node.name, createRow, updateRow);
}

function createRow(node) {
  const cells = [make("td", {}, make("span", { className: "badge" })), ...Array.from({ length: 4 }, () => make("td"))];
  const buttons = Object.keys(VERBS).map((verb) => {
    const button = make("button", { type: "button", onclick: () => ask(verb, node.name, button) }, VERBS[verb]);
    button.dataset.verb = verb;
    button.setAttribute("aria-label", `${VERBS[verb]} node ${node.name}`);
    return button;
  });
  return make("tr", {}, make("th", { scope: "row" }, node.name), ...cells, ...(isOperator ? [make("td", { className: "controls" }, ...buttons)] : []));
}

function updateRow(row, node) {
  const [, state, since, workers, jobs, region, controls] = row.children;
  say(state.firstChild, node.problem ? (Object.keys(node.capacity).length ? `${node.state}, in part` : "not usable") : node.state);
  state.firstChild.title = node.problem;
  state.firstChild.dataset.state = node.state;
  const window = node.drain_by_s !== null && node.drain_by_s > now() ? `, empty by ${timeOfDay(node.drain_by_s)}` : "";
  say(since, `${duration(now() - node.since_s)}${window}${node.by ? `, by ${node.by}` : ""}`);
  say(workers, Object.entries(node.capacity).map(([type, number]) => `${type} ×${number}`).join(", "));
  showJobs(jobs, node.jobs);
  say(region, node.region ?? "");
  for (const button of controls?.children ?? []) button.hidden = !NEXT[node.state]?.includes(button.dataset.verb);
}

function showJobs(cell, ids) {
  if (cell.dataset.said === ids.join()) return;
  cell.dataset.said = ids.join();
  const links = ids.map((id) => make("a", { href: `/jobs/${encodeURIComponent(id)}` }, id));
  cell.replaceChildren(...links.flatMap((link, i) => (i ? [", ", link] : [link])));
}

async function ask(verb, name, button) {
  const body = verb === "drain" ? await windowOf(name) : undefined;
  if (body === null) return;
  const path = `/v1/nodes/${encodeURIComponent(name)}/${verb}`;
  const done = (operation) => `Node ${name}: ${operation.state === "done" ? operation.result.state : `the scheduler will ${verb} it next`}.`;
  await act(button, () => send("POST", path, body, { Prefer: "wait=2" }), done);
  refresh();
}

/** The window of a drain, as the body of the request; null: the reader closed the dialog. */
function windowOf(name) {
  const dialog = byId("drain");
  say("drain-title", `Drain ${name}`);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    const minutes = byId("drain-form").elements.minutes;
    const close = () => resolve(dialog.returnValue === "yes" ? { window_s: Number(minutes.value) * 60 } : null);
    dialog.addEventListener("close", close, { once: true });
  });
}

byId("nodes-search").addEventListener("input", showFound);
const refresh = follow(step);
