// What every page has: the top bar, a loop that keeps the page current, and what this service and caller can do.

import { askHealth, get, now } from "./api.js";
import { byId, labelCells, say } from "./dom.js";
import { count } from "./format.js";
import { onChange } from "./live.js";

const LONGEST_PAUSE_MS = 5000; // ages and countdowns go on though nothing happens
const SHORTEST_PAUSE_MS = 1000;
const { scope, features } = document.body.dataset;
let round = null;

/** Whether the caller may do what operators do. */
export const isOperator = scope === "operator";

/** Whether the service offers this: explain, calibration, preview, what-if. */
export const offers = (feature) => features.split(" ").includes(feature);

/**
 * Run `step(summary)` now, whenever something changed, and every few seconds; not while the page is hidden. An
 * error is shown on the page, and what the page shows stays.
 */
export function follow(step) {
  let lastAnswer = Date.now();
  let endedAt = 0;
  let isBusy = false;
  let timer = 0;
  const tick = async () => {
    clearTimeout(timer);
    if (isBusy) return;
    let pauseMs = LONGEST_PAUSE_MS;
    if (!document.hidden) {
      isBusy = true;
      try {
        await refresh(step);
        lastAnswer = Date.now();
        showTrouble("");
      } catch (error) {
        const silent = Math.round((Date.now() - lastAnswer) / 1000);
        showTrouble(`${error.message}. Trying again; the page shows the state of ${silent} s ago.`);
        lamp("bad", "no answer");
        pauseMs = SHORTEST_PAUSE_MS;
      }
      isBusy = false;
      endedAt = Date.now();
    }
    clearTimeout(timer);
    timer = setTimeout(tick, pauseMs);
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(tick, Math.max(0, endedAt + SHORTEST_PAUSE_MS - Date.now()));
  };
  document.addEventListener("visibilitychange", tick);
  onChange(soon);
  setInterval(showRound, 250);
  tick();
  return soon;
}

async function refresh(step) {
  const [summary, isAlive] = await Promise.all([get("/v1/summary"), askHealth()]);
  round = summary.round;
  await step(summary);
  document.querySelectorAll("table").forEach(labelCells);
  lamp(isAlive ? "ok" : "bad", isAlive ? "scheduler running" : "scheduler not running");
  showRound();
  document.body.dataset.ready = "yes";
}

function showTrouble(text) {
  byId("trouble").textContent = text;
  byId("trouble").hidden = !text;
  document.body.classList.toggle("stale", text !== "");
}

function lamp(state, text) {
  byId("scheduler").dataset.state = state;
  say("scheduler-text", text);
}

function showRound() {
  say("policy", round ? round.policy.split(/[?/]/)[0].replaceAll("_", " ") : "–");
  say("round", round ? count(round.round_index) : "–");
  const left = round ? round.starts_at_s + round.duration_s - now() : NaN;
  say("next-round", left > 0 ? `${Math.ceil(left)} s` : "–");
  byId("round-progress").style.transform = `scaleX(${left > 0 ? 1 - left / round.duration_s : 0})`;
}

/** Ask before something that cannot be undone; resolves to true or false. */
export function confirmed(question, verb) {
  const dialog = byId("confirm");
  say("confirm-text", question);
  say("confirm-yes", verb);
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Show the outcome of an action, for screen readers too. */
export function tell(text, tone = "") {
  const line = byId("outcome");
  line.hidden = !text;
  line.className = `outcome ${tone}`;
  say(line, text);
}

/** Show what went wrong with something that a reader asked for. */
export const quietly = (promise) => promise.catch((error) => tell(error.message, "bad"));

/** Run an action of the reader with its button disabled meanwhile, and show the outcome. */
export async function act(button, action, done) {
  button.disabled = true;
  try {
    const answer = await action();
    tell(typeof done === "function" ? done(answer) : done, "good");
    return answer;
  } catch (error) {
    tell(error.message, "bad");
    return null;
  } finally {
    button.disabled = false;
  }
}
