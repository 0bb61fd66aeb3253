// The job under the pointer, marked wherever it is drawn.

const listeners = [];
let marked = null;

/** Id of the job that is marked now, or null. */
export const markedJob = () => marked;

/** Call back whenever another job is marked. */
export const onMark = (callback) => listeners.push(callback);

/** Mark a job; null: none. */
export function mark(jobId) {
  if (jobId === marked) return;
  marked = jobId;
  for (const callback of listeners) callback();
}
