// Requests to the REST API with the session cookie.

const TIMEOUT_MS = 10_000;
const SEND_TIMEOUT_MS = 60_000; // a shadow run takes its time
let serverAheadMs = 0;

/** Current time of the service in seconds, so that countdowns are right on machines whose clock differs. */
export const now = () => (Date.now() + serverAheadMs) / 1000;

/** Answer of a GET as JSON; null when there is no such thing (404). Leaves for the login page on 401. */
export async function get(path, query = {}) {
  const answer = await request("GET", withQuery(path, query));
  if (answer.status === 404) return null;
  if (!answer.ok) throw new Error(`The service answered ${answer.status} to ${path}`);
  return answer.json();
}

/** Ask for a change, or a question whose answer `signal` cancels. The answer as JSON; throws an error with `status` and, as `faults`, {field, message} of what was refused. */
export async function send(method, path, body, headers = {}, signal = null) {
  const answer = await request(method, path, body, { "X-Gavel-Page": "dashboard", ...headers }, SEND_TIMEOUT_MS, signal);
  const text = await answer.json().catch(() => ({}));
  if (answer.ok) return text;
  const error = new Error(text.detail || text.title || `The service answered ${answer.status}`);
  throw Object.assign(error, { status: answer.status, faults: text.errors ?? [] });
}

/** One key for each submission: if the answer is lost and the form is sent again, there is still one job. */
export function freshKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Ask whether the scheduler is alive. */
export async function askHealth() {
  const answer = await fetch("/readyz", { signal: AbortSignal.timeout(TIMEOUT_MS) });
  return answer.ok;
}

function withQuery(path, query) {
  const parts = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return parts.length ? `${path}?${new URLSearchParams(parts)}` : path;
}

async function request(method, url, body, headers = {}, limitMs = TIMEOUT_MS, signal = null) {
  const limit = AbortSignal.timeout(limitMs);
  const options = { method, headers, signal: signal ? AbortSignal.any([limit, signal]) : limit, cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { ...headers, "Content-Type": "application/json" };
  }
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    throw new Error("The service does not answer", { cause: error });
  }
  noteClock(answer);
  if (answer.status === 401) location.assign("/");
  return answer;
}

function noteClock(answer) {
  const stamp = Date.parse(answer.headers.get("Date"));
  // The header has whole seconds: a difference below two seconds may be none.
  if (stamp) serverAheadMs = Math.abs(stamp - Date.now()) < 2000 ? 0 : stamp - Date.now();
}
