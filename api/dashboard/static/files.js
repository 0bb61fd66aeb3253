// The files of a job's output folder, each a link that downloads it.

import { get } from "./api.js";
import { byId, fillTable, make, say, sayEmpty } from "./dom.js";
import { bytes, count, timeOfDay } from "./format.js";

const ROWS = 200;

const seconds = (value) => (value === null ? "–" : `${value.toFixed(2)} s`);

/** Fill #checkpoints-table, and name the accepted checkpoint in #checkpoint, a link that downloads it. */
export async function showCheckpoint(id) {
  const path = `/v1/jobs/${encodeURIComponent(id)}/checkpoints`;
  const { items, accepted, written } = await get(path);
  byId("checkpoints-table").hidden = written.length === 0;
  fillTable(byId("checkpoints-table"), ["Checkpoint", "Steps", "Size", "Written in", "Without training", "At"],
    written.map((each) => [each.name, count(each.step), each.size_bytes === null ? "–" : bytes(each.size_bytes),
      seconds(each.written_s), seconds(each.cost_s), timeOfDay(each.at_s)]));
  const kept = items.find((each) => each.is_accepted);
  if (!kept) return say("checkpoint", accepted ? `Checkpoint ${accepted}, which the service cannot read.` : "No checkpoint was accepted yet.");
  const link = make("a", { href: `${path}/${kept.name}`, download: `${id}-${kept.name}.tar` }, "Download");
  byId("checkpoint").replaceChildren(
    `Checkpoint ${kept.name}: after ${count(kept.step)} steps, ${bytes(kept.size_bytes)}, written at ${timeOfDay(kept.written_at_s)}. `, link);
  return undefined;
}

/** Fill #files-table, #files-note and #files-empty for the job. */
export async function showFiles(id) {
  const path = `/v1/jobs/${encodeURIComponent(id)}/files`;
  const found = await get(path);
  const files = found.items.slice(0, ROWS);
  sayEmpty("files-empty", ...(files.length ? [] : ["The job has written no files to job.output_dir."]));
  say("files-note", files.length ? noteOf(found) : "");
  byId("files-table").hidden = files.length === 0;
  fillTable(byId("files-table"), ["File", "Size", "Written"],
    files.map((file) => [file.path, bytes(file.size_bytes), timeOfDay(file.modified_at_s)]));
  [...byId("files-table").tBodies[0].rows].forEach((row, i) => link(row.cells[0], path, files[i].path));
}

function link(cell, path, name) {
  if (cell.querySelector("a")) return;
  const href = `${path}/content?${new URLSearchParams({ path: name })}`;
  cell.replaceChildren(make("a", { href, download: name.split("/").at(-1) }, name));
}

function noteOf(found) {
  const limit = found.limit_bytes ? ` of ${bytes(found.limit_bytes)} that a job may keep` : "";
  const more = found.items.length > ROWS || found.is_cut ? `; the first ${count(ROWS)} are shown, gavel job files lists more` : "";
  const until = found.kept_until_s === null ? "" : `; kept until ${new Date(found.kept_until_s * 1000).toLocaleDateString()}`;
  return `${bytes(found.total_bytes)}${limit}${until}${more}`;
}
