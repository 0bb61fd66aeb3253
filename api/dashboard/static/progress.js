// How far a job is: a bar, and its text for screen readers. Nobody may have said yet how many steps the job has.

import { count, percent } from "./format.js";

/** The part of its steps that a job has done; 0 while it is not known how many it has. */
export const partDone = (steps, total) => (total === null ? 0 : steps / total);

/** Show `steps` of `total` (null: not known yet) in a progress element. */
export function showProgress(bar, steps, total) {
  bar.value = partDone(steps, total);
  bar.setAttribute("aria-label", total === null ? `${count(steps)} steps, unknown of how many`
    : `${percent(bar.value)} of ${total} steps`);
}
