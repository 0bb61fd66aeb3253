// Steps per second as this page sees it: from the steps that jobs reported over the last seconds.

import { now } from "./api.js";

const WINDOW_S = 15;
const samples = new Map();

/** Steps per second of a job that runs now: seen over the last seconds, else its average while it held workers. */
export function speedOf(job) {
  const steps = Math.max(job.steps_done, job.steps_reported);
  const seen = observe(job, steps);
  if (!job.accelerator_type) return null;
  const [first, last] = [seen[0], seen.at(-1)];
  if (last.at - first.at > 2 && last.steps > first.steps) return (last.steps - first.steps) / (last.at - first.at);
  const held = Object.values(job.received_s).reduce((total, seconds) => total + seconds, 0);
  return held > 0 && steps > 0 ? steps / held : null;
}

function observe(job, steps) {
  const key = `${job.id}/${job.generation}`;
  const seen = samples.get(key) ?? samples.set(key, []).get(key);
  const at = now();
  if (seen.at(-1)?.steps !== steps || seen.length < 2) seen.push({ at, steps });
  while (seen.length > 2 && at - seen[0].at > WINDOW_S) seen.shift();
  return seen;
}
