// The form that submits a job by the public API; what the API refuses is shown next to the field.

import { freshKey, send } from "./api.js";
import { byId, say } from "./dom.js";
import { follow } from "./shell.js";
import { words } from "./words.js";

const form = byId("submit-form");
const fields = [...form.querySelectorAll("[aria-describedby]")];
const button = form.querySelector("button[type=submit]");
let key = freshKey();

/** How each field is sent to the service; an empty field is not sent. */
const READ = {
  argv: words,
  total_steps: Number,
  scale_factor: Number,
  sizes: sizesOf,
  global_batch: Number,
  max_global_batch: Number,
  plans: (text) => text.split("\n").map((line) => line.trim()).filter(Boolean),
  priority: Number,
  deadline_at_s: instantOf,
  longest_s: (text) => Number(text) * 3600,
  reserved_at_s: instantOf,
  secrets: (text) => text.trim().split(/[\s,]+/),
  labels: (text) => Object.fromEntries(text.split("\n").filter((line) => line.trim()).map(pairOf)),
};

function instantOf(text) {
  return new Date(text).getTime() / 1000;
}

/** A range goes as it is: the service knows which of its sizes divide the global batch. */
function sizesOf(text) {
  const range = text.trim().replace(/\s*-\s*/, "-");
  return /^[0-9]+-[0-9]+$/.test(range) ? range : text.trim().split(/[\s,]+/).map(sizeOf);
}

function sizeOf(text) {
  if (!/^[0-9]+$/.test(text)) throw new Error(`"${text}": write numbers, such as 1, 2, 4, or a range, such as 1-8`);
  return Number(text);
}

function pairOf(line) {
  const [name, ...value] = line.split("=");
  if (!value.length) throw new Error(`"${line.trim()}": write key=value, one on each line`);
  return [name.trim(), value.join("=").trim()];
}

const isMeant = (field) => !field.closest("[hidden]");

/** The job that the form describes, and what is wrong with it: [{field, message}]. */
function read() {
  const job = {};
  const faults = [];
  for (const field of fields.filter(isMeant)) {
    try {
      if (field.validity.badInput) throw new Error("this is not complete");
      if (field.required && !field.value.trim()) throw new Error("this is needed");
      if (field.value.trim()) job[field.name] = (READ[field.name] ?? String)(field.value);
    } catch (error) {
      faults.push({ field: field.name, message: error.message });
    }
  }
  if (job.longest_s !== undefined || job.reserved_at_s !== undefined) {
    job.mode = "interactive";
    delete job.total_steps; // a session has none; the field has a number for other jobs
  }
  if (job.git_ref && !job.git_url) faults.push({ field: "git_url", message: "name the repository that has it" });
  return { job, faults };
}

/** Show each fault next to its field, the others at the end, and move the focus to the first. */
function show(faults) {
  const messages = new Map();
  for (const { field = "", message } of faults) {
    const name = field.replace(/^(body\.)?(code\.)?/, "").split(".")[0];
    const isKnown = fields.some((each) => each.name === name && isMeant(each));
    messages.set(isKnown ? name : "", message);
  }
  for (const field of fields) {
    refuse(`submit-${field.name}-refusal`, messages.get(field.name));
    field.setAttribute("aria-invalid", String(messages.has(field.name)));
  }
  refuse("submit-refusal", messages.get(""));
  fields.find((field) => messages.has(field.name))?.focus();
}

function refuse(id, text = "") {
  byId(id).hidden = !text;
  say(id, text);
}

/** The job with the code of its git repository, once the service has fetched it; a Python file is run by `python`. */
async function withCode({ git_url, git_ref, ...job }) {
  if (!git_url) return job;
  const argv = job.argv[0].endsWith(".py") ? ["python", ...job.argv] : job.argv;
  const script = argv === job.argv ? "" : argv[1].replace(/^(\.\/)+/, "");
  const wanted = { git_url, git_ref: git_ref || "HEAD", secrets: job.secrets ?? [], script };
  say("submit-progress", "The service fetches the repository");
  try {
    let code;
    do code = await send("POST", "/v1/code-versions/fetch", wanted);
    while (!code.digest); // the service answers after a while, also where the fetch goes on
    return { ...job, argv, code };
  } finally {
    say("submit-progress", "");
  }
}

async function submit(event) {
  event.preventDefault();
  const { job, faults } = read();
  show(faults);
  if (faults.length) return;
  button.disabled = true;
  try {
    const made = await send("POST", "/v1/jobs", await withCode(job), { "Idempotency-Key": key });
    location.assign(`/jobs/${encodeURIComponent(made.id)}`);
  } catch (error) {
    show(error.faults?.length ? error.faults : [{ message: error.message }]);
  } finally {
    button.disabled = false;
  }
}

function choose() {
  for (const what of ["kind", "argv"]) byId(`submit-what-${what}`).hidden = form.elements.what.value !== what;
  form.elements.total_steps.required = form.elements.what.value === "kind"; // own programs may say it
}

form.addEventListener("submit", submit);
form.addEventListener("input", () => {
  key = freshKey();
  choose();
});
choose(); // a browser that goes back keeps what was chosen
follow(() => {});
