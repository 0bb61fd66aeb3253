// Live events: learns that something changed, while the page is visible.

const RETRY_MS = 5000;
const callbacks = [];
let source = null;
let position = null;

/** Call back whenever the service says that a job or round changed; events come only while the page is visible. */
export function onChange(callback) {
  callbacks.push(callback);
  if (callbacks.length > 1) return;
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
}

/** A browser opens six connections to a host, and a stream occupies one: hidden pages close theirs. */
function close() {
  source?.close();
  source = null;
}

function open() {
  if (source || document.hidden) return;
  source = new EventSource(`/v1/watch?kind=changed${position === null ? "" : `&after=${position}`}`);
  for (const kind of ["hello", "reset", "changed"]) source.addEventListener(kind, hear);
  source.addEventListener("error", () => {
    if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    source = null;
    setTimeout(open, RETRY_MS);
  });
}

function hear(event) {
  position = event.lastEventId || position;
  if (event.type !== "hello") for (const callback of callbacks) callback();
}
