// The autopilot: what is in force and why, candidates, regret, the workload over time, past decisions.

import { get } from "./api.js";
import { AutopilotEditor } from "./autopiloteditor.js";
import { Bars, signed } from "./bars.js";
import { byId, fillTable, make, sayEmpty, say } from "./dom.js";
import { count, duration, instant, quantity } from "./format.js";
import { colourOfTier } from "./palette.js";
import { LinePlot } from "./plot.js";
import { follow, isOperator, quietly } from "./shell.js";
import { fillFacts } from "./why.js";

const PAGE = 40;
const ERRORS = 2; // standard errors to each side of a gain
const scores = new Bars("scores-canvas");
const regret = new Bars("regret-canvas");
const plots = new Map();
const editor = isOperator ? new AutopilotEditor(() => refresh()) : null;
let older = []; // decisions that the reader asked for, newest first
let nextBefore = null;

async function step() {
  const [autopilot, page] = await Promise.all([get("/v1/autopilot"), get("/v1/autopilot/decisions", { limit: PAGE })]);
  if (!older.length) nextBefore = page.next_before;
  showForce(autopilot);
  showScores(autopilot.newest, autopilot.in_force);
  showRegret(autopilot.regrets);
  const decisions = [...page.items, ...older.filter((each) => each.number < (page.items.at(-1)?.number ?? 0))];
  showFeatures(decisions.filter((each) => Object.keys(each.features).length).reverse());
  showDecisions(decisions);
  editor?.learn(autopilot);
}

function showForce({ setting, in_force: inForce, sentence, candidates, ...rest }) {
  say("autopilot-policy", inForce);
  say("autopilot-mode", `mode ${setting.mode}`);
  say("autopilot-sentence", sentence);
  const due = rest.next_at_s === null ? "" : instant(rest.next_at_s);
  fillFacts(byId("autopilot-facts"), {
    Goal: setting.goal,
    Candidates: candidates.join(", "),
    "Next decision": [due, rest.waits_for].filter(Boolean).join(": "),
    "Time between decisions": duration(setting.epoch_s),
    "Pinned composition": setting.mode === "pin" ? setting.pinned : "",
    "Failures in a row": rest.failures_in_a_row || "",
    "CPU time in the last hour": duration(rest.cpu_s_last_hour),
  });
}

function showScores(newest, inForce) {
  const rows = newest?.scores ?? [];
  sayEmpty("scores-empty", ...(rows.length ? [] : [newest ? "The newest decision failed, so that nothing was compared." : "No decision yet: the first one compares the candidates."]));
  byId("scores-body").hidden = rows.length === 0;
  say("scores-note", newest ? `decision ${newest.number}, ${instant(newest.at_s)}; gain over ${newest.incumbent}` : "");
  const bars = rows.map((each) => ({
    name: each.composition, value: each.gain, error: each.error === null ? 0 : ERRORS * each.error,
    mark: each.composition === newest.chosen, text: scoreText(each),
  }));
  scores.show(bars, `Gains of ${rows.length} candidates; the table has the same numbers`);
  fillTable(byId("scores-table"), ["Composition", "Gain", "Two standard errors", "Cost", "Futures", "Limits", "Now"],
    rows.map((each) => [
      each.composition, signed(each.gain), each.error === null ? "–" : `± ${(100 * ERRORS * each.error).toFixed(1)} %`, quantity(each.cost),
      String(each.futures), each.keeps_limits ? "kept" : "broken",
      [each.composition === inForce ? "in force" : "", each.composition === newest.chosen ? "chosen" : ""].filter(Boolean).join(", "),
    ]));
}

const scoreText = (each) => [
  `${each.composition}: ${signed(each.gain)}${each.error === null ? "" : ` ± ${(100 * ERRORS * each.error).toFixed(1)} %`}`,
  `tried on ${each.futures} futures${each.keeps_limits ? "" : "; it breaks a limit of the goal"}`,
].join("\n");

function showRegret(rows) {
  sayEmpty("regret-empty", ...(rows.length ? [] : ["No epoch is over yet: the next decision replays this one with every candidate."]));
  byId("regret-body").hidden = rows.length === 0;
  const bars = rows.map((each) => ({
    name: each.composition, value: each.regret, error: null, mark: false,
    text: `${signed(each.regret)} against ${each.composition}\nover ${each.epochs} epochs`,
  }));
  regret.show(bars, `Regret against ${rows.length} compositions; the table has the same numbers`);
  fillTable(byId("regret-table"), ["Composition", "Regret", "Epochs", "Cost", "Cost with it"],
    rows.map((each) => [each.composition, signed(each.regret), count(each.epochs), quantity(each.actual), quantity(each.replayed)]));
}

/** One plot for each feature; `decisions` are oldest first. */
function showFeatures(decisions) {
  sayEmpty("features-empty", ...(decisions.length ? [] : ["No decision yet."]));
  byId("features-body").hidden = decisions.length === 0;
  const names = [...new Set(decisions.flatMap((each) => Object.keys(each.features)))];
  const at = decisions.map((each) => each.at_s);
  names.forEach((name, i) => {
    if (!plots.has(name)) plots.set(name, plotOf(name));
    plots.get(name).show(at, [{ label: name, colour: () => colourOfTier(i), values: decisions.map((each) => each.features[name] ?? null) }]);
  });
  fillTable(byId("features-table"), ["At", ...names, "Jobs"],
    decisions.slice(-PAGE).reverse().map((each) => [instant(each.at_s), ...names.map((name) => quantity(each.features[name])), count(each.jobs)]));
}

function plotOf(name) {
  const place = make("div", { className: "plot", role: "img" });
  place.setAttribute("aria-label", `${name} over time; the table has the same numbers`);
  byId("features-plots").append(make("figure", { className: "curve" }, make("figcaption", {}, name), place));
  return new LinePlot(place, { x: "time", y: quantity, group: "features", options: () => ({ isTime: true }) });
}

function showDecisions(decisions) {
  sayEmpty("decisions-empty", ...(decisions.length ? [] : ["No decision yet."]));
  byId("decisions-more").hidden = nextBefore === null;
  fillTable(byId("decisions-table"), ["Number", "At", "Mode", "Chosen", "Done", "Predicted", "Actual", "Why"],
    decisions.map((each) => [
      String(each.number), instant(each.at_s), each.mode, each.failure ? "–" : each.chosen, doneOf(each), costOf(each.predicted), costOf(each.actual),
      each.failure ? `Failed: ${each.failure}` : each.reason,
    ]));
}

const doneOf = (each) => (each.failure ? "failed" : each.is_followed ? "switched" : each.chosen === each.incumbent ? "stayed" : "advised");

const costOf = (cost) => (cost === null ? "–" : quantity(cost));

async function goOn() {
  const page = await get("/v1/autopilot/decisions", { limit: PAGE, before: nextBefore });
  older = [...older, ...page.items];
  nextBefore = page.next_before;
  refresh();
}

byId("decisions-more").addEventListener("click", () => quietly(goOn()));

const refresh = follow(step);
