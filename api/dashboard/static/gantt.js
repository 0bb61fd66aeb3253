// Placements: who held which worker in which round. A lease that was renewed in place is one block.

import { Chart, fitted } from "./chart.js";
import { byId, fillTable } from "./dom.js";
import { markedJob } from "./highlight.js";
import { colourOf, themed } from "./palette.js";

const FOOT = 22;

/**
 * Draws rounds into #<name>-canvas and #<name>-table. `show({rounds, lanes, laneOf, labelOf, current})`: rounds oldest
 * first, lanes top to bottom, `laneOf(lease)` the lanes a lease is on.
 */
export class Gantt {
  constructor(name) {
    this.name = name;
    this.view = { rounds: [], lanes: [] };
    this.chart = new Chart(byId(`${name}-canvas`), {
      heightFor: () => this.view.lanes.length * this.laneHeight() + FOOT,
      draw: (pen, width) => this.draw(pen, width),
    });
  }

  show(view) {
    this.view = { ...view, blocks: blocksOf(view) };
    const blocks = [...this.view.blocks.values()].flat();
    byId(`${this.name}-canvas`).setAttribute("aria-label",
      `Leases of ${view.lanes.length} lanes over ${view.rounds.length} rounds: ${blocks.length} blocks`);
    fillTable(byId(`${this.name}-table`), ["Where", "Job", "Rounds", "Profiling"],
      blocks.map((block) => [block.lane, view.labelOf(block.job), rangeOf(block), block.profiling ? "yes" : ""]));
    this.chart.redraw();
  }

  laneHeight() {
    return Math.max(9, Math.min(24, Math.floor(560 / Math.max(1, this.view.lanes.length))));
  }

  draw(pen, width) {
    const { rounds, lanes, blocks = new Map(), current } = this.view;
    const left = Math.min(120, 16 + Math.max(0, ...lanes.map((lane) => pen.measureText(lane).width)));
    const step = (width - left) / Math.max(1, rounds.length);
    const height = this.laneHeight();
    const rows = lanes.map((lane, i) => {
      pen.fillStyle = themed("--quiet");
      if (height > 11) pen.fillText(fitted(pen, lane, left - 10), 0, i * height + height / 2);
      pen.fillStyle = themed("--track");
      pen.fillRect(left, i * height + height - 1, width - left, 1);
      return (blocks.get(lane) ?? []).map((block) => this.block(pen, block, left, i * height, step, height));
    });
    this.axis(pen, left, width, step, lanes.length * height, current);
    return rows;
  }

  block(pen, block, left, y, step, height) {
    const cell = { x: left + block.from * step, y, width: (block.to - block.from) * step, height, text: this.describe(block), job: block.job };
    const isAhead = this.view.rounds[block.from].round_index > this.view.current;
    const isMuted = markedJob() !== null && markedJob() !== block.job;
    pen.globalAlpha = isAhead || isMuted ? 0.35 : 1;
    pen.fillStyle = colourOf(block.job);
    pen.beginPath();
    pen.roundRect(cell.x + 0.5, y + 1.5, Math.max(1, cell.width - 1), height - 3, 3);
    pen.fill();
    if (block.profiling) hatch(pen, cell);
    pen.globalAlpha = 1;
    const label = height > 13 ? fitted(pen, this.view.labelOf(block.job), cell.width - 10, 5) : "";
    if (label) {
      pen.fillStyle = "#0d151c";
      pen.fillText(label, cell.x + 5, y + height / 2 + 0.5);
    }
    return cell;
  }

  axis(pen, left, width, step, y, current) {
    const { rounds } = this.view;
    if (!rounds.length) return;
    pen.fillStyle = themed("--quiet");
    pen.fillText(`round ${rounds[0].round_index}`, left, y + 13);
    pen.textAlign = "right";
    pen.fillText(String(rounds.at(-1).round_index), width, y + 13);
    pen.textAlign = "left";
    const now = rounds.findIndex((round) => round.round_index === current);
    if (now < 0) return;
    pen.fillStyle = themed("--ink");
    pen.fillRect(left + now * step, y + 1, step, 2);
  }

  describe(block) {
    const renewals = block.leases - 1;
    const tokens = renewals ? `renewed ${renewals} ${renewals === 1 ? "time" : "times"} in place` : "not renewed";
    return `${this.view.labelOf(block.job)} on ${block.lane}\nround ${rangeOf(block)} · ${tokens}` +
      `${block.profiling ? " · profiling" : ""}\n${block.job}, token ${block.token}`;
  }
}

const rangeOf = (block) => (block.first === block.last ? String(block.first) : `${block.first} to ${block.last}`);

/** Blocks of each lane: neighbouring rounds with the same token are one. */
function blocksOf({ rounds, lanes, laneOf }) {
  const blocks = new Map(lanes.map((lane) => [lane, []]));
  rounds.forEach((round, i) => {
    for (const lease of round.leases) {
      for (const lane of laneOf(lease)) extend(blocks.get(lane) ?? [], lane, lease, round.round_index, i);
    }
  });
  return blocks;
}

function extend(lane, name, lease, index, i) {
  const last = lane.at(-1);
  const goesOn = last && last.job === lease.job_id && last.token === lease.token && last.to === i;
  if (goesOn && last.profiling === lease.is_profiling) {
    Object.assign(last, { to: i + 1, last: index, leases: last.leases + 1 });
    return;
  }
  lane.push({
    lane: name, job: lease.job_id, token: lease.token, profiling: lease.is_profiling,
    from: i, to: i + 1, first: index, last: index, leases: 1,
  });
}

function hatch(pen, cell) {
  pen.save();
  pen.beginPath();
  pen.rect(cell.x + 0.5, cell.y + 1.5, cell.width - 1, cell.height - 3);
  pen.clip();
  pen.strokeStyle = "rgb(0 0 0 / 45%)";
  pen.lineWidth = 1.5;
  for (let x = cell.x - cell.height; x < cell.x + cell.width; x += 6) {
    pen.beginPath();
    pen.moveTo(x, cell.y + cell.height);
    pen.lineTo(x + cell.height, cell.y);
    pen.stroke();
  }
  pen.restore();
}
