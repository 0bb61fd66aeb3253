// The log of a job, followed live; what a job wrote is shown as text, never as markup.

import { byId, say, sayEmpty } from "./dom.js";

const KEPT_CHARACTERS = 400_000;
const RETRY_MS = 5000;
const REST = 9; // times as long as a long log took to be laid out, until it is again: the page has other things to do
// Terminal colours and cursor movements, and other control characters but tab and line feed.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Text that a job wrote, without what controls a terminal. */
export const harmless = (text) => text.replace(/\r\n?/g, "\n").replace(ESCAPES, "").replace(CONTROLS, "\ufffd");

/** Shows a job's log in #log-text while the page is visible. */
export class JobLog {
  constructor(id) {
    Object.assign(this, { id, offset: 0, source: null, isOver: false, isCut: false, timer: 0, restMs: 0 });
    this.element = byId("log-text");
    this.text = "";
    this.search = byId("log-search");
    this.search.addEventListener("input", () => this.show());
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close() : this.open()));
    window.addEventListener("pagehide", () => this.close());
    this.open();
  }

  open() {
    if (this.source || this.isOver || document.hidden) return;
    this.source = new EventSource(`/v1/jobs/${encodeURIComponent(this.id)}/logs?follow=true&offset=${this.offset}`);
    this.source.addEventListener("log", (event) => this.take(event));
    this.source.addEventListener("end", () => this.end());
    this.source.addEventListener("open", () => this.describe());
    this.source.addEventListener("error", () => {
      if (this.source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      say("log-note", "cannot be followed now; trying again");
      this.close();
      setTimeout(() => this.open(), RETRY_MS);
    });
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  take(event) {
    this.offset = Number(event.lastEventId);
    this.append(JSON.parse(event.data).text);
    this.describe();
  }

  end() {
    this.isOver = true;
    this.close();
    this.describe();
  }

  describe() {
    say("log-note", this.isOver ? "complete" : "follows the job");
    sayEmpty("log-empty", ...(this.text ? [] : ["The job has written nothing yet."]));
  }

  append(text) {
    const whole = this.text + harmless(text);
    this.isCut ||= whole.length > KEPT_CHARACTERS;
    this.text = whole.slice(-KEPT_CHARACTERS);
    this.timer ||= setTimeout(() => this.show(), this.restMs);
  }

  /** The whole log, at its end if the reader was there; while something is sought, the lines that have it. */
  show() {
    clearTimeout(this.timer);
    this.timer = 0;
    const began = performance.now();
    const wanted = this.search.value.toLowerCase();
    const lines = wanted ? this.text.split("\n").filter((line) => line.toLowerCase().includes(wanted)) : [];
    const isAtEnd = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight < 40;
    this.element.textContent = wanted ? lines.join("\n") : this.text;
    const where = this.isCut ? " in the end of the log; download it for all" : "";
    say("log-matches", wanted ? `${lines.length} ${lines.length === 1 ? "line has" : "lines have"} it${where}` : "");
    const end = this.element.scrollHeight; // which lays it out
    if (isAtEnd && !wanted) this.element.scrollTop = end;
    this.restMs = REST * (performance.now() - began);
  }
}
