// Asking the REST API, as the holder of the session cookie.

const TIMEOUT_MS = 10_000;
let serverAheadMs = 0;

/** Current time of the service in seconds, so that countdowns hold on machines whose clock differs. */
export const now = () => (Date.now() + serverAheadMs) / 1000;

/** Answer of a GET as JSON; null when there is no such thing (404). Leaves for the login page on 401. */
export async function get(path, query = {}) {
  const answer = await request(path, query);
  return answer && answer.json();
}

/** Bytes of a job's log from `offset`, and the offset to ask for next. */
export async function getLog(job, offset, limit) {
  const answer = await request(`/v1/jobs/${encodeURIComponent(job)}/logs`, { offset, limit });
  if (!answer) return { bytes: new Uint8Array(), next: offset };
  return { bytes: new Uint8Array(await answer.arrayBuffer()), next: Number(answer.headers.get("X-Next-Offset")) };
}

/** Run `step` now and then `pauseMs` after it has ended, again and again; not while the page is hidden. */
export function poll(step, pauseMs = 1000) {
  const trouble = document.getElementById("trouble");
  let lastAnswer = Date.now();
  let isBusy = false;
  let timer = 0;
  const tick = async () => {
    clearTimeout(timer);
    if (!document.hidden && !isBusy) {
      isBusy = true;
      try {
        await step();
        lastAnswer = Date.now();
        trouble.hidden = true;
        document.body.classList.remove("stale");
      } catch (error) {
        const silent = Math.round((Date.now() - lastAnswer) / 1000);
        trouble.textContent = `${error.message}. Trying again; what is shown is ${silent} s old.`;
        trouble.hidden = false;
        document.body.classList.add("stale");
        lamp("bad", "no answer");
      }
      isBusy = false;
    }
    timer = setTimeout(tick, pauseMs);
  };
  document.addEventListener("visibilitychange", tick);
  tick();
}

/** Ask whether the scheduler is alive; the caller shows it once all else has been answered too. */
export async function askHealth() {
  const answer = await fetch("/readyz", { signal: AbortSignal.timeout(TIMEOUT_MS) });
  return answer.ok;
}

/** Say in the top bar whether the scheduler is alive. */
export function showHealth(isAlive) {
  if (isAlive) lamp("ok", "scheduler running");
  else lamp("bad", "scheduler not running");
}

function lamp(state, text) {
  const element = document.getElementById("scheduler");
  element.dataset.state = state;
  document.getElementById("scheduler-text").textContent = text;
}

async function request(path, query) {
  const parts = Object.entries(query).filter(([, value]) => value !== null && value !== "");
  const url = parts.length ? `${path}?${new URLSearchParams(parts)}` : path;
  let answer;
  try {
    answer = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  } catch (error) {
    throw new Error("The service does not answer", { cause: error });
  }
  noteClock(answer);
  if (answer.status === 401) location.assign("/");
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`The service answered ${answer.status} to ${path}`);
  return answer;
}

function noteClock(answer) {
  const stamp = Date.parse(answer.headers.get("Date"));
  // The header has whole seconds: less than two of difference may be none.
  if (stamp) serverAheadMs = Math.abs(stamp - Date.now()) < 2000 ? 0 : stamp - Date.now();
}
