// Policies: what each optimises, which is in force, and switching after a shadow run.

import { get, send } from "./api.js";
import { byId, make, say } from "./dom.js";
import { showEffects } from "./effects.js";
import { question } from "./question.js";
import { follow, isOperator, offers, tell } from "./shell.js";
import { fillFacts } from "./why.js";

let policies = null;
let shown = "";
let tried = null; // the policy of the last shadow run

async function step() {
  policies = await get("/v1/policies");
  if (JSON.stringify(policies) === shown) return;
  shown = JSON.stringify(policies);
  const current = infoOf(policies.current);
  say("current-policy", policies.current);
  say("current-when", current?.choose_when ?? "");
  say("current-formula", current?.formula ?? "");
  say("current-source", current?.source ?? "");
  showPolicies();
  fillFacts(byId("objectives"), policies.tier_objectives);
  fillFacts(byId("orders"), policies.within_user);
}

/** What is shown of the policy of a composition, NAME?parameter=value/PART=VALUE. */
const infoOf = (composition) => policies.items.find((each) => each.name === composition.split(/[?/]/)[0]);

function showPolicies() {
  const headings = ["Policy", "Choose it when", "Formula", "Parameters", "From", ...(isOperator ? ["Switch"] : [])];
  const rows = policies.items.map((each) => {
    const parameters = Object.entries(each.parameters).map(([name, value]) => `${name}=${value}`).join(", ");
    const cells = [make("td", { className: "when" }, each.choose_when), make("td", { className: "formula" }, each.formula), make("td", {}, parameters), make("td", {}, each.source)];
    const button = make("button", { type: "button", onclick: () => open(each.name) }, "Try");
    button.setAttribute("aria-label", `Try policy ${each.name}`);
    return make("tr", {}, make("th", { scope: "row" }, each.name), ...cells, ...(isOperator ? [make("td", {}, button)] : []));
  });
  const head = make("thead", {}, make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text))));
  byId("policies-table").replaceChildren(head, make("tbody", {}, ...rows));
}

function open(name) {
  byId("switch-form").elements.policy.value = name;
  byId("shadow").hidden = true;
  say("shadow-progress", "");
  refuse("");
  explain();
  byId("switch").showModal();
}

/** The switch is possible after a shadow run of the policy, or at once where the service has no shadow runs. */
function explain() {
  const wanted = byId("switch-form").elements.policy.value;
  say("switch-when", infoOf(wanted)?.choose_when ?? "");
  say("switch-formula", infoOf(wanted)?.formula ?? "There is no such policy.");
  byId("shadow-run").hidden = !offers("what-if");
  byId("switch-yes").disabled = offers("what-if") && tried !== wanted;
}

async function shadow(signal) {
  const wanted = byId("switch-form").elements.policy.value;
  refuse("");
  const effects = await send("POST", "/v1/what-if", { policy: wanted }, {}, signal);
  tried = wanted;
  byId("shadow").hidden = false;
  say("shadow-note", showEffects(byId("shadow-table"), effects));
  explain();
}

async function switchTo() {
  const wanted = byId("switch-form").elements.policy.value;
  await attempt(byId("switch-yes"), async () => {
    const { result } = await send("PUT", "/v1/policies/current", { policy: wanted }, { Prefer: "wait=5" });
    byId("switch").close();
    tell([`${wanted} decides from the next round on.`, ...(result.note ? [`Note: ${result.note}.`] : [])].join(" "), "good");
    refresh();
  });
}

async function attempt(button, action) {
  refuse("");
  button.disabled = true;
  try {
    await action();
    button.disabled = false;
  } catch (error) {
    refuse(error.message);
    button.disabled = false;
  }
}

function refuse(text) {
  byId("switch-refusal").hidden = !text;
  say("switch-refusal", text);
}

if (isOperator) {
  byId("switch-form").addEventListener("submit", (event) => {
    event.preventDefault();
    switchTo();
  });
  byId("switch-form").elements.policy.addEventListener("input", explain);
  const cancel = question(byId("shadow-run"), byId("shadow-progress"), shadow, (error) => refuse(error.message));
  byId("switch").addEventListener("close", cancel);
  byId("switch-close").addEventListener("click", () => byId("switch").close());
}

const refresh = follow(step);
