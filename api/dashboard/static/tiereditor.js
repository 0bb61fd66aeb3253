// The editor of a tier: its rules, a preview of what a change would do, and the change itself.

import { get, send } from "./api.js";
import { byId, make, say } from "./dom.js";
import { showEffects } from "./effects.js";
import { question } from "./question.js";
import { offers, quietly, tell } from "./shell.js";

const PARTS = new Set(["guarantee", "cap"]); // shown in percent
const FRESH = { weight: 1, objective: "fairness", within_user: "fast", guarantee: 0, cap: 1, default_priority: 0 };

/** A dialog for one tier; `onSaved()` is called after a change. */
export class TierEditor {
  constructor(onSaved) {
    Object.assign(this, { onSaved, tier: null, meanings: {}, orders: {} });
    this.form = byId("tier-form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
    for (const name of ["objective", "within_user"]) this.form.elements[name].addEventListener("change", () => this.explain());
    byId("tier-new").addEventListener("click", () => quietly(this.open(null)));
    byId("tier-close").addEventListener("click", () => byId("tier-editor").close());
    const fails = (error) => this.refuse(error.message);
    const cancel = question(byId("tier-preview"), byId("preview-progress"), (signal) => this.preview(signal), fails);
    byId("tier-editor").addEventListener("close", cancel);
    byId("tier-preview").hidden = !offers("preview");
  }

  /** Edit the tier of this name as it is now; null: a new one. */
  async open(name) {
    const [policies, tiers] = await Promise.all([get("/v1/policies"), get("/v1/tiers")]);
    const tier = tiers.items.find((each) => each.name === name) ?? FRESH;
    this.tier = tier;
    this.meanings = policies.tier_objectives;
    this.orders = policies.within_user;
    const choices = (meanings) => Object.keys(meanings).map((each) => make("option", { value: each }, each.replaceAll("_", " ")));
    this.form.elements.objective.replaceChildren(...choices(this.meanings));
    this.form.elements.within_user.replaceChildren(...choices(this.orders));
    const others = tiers.items.map((each) => each.name).filter((each) => each !== name);
    this.form.elements.parent.replaceChildren(...["", ...others].map((each) => make("option", { value: each }, each || "none")));
    for (const field of this.form.querySelectorAll("[name]")) field.value = textOf(field.name, tier[field.name]);
    this.form.elements.name.readOnly = name !== null;
    say("tier-editor-title", name ? `Tier ${name}` : "New tier");
    byId("preview").hidden = true;
    say("preview-progress", "");
    this.refuse("");
    this.explain();
    byId("tier-editor").showModal();
  }

  explain() {
    const { objective, within_user: order } = this.form.elements;
    say("objective-meaning", this.meanings[objective.value] ?? "");
    order.parentElement.hidden = objective.value !== "fairness"; // other objectives order a user's jobs themselves
    say("within-user-meaning", order.parentElement.hidden ? "" : `Within a user: ${this.orders[order.value] ?? ""}`);
  }

  /** The rules in the form, as the body of a request. */
  wanted() {
    const { name, ...fields } = Object.fromEntries(new FormData(this.form));
    const rules = Object.fromEntries(Object.entries(fields).map(([field, text]) => [field, valueOf(field, text)]));
    return { name, rules };
  }

  async preview(signal) {
    if (!this.form.reportValidity()) return;
    const { name, rules } = this.wanted();
    this.refuse("");
    const effects = await send("POST", `/v1/tiers/${encodeURIComponent(name)}/preview`, rules, {}, signal);
    byId("preview").hidden = false;
    say("preview-note", showEffects(byId("preview-table"), effects));
  }

  async save() {
    const { name, rules } = this.wanted();
    const headers = this.tier.version === undefined ? { "If-None-Match": "*" } : { "If-Match": `"${this.tier.version}"` };
    await this.attempt(async () => {
      await send("PUT", `/v1/tiers/${encodeURIComponent(name)}`, rules, headers);
      byId("tier-editor").close();
      tell(`Tier ${name} changes with the next round.`, "good");
      this.onSaved();
    });
  }

  async attempt(action) {
    this.refuse("");
    try {
      await action();
    } catch (error) {
      this.refuse(error.status === 412 ? "Somebody else has changed this tier: close, and edit it again." : error.message);
    }
  }

  refuse(text) {
    byId("tier-refusal").hidden = !text;
    say("tier-refusal", text);
  }
}

function textOf(field, value) {
  if (value === null || value === undefined) return "";
  return PARTS.has(field) ? String(Number((value * 100).toPrecision(6))) : String(value);
}

function valueOf(field, text) {
  if (text === "") return null;
  if (field === "objective" || field === "within_user" || field === "parent") return text;
  return PARTS.has(field) ? Number(text) / 100 : Number(text);
}
