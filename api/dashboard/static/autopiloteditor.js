// The form of the autopilot: mode, goal, candidates, time between decisions, pinned composition.

import { send } from "./api.js";
import { byId, make, say } from "./dom.js";
import { confirmed, tell } from "./shell.js";

const SECONDS_PER_HOUR = 3600;
const MEANINGS = {
  off: "off: no decisions are made; what is in force stays.",
  advise: "advise: decisions are made and shown; nothing is changed.",
  auto: "auto: what a decision chooses is in force from the next round on.",
  pin: "pin: the pinned composition is in force, and stays.",
};

/** The dialog; `onSaved()` is called after a change. */
export class AutopilotEditor {
  constructor(onSaved) {
    Object.assign(this, { onSaved, autopilot: null });
    this.form = byId("autopilot-form");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
    this.form.elements.mode.addEventListener("change", () => this.explain());
    byId("autopilot-open").addEventListener("click", () => this.open());
    byId("autopilot-close").addEventListener("click", () => byId("autopilot-editor").close());
  }

  /** Keep the newest answer about the autopilot. */
  learn(autopilot) {
    this.autopilot = autopilot;
  }

  open() {
    if (!this.autopilot) return;
    const { setting, candidates, measures } = this.autopilot;
    const fields = this.form.elements;
    fields.mode.value = setting.mode;
    fields.goal.value = setting.goal;
    fields.hours.value = Number((setting.epoch_s / SECONDS_PER_HOUR).toPrecision(6));
    fields.pinned.value = setting.pinned;
    fields.candidates.value = setting.candidates.join("\n");
    byId("autopilot-measures").replaceChildren(...Object.keys(measures).map((value) => make("option", { value })));
    byId("autopilot-candidates").replaceChildren(...candidates.map((value) => make("option", { value })));
    const texts = Object.entries(measures).map(([name, text]) => `${name}: ${text}`);
    say("goal-meaning", `A goal is a list with commas, weights after =, as mean_jct=2,money=1. ${texts.join("; ")}.`);
    this.refuse("");
    this.explain();
    byId("autopilot-editor").showModal();
  }

  explain() {
    const mode = this.form.elements.mode.value;
    say("mode-meaning", MEANINGS[mode]);
    this.form.elements.pinned.required = mode === "pin";
  }

  /** The fields that differ from what is set, as the body of a request. */
  wanted() {
    const { setting } = this.autopilot;
    const { mode, goal, hours, pinned, candidates } = Object.fromEntries(new FormData(this.form));
    const given = {
      mode, goal: goal.trim(), pinned: pinned.trim(),
      epoch_s: Number((Number(hours) * SECONDS_PER_HOUR).toPrecision(9)),
      candidates: candidates.split("\n").map((each) => each.trim()).filter(Boolean),
    };
    const isNew = ([name, value]) => JSON.stringify(value) !== JSON.stringify(setting[name]) && value !== "";
    return Object.fromEntries(Object.entries(given).filter(isNew));
  }

  async save() {
    const body = this.wanted();
    if (!Object.keys(body).length) return this.refuse("Nothing differs from what is set.");
    const { setting } = this.autopilot;
    const mode = body.mode ?? setting.mode;
    if (mode === "auto" && mode !== setting.mode && !(await confirmed("Let the autopilot switch the policy of this service by itself?", "Switch by itself"))) return undefined;
    if (mode === "pin" && (body.mode || body.pinned) && !(await confirmed(`Put ${body.pinned ?? setting.pinned} in force from the next round on?`, "Pin it"))) return undefined;
    return this.attempt(body);
  }

  async attempt(body) {
    this.refuse("");
    byId("autopilot-save").disabled = true;
    try {
      await send("PUT", "/v1/autopilot", body, { Prefer: "wait=5" });
      byId("autopilot-editor").close();
      tell("The autopilot is set.", "good");
      this.onSaved();
    } catch (error) {
      this.refuse(error.message);
    } finally {
      byId("autopilot-save").disabled = false;
    }
  }

  refuse(text) {
    byId("autopilot-refusal").hidden = !text;
    say("autopilot-refusal", text);
  }
}
