// Setup: what the service finds on its machine, with what is to be mended first.

import { get } from "./api.js";
import { byId, labelCells, make, say, sayEmpty } from "./dom.js";
import { follow, isOperator } from "./shell.js";

const STATES = { problem: "to be mended", note: "to know", ok: "fine" };
const COLOURS = { problem: "FAILED", note: "QUEUED", ok: "RUNNING" };
const ORDER = Object.keys(STATES);
let shown = false;

async function step() {
  if (shown || !isOperator) return sayEmpty("setup-empty", ...(isOperator ? [] : ["Only operators see this page."]));
  const { items } = await get("/v1/findings");
  shown = true; // each look asks the machine anew, so only a new page does
  const problems = items.filter((each) => each.verdict === "problem").length;
  say("setup-count", problems ? `${problems} to be mended` : "nothing is to be mended");
  const rows = items.toSorted((one, other) => ORDER.indexOf(one.verdict) - ORDER.indexOf(other.verdict)).map(rowOf);
  const head = make("tr", {}, ...["About", "State", "What"].map((text) => make("th", { scope: "col" }, text)));
  byId("setup-table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  labelCells(byId("setup-table"));
}

function rowOf(finding) {
  const badge = make("span", { className: "badge" }, STATES[finding.verdict]);
  badge.dataset.state = COLOURS[finding.verdict];
  return make("tr", {}, make("th", { scope: "row" }, finding.about), make("td", {}, badge), make("td", { className: "when" }, finding.text));
}

follow(step);
