// A question that takes a while: it says for how long it has been worked on, and its button cancels it.

/**
 * Let a button ask `ask(signal)`, and cancel that while it is not answered. `note` shows the progress, and
 * `onFailure(error)` is called with what went wrong. Returns a function that cancels.
 */
export function question(button, note, ask, onFailure) {
  const title = button.textContent;
  let asked = null;
  const cancel = () => asked?.abort();
  button.addEventListener("click", async () => {
    if (asked) return cancel();
    const since = Date.now();
    const show = () => { note.textContent = `Working it out for ${Math.round((Date.now() - since) / 1000)} s. Nothing is changed.`; };
    const { signal } = (asked = new AbortController());
    const clock = setInterval(show, 1000);
    show();
    button.textContent = "Cancel";
    try {
      await ask(signal);
      note.textContent = "";
    } catch (error) {
      note.textContent = signal.aborted ? "Cancelled. Nothing is changed." : "";
      if (!signal.aborted) onFailure(error);
    } finally {
      clearInterval(clock);
      button.textContent = title;
      asked = null;
    }
  });
  return cancel;
}
