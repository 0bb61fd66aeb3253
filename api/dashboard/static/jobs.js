// The table of jobs: state, reason, progress; sorted and filtered, the filter kept in the address.

import { now } from "./api.js";
import { byId, howToSubmit, keepRows, make, say, sayEmpty } from "./dom.js";
import { count, duration, fixed, labelOf, quantity } from "./format.js";
import { mark, markedJob, onMark } from "./highlight.js";
import { colourOf } from "./palette.js";
import { partDone, showProgress } from "./progress.js";
import { speedOf } from "./speed.js";

const ORDER = ["RUNNING", "PROFILING", "CANCELLING", "LOST", "PREEMPTED", "QUEUED", "PAUSED", "FAILED", "CANCELLED", "COMPLETED"];
const COLUMNS = [
  ["name", "Job", (job) => labelOf(job)],
  ["kind", "Kind", (job) => job.kind],
  ["tier", "Tier", (job) => job.tier],
  ["state", "State", (job) => ORDER.indexOf(job.state)],
  ["on", "On", (job) => job.accelerator_type ?? ""],
  ["progress", "Progress", (job) => partDone(stepsOf(job), job.total_steps)],
  ["speed", "Steps/s", (job) => job.speed ?? -1],
  ["rho", "ρ", (job) => job.rho ?? -1],
  ["age", "Age", (job) => job.submitted_at_s],
  ["reason", "Why", (job) => job.reason],
];
const NUMBERS = new Set(["speed", "rho", "age"]);

/** Steps that a job has done, the provisional ones included. */
export const stepsOf = (job) => Math.max(job.steps_done, job.steps_reported);

/** Draws jobs into #jobs-table. */
export class JobsTable {
  constructor(onFilter) {
    this.jobs = [];
    this.sort = { by: "state", down: false };
    this.form = byId("jobs-filter");
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (!this.form.elements[name]) continue;
      if (name === "tier") offer(this.form.elements.tier, [value]);
      this.form.elements[name].value = value;
    }
    this.form.addEventListener("input", () => this.filtered(onFilter));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.body = make("tbody");
    byId("jobs-table").append(make("thead", {}, this.headings()), this.body);
    onMark(() => {
      for (const row of this.body.rows) row.classList.toggle("marked", row.dataset.key === markedJob());
    });
  }

  /** What the service is asked for: state and tier; the text is sought here. */
  query() {
    return { state: this.form.elements.state.value, tier: this.form.elements.tier.value };
  }

  show(page) {
    this.jobs = page.items.map((job) => ({ ...job, speed: speedOf(job) }));
    this.isCut = page.next_cursor !== null;
    this.render();
  }

  offerTiers(names) {
    offer(this.form.elements.tier, names);
  }

  filtered(onFilter) {
    const chosen = [...new FormData(this.form)].filter(([, value]) => value);
    const query = new URLSearchParams(chosen).toString();
    history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
    this.render();
    onFilter();
  }

  headings() {
    return make("tr", {}, ...COLUMNS.map(([name, title]) => {
      const button = make("button", { type: "button", onclick: () => this.sortBy(name) }, title);
      const heading = make("th", { scope: "col", className: NUMBERS.has(name) ? "number" : "" }, button);
      heading.dataset.column = name;
      return heading;
    }));
  }

  sortBy(name) {
    this.sort = { by: name, down: this.sort.by === name && !this.sort.down };
    this.render();
  }

  render() {
    const text = this.form.elements.text.value.toLowerCase();
    const found = this.jobs.filter((job) => matches(job, text));
    found.sort(comparison(this.sort));
    for (const heading of byId("jobs-table").querySelectorAll("th[data-column]")) {
      const isChosen = heading.dataset.column === this.sort.by;
      heading.setAttribute("aria-sort", isChosen ? (this.sort.down ? "descending" : "ascending") : "none");
    }
    keepRows(this.body, found, (job) => job.id, createRow, updateRow);
    byId("jobs-table").hidden = found.length === 0;
    say("jobs-count", this.isCut ? `newest ${count(this.jobs.length)}; filter to see others` : `${count(found.length)}`);
    const isFiltered = this.form.elements.text.value || this.form.elements.state.value || this.form.elements.tier.value;
    if (found.length) sayEmpty("jobs-empty");
    else if (isFiltered) sayEmpty("jobs-empty", "No job matches the filter.");
    else sayEmpty("jobs-empty", "No jobs yet. ", ...howToSubmit());
  }
}

function matches(job, text) {
  return !text || [job.id, job.name, job.kind, job.user, job.reason, job.message].some((part) =>
    part.toLowerCase().includes(text));
}

function comparison({ by, down }) {
  const valueOf = COLUMNS.find(([name]) => name === by)[2];
  return (a, b) => {
    const [x, y] = [valueOf(a), valueOf(b)];
    const order = x < y ? -1 : x > y ? 1 : b.submitted_at_s - a.submitted_at_s;
    return down ? -order : order;
  };
}

function offer(select, names) {
  const known = new Set([...select.options].map((option) => option.value));
  select.append(...names.filter((name) => !known.has(name)).map((name) => make("option", {}, name)));
}

function createRow(job) {
  const link = make("a", { href: `/jobs/${encodeURIComponent(job.id)}` }, labelOf(job));
  const swatch = make("span", { className: "swatch" });
  const name = make("th", { scope: "row" }, swatch, link);
  const cells = COLUMNS.slice(1).map(([column]) => make("td", { className: cellClass(column) }));
  const row = make("tr", {}, name, ...cells);
  row.addEventListener("pointerenter", () => mark(job.id));
  row.addEventListener("pointerleave", () => mark(null));
  cells[2].append(make("span", { className: "badge" }));
  cells[4].append(make("progress", { max: 1 }), make("span", { className: "of" }));
  return row;
}

const cellClass = (column) => (NUMBERS.has(column) ? "number" : column);

function updateRow(row, job) {
  const [name, kind, tier, state, on, progress, speed, rho, age, reason] = row.children;
  name.firstChild.style.background = job.accelerator_type ? colourOf(job.id) : "transparent";
  name.title = `${job.id}, user ${job.user}`;
  say(kind, `${job.service ? "service " : ""}${job.kind}${job.scale_factor > 1 ? ` ×${job.scale_factor}` : ""}`);
  say(tier, job.tier);
  say(state.firstChild, job.state);
  state.firstChild.dataset.state = job.state;
  state.title = `preempted ${job.preemptions} ${job.preemptions === 1 ? "time" : "times"} so far`;
  say(on, job.worker_ids.join(", "));
  showProgress(progress.firstChild, stepsOf(job), job.total_steps);
  progress.firstChild.hidden = job.service !== null || (job.total_steps === null && job.finished_at_s !== null);
  say(progress.lastChild, job.service ? `${job.service.ready} of ${job.service.replicas} ready`
    : job.total_steps !== null ? `${count(stepsOf(job))} / ${count(job.total_steps)}`
    : job.finished_at_s !== null ? `${count(stepsOf(job))} steps` : `${count(stepsOf(job))}, steps unknown yet`);
  say(speed, job.speed === null ? "" : quantity(job.speed));
  say(rho, job.rho === null ? "" : fixed(job.rho));
  say(age, duration(job.jct_s ?? now() - job.submitted_at_s));
  say(reason, job.message);
}
