// The panel of placements: which rounds and workers are shown, and moving among them.

import { get } from "./api.js";
import { byId, make, say, sayEmpty } from "./dom.js";
import { count } from "./format.js";
import { Gantt } from "./gantt.js";
import { quietly } from "./shell.js";
import { openWhy } from "./why.js";

const LANES_MAX = 64;

/** Draws placements into #placements; `nodeOf()` names the node whose workers are shown, empty for the first of all. */
export class PlacementsPanel {
  constructor(nodeOf = () => "") {
    Object.assign(this, { nodeOf, before: null, shown: null, asked: 0 });
    this.size = byId("placements-rounds");
    this.gantt = new Gantt("placements", {
      zoom: (by) => this.zoom(by),
      open: ({ job }) => job && quietly(openWhy(job)),
    });
    this.size.addEventListener("change", () => quietly(this.refresh()));
    byId("placements-earlier").addEventListener("click", () => this.move(-1));
    byId("placements-later").addEventListener("click", () => this.move(1));
    byId("placements-now").addEventListener("click", () => this.show(null));
  }

  /** Move one step in the list of sizes; true if there was one. */
  zoom(by) {
    const wanted = this.size.selectedIndex + by;
    if (wanted < 0 || wanted >= this.size.options.length) return false;
    this.size.selectedIndex = wanted;
    quietly(this.refresh());
    return true;
  }

  /** Move earlier or later by half of what is shown. */
  move(by) {
    const rounds = this.shown?.rounds ?? [];
    if (!rounds.length) return;
    const end = rounds.at(-1).round_index + 1 + by * Math.ceil(rounds.length / 2);
    this.show(end > this.newest ? null : Math.max(2, end));
  }

  show(before) {
    this.before = before;
    quietly(this.refresh());
  }

  /** Read and draw; `current`: index of the round in force. */
  async refresh(current = this.current) {
    this.current = current;
    const query = { rounds: this.size.value, before: this.before, node: this.nodeOf(), limit: LANES_MAX };
    const asked = ++this.asked;
    const found = await get("/v1/placements", query);
    if (asked !== this.asked) return; // the reader has chosen something else meanwhile
    this.shown = found;
    if (this.before === null) this.newest = found.rounds.at(-1)?.round_index ?? 0;
    sayEmpty("placements-empty", ...(found.rounds.length ? [] : ["No round yet: the first begins when there is a job."]));
    for (const part of document.querySelectorAll(".needs-rounds")) part.hidden = found.rounds.length === 0;
    say("placements-span", this.before === null ? "of the last rounds" : `up to round ${this.before - 1}`);
    const cut = found.workers > found.worker_ids.length;
    say("placements-note", cut ? `${count(found.worker_ids.length)} of ${count(found.workers)} workers; choose a node to see others` : "");
    this.gantt.show({
      rounds: found.rounds.map((round) => round.round_index),
      lanes: found.worker_ids,
      blocks: found.blocks.map((block) => blockOf(block, block.worker_id)),
      current,
    });
  }
}

/** A block of the answer in the form of the chart, on a lane. */
export function blockOf(block, lane) {
  return {
    lane, job: block.job_id, name: block.name, generation: block.generation, first: block.first_round, last: block.last_round,
    leases: block.leases, profiling: block.is_profiling,
  };
}

/** What is wrong with the cluster or a node of it, and what to do. */
export function showNotes(lines) {
  const list = byId("cluster-notes");
  list.hidden = lines.length === 0;
  if (list.dataset.said === lines.join("\n")) return;
  list.dataset.said = lines.join("\n");
  list.replaceChildren(...lines.map((line) => make("li", {}, line)));
}
